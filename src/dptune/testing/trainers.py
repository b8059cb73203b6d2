"""Conformance of trainers: what every trainer must do, whoever wrote it (:mod:`dptune.trainer` says why).

Call :func:`check_trainer` from your tests with a trainer of your own, some configurations and some records that are not
private: everything about them may be printed. :func:`check_sensitivity` looks at the noise itself, where one run is one
Gaussian mechanism. Passing shows no privacy; failing shows that there is none, or that a run cannot be resumed.
"""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dptune._global_state import Globals, kept
from dptune.accounting import Cost, cost_from_json
from dptune.data import size, take
from dptune.executors.models import dumps
from dptune.judging import correct, judges_each_record_alone
from dptune.testing._capabilities import check_capabilities, check_declared, check_stacking
from dptune.testing._runs import odd_data, packed, parts, rng
from dptune.testing._sensitivity import check_sensitivity
from dptune.testing._weights import finite, weights_of
from dptune.trainer import (
    Params,
    Trainer,
)
from dptune.trainer import check_trainer as check_methods

__all__ = ["check_judging", "check_sensitivity", "check_trainer", "weights_of"]

DataT = TypeVar("DataT")


def check_trainer(
    trainer: Trainer[DataT, object],
    data: DataT,
    candidates: Sequence[Params],
    *,
    odd: Sequence[DataT] = (),
    draws: bool = True,
    tolerance: float = 1e-4,
) -> None:
    """Raise AssertionError unless the trainer keeps the promises of :class:`~dptune.trainer.Trainer`.

    Every candidate is trained about a dozen times, so give small ones. What is tested: the declared cost is a cost, the
    same whenever and wherever it is asked; a run is a function of its arguments, in a pickled copy of the trainer too,
    and touches nothing but its generator; it never refuses records (none, one, odd ones); every capability does what
    its protocol says.

    Args:
        trainer: what is tested.
        data: records that anybody may see; a Dataset, or whatever the trainer takes.
        candidates: configurations, at least one.
        odd: more data sets that must be trained on without an error, for example with records that are invalid. A
            Dataset gets some by itself.
        draws: whether two runs with different generators differ, as they must if there is noise.
        tolerance: how far the weights of a stack may be from those of single runs, in relation to the largest.

    Raises:
        AssertionError: with the promise that is not kept.
        InvalidInput: it is not a trainer at all.

    Example:
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=dpt.Gaussian(2.0))
        ... def noisy_sum(params, data, rng):
        ...     return float(data.clip(0, 1).sum() + 2.0 * rng.normal()), 0.0
        >>> check_trainer(noisy_sum, np.linspace(0, 1, 20), [{}])
        >>> @dpt.trainer(cost=dpt.Gaussian(2.0))
        ... def unseeded(params, data, rng):
        ...     return float(data.clip(0, 1).sum() + 2.0 * np.random.default_rng().normal()), 0.0
        >>> check_trainer(unseeded, np.linspace(0, 1, 20), [{}])
        Traceback (most recent call last):
        AssertionError: The same generator must give the same model: draw from 'rng' alone.
    """
    check_methods(trainer)
    assert candidates, "Give at least one configuration."
    copied: Trainer[DataT, object] = pickle.loads(dumps(trainer))  # as a worker process gets it
    for params in candidates:
        _check_cost(trainer, copied, params)
        _check_run(trainer, copied, params, data, draws)
        _check_total(trainer, params, data, [*parts(data), *odd_data(data), *odd])
        check_capabilities(trainer, params, data)
    check_stacking(trainer, candidates, data, tolerance)
    check_declared(trainer, copied)


def _check_cost(trainer: Trainer[DataT, object], copied: Trainer[DataT, object], params: Params) -> None:
    """The declared cost: a cost, the same whenever and wherever it is asked, and one that JSON can store."""
    given = dict(params)
    cost = trainer.cost(given)
    assert isinstance(cost, Cost), f"'cost' returns a cost such as Gaussian(...); got {cost!r}."
    assert given == params, "'cost' must not change the parameters."
    assert trainer.cost(dict(params)) == cost, "'cost' must give the same cost every time."
    assert copied.cost(dict(params)) == cost, "A worker's copy of the trainer must declare the same cost."
    assert cost_from_json(cost.to_json()) == cost, "The cost must survive JSON, since plans are stored."


def _check_run(
    trainer: Trainer[DataT, object], copied: Trainer[DataT, object], params: Params, data: DataT, draws: bool
) -> None:
    """One run: a function of its arguments, in a worker's copy too, that changes neither them nor the cost."""
    cost, given, records = trainer.cost(dict(params)), dict(params), dumps(data)
    first = _fitted(trainer, given, data, 1)
    assert given == params, "'fit' must not change the parameters."
    assert dumps(data) == records, "'fit' must not change the records."
    assert trainer.cost(dict(params)) == cost, "The cost must not follow the records: it changed after a run."
    other = _fitted(trainer, given, data, 2)
    _fitted(trainer, given, take(data, np.arange(max(1, size(data) // 2))), 3)
    again = _fitted(trainer, given, data, 1, world=2)
    assert again[0] == first[0], "The same generator must give the same model: draw from 'rng' alone."
    assert _same_score(again, first), "The same generator must give the same score: draw from 'rng' alone."
    assert _fitted(copied, given, data, 1)[0] == first[0], "A worker's copy of the trainer must give the same model."
    assert not draws or other[0] != first[0], "Other generators must give other noise: the model is always the same."


def _fitted(
    trainer: Trainer[DataT, object], params: Params, data: DataT, seed: int, world: int = 1
) -> tuple[bytes, float]:
    """One run among global generators of its own, which it must leave as they are."""
    with kept():
        before = Globals.seeded(world)
        found = packed(trainer.fit(params, data, rng(seed)))
        assert _same_globals(before), "'fit' must not use or seed global generators (random, numpy.random, torch)."
    return found


def _same_globals(before: Globals) -> bool:
    """Whether no global generator was used or seeded since."""
    if random.getstate() != before.python:
        return False
    now = Globals.now()
    if dumps(now.numpy) != dumps(before.numpy):
        return False
    if before.torch is None or now.torch is None:
        return True
    return bool((now.torch[0] == before.torch[0]).all()) and now.torch[1:] == before.torch[1:]


def _same_score(one: tuple[bytes, float], other: tuple[bytes, float]) -> bool:
    """Whether two runs scored the same; scores that are not a number are the same."""
    return one[1] == other[1] or (math.isnan(one[1]) and math.isnan(other[1]))


def _check_total(trainer: Trainer[DataT, object], params: Params, usual: DataT, worlds: Sequence[DataT]) -> None:
    """A run never refuses records, and no odd record spoils a model."""
    diverges = not finite(trainer.fit(dict(params), usual, rng(4))[0])
    for data in worlds:
        try:
            model = trainer.fit(dict(params), data, rng(4))[0]
        except Exception as error:
            raise AssertionError(
                f"'fit' must never refuse records, since a failure shows them: {type(error).__name__} on {size(data)} "
                "records (none, one, or some that are odd)."
            ) from error
        assert diverges or finite(model), "One odd record must not make the model NaN or infinite: repair it."


def check_judging(model: object, data: Any) -> None:
    """Raise AssertionError if a model breaks its promise to judge each record alone (``judges_each_record_alone``).

    Args:
        model: a trained model; one that promises nothing is judged one record at a time and passes.
        data: records that anybody may see.

    Raises:
        AssertionError: a record is judged otherwise in company than alone.

    Example:
        >>> class Sign:
        ...     judges_each_record_alone = True
        ...     def predict(self, x):
        ...         return (x[:, 0] > 0).astype(int)
        >>> check_judging(Sign(), (np.array([[1.0], [-1.0]]), np.array([1, 1])))
    """
    if not judges_each_record_alone(model):
        return
    count = size(data)
    alone = [correct(model, take(data, np.array([place]))) for place in range(count)]
    for places in (list(range(count)), list(range(count))[::-1], list(range(1, count))):
        together = correct(model, take(data, np.array(places, dtype=np.int64)))
        assert together == sum(alone[i] for i in places), "A record is judged otherwise in company than alone."
