"""The walk over records that come in, valid or not: nothing that is said may depend on one of them.

A private record that is invalid is repaired on its own by a public rule. So a data set is made with it as without it,
the others are the same to the last bit, and so are the words of any refusal and warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from dptune._typing import AnyArray
from dptune.audit.supported import COMPANIES, POSITIONS
from dptune.audit.walk import Case, Deck, Movement
from dptune.training import Dataset

__all__ = ["FEATURES", "LABELS", "case"]


_CLASSES = 3

FEATURES: dict[str, Callable[[AnyArray], AnyArray]] = {
    "as it is": lambda record: record,
    "missing": lambda record: np.full_like(record, np.nan),
    "partly missing": lambda record: np.where(np.arange(len(record)) % 2, np.nan, record),
    "signalling": lambda record: np.frombuffer(np.uint64(0xFFF4DEADBEEF0001).tobytes()).repeat(len(record)),
    "infinite": lambda record: np.full_like(record, np.inf),
    "negative infinity": lambda record: np.full_like(record, -np.inf),
    "largest": lambda record: np.full_like(record, np.finfo(np.float64).max),
}

LABELS: dict[str, float] = {
    "valid": 1.0,
    "next": float(_CLASSES),
    "negative": -1.0,
    "far": 1e18,
    "beyond": 1e300,
    "fraction": 0.5,
    "missing": float("nan"),
    "infinite": float("-inf"),
}

_FEATURE_TYPES = {kind.__name__: kind for kind in (np.float64, np.float32, np.float16, np.longdouble)}
_LABEL_TYPES = {kind.__name__: kind for kind in (np.float64, np.float32, np.float16, np.int64, np.uint64, np.int8)}


def _made(x: AnyArray, y: AnyArray) -> tuple[Dataset | None, list[str]]:
    """The data set, if there is one, and everything that was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            data = Dataset(x, y, _CLASSES)
        except Exception as error:  # whatever it is refused with
            return None, [f"{type(error).__name__}: {error}"]
        shown = f"{data!r}" if len(repr(data)) < 10**4 else ""
    return data, [str(one.message) for one in caught] + [shown]


def case(deck: Deck) -> Case:
    """One record among others, at the making of a data set."""
    company = deck.deal("company", COMPANIES)(deck.rng, 4)
    place = deck.deal("position", POSITIONS)(len(company.y))
    kinds = deck.deal("features in", _FEATURE_TYPES), deck.deal("labels in", _LABEL_TYPES)
    record, label = deck.deal("features", FEATURES)(company.record), deck.deal("label", LABELS)
    valid = company.x.clip(-1.0, 1.0), company.y % _CLASSES

    def look() -> Sequence[Movement]:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, own = (values.astype(kinds[0]) for values in (valid[0], record))
            y, tag = (np.asarray(values, dtype=np.float64).astype(kinds[1]) for values in (valid[1], label))
        without, said = _made(x, y)
        having, told = _made(np.insert(x, place, own, axis=0), np.insert(y, place, tag))
        found = [
            Movement(
                f"refusal ({(told if having is None else said)[0]})", float((without is None) != (having is None)), 0.0
            ),
            Movement(f"words ({'; '.join(told)})", float(said != told), 0.0),
        ]
        if without is not None and having is not None:
            others = np.delete(np.arange(len(having)), place)
            same = [np.array_equal(getattr(without, name), getattr(having, name)[others]) for name in ("x", "y")]
            found.append(Movement("other records", float(not all(same)), 0.0))
        return found

    return Case("records", deck.describe(), look)
