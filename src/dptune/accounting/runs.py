"""Laws of the number of runs K: what random stopping draws before the first training.

A law is public and independent of the data; ``docs/theorems/select.md`` uses it only through its generating
function f(z) = E[z^K] and derivatives, which are exact closed forms here. K itself must never be released.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dptune._codec import from_json, stored_as
from dptune._typing import Array
from dptune._validate import integer, real
from dptune.accounting._law import LAWS, Runs
from dptune.accounting._negative_binomial import Geometric, Logarithmic, NegativeBinomial
from dptune.errors import InvalidInput

__all__ = [
    "Binomial",
    "Geometric",
    "Logarithmic",
    "NegativeBinomial",
    "Poisson",
    "Runs",
    "parse_runs",
    "runs_from_json",
]


@dataclass(frozen=True)
class Poisson(Runs):
    """The Poisson law: the most concentrated of the published ones; K = 0 releases a public default.

    Args:
        mean: the expected number of runs, above 0.

    Raises:
        InvalidInput: the mean is not a positive number.

    Example:
        >>> f"{Poisson(10).never:.1e}"  # the probability that nothing runs
        '4.5e-05'
    """

    law: ClassVar[str] = "poisson"
    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", real("mean", self.mean, 0, 1e6, low_open=True))

    @property
    def expected(self) -> float:
        """The mean, as it was given."""
        return self.mean

    def generating(self, z: Array) -> Array:
        """As :meth:`Runs.generating` says: exp(mean (z - 1))."""
        return np.asarray(np.exp(self.mean * (np.asarray(z) - 1.0)))

    def slope(self, z: Array, order: int = 1) -> Array:
        """As :meth:`Runs.slope` says: the mean to the power of the order, times the generating function.

        Args:
            z: points in [0, 1].
            order: of the derivative.
        """
        return self.mean**order * self.generating(z)

    def gain(self, z: Array, d: Array) -> Array:
        """As :meth:`Runs.gain` says, in closed form.

        Args:
            z: upper ends, in [0, 1].
            d: lengths, with 0 <= d <= z.
        """
        return self.generating(z) * -np.expm1(-self.mean * np.asarray(d))

    def _generating_between(self, top: Array, bottom: Array, least: Array) -> Array:
        # exp of a difference is a product: a row times a column, and no exp for each pair.
        values = np.exp(-self.mean * bottom) * np.exp(self.mean * (top - 1.0))
        return np.asarray(np.maximum(values, self.generating(least), out=values))

    def slopes_between(self, top: Array, bottom: Array, least: Array, *orders: int) -> tuple[Array, ...]:
        """As :meth:`Runs.slopes_between` says, as a product of a row and a column, which all orders share.

        Args:
            top: columns.
            bottom: rows.
            least: rows; the smallest argument that may occur.
            orders: of the derivatives.
        """
        values = self._generating_between(top, bottom, least)
        return tuple(values * self.mean**order for order in orders)

    def gains_between(self, top: Array, bottom: Array, d: Array) -> Array:
        """As :meth:`Runs.gains_between` says, as a product of a row and a column.

        Args:
            top: columns.
            bottom: rows.
            d: rows; the lengths.
        """
        values = self._generating_between(top, bottom, d)
        return np.multiply(values, -np.expm1(-self.mean * d), out=values)

    def log_probabilities(self, first: int, count: int, previous: float) -> Array:
        """As :meth:`Runs.log_probabilities` says, by the ratio of consecutive probabilities.

        Args:
            first: the first k, at least 1.
            count: how many.
            previous: log P(K = first - 1).
        """
        k = np.arange(first, first + count, dtype=float)
        start = previous if first > 1 else -self.mean
        return np.asarray(start + np.cumsum(math.log(self.mean) - np.log(k)))

    def __str__(self) -> str:
        return f"poisson({self.mean:g})"


@dataclass(frozen=True)
class Binomial(Runs):
    """The binomial law: at most ``trials`` runs, each held with the given probability.

    Args:
        trials: the most runs there can be.
        probability: of holding each of them; 1 is a fixed number of runs.

    Raises:
        InvalidInput: a figure is outside of its range.

    Example:
        >>> Binomial(20, 0.5).expected
        10.0
    """

    law: ClassVar[str] = "binomial"
    trials: int
    probability_each: float = field(metadata=stored_as("probability"))

    def __init__(self, trials: int, probability: float) -> None:
        object.__setattr__(self, "trials", integer("trials", trials, 1, int(1e6)))
        object.__setattr__(self, "probability_each", real("probability", probability, 0, 1, low_open=True))

    @property
    def expected(self) -> float:
        """The mean: trials times probability."""
        return self.trials * self.probability_each

    def _kept(self, z: Array) -> Array:
        return np.asarray(1.0 - self.probability_each * (1.0 - np.asarray(z)))

    def generating(self, z: Array) -> Array:
        """As :meth:`Runs.generating` says, in closed form."""
        return np.asarray(self._kept(z) ** self.trials)

    def slope(self, z: Array, order: int = 1) -> Array:
        """As :meth:`Runs.slope` says, in closed form.

        Args:
            z: points in [0, 1].
            order: of the derivative, 1 to 3.
        """
        if order > self.trials:
            return np.zeros_like(np.asarray(z, dtype=float))
        factor = math.prod(self.trials - i for i in range(order)) * self.probability_each**order
        return np.asarray(factor * self._kept(z) ** (self.trials - order))

    def gain(self, z: Array, d: Array) -> Array:
        """As :meth:`Runs.gain` says, in closed form.

        Args:
            z: upper ends, in [0, 1].
            d: lengths, with 0 <= d <= z.
        """
        kept = self._kept(z)
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = np.where(kept > 0, self.probability_each * d / kept, 0.0)
            shrink = np.log1p(-np.minimum(lost, 1.0))
        return np.asarray(kept**self.trials * -np.expm1(self.trials * shrink))

    def log_probabilities(self, first: int, count: int, previous: float) -> Array:
        """As :meth:`Runs.log_probabilities` says, by the ratio of consecutive probabilities.

        Args:
            first: the first k, at least 1.
            count: how many.
            previous: log P(K = first - 1).
        """
        k = np.arange(first, first + count, dtype=float)
        p, n = self.probability_each, self.trials
        if p == 1.0:
            return np.where(k == n, 0.0, -np.inf)
        start = previous if first > 1 else n * math.log1p(-p)
        with np.errstate(divide="ignore"):
            ratios = np.log(np.maximum(n - k + 1.0, 0.0) / k) + math.log(p) - math.log1p(-p)
        return np.asarray(start + np.cumsum(ratios))

    def __str__(self) -> str:
        return f"binomial({self.trials}, {self.probability_each:g})"


def runs_from_json(data: object) -> Runs:
    """A law of runs from its description.

    Args:
        data: what :meth:`Runs.describe` gave.

    Returns:
        An equal law.

    Raises:
        InvalidInput: it describes no law.

    Example:
        >>> runs_from_json({"law": "poisson", "mean": 10})
        Poisson(mean=10.0)
    """
    return from_json(data, Runs, "a law of runs")  # type: ignore[type-abstract]  # a family


def parse_runs(text: str) -> Runs:
    """A law of runs as it is written on the command line and in job files.

    Args:
        text: for example ``geometric:10`` or ``tnb:0.5,10``.

    Returns:
        The law.

    Raises:
        InvalidInput: the text cannot be read; the error lists the forms.

    Example:
        >>> parse_runs("binomial:20,0.5").expected
        10.0
    """
    name, _, rest = text.partition(":")
    forms = {law: tuple(inspect.signature(kind).parameters) for law, kind in LAWS.items()}
    try:
        values = [float(part) for part in rest.split(",")]
        kind = LAWS[name.strip().lower()]
        named = dict(zip(forms[kind.law], values, strict=True))
    except (KeyError, ValueError):
        known = ", ".join(f"{law}:{','.join(each).upper()}" for law, each in forms.items())
        raise InvalidInput(f"Cannot read the runs {text!r}; write one of {known}.") from None
    return kind(**named)
