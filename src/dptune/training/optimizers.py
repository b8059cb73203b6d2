"""Optimisers on privatised gradients, and learning-rate schedules.

They see only the noised average gradient, never a record, so whatever they compute is post-processing. Values
are frozen descriptions; the state of a run is a plain tuple of arrays that the engine's loop owns. The file is long
because every optimiser and schedule stands here with its example.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dptune import _validate
from dptune._typing import Floats
from dptune.training._compiled import kernel

__all__ = [
    "Adam",
    "AdamBC",
    "Constant",
    "Cosine",
    "Decay",
    "KnowsNoise",
    "Momentum",
    "Optimizer",
    "Schedule",
    "Sgd",
    "Update",
]

Update = Callable[[Floats, Floats, Floats], None]

# From this many parameters on, one compiled pass beats two passes of numpy.
_LARGE = 4096


class Optimizer(Protocol):
    """A rule that turns privatised gradients into updates.

    An implementer sees noised gradients only, so anything it computes is post-processing. Each row is a candidate of
    its own: nothing may flow between rows. Each call of :meth:`start` makes new state, owned by one run.
    """

    def start(self, like: Floats) -> Update:
        """A function ``update(parameters, gradient, learning_rate)`` with fresh state, working in place."""


@runtime_checkable
class KnowsNoise(Protocol):
    """An optimiser that makes use of the size of the noise, which is public."""

    def start_knowing(self, like: Floats, deviation: Floats) -> Update:
        """As ``start``, given the deviation of the noise in every coordinate of each candidate's gradient."""


class Schedule(Protocol):
    """A public factor on the learning rate: a function of the step and the number of steps, never of data."""

    def factor(self, step: int, steps: int) -> float:
        """The factor of step ``step`` (from 0) out of ``steps``."""


@dataclass(frozen=True)
class Sgd:
    """Plain gradient descent: ``p = p - rate g``.

    Example:
        >>> import numpy as np
        >>> from dptune.training import Sgd
        >>> parameters = np.zeros((1, 2))
        >>> Sgd().start(parameters)(parameters, np.array([[1.0, -2.0]]), np.array([[0.5]]))
        >>> parameters
        array([[-0.5,  1. ]])
    """

    def start(self, like: Floats) -> Update:
        """A function ``update(parameters, gradient, learning_rate)`` with fresh state, for arrays like ``like``."""
        if kernel is not None and like.dtype == np.float32 and like.ndim == 2 and like.shape[1] >= _LARGE:
            return _descend
        scratch = np.empty_like(like)

        def update(parameters: Floats, gradient: Floats, rate: Floats) -> None:
            np.multiply(gradient, rate, out=scratch)
            np.subtract(parameters, scratch, out=parameters)

        return update


def _descend(parameters: Floats, gradient: Floats, rate: Floats) -> None:
    """Gradient descent by the compiled kernel, candidate by candidate."""
    for row, own in enumerate(rate.ravel()):
        kernel.descend(parameters[row], gradient[row], float(own))


@dataclass(frozen=True)
class Momentum:
    """Heavy-ball momentum, as in torch: ``v = beta v + g``, ``p = p - rate v``.

    Args:
        beta: How much of the velocity stays from step to step, in [0, 1).

    Raises:
        InvalidInput: If ``beta`` is out of range.

    Example:
        >>> import numpy as np
        >>> from dptune.training import Momentum
        >>> parameters, gradient = np.zeros((1, 1)), np.ones((1, 1))
        >>> update = Momentum(0.5).start(parameters)
        >>> for _ in range(2):
        ...     update(parameters, gradient, np.ones((1, 1)))
        >>> parameters
        array([[-2.5]])
    """

    beta: float = 0.9

    def __post_init__(self) -> None:
        _validate.real("beta", self.beta, 0.0, 1.0, high_open=True)

    def start(self, like: Floats) -> Update:
        """A function ``update(parameters, gradient, learning_rate)`` with fresh state, for arrays like ``like``."""
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
    """Adam (Kingma and Ba 2015), as in torch.

    Args:
        beta1: How much of the mean gradient stays from step to step, in [0, 1).
        beta2: How much of the mean square stays, in [0, 1).
        eps: What is added to the root of the mean square.

    Raises:
        InvalidInput: If a figure is out of range.

    Example:
        >>> import numpy as np
        >>> from dptune.training import Adam
        >>> parameters = np.zeros((1, 1))
        >>> Adam().start(parameters)(parameters, np.full((1, 1), 7.0), np.full((1, 1), 0.1))
        >>> parameters.round(6)  # the first step is as long as the learning rate
        array([[-0.1]])
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _validate.real("beta1", self.beta1, 0.0, 1.0, high_open=True)
        _validate.real("beta2", self.beta2, 0.0, 1.0, high_open=True)
        _validate.real("eps", self.eps, 0.0, low_open=True)

    def start(self, like: Floats) -> Update:
        """A function ``update(parameters, gradient, learning_rate)`` with fresh state, for arrays like ``like``."""
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
class AdamBC:
    """Adam whose second moment has the noise taken out of it (DP-AdamBC; Tang, Shpilevskiy and Lecuyer 2024).

    The mean square of a noised gradient is that of the gradient plus the variance of the noise, a public figure. What
    is left when it is subtracted may be small or negative by chance, so it is kept above a floor.

    Args:
        beta1: How much of the mean gradient stays from step to step, in [0, 1).
        beta2: How much of the mean square stays, in [0, 1).
        floor: The least second moment, as a part of the noise's variance.
        eps: What is added to the root of the second moment.

    Raises:
        InvalidInput: If a figure is out of range.

    Example:
        >>> import numpy as np
        >>> from dptune.training import AdamBC
        >>> parameters, gradient = np.zeros((1, 1)), np.full((1, 1), 5.0)
        >>> AdamBC().start_knowing(parameters, np.full((1, 1), 4.0))(parameters, gradient, np.full((1, 1), 0.1))
        >>> parameters.round(4)  # 5 / sqrt(25 - 16), times the learning rate
        array([[-0.1667]])
    """

    beta1: float = 0.9
    beta2: float = 0.999
    floor: float = 0.1
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _validate.real("beta1", self.beta1, 0.0, 1.0, high_open=True)
        _validate.real("beta2", self.beta2, 0.0, 1.0, high_open=True)
        _validate.real("floor", self.floor, 0.0)
        _validate.real("eps", self.eps, 0.0, low_open=True)

    def start(self, like: Floats) -> Update:
        """As :meth:`start_knowing`, where there is no noise: then it is Adam."""
        return self.start_knowing(like, np.zeros((len(like), 1), like.dtype))

    def start_knowing(self, like: Floats, deviation: Floats) -> Update:
        """A function ``update(parameters, gradient, learning_rate)`` with fresh state.

        Args:
            like: An array of the parameters' shape.
            deviation: The deviation of the noise in every coordinate of a gradient, for each candidate.

        Returns:
            The function, which works in place.
        """
        first, second = np.zeros_like(like), np.zeros_like(like)
        noise = np.square(deviation)
        count = 0

        def update(parameters: Floats, gradient: Floats, rate: Floats) -> None:
            nonlocal count
            count += 1
            np.add(first * self.beta1, gradient * (1.0 - self.beta1), out=first)
            np.add(second * self.beta2, np.square(gradient) * (1.0 - self.beta2), out=second)
            moment = np.maximum(second / (1.0 - self.beta2**count) - noise, self.floor * noise)
            mean = first / (1.0 - self.beta1**count)
            np.subtract(parameters, rate * mean / (np.sqrt(moment) + self.eps), out=parameters)

        return update


@dataclass(frozen=True)
class Constant:
    """The same learning rate at every step.

    Example:
        >>> from dptune.training import Constant
        >>> Constant().factor(5, 10)
        1.0
    """

    def factor(self, step: int, steps: int) -> float:
        """The factor of one step.

        Args:
            step: Which step, from 0.
            steps: How many there are.

        Returns:
            Always 1.
        """
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """A learning rate that warms up linearly and then falls along half a cosine.

    Args:
        warmup: The fraction of the steps over which it rises, in [0, 1).
        floor: The factor at the end, in [0, 1].

    Raises:
        InvalidInput: If a figure is out of range.

    Example:
        >>> from dptune.training import Cosine
        >>> [round(Cosine(floor=0.2).factor(step, 4), 3) for step in range(4)]
        [1.0, 0.883, 0.6, 0.317]
    """

    warmup: float = 0.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _validate.real("warmup", self.warmup, 0.0, 1.0, high_open=True)
        _validate.real("floor", self.floor, 0.0, 1.0)

    def factor(self, step: int, steps: int) -> float:
        """The factor of one step.

        Args:
            step: Which step, from 0.
            steps: How many there are.

        Returns:
            A number in (0, 1].
        """
        start = self.warmup * steps
        if step < start:
            return (step + 1) / (start + 1)
        place = (step - start) / max(1.0, steps - start)
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * place))


@dataclass(frozen=True)
class Decay:
    """A learning rate that is multiplied by a ratio at regular steps.

    Args:
        ratio: What it is multiplied by, in (0, 1].
        every: After which fraction of the steps, in (0, 1].

    Raises:
        InvalidInput: If a figure is out of range.

    Example:
        >>> from dptune.training import Decay
        >>> [Decay(0.5, every=0.5).factor(step, 4) for step in range(4)]
        [1.0, 1.0, 0.5, 0.5]
    """

    ratio: float = 0.5
    every: float = 0.25

    def __post_init__(self) -> None:
        _validate.real("ratio", self.ratio, 0.0, 1.0, low_open=True)
        _validate.real("every", self.every, 0.0, 1.0, low_open=True)

    def factor(self, step: int, steps: int) -> float:
        """The factor of one step.

        Args:
            step: Which step, from 0.
            steps: How many there are.

        Returns:
            A power of the ratio.
        """
        return float(self.ratio ** math.floor(step / (self.every * steps)))
