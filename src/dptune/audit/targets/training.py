"""Targets of the training side: the DP-SGD engine seen by its final model, and by someone who watches every iterate.

A tiny softmax model with ordinary records and a canary whose gradient is always clipped; the attacker projects
on the canary's direction, in units of one clipped gradient. The engine and the loop are the ones that users train
with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dptune._typing import Array, Floats
from dptune.accounting import DpSgd
from dptune.audit.implementations import Target
from dptune.randomness import Randomness
from dptune.training import Dataset, Settings, descend, softmax
from dptune.training.numpy_engine import NumpyEngine

__all__ = ["Watching", "final_model", "watched_iterates"]

EngineMaker = Callable[[], NumpyEngine]

_RATE, _NOISE = 0.5, 1.0
_RECORDS = 1000
_BRIGHTNESS = 1e4  # of the canary: next to it, what ordinary records add along its direction is nothing
_STEP = 1e-4  # small: the canary's gradient is clipped, and keeps its direction, at every step
_STACK = 50


def _worlds() -> tuple[Dataset, Dataset]:
    x = np.tile(np.array([0.0, 1.0], dtype=np.float32), (_RECORDS + 1, 1))
    x[-1] = (_BRIGHTNESS, 0.0)
    both = Dataset(x, np.append(np.arange(_RECORDS) % 2, 1), 2)
    return both.take(np.arange(_RECORDS)), both


def tiny_engine() -> NumpyEngine:
    """The engine under audit."""
    return NumpyEngine(softmax(2, 2))


def _direction() -> Array:
    engine = tiny_engine()
    engine.bind(_worlds()[1])
    out = np.zeros((1, engine.dimension), engine.dtype)
    engine.clipped_sums(np.zeros_like(out), [np.array([_RECORDS])], np.ones(1), out)
    return np.asarray(-out[0], dtype=np.float64)


class Watching:
    """An engine that remembers the parameters at every step, as an attacker who sees all iterates does."""

    def __init__(self, engine: NumpyEngine) -> None:
        self._engine = engine
        self.dimension, self.dtype, self.together = engine.dimension, engine.dtype, _STACK
        self.seen: list[Floats] = []
        self.start, self.bind, self.logits = engine.start, engine.bind, engine.logits

    def clipped_sums(self, parameters: Floats, batches: Sequence[Any], clips: Floats, out: Floats) -> None:
        self.seen.append(parameters.copy())
        self._engine.clipped_sums(parameters, batches, clips, out)


def _iterates(make: EngineMaker, steps: int, world: int, games: int, seed: int) -> Array:
    """What every step added along the canary's direction: one row a game."""
    data, direction = _worlds()[world], _direction()
    settings = Settings(
        sampling_rate=_RATE, noise_multiplier=_NOISE, steps=steps, clip_norm=1.0, learning_rate=_STEP, batch_size=1.0
    )
    key = Randomness.rehearsal(seed)
    rows = []
    for begin in range(0, games, _STACK):
        keys = [key.child("game", game) for game in range(begin, min(begin + _STACK, games))]
        engine = Watching(make())
        final = descend(engine, data, [settings] * len(keys), keys)
        path = np.stack([*engine.seen, np.stack(final)]).astype(np.float64) @ direction
        rows.append(np.diff(path, axis=0).T / _STEP)
    return np.concatenate(rows)


def final_model(make: EngineMaker = tiny_engine) -> Target:
    """One step: the released model is the only thing seen."""

    def draw(world: int, games: int, seed: int) -> Array:
        return _iterates(make, 1, world, games, seed)[:, 0]

    return Target("dp-sgd, final model", DpSgd(_RATE, _NOISE, 1), draw, (-0.5, 1.0, 1.5, 4.0))


def watched_iterates(make: EngineMaker = tiny_engine) -> Target:
    """Two steps, both iterates seen: independent noise hides whether two steps differ by exactly one gradient."""

    def draw(world: int, games: int, seed: int) -> Array:
        steps = _iterates(make, 2, world, games, seed)
        return np.asarray(-np.abs(np.abs(steps[:, 0] - steps[:, 1]) - 1.0))

    return Target("dp-sgd, all iterates", DpSgd(_RATE, _NOISE, 2), draw, (-0.5, -0.05))
