"""Records as engines and methods see them: :class:`Dataset`, and how single records are taken from other containers.

Whether records are private or public is said when they are read. A private record that is invalid is repaired on its
own by a public rule, so that no refusal, no message and no other record depends on it (``docs/sealed_runs.md``); a
public one is refused with a clear line. Nothing here may be inferred from private records. The file is long because the
rules of repair stand beside the class that obeys them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np

from dptune import _memory, _validate
from dptune._repairs import FEATURE_RANGE, held, repaired_features
from dptune._typing import AnyArray, Floats, Indices, Mask
from dptune.errors import InvalidInput

__all__ = [
    "FEATURE_RANGE",
    "NO_RECORDS",
    "Dataset",
    "Labelled",
    "Named",
    "SupportsTake",
    "check_any_records",
    "flat_rows",
    "size",
    "take",
]

NO_RECORDS = "The data holds no records, so there is nothing to learn from; give the records."
"""What is said of data without a single record."""

_FEW = 2**16  # records that are copied also from many


@runtime_checkable
class SupportsTake(Protocol):
    """Records of a kind of your own, from which some can be taken."""

    def take(self, index: Indices, /) -> Any:
        """The records at the given places, in the same form; perhaps none."""


@runtime_checkable
class Labelled(Protocol):
    """Records with classes, by which Dirichlet clients are drawn."""

    @property
    def y(self) -> Any:
        """One class for each record."""


@runtime_checkable
class Named(Protocol):
    """Records that know what messages and folders call them."""

    @property
    def name(self) -> str:
        """How the records are called, in ledgers and statements."""


class _Key(Protocol):
    """The part of :class:`~dptune.randomness.Randomness` that shards need."""

    def child(self, label: str) -> Any:
        """Independent randomness for one purpose."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records along the first dimension of ``x``, with labels ``y`` in [0, classes).

    A record is a row of features, or an array of any public shape: images stay images, for torch with their channels
    first, as in (records, channels, height, width). Built-in models see such records as rows, by :attr:`flat`.

    Private records (the default) are never refused for what they hold. Each is repaired on its own: a feature that is
    not a number becomes ``missing``, then every feature is clipped to ``feature_range``; a label that is not one of
    0 .. ``classes`` - 1 becomes ``unknown_label``. All of these are public and must be decided without looking at the
    records. With ``public=True`` nothing is repaired, and such records are refused.

    What is not about single records is public and refused for both: types, dimensions, and lengths that do not fit.

    Private features are always copied, whether or not one of them must be repaired, so that no record decides how much
    memory is taken; public ones only where they are converted. Engines keep what they computed of the arrays: do not
    change them afterwards.

    Args:
        x: An array of numbers whose first dimension is that of records.
        y: An array of numbers with one class label for each record.
        classes: How many classes there are; declared, never counted.
        name: What messages and folders call the data.
        public: Whether these records may be shown to anybody.
        feature_range: The smallest and the largest value that a private feature keeps.
        missing: What replaces a private feature that is not a number, before clipping.
        unknown_label: What replaces a private label that is not a class.

    Raises:
        InvalidInput: If types or dimensions do not fit, or a public record is invalid.

    Example:
        >>> Dataset(np.array([[0.5], [np.nan], [7.0]]), np.array([1, 0, 9]), 2, feature_range=(0, 1)).x.ravel()
        array([0.5, 0. , 1. ])
    """

    x: Floats = field(repr=False)
    y: AnyArray = field(repr=False)
    classes: int
    name: str = "data"
    public: bool = False
    feature_range: tuple[float, float] = FEATURE_RANGE
    missing: float = 0.0
    unknown_label: int = 0

    def __post_init__(self) -> None:
        self._check_rules()
        x, y = (self._array(name, values) for name, values in (("x", self.x), ("y", self.y)))
        if x.ndim < 2:
            raise InvalidInput(f"'x' must have one row per record, or one image; it has {x.ndim} dimension(s).")
        if y.ndim != 1 or len(y) != len(x):
            raise InvalidInput("'y' must hold one label per record: one dimension, as many entries as 'x' has rows.")
        with np.errstate(all="ignore"):  # no warning may tell of a record
            given, x = x, _floating(x)
            y = y.astype(np.float32) if y.dtype == np.float16 else y
            if self.public:
                _refuse_bad_features(x)
                held(x)
            else:
                own = x is not given and not np.may_share_memory(x, given)
                x = repaired_features(x, self.feature_range, self.missing, own=own)
            y = self._valid_targets(y)
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)

    def _check_rules(self) -> None:
        """Refuse rules that contradict themselves: classes, the range of features, what replaces the missing."""
        self._check_target_rules()
        ends = self.feature_range
        if not isinstance(ends, tuple | list) or len(ends) != 2:
            raise InvalidInput(f"'feature_range' must be (lowest, highest); got {ends!r}.")
        most = FEATURE_RANGE[1]
        low, high = (_validate.real("feature_range", end, -most, most) for end in ends)
        if low >= high:
            raise InvalidInput(f"'feature_range' must be (lowest, highest); got {ends!r}.")
        object.__setattr__(self, "feature_range", (low, high))
        object.__setattr__(self, "missing", _validate.real("missing", self.missing, -most, most))

    def _check_target_rules(self) -> None:
        """Refuse rules for labels that contradict themselves."""
        object.__setattr__(self, "classes", _validate.integer("classes", self.classes, 2))
        _validate.integer("unknown_label", self.unknown_label, 0, self.classes - 1, hint="It is one of the classes.")

    def _valid_targets(self, y: AnyArray) -> AnyArray:
        """The labels as whole numbers: private ones repaired one by one, invalid public ones refused."""
        if self.public:
            _refuse_bad_labels(y, self.classes)
        return _labels(y, self.classes, self.unknown_label)

    def blank_targets(self, count: int) -> AnyArray:
        """Made-up labels that cover all declared classes, for blank records; a function of public things alone."""
        return np.arange(count) % self.classes

    def _array(self, name: str, values: Any) -> AnyArray:
        """The values as an array whose type was not decided by a private record."""
        if not self.public and not isinstance(values, np.ndarray):
            raise InvalidInput(
                f"{name!r} must be a numpy array; got {type(values).__name__}, whose numbers may be of a type that a "
                "single record decides. Use numpy.asarray(..., dtype=float)."
            )
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise InvalidInput(
                f"{name!r} must hold numbers; got {array.dtype}. Encode words and dates by a rule that looks at "
                "no other record."
            )
        return array

    def __len__(self) -> int:
        return len(self.y)

    @property
    def features(self) -> int:
        """How many features a record has; of an image, its values."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record: (features,) for a row, (channels, height, width) for an image."""
        return tuple(self.x.shape[1:])

    @property
    def flat(self) -> Dataset:
        """The same records as rows: a view, the same one as long as these exist, so that engines know it again."""
        if self.x.ndim == 2:
            return self
        if self not in _FLAT:
            _FLAT[self] = self.holding(flat_rows(self.x), self.y)
        return _FLAT[self]

    def take(self, index: Indices) -> Dataset:
        """The records at the given places, as a data set with the same rules; a large part of them is not copied."""
        rows = type(self) is Dataset and self.x.ndim == 2  # of another kind a part is a copy
        if rows and self.x.nbytes >= _memory.MANY and np.size(index) > _FEW:
            from dptune._places import part_of  # noqa: PLC0415 - it is a data set itself

            return part_of(self, index)
        return self.holding(self.x[index], self.y[index])

    def holding(self, x: Floats, y: AnyArray) -> Dataset:
        """A data set of the same name and rules with other records.

        Args:
            x: Features that obey the rules already.
            y: Their labels, which do too.

        Returns:
            The data set; nothing is checked or repaired.
        """
        part = object.__new__(type(self))
        for key, value in {**self.__dict__, "x": x, "y": y}.items():
            object.__setattr__(part, key, value)
        return part

    def map(self, features: Callable[[Floats], Floats], feature_range: tuple[float, float] = FEATURE_RANGE) -> Dataset:
        """The records with other features.

        Args:
            features: Turns rows into rows; it must treat every record on its own.
            feature_range: The public range of the new features.

        Returns:
            A new data set with the same labels and rules.
        """
        return replace(self, x=features(self.x), feature_range=feature_range)

    def shards(self, count: int, key: _Key) -> list[Dataset]:
        """Split by one independent uniform label per record (never by shuffling into equal chunks).

        Args:
            count: How many parts.
            key: The randomness of the run; the split is drawn from its child "shards".

        Returns:
            Disjoint parts that cover the records; some may be empty.
        """
        label = key.child("shards").generator().integers(0, count, len(self))
        return [self.take(np.flatnonzero(label == shard)) for shard in range(count)]


# The rows of records that are no rows, for as long as those exist; kept beside them, so that no part inherits them.
_FLAT: WeakKeyDictionary[Dataset, Dataset] = WeakKeyDictionary()


def flat_rows(x: Floats) -> Floats:
    """Every record as one row, without a copy where the array allows it.

    Args:
        x: An array whose first dimension is that of records.

    Returns:
        The values of each record in a row, in the order in which they lie in it.

    Example:
        >>> import numpy as np
        >>> from dptune.data import flat_rows
        >>> flat_rows(np.zeros((5, 1, 28, 28))).shape
        (5, 784)
    """
    return x if x.ndim <= 2 else x.reshape(len(x), math.prod(x.shape[1:]))


def _floating(x: AnyArray) -> Floats:
    """In single or double precision, row after row in memory, so that what engines compute follows from values."""
    kind = x.dtype
    if kind not in (np.float32, np.float64):
        kind = np.dtype(np.float64 if kind.kind == "f" and kind.itemsize > 8 else np.float32)
    if kind == x.dtype and x.flags.c_contiguous:
        return np.ascontiguousarray(x)
    made = _memory.room(x.shape, kind)
    made[...] = x
    return made


def _labels(y: AnyArray, classes: int, unknown: int) -> Indices:
    """The labels as whole numbers; what is not a class is ``unknown``."""
    labels: Indices = _memory.room(y.shape, np.int64)
    for part in _memory.blocks(len(y), y.itemsize):
        known = _are_classes(y[part], classes)
        labels[part] = np.where(known, y[part], y.dtype.type(0))
        labels[part][~known] = unknown
    return labels


def _are_classes(y: AnyArray, classes: int) -> Mask:
    """Which labels are whole numbers in [0, classes); no arithmetic that could overflow."""
    inside = (y >= 0) & (y <= classes - 1) if y.dtype.kind != "b" else np.ones(len(y), bool)
    whole = np.floor(y) == y if y.dtype.kind == "f" else True
    return np.asarray(inside & whole, dtype=bool)


def _refuse_bad_features(x: Floats) -> None:
    """Refuse invalid public records; only they may be talked about."""
    if not all(np.isfinite(x[part]).all() for part in _memory.blocks(len(x), x.itemsize * math.prod(x.shape[1:]))):
        raise InvalidInput(
            "'x' holds NaN or infinite features, and one such record would destroy every gradient. "
            "Fill or drop them by a rule that looks at no other record."
        )


def _refuse_bad_labels(y: AnyArray, classes: int) -> None:
    """Refuse labels of public records that are not classes."""
    if _are_classes(y, classes).all():
        return
    if y.dtype.kind == "f" and not (np.floor(y) == y).all():
        raise InvalidInput("'y' must hold whole numbers (class labels); got fractions. Number the classes from 0.")
    raise InvalidInput(
        f"Labels must lie in [0, {classes}); got values from {y.min()} to {y.max()}. "
        "Renumber them or state the right number of classes."
    )


def size(data: Any) -> int:
    """The number of records of a data set, an array, a list, or a tuple of columns.

    Args:
        data: A :class:`Dataset`, anything with a length, or a tuple of equally long columns.

    Returns:
        How many records there are. Private: it must not be shown.

    Example:
        >>> from dptune.data import size
        >>> size(([1.0, 2.0, 3.0], [0, 1, 0]))
        3
    """
    return len(data[0]) if isinstance(data, tuple) and data else len(data)


def check_any_records(data: Any) -> None:
    """Refuse data without a single record: that there are any is public, how many is not.

    A part of the records may well be empty, and so may units of which no row belongs to anybody; whole data may not.

    Args:
        data: What a run is given: a :class:`Dataset`, an array, a list or a tuple of columns. Of anything else the
            number of records is not asked.

    Raises:
        InvalidInput: If there is none.

    Example:
        >>> from dptune.data import check_any_records
        >>> check_any_records([])
        Traceback (most recent call last):
        dptune.errors.InvalidInput: The data holds no records, so there is nothing to learn from; give the records.
    """
    columns = data if isinstance(data, tuple) else (data,)
    if columns and all(isinstance(one, Dataset | np.ndarray | list) and not len(one) for one in columns):
        raise InvalidInput(NO_RECORDS)


def take(data: Any, index: Indices) -> Any:
    """The records at the given places, in the form in which the data came.

    Args:
        data: A :class:`Dataset`, an array, a list, a tuple of equally long ones, or an object with ``take(index)``.
        index: The places of the wanted records.

    Returns:
        Data of the same kind with these records, in the order of ``index``.

    Raises:
        InvalidInput: If ``data`` is of another kind.

    Example:
        >>> import numpy as np
        >>> from dptune.data import take
        >>> take(([10, 20, 30], ["a", "b", "c"]), np.array([2, 0]))
        ([30, 10], ['c', 'a'])
    """
    if isinstance(data, tuple):
        return tuple(take(column, index) for column in data)
    if isinstance(data, list):
        return [data[i] for i in index]
    if isinstance(data, np.ndarray):
        return data[index]
    if isinstance(data, SupportsTake):
        return data.take(index)
    raise InvalidInput(
        f"Cannot take a part of {type(data).__name__}: give an array, a list, a tuple of them, or an object with "
        "'take(index)'."
    )
