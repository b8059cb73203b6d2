"""The walk over clipping rules: one record more moves the joint sum of gradient and tail by at most the clip norm.

Rows and engines are those of the other walks; the level that a rule has learnt is drawn too, because a record must stay
within the clip norm wherever earlier steps have led.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune.audit._walk_sums import WEIGHTS, engine, parameters_of, public_rows
from dptune.audit.supported import (
    CLASSES,
    CLIP_RULES,
    CLIPS,
    ENGINES,
    MODELS,
    POSITIONS,
    SUMMED,
    Worlds,
    worlds,
)
from dptune.audit.walk import Case, Deck, Movement, Unsupported
from dptune.data import Dataset
from dptune.randomness import Randomness
from dptune.training.clipping import Clipping
from dptune.training.ruled_sums import RuledSums, follows_itself

__all__ = ["case"]

_LEVELS = {"first": 0.0, "lower": -2.0, "higher": 1.5}
_LATTICE = 2.0**-30


def _summed(
    make: Callable[[], Any], rule: Clipping, weights: float, data: Dataset, clip: float, learnt: float, exact: bool
) -> Any:
    """The joint sum over all records, or the words of a refusal."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = RuledSums(make(), rule)
            made.bind(data)
            parameters = made.start(Randomness.rehearsal(3))[None].astype(np.float64)
            parameters[0, : made.engine.dimension] = parameters_of(made.engine, weights)
            parameters[0, made.engine.dimension :] = learnt
            out, batch, clips = np.zeros((1, made.dimension)), [np.arange(len(data))], np.array([clip])
            if not exact or not made.lattice_sums(parameters, batch, clips, [_LATTICE * clip], out):
                made.clipped_sums(parameters, batch, clips, out)
    except Exception as error:  # whatever an engine says no with
        return f"{type(error).__name__}: {error}"
    return out[0]


def _compare(summed: Callable[[Dataset], Array | str], given: Worlds, clip: float, exact: bool) -> Sequence[Movement]:
    public = summed(public_rows(given.having.x.shape[1], given.having.classes))
    if isinstance(public, str):
        raise Unsupported(public)
    without, having = summed(given.without), summed(given.having)
    for one in (without, having):
        if isinstance(one, str):
            return [Movement(f"refusal of records ({one})", 1.0, 0.0)]
    slack = _LATTICE * len(public) ** 0.5 if exact else 0.0
    moved = float(np.linalg.norm(np.subtract(having, without)))
    return [Movement("joint sum, in clip norms", moved / clip, 1.0 + slack)]


def _engine(model: Any, name: str, exact: bool, rule: Clipping) -> Any:
    """The engine that a run of this rule has: in single precision where it follows the rule by itself."""
    own = engine(model, name, exact, rule)
    return own if exact or follows_itself(own, rule) else engine(model, name, True)


def case(deck: Deck) -> Case:
    """Models that are described, in every engine, by every rule but the usual one, fast and exact."""
    name, rule = deck.deal("engine", ENGINES), deck.deal("clipping", CLIP_RULES)
    model = deck.deal("model", MODELS)(deck.deal("classes", CLASSES))
    exact, clip = deck.deal("sums", {"fast": False, "exact": True}), deck.deal("clip", CLIPS)
    learnt, weights = deck.deal("level", _LEVELS), deck.deal("weights", WEIGHTS)
    company = deck.deal("company", SUMMED)(deck.rng, model.features)
    given = worlds(company, model.classes, deck.deal("position", POSITIONS)(len(company.y)))
    make = functools.partial(_engine, model, name, exact, rule)

    def summed(data: Dataset) -> Array | str:
        found: Array | str = _summed(make, rule, weights, data, clip, learnt, exact)
        return found

    return Case("clipping rules", deck.describe(), lambda: _compare(summed, given, clip, exact))
