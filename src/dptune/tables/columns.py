"""What a column of a table may be: a number, a category, a text, the target, or something to leave out.

Each kind is a frozen value that says everything that is needed to encode one cell without looking at any other: range,
missing value, declared values, width. All of it is public and written before the records are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from dptune import _validate
from dptune._codec import added_later, register_tagged
from dptune.errors import InvalidInput
from dptune.regression import check_range
from dptune.scores import Balanced
from dptune.units import plain_text

__all__ = ["KINDS", "Category", "Column", "Ignored", "Number", "NumberTarget", "Target", "Text", "plain_text"]

MOST_VALUES = 10_000
_MOST_NUMBER = 1e300
_SCALES = ("linear", "log")


@dataclass(frozen=True)
class Column:
    """A column of a table, by its name in the header; the kinds derive from this.

    Args:
        name: The name in the header.

    Example:
        >>> from dptune.tables import Column, Text
        >>> isinstance(Text("note", width=64), Column)
        True
    """

    kind: ClassVar[str] = ""

    name: str

    @property
    def size(self) -> int:
        """How many features the column becomes."""
        return 0


@dataclass(frozen=True)
class Number(Column):
    """A number, scaled from its public range to [0, 1].

    What is not a number becomes ``missing``; what lies outside of the range, infinities among them, is clipped.

    Args:
        name: The name in the header.
        low: The smallest value that is kept.
        high: The largest value that is kept.
        missing: What replaces a cell that is not a number; None: the middle of the range.
        scale: "linear", or "log" for amounts that are mostly small: ``log(1 + value - low)``, scaled.

    Raises:
        InvalidInput: If the range is empty or not finite, ``missing`` is outside of it, or ``scale`` is unknown.

    Example:
        >>> from dptune.tables import Number
        >>> Number("age", 0, 100).missing
        50.0
    """

    kind: ClassVar[str] = "number"

    low: float
    high: float
    missing: float | None = None
    scale: str = "linear"

    def __post_init__(self) -> None:
        what = f"range of column {self.name!r}"
        low, high = (_validate.real(what, end, -_MOST_NUMBER, _MOST_NUMBER) for end in (self.low, self.high))
        if low >= high:
            raise InvalidInput(f"The {what} must be [lowest, highest]; got [{low:g}, {high:g}].")
        if self.scale not in _SCALES:
            raise InvalidInput(f"The scale of column {self.name!r} must be 'linear' or 'log'; got {self.scale!r}.")
        middle = low / 2 + high / 2
        given = middle if self.missing is None else self.missing
        missing = _validate.real(f"missing of column {self.name!r}", given, low, high, hint="It lies in the range.")
        for attribute, value in (("low", low), ("high", high), ("missing", missing)):
            object.__setattr__(self, attribute, value)

    @property
    def size(self) -> int:
        """One feature."""
        return 1


@dataclass(frozen=True)
class Category(Column):
    """One of the declared values, or "other": a feature for each, and one for whatever else a cell may hold.

    Args:
        name: The name in the header.
        values: The declared values, as texts; case and inner spaces count, spaces around a cell do not.

    Raises:
        InvalidInput: If there are no values, too many, or one twice.

    Example:
        >>> from dptune.tables import Category
        >>> Category("sex", ("Female", "Male")).size
        3
    """

    kind: ClassVar[str] = "category"

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _distinct(self.values, f"'values' of column {self.name!r}", 1))

    @property
    def size(self) -> int:
        """A feature for each value, and one for others."""
        return len(self.values) + 1


@dataclass(frozen=True)
class Text(Column):
    """Free text, as a bag of words that a public hash puts into ``width`` features of length one.

    Args:
        name: The name in the header.
        width: How many features; more keep more words apart.

    Raises:
        InvalidInput: If the width is not between 2 and 65,536.

    Example:
        >>> from dptune.tables import Text
        >>> Text("note", width=256).size
        256
    """

    kind: ClassVar[str] = "text"

    width: int

    def __post_init__(self) -> None:
        _validate.integer(f"width of column {self.name!r}", self.width, 2, 65_536)

    @property
    def size(self) -> int:
        """The declared width."""
        return self.width


@dataclass(frozen=True)
class Target(Column):
    """The class that a model predicts.

    Args:
        name: The name in the header.
        classes: The declared classes, as texts; their order numbers them from 0.
        unknown: The class of a record whose cell holds none of them; None: the first.
        shares: About which part of the records each class has, decided without counting, for scores that balance
            classes; None where they are not declared.

    Raises:
        InvalidInput: If there are fewer than two classes, too many, one twice, ``unknown`` is none of them, or there
            is not one share for each that add up to 1.

    Example:
        >>> from dptune.tables import Target
        >>> Target("income", ("<=50K", ">50K")).unknown
        '<=50K'
    """

    kind: ClassVar[str] = "target"

    classes: tuple[str, ...]
    unknown: str | None = None
    shares: tuple[float, ...] | None = field(default=None, metadata=added_later())

    def __post_init__(self) -> None:
        classes = _distinct(self.classes, f"'classes' of the target {self.name!r}", 2)
        if self.shares is not None:
            object.__setattr__(self, "shares", Balanced(self.shares).shares)
            if len(self.shares) != len(classes):
                raise InvalidInput(f"'shares' of the target {self.name!r} must be one for each of its classes.")
        unknown = classes[0] if self.unknown is None else plain_text(self.unknown)
        if unknown not in classes:
            raise InvalidInput(f"'unknown' of the target {self.name!r} must be one of its classes; got {unknown!r}.")
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "unknown", unknown)

    @property
    def unknown_label(self) -> int:
        """The number of the class that replaces unknown ones."""
        return self.classes.index(str(self.unknown))


@dataclass(frozen=True)
class NumberTarget(Column):
    """A real number that a model predicts, in a public range.

    A target outside of the range, infinities among them, is clipped; what is not a number becomes ``missing``.

    Args:
        name: The name in the header.
        low: The smallest value that is kept.
        high: The largest value that is kept.
        missing: What replaces a cell that is not a number; None: the middle of the range.

    Raises:
        InvalidInput: If the range is empty or not finite, or ``missing`` is outside of it.

    Example:
        >>> from dptune.tables import NumberTarget
        >>> NumberTarget("price", 0, 500).missing
        250.0
    """

    kind: ClassVar[str] = "number target"

    low: float
    high: float
    missing: float | None = None

    def __post_init__(self) -> None:
        low, high = check_range(f"range of the target {self.name!r}", (self.low, self.high))
        given = low / 2 + high / 2 if self.missing is None else self.missing
        missing = _validate.real(f"missing of the target {self.name!r}", given, low, high, hint="It lies in the range.")
        for attribute, value in (("low", low), ("high", high), ("missing", missing)):
            object.__setattr__(self, attribute, value)

    @property
    def target_range(self) -> tuple[float, float]:
        """Both ends of the range."""
        return self.low, self.high


@dataclass(frozen=True)
class Ignored(Column):
    """A column that is in the file and takes no part, for example a name or a number of a case.

    Args:
        name: The name in the header.

    Example:
        >>> from dptune.tables import Ignored
        >>> Ignored("case_id").size
        0
    """

    kind: ClassVar[str] = "ignore"


KINDS: dict[str, type[Column]] = {one.kind: one for one in (Number, Category, Text, Target, Ignored)}
"""The kinds as schema files name them; there a target has classes or a range."""

register_tagged(Column, "kind", {**KINDS, NumberTarget.kind: NumberTarget})


def _distinct(values: object, what: str, least: int) -> tuple[str, ...]:
    """Declared values as texts, none of them twice."""
    if isinstance(values, str) or not isinstance(values, tuple | list):
        raise InvalidInput(f"{what} must be a list of values; got {values!r}.")
    if len(values) > MOST_VALUES:
        raise InvalidInput(
            f"{what} must be at most {MOST_VALUES:,} values; got {len(values):,}. Declare the frequent ones, the rest "
            "becomes 'other', or use kind = 'text' with a width."
        )
    texts: dict[str, None] = {}
    for value in values:
        if not isinstance(value, str | int | float):
            raise InvalidInput(f"{what} must be texts or numbers; got {value!r}.")
        text = plain_text(value)
        if text in texts:
            raise InvalidInput(f"{what} has {text!r} twice; keep one.")
        texts[text] = None
    if len(texts) < least:
        raise InvalidInput(f"{what} must have at least {least} value{'s' if least > 1 else ''}; got {len(texts)}.")
    return tuple(texts)
