"""How far one record moves a clipped sum: what the tests of all engines share.

Sums in single precision may round by a little more than 1e-6 of the clip norm, so batches are small here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from dptune.randomness import Randomness
from dptune.regression import RegressionDataset
from dptune.training.benchmark_data import Dataset
from dptune.training.noise import SecureNoise

PEERS = 6
PLACES = [0, 3, PEERS]
CLIPS = [0.1, 1.0, 30.0]
CLASSES = 3


def records(features: int, classes: int, seed: int = 0, filled: float = 1.0) -> Dataset:
    """Peers and, last, a record whose gradient is longer than every clip norm here."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(PEERS + 1, features)) * (rng.random((PEERS + 1, features)) < filled)
    x[-1] = 40.0 * np.sign(rng.normal(size=features)) * (rng.random(features) < filled)
    if classes == 1:  # targets that are numbers
        return RegressionDataset(x.astype(np.float32), rng.random(PEERS + 1), target_range=(0.0, 1.0))
    return Dataset(x.astype(np.float32), rng.integers(0, classes, PEERS + 1), classes)


Sums = Callable[[Any, Dataset, float], np.ndarray]


def fast(engine: Any, data: Dataset, clip: float) -> np.ndarray:
    """The sum over all records."""
    parameters = engine.start(Randomness.rehearsal(1))[None]
    if not parameters.any():
        parameters += np.random.default_rng(3).normal(size=parameters.shape).astype(parameters.dtype) * 0.1
    out = np.empty_like(parameters)
    engine.bind(data)
    engine.clipped_sums(parameters, [np.arange(len(data))], np.array([clip]), out)
    return np.asarray(out[0], np.float64)


def secure(engine: Any, data: Dataset, clip: float) -> np.ndarray:
    """The same on the lattice of secure noise."""
    parameters = engine.start(Randomness.rehearsal(1))[None].astype(np.float64)
    limit = clip - SecureNoise(Randomness.rehearsal(1), 1).margin(engine.dimension, clip, clip)
    out = np.empty_like(parameters)
    engine.bind(data)
    assert engine.lattice_sums(parameters, [np.arange(len(data))], np.array([limit]), [SecureNoise.lattice(clip)], out)
    return np.asarray(out[0])


def stacked(engine: Any, data: Dataset, clip: float) -> np.ndarray:
    """The same for the second of three candidates, whose batches are of other lengths."""
    parameters = np.stack([engine.start(Randomness.rehearsal(seed)) for seed in (2, 1, 3)])
    parameters += np.random.default_rng(3).normal(size=parameters.shape).astype(parameters.dtype) * 0.1
    out = np.empty_like(parameters)
    engine.bind(data)
    batches = [np.arange(2), np.arange(len(data)), np.arange(4)]
    engine.clipped_sums(parameters, batches, np.array([0.3, clip, 2.0]), out)
    return np.asarray(out[1], np.float64)


def check(make: Callable[[], Any], data: Dataset, sums: Sums = fast, clips: list[float] = CLIPS) -> None:
    """Insert and remove the last record, with one of two labels, at the front, in the middle and at the end."""
    engine, peers, most = make(), np.arange(PEERS), 0.0
    for clip in clips:
        without = sums(engine, data.take(peers), clip)
        for place, label in itertools.product(PLACES, (0, 1)):
            data.y[-1] = label
            with_it = sums(engine, data.take(np.insert(peers, place, PEERS)), clip)
            moved = float(np.linalg.norm(with_it - without)) / clip
            assert moved <= 1.0 + 1e-6, f"clip {clip}, place {place}: the sum moves by {moved} clip norms"
            most = max(most, moved)
    assert most > 0.5, "this record is too short to show anything"
