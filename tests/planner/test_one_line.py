"""Arguments of a wrong type, in calls from Python: one clear line each, never a traceback from deep inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dptune as dpt
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.integrations.opacus import opacus_trainer
from dptune.planner import tune
from dptune.tables import array_dataset
from dptune.tables.map_style import record_shape
from dptune.training import Cnn, DpSgdTrainer, Mlp, Settings

_X, _Y = np.zeros((20, 4)), np.arange(20) % 2
_SETTINGS = Settings(0.1, 1.0, 2, 1.0, 0.1, 2.0)
_TOLD: dict[str, Any] = {"records": 20, "classes": 2, "epsilon": 1.0, "delta": 1e-5, "dataset": "toy"}


def _settings(**others: Any) -> Settings:
    return Settings(**{**vars(_SETTINGS), **others})


def _trainer(**others: Any) -> DpSgdTrainer:
    return DpSgdTrainer(**{"model": Mlp(4, 2), "settings": _SETTINGS, **others})


def _cnn(**others: Any) -> Cnn:
    return Cnn(**{"image": (1, 8, 8), "classes": 2, "layers": (), **others})


def _opacus(**others: Any) -> object:
    return opacus_trainer(**{"cost": dpt.DpSgd(0.1, 1.0, 2), "records": 20, **others})


def _tune(**others: Any) -> object:
    return tune((_X, _Y), **{**_TOLD, "explain": None, **others})


CALLS: dict[str, tuple[Callable[..., object], tuple[Any, ...]]] = {
    "shape": (record_shape, ("28", b"28", True, None, 2.5, 10**400, (1, "2"), {})),
    "classes": (lambda classes: array_dataset(_X, _Y, classes), ("28", 3.5, object(), {"a": 1})),
    "optimizer": (_settings, ("a", None, [], 3)),
    "schedule": (_settings, ("a", None, [], 3)),
    "secure": (_settings, ("false", None, [], 2)),
    "settings": (_trainer, ("a", None, {})),
    "validation": (_trainer, ("a", [], (_X, _Y))),
    "holdout": (_trainer, ("a", [], 0.1)),
    "engine": (_trainer, ([], None, 3)),
    "hidden": (lambda hidden: Mlp(4, 2, hidden), (None, 3, "28", ("8",))),
    "activation": (lambda activation: Mlp(4, 2, (), activation), ([], None, "a")),
    "image": (_cnn, (None, 3, "abc", (1, 2))),
    "layer": (lambda layer: _cnn(layers=layer), (None, "a", (3,))),
    "dense": (_cnn, (None, "28", 3)),
    "clip": (_opacus, ("a", [], -1.0, "1")),
    "module": (_opacus, ("a", [])),
    "exact_steps": (_opacus, ("a", None)),
    "explain": (_tune, (True, "a")),
    "runs": (_tune, ([], {}, "a", 10)),
    "space": (_tune, ([], {}, "a", 10)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_type_is_refused_in_one_line(name: str) -> None:
    call, given = CALLS[name]
    for value in given:
        with pytest.raises(InvalidInput) as caught:
            call(**{name: value})
        said = str(caught.value)
        assert name in said.lower(), said
        assert "\n" not in said
        assert len(said) < 300


def test_a_clip_norm_that_is_no_number_for_some_parameters_is_refused_in_one_line() -> None:
    made: Any = opacus_trainer(cost=dpt.DpSgd(0.1, 1.0, 2), records=20, clip=lambda params: params["clip"])
    trainer = made(lambda params, loader, engine: (None, 0.0))
    with pytest.raises(InvalidInput, match=r"'clip' must be a number in \(0, inf\); got 'a'"):
        trainer.fit({"clip": "a"}, Dataset(_X, _Y, 2), np.random.default_rng(0))
