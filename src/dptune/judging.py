"""How a model is judged on private validation records: each record on its own, and none can change another's verdict.

One record moves a count by at most 1 only if nothing passes between records (``docs/theorems/parallel.md``). So a model
is asked about one record at a time, each time as a fresh copy of itself and with the global generators as they were.
Whatever goes wrong with a record (it raises, exits, answers something odd) makes that record wrong and nothing else.
Models that promise the same verdicts for a batch as for single records are asked about all records at once, which is a
faster way to the same count.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dptune._global_state import kept, plain_torch
from dptune._typing import AnyArray, Indices
from dptune.data import size, take
from dptune.errors import InvalidInput
from dptune.regression import range_of
from dptune.scores import Auc, Score, natural_score
from dptune.units import UnitDataset

__all__ = ["GivesProbabilities", "Judges", "Predicts", "correct", "is_module", "judges_each_record_alone"]

_GRID = 2**20
_TOGETHER = 2**15  # records that are judged by one call


@runtime_checkable
class Predicts(Protocol):
    """A model that answers with a label for every row.

    An implementer need not be thread-safe: each call has a copy of its own. The answer for one row must not depend on
    the others; where it does, only the answers for single rows count.
    """

    def predict(self, x: Any, /) -> Any:
        """One label for each row of ``x``."""


@runtime_checkable
class GivesProbabilities(Protocol):
    """A model that says how likely each class is."""

    def predict_proba(self, x: Any, /) -> Any:
        """One row of probabilities for each row of ``x``."""


@runtime_checkable
class Judges(Protocol):
    """A model that says itself how well it does, where labels and answers are not compared by equality.

    It is asked about one record at a time, each time as a fresh copy, so it can keep nothing. Values outside of [0, 1]
    are clipped, and what is not a number counts 0.
    """

    def correct(self, data: Any, /) -> Any:
        """One value from 0 to 1 for each record."""


def judges_each_record_alone(model: object) -> bool:
    """Whether the model's class promises verdicts that are the same, to the last bit, in a batch and alone.

    The promise is an attribute ``judges_each_record_alone = True`` of the class itself: a subclass, which may predict
    in another way, must repeat it.

    Args:
        model: Any model.

    Returns:
        True only if the class itself makes the promise.

    Example:
        >>> from dptune.judging import judges_each_record_alone
        >>> class Threshold:
        ...     judges_each_record_alone = True
        >>> class Changed(Threshold):
        ...     pass
        >>> judges_each_record_alone(Threshold()), judges_each_record_alone(Changed())
        (True, False)
    """
    return vars(type(model)).get("judges_each_record_alone") is True


@plain_torch()
def correct(
    model: Any,
    data: Any,
    score: Score | None = None,
    *,
    groups: Indices | None = None,
    number: int = 1,
) -> Fraction:
    """How many records the model gets right: each counts between 0 and 1, decided on its own.

    A model has ``correct(data)``, which gives a value from 0 to 1, or ``predict(x)``, whose answer for one record is
    compared with its target by the score, or is a torch module that gives a score for every class. A record on which it
    raises, or answers with something else than one value, counts 0. A unit of several rows counts as the mean of its
    rows, so that it adds at most 1 whatever it holds.

    Args:
        model: The trained model. It is copied for every record, so that it can keep nothing from one to the next.
        data: The records: with ``x`` and ``y``, or a tuple whose first column is ``x`` and whose last is ``y``; for
            models with ``correct``, anything that :func:`dptune.data.take` can take records from. Of units, models are
            given single rows.
        score: What one record adds (:mod:`dptune.scores`); None: what the model says itself, else accuracy, for
            numbers the absolute error.
        groups: For the AUC, the group of each record, which coins have drawn; without them there is one group.
        number: How many groups there are; public.

    Returns:
        An exact sum of values on a grid of 2^-20, so that the order of records does not matter.

    Raises:
        InvalidInput: If the model has no way to judge a record. Like a model that cannot be copied, which raises too,
            this does not depend on the records.

    Example:
        >>> import numpy as np
        >>> from dptune.judging import correct
        >>> class Sign:
        ...     def predict(self, x):
        ...         return (x[:, 0] > 0).astype(int)
        >>> correct(Sign(), (np.array([[1.0], [-2.0], [3.0]]), np.array([1, 0, 0])))
        Fraction(2, 1)
    """
    _check_judgeable(model, score)
    units = data if isinstance(data, UnitDataset) else None
    rows = data if units is None else units.rows
    if isinstance(score, Auc):
        ranks = _each(model, rows, _ranks, np.nan)
        own = np.zeros(size(data), np.int64) if groups is None else groups
        labels = _binary(rows[-1] if isinstance(rows, tuple) else rows.y)
        own = own if units is None else own[units.row_units]
        several = units is not None and units.unit_rows > 1
        return Fraction(Auc.count(ranks, labels, own, number, _GRID, several=several), _GRID)
    ends = range_of(rows)

    def steps(one: Any, some: Any) -> AnyArray:
        return _steps(_values(one, some, score, ends))

    verdicts = _each(model, rows, steps, 0).astype(np.int64)
    verdicts = verdicts if units is None else units.means(verdicts)
    return Fraction(int(verdicts.sum()), _GRID)


def _binary(labels: Any) -> Indices:
    """Labels as 0 and 1, each from itself alone; what is neither is -1."""
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iufb":
        return np.where(labels == 1, 1, np.where(labels == 0, 0, -1))
    return np.array([_one_binary(label) for label in labels], np.int64)


def _one_binary(label: Any) -> int:
    try:
        return int(label) if float(label) in (0.0, 1.0) else -1
    except Exception:  # one odd label must not stop a run
        return -1


def _check_judgeable(model: Any, score: Score | None) -> None:
    """Refuse a model that cannot be asked for what the score needs."""
    if isinstance(score, Auc):
        if not isinstance(model, GivesProbabilities) and not is_module(model):
            raise InvalidInput(
                f"A {type(model).__name__} has no predict_proba(x), by which the AUC ranks records. Return a model "
                "that has it, or use score='balanced'."
            )
    elif not isinstance(model, Judges | Predicts) and not is_module(model):
        raise InvalidInput(
            f"A {type(model).__name__} has neither predict(x) nor correct(data), so it cannot be judged on private "
            "records. Return a model that has one of them."
        )


def _each(model: Any, data: Any, ask: Callable[[Any, Any], AnyArray], failed: float) -> AnyArray:
    """A number for each record, as ``ask`` gets it from the model; ``failed`` where it does not get one."""
    count = size(data)
    if judges_each_record_alone(model):
        together = _all_at_once(model, data, count, ask)
        if together is not None:
            return together
    copy.deepcopy(model)  # one that cannot be copied fails whatever the records
    return np.array([_one(model, data, place, ask, failed) for place in range(count)])


def _all_at_once(model: Any, data: Any, count: int, ask: Callable[[Any, Any], AnyArray]) -> AnyArray | None:
    """The numbers by one call for many records; None if there is not one for each, and then each is judged alone."""
    try:
        with warnings.catch_warnings(), np.errstate(), kept():
            if count <= _TOGETHER:
                numbers = ask(model, data)
            else:  # so that what is made of them on the way is small beside the records
                places = np.arange(count)
                parts = [places[first : first + _TOGETHER] for first in range(0, count, _TOGETHER)]
                numbers = np.concatenate([_checked(ask(model, take(data, part)), part) for part in parts])
        return numbers if numbers.shape == (count,) else None
    except BaseException:  # as below
        return None


def _checked(numbers: AnyArray, part: Indices) -> AnyArray:
    """The numbers, if there is one for each record of a part."""
    if numbers.shape != part.shape:
        raise InvalidInput("There must be one value for each record.")
    return numbers


def _one(model: Any, data: Any, place: int, ask: Callable[[Any, Any], AnyArray], failed: float) -> Any:
    """The number of one record."""
    try:
        with warnings.catch_warnings(), np.errstate(), kept():
            numbers = ask(copy.deepcopy(model), take(data, np.array([place])))
        return numbers.reshape(-1)[0] if numbers.size == 1 else failed
    except BaseException:  # SystemExit and KeyboardInterrupt too: what a record makes a model raise is its own verdict
        return failed


def _values(model: Any, data: Any, score: Score | None, ends: tuple[float, float] | None) -> AnyArray:
    """One value for each record, as the model or the score gives them."""
    if isinstance(model, Judges) and callable(model.correct) and (score is None or not isinstance(model, Predicts)):
        return np.asarray(model.correct(data))
    x, y = (data[0], data[-1]) if isinstance(data, tuple) else (data.x, data.y)
    found, targets = np.asarray(_predicted(model, x, numbers=ends is not None)), _column(y)
    if found.size != size(data) or targets.size != size(data):
        return np.empty(0)  # a comparison would spread one answer over several records
    return (score or natural_score(data)).values(found.reshape(-1), targets.reshape(-1), ends)


def _column(values: Any) -> AnyArray:
    """Targets as an array whose entries are what they were: in a list, one text would make texts of all numbers."""
    if not isinstance(values, list | tuple):
        return np.asarray(values)
    made = np.empty(len(values), object)
    for place, one in enumerate(values):
        made[place] = one
    return made


def _ranks(model: Any, data: Any) -> AnyArray:
    """How strongly the model takes each record for one of the second of two classes."""
    x = data[0] if isinstance(data, tuple) else data.x
    if isinstance(model, GivesProbabilities) and callable(model.predict_proba):
        found = np.asarray(model.predict_proba(x), np.float64)
    else:
        found = np.asarray(_module_outputs(model, x), np.float64)
    if found.ndim != 2 or found.shape != (size(data), 2):
        return np.empty(0)
    return found[:, 1] - found[:, 0]


def _predicted(model: Any, x: Any, *, numbers: bool) -> Any:
    """The model's answers for the rows of ``x``: of modules the only output, where targets are numbers."""
    if isinstance(model, Predicts) and callable(model.predict):
        return model.predict(x)
    outputs = _module_outputs(model, x)
    return outputs if numbers else outputs.argmax(dim=1)


def _module_outputs(model: Any, x: Any) -> Any:
    """The outputs of a torch module."""
    torch = sys.modules["torch"]
    kind = next((values.dtype for values in model.parameters()), None)
    with torch.no_grad():
        return model(torch.as_tensor(x, dtype=kind))


def is_module(model: object) -> bool:
    """Whether a model is a torch module; torch is not imported for the question.

    Args:
        model: Any model.

    Returns:
        True for an instance of ``torch.nn.Module``.

    Example:
        >>> from dptune.judging import is_module
        >>> is_module("not a module")
        False
    """
    torch = sys.modules.get("torch")  # who has a module has imported it
    return torch is not None and isinstance(model, torch.nn.Module)


def _steps(values: AnyArray) -> Indices:
    """Values between 0 and 1, each rounded down to the grid, so that sums are exact; 0 for what is not a number."""
    numbers = np.nan_to_num(values.astype(float), nan=0.0)
    return np.asarray(np.floor(np.clip(numbers, 0.0, 1.0) * _GRID), dtype=np.int64)
