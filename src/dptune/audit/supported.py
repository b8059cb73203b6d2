"""What audits of code draw from: everything that is supported, by name, in one place.

Lists that the code itself keeps (optimisers, schedules, layers of torch) are read from it, so that what is added there
is audited without a word here. A record comes in company: the other records decide what it can do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dptune._typing import AnyArray, Floats, Indices
from dptune.regression import RegressionDataset
from dptune.training import optimizers
from dptune.training.benchmark_data import Dataset
from dptune.training.clipping import CLIPPINGS, Automatic, Clipping, Quantile
from dptune.training.dpsgd import CLIP_NORMS
from dptune.training.models import Activation, Cnn, Conv, GlobalMean, MaxPool, Mlp, Regression, dp_hypo_cnn

__all__ = [
    "CLASSES",
    "CLIPS",
    "CLIP_RULES",
    "COMPANIES",
    "ENGINES",
    "MODELS",
    "OPTIMIZERS",
    "POSITIONS",
    "SCHEDULES",
    "SUMMED",
    "TYPES",
    "Company",
    "Worlds",
    "dataset",
    "stored",
    "worlds",
]

Rng = np.random.Generator

ENGINES = MappingProxyType({name: name for name in ("auto", "numpy", "torch", "fused", "network", "interpreted")})
"""Names that ``engine_for`` knows, and the forms without compiled kernels."""

CLIPS = MappingProxyType({f"{clip:g}": clip for clip in (CLIP_NORMS[0], 1e-4, 0.5, 1.0, 1e4, CLIP_NORMS[1])})
"""From the smallest clip norm that a run may have to the largest."""

CLIP_RULES: MappingProxyType[str, Clipping] = MappingProxyType(
    {name: rule() for name, rule in CLIPPINGS.items()}
    | {"automatic, no stability": Automatic(0.0), "quantile, a large share": Quantile(0.9, 0.5, 0.4)}
)
"""Every rule as it is without arguments, and those with figures at their ends."""

CLASSES = MappingProxyType({"2": 2, "3": 3})

POSITIONS: MappingProxyType[str, Callable[[int], int]] = MappingProxyType(
    {"front": lambda others: 0, "middle": lambda others: others // 2, "end": lambda others: others}
)

TYPES = MappingProxyType({kind.__name__: kind for kind in (np.float32, np.float64, np.float16, np.int64, np.uint8)})


def _values(having: str) -> dict[str, Callable[[], Any]]:
    """The public classes of ``training.optimizers`` that have a method, as they are without arguments."""
    found = ((name, getattr(optimizers, name)) for name in optimizers.__all__)
    return {
        name: kind
        for name, kind in found
        if inspect.isclass(kind) and callable(getattr(kind, having, None)) and not getattr(kind, "_is_protocol", False)
    }


OPTIMIZERS = MappingProxyType(_values("start"))
SCHEDULES = MappingProxyType(_values("factor"))

_TEMPERED = Activation("tempered_sigmoid", 1.5, 2.5, 0.5)
_SMALL = (Conv(3, 2, 1, 1), MaxPool(2, 1), Conv(2, 2), GlobalMean())


def _cnn(activation: Any) -> Callable[[int], Cnn]:
    return lambda classes: Cnn((2, 4, 4), classes, _SMALL, dense=(5,), activation=activation)


def _mlp(hidden: tuple[int, ...], activation: Any = "tanh") -> Callable[[int], Mlp]:
    return lambda classes: Mlp(32, classes, hidden, activation)


def _regression(hidden: tuple[int, ...], activation: Any = "tanh") -> Callable[[int], Regression]:
    return lambda classes: Regression(32, hidden, activation, target_range=(0.0, 1.0))


MODELS: MappingProxyType[str, Callable[[int], Any]] = MappingProxyType(
    {
        "softmax": _mlp(()),
        "wide softmax": lambda classes: Mlp(1030, classes),
        "tanh": _mlp((7,)),
        "relu": _mlp((6, 5), "relu"),
        "tempered": _mlp((6, 4), _TEMPERED),
        "linear": _regression(()),
        "numbers tanh": _regression((7,)),
        "numbers relu": _regression((6, 5), "relu"),
        "numbers tempered": _regression((6, 4), _TEMPERED),
        "images relu": _cnn("relu"),
        "images tanh": _cnn("tanh"),
        "images tempered": _cnn(_TEMPERED),
        "dp-hypo": lambda classes: dp_hypo_cnn(),
    }
)


@dataclass(frozen=True)
class Company:
    """The features and labels of the others, and of the record; labels are reduced to the classes there are."""

    x: Floats
    y: Indices
    record: Floats
    label: int


def _drawn(rng: Rng, features: int, scale: float = 1.0, others: int = 5) -> Company:
    rows = rng.normal(0.0, scale, (others + 1, features))
    return Company(rows[:others], rng.integers(0, 10, others), rows[others], int(rng.integers(0, 10)))


def _valued(value: float) -> Callable[[Rng, int], Company]:
    """Ordinary others, a record with this value in every third feature."""

    def make(rng: Rng, features: int) -> Company:
        made = _drawn(rng, features)
        record = np.where(np.arange(features) % 3 == 0, value, made.record)
        return Company(made.x, made.y, record, made.label)

    return make


def _constant(value: float) -> Callable[[Rng, int], Company]:
    """The record and all others are the same."""
    return lambda rng, features: Company(
        np.full((5, features), value), np.zeros(5, np.int64), np.full(features, value), 0
    )


def _duplicates(rng: Rng, features: int) -> Company:
    made = _drawn(rng, features)
    return Company(np.tile(made.record, (5, 1)), np.full(5, made.label), made.record, made.label)


def _cancelling(rng: Rng, features: int) -> Company:
    """Pairs with equal features and two labels; the record completes the last pair."""
    rows = rng.normal(0.0, 1.0, (2, features))
    return Company(rows[[0, 0, 1]], np.array([0, 1, 0]), rows[1], 1)


def _opposite(rng: Rng, features: int) -> Company:
    """One other, of which the record differs in the label alone."""
    made = _drawn(rng, features)
    return Company(made.record[None], np.zeros(1, np.int64), made.record, 1)


def _alone(rng: Rng, features: int) -> Company:
    made = _drawn(rng, features)
    return Company(made.x[:0], made.y[:0], made.record, made.label)


def _sparse(rng: Rng, features: int) -> Company:
    """Others that are mostly zeros, a record that is not: engines may treat sparse records in another way."""
    made = _drawn(rng, features)
    return Company(made.x * (rng.random(made.x.shape) < 0.3), made.y, made.record, made.label)


def _alike(scale: float) -> Callable[[Rng, int], Company]:
    """Others that are all the same, so that what moves them moves their sum by as many times; a record of another size.

    Whatever is measured over a batch (the largest value, say) then follows from the record alone.
    """

    def make(rng: Rng, features: int) -> Company:
        made = _drawn(rng, features)
        return Company(np.tile(made.x[0], (5, 1)), np.full(5, made.y[0]), scale * made.record, made.label)

    return make


COMPANIES: MappingProxyType[str, Callable[[Rng, int], Company]] = MappingProxyType(
    {
        "ordinary": _drawn,
        "steep": lambda rng, features: _drawn(rng, features, 30.0),
        "duplicates": _duplicates,
        "cancelling": _cancelling,
        "opposite": _opposite,
        "alone": _alone,
        "sparse": _sparse,
        "outshone": _alike(1e3),
        "unharmed": _alike(1e-3),
        "dark": _constant(0.0),
        "equal": _constant(1.0),
        "negative zero": _valued(-0.0),
        "faint": _valued(1e-42),
        "fainter": _valued(5e-324),
        "bright": _valued(1e9),
        "brighter": _valued(1e25),
        "largest": _valued(3.4e38),
        "beyond single precision": _valued(-1e300),
    }
)


def _many(rng: Rng, features: int) -> Company:
    return _drawn(rng, features, others=40)


SUMMED: MappingProxyType[str, Callable[[Rng, int], Company]] = MappingProxyType({**COMPANIES, "many": _many})
"""Companies for sums: one is more than any engine computes at once."""


@dataclass(frozen=True)
class Worlds:
    """Two data sets, without and with the record; ``place`` is where it is."""

    without: Dataset
    having: Dataset
    place: int


def worlds(company: Company, classes: int, place: int, kind: type[Any] = np.float32) -> Worlds:
    """The neighbouring data sets of a company, features stored in a type."""
    x, record = (stored(values, kind) for values in (company.x, company.record))
    both = np.insert(x, place, record, axis=0), np.insert(company.y, place, company.label)
    return Worlds(dataset(x, company.y, classes), dataset(*both, classes), place)


def dataset(x: AnyArray, y: Indices, classes: int) -> Dataset:
    """Records with these labels, reduced to the classes there are; for one output, targets from 0 to 1."""
    if classes == 1:
        return RegressionDataset(x, (y % 10) / 9.0, target_range=(0.0, 1.0))
    return Dataset(x, y % classes, classes)


def stored(values: Floats, kind: type[Any]) -> AnyArray:
    """Values in another type, clipped to what it can hold: invalid records are for the way called "records"."""
    limits: Any = np.finfo(kind) if np.issubdtype(kind, np.floating) else np.iinfo(kind)
    with np.errstate(all="ignore"):
        return values.clip(float(limits.min) / 2.0, float(limits.max) / 2.0).astype(kind)
