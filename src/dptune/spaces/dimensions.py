"""One parameter of a space: a real number, a whole number, or one of several values, each with a public prior.

All three kinds answer the same questions: which value lies at a quantile of the prior, is a value allowed, where does
it lie for a surrogate, which values does a grid hold. None of them may look at data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from dptune._codec import added_later, register_tagged
from dptune._typing import Array
from dptune._validate import integer, real
from dptune.errors import InvalidInput

__all__ = ["Choice", "Dimension", "Float", "Int", "normalised", "place_at"]


_NORMAL = NormalDist()


@dataclass(frozen=True)
class Float:
    """A real number between two ends: uniform, uniform in its logarithm, or likeliest around an expected value.

    Args:
        low: The smallest value.
        high: The largest value, above ``low``.
        log: Whether the logarithm is what is drawn, as for learning rates; ``low`` must then be positive.
        around: Where the best value is expected, from public knowledge. The prior is then a normal law around it, of
            the logarithm where ``log`` is set, cut off at the ends.
        spread: How far from there it may well be: one deviation of that law, a factor above 1 where ``log`` is set
            (2 is an octave), otherwise a distance.

    Raises:
        InvalidInput: If the range is empty, or logarithmic and not positive; if ``around`` lies outside of it, or only
            one of ``around`` and ``spread`` is given.

    Example:
        >>> from dptune import Float
        >>> rate = Float(1e-4, 1.0, log=True)
        >>> round(rate.at(0.5), 6)
        0.01
        >>> rate.contains(2.0)
        False
        >>> expected = Float(1e-4, 1.0, log=True, around=0.01, spread=2)
        >>> round(expected.at(0.8413), 3)  # one deviation above what is expected
        0.02
    """

    low: float
    high: float
    log: bool = False
    around: float | None = field(default=None, metadata=added_later())
    spread: float | None = field(default=None, metadata=added_later())

    def __post_init__(self) -> None:
        low, high = real("low", self.low), real("high", self.high)
        if low >= high:
            raise InvalidInput(f"'low' must be below 'high'; got Float({low:g}, {high:g}). Swap them or use Choice.")
        if self.log and low <= 0:
            raise InvalidInput(f"A logarithmic range must be positive; got low = {low:g}. Raise it or drop log=True.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if (self.around is None) != (self.spread is None):
            raise InvalidInput("'around' and 'spread' belong together: where the best value is expected, how surely.")
        if self.around is not None:
            object.__setattr__(self, "around", real("around", self.around, low, high))
            least = 1.0 if self.log else 0.0
            hint = "It is a factor here, such as 2." if self.log else "It is a distance."
            object.__setattr__(self, "spread", real("spread", self.spread, least, low_open=True, hint=hint))

    def at(self, u: float) -> float:
        """The value at the quantile ``u`` of the prior, 0 to 1."""
        low, high = self._line(self.low), self._line(self.high)
        value = low + u * (high - low) if self.around is None else self._likely(u)
        return min(max(math.exp(value) if self.log else value, self.low), self.high)

    def _line(self, value: float) -> float:
        """A value where its prior is uniform or normal: as it is, or its logarithm."""
        return math.log(value) if self.log else value

    def _normal(self) -> tuple[float, float]:
        """Middle and deviation of the normal law, where there is one."""
        if self.around is None or self.spread is None:
            raise InvalidInput("This range has no expected value.")
        return self._line(self.around), self._line(self.spread)

    def _likely(self, u: float) -> float:
        """The quantile of the normal law between the ends, counted from the nearer end, where it is most exact."""
        middle, deviation = self._normal()
        below = _NORMAL.cdf((self._line(self.low) - middle) / deviation)
        above = _NORMAL.cdf((middle - self._line(self.high)) / deviation)
        end, share, side = (below, u, 1.0) if u < 0.5 else (above, 1.0 - u, -1.0)
        place = end + share * (1.0 - below - above)
        if place <= 0.0:
            return self._line(self.low if side > 0 else self.high)
        return middle + side * deviation * _NORMAL.inv_cdf(place)

    @property
    def middle(self) -> float:
        """The expected value, or the middle of the prior."""
        return self.at(0.5) if self.around is None else self.around

    def times(self, factor: float) -> Float:
        """The same range of values that are so many times as large, with the prior that belongs to them."""
        moved = None if self.around is None else self.around * factor
        spread = self.spread if self.log or self.spread is None else self.spread * factor
        return Float(self.low * factor, self.high * factor, self.log, moved, spread)

    def contains(self, value: Any) -> bool:
        """Whether a value is a number in the range."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    def unit(self, value: Any) -> list[float]:
        """Where a value lies in the range, as one coordinate in [0, 1] for a surrogate."""
        if self.log:
            return [(math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))]
        return [(value - self.low) / (self.high - self.low)]

    def points(self, count: int | None) -> list[tuple[Any, float]]:
        """The values of a grid with their weights: ``count`` quantiles at equal distances, both ends included."""
        if count is None:
            raise InvalidInput("A grid needs the number of points of every Float, for example space.grid(lr=16).")
        n = integer("points", count, 1)
        return [(self.at(i / (n - 1) if n > 1 else 0.5), 1.0 / n) for i in range(n)]


@dataclass(frozen=True)
class Int:
    """A whole number between two ends, both included; uniform, or with small ones likelier.

    Args:
        low: The smallest value.
        high: The largest value, at least ``low``.
        log: Whether the prior is that of a uniform logarithm, rounded down; ``low`` must then be at least 1.

    Raises:
        InvalidInput: If an end is not a whole number, the range is empty, or a logarithmic one starts below 1.

    Example:
        >>> from dptune import Int
        >>> layers = Int(1, 4)
        >>> [layers.at(u) for u in (0.1, 0.3, 0.6, 0.9)]
        [1, 2, 3, 4]
        >>> layers.law()
        [(1, 0.25), (2, 0.25), (3, 0.25), (4, 0.25)]
    """

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            whole = isinstance(value, int | float) and not isinstance(value, bool) and value == math.floor(value)
            if not whole:
                raise InvalidInput(f"'{name}' must be a whole number; got {value!r}. Use Float for real numbers.")
            object.__setattr__(self, name, int(value))
        if self.low > self.high:
            raise InvalidInput(f"'low' must not exceed 'high'; got Int({self.low}, {self.high}). Swap them.")
        if self.log and self.low < 1:
            raise InvalidInput(
                f"A logarithmic range must start at 1 or above; got {self.low}. Raise it or drop log=True."
            )

    @property
    def middle(self) -> int:
        """The middle of the prior."""
        return self.at(0.5)

    def at(self, u: float) -> int:
        """The value at the quantile ``u`` of the prior, 0 to 1."""
        if not self.log:
            return min(self.low + math.floor(u * (self.high - self.low + 1)), self.high)
        low, high = math.log(self.low), math.log(self.high + 1)
        return min(max(math.floor(math.exp(low + u * (high - low))), self.low), self.high)

    def contains(self, value: Any) -> bool:
        """Whether a value is a whole number in the range."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and self.low <= value <= self.high

    def unit(self, value: Any) -> list[float]:
        """Where a value lies in the range, as one coordinate in [0, 1] for a surrogate."""
        if self.low == self.high:
            return [0.0]
        if self.log:
            return [(math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))]
        return [(value - self.low) / (self.high - self.low)]

    def points(self, count: int | None) -> list[tuple[Any, float]]:
        """The values of a grid with their weights: all of them, or about ``count`` at equal distances."""
        whole = self.high - self.low + 1
        if count is None or count >= whole:
            values = list(range(self.low, self.high + 1))
        else:
            n = integer("points", count, 1)
            smooth = Float(self.low, self.high, self.log)
            values = sorted({round(value) for value, _ in smooth.points(n)})
        return [(value, 1.0 / len(values)) for value in values]

    def law(self) -> list[tuple[Any, float]]:
        """Every value with its probability under the prior."""
        values = range(self.low, self.high + 1)
        if not self.log:
            return [(value, 1.0 / len(values)) for value in values]
        span = math.log(self.high + 1) - math.log(self.low)
        return [(value, math.log1p(1.0 / value) / span) for value in values]


@dataclass(frozen=True)
class Choice:
    """One of several values: numbers, strings, booleans or None.

    Args:
        *values: The values, all different.
        weights: How likely each is, in proportion; equally likely if left out.

    Raises:
        InvalidInput: If there is no value, two are equal, one is of another kind, or the weights do not fit.

    Example:
        >>> from dptune import Choice
        >>> Choice("sgd", "adam").law()
        [('sgd', 0.5), ('adam', 0.5)]
        >>> Choice(0.1, 1.0, 10.0, weights=(1, 2, 1)).at(0.5)
        1.0
    """

    values: tuple[Any, ...]
    weights: tuple[float, ...] | None

    def __init__(self, *values: Any, weights: Sequence[float] | None = None) -> None:
        if not values:
            raise InvalidInput("'Choice' needs at least one value, for example Choice(0.1, 1, 10).")
        for value in values:
            if not isinstance(value, str | int | float | bool | None):
                raise InvalidInput(f"A choice is among numbers, strings and booleans; got {value!r}. Name it instead.")
        if len({json.dumps(value) for value in values}) < len(values):
            raise InvalidInput(f"The values of a choice must differ; got {values!r}. Use 'weights' for emphasis.")
        object.__setattr__(self, "values", tuple(values))
        object.__setattr__(self, "weights", None if weights is None else normalised(weights, len(values)))

    def _probabilities(self) -> tuple[float, ...]:
        return self.weights or tuple(1.0 / len(self.values) for _ in self.values)

    def law(self) -> list[tuple[Any, float]]:
        """Every value with its probability under the prior."""
        return list(zip(self.values, self._probabilities(), strict=True))

    def at(self, u: float) -> Any:
        """The value at the quantile ``u`` of the prior, 0 to 1, in the order in which values were given."""
        return self.values[place_at(np.cumsum(self._probabilities()), u)]

    def contains(self, value: Any) -> bool:
        """Whether a value is one of the choice's, of the same type."""
        return any(value == one and type(value) is type(one) for one in self.values)

    def unit(self, value: Any) -> list[float]:
        """A value for a surrogate: one coordinate for each of the choice's, 1 for this one and 0 for the others."""
        return [1.0 if value == one else 0.0 for one in self.values]

    def points(self, count: int | None) -> list[tuple[Any, float]]:
        """The values of a grid with their weights: all of them. ``count`` must be their number, or None."""
        if count is not None and count != len(self.values):
            raise InvalidInput(f"A grid holds every value of a Choice ({len(self.values)}); drop its number of points.")
        return self.law()


Dimension = Float | Int | Choice
register_tagged(Dimension, "kind", {"float": Float, "int": Int, "choice": Choice})


def normalised(weights: Sequence[float], count: int) -> tuple[float, ...]:
    """Weights as a prior: ``count`` of them, positive, divided by their sum."""
    if len(weights) != count:
        raise InvalidInput(f"A prior needs one weight for each of the {count} values; got {len(weights)}.")
    positive = [real("weight", w, 0, low_open=True, hint="Leave out what must not be tried.") for w in weights]
    total = math.fsum(positive)
    return tuple(w / total for w in positive)


def place_at(cumulative: Array, u: float) -> int:
    """The index of the value at a quantile, given the cumulative sums of a prior."""
    return min(int(np.searchsorted(cumulative, u * cumulative[-1], side="right")), len(cumulative) - 1)
