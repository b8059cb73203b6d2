"""Optimisers on privatised gradients, and learning-rate schedules.

They see only the noised average gradient, never a record, so whatever they compute is post-processing. Values
are frozen descriptions; the state of a run is a plain tuple of arrays that the engine's loop owns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dptune import _validate
from dptune._typing import Floats
from dptune.training._compiled import kernel

__all__ = ["Adam", "Constant", "Cosine", "Decay", "Momentum", "Optimizer", "Schedule", "Sgd"]

Update = Callable[[Floats, Floats, Floats], None]

# From this many parameters on, one compiled pass beats two passes of numpy.
_LARGE = 4096


class Optimizer(Protocol):
    """A rule that turns privatised gradients into updates."""

    def start(self, like: Floats) -> Update:
        """A function ``update(parameters, gradient, learning_rate)`` with fresh state, working in place."""


class Schedule(Protocol):
    """A public factor on the learning rate."""

    def factor(self, step: int, steps: int) -> float:
        """The factor of step ``step`` (from 0) out of ``steps``."""


@dataclass(frozen=True)
class Sgd:
    """Plain gradient descent."""

    def start(self, like: Floats) -> Update:
        if kernel is not None and like.dtype == np.float32 and like.ndim == 2 and like.shape[1] >= _LARGE:
            return _descend
        scratch = np.empty_like(like)

        def update(parameters: Floats, gradient: Floats, rate: Floats) -> None:
            np.multiply(gradient, rate, out=scratch)
            np.subtract(parameters, scratch, out=parameters)

        return update


def _descend(parameters: Floats, gradient: Floats, rate: Floats) -> None:
    for row, own in enumerate(rate.ravel()):
        kernel.descend(parameters[row], gradient[row], float(own))


@dataclass(frozen=True)
class Momentum:
    """Heavy-ball momentum, as in torch: ``v = beta v + g``, ``p = p - rate v``."""

    beta: float = 0.9

    def __post_init__(self) -> None:
        _validate.real("beta", self.beta, 0.0, 1.0, high_open=True)

    def start(self, like: Floats) -> Update:
        velocity = np.zeros_like(like)
        scratch = np.empty_like(like)
        beta = self.beta

        def update(parameters: Floats, gradient: Floats, rate: Floats) -> None:
            np.multiply(velocity, beta, out=velocity)
            np.add(velocity, gradient, out=velocity)
            np.multiply(velocity, rate, out=scratch)
            np.subtract(parameters, scratch, out=parameters)

        return update


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015), as in torch."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _validate.real("beta1", self.beta1, 0.0, 1.0, high_open=True)
        _validate.real("beta2", self.beta2, 0.0, 1.0, high_open=True)
        _validate.real("eps", self.eps, 0.0, low_open=True)

    def start(self, like: Floats) -> Update:
        first, second = np.zeros_like(like), np.zeros_like(like)
        scratch, root = np.empty_like(like), np.empty_like(like)
        count = 0

        def update(parameters: Floats, gradient: Floats, rate: Floats) -> None:
            nonlocal count
            count += 1
            np.multiply(first, self.beta1, out=first)
            np.multiply(gradient, 1.0 - self.beta1, out=scratch)
            np.add(first, scratch, out=first)
            np.multiply(second, self.beta2, out=second)
            np.multiply(gradient, gradient, out=scratch)
            np.multiply(scratch, 1.0 - self.beta2, out=scratch)
            np.add(second, scratch, out=second)
            np.sqrt(second, out=root)
            np.multiply(root, 1.0 / math.sqrt(1.0 - self.beta2**count), out=root)
            np.add(root, self.eps, out=root)
            np.divide(first, root, out=scratch)
            np.multiply(scratch, rate, out=scratch)
            np.multiply(scratch, 1.0 / (1.0 - self.beta1**count), out=scratch)
            np.subtract(parameters, scratch, out=parameters)

        return update


@dataclass(frozen=True)
class Constant:
    """The same learning rate throughout."""

    def factor(self, step: int, steps: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """Linear warm-up over the first ``warmup`` fraction, then half a cosine down to ``floor``."""

    warmup: float = 0.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _validate.real("warmup", self.warmup, 0.0, 1.0, high_open=True)
        _validate.real("floor", self.floor, 0.0, 1.0)

    def factor(self, step: int, steps: int) -> float:
        start = self.warmup * steps
        if step < start:
            return (step + 1) / (start + 1)
        place = (step - start) / max(1.0, steps - start)
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * place))


@dataclass(frozen=True)
class Decay:
    """Multiply by ``ratio`` after every ``every`` fraction of the steps."""

    ratio: float = 0.5
    every: float = 0.25

    def __post_init__(self) -> None:
        _validate.real("ratio", self.ratio, 0.0, 1.0, low_open=True)
        _validate.real("every", self.every, 0.0, 1.0, low_open=True)

    def factor(self, step: int, steps: int) -> float:
        return float(self.ratio ** math.floor(step / (self.every * steps)))
