"""What one private record may add to a score: accuracy, balanced accuracy, errors of numbers, and ranks (AUC).

A method that chooses by noisy counts pays for a count which one record moves by at most 1. Every score here is such a
count, whatever the records hold (``docs/theorems/scores.md`` has the proofs), divided by a public constant. What a
score needs to know of the records (the shares of classes, the range of targets) is declared, never counted. The file is
long because each score carries its contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dptune import _validate
from dptune._codec import register_tagged
from dptune._typing import AnyArray, Array, Indices
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.regression import range_of, scaled
from dptune.units import UnitDataset

__all__ = [
    "SCORES",
    "AbsoluteError",
    "Accuracy",
    "Auc",
    "Balanced",
    "Score",
    "SquaredError",
    "check_score",
    "natural_score",
    "score_named",
]

_TOLERANCE = 0.25
_LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class Score:
    """How models are compared on private records; the kinds derive from this.

    A score is a count over a public constant. One record, added or removed, moves the count by at most 1.

    Example:
        >>> isinstance(Accuracy(), Score)
        True
    """

    kind: ClassVar[str] = ""
    numbers: ClassVar[bool] = False  # whether targets are real numbers; else they are classes

    def values(self, found: AnyArray, targets: AnyArray, ends: tuple[float, float] | None) -> AnyArray:
        """What each record adds to the count: from 0 to 1, from this record alone.

        Args:
            found: What the model predicts, one value for each record.
            targets: The truth.
            ends: The declared range of real targets.

        Returns:
            One value for each record.
        """
        raise NotImplementedError

    def denominator(self, records: float) -> float:
        """The public constant that turns the count of about so many records into a score around [0, 1]."""
        return max(1.0, records)

    def sentence(self) -> str:
        """What a statement says of what one record adds."""
        raise NotImplementedError


@dataclass(frozen=True)
class Accuracy(Score):
    """The share of records whose class is predicted: a record adds 1 if it is right.

    Example:
        >>> Accuracy().values(np.array([0, 1]), np.array([0, 0]), None)
        array([1., 0.])
    """

    kind: ClassVar[str] = "accuracy"

    def values(self, found: AnyArray, targets: AnyArray, ends: tuple[float, float] | None) -> AnyArray:
        return np.asarray(found == targets, np.float64)

    def sentence(self) -> str:
        return "A record adds 1 if its class is predicted, else 0."


@dataclass(frozen=True)
class Balanced(Score):
    """The mean over classes of the share of each that is predicted, for classes that are not equally frequent.

    A record of a class with the share p adds min(shares) / p if it is right. Shares are declared: the true ones would
    have to be counted. Where they are wrong the score weighs classes a little otherwise, and is as private.

    Args:
        shares: About which part of the records each class has, in the order of the classes; public.

    Raises:
        InvalidInput: If there are fewer than two shares, one is not positive, or they do not add up to 1.

    Example:
        >>> Balanced((0.8, 0.2)).values(np.array([0, 1]), np.array([0, 1]), None)
        array([0.25, 1.  ])
        >>> Balanced((0.8, 0.2)).denominator(1000)  # 1000 records count as much as 400 of equal classes
        400.0
    """

    kind: ClassVar[str] = "balanced"

    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", _checked_shares(self.shares))

    def values(self, found: AnyArray, targets: AnyArray, ends: tuple[float, float] | None) -> AnyArray:
        weights = min(self.shares) / np.array(self.shares)
        known = np.isin(targets, np.arange(len(weights)))
        place = np.where(known, targets, 0).astype(np.int64)
        return np.where(known & np.asarray(found == targets, bool), weights[place], 0.0)

    def denominator(self, records: float) -> float:
        return max(1.0, records * len(self.shares) * min(self.shares))

    def sentence(self) -> str:
        shares = ", ".join(f"{share:g}" for share in self.shares)
        return (
            f"A record adds at most 1, if its class is predicted: the smallest declared share over that of its class "
            f"(declared shares: {shares})."
        )


@dataclass(frozen=True)
class AbsoluteError(Score):
    """How close predicted numbers are: a record adds 1 - |error| / (tolerance * range), at least 0.

    Args:
        tolerance: The error, as a share of the declared range, from which on a record adds nothing. A small one tells
            good models apart in spite of the noise; 1 makes the score the mean error of the whole range.

    Raises:
        InvalidInput: If the tolerance is not in (0, 1].

    Example:
        >>> AbsoluteError(0.5).values(np.array([40.0, 90.0]), np.array([50.0, 10.0]), (0.0, 100.0))
        array([0.8, 0. ])
    """

    kind: ClassVar[str] = "absolute"
    numbers: ClassVar[bool] = True

    tolerance: float = _TOLERANCE

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", _checked_tolerance(self.tolerance))

    def values(self, found: AnyArray, targets: AnyArray, ends: tuple[float, float] | None) -> AnyArray:
        return np.maximum(0.0, 1.0 - np.abs(_errors(found, targets, ends)) / self.tolerance)

    def sentence(self) -> str:
        return (
            f"A record adds between 0 and 1: one minus its absolute error over {self.tolerance:g} of the declared "
            "range of the target, at least 0."
        )


@dataclass(frozen=True)
class SquaredError(Score):
    """How close predicted numbers are: a record adds 1 - (error / (tolerance * range))^2, at least 0.

    Args:
        tolerance: The error, as a share of the declared range, from which on a record adds nothing.

    Raises:
        InvalidInput: If the tolerance is not in (0, 1].

    Example:
        >>> SquaredError(0.5).values(np.array([40.0, 90.0]), np.array([50.0, 10.0]), (0.0, 100.0))
        array([0.96, 0.  ])
    """

    kind: ClassVar[str] = "squared"
    numbers: ClassVar[bool] = True

    tolerance: float = _TOLERANCE

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", _checked_tolerance(self.tolerance))

    def values(self, found: AnyArray, targets: AnyArray, ends: tuple[float, float] | None) -> AnyArray:
        return np.maximum(0.0, 1.0 - (_errors(found, targets, ends) / self.tolerance) ** 2)

    def sentence(self) -> str:
        return (
            f"A record adds between 0 and 1: one minus its squared error, in units of {self.tolerance:g} of the "
            "declared range of the target, at least 0."
        )


@dataclass(frozen=True)
class Auc(Score):
    """How often a record of the second of two classes is ranked above one of the first (the area under the ROC curve).

    The plain AUC compares all pairs, and one record may move it by one half however many there are. So records are put
    into groups by coins of the run, and the AUCs of the groups are added: a record moves that of its own group alone,
    by at most one half, and twice their sum by at most 1.

    Args:
        shares: About which part of the records each of the two classes has; public. There are about as many groups
            as held-out records of the rarer class.

    Raises:
        InvalidInput: If there are not two positive shares that add up to 1.

    Example:
        >>> Auc((0.9, 0.1)).denominator(1000)  # twice the number of groups
        200.0
    """

    kind: ClassVar[str] = "auc"

    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", _checked_shares(self.shares))
        if len(self.shares) != 2:
            raise InvalidInput(f"The AUC is about two classes; got shares of {len(self.shares)}. Use 'balanced'.")

    def denominator(self, records: float) -> float:
        return 2.0 * max(1, round(records * min(self.shares)))

    @staticmethod
    def groups(denominator: float) -> int:
        """How many groups belong to a denominator."""
        return max(1, int(denominator // 2))

    @staticmethod
    def count(
        ranks: Array, labels: AnyArray, groups: Indices, number: int, steps: int, *, several: bool = False
    ) -> int:
        """Twice the sum of the groups' AUCs, each rounded down to whole steps of 1 / ``steps``.

        Args:
            ranks: How strongly the model takes each record for one of the second class; a record without a number
                counts as ranked wrong.
            labels: The classes, 0 and 1.
            groups: The group of each record, from 0.
            number: How many groups there are; public. One without both classes counts one half.
            steps: How many steps a count of 1 has; even.
            several: Whether a record may have several rows, all in one group. They may move an AUC by 1 instead of
                one half, so the count is the sum, not twice the sum.

        Returns:
            A whole number; one record moves it by at most ``steps``.

        Example:
            >>> Auc.count(np.array([0.2, 0.9, 0.5]), np.array([0, 1, 1]), np.array([0, 0, 1]), 2, 4)
            12
        """
        weight = 1 if several else 2
        neutral = weight * steps // 2
        total = number * neutral
        order = np.argsort(groups, kind="stable")
        ends = np.flatnonzero(np.diff(groups[order])) + 1
        for own in np.split(order, ends):
            area = _area(ranks[own], labels[own])
            total += 0 if area is None else int(weight * area * steps) - neutral
        return total

    def sentence(self) -> str:
        shares = ", ".join(f"{share:g}" for share in self.shares)
        return (
            "Records are put into groups by coins, and twice the sum of the groups' areas under the ROC curve is the "
            f"count, which one record moves by at most 1 (declared shares of the two classes: {shares})."
        )


SCORES: dict[str, type[Score]] = {one.kind: one for one in (Accuracy, Balanced, Auc, AbsoluteError, SquaredError)}
register_tagged(Score, "kind", SCORES)


def natural_score(data: object) -> Score:
    """The score where none is named: accuracy for classes, the absolute error for numbers.

    Args:
        data: The records; only their kind is looked at.

    Returns:
        The score.

    Example:
        >>> natural_score((np.zeros((2, 1)), np.zeros(2)))
        Accuracy()
    """
    return Accuracy() if range_of(data) is None else AbsoluteError()


def score_named(name: str, shares: Sequence[float] | None = None) -> Score:
    """A score by its name, as job files and the command line write it.

    Args:
        name: "accuracy", "balanced", "auc", "absolute" or "squared".
        shares: About which part of the records each class has, for "balanced" and "auc".

    Returns:
        The score.

    Raises:
        InvalidInput: If there is no such score, or its shares are missing or not needed.

    Example:
        >>> score_named("balanced", [0.76, 0.24])
        Balanced(shares=(0.76, 0.24))
    """
    kind = SCORES.get(name) if isinstance(name, str) else None
    if kind is None:
        near = _validate.nearest(name, SCORES) if isinstance(name, str) else ""
        raise InvalidInput(f"There is no score {name!r}{near}; it is one of {', '.join(SCORES)}.")
    if kind is Balanced or kind is Auc:
        if shares is None:
            raise InvalidInput(
                f"The score {name!r} needs the shares of the classes, about how frequent each is: public figures that "
                "you declare (shares = [...] of the target in the schema, or 'shares'); they are never counted."
            )
        return kind(tuple(shares))
    if shares is not None and name != "accuracy":
        raise InvalidInput(f"The score {name!r} is about numbers and takes no 'shares' of classes.")
    return kind()


def check_score(score: object, data: object) -> None:
    """Refuse a score that does not fit the kind of the targets; looks at declared facts alone.

    Args:
        score: The score, or None for the natural one.
        data: The records; for data of an unknown kind nothing is refused.

    Raises:
        InvalidInput: If it is no score, or one for another kind of targets or number of classes.

    Example:
        >>> check_score(None, [1, 2, 3])
    """
    if score is None:
        return
    if not isinstance(score, Score):
        raise InvalidInput(f"'score' must be a score such as Balanced(shares=...); got {score!r:.80}.")
    rows = data.rows if isinstance(data, UnitDataset) else data
    if not isinstance(rows, Dataset):
        return
    real = range_of(rows) is not None
    if score.numbers != real:
        have, need = ("numbers", "classes") if real else ("classes", "numbers")
        raise InvalidInput(f"The score {score.kind!r} is for targets that are {need}; those of the records are {have}.")
    if isinstance(score, Balanced | Auc) and len(score.shares) != rows.classes:
        raise InvalidInput(f"The score has shares of {len(score.shares)} classes but the records have {rows.classes}.")


def _errors(found: AnyArray, targets: AnyArray, ends: tuple[float, float] | None) -> Array:
    """Errors as shares of the range, predictions and targets clipped to it; NaN for what is not a number."""
    if ends is None:
        raise InvalidInput("Scores of numbers need records with a declared range: a RegressionDataset.")
    return scaled(found, ends) - scaled(targets, ends)


def _area(ranks: Array, labels: AnyArray) -> Fraction | None:
    """The AUC of some records, ties one half, exactly; None without both classes."""
    high, low = ranks[labels == 1].astype(np.float64), ranks[labels == 0].astype(np.float64)
    if not len(high) or not len(low):
        return None
    high[np.isnan(high)], low[np.isnan(low)] = -np.inf, np.inf
    low.sort()
    below = np.searchsorted(low, high, "left").sum() + np.searchsorted(low, high, "right").sum()
    return Fraction(int(below), 2 * len(high) * len(low))


def _checked_shares(shares: object) -> tuple[float, ...]:
    if isinstance(shares, str) or not isinstance(shares, tuple | list) or len(shares) < 2:
        raise InvalidInput(f"'shares' must be a list with the share of each class; got {shares!r:.80}.")
    hint = "It is about the part of the records that are of this class."
    found = tuple(_validate.real("shares", one, _LEAST_SHARE, 1.0, high_open=True, hint=hint) for one in shares)
    if abs(sum(found) - 1.0) > 0.01:
        raise InvalidInput(f"'shares' of all classes must add up to 1; these add up to {sum(found):g}.")
    return found


def _checked_tolerance(value: float) -> float:
    hint = "It is a part of the declared range."
    return _validate.real("tolerance", value, 0.0, 1.0, low_open=True, hint=hint)
