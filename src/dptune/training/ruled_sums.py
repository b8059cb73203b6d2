"""Sums of gradients whose shares follow a clipping rule other than the usual one, for every engine.

Most engines clip to a norm and know no other rule. One that computes a rule's formula itself (:class:`ClipsByFormula`)
is asked to; one that can weigh records by their norms (:class:`WeighsRecords`) is given the rule's factors; any other
is asked for the gradients of single records, which is slow, and they are scaled here. Either way one record moves a
sum, tail coordinate included, by at most the clip norm (``docs/theorems/clipping.md``). What a rule learns is the last
parameter of a run, so it changes by post-processing of noised sums alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dptune._typing import Array, Floats, Indices
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training._engine import CLIP_NORMS, Engine, SumsOnLattice
from dptune.training._formula import Formula, formula_of
from dptune.training._layers import on_lines
from dptune.training._shares import add_share
from dptune.training.clipping import Clipping, PerLayer, Quantile
from dptune.training.optimizers import Optimizer, Update
from dptune.training.unit_sums import EXACT_ROW, ROW, UnitSums, row_bound
from dptune.units import UnitDataset

__all__ = ["ClipsByFormula", "Following", "FollowsRule", "KnowsLayers", "RuledSums", "WeighsRecords", "follows_itself"]

_SHORTEST = 1e-250  # of norms that are divided by
_WHOLE = 1.0 + 1e-12  # a squared share in clip norms, with room for rounding
_FURTHEST = math.log(2.0**20)  # how far a clip norm may move from its first value, as a logarithm


@runtime_checkable
class WeighsRecords(Protocol):
    """An engine that sums gradients by weights that are functions of their norms."""

    @property
    def weighs(self) -> bool:
        """Whether it can, in the form that it has here."""

    def weighed_sum(self, flat: Floats, batch: Indices, weigh: Callable[[Floats], Floats], out: Floats) -> None:
        """Write into ``out`` the sum of the gradients of the records of ``batch``, each times its weight.

        ``weigh`` is given the norms of all of them, zero for a record that overflows (its gradient counts as zero).
        """


@runtime_checkable
class ClipsByFormula(Protocol):
    """An engine that clips by a formula itself, in single precision: what a record adds does not depend on its peers,
    down to the last bit."""

    def formula_sum(self, flat: Floats, batch: Indices, formula: Formula, unit: float) -> tuple[Floats, Array]:
        """The sum over a batch of gradients times the formula's factors, and the norm of every gradient.

        With a ``unit`` every share is rounded to multiples of ``1 / unit`` and the sum, exact, counts them. A record
        that overflows adds nothing, and its norm is zero.
        """


@runtime_checkable
class KnowsLayers(Protocol):
    """An engine that knows which parameters belong to one layer."""

    @property
    def layer_places(self) -> Sequence[Indices]:
        """The places of every layer's parameters, each place once."""


def follows_itself(engine: object, rule: Clipping) -> bool:
    """Whether an engine computes a rule's shares by itself, be it in single precision."""
    return isinstance(engine, ClipsByFormula) and formula_of(rule, 1.0, 1.0) is not None


@runtime_checkable
class FollowsRule(Protocol):
    """An engine whose shares follow a clipping rule already."""

    rule: Clipping

    def dressed(self, flat: Floats) -> Floats:
        """A model's parameters as this engine has them: with what the rule has learnt, which is nothing."""


class RuledSums(UnitSums):
    """An engine whose shares follow a clipping rule; its records are rows, or units of several rows.

    Args:
        engine: What computes sums over rows: in double precision, or by the rule's formula.
        rule: The clipping rule.

    Raises:
        InvalidInput: If the engine computes in single precision and knows no formula, or does not know its layers where
            the rule is about them.

    Example:
        >>> import numpy as np
        >>> from dptune import Dataset
        >>> from dptune.training import Automatic, engine_for, softmax
        >>> from dptune.training.ruled_sums import RuledSums
        >>> engine = RuledSums(engine_for(softmax(1, 2), double=True), Automatic())
        >>> engine.bind(Dataset(np.array([[0.1], [30.0]]), np.array([1, 1]), classes=2))
        >>> out = np.empty((1, 4))
        >>> engine.clipped_sums(np.zeros((1, 4)), [np.array([1])], np.array([1.0]), out)
        >>> bool(0.99 < np.linalg.norm(out) < 1.0)
        True
    """

    def __init__(self, engine: Engine, rule: Clipping) -> None:
        by_itself = follows_itself(engine, rule)
        super().__init__(engine, single=by_itself)
        self.rule = rule
        self._by_formula = engine if by_itself and isinstance(engine, ClipsByFormula) else None
        self._layers: Sequence[Indices] | None = None
        if isinstance(rule, PerLayer) and not isinstance(engine, KnowsLayers):
            raise InvalidInput(
                f"Clipping per layer needs an engine that knows its layers; {type(engine).__name__} does not. Use "
                "engine='auto', or clipping='flat'."
            )
        self.dimension = engine.dimension + rule.tails
        self._inner = engine.dimension
        self._together = self._units = False

    def start(self, key: Randomness) -> Floats:
        """Initial parameters as one flat vector, and what the rule has learnt: nothing."""
        return self.dressed(self.engine.start(key))

    def dressed(self, flat: Floats) -> Floats:
        """A model's parameters as this engine has them."""
        return np.append(flat, np.zeros(self.rule.tails, flat.dtype))

    def bind(self, data: Dataset | UnitDataset) -> None:
        """Take the records that later calls refer to by index."""
        self._together = False
        if isinstance(data, UnitDataset):
            super().bind(data)
        else:
            self.engine.bind(data)
        if isinstance(self.rule, PerLayer) and isinstance(self.engine, KnowsLayers):
            self._layers = self.engine.layer_places
        if not isinstance(data, UnitDataset):
            self._starts = np.arange(len(data) + 1)
            self._take_at_once(data.features)
            weighs = isinstance(self.engine, WeighsRecords) and self.engine.weighs
            self._together = self.rule.steady and weighs and self._layers is None
        self._units = isinstance(data, UnitDataset)
        if not self.rule.steady:  # a record's last bits must not depend on its company
            self._at_once = 1

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``."""
        return self.engine.logits(parameters[: self._inner], x)

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of shares of norm at most ``clips[s]``."""
        for known, batch, clip, total in zip(parameters, batches, clips.tolist(), out, strict=True):
            flat, level = known[: self._inner], self._level(known, clip)
            if self._by_formula is not None and not self._units:
                total[:] = self._formula_sum(self._by_formula, known, batch, clip, 0.0)
                continue
            total.fill(0.0)
            if self._together and len(batch):
                self._weighed(flat, batch, clip, level, total)
                continue
            for some in self._parts(batch):
                same, rows, bounds, found = self._asked(flat, some, row_bound(max(clip, level, 1.0), ROW))
                self.engine.clipped_sums(same, rows, bounds, found)
                for gradient in found:
                    np.add(total, self._share(gradient, clip, level), out=total)

    def _weighed(self, flat: Floats, batch: Indices, clip: float, level: float, total: Floats) -> None:
        """The sum of all shares at once, by an engine that weighs records."""
        assert isinstance(self.engine, WeighsRecords)
        tails: list[float] = []

        def weigh(norms: Floats) -> Floats:
            factors, tail = _enforced(self.rule, norms, clip, level)
            tails.append(float(tail.sum()))
            return factors

        self.engine.weighed_sum(flat, batch, weigh, total[: self._inner])
        total[self._inner :] = math.fsum(tails)

    def _formula_sum(self, engine: ClipsByFormula, known: Floats, batch: Indices, clip: float, lattice: float) -> Array:
        """The sum of all shares by an engine that computes the formula; in lattice steps if that is not zero."""
        level, total = self._level(known, clip), np.zeros(self.dimension)
        formula = formula_of(self.rule, clip, level)
        assert formula is not None  # asked for when the engine was taken
        unit = 1.0 / lattice if lattice else 0.0
        total[: self._inner], norms = engine.formula_sum(known[: self._inner], batch, formula, unit)
        if self.rule.tails:
            _, tails = _enforced(self.rule, norms, clip, level)
            total[self._inner :] = np.rint(tails * unit).sum() if unit else math.fsum(tails)
        return total

    def _steps(self, engine: SumsOnLattice, known: Floats, clip: float, lattice: float, batch: Indices) -> Array:
        """The sum of the shares of these records in lattice steps."""
        if self._by_formula is not None and not self._units:
            return self._formula_sum(self._by_formula, known, batch, clip, lattice)
        flat, level = known[: self._inner], self._level(known, clip)
        steps, own = np.zeros(self.dimension), on_lines((self.dimension,), np.float64)
        for some in self._parts(batch):
            same, rows, bounds, found = self._asked(flat, some, row_bound(max(clip, level, 1.0), EXACT_ROW))
            if not engine.lattice_sums(same, rows, bounds, [0.0] * len(rows), found):
                raise InvalidInput("The engine has no exact sums here; train without secure noise.")
            for gradient in found:
                own[:] = self._share(gradient, clip, level)
                add_share(steps, own, clip, lattice)
        return steps

    def _asked(self, flat: Floats, units: Indices, bound: float) -> tuple[Floats, list[Indices], Floats, Floats]:
        same, rows, bounds, _ = super()._asked(flat, units, bound)
        return same, rows, bounds, np.empty((len(rows), self._inner))

    def _share(self, gradient: Floats, clip: float, level: float) -> Array:
        """One record's share; a gradient that is not finite counts as zero."""
        if self._layers is None:
            return self._whole_share(gradient, clip, level)
        if not np.isfinite(gradient).all():
            return np.zeros(self.dimension)
        share, most = np.empty(self.dimension), clip / math.sqrt(len(self._layers))
        for places in self._layers:
            share[places] = self._whole_share(gradient[places], most, most)
        return share

    def _whole_share(self, gradient: Floats, clip: float, level: float) -> Array:
        """The share of a gradient, or of a layer's part of it."""
        share, scaled, size, length = np.zeros(len(gradient) + self.rule.tails), gradient, 1.0, 0.0
        top = float(np.max(np.abs(gradient), initial=0.0))
        if 0.0 < top < math.inf:
            exponent = math.frexp(top)[1]  # brought to size one before it is squared: no square overflows or vanishes
            scaled = np.ldexp(gradient, -exponent)
            size = math.sqrt(float(scaled @ scaled))
            length = math.ldexp(size, exponent)
        factors, tail = _enforced(self.rule, np.array([length]), clip, level)
        if length > 0.0:
            share[: len(gradient)] = scaled * (min(float(factors[0]) * length, clip) / size)
        share[len(gradient) :] = tail[: self.rule.tails]
        return share

    def _level(self, known: Floats, clip: float) -> float:
        """The clip norm of this step: the first one, or what the rule has learnt since."""
        if not self.rule.tails:
            return clip
        least, most = CLIP_NORMS
        return min(max(clip * math.exp(float(known[-1])), least), most)


def _enforced(rule: Clipping, norms: Floats, clip: float, level: float) -> tuple[Floats, Floats]:
    """A rule's factors and tails, cut where a share would be longer than the clip norm, whatever the rule says."""
    most = clip / np.maximum(norms, _SHORTEST)
    factors = np.clip(np.nan_to_num(rule.factors(norms, clip, level)), -most, most)
    left = clip * np.sqrt(np.maximum(_WHOLE - np.square(factors * norms / clip), 0.0))
    return factors, np.clip(np.nan_to_num(rule.tail(norms, clip, level)), -left, left)


@dataclass(frozen=True)
class Following:
    """An optimiser whose clip norm follows a quantile: post-processing of the noised sum and count.

    Args:
        inner: What is done with the noised gradients.
        rule: The clipping rule.
        clips: The first clip norm of each candidate.
    """

    inner: Optimizer
    rule: Quantile
    clips: tuple[float, ...]

    def start(self, like: Floats) -> Update:
        """A function ``update(parameters, gradient, learning_rate)`` with fresh state, for arrays like ``like``."""
        rule, update = self.rule, self.inner.start(like[:, :-1])
        whole = rule.counted * np.array(self.clips)

        def follow(parameters: Floats, gradient: Floats, rate: Floats) -> None:
            below = 0.5 * (gradient[:, -1] / whole + 1.0)
            gradient[:, :-1] *= (np.exp(parameters[:, -1]) / rule.kept)[:, None]  # to the clip norm of this step
            update(parameters[:, :-1], gradient[:, :-1], rate)
            moved = parameters[:, -1] - rule.rate * (below - rule.quantile)
            parameters[:, -1] = np.clip(moved, -_FURTHEST, _FURTHEST)

        return follow
