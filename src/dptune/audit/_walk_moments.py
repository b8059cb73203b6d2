"""The walk over whitening: one record more moves the second moments by at most what is paid, and no other record.

Rows and their types are those of the other walks; units of several rows are among them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptune.audit.supported import COMPANIES, POSITIONS, TYPES, Worlds, worlds
from dptune.audit.walk import Case, Deck, Movement
from dptune.data import Dataset
from dptune.training.lens import CentredLens, Lens
from dptune.training.moments import second_moments
from dptune.training.whitening import through
from dptune.units import UnitDataset

__all__ = ["case"]

_FEATURES = {"1": 1, "2": 2, "7": 7, "40": 40}
_RADII = {"short": 0.1, "one": 1.0, "long": 50.0}
_LENGTHS = {"whole": 1.0, "shortened": 0.93}


def _as_units(data: Dataset, own: int | None) -> UnitDataset:
    """Two rows a unit; the record that joins is one of its own."""
    others = iter(range(len(data)))
    keys = ["own" if place == own else f"unit {next(others) // 2}" for place in range(len(data))]
    return UnitDataset(data, keys, unit_rows=2)


def _seen(data: Dataset | UnitDataset, lens: Lens | CentredLens) -> np.ndarray:
    shown = through(data, lens)
    return (shown.rows if isinstance(shown, UnitDataset) else shown).x


def case(deck: Deck) -> Case:
    """Second moments of rows and of units, and records through a lens."""
    features = deck.deal("features", _FEATURES)
    company = deck.deal("company", COMPANIES)(deck.rng, features)
    position = deck.deal("position", POSITIONS)(len(company.y))
    given = worlds(company, 2, position, deck.deal("type", TYPES))
    radius, length = deck.deal("radius", _RADII), deck.deal("length", _LENGTHS)
    units = deck.deal("records", {"rows": False, "units": True})
    centred = deck.deal("lens", {"of a few directions": False, "centred": True})
    drawn = np.linalg.qr(deck.rng.normal(size=(features, features)))[0]
    few = np.ascontiguousarray(drawn[:, : (features + 1) // 2], np.float32)
    lens: Lens | CentredLens = Lens(few, np.full(few.shape[1], 0.7, np.float32))
    if centred:
        lens = CentredLens(drawn[0].astype(np.float32), np.ascontiguousarray(3.0 * drawn, np.float32))
    return Case("moments", deck.describe(), lambda: _look(given, radius, length, units, lens))


def _look(given: Worlds, radius: float, length: float, units: bool, lens: Lens | CentredLens) -> Sequence[Movement]:
    constant = isinstance(lens, CentredLens)
    without = _as_units(given.without, None) if units else given.without
    having = _as_units(given.having, given.place) if units else given.having
    try:
        sums = [second_moments(data, radius, length, constant=constant) for data in (without, having)]
        others, all_of_them = _seen(given.without, lens), _seen(given.having, lens)
    except Exception as error:  # whatever it ends with
        return [Movement(f"failure on records ({type(error).__name__}: {error})", 1.0, 0.0)]
    same = np.array_equal(np.delete(all_of_them, given.place, axis=0), others)
    return [
        Movement("second moments", float(np.linalg.norm(sums[1] - sums[0])), length),
        Movement("other records through a lens", float(not same), 0.0),
    ]
