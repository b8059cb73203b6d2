"""dp-accounting's events as costs, so that a trainer of any library can be tuned by what its accountant was told.

An event is taken apart (``docs/theorems/events.md``): compositions become compositions, known mechanisms costs of this
algebra, and events of which only a Renyi curve is known are added up as curves and converted once. An event says
nothing of neighbours; its sensitivities follow from its own definition. What is not known here is refused, never
guessed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dptune._typing import Array
from dptune.accounting.combination import compose
from dptune.accounting.conversions import in_relation, replaced
from dptune.accounting.cost import Cost
from dptune.accounting.curves import RenyiCurve
from dptune.accounting.event_mechanisms import DiscreteLaplace, GaussianMixture, Repeated, TruncatedDpSgd
from dptune.accounting.mechanisms import DpSgd, Gaussian, Laplace, PureDp
from dptune.accounting.neighbours import ADDED_OR_REMOVED, RECORD_REPLACED, Neighbours, check_relation
from dptune.accounting.runs import Geometric, Logarithmic, NegativeBinomial, Poisson, Runs
from dptune.accounting.selection import select
from dptune.accounting.subsets import subsample
from dptune.errors import InvalidInput

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

__all__ = ["from_dp_event"]

# Whole numbers, at which curves of sampled mechanisms are exact bounds, and some below 2.
_ORDERS = (1.25, 1.5, *map(float, range(2, 33)), 40.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0)
_UP = 1.0 + 1e-9


def from_dp_event(event: DpEvent, neighbours: Neighbours = ADDED_OR_REMOVED) -> Cost:
    """The cost of a dp-accounting event: what a trainer of another library declares to its own accountant.

    Args:
        event: a ``dp_accounting.DpEvent``: Gaussian, Laplace and discrete Laplace noise, randomised response, mixtures
            of Gaussians (matrix factorisation), Poisson sampling of any of them, truncated batches, fixed batches
            without replacement, tree aggregation, zCDP, repeat and select, and compositions.
        neighbours: what the cost is to be a guarantee about. Sensitivities follow from it: a sum of vectors of norm C
            changes by C if a record is added or removed, and by 2 C if one is replaced.

    Returns:
        A cost, never below what the event costs.

    Raises:
        InvalidInput: the event is not private, not known, or not defined for these neighbours.

    Example:
        >>> import dp_accounting
        >>> step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
        >>> from_dp_event(dp_accounting.SelfComposedDpEvent(step, 100))
        DpSgd(sampling_rate=0.01, noise_multiplier=1.0, steps=100)
    """
    relation = check_relation(neighbours)
    if relation.single not in (ADDED_OR_REMOVED, RECORD_REPLACED):
        raise InvalidInput(
            f"An event is about records; got neighbours '{relation}'. Use ADDED_OR_REMOVED or RECORD_REPLACED, or a "
            "group of them."
        )
    return in_relation(_Conversion(relation.single).cost(event), relation)


@dataclass(frozen=True)
class _Conversion:
    """Events as costs under one relation."""

    neighbours: Neighbours

    @property
    def _change(self) -> int:
        """By how many clipping norms a sum changes."""
        return 1 if self.neighbours == ADDED_OR_REMOVED else 2

    def cost(self, event: object) -> Cost:
        """The cost of an event: its leaves composed, those with a Renyi curve alone added up first."""
        parts: list[Cost] = [PureDp(0.0, neighbours=self.neighbours)]
        total, curved = np.zeros(len(_ORDERS)), False
        for leaf, count in _counted(event):
            made = self._leaf(leaf, count)
            if isinstance(made, Cost):
                parts.append(made)
            elif made is not None:
                total, curved = total + made, True
        if curved:
            if not np.isfinite(total).all():
                raise _refused(event, "it has no finite Renyi curve")
            parts.append(RenyiCurve(_ORDERS, tuple(float(v) * _UP for v in total), neighbours=self.neighbours))
        return compose(*parts)

    def _leaf(self, event: Any, count: int) -> Cost | Array | None:
        """A mechanism, so many times: a cost, or a Renyi curve, or nothing if it shows nothing."""
        make = _KNOWN.get(str(_name(event)))
        if make is None:
            raise _refused(event, "no cost is known for it")
        return make(self, event, count)

    def _times(self, cost: Cost, count: int) -> Cost:
        return cost if count == 1 else Repeated(cost, count)

    def _only(self, event: object, relation: Neighbours) -> None:
        if self.neighbours != relation:
            raise _refused(event, f"it is defined for '{relation}' only; convert the cost afterwards if you need more")

    def gaussian(self, event: Any, count: int) -> Cost:
        return Gaussian(_spread(event.noise_multiplier / self._change, count), neighbours=self.neighbours)

    def laplace(self, event: Any, count: int) -> Cost:
        return self._times(Laplace(event.noise_multiplier / self._change, neighbours=self.neighbours), count)

    def discrete_laplace(self, event: Any, count: int) -> Cost:
        change = event.sensitivity * self._change
        return self._times(DiscreteLaplace(event.noise_parameter, change, neighbours=self.neighbours), count)

    def response(self, event: Any, count: int) -> Cost | None:
        """Its worst case, two of its buckets, is below randomised response of the same pure epsilon."""
        self._only(event, RECORD_REPLACED)
        noise, buckets = event.noise_parameter, event.num_buckets
        if buckets == 1:
            return None
        if not 0.0 < noise <= 1.0 or buckets < 1:
            raise _refused(event, "it is not private")
        epsilon = math.log1p(buckets * (1.0 - noise) / noise) * (1.0 + 1e-15)
        return self._times(PureDp(epsilon, neighbours=self.neighbours), count)

    def poisson_sampled(self, event: Any, count: int) -> Cost | None:
        rate = event.sampling_probability
        if not 0.0 <= rate <= 1.0:
            raise _refused(event, "its sampling probability is none")
        if rate == 0.0:
            return None
        if self.neighbours == RECORD_REPLACED:  # the theorem is about records added or removed: convert the whole
            whole = _Conversion(ADDED_OR_REMOVED).poisson_sampled(event, count)
            return None if whole is None else replaced(whole)
        if _name(event.event) == "GaussianDpEvent":
            return DpSgd(rate, event.event.noise_multiplier, count)
        return self._times(subsample(self.cost(event.event), rate), count)

    def mixture_of_gaussians(self, event: Any, count: int) -> Cost | None:
        self._only(event, ADDED_OR_REMOVED)
        changes = tuple(float(c) for c in event.sensitivities)
        if not any(c > 0.0 and p > 0.0 for c, p in zip(changes, event.sampling_probs, strict=True)):
            return None
        chances = tuple(float(p) for p in event.sampling_probs)
        return self._times(GaussianMixture(event.standard_deviation, changes, chances), count)

    def truncated(self, event: Any, count: int) -> Cost | None:
        rate, size, noise = event.sampling_probability, event.truncated_batch_size, event.noise_multiplier
        if 0 in (rate, size, event.dataset_size):
            return None
        one = self._times(TruncatedDpSgd(event.dataset_size, rate, size, noise), count)
        return one if self.neighbours == ADDED_OR_REMOVED else replaced(one)

    def tree(self, event: Any, count: int) -> Cost:
        """A record is in one leaf, hence in at most ``depth`` nodes, each a Gaussian mechanism."""
        self._only(event, RECORD_REPLACED)
        steps = event.step_counts if isinstance(event.step_counts, list | tuple) else [event.step_counts]
        if not steps or min(steps) < 1:
            raise _refused(event, "it has no steps")
        depth = max(int(one).bit_length() for one in steps)  # ceil(log2(steps + 1))
        return Gaussian(_spread(event.noise_multiplier / 2.0, depth * count), neighbours=self.neighbours)

    def repeated_selection(self, event: Any, count: int) -> Cost:
        return self._times(select(self.cost(event.event), _law(event.mean, event.shape)), count)

    def zcdp(self, event: Any, count: int) -> Array:
        if not (event.rho >= 0.0 and event.xi >= 0.0):
            raise _refused(event, "its figures are negative")
        return np.asarray(count * (event.xi + event.rho * np.array(_ORDERS)) * _UP)

    def fixed_batches(self, event: Any, count: int) -> Array | None:
        """Wang, Balle and Kasiviswanathan 2019, as dp-accounting has it, at the noise relative to the change 2 C."""
        self._only(event, RECORD_REPLACED)
        if not 0 <= event.sample_size <= event.source_dataset_size:
            raise _refused(event, "its sample is larger than the data")
        if event.sample_size == 0:
            return None
        inner = self.cost(event.event)
        if not isinstance(inner, Gaussian):
            raise _refused(event, "only a Gaussian mechanism on its sample has a Renyi curve")
        from dp_accounting import NeighboringRelation, dp_event  # noqa: PLC0415 - slow import
        from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415 - the same

        accountant = RdpAccountant(list(_ORDERS), NeighboringRelation.REPLACE_ONE)
        noise = dp_event.GaussianDpEvent(inner.noise_multiplier)
        sampled = dp_event.SampledWithoutReplacementDpEvent(event.source_dataset_size, event.sample_size, noise)
        accountant.compose(sampled)
        return np.asarray(count * np.asarray(accountant.rdp, dtype=float) * _UP)


_KNOWN: dict[str, Callable[[_Conversion, Any, int], Cost | Array | None]] = {
    "GaussianDpEvent": _Conversion.gaussian,
    "LaplaceDpEvent": _Conversion.laplace,
    "DiscreteLaplaceDpEvent": _Conversion.discrete_laplace,
    "RandomizedResponseDpEvent": _Conversion.response,
    "PoissonSampledDpEvent": _Conversion.poisson_sampled,
    "MixtureOfGaussiansDpEvent": _Conversion.mixture_of_gaussians,
    "TruncatedSubsampledGaussianDpEvent": _Conversion.truncated,
    "SingleEpochTreeAggregationDpEvent": _Conversion.tree,
    "RepeatAndSelectDpEvent": _Conversion.repeated_selection,
    "ZCDpEvent": _Conversion.zcdp,
    "SampledWithoutReplacementDpEvent": _Conversion.fixed_batches,
}


def _name(event: object) -> str | None:
    """The name of a class of dp-accounting's; other classes, and those derived from them, are not known."""
    kind = type(event)
    return kind.__name__ if kind.__module__ == "dp_accounting.dp_event" else None


def _spread(noise: float, count: int) -> float:
    """The noise of one Gaussian mechanism that costs as much as so many, rounded down."""
    return noise if count == 1 else noise / math.sqrt(count) * (1.0 - 1e-15)


def _refused(event: object, why: str) -> InvalidInput:
    text = f"{event!r}"
    shown = text if len(text) <= 120 else f"{text[:117]}..."
    return InvalidInput(f"The event {shown} cannot be a cost: {why}.")


def _counted(event: Any) -> list[tuple[Any, int]]:
    """The mechanisms that an event composes, each with how often it runs."""
    found: dict[str, tuple[Any, int]] = {}
    for leaf, count in _leaves(event, 1):
        key = json.dumps(repr(leaf))
        found[key] = leaf, found.get(key, (leaf, 0))[1] + count
    return list(found.values())


def _leaves(event: Any, count: int) -> Iterator[tuple[Any, int]]:
    name = _name(event)
    if name in ("NonPrivateDpEvent", "UnsupportedDpEvent") or name is None:
        reason = {"NonPrivateDpEvent": "it is not private", "UnsupportedDpEvent": "nothing is known of it"}
        raise _refused(event, reason.get(str(name), "it is not an event of dp_accounting"))
    if name == "NoOpDpEvent" or count == 0:
        return
    if name == "SelfComposedDpEvent":
        if not isinstance(event.count, int) or event.count < 0:
            raise _refused(event, "its count is not a whole number")
        yield from _leaves(event.event, count * event.count)
    elif name == "ComposedDpEvent":
        for one in event.events:
            yield from _leaves(one, count)
    else:
        yield event, count


def _law(mean: float, shape: float) -> Runs:
    """The law of the number of runs by dp-accounting's two figures."""
    if shape == math.inf:
        return Poisson(mean)
    if shape == 1.0:
        return Geometric(mean)
    return Logarithmic(mean) if shape == 0.0 else NegativeBinomial(shape, mean)
