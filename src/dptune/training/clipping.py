"""Clipping rules: how long a record's part in a sum of gradients may be, and what a run learns about it.

A rule turns one record's gradient into that record's share of a sum. Whatever the gradient is, the share is no longer
than the clip norm, so all rules cost the same (``docs/theorems/clipping.md``): the price follows from rate, noise and
steps. Shares are computed by :mod:`dptune.training.ruled_sums`; nothing here may see a record. The file is
long because every rule carries its contract.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from dptune import _validate
from dptune._typing import Floats
from dptune.errors import InvalidInput

__all__ = ["CLIPPINGS", "Automatic", "Clipping", "Flat", "PerLayer", "Quantile", "named_clipping"]

_STEADY = 1e-4  # from this stability on, rounding in double precision moves a share by far less than 1e-6 of it
_SHORTEST = 1e-250  # shorter gradients are not brought to length one: their factors would overflow


@runtime_checkable
class Clipping(Protocol):
    """A rule by which gradients become shares of a sum.

    An implementer promises that ``factor * norm`` and the tail together are never longer than ``clip``, for every norm,
    and that both are functions of that norm and of public or released figures.
    """

    @property
    def tails(self) -> int:
        """How many coordinates a share has beside those of the gradient: 0 or 1."""

    @property
    def steady(self) -> bool:
        """Whether a share moves little when the last bits of a gradient do.

        Only then records may be computed together; otherwise each is computed alone, so that none decides the last
        bits of another.
        """

    def factors(self, norms: Floats, clip: float, level: float) -> Floats:
        """By what gradients of these norms are multiplied; ``level`` is the clip norm of this step, as learnt."""

    def tail(self, norms: Floats, clip: float, level: float) -> Floats:
        """The coordinate that each share has beside those of the gradient; zero where there is none."""

    def describe(self, clip: float) -> str:
        """The rule in words, for statements."""


def _shortening(norms: Floats, clip: float) -> Floats:
    """By what vectors of these lengths are multiplied, so that none is longer than ``clip``."""
    return np.asarray(clip / np.maximum(norms, clip))


@dataclass(frozen=True)
class Flat:
    """The usual rule: gradients longer than the clip norm are scaled down to it, shorter ones stay as they are.

    Example:
        >>> import numpy as np
        >>> from dptune.training import Flat
        >>> Flat().factors(np.array([0.5, 4.0]), 1.0, 1.0)
        array([1.  , 0.25])
    """

    tails: ClassVar[int] = 0
    steady: ClassVar[bool] = True

    def factors(self, norms: Floats, clip: float, level: float) -> Floats:
        """By what gradients of these norms are multiplied.

        Args:
            norms: the lengths of gradients.
            clip: the longest share that a record may have.
            level: the clip norm of this step, as learnt so far.

        Returns:
            One factor for each.
        """
        return _shortening(norms, clip)

    def tail(self, norms: Floats, clip: float, level: float) -> Floats:
        """What a share has beside the gradient: nothing.

        Args:
            norms: the lengths of gradients.
            clip: the longest share that a record may have.
            level: the clip norm of this step, as learnt so far.

        Returns:
            Zeros.
        """
        return np.zeros_like(norms)

    def describe(self, clip: float) -> str:
        """The rule in words."""
        return f"gradients scaled down to norm {clip:g}"


@dataclass(frozen=True)
class Automatic:
    """Automatic clipping (Bu et al. 2023): every gradient is divided by its norm, so there is no threshold to tune.

    A share is ``clip g / (|g| + stability)``. The clip norm then acts as a factor on the learning rate. With
    stability 0 (AUTO-V) every share is as long as the clip norm, and records are computed one by one.

    Args:
        stability: What is added to the norm, at least 0: gradients much shorter than it stay short.

    Raises:
        InvalidInput: If ``stability`` is negative.

    Example:
        >>> import numpy as np
        >>> from dptune.training import Automatic
        >>> Automatic().factors(np.array([0.0, 0.99]), 1.0, 1.0).round(6)
        array([100.,   1.])
    """

    stability: float = 0.01

    tails: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _validate.real("stability", self.stability, 0.0)

    @property
    def steady(self) -> bool:
        """Whether shares of short gradients do not turn on their last bits."""
        return self.stability >= _STEADY

    def factors(self, norms: Floats, clip: float, level: float) -> Floats:
        """By what gradients of these norms are multiplied.

        Args:
            norms: the lengths of gradients.
            clip: the longest share that a record may have.
            level: the clip norm of this step, as learnt so far.

        Returns:
            One factor for each.
        """
        return np.asarray(clip / np.maximum(norms + self.stability, _SHORTEST))

    def tail(self, norms: Floats, clip: float, level: float) -> Floats:
        """What a share has beside the gradient: nothing.

        Args:
            norms: the lengths of gradients.
            clip: the longest share that a record may have.
            level: the clip norm of this step, as learnt so far.

        Returns:
            Zeros.
        """
        return np.zeros_like(norms)

    def describe(self, clip: float) -> str:
        """The rule in words."""
        return f"automatic clipping: gradients times {clip:g} / (norm + {self.stability:g})"


@dataclass(frozen=True)
class Quantile:
    """Adaptive clipping (Andrew et al. 2021): the clip norm follows a quantile of the gradients' norms.

    Every step also releases, with noise, about how many gradients are shorter than the clip norm of this step, and the
    clip norm of the next step follows. The count is one more coordinate of every share: gradient and count together are
    no longer than the clip norm, so both are one Gaussian of the stated noise multiplier. A record adds between -1 and
    1 to the count, rising evenly where its norm is within a tenth of the clip norm, so that no last bit decides it.

    Args:
        quantile: The part of the gradients that should be shorter than the clip norm, in (0, 1). With the median of
            Andrew et al. (.5) the clip norm falls below what a rare class needs, and a model may forget that class
            (``docs/training.md``).
        rate: How fast the clip norm follows: its logarithm moves by the rate times what is missing to the quantile.
        share: Which part of the squared length of a share is the count's, in (0, 1). The gradient's noise grows by
            ``1 / sqrt(1 - share)``.

    Raises:
        InvalidInput: If a figure is out of range.

    Example:
        >>> import numpy as np
        >>> from dptune.training import Quantile
        >>> rule, norms = Quantile(), np.array([0.5, 8.0])
        >>> shares = np.hypot(rule.factors(norms, 1.0, 2.0) * norms, rule.tail(norms, 1.0, 2.0))
        >>> bool(np.all(shares <= 1.0 + 1e-12))
        True
    """

    quantile: float = 0.75
    rate: float = 0.2
    share: float = 0.01

    tails: ClassVar[int] = 1
    steady: ClassVar[bool] = True
    width: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        for name in ("quantile", "share"):
            _validate.real(name, getattr(self, name), 0.0, 1.0, low_open=True, high_open=True)
        _validate.real("rate", self.rate, 0.0)

    @property
    def kept(self) -> float:
        """How long the gradient's part of a share may be, in clip norms."""
        return math.sqrt(1.0 - self.share)

    @property
    def counted(self) -> float:
        """How long the count's part of a share may be, in clip norms."""
        return math.sqrt(self.share)

    def factors(self, norms: Floats, clip: float, level: float) -> Floats:
        """By what gradients of these norms are multiplied: clipped to ``level``, then brought to the clip norm.

        Args:
            norms: the lengths of gradients.
            clip: the longest share that a record may have.
            level: the clip norm of this step, as learnt so far.

        Returns:
            One factor for each.
        """
        return np.asarray(self.kept * clip / np.maximum(norms, level))

    def tail(self, norms: Floats, clip: float, level: float) -> Floats:
        """The count's coordinate: its whole length for short gradients, the same below zero for long ones.

        Args:
            norms: the lengths of gradients.
            clip: the longest share that a record may have.
            level: the clip norm of this step, as learnt so far.

        Returns:
            One number for each.
        """
        below = np.clip((1.0 - np.minimum(norms, 2.0 * level) / level) / self.width, -1.0, 1.0)
        return np.asarray(self.counted * clip * below)

    def describe(self, clip: float) -> str:
        """The rule in words."""
        return (
            f"adaptive clipping: the clip norm, {clip:g} at first, follows the {self.quantile:g} quantile of the "
            f"gradients' norms by a noised count at every step, which is part of the cost"
        )


@dataclass(frozen=True)
class PerLayer:
    """Clipping layer by layer: the part of a gradient that belongs to each of L layers is scaled down to C / sqrt(L).

    A layer is one part of a network with weights of its own, its bias included. All parts together are no longer than
    the clip norm C. A layer with long gradients then takes nothing from the others.

    Example:
        >>> import numpy as np
        >>> from dptune.training import PerLayer
        >>> PerLayer().factors(np.array([0.5, 4.0]), 1.0, 1.0)  # of a layer's part, to its share of the clip norm
        array([1.  , 0.25])
    """

    tails: ClassVar[int] = 0
    steady: ClassVar[bool] = True

    def factors(self, norms: Floats, clip: float, level: float) -> Floats:
        """By what one layer's parts of gradients are multiplied.

        Args:
            norms: the lengths of these parts.
            clip: the longest share that a record may have in this layer.
            level: the same.

        Returns:
            One factor for each.
        """
        return _shortening(norms, clip)

    def tail(self, norms: Floats, clip: float, level: float) -> Floats:
        """What a share has beside the gradient: nothing.

        Args:
            norms: the lengths of gradients.
            clip: the longest share that a record may have.
            level: the same.

        Returns:
            Zeros.
        """
        return np.zeros_like(norms)

    def describe(self, clip: float) -> str:
        """The rule in words."""
        return f"gradients scaled down layer by layer, to norm {clip:g} over the root of the number of layers"


CLIPPINGS: dict[str, type[Flat] | type[Automatic] | type[Quantile] | type[PerLayer]] = {
    "flat": Flat,
    "automatic": Automatic,
    "quantile": Quantile,
    "per_layer": PerLayer,
}
"""The rules by the names that job files and spaces use."""


def named_clipping(rule: object) -> Clipping:
    """A clipping rule, or the one of this name with its usual figures.

    Args:
        rule: A rule, or "flat", "automatic", "quantile" or "per_layer".

    Returns:
        The rule.

    Raises:
        InvalidInput: If there is no such rule.

    Example:
        >>> from dptune.training.clipping import named_clipping
        >>> named_clipping("automatic")
        Automatic(stability=0.01)
    """
    if isinstance(rule, str) and rule in CLIPPINGS:
        return CLIPPINGS[rule]()
    if not isinstance(rule, str) and isinstance(rule, Clipping) and not isinstance(rule, type):
        return rule
    raise InvalidInput(
        f"'clipping' must be one of {', '.join(CLIPPINGS)}, or a rule such as Automatic(); got {rule!r}."
    )
