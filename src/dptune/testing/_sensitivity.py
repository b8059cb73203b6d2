"""How far one record moves a trained model, in units of the noise that its cost declares.

For trainers whose one run is one Gaussian mechanism; part of :mod:`dptune.testing.trainers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from scipy.stats import chi2

from dptune._typing import Array
from dptune.accounting import Cost, DpSgd, Gaussian
from dptune.data import size, take
from dptune.testing._runs import rng
from dptune.testing._weights import weights_of
from dptune.trainer import Params, Trainer

__all__ = ["check_sensitivity"]

DataT = TypeVar("DataT")

_FALSE_ALARM = 1e-9


def check_sensitivity(
    trainer: Trainer[DataT, Any],
    data: DataT,
    params: Params,
    *,
    weights: Callable[[Any], Array | None] = weights_of,
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
        AssertionError: One record moves the model by ... of what the declared noise covers; clip it.
    """
    noise = _single_noise(trainer.cost(dict(params)))
    full = np.stack([_numbers(trainer, params, data, seed, weights) for seed in range(seeds)])
    freedom = (seeds - 1) * full.shape[1]
    deviation = math.sqrt(float(full.var(axis=0, ddof=1).sum() / full.shape[1]))
    noisy = deviation > 1e-9 * float(np.abs(full).max())
    assert noisy, "The declared noise is not there: runs with different generators agree."
    most = deviation * math.sqrt(freedom / float(chi2.ppf(_FALSE_ALARM, freedom)))
    units = (2.0 if replaced else 1.0) / noise
    moved = max(
        float(np.linalg.norm(_numbers(trainer, params, neighbour, seed, weights) - full[seed]))
        for neighbour in _neighbours(data, replaced)
        for seed in (0, 1)
    )
    assert moved <= units * most * (1 + 1e-6), (
        f"One record moves the model by {moved / (units * deviation):.3g} of what the declared noise covers; clip it."
    )
    return moved / (units * deviation)


def _single_noise(cost: Cost) -> float:
    """The noise multiplier of a cost that is one Gaussian mechanism."""
    once = isinstance(cost, DpSgd) and cost.sampling_rate == 1.0 and cost.steps == 1
    assert once or isinstance(cost, Gaussian), f"Sensitivity is tested for Gaussian(s) or DpSgd(1, s, 1); got {cost!r}."
    assert isinstance(cost, DpSgd | Gaussian)
    return float(cost.noise_multiplier)


def _numbers(
    trainer: Trainer[DataT, Any], params: Params, data: DataT, seed: int, weights: Callable[[Any], Array | None]
) -> Array:
    """The numbers of the model of one run."""
    found = weights(trainer.fit(dict(params), data, rng(seed))[0])
    assert found is not None, "The numbers of this model are not known; say how to get them with 'weights'."
    return found


def _neighbours(data: DataT, replaced: bool) -> Iterator[DataT]:
    """The data without one record, or with it replaced by a copy of another: at the front, middle and end."""
    count = size(data)
    for place in sorted({0, count // 2, count - 1}):
        places = [i for i in range(count) if i != place]
        if replaced:
            places = [places[0] if i == place else i for i in range(count)]
        yield take(data, np.array(places, dtype=np.int64))
