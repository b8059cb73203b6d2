"""Laws of the number of runs K: what random stopping draws before the first training.

A law is public and independent of the data; ``docs/theorems/select.md`` uses it only through its generating
function f(z) = E[z^K] and derivatives, which are exact closed forms here. K itself must never be released.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from dptune._codec import register_family
from dptune._typing import Array
from dptune._validate import integer, real
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

_LARGEST_MEAN = 1e9
_CHUNK = 4096


def _os_uniform() -> float:
    """A uniform in (0, 1) from the operating system, on a grid fine enough for every law here."""
    return (secrets.randbits(64) + 0.5) * 2.0**-64


class Runs(ABC):
    """A law of the number of runs K, which random stopping draws before the first training.

    A law is public, immutable and independent of the data; K itself must never be released. An implementer gives the
    expectation, the generating function f(z) = E[z^K] with three derivatives and differences of it, and the
    probabilities of single values; everything else follows. Functions of z accept arrays of any shape with entries in
    [0, 1], and their relative error must stay below :attr:`roundoff`: prices are rounded outward by that much and no
    more.

    Example:
        >>> law = Geometric(10)
        >>> law.expected, law.quantile(0.95)
        (10.0, 29)
        >>> round(law.hit_probability(0.1), 3)  # that one of the runs is among the best tenth of the space
        0.526
    """

    @property
    @abstractmethod
    def expected(self) -> float:
        """The mean E[K]."""

    @abstractmethod
    def generating(self, z: Array) -> Array:
        """The generating function f(z) = E[z^K].

        Args:
            z: points in [0, 1].

        Returns:
            Its values there.
        """

    @abstractmethod
    def slope(self, z: Array, order: int = 1) -> Array:
        """A derivative of the generating function; the first is what the papers call w.

        Args:
            z: points in [0, 1].
            order: of the derivative, 1 to 3.

        Returns:
            Its values there.
        """

    @abstractmethod
    def gain(self, z: Array, d: Array) -> Array:
        """The difference f(z) - f(z - d), computed without cancellation.

        Args:
            z: upper ends, in [0, 1].
            d: lengths, with 0 <= d <= z.

        Returns:
            The differences.
        """

    def slopes_between(self, top: Array, bottom: Array, least: Array, order: int) -> Array:
        """A derivative of the generating function at max(top - bottom, least), for rows that meet columns.

        Args:
            top: columns.
            bottom: rows.
            least: rows; the smallest argument that may occur.
            order: of the derivative, 1 to 3.

        Returns:
            One value for every row and column.
        """
        return self.slope(np.maximum(top - bottom, least), order)

    def gains_between(self, top: Array, bottom: Array, d: Array) -> Array:
        """The differences f(z) - f(z - d) at z = max(top - bottom, d), for rows that meet columns.

        Args:
            top: columns.
            bottom: rows.
            d: rows; the lengths.

        Returns:
            One difference for every row and column.
        """
        return self.gain(np.maximum(top - bottom, d), d)

    @abstractmethod
    def log_probabilities(self, first: int, count: int, previous: float) -> Array:
        """log P(K = k) for consecutive k.

        Args:
            first: the first k, at least 1.
            count: how many.
            previous: log P(K = first - 1), from which the next ones follow; not looked at where ``first`` is 1.

        Returns:
            One logarithm for each k.
        """

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """The law as plain JSON values, which :func:`runs_from_json` turns back into an equal law."""

    @cached_property
    def roundoff(self) -> float:
        """A relative error that no value of f, its slopes or its gains exceeds: z itself is known to 1e-16 only."""
        one = np.ones(1)
        steepness = float(self.slope(one, 2)[0] / self.slope(one)[0])
        return min(1e-14 + 1e-15 * steepness, 1.0)

    @property
    def never(self) -> float:
        """The probability P(K = 0) that nothing runs and the public default is released."""
        return float(self.generating(np.zeros(1))[0])

    def hit_probability(self, fraction: float) -> float:
        """The probability that at least one run falls in the best part of the space.

        Args:
            fraction: the share of the space that counts as good, in [0, 1].

        Returns:
            The probability.

        Raises:
            InvalidInput: the fraction is not a number in [0, 1].

        Example:
            >>> round(Poisson(10).hit_probability(0.1), 3)
            0.632
        """
        r = real("fraction", fraction, 0, 1, hint="It is the share of the space that counts as good.")
        return float(self.gain(np.ones(1), np.array([r]))[0])

    def probability(self, k: int) -> float:
        """The probability P(K = k) of one number of runs.

        Args:
            k: a whole number from 0 on.

        Returns:
            The probability.

        Raises:
            InvalidInput: ``k`` is not a whole number from 0 on.

        Example:
            >>> round(Binomial(20, 0.5).probability(10), 3)
            0.176
        """
        integer("k", k, 0)
        if k == 0:
            return self.never
        return self._scan(lambda first, pmf, _: float(pmf[k - first]) if k < first + len(pmf) else None, k)

    def quantile(self, level: float) -> int:
        """The smallest k with P(K <= k) >= level.

        Args:
            level: a probability below 1.

        Returns:
            The number of runs that is not exceeded with this probability.

        Raises:
            InvalidInput: the level is not a number in [0, 1).
        """
        target = real("level", level, 0, 1, high_open=True)
        if self.never >= target:
            return 0

        def found(first: int, pmf: Array, below: float) -> float | None:
            reached = below + np.cumsum(pmf)
            index = int(np.searchsorted(reached, target))
            return float(first + index) if index < len(pmf) else None

        return int(self._scan(found))

    def sample(self, uniform: Callable[[], float] = _os_uniform) -> int:
        """Draw K, by inversion of one uniform.

        Args:
            uniform: gives a number in (0, 1); the operating system's, unless a rehearsal or a run brings its own.

        Returns:
            The number of runs, which must never be released.

        Example:
            >>> Geometric(10).sample(lambda: 0.5)  # the median
            7
        """
        # A uniform of exactly 0 would stand for no run even under a law that always runs.
        return self.quantile(min(max(uniform(), 2.0**-65), 1.0 - 2.0**-53))

    def _scan(self, visit: Callable[[int, Array, float], float | None], at_least: int = 0) -> float:
        """Walk the probabilities in blocks until ``visit`` answers or nothing measurable is left."""
        first, previous, below = 1, math.nan, self.never
        while True:
            logs = self.log_probabilities(first, _CHUNK, previous)
            pmf = np.exp(logs)
            answer = visit(first, pmf, below)
            if answer is not None:
                return answer
            below += float(pmf.sum())
            previous = float(logs[-1])
            first += _CHUNK
            beyond = first > self.expected and previous < -760.0
            if beyond and first > at_least:
                return float(first)


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
        return math.exp(brentq(excess, low, -1e-16, xtol=1e-15, rtol=8.9e-16))

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

    def describe(self) -> dict[str, object]:
        """The law as plain JSON values: its shape and its mean."""
        return {"law": "tnb", "shape": self.shape, "mean": self.mean}

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

    def __init__(self, mean: float) -> None:
        super().__init__(1.0, mean)

    def describe(self) -> dict[str, object]:
        """The law as plain JSON values: its mean."""
        return {"law": "geometric", "mean": self.mean}

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

    def __init__(self, mean: float) -> None:
        super().__init__(0.0, mean)

    def describe(self) -> dict[str, object]:
        """The law as plain JSON values: its mean."""
        return {"law": "logarithmic", "mean": self.mean}

    def __str__(self) -> str:
        return f"logarithmic({self.mean:g})"


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

    def slopes_between(self, top: Array, bottom: Array, least: Array, order: int) -> Array:
        """As :meth:`Runs.slopes_between` says, as a product of a row and a column.

        Args:
            top: columns.
            bottom: rows.
            least: rows; the smallest argument that may occur.
            order: of the derivative.
        """
        values = self._generating_between(top, bottom, least)
        return np.multiply(values, self.mean**order, out=values)

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

    def describe(self) -> dict[str, object]:
        """The law as plain JSON values: its mean."""
        return {"law": "poisson", "mean": self.mean}

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

    trials: int
    probability_each: float

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

    def describe(self) -> dict[str, object]:
        """The law as plain JSON values: trials and probability."""
        return {"law": "binomial", "trials": self.trials, "probability": self.probability_each}

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
    if not isinstance(data, dict) or "law" not in data:
        raise InvalidInput(f"A law of runs is an object with a 'law' field; got {data!r}.")
    fields = {key: value for key, value in data.items() if key != "law"}
    makers: dict[object, Callable[..., Runs]] = {
        "tnb": NegativeBinomial,
        "geometric": Geometric,
        "logarithmic": Logarithmic,
        "poisson": Poisson,
        "binomial": Binomial,
    }
    if data["law"] not in makers:
        raise InvalidInput(f"Unknown law of runs {data['law']!r}; known: {', '.join(map(str, makers))}.")
    try:
        return makers[data["law"]](**fields)
    except TypeError as error:
        raise InvalidInput(f"Fields {sorted(fields)} do not describe a {data['law']} law.") from error


_FORMS = "geometric:MEAN, logarithmic:MEAN, poisson:MEAN, tnb:SHAPE,MEAN or binomial:TRIALS,PROBABILITY"


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
    makers: dict[str, tuple[int, Callable[..., Runs]]] = {
        "geometric": (1, Geometric),
        "logarithmic": (1, Logarithmic),
        "poisson": (1, Poisson),
        "tnb": (2, NegativeBinomial),
        "binomial": (2, Binomial),
    }
    try:
        values = [float(part) for part in rest.split(",")]
        count, make = makers[name.strip().lower()]
        if len(values) != count:
            raise ValueError
    except (KeyError, ValueError):
        raise InvalidInput(f"Cannot read the runs {text!r}; write {_FORMS}.") from None
    return make(*values)


register_family(Runs, lambda law: law.describe(), runs_from_json)
