"""Models of the user's own, by a function of the parameters: tried before the charge, tuned by every method."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.executors.factories import make_own
from torch import Tensor, nn

import dptune as dpt
from dptune.accounting import Geometric
from dptune.errors import InvalidInput
from dptune.methods import (
    Adaptive,
    Budget,
    Naive,
    NoisyBest,
    NonPrivateOptimum,
    RandomGuess,
    RandomStopping,
    Subset,
    Threshold,
    Vote,
    known_methods,
    method_named,
)
from dptune.methods.plan import Method
from dptune.planner.networks import corners, network_trainer, try_network
from dptune.randomness import Randomness
from dptune.spaces import Choice, Float, Int, Space
from dptune.testing.searches import run_plan

SHAPE = (1, 6, 6)
RNG = np.random.default_rng(0)
Y = np.arange(240) % 2
X = (RNG.normal(size=(240, *SHAPE)) + 2 * Y[:, None, None, None] - 1).astype(np.float32)
DATA = dpt.Dataset(X, Y, 2, name="dots")
SPACE = Space(learning_rate=Float(0.01, 0.1, log=True), hidden=Choice(3, 5))
GRID = SPACE.grid(learning_rate=2)
SHORT = Space(hidden=Choice(3, 5), steps=Int(20, 20))
TOLD: dict[str, Any] = {"records": 240, "classes": 2, "epsilon": 8, "delta": 1e-3, "explain": None}


def small(params: dict[str, Any]) -> nn.Module:
    hidden = params["hidden"]
    return nn.Sequential(nn.Conv2d(1, hidden, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(4 * hidden, 2))


class Own(nn.Module):
    """No Sequential: a file cannot describe it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(36, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(x.flatten(1))
        return found


METHODS: dict[str, Method] = {
    "random-stopping": RandomStopping(SPACE, Geometric(3)),
    "adaptive": Adaptive(GRID, Geometric(2), density=(0.9, 1.3)),
    "subset": Subset(RandomStopping(SPACE, Geometric(3)), 0.3, final="all", warm_start=True),
    "noisy-best": NoisyBest(GRID, 4),
    "threshold": Threshold(GRID, 4),
    "vote": Vote(GRID, 1, 6),
    "naive": Naive(GRID),
    "optimum": NonPrivateOptimum(GRID),
    "random-guess": RandomGuess(SPACE),
}


def test_every_method_is_tried() -> None:
    ours = {name for name in known_methods() if method_named(name).__module__.startswith("dptune.")}
    rate_alone = {"linear-scaling"}  # it tunes the learning rate and nothing else, so no module's own parameter
    assert {type(method).name for method in METHODS.values()} == ours - rate_alone


@pytest.mark.parametrize("name", METHODS)
def test_every_method_tunes_a_module_on_images(name: str) -> None:
    trainer = network_trainer(small, 36, 2, 240)
    trainer = dataclasses.replace(
        trainer,
        settings=dataclasses.replace(trainer.settings, steps=3),
        validation=dpt.Dataset(X[:20], Y[:20], 2, public=True),
    )
    plan = METHODS[name].plan(Budget(6, 1e-3), trainer)
    outcomes = [run_plan(plan, trainer, DATA, Randomness.rehearsal(seed)) for seed in range(3)]
    models = [model for _, model in outcomes if model is not None]
    assert models  # K = 0 gives none; the seeds are fixed
    with torch.no_grad():
        assert all(model(torch.from_numpy(X)).shape == (240, 2) for model in models)
    assert all(selection.params["hidden"] in (3, 5) for selection, _ in outcomes)


def test_tune_releases_a_describable_network_as_layers(tmp_path: Path) -> None:
    release = dpt.tune(
        (X, Y), model=small, space=SHORT, runs=Geometric(3), seed=3, data_is="synthetic", out=tmp_path / "run", **TOLD
    )
    assert release.outcome == "model"
    assert [one.suffix for one in release.path.iterdir() if one.stem == "model"] == [".safetensors"]
    again = dpt.load_release(tmp_path / "run" / "release")
    assert np.array_equal(again.model.predict(X), release.model.predict(X))
    assert again.model.module[0].out_channels == release.params["hidden"]


def test_a_map_style_data_set_meets_a_network(tmp_path: Path) -> None:
    data: Any = torch.utils.data.ConcatDataset(
        [torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))]
    )
    release = dpt.tune(
        data, model=small, space=SHORT, runs=Geometric(3), shape=SHAPE, seed=1, data_is="synthetic",
        out=tmp_path / "run", **TOLD,
    )  # fmt: skip
    assert release.params["hidden"] in (3, 5)


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "fails for one choice": (lambda p: small({"hidden": {3: 3}[p["hidden"]]}), SPACE, r"'hidden': 5\}: KeyError"),
    "wrong input": (lambda p: nn.Sequential(nn.Linear(7, 2)), None, "cannot take rows of 36 features"),
    "wrong outputs": (lambda p: nn.Sequential(nn.Flatten(), nn.Linear(36, 3)), None, "one score per class"),
    "batch norm": (
        lambda p: nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(36, 2)), None, "depends on the others",
    ),
    "no module": (lambda p: p, None, "must be a description"),
    "not described": (lambda p: Own(), None, "names no factory that can be imported"),
    "a parameter that is missing": (small, None, "KeyError: 'hidden'"),
    "a module": (nn.Linear(36, 2), None, "model=lambda params"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_network_cannot_do_is_refused_before_the_charge(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPTUNE_LEDGER", str(tmp_path / "own.ledger"))
    model, space, line = REFUSED[name]
    with pytest.raises(InvalidInput, match=line):
        dpt.tune((X, Y), model=model, space=space, dataset="dots", out=tmp_path / "run", **TOLD)
    assert not (tmp_path / "own.ledger").exists()
    assert not (tmp_path / "run").exists()


def test_a_refusal_looks_at_no_record() -> None:
    trainer = network_trainer(small, 36, 2, 240)
    for values in (X, np.full_like(X, np.nan)):
        try_network(trainer, SPACE, dpt.Dataset(values, Y, 2))


def test_a_module_of_another_kind_needs_a_factory_that_can_be_imported() -> None:
    rows = dpt.Dataset(np.zeros((5, 3)), np.zeros(5, int), 2)
    space = Space(width=Int(2, 3))
    try_network(network_trainer(make_own, 3, 2, 100), space, rows)
    with pytest.raises(InvalidInput, match="names no factory"):
        try_network(network_trainer(lambda p: make_own({**p}), 3, 2, 100), space, rows)
    try_network(network_trainer(lambda p: make_own({**p}), 3, 2, 100), space, rows, pickle=True)


def test_model_and_trainer_exclude_each_other() -> None:
    with pytest.raises(InvalidInput, match="either a 'model'"):
        dpt.tune(DATA, model=small, trainer=network_trainer(small, 36, 2, 240), space=SPACE, epsilon=1, delta=1e-5)


def test_corners_cover_ends_and_choices() -> None:
    found = list(corners(Space(a=Int(1, 9), b=Choice("x", "y", "z"), c=Float(0, 1))))
    assert {"a": 1, "b": "x", "c": 0.0} in found
    assert {"a": 9, "b": "z", "c": 1.0} in found
    assert {one["b"] for one in found} == {"x", "y", "z"}
    assert len(found) == len({str(one) for one in found})
    assert list(corners(GRID)) == [dict(item) for item in GRID.items]
    assert len(list(corners(Space(a=Choice(*range(100)))))) == 24
