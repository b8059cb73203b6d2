"""What may be tried: spaces of parameters, explicit lists and grids, with public priors.

A space is declared before data is touched and never changes afterwards; the prior is the law from which methods
sample (``docs/theorems/mixture.md``). Sampling maps uniforms that the caller draws from the operating system (or from a
run's secret) to parameters; nothing here may look at data.
"""

from __future__ import annotations

import itertools
import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dptune._codec import register_family
from dptune._typing import Array
from dptune._validate import integer, real
from dptune.errors import InvalidInput

__all__ = ["Candidates", "Choice", "Domain", "Float", "Int", "Space", "space_from_json"]

Params = dict[str, Any]
Uniform = Callable[[int], float]  # one uniform in (0, 1) for each dimension of a draw

_MOST_CANDIDATES = 1_000_000


def _os_uniform(place: int) -> float:
    del place
    return (secrets.randbits(53) + 0.5) * 2.0**-53


@dataclass(frozen=True)
class Float:
    """A real number between ``low`` and ``high``, uniform, or uniform in its logarithm."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        low, high = real("low", self.low), real("high", self.high)
        if low >= high:
            raise InvalidInput(f"'low' must be below 'high'; got Float({low:g}, {high:g}). Swap them or use Choice.")
        if self.log and low <= 0:
            raise InvalidInput(f"A logarithmic range must be positive; got low = {low:g}. Raise it or drop log=True.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def at(self, u: float) -> float:
        """The quantile of the prior."""
        if not self.log:
            return min(max(self.low + u * (self.high - self.low), self.low), self.high)
        value = math.exp(math.log(self.low) + u * (math.log(self.high) - math.log(self.low)))
        return min(max(value, self.low), self.high)

    def contains(self, value: Any) -> bool:
        """Whether a value lies in the range."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    def unit(self, value: Any) -> list[float]:
        """Where a value lies, as coordinates for a surrogate."""
        if self.log:
            return [(math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))]
        return [(value - self.low) / (self.high - self.low)]

    def points(self, count: int | None) -> list[tuple[Any, float]]:
        if count is None:
            raise InvalidInput("A grid needs the number of points of every Float, for example space.grid(lr=16).")
        n = integer("points", count, 1)
        return [(self.at(i / (n - 1) if n > 1 else 0.5), 1.0 / n) for i in range(n)]

    def describe(self) -> dict[str, Any]:
        return {"kind": "float", "low": self.low, "high": self.high, "log": self.log}


@dataclass(frozen=True)
class Int:
    """A whole number from ``low`` to ``high``, both included; with ``log``, small ones are likelier."""

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
            raise InvalidInput(f"A logarithmic range must start at 1 or above; got {self.low}.")

    def at(self, u: float) -> int:
        if not self.log:
            return min(self.low + math.floor(u * (self.high - self.low + 1)), self.high)
        low, high = math.log(self.low), math.log(self.high + 1)
        return min(max(math.floor(math.exp(low + u * (high - low))), self.low), self.high)

    def contains(self, value: Any) -> bool:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and self.low <= value <= self.high

    def unit(self, value: Any) -> list[float]:
        if self.low == self.high:
            return [0.0]
        if self.log:
            return [(math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))]
        return [(value - self.low) / (self.high - self.low)]

    def points(self, count: int | None) -> list[tuple[Any, float]]:
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

    def describe(self) -> dict[str, Any]:
        return {"kind": "int", "low": self.low, "high": self.high, "log": self.log}


@dataclass(frozen=True)
class Choice:
    """One of several values (numbers, strings, booleans), equally likely unless ``weights`` say otherwise."""

    values: tuple[Any, ...]
    weights: tuple[float, ...] | None

    def __init__(self, *values: Any, weights: Sequence[float] | None = None) -> None:
        if not values:
            raise InvalidInput("'Choice' needs at least one value, for example Choice(0.1, 1, 10).")
        for value in values:
            if not isinstance(value, str | int | float | bool | None):
                raise InvalidInput(f"A choice is among numbers, strings and booleans; got {value!r}.")
        if len({json.dumps(value) for value in values}) < len(values):
            raise InvalidInput(f"The values of a choice must differ; got {values!r}. Use 'weights' for emphasis.")
        object.__setattr__(self, "values", tuple(values))
        object.__setattr__(self, "weights", None if weights is None else _weights(weights, len(values)))

    def _shares(self) -> tuple[float, ...]:
        return self.weights or tuple(1.0 / len(self.values) for _ in self.values)

    def law(self) -> list[tuple[Any, float]]:
        """Every value with its probability under the prior."""
        return list(zip(self.values, self._shares(), strict=True))

    def at(self, u: float) -> Any:
        return self.values[_place(np.cumsum(self._shares()), u)]

    def contains(self, value: Any) -> bool:
        return any(value == one and type(value) is type(one) for one in self.values)

    def unit(self, value: Any) -> list[float]:
        return [1.0 if value == one else 0.0 for one in self.values]

    def points(self, count: int | None) -> list[tuple[Any, float]]:
        if count is not None and count != len(self.values):
            raise InvalidInput(f"A grid holds every value of a Choice ({len(self.values)}); drop its number of points.")
        return self.law()

    def describe(self) -> dict[str, Any]:
        weights = None if self.weights is None else list(self.weights)
        return {"kind": "choice", "values": list(self.values), "weights": weights}


Dimension = Float | Int | Choice


def _weights(weights: Sequence[float], count: int) -> tuple[float, ...]:
    """A prior: positive and summing to one after division."""
    if len(weights) != count:
        raise InvalidInput(f"A prior needs one weight for each of the {count} values; got {len(weights)}.")
    positive = [real("weight", w, 0, low_open=True, hint="Leave out what must not be tried.") for w in weights]
    total = math.fsum(positive)
    return tuple(w / total for w in positive)


def _place(cumulative: Array, u: float) -> int:
    return min(int(np.searchsorted(cumulative, u * cumulative[-1], side="right")), len(cumulative) - 1)


@dataclass(frozen=True)
class Candidates:
    """An explicit list of configurations with a public prior (uniform unless ``prior`` is given)."""

    items: tuple[Params, ...]
    prior: tuple[float, ...]

    def __init__(self, items: Sequence[Mapping[str, Any]], prior: Sequence[float] | None = None) -> None:
        if isinstance(items, Mapping) or not isinstance(items, Sequence) or len(items) == 0:
            raise InvalidInput("'candidates' must be a list with at least one dictionary of parameters.")
        if len(items) > _MOST_CANDIDATES:
            raise InvalidInput(f"{len(items)} candidates are more than {_MOST_CANDIDATES}; use a Space instead.")
        for item in items:
            if not isinstance(item, Mapping) or not all(isinstance(key, str) for key in item):
                raise InvalidInput(f"A candidate is a dictionary from names to values; got {item!r}.")
        if len({json.dumps(item, sort_keys=True, default=str) for item in items}) < len(items):
            raise InvalidInput("Two candidates are equal; list each once and use 'prior' for emphasis.")
        object.__setattr__(self, "items", tuple(dict(item) for item in items))
        shares = [1.0] * len(items) if prior is None else prior
        object.__setattr__(self, "prior", _weights(shares, len(items)))

    def __len__(self) -> int:
        return len(self.items)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, by name, so that the order survives any storage."""
        return tuple(sorted({key for item in self.items for key in item}))

    def place(self, u: float) -> int:
        """The index of the candidate at a quantile of the prior."""
        return _place(np.cumsum(self.prior), u)

    def draw(self, uniform: Uniform = _os_uniform) -> Params:
        """One candidate from the prior."""
        return dict(self.items[self.place(uniform(0))])

    def encode(self, params: Sequence[Params]) -> Array:
        """Coordinates in [0, 1] for a surrogate: numbers by rank within their range, the rest one by one."""
        columns: list[Array] = []
        for name in self.names:
            known = [item.get(name) for item in self.items]
            numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in known)
            if numbers:
                ordered = sorted({float(cast(float, v)) for v in known})
                top = max(len(ordered) - 1, 1)
                places = [np.searchsorted(ordered, float(cast(float, item.get(name)))) / top for item in params]
                columns.append(np.array(places, dtype=float))
            else:
                columns.extend(
                    np.array([float(item.get(name) == value) for item in params]) for value in dict.fromkeys(known)
                )
        return np.stack(columns, axis=1) if columns else np.zeros((len(params), 1))

    @property
    def default(self) -> Params:
        """The likeliest candidate, the first of them: public."""
        return dict(self.items[int(np.argmax(self.prior))])

    def describe(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"space": "candidates", "items": [dict(item) for item in self.items], "prior": list(self.prior)}


@dataclass(frozen=True)
class Space:
    """A product of dimensions, for example ``Space(lr=Float(1e-4, 1, log=True), clip=Choice(.1, 1, 10))``."""

    dimensions: tuple[tuple[str, Dimension], ...]

    def __init__(self, **dimensions: Dimension) -> None:
        if not dimensions:
            raise InvalidInput("A space needs at least one parameter, for example Space(lr=Float(1e-4, 1, log=True)).")
        for name, one in dimensions.items():
            if not isinstance(one, Float | Int | Choice):
                raise InvalidInput(f"{name!r} must be Float, Int or Choice; got {one!r}.")
        object.__setattr__(self, "dimensions", tuple(dimensions.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in order."""
        return tuple(name for name, _ in self.dimensions)

    @staticmethod
    def of(items: Sequence[Mapping[str, Any]], prior: Sequence[float] | None = None) -> Candidates:
        """An explicit list of configurations."""
        return Candidates(items, prior)

    def draw(self, uniform: Uniform = _os_uniform) -> Params:
        """One configuration from the prior; ``uniform(i)`` serves dimension i."""
        return {name: one.at(uniform(i)) for i, (name, one) in enumerate(self.dimensions)}

    def grid(self, points: int | None = None, /, **each: int) -> Candidates:
        """All combinations: ``points`` values of every Float and Int, or as many as named; every value of a Choice."""
        known = dict(self.dimensions)
        unknown = sorted(set(each) - set(known))
        if unknown:
            raise InvalidInput(f"No parameter {unknown[0]!r} in this space; it has {', '.join(known)}.")
        axes = []
        for name, one in self.dimensions:
            count = each.get(name, None if isinstance(one, Choice) else points)
            axes.append([({name: value}, weight) for value, weight in one.points(count)])
        if math.prod(len(axis) for axis in axes) > _MOST_CANDIDATES:
            raise InvalidInput(f"This grid has more than {_MOST_CANDIDATES} points; ask for fewer of each parameter.")
        items, prior = [], []
        for combination in itertools.product(*axes):
            items.append({key: value for part, _ in combination for key, value in part.items()})
            prior.append(math.prod(weight for _, weight in combination))
        return Candidates(items, prior)

    def encode(self, params: Sequence[Params]) -> Array:
        """Coordinates in [0, 1] for a surrogate."""
        rows = [[x for name, one in self.dimensions for x in one.unit(item[name])] for item in params]
        return np.array(rows, dtype=float)

    @property
    def default(self) -> Params:
        """The middle of every range, the likeliest choice: public."""
        middle: Params = {}
        for name, one in self.dimensions:
            if isinstance(one, Choice):
                middle[name] = max(one.points(None), key=lambda pair: pair[1])[0]
            else:
                middle[name] = one.at(0.5)
        return middle

    def describe(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"space": "product", "dimensions": [[name, one.describe()] for name, one in self.dimensions]}


Domain = Space | Candidates


def _dimension(fields: Mapping[str, Any]) -> Dimension:
    kind = fields.get("kind")
    if kind == "float":
        return Float(fields["low"], fields["high"], bool(fields.get("log", False)))
    if kind == "int":
        return Int(fields["low"], fields["high"], bool(fields.get("log", False)))
    if kind == "choice":
        return Choice(*fields["values"], weights=fields.get("weights"))
    raise InvalidInput(f"A parameter's kind is float, int or choice; got {kind!r}.")


def space_from_json(data: Mapping[str, Any]) -> Domain:
    """The inverse of ``describe`` of a space or a list of candidates."""
    try:
        if data["space"] == "candidates":
            return Candidates(data["items"], data["prior"])
        return Space(**{name: _dimension(fields) for name, fields in data["dimensions"]})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"Not a space: {error}.") from None


for _kind in (Space, Candidates):
    register_family(_kind, lambda space: space.describe(), space_from_json)
