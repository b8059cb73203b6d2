"""A space of parameters as a product of dimensions, its grids, and how spaces and lists are stored as JSON."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune._codec import from_json, register_tagged, to_values
from dptune._typing import Array
from dptune.errors import InvalidInput
from dptune.spaces.candidates import MOST_CANDIDATES, Candidates, Params, Uniform, os_uniform
from dptune.spaces.dimensions import Choice, Dimension, Float, Int

__all__ = ["Domain", "Space", "space_from_json"]


@dataclass(frozen=True)
class Space:
    """What may be tried: a named range for each parameter, and independent priors on them.

    Args:
        **dimensions: For each parameter of the trainer a :class:`Float`, :class:`Int` or :class:`Choice`.

    Raises:
        InvalidInput: If there is no parameter, or one is not of these kinds.

    Example:
        >>> from dptune import Choice, Float, Space
        >>> space = Space(lr=Float(1e-4, 1, log=True), clip=Choice(0.1, 1, 10))
        >>> space.names
        ('lr', 'clip')
        >>> len(space.grid(lr=5))
        15
        >>> space.draw(lambda dimension: 0.999)["clip"]
        10
    """

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
        """An explicit list of configurations instead of ranges.

        Args:
            items: Dictionaries from names to values, all different.
            prior: How likely each is, in proportion; equally likely if left out.

        Returns:
            The list, for methods that choose among finitely many candidates.
        """
        return Candidates(items, prior)

    def draw(self, uniform: Uniform = os_uniform) -> Params:
        """One configuration from the prior; ``uniform(i)`` serves dimension i, by default the operating system."""
        return {name: one.at(uniform(i)) for i, (name, one) in enumerate(self.dimensions)}

    def grid(self, points: int | None = None, /, **each: int) -> Candidates:
        """All combinations of a few values of each parameter; of a Choice all values.

        Args:
            points: How many values of every Float and Int; all whole numbers of an Int if left out.
            **each: How many values of single parameters, by name.

        Returns:
            The list of combinations; its prior is the product of the values' weights.

        Raises:
            InvalidInput: If a Float has no number of points, a name is unknown, or there are over a million points.
        """
        known = dict(self.dimensions)
        unknown = sorted(set(each) - set(known))
        if unknown:
            raise InvalidInput(f"No parameter {unknown[0]!r} in this space; it has {', '.join(known)}.")
        axes = []
        for name, one in self.dimensions:
            count = each.get(name, None if isinstance(one, Choice) else points)
            axes.append([({name: value}, weight) for value, weight in one.points(count)])
        if math.prod(len(axis) for axis in axes) > MOST_CANDIDATES:
            raise InvalidInput(f"This grid has more than {MOST_CANDIDATES} points; ask for fewer of each parameter.")
        items, prior = [], []
        for combination in itertools.product(*axes):
            items.append({key: value for part, _ in combination for key, value in part.items()})
            prior.append(math.prod(weight for _, weight in combination))
        return Candidates(items, prior)

    def encode(self, params: Sequence[Params]) -> Array:
        """Coordinates in [0, 1] for a surrogate, one row for each configuration."""
        rows = [[x for name, one in self.dimensions for x in one.unit(item[name])] for item in params]
        return np.array(rows, dtype=float)

    @property
    def default(self) -> Params:
        """The middle of every range or what is expected there, the likeliest choice: public."""
        middle: Params = {}
        for name, one in self.dimensions:
            if isinstance(one, Choice):
                middle[name] = max(one.points(None), key=lambda pair: pair[1])[0]
            else:
                middle[name] = one.middle
        return middle

    def describe(self) -> dict[str, Any]:
        """The space as plain JSON values."""
        described: dict[str, Any] = to_values(self)
        return described


Domain = Space | Candidates
"""Where a method looks: a space, or an explicit list."""
register_tagged(Domain, "space", {"product": Space, "candidates": Candidates})


def space_from_json(data: Mapping[str, Any]) -> Domain:
    """Read a space or a list of candidates back from its description.

    Args:
        data: What ``describe()`` of a :class:`Space` or of :class:`Candidates` returned.

    Returns:
        An equal space or list.

    Raises:
        InvalidInput: If ``data`` is not such a description.

    Example:
        >>> from dptune import Float, Space
        >>> from dptune.spaces import space_from_json
        >>> space = Space(lr=Float(0.1, 1.0))
        >>> space_from_json(space.describe()) == space
        True
    """
    return from_json(data, Domain, "the description of a space")  # type: ignore[arg-type]  # a union is no class
