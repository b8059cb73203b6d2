"""What units of several rows cost in time: a step on units against one on as many plain rows.

    python benchmarks/units.py [--units 20000] [--rows 5]

Steps of the one kind are timed after those of the other, in one process; medians. Batches hold the same number of
rows in expectation.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time

import numpy as np

from dptune.data import Dataset
from dptune.randomness import Randomness
from dptune.training import Mlp, Settings, descend, engine_for, softmax
from dptune.units import UnitDataset

_STEPS, _RATE, _TURNS = 20, 1 / 32, 5


def main() -> None:
    """Print milliseconds for a step, of plain rows and of units, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=5)
    given = parser.parse_args()
    rng, features = np.random.default_rng(0), 113
    total = given.units * given.rows
    rows = Dataset(rng.random((total, features), dtype=np.float32), rng.integers(0, 2, total), 2)
    units = UnitDataset(rows, np.arange(total) % given.units, given.rows)
    print(f"{platform.machine()}, {given.units} units of {given.rows} rows, {features} features, rate 1/32")
    for name, model in (("softmax", softmax(features, 2)), ("mlp 64", Mlp(features, 2, (64,)))):
        for secure in (False, True):
            plain, by_unit = _timed(model, rows, secure), _timed(model, units, secure)
            print(
                f"{name:8} secure={secure!s:5}  rows {plain:7.2f} ms  units {by_unit:7.2f} ms  {by_unit / plain:5.1f}x"
            )


def _timed(model: Mlp, data: Dataset | UnitDataset, secure: bool) -> float:
    """Milliseconds for a step."""
    settings = Settings(
        _RATE, 1.0, _STEPS, clip_norm=1.0, learning_rate=0.1, batch_size=len(data) * _RATE, secure=secure
    )
    engine = engine_for(model, double=secure or isinstance(data, UnitDataset))
    descend(engine, data, [settings], [Randomness.rehearsal(0)])  # records are prepared once
    found = []
    for turn in range(_TURNS):
        began = time.perf_counter()
        descend(engine, data, [settings], [Randomness.rehearsal(turn)])
        found.append((time.perf_counter() - began) / _STEPS * 1e3)
    return statistics.median(found)


if __name__ == "__main__":
    main()
