"""Both directions of a profile, answered for every loss by parity (``docs/theorems/profiles.md``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptune._typing import Array
from dptune.accounting._directed import DirectedProfile
from dptune.errors import InvalidInput

__all__ = ["ProfilePair"]


@dataclass(frozen=True)
class ProfilePair:
    """Both directions: ``remove`` tests the data with the record against the data without it."""

    remove: DirectedProfile
    add: DirectedProfile

    @property
    def symmetric(self) -> bool:
        """Whether both directions are one profile."""
        return self.remove is self.add

    def delta(self, e: Array) -> Array:
        """d(e) of the removal direction for any real e; parity carries e < 0 to the other direction."""
        e = np.asarray(e, dtype=float)
        behind = e < 0
        if not behind.any():
            return self.remove.delta(e)
        size = np.abs(e)
        ahead = self.remove.delta(size)
        with np.errstate(under="ignore"):
            back = 1.0 + np.exp(-size) * (self.add.delta(size) - 1.0)
        return np.where(behind, back, ahead)

    def flip(self) -> ProfilePair:
        """The pair with the roles of the two data sets exchanged."""
        return ProfilePair(self.add, self.remove)

    def seen_from(self, direction: str) -> ProfilePair:
        """The pair whose removal direction is the one asked for: "remove", or "add", which flips it."""
        if direction not in ("remove", "add"):
            raise InvalidInput(f"'direction' must be 'remove' or 'add'; got {direction!r}.")
        return self if direction == "remove" else self.flip()
