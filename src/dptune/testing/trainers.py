"""Conformance of trainers: what every trainer must do, whoever wrote it (:mod:`dptune.trainer` says why).

Call :func:`check_trainer` from your tests with a trainer of your own, some configurations and some records that are not
private: everything about them may be printed. :func:`check_sensitivity` looks at the noise itself, where one run is one
Gaussian mechanism. Passing shows no privacy; failing shows that there is none, or that a run cannot be resumed.
"""

from __future__ import annotations

import math
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from dptune._generators import Globals, kept
from dptune.accounting import Cost, DpSgd, Gaussian, cost_from_json
from dptune.data import Dataset, size, take
from dptune.executors.models import dumps, open_model, pack_model
from dptune.judging import correct, is_module, judges_each_record_alone
from dptune.trainer import (
    DeclaresBatch,
    DeclaresGenerator,
    DeclaresRecords,
    DeclaresTransfer,
    Params,
    SupportsCheck,
    SupportsShapes,
    SupportsStacking,
    SupportsWarmStart,
    Trainer,
)
from dptune.trainer import check_trainer as check_methods
from dptune.training import TrainedModel

__all__ = ["check_judging", "check_sensitivity", "check_trainer", "weights_of"]

DataT = TypeVar("DataT")
Floats = NDArray[np.float64]

_FALSE_ALARM = 1e-9


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
        AssertionError: the same generator must give the same model: draw from 'rng' alone
    """
    check_methods(trainer)
    assert candidates, "give at least one configuration"
    copied: Trainer[DataT, object] = pickle.loads(dumps(trainer))  # as a worker process gets it
    for params in candidates:
        _check_cost(trainer, copied, params)
        _check_run(trainer, copied, params, data, draws)
        _check_total(trainer, params, data, [*_parts(data), *_odd(data), *odd])
        _check_check(trainer, params, data)
        _check_warm_start(trainer, params, data)
    _check_stacking(trainer, candidates, data, tolerance)
    _check_declared(trainer, copied)


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _packed(outcome: object) -> tuple[bytes, float]:
    """The model as bytes and the score, of what a run returned."""
    assert isinstance(outcome, tuple), f"a run returns (model, score); got {type(outcome).__name__}"
    assert len(outcome) == 2, f"a run returns (model, score); got {len(outcome)} values"
    score = float(outcome[1])
    content = pack_model(outcome[0], pickle=True)
    open_model(content, pickle=True)
    return content, score


def _check_cost(trainer: Trainer[DataT, object], copied: Trainer[DataT, object], params: Params) -> None:
    given = dict(params)
    cost = trainer.cost(given)
    assert isinstance(cost, Cost), f"cost(params) returns a cost such as Gaussian(...); got {cost!r}"
    assert given == params, "cost(params) must not change the parameters"
    assert trainer.cost(dict(params)) == cost, "cost(params) must give the same cost every time"
    assert copied.cost(dict(params)) == cost, "a worker's copy of the trainer must declare the same cost"
    assert cost_from_json(cost.to_json()) == cost, "the cost must survive JSON, since plans are stored"


def _check_run(
    trainer: Trainer[DataT, object], copied: Trainer[DataT, object], params: Params, data: DataT, draws: bool
) -> None:
    cost, given, records = trainer.cost(dict(params)), dict(params), dumps(data)
    first = _fitted(trainer, given, data, 1)
    assert given == params, "fit must not change the parameters"
    assert dumps(data) == records, "fit must not change the records"
    assert trainer.cost(dict(params)) == cost, "the cost must not follow the records: it changed after a run"
    other = _fitted(trainer, given, data, 2)
    _fitted(trainer, given, take(data, np.arange(max(1, size(data) // 2))), 3)
    again = _fitted(trainer, given, data, 1, world=2)
    assert again[0] == first[0], "the same generator must give the same model: draw from 'rng' alone"
    assert _same_score(again, first), "the same generator must give the same score: draw from 'rng' alone"
    assert _fitted(copied, given, data, 1)[0] == first[0], "a worker's copy of the trainer must give the same model"
    assert not draws or other[0] != first[0], "other generators must give other noise: the model is always the same"


def _fitted(
    trainer: Trainer[DataT, object], params: Params, data: DataT, seed: int, world: int = 1
) -> tuple[bytes, float]:
    """One run among global generators of its own, which it must leave as they are."""
    with kept():
        before = Globals.seeded(world)
        found = _packed(trainer.fit(params, data, _rng(seed)))
        assert _same_globals(before), "fit must not use or seed global generators (random, numpy.random, torch)"
    return found


def _same_globals(before: Globals) -> bool:
    if random.getstate() != before.python:
        return False
    now = Globals.now()
    if dumps(now.numpy) != dumps(before.numpy):
        return False
    if before.torch is None or now.torch is None:
        return True
    return bool((now.torch[0] == before.torch[0]).all()) and now.torch[1:] == before.torch[1:]


def _same_score(one: tuple[bytes, float], other: tuple[bytes, float]) -> bool:
    return one[1] == other[1] or (math.isnan(one[1]) and math.isnan(other[1]))


def _parts(data: DataT) -> Iterator[DataT]:
    """No record, one record, and all but one at the front, in the middle and at the end."""
    count = size(data)
    for places in ([], [0], *([i for i in range(count) if i != gone] for gone in (0, count // 2, count - 1))):
        yield take(data, np.array(places, dtype=np.int64))


def _odd(data: DataT) -> Iterator[DataT]:
    """Data sets with a record that is invalid, or as large as it may be; private records are repaired, not refused."""
    if not isinstance(data, Dataset) or not len(data):
        return
    for value in (math.nan, math.inf, -math.inf, data.feature_range[1], 0.0):
        x = data.x.copy()
        x[0] = value
        yield replace(data, x=x, public=False)
    for label in (-1, data.classes, 2**40):
        y = data.y.copy()
        y[-1] = label
        yield replace(data, y=y, public=False)


def _check_total(trainer: Trainer[DataT, object], params: Params, usual: DataT, worlds: Sequence[DataT]) -> None:
    diverges = not _finite(trainer.fit(dict(params), usual, _rng(4))[0])
    for data in worlds:
        try:
            model = trainer.fit(dict(params), data, _rng(4))[0]
        except Exception as error:
            raise AssertionError(
                f"fit must never refuse records, since a failure shows them: {type(error).__name__} on {size(data)} "
                "records (none, one, or some that are odd)"
            ) from error
        assert diverges or _finite(model), "one odd record must not make the model NaN or infinite: repair it"


def _finite(model: object) -> bool:
    numbers = weights_of(model)
    return numbers is None or bool(np.isfinite(numbers).all())


def _check_check(trainer: Trainer[DataT, object], params: Params, data: DataT) -> None:
    if not isinstance(trainer, SupportsCheck):
        return
    said = {_complaint(trainer, params, part) for part in (data, *_parts(data), *_odd(data))}
    assert len(said) == 1, f"check must not depend on records or their number; it said {sorted(said)}"
    assert said == {""}, f"check refuses parameters that fit trains with: {said.pop()}"


def _complaint(trainer: SupportsCheck[DataT], params: Params, data: DataT) -> str:
    try:
        trainer.check(dict(params), data)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _check_warm_start(trainer: Trainer[DataT, object], params: Params, data: DataT) -> None:
    if not isinstance(trainer, SupportsWarmStart):
        return
    start = trainer.fit(dict(params), data, _rng(5))[0]
    content = pack_model(start, pickle=True)
    found = [_packed(trainer.fit_from(dict(params), data, _rng(6), open_model(content, pickle=True))) for _ in range(2)]
    assert found[0][0] == found[1][0], "the same generator and start must give the same model"
    trainer.fit_from(dict(params), data, _rng(6), start)
    assert pack_model(start, pickle=True) == content, "fit_from must not change the model that it starts from"
    for part in _parts(data):
        trainer.fit_from(dict(params), part, _rng(6), start)


def _check_stacking(
    trainer: Trainer[DataT, object], candidates: Sequence[Params], data: DataT, tolerance: float
) -> None:
    if isinstance(trainer, SupportsShapes):
        for params in candidates:
            shape = trainer.shape(dict(params))
            assert hash(shape) == hash(trainer.shape(dict(params))), "shape(params) must be the same every time"
    if not isinstance(trainer, SupportsStacking):
        return
    several = [dict(params) for params in candidates for _ in range(2)]
    alone = [trainer.fit(dict(one), data, _rng(seed)) for seed, one in enumerate(several)]
    for order in (list(range(len(several))), list(range(len(several)))[::-1], [0]):
        stack = list(trainer.fit_many([several[i] for i in order], data, [_rng(i) for i in order]))
        assert len(stack) == len(order), f"fit_many returns one result for each of {len(order)}; got {len(stack)}"
        for place, (model, score) in zip(order, stack, strict=True):
            same = _close(model, alone[place][0], tolerance) and math.isclose(
                score, alone[place][1], rel_tol=tolerance, abs_tol=0.05
            )  # by rounding, a validation record or two may fall on the other side
            assert same, f"fit_many must give candidate {place} what fit gives it alone, whoever is beside it"


def _close(one: object, other: object, tolerance: float) -> bool:
    a, b = weights_of(one), weights_of(other)
    if a is None or b is None:
        return pack_model(one, pickle=True) == pack_model(other, pickle=True)
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=0.0, atol=tolerance * max(1.0, float(np.abs(b).max()))))


def weights_of(model: Any) -> Floats | None:
    """The numbers of a model as one vector: of arrays, of torch modules, of DP-SGD's models; None of others.

    Args:
        model: what a run returned.

    Example:
        >>> weights_of({"a": np.ones((1, 2)), "b": np.zeros(1)})
        array([1., 1., 0.])
    """
    if is_module(model):
        torch = sys.modules["torch"]
        return np.asarray(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy(), dtype=np.float64)
    if isinstance(model, dict) and model and all(isinstance(value, np.ndarray) for value in model.values()):
        return np.concatenate([np.ravel(value) for value in model.values()]).astype(np.float64)
    if isinstance(model, float | np.ndarray | np.floating):
        return np.ravel(np.asarray(model, dtype=np.float64))
    return model.parameters.astype(np.float64) if isinstance(model, TrainedModel) else None


def _check_declared(trainer: Trainer[DataT, object], copied: Trainer[DataT, object]) -> None:
    facts = _facts(trainer)
    assert facts == _facts(copied), "a worker's copy of the trainer must declare the same facts"
    records, batch = facts.get("records"), facts.get("batch", 1.0)
    assert records is None or (isinstance(records, int) and records >= 1), f"'declared_records' is {records!r}"
    assert isinstance(batch, int | float), f"'declared_batch' is {batch!r}"
    assert 0.0 < batch < math.inf, f"'declared_batch' is {batch!r}"
    assert facts.get("transfer", "none") in ("sgd", "none"), f"'transfer_rule' is {facts['transfer']!r}"
    assert isinstance(facts.get("generator", ""), str), f"'noise_generator' is {facts['generator']!r}"


def _facts(trainer: object) -> dict[str, object]:
    facts: dict[str, object] = {}
    if isinstance(trainer, DeclaresRecords):
        facts["records"] = trainer.declared_records
    if isinstance(trainer, DeclaresBatch):
        facts["batch"] = trainer.declared_batch
    if isinstance(trainer, DeclaresTransfer):
        facts["transfer"] = trainer.transfer_rule
    if isinstance(trainer, DeclaresGenerator):
        facts["generator"] = trainer.noise_generator
    return facts


def check_judging(model: object, data: Any) -> None:
    """Raise AssertionError if a model breaks its promise to judge each record alone (``judges_each_record_alone``).

    Args:
        model: a trained model; one that promises nothing is judged one record at a time and passes.
        data: records that anybody may see.
    """
    if not judges_each_record_alone(model):
        return
    count = size(data)
    alone = [correct(model, take(data, np.array([place]))) for place in range(count)]
    for places in (list(range(count)), list(range(count))[::-1], list(range(1, count))):
        together = correct(model, take(data, np.array(places, dtype=np.int64)))
        assert together == sum(alone[i] for i in places), "a record is judged otherwise in company than alone"


def check_sensitivity(
    trainer: Trainer[DataT, Any],
    data: DataT,
    params: Params,
    *,
    weights: Callable[[Any], Floats | None] = weights_of,
    replaced: bool = False,
    seeds: int = 64,
) -> float:
    """Raise AssertionError if one record moves a model by more than its declared noise covers.

    For trainers whose one run, with these parameters, is one Gaussian mechanism: their cost is ``Gaussian(s)``, or
    ``DpSgd(1, s, 1)``, and the model's numbers are its output, each with noise of the same deviation (begin from
    weights that are not random). Runs with the same generators on neighbouring data then differ by the record alone,
    by at most 1/s of the deviation, which is measured. The chance of a false alarm is below one in a million.

    Args:
        trainer: what is tested.
        data: records that anybody may see, some of them as large as records may be.
        params: the configuration.
        weights: the numbers of a model.
        replaced: whether the neighbour has a record replaced, by a copy of another, instead of removed: right for
            trainers whose draws from a generator follow the number of records. A record then moves it twice as far.
        seeds: how many runs measure the deviation.

    Returns:
        The largest movement in units of what is declared, at most about 1.

    Raises:
        AssertionError: it is more than 1, or the declared cost is another one.

    Example:
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=dpt.Gaussian(2.0))
        ... def unclipped(params, data, rng):
        ...     return data.sum(axis=0) + 2.0 * rng.normal(size=50), 0.0
        >>> check_sensitivity(unclipped, np.eye(50), {}) < 1.05
        True
        >>> check_sensitivity(unclipped, 2.0 * np.eye(50), {})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        AssertionError: one record moves the model by ... of what the declared noise covers; clip it
    """
    noise = _single_noise(trainer.cost(dict(params)))
    full = np.stack([_numbers(trainer, params, data, seed, weights) for seed in range(seeds)])
    freedom = (seeds - 1) * full.shape[1]
    deviation = math.sqrt(float(full.var(axis=0, ddof=1).sum() / full.shape[1]))
    assert deviation > 1e-9 * float(np.abs(full).max()), (
        "the declared noise is not there: runs with different generators agree"
    )
    most = deviation * math.sqrt(freedom / float(chi2.ppf(_FALSE_ALARM, freedom)))
    units = (2.0 if replaced else 1.0) / noise
    moved = 0.0
    for neighbour in _neighbours(data, replaced):
        shifts = [
            float(np.linalg.norm(_numbers(trainer, params, neighbour, seed, weights) - full[seed])) for seed in (0, 1)
        ]
        moved = max(moved, *shifts)
    assert moved <= units * most * (1 + 1e-6), (
        f"one record moves the model by {moved / (units * deviation):.3g} of what the declared noise covers; clip it"
    )
    return moved / (units * deviation)


def _single_noise(cost: Cost) -> float:
    once = isinstance(cost, DpSgd) and cost.sampling_rate == 1.0 and cost.steps == 1
    assert once or isinstance(cost, Gaussian), f"sensitivity is tested for Gaussian(s) or DpSgd(1, s, 1); got {cost!r}"
    assert isinstance(cost, DpSgd | Gaussian)
    return float(cost.noise_multiplier)


def _numbers(
    trainer: Trainer[DataT, Any], params: Params, data: DataT, seed: int, weights: Callable[[Any], Floats | None]
) -> Floats:
    found = weights(trainer.fit(dict(params), data, _rng(seed))[0])
    assert found is not None, "the numbers of this model are not known; say how to get them with 'weights'"
    return found


def _neighbours(data: DataT, replaced: bool) -> Iterator[DataT]:
    count = size(data)
    for place in sorted({0, count // 2, count - 1}):
        places = [i for i in range(count) if i != place]
        if replaced:
            places = [places[0] if i == place else i for i in range(count)]
        yield take(data, np.array(places, dtype=np.int64))
