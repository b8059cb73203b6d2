"""The truncated negative binomial law and two that have names of their own, geometric and logarithmic.

Generating function, derivatives and differences are exact closed forms, written so that nothing cancels near z = 1,
where the account looks (``docs/theorems/select.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dptune._typing import Array
from dptune._validate import real
from dptune.accounting import _solvers
from dptune.accounting._law import Runs
from dptune.errors import InvalidInput

__all__ = ["Geometric", "Logarithmic", "NegativeBinomial"]


_LARGEST_MEAN = 1e9


@dataclass(frozen=True)
class NegativeBinomial(Runs):
    """The truncated negative binomial law on 1, 2, ... (Papernot and Steinke 2022, Definition 1).

    Args:
        shape: above -1; 1 is the geometric law, 0 the logarithmic one.
        mean: at least 1, which is one certain run.

    Raises:
        InvalidInput: a figure is outside of its range, or no such law exists within floating point.

    Example:
        >>> law = NegativeBinomial(0.5, mean=10)
        >>> law.expected, round(law.stopping, 4)
        (10.0, 0.0625)
    """

    law: ClassVar[str] = "tnb"
    shape: float
    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "shape",
            real("shape", self.shape, -1, 1e6, low_open=True, hint="1 is geometric, 0 logarithmic."),
        )
        hint = "This law always runs at least once, so its mean is at least 1; use Poisson for smaller means."
        object.__setattr__(self, "mean", real("mean", self.mean, 1, _LARGEST_MEAN, hint=hint))
        if abs(self.shape) < 1e-12:  # the logarithmic law, to all digits of a probability
            object.__setattr__(self, "shape", 0.0)
        _ = self.stopping  # refuse a law that cannot be computed now rather than later

    @property
    def expected(self) -> float:
        """The mean, as it was given."""
        return self.mean

    @cached_property
    def stopping(self) -> float:
        """gamma, the stopping parameter: 1 for a single certain run, tending to 0 as the mean grows."""
        if self.mean - 1.0 < 1e-12:
            return 1.0

        def excess(log_gamma: float) -> float:
            return math.log(self._mean_at(log_gamma)) - math.log(self.mean)

        low = -1.0
        while excess(low) < 0:
            low *= 2.0
            if low < -600:
                raise InvalidInput(
                    f"No truncated negative binomial law of shape {self.shape:g} has mean {self.mean:g} within "
                    "floating point; use a shape further above -1."
                )
        return math.exp(_solvers.brentq(excess, low, -1e-16, xtol=1e-15, rtol=8.9e-16))

    def _mean_at(self, log_gamma: float) -> float:
        odds = -math.expm1(log_gamma) * math.exp(-log_gamma)  # (1 - gamma) / gamma
        if self.shape == 0.0:
            return odds / -log_gamma
        return self.shape * odds / -math.expm1(self.shape * log_gamma)

    def _certain(self) -> bool:
        return self.stopping == 1.0

    def _rest(self, z: Array) -> Array:
        """1 - (1 - gamma) z, exact near z = 1."""
        gamma = self.stopping
        return gamma + (1.0 - gamma) * (1.0 - z)

    def generating(self, z: Array) -> Array:
        """As :meth:`Runs.generating` says, in closed form."""
        if self._certain():
            return np.asarray(z, dtype=float) + 0.0
        logs, top = np.log(self._rest(z)), math.log(self.stopping)
        if self.shape == 0.0:
            return np.asarray(logs / top)
        return np.asarray(np.expm1(-self.shape * logs) / math.expm1(-self.shape * top))

    def slope(self, z: Array, order: int = 1) -> Array:
        """As :meth:`Runs.slope` says, in closed form.

        Args:
            z: points in [0, 1].
            order: of the derivative, 1 to 3.
        """
        if self._certain():
            return np.ones_like(z) if order == 1 else np.zeros_like(z)
        gamma, factor = self.stopping, self.mean
        for i in range(1, order):
            factor *= (self.shape + i) * (1.0 - gamma) / gamma
        return np.asarray(factor * (gamma / self._rest(z)) ** (self.shape + order))

    def gain(self, z: Array, d: Array) -> Array:
        """As :meth:`Runs.gain` says, in closed form.

        Args:
            z: upper ends, in [0, 1].
            d: lengths, with 0 <= d <= z.
        """
        if self._certain():
            return np.asarray(d, dtype=float) + 0.0 * z
        gamma, rest = self.stopping, self._rest(z)
        logs = np.log1p((1.0 - gamma) * d / rest)
        if self.shape == 0.0:
            return np.asarray(logs / -math.log(gamma))
        scale = math.expm1(-self.shape * math.log(gamma))
        return np.asarray(rest**-self.shape * -np.expm1(-self.shape * logs) / scale)

    def log_probabilities(self, first: int, count: int, previous: float) -> Array:
        """As :meth:`Runs.log_probabilities` says, by the ratio of consecutive probabilities.

        Args:
            first: the first k, at least 1.
            count: how many.
            previous: log P(K = first - 1).
        """
        k = np.arange(first, first + count, dtype=float)
        if self._certain():
            return np.where(k == 1, 0.0, -np.inf)
        gamma = self.stopping
        step = math.log1p(-gamma) + np.log((k - 1.0 + self.shape) / k) if first > 1 else None
        if step is not None:
            return np.asarray(previous + np.cumsum(step))
        if self.shape == 0.0:
            start = math.log1p(-gamma) - math.log(-math.log(gamma))
        else:
            start = math.log1p(-gamma) + math.log(self.shape / math.expm1(-self.shape * math.log(gamma)))
        ratios = math.log1p(-gamma) + np.log((k[1:] - 1.0 + self.shape) / k[1:])
        return np.concatenate([[start], start + np.cumsum(ratios)])

    def __str__(self) -> str:
        return f"tnb(shape {self.shape:g}, mean {self.mean:g})"


class Geometric(NegativeBinomial):
    """The geometric law on 1, 2, ...: Liu and Talwar's random stopping.

    Args:
        mean: the expected number of runs, at least 1.

    Raises:
        InvalidInput: the mean is below 1.

    Example:
        >>> Geometric(10).quantile(0.95)
        29
    """

    law: ClassVar[str] = "geometric"

    def __init__(self, mean: float) -> None:
        super().__init__(1.0, mean)

    def __str__(self) -> str:
        return f"geometric({self.mean:g})"


class Logarithmic(NegativeBinomial):
    """The logarithmic law on 1, 2, ...: many short runs, a few very long ones.

    Args:
        mean: the expected number of runs, at least 1.

    Raises:
        InvalidInput: the mean is below 1.

    Example:
        >>> Logarithmic(10).quantile(0.5), Logarithmic(10).quantile(0.95)
        (4, 41)
    """

    law: ClassVar[str] = "logarithmic"

    def __init__(self, mean: float) -> None:
        super().__init__(0.0, mean)

    def __str__(self) -> str:
        return f"logarithmic({self.mean:g})"
