"""Records whose target is a real number in a declared public range: :class:`RegressionDataset`.

The range is decided without looking at the records. A private target outside of it is clipped, a missing one becomes
the declared missing value, each on its own. Engines train on the target as a share of the range (:func:`scaled`), so
that whatever the unit is, an error of the whole range is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dptune import _validate
from dptune._typing import AnyArray, Array, Floats
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.units import UnitDataset

__all__ = ["RegressionDataset", "check_range", "range_of", "scaled", "unscaled"]

_MOST = 1e15  # a range of such numbers still has room for fractions in double precision


def check_range(what: str, ends: object) -> tuple[float, float]:
    """Refuse what is not a range of real numbers.

    Args:
        what: What errors call it.
        ends: The lowest and the highest value.

    Returns:
        Both as floats.

    Raises:
        InvalidInput: If there are not two numbers, or the first is not below the second.

    Example:
        >>> check_range("target_range", [0, 100])
        (0.0, 100.0)
    """
    if not isinstance(ends, tuple | list) or len(ends) != 2:
        raise InvalidInput(f"'{what}' must be (lowest, highest); got {ends!r}.")
    low, high = (_validate.real(what, end, -_MOST, _MOST) for end in ends)
    if low >= high or not (high - low) / max(abs(low), abs(high)) > 1e-9:
        raise InvalidInput(f"'{what}' must be (lowest, highest), and not one value; got {ends!r}.")
    return low, high


def scaled(values: AnyArray, ends: tuple[float, float]) -> Array:
    """Values as shares of a range, clipped to [0, 1]; each follows from itself alone, and NaN stays NaN.

    Args:
        values: Any numbers.
        ends: The range.

    Returns:
        An array of the same shape.

    Example:
        >>> import numpy as np
        >>> scaled(np.array([-5.0, 20.0, 500.0]), (0.0, 100.0))
        array([0. , 0.2, 1. ])
    """
    low, high = ends
    with np.errstate(all="ignore"):  # no warning may tell of a record
        return np.clip((np.asarray(values, np.float64) - low) / (high - low), 0.0, 1.0)


def unscaled(shares: AnyArray, ends: tuple[float, float]) -> Array:
    """The inverse of :func:`scaled`: shares of a range as values, never outside of it.

    Args:
        shares: Any numbers; what is below 0 or above 1 is clipped.
        ends: The range.

    Returns:
        An array of the same shape.

    Example:
        >>> import numpy as np
        >>> unscaled(np.array([0.2, 7.0]), (0.0, 100.0))
        array([ 20., 100.])
    """
    low, high = ends
    with np.errstate(all="ignore"):
        inside = np.clip(np.asarray(shares, np.float64), 0.0, 1.0)
        return np.clip(low * (1.0 - inside) + high * inside, low, high)


@dataclass(frozen=True, eq=False)
class RegressionDataset(Dataset):
    """Records as rows of ``x`` with real targets ``y`` in a public range.

    Private records (the default) are never refused for what they hold. A target that is not a number becomes
    ``missing_target``, then every target is clipped to ``target_range``; features are repaired as those of a
    :class:`~dptune.data.Dataset` are. All of these rules are public and must be decided without looking at the records.
    With ``public=True`` nothing is repaired, and such records are refused.

    Args:
        x: An array of numbers with one row for each record.
        y: An array of numbers with one target for each record, in any unit.
        name: What messages and folders call the data.
        public: Whether these records may be shown to anybody.
        feature_range: The smallest and the largest value that a private feature keeps.
        missing: What replaces a private feature that is not a number, before clipping.
        target_range: The smallest and the largest target; declared, never read off the records.
        missing_target: What replaces a private target that is not a number; None: the middle of the range.

    Raises:
        InvalidInput: If types or dimensions do not fit, a rule contradicts itself, or a public record is invalid.

    Example:
        >>> import numpy as np
        >>> data = RegressionDataset(np.zeros((3, 2)), np.array([20.0, np.nan, 7e9]), target_range=(0, 100))
        >>> data.y
        array([ 20.,  50., 100.])
        >>> data.scaled
        array([0.2, 0.5, 1. ])
    """

    classes: int = field(default=1, init=False, repr=False)  # how many outputs a model has
    unknown_label: int = field(default=0, init=False, repr=False)  # no target is a class
    target_range: tuple[float, float] = field(kw_only=True)
    missing_target: float | None = field(default=None, kw_only=True)

    def _check_target_rules(self) -> None:
        low, high = check_range("target_range", self.target_range)
        given = low / 2 + high / 2 if self.missing_target is None else self.missing_target
        missing = _validate.real("missing_target", given, low, high, hint="It lies in 'target_range'.")
        object.__setattr__(self, "target_range", (low, high))
        object.__setattr__(self, "missing_target", missing)

    def _valid_targets(self, y: AnyArray) -> Floats:
        values, (low, high) = y.astype(np.float64), self.target_range
        if self.public and not ((values >= low) & (values <= high)).all():
            raise InvalidInput(
                f"Targets must be numbers in [{low:g}, {high:g}], the declared range; some are not. State a wider "
                "range, or drop these records."
            )
        values[np.isnan(values)] = self.missing_target
        return np.clip(values, low, high)

    @property
    def scaled(self) -> Array:
        """The targets as shares of the range, from 0 to 1."""
        return scaled(self.y, self.target_range)

    def blank_targets(self, count: int) -> Floats:
        """Made-up targets that cover the range, for blank records; a function of public things alone."""
        low, high = self.target_range
        return np.linspace(low, high, count)


def range_of(data: object) -> tuple[float, float] | None:
    """The declared range of real targets; None where targets are classes, or nothing is known of them.

    Args:
        data: Any records.

    Returns:
        The lowest and the highest target, or None.

    Example:
        >>> import numpy as np
        >>> range_of(RegressionDataset(np.zeros((1, 2)), np.zeros(1), target_range=(0, 5)))
        (0.0, 5.0)
        >>> range_of([1, 2]) is None
        True
    """
    rows = data.rows if isinstance(data, UnitDataset) else data
    return rows.target_range if isinstance(rows, RegressionDataset) else None
