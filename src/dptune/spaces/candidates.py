"""An explicit list of configurations with a public prior, and how configurations are drawn from the operating system.

Methods with a theorem for finitely many candidates take such a list; :meth:`dptune.spaces.Space.grid` makes one.
Nothing here may look at data.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dptune._codec import to_values
from dptune._typing import Array
from dptune.errors import InvalidInput
from dptune.spaces.dimensions import normalised, place_at

__all__ = ["MOST_CANDIDATES", "Candidates", "Params", "Uniform", "os_uniform"]

Params = dict[str, Any]
Uniform = Callable[[int], float]
"""Gives one uniform in (0, 1) for each dimension of a draw, by the dimension's place."""

MOST_CANDIDATES = 1_000_000


def os_uniform(place: int) -> float:
    """A fresh uniform in (0, 1) from the operating system, whatever the place."""
    del place
    return (secrets.randbits(53) + 0.5) * 2.0**-53


@dataclass(frozen=True)
class Candidates:
    """An explicit list of configurations with a public prior.

    Args:
        items: The configurations: dictionaries from names to values, all different.
        prior: How likely each is, in proportion; equally likely if left out.

    Raises:
        InvalidInput: If the list is empty, holds something else, holds one twice, or the prior does not fit.

    Example:
        >>> from dptune.spaces import Candidates
        >>> listed = Candidates([{"lr": 0.1}, {"lr": 1.0}], prior=(1, 3))
        >>> len(listed), listed.prior
        (2, (0.25, 0.75))
        >>> listed.default
        {'lr': 1.0}
    """

    items: tuple[Params, ...]
    prior: tuple[float, ...]

    def __init__(self, items: Sequence[Mapping[str, Any]], prior: Sequence[float] | None = None) -> None:
        if isinstance(items, Mapping) or not isinstance(items, Sequence) or len(items) == 0:
            raise InvalidInput("'candidates' must be a list with at least one dictionary of parameters.")
        if len(items) > MOST_CANDIDATES:
            raise InvalidInput(f"{len(items)} candidates are more than {MOST_CANDIDATES}; use a Space instead.")
        for item in items:
            if not isinstance(item, Mapping) or not all(isinstance(key, str) for key in item):
                raise InvalidInput(f"A candidate is a dictionary from names to values; got {item!r}.")
        if len({json.dumps(item, sort_keys=True, default=str) for item in items}) < len(items):
            raise InvalidInput("Two candidates are equal; list each once and use 'prior' for emphasis.")
        object.__setattr__(self, "items", tuple(dict(item) for item in items))
        weights = [1.0] * len(items) if prior is None else prior
        object.__setattr__(self, "prior", normalised(weights, len(items)))

    def __len__(self) -> int:
        return len(self.items)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, by name, so that the order survives any storage."""
        return tuple(sorted({key for item in self.items for key in item}))

    def place(self, u: float) -> int:
        """The index of the candidate at the quantile ``u`` of the prior, 0 to 1."""
        return place_at(np.cumsum(self.prior), u)

    def draw(self, uniform: Uniform = os_uniform) -> Params:
        """One candidate from the prior; ``uniform(0)`` decides which, by default the operating system."""
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
        """The list as plain JSON values."""
        described: dict[str, Any] = to_values(self)
        return described
