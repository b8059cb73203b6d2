"""The walk over units of several rows: one unit more moves a clipped sum by at most the clip norm, in every engine.

The unit consists of the company's record and of copies that agree, contradict it or nearly cancel it; the others are
put together in units of one to three rows.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dptune._typing import Array, Floats, Indices
from dptune.audit._walk_sums import engine
from dptune.audit.supported import CLASSES, CLIPS, COMPANIES, ENGINES, MODELS, POSITIONS, Company, dataset
from dptune.audit.walk import Case, Deck, Movement, Unsupported
from dptune.randomness import Randomness
from dptune.training.unit_sums import UnitSums
from dptune.units import UnitDataset

__all__ = ["case"]

_LATTICE = 2.0**-30
_MOST = 4
_OWN: dict[str, Callable[[Floats, int], tuple[Floats, Indices]]] = {
    "one row": lambda x, y: (x[None], np.array([y])),
    "the same rows": lambda x, y: (np.tile(x, (_MOST, 1)), np.full(_MOST, y)),
    "contradicting rows": lambda x, y: (np.tile(x, (2, 1)), np.array([y, y + 1])),
    "rows that nearly cancel": lambda x, y: (np.stack([x, -x * (1 + 1e-6), x]), np.full(3, y)),
}


def _worlds(company: Company, own: tuple[Floats, Indices], classes: int, place: int) -> tuple[UnitDataset, UnitDataset]:
    """Without and with the unit."""
    limit = float(np.finfo(np.float32).max) / 2.0
    keys = np.arange(len(company.y)) % 3  # the others, whose rows lie apart
    made = []
    for x, y, units in (
        (company.x, company.y, keys),
        (
            np.concatenate([company.x[:place], own[0], company.x[place:]]),
            np.concatenate([company.y[:place], own[1], company.y[place:]]),
            np.concatenate([keys[:place], np.full(len(own[1]), 9), keys[place:]]),
        ),
    ):
        rows = dataset(x.clip(-limit, limit), y, classes)
        made.append(UnitDataset(rows, units, _MOST))
    return made[0], made[1]


def _summed(make: Callable[[], Any], data: UnitDataset, clip: float, exact: bool) -> Array | str:
    """The sum over all units, or the words of a refusal."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = UnitSums(make())
            made.bind(data)
            parameters = made.start(Randomness.rehearsal(3))[None].astype(np.float64)
            out, batch, clips = np.zeros((1, made.dimension)), [np.arange(len(data))], np.array([clip])
            if not exact or not made.lattice_sums(parameters, batch, clips, [_LATTICE * clip], out):
                made.clipped_sums(parameters, batch, clips, out)
    except Exception as error:  # whatever an engine says no with
        return f"{type(error).__name__}: {error}"
    return np.asarray(out[0])


def _compare(
    make: Callable[[], Any], given: tuple[UnitDataset, UnitDataset], clip: float, exact: bool
) -> Sequence[Movement]:
    if isinstance(public := _summed(make, given[0].blank(), clip, exact), str):
        raise Unsupported(public)
    without, having = (_summed(make, data, clip, exact) for data in given)
    for one in (without, having):
        if isinstance(one, str):
            return [Movement(f"refusal of units ({one})", 1.0, 0.0)]
    slack = _LATTICE * math.sqrt(len(public)) if exact else 0.0
    moved = float(np.linalg.norm(np.subtract(having, without)))
    return [Movement("sum, in clip norms", moved / clip, 1.0 + slack)]


def case(deck: Deck) -> Case:
    """Models that are described, in every engine, fast and exact."""
    name = deck.deal("engine", ENGINES)
    model = deck.deal("model", MODELS)(deck.deal("classes", CLASSES))
    exact, clip = deck.deal("sums", {"fast": False, "exact": True}), deck.deal("clip", CLIPS)
    company = deck.deal("company", COMPANIES)(deck.rng, model.features)
    own = deck.deal("unit", _OWN)(company.record, company.label)
    place = deck.deal("position", POSITIONS)(len(company.y))
    given = _worlds(company, own, model.classes, place)
    make = functools.partial(engine, model, name, True)
    return Case("units", deck.describe(), functools.partial(_compare, make, given, clip, exact))
