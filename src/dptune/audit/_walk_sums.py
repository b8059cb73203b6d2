"""The walk over clipped sums: engines, modes, models and layers, clip norms, types, companies and positions.

The seam is the engine: ``clipped_sums`` (or ``lattice_sums``, for secure noise) before any noise is added. Each world
has an engine of its own, as two runs would, at the same parameters. A refusal is fine where public rows are refused
too; one that came with the records is a release that nobody paid for.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune.audit.supported import (
    CLASSES,
    CLIPS,
    ENGINES,
    MODELS,
    POSITIONS,
    SUMMED,
    TYPES,
    Worlds,
    dataset,
    worlds,
)
from dptune.audit.walk import Case, Deck, Movement, Unsupported
from dptune.randomness import Randomness
from dptune.training import Dataset
from dptune.training.clipping import Clipping
from dptune.training.dpsgd import SumsOnLattice
from dptune.training.engines import engine_for
from dptune.training.fused_engine import FusedEngine
from dptune.training.models import Mlp
from dptune.training.numpy_engine import NumpyEngine

__all__ = ["case", "engine", "module_case", "public_rows", "random_case"]

Maker = Callable[[], Any]

_LATTICE = 2.0**-30
WEIGHTS = {"first": 1.0, "large": 8.0}
_PRECISION = {"single": False, "double": True}


@dataclass(frozen=True)
class Summed:
    """What a call of an engine gave: a sum and the mode it was computed in, or the words of a refusal."""

    total: Array | None
    mode: str | None
    refusal: str | None


def engine(model: Any, name: str, double: bool, rule: Clipping | None = None) -> Any:
    """An engine by its name; ``interpreted`` is the one without compiled kernels."""
    if name != "interpreted":
        return engine_for(model, engine=name, double=double, rule=rule)
    kind: Any = NumpyEngine if isinstance(model, Mlp) else FusedEngine
    return kind(model, double=double, compiled=False)


def public_rows(features: int, classes: int) -> Dataset:
    """Rows that stand for nobody."""
    rng = np.random.default_rng(0)
    return dataset(rng.normal(size=(4, features)).astype(np.float32), np.arange(4), classes)


def parameters_of(made: Any, weights: float) -> Array:
    """A model's first parameters, so many times as large; where all of them are zero and this is not the start, others.

    At its start a regression says the same of every record: its outputs would never be part of a sum.
    """
    first = np.asarray(made.start(Randomness.rehearsal(3)), np.float64)
    if weights != 1.0 and not first.any():
        first = np.random.default_rng(3).normal(size=first.shape) / 16.0
    return weights * first


def _summed(make: Maker, data: Dataset, weights: float, clip: float, double: bool) -> Summed:
    """The sum over all records, by an engine that knows no others."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = make()
            made.bind(data)
            out = np.zeros((1, made.dimension), made.dtype)
            parameters = parameters_of(made, weights)[None].astype(made.dtype)
            batch, clips = [np.arange(len(data))], np.array([clip])
            exact = made.lattice_sums if double and isinstance(made, SumsOnLattice) else None
            if exact is None or not exact(parameters, batch, clips, [_LATTICE * clip], out):
                made.clipped_sums(parameters, batch, clips, out)
    except Exception as error:  # whatever an engine says no with
        return Summed(None, None, f"{type(error).__name__}: {error}")
    return Summed(out[0].astype(np.float64), getattr(made, "mode", None), None)


def compare(make: Maker, given: Worlds, weights: float, clip: float, double: bool) -> Sequence[Movement]:
    """What one record moves: the sum, the refusal, the chosen mode."""
    features, classes = given.having.x.shape[1], given.having.classes
    public = _summed(make, public_rows(features, classes), weights, clip, double)
    if public.refusal is not None:
        raise Unsupported(public.refusal)
    seen = [_summed(make, data, weights, clip, double) for data in (given.without, given.having)]
    if any(one.refusal is not None for one in seen):
        return [Movement(f"refusal of records ({next(s.refusal for s in seen if s.refusal)})", 1.0, 0.0)]
    found = []
    if len(given.without):  # an engine has no mode before its first record
        found.append(Movement("chosen mode", float(seen[0].mode != seen[1].mode), 0.0))
    moved = float(np.linalg.norm(np.subtract(seen[1].total, seen[0].total)))  # type: ignore[arg-type] # not refused
    slack = _LATTICE * math.sqrt(len(seen[0].total)) if double else 0.0  # type: ignore[arg-type] # the same
    return [*found, Movement("sum, in clip norms", moved / clip, 1.0 + slack)]


def _dealt(deck: Deck, features: int, classes: int) -> Worlds:
    company = deck.deal("company", SUMMED)(deck.rng, features)
    place = deck.deal("position", POSITIONS)(len(company.y))
    return worlds(company, classes, place, deck.deal("type", TYPES))


def case(deck: Deck) -> Case:
    """Models that are described, in every engine."""
    name = deck.deal("engine", ENGINES)
    model = deck.deal("model", MODELS)(deck.deal("classes", CLASSES))
    double = deck.deal("precision", _PRECISION)
    weights, clip = deck.deal("weights", WEIGHTS), deck.deal("clip", CLIPS)
    given = _dealt(deck, model.features, model.classes)
    make = functools.partial(engine, model, name, double)
    return Case("sums", deck.describe(), functools.partial(compare, make, given, weights, clip, double))


def module_case(deck: Deck, *, random: bool = False) -> Case:
    """Users' modules: every layer of torch, in the torch engine and all its modes, and in the compiled engine."""
    from dptune.audit import _supported_torch as torch_layers  # noqa: PLC0415 - optional dependency
    from dptune.training.torch_engine import MODES, TorchEngine  # noqa: PLC0415 - the same

    known = torch_layers.random_layers() if random else torch_layers.layers()
    layer = deck.deal("layer", {name: name for name in known})
    place = deck.deal(f"place of {layer}", {name: name for name in torch_layers.places(layer)})
    form = deck.deal("form", {name: name for name in torch_layers.FORMS})
    inner = form != "custom"  # only then can book-keeping look into it
    modes = {one: one for one in ("auto", *MODES, "compiled") if inner or one not in {MODES[0], "compiled"}}
    mode = deck.deal("mode" if inner else "custom mode", modes)
    classes, double = deck.deal("classes", CLASSES), deck.deal("precision", _PRECISION)
    clip, seed = deck.deal("clip", CLIPS), int(deck.rng.integers(2**31))
    given = _dealt(deck, torch_layers.FEATURES, classes)

    def make() -> Any:
        module = torch_layers.module(layer, place, form, classes, seed)
        if mode == "compiled":
            return engine_for(module, engine="network", double=double)
        return TorchEngine(module, double=double, mode=mode)

    way = "random modules" if random else "modules"
    return Case(way, deck.describe(), functools.partial(compare, make, given, 1.0, clip, double))


def random_case(deck: Deck) -> Case:
    """A case of :func:`module_case` with layers that are random while they train: dropout of every kind, and others."""
    return module_case(deck, random=True)
