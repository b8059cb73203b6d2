"""Torch data sets that give their records by place (map style), read record by record into one :class:`Dataset`.

The shape of a record and the classes are public and declared. Whatever one private record does when it is read (it
raises, exits, prints, has another shape, is no number) makes that record the missing record and nothing else: the
generators of Python, numpy and torch stand at the same place for every record, so that none can shift the draws of
another. Public records are refused instead. Torch is not imported here: who has such data has imported it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np

from dptune._global_state import Globals, kept, plain_torch
from dptune._repairs import hand_over
from dptune._typing import AnyArray, Floats
from dptune._validate import integer, shown
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.tables.arrays import array_dataset, array_regression
from dptune.tables.drafting import is_regression

__all__ = ["Apart", "apart", "is_torch_data", "plain_array", "read_map_style", "record_shape"]

Label = int | float | str | None

_MOST_SIDE = 2**31


def is_torch_data(source: object) -> bool:
    """Whether this is a torch data set of any kind; torch is not loaded for the question."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(source, data.Dataset)


def record_shape(shape: Any) -> tuple[int, ...]:
    """The declared shape of a record: a whole number, several, or a public example that has a shape.

    Raises:
        InvalidInput: It is none of these.
    """
    found = getattr(shape, "shape", shape)
    try:
        sides = found if isinstance(found, Sequence) and not isinstance(found, str | bytes) else (found,)
        sizes = tuple(integer("shape", one, 1, _MOST_SIDE) for one in sides)
    except InvalidInput:
        sizes = ()
    if not sizes:
        raise InvalidInput(
            f"'shape' must be the shape of one record, such as (1, 28, 28), or a public example; got {shown(shape)}."
        )
    return sizes


def read_map_style(
    source: Any,
    classes: int | Sequence[object] | None,
    shape: tuple[int, ...] | None,
    *,
    name: str = "data",
    public: bool = False,
    target_range: tuple[float, float] | None = None,
    task: str | None = None,
) -> tuple[Dataset, dict[str, int]]:
    """The records of a map-style torch data set, whose ``source[place]`` is a pair (x, y).

    What the data set draws from a generator it draws alike for every record, and once: random augmentation belongs
    into a trainer of your own. ``source[place]`` must depend on its record alone.

    Args:
        source: The data set.
        classes: How many classes there are, or the labels themselves; None only for public records and for numbers.
        shape: The shape of one record; None only for public records.
        name: What messages and folders call the data.
        public: Whether these records may be shown to anybody: then what is wrong with them is refused.
        target_range: The smallest and the largest target, where targets are numbers; None for classes.
        task: For public records of which neither is declared, as :func:`~dptune.tables.drafting.is_regression` has it.

    Returns:
        The records in single precision, and how many became the missing record: all zeros, with the first class or the
        middle of the range.

    Raises:
        InvalidInput: The data set gives no records by place, does not fit into memory, or a public record is wrong.

    Example:
        >>> import torch
        >>> from dptune.tables.map_style import read_map_style
        >>> class Squares(torch.utils.data.Dataset):
        ...     def __len__(self):
        ...         return 3
        ...     def __getitem__(self, place):
        ...         return (torch.ones(2) if place < 2 else torch.ones(5)), place % 2
        >>> data, repairs = read_map_style(Squares(), classes=2, shape=(2,))
        >>> data.x.tolist(), repairs
        ([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]], {'missing records': 1})
    """
    count = _count(source)
    shape = _first_shape(source, count) if shape is None and public else shape
    if shape is None or (classes is None and target_range is None and not public):
        raise InvalidInput("Private records need a declared 'shape' and 'classes' (or 'target_range').")
    try:
        x = np.zeros((count, *shape), np.float32)
    except (MemoryError, ValueError):
        raise InvalidInput(f"Records of shape {shape} do not fit into this machine's memory.") from None
    labels: list[Label] = [None] * count
    missing = 0
    with apart() as each:
        for place in range(count):
            reason = each.read(source, place, shape, x, labels)
            if reason is not None and public:
                raise InvalidInput(f"Record {place} of the public data cannot be taken: {reason}.")
            missing += reason is not None
    repairs = {"missing records": missing} if missing else {}
    if classes is None and target_range is None:
        target_range = _seen_range(labels, task)
    if target_range is not None:
        return array_regression(hand_over(x), _numeric(labels), target_range, name=name), repairs
    if classes is None:
        classes = (
            sorted({str(one) for one in labels}) if any(isinstance(one, str) for one in labels) else _numbers(labels)
        )
    y: Any = _numeric(labels) if isinstance(classes, int | np.integer) else labels
    return array_dataset(hand_over(x), y, classes, name=name), repairs


def _count(source: Any) -> int:
    data = sys.modules["torch.utils.data"]
    why = "so nobody could toss a coin for each record or take a part of them. Use a map-style Dataset"
    if isinstance(source, data.IterableDataset):
        raise InvalidInput(f"An IterableDataset gives its records one after the other, {why} (__getitem__, __len__).")
    if isinstance(source, data.TensorDataset):
        raise InvalidInput(
            f"The TensorDataset has {len(source.tensors)} tensors; it must have two: records and labels."
        )
    try:
        return len(source)
    except Exception as error:
        raise InvalidInput(f"The {type(source).__name__} has no length ({type(error).__name__}), {why}.") from None


def _first_shape(source: Any, count: int) -> tuple[int, ...]:
    """The shape of the first record, which is public."""
    if count == 0:
        raise InvalidInput("The data has no record; declare the 'shape' of one, and the 'classes'.")
    try:
        return plain_array(source[0][0]).shape
    except Exception as error:
        raise InvalidInput(f"Record 0 of the public data cannot be taken: {_said(error)}.") from None


def plain_array(value: Any) -> AnyArray:
    """A tensor, an image or an array as numbers; raises some Exception for anything else."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"its features are {array.dtype}, not numbers")
    return array


def _pair(item: Any, shape: tuple[int, ...]) -> tuple[AnyArray, Label]:
    """Features and label of one record; raises for anything that is not a pair of the declared shape."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise TypeError("it is not a pair (x, y)")
    x, label = plain_array(item[0]), item[1]
    if x.shape != shape:
        raise ValueError(f"it has the shape {x.shape}, not {shape}")
    return x, _plain_label(label.item() if hasattr(label, "item") else label)


def _plain_label(label: Any) -> Label:
    """A label of Python's own type, on which nothing of its own can raise any more; raises for anything else.

    What a class of labels does when it is hashed, compared or converted is not asked: only the value is taken.
    """
    kind = type(label)
    if kind in (bool, int, float, str):
        return label  # type: ignore[no-any-return] # one of these
    if issubclass(kind, str):
        return str.__getitem__(label, slice(None))
    if issubclass(kind, float):
        return float.__float__(label)
    if issubclass(kind, int):
        return int.__index__(label)
    raise TypeError(f"its label is a {kind.__name__}")


def _said(error: BaseException) -> str:
    try:
        return " ".join(str(error).split()).rstrip(".")[:200] or type(error).__name__
    except BaseException:  # an error of others' code may fail to say what it is; a pressed Ctrl-C is known elsewhere
        return type(error).__name__


def _numeric(labels: list[Label]) -> Floats:
    """Labels as numbers; what is none becomes NaN, which is no class."""
    found = np.full(len(labels), math.nan)
    for place, label in enumerate(labels):
        if isinstance(label, int | float):
            with contextlib.suppress(OverflowError):
                found[place] = label
    return found


def _numbers(labels: list[Label]) -> list[object]:
    """The different labels of public records, in order."""
    return list(np.unique(_numeric(labels)).tolist())


def _seen_range(labels: list[Label], task: str | None) -> tuple[float, float] | None:
    """The range of public targets, if they are numbers to be predicted."""
    values = _numeric(labels)
    numbers = bool(len(values)) and bool(np.isfinite(values).all())
    if task == "regression" and not numbers:
        raise InvalidInput("The public data has targets that are not numbers, so they cannot be a regression's.")
    if not numbers or not is_regression(values, task):
        return None
    low, high = float(values.min()), float(values.max())
    return low, high if high > low else low + 1.0


class Apart:
    """Reads or computes one record after the other, each from the same state of the process."""

    def __init__(self, before: Any) -> None:
        self._before, self.pressed = before, False

    def call(self, one: Callable[[], None]) -> str | None:
        """Do what concerns one record; why it failed, if it did, which is for public records alone."""
        reason = None
        self._before.restore()
        try:
            one()
        except BaseException as error:  # whatever a record makes others' code raise is about that record alone
            reason = _said(error) if isinstance(error, Exception) else type(error).__name__
        if self.pressed:  # it was the user, not the record
            raise KeyboardInterrupt
        return reason

    def read(self, source: Any, place: int, shape: tuple[int, ...], x: Floats, labels: list[Label]) -> str | None:
        """Put one record into its place; why not, if it cannot be, which is for public records alone."""

        def put() -> None:
            values, label = _pair(source[place], shape)
            x[place], labels[place] = values, label

        return self.call(put)


@contextlib.contextmanager
def apart(seed: int | None = None) -> Iterator[Apart]:
    """No record is talked about, and none changes the process for the next; Ctrl-C still stops.

    With a seed, what records draw is the same in every process.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(plain_torch())
        now = stack.enter_context(kept())
        each = Apart(now if seed is None else Globals.seeded(seed))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(np.errstate(all="ignore"))
        nowhere = stack.enter_context(open(os.devnull, "w"))  # noqa: PTH123 - no path
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        stack.enter_context(_interrupts(each))
        yield each


@contextlib.contextmanager
def _interrupts(each: Apart) -> Iterator[None]:
    """Tell the user's Ctrl-C from a record that raises the same."""
    known = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(known):
        yield
        return

    def pressed(number: int, frame: FrameType | None) -> None:
        each.pressed = True
        known(number, frame)

    signal.signal(signal.SIGINT, pressed)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, known)
