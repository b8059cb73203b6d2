"""Every method that is known, on records that are units of several rows: whole runs inside the seal, tiny ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import Inline

from dptune import Dataset, UnitDataset
from dptune.methods import Budget, known_methods
from dptune.methods.registry import method_named
from dptune.methods.settings import Surroundings, method_from_settings
from dptune.sealed import read_vault, run
from dptune.spaces import Float, Space
from dptune.training import DpSgdTrainer, Settings, softmax

UNITS, ROWS = 60, 3
SETTINGS: dict[str, dict[str, Any]] = {
    "adaptive": {"runs": "geometric:3", "points": 8},
    "linear-scaling": {"runs": "geometric:2"},
    "naive": {"grid": 2},
    "noisy-best": {"grid": 3, "shards": 3},
    "non-private-optimum": {"grid": 2},
    "random-guess": {},
    "random-stopping": {"runs": "geometric:3"},
    "subset": {"runs": "geometric:3", "fraction": 0.4},
    "threshold": {"grid": 3, "shards": 3, "granularity": 0.2},
    "vote": {"grid": 4, "votes": 2, "clients": 4},
}


class Watching(DpSgdTrainer):
    """The built-in trainer, which notes what it was given to train on."""

    def fit_many(self, params: Any, data: Any, rngs: Any, **more: Any) -> Any:
        SEEN.append(data)
        return super().fit_many(params, data, rngs, **more)


SEEN: list[Any] = []


def _patients() -> UnitDataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(UNITS * ROWS, 2)).astype(np.float32)
    rows = Dataset(x, (x[:, 0] > 0).astype(np.int64), 2, name="icu")
    return UnitDataset(rows, np.arange(UNITS * ROWS) % UNITS, ROWS, "patient")


def test_every_method_is_tried() -> None:
    assert set(SETTINGS) == set(known_methods())


@pytest.mark.parametrize("name", SETTINGS)
def test_a_method_runs_on_units(name: str, tmp_path: Path) -> None:
    SEEN.clear()
    settings = Settings.from_batch(20, UNITS, noise_multiplier=1.0, steps=3, clip_norm=1.0, learning_rate=0.5)
    trainer = Watching(softmax(2, 2), settings)
    job = Surroundings(Space(learning_rate=Float(0.1, 1.0, log=True)), 0.3, UNITS)
    plan = method_from_settings(method_named(name), SETTINGS[name], job).plan(Budget(8.0, 1e-4), trainer)
    options: Mapping[str, Any] = {"seed": 3, "data_is": "synthetic", "executor": Inline()}
    release = run(plan, trainer, _patients(), out=tmp_path / "run", **options)
    seen = read_vault(tmp_path / "run", "a test")
    assert not seen.errors
    assert all(np.isfinite(score) for score in seen.scores.values())
    assert release.details["unit"] == "patient"
    assert re.search(r"one patient: all rows .* of which at most 3 take part", release.statement)
    assert all(isinstance(data, UnitDataset) for data in SEEN)
    sizes = [set(np.diff(data.starts).tolist()) for data in SEEN]
    assert all(one in (set(), {2}, {ROWS}) for one in sizes)  # whole units in every part; blank ones have two rows
    assert {ROWS} in sizes
