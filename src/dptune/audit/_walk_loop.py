"""The walk over whole trainings: the DP-SGD loop with every optimiser and schedule, and the trainer around it.

The loop is walked with a shadow: at every step the engine that trains and one that never saw the record compute their
sums at the same parameters. Then the loop runs again without the record, on the sums that were seen: if nothing but
the sums reads records, the same model comes out to the last bit. Trainers are walked by what leaves them: a model
(after one step of plain descent it tells its sum), a failure, a score on held-out records.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dptune._typing import Floats, Indices
from dptune.audit._walk_sums import engine, public_rows
from dptune.audit.supported import (
    CLASSES,
    CLIP_RULES,
    COMPANIES,
    ENGINES,
    MODELS,
    OPTIMIZERS,
    POSITIONS,
    SCHEDULES,
    Worlds,
    worlds,
)
from dptune.audit.walk import Case, Deck, Movement, Unsupported
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.scores import Auc, Balanced, Score
from dptune.training import Dataset, DpSgdTrainer, Holdout, Mlp, Settings, Whitening, descend
from dptune.training.clipping import Flat
from dptune.training.dpsgd import SumsOnLattice
from dptune.training.optimizers import Constant, KnowsNoise, Sgd
from dptune.training.ruled_sums import RuledSums
from dptune.training.trained_model import Trained, parameters_of

__all__ = ["case", "trainer_case"]


_RATES = {"1": 1.0, "0.5": 0.5}
_STEPS = {"1": 1, "3": 3}
_SECURE = {"fast": False, "secure": True}
_WHITENING = {"as they are": None, "whitened": Whitening(), "brought to a level": Whitening(centred=True)}
_FRACTION, _DENOMINATOR = 0.5, 4.0


class Shadow:
    """An engine with the record, and beside it one without; remembers sums and how far apart they were."""

    def __init__(self, make: Any, without: Dataset, place: int, promised: float) -> None:
        self._own, self._other = make(), make()
        self._without, self._place, self._promised = without, place, promised
        self.dimension, self.dtype, self.together = self._own.dimension, self._own.dtype, 1
        self.start, self.logits = self._own.start, self._own.logits
        self.sums: list[Floats] = []
        self.moved = 0.0

    def bind(self, data: Dataset) -> None:
        self._own.bind(data)
        self._other.bind(self._without)

    def _elsewhere(self, batches: Sequence[Indices]) -> list[Indices]:
        kept = [batch[batch != self._place] for batch in batches]
        return [np.where(batch > self._place, batch - 1, batch) for batch in kept]

    def _compare(self, mine: Floats, other: Floats) -> None:
        self.sums.append(mine.copy())
        apart = float(np.linalg.norm(mine.astype(np.float64) - other.astype(np.float64)))
        self.moved = max(self.moved, apart / self._promised)

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        self._own.clipped_sums(parameters, batches, clips, out)
        other = np.zeros_like(out)
        self._other.clipped_sums(parameters, self._elsewhere(batches), clips, other)
        self._compare(out, other)

    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        own = self._own
        if not isinstance(own, SumsOnLattice) or not own.lattice_sums(parameters, batches, clips, lattices, out):
            return False
        other = np.zeros_like(out)
        self._other.lattice_sums(parameters, self._elsewhere(batches), clips, lattices, other)
        self._compare(out, other)
        return True


class RuledShadow(Shadow):
    """The same beside engines whose shares follow a clipping rule: the sums are joint, tail included."""

    def __init__(self, make: Any, without: Dataset, place: int, promised: float) -> None:
        super().__init__(make, without, place, promised)
        self.rule, self.dressed = self._own.rule, self._own.dressed


class Replay(Shadow):
    """Gives the sums that a shadow saw, whatever the records."""

    def __init__(self, make: Any, without: Dataset, sums: Sequence[Floats]) -> None:
        super().__init__(make, without, 0, 1.0)
        self._left = list(sums)
        if isinstance(self._own, RuledSums):
            self.rule, self.dressed = self._own.rule, self._own.dressed

    def bind(self, data: Dataset) -> None:
        del data

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        out[:] = self._left.pop(0)

    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        self.clipped_sums(parameters, batches, clips, out)
        return True


def _settings(deck: Deck) -> Settings:
    rule, optimizer = deck.deal("clipping", CLIP_RULES), deck.deal("optimizer", OPTIMIZERS)()
    if rule.tails and isinstance(optimizer, KnowsNoise):  # refused together
        rule = Flat()
    return Settings(
        sampling_rate=deck.deal("rate", _RATES),
        noise_multiplier=1.0,
        steps=deck.deal("steps", _STEPS),
        clip_norm=0.7,
        learning_rate=0.3,
        batch_size=4.0,
        optimizer=optimizer,
        schedule=deck.deal("schedule", SCHEDULES)(),
        secure=deck.deal("noise", _SECURE),
        clipping=rule,
    )


def _look(make: Any, given: Worlds, settings: Settings) -> Sequence[Movement]:
    key, model = Randomness.rehearsal(5), None
    try:
        descend(make(), public_rows(given.having.x.shape[1], given.having.classes), [settings], [key])
    except InvalidInput as error:
        raise Unsupported(str(error)) from None
    ruled = not isinstance(settings.rule, Flat)
    made = (lambda: RuledSums(make(), settings.rule)) if ruled else make
    shadow = (RuledShadow if ruled else Shadow)(made, given.without, given.place, settings.clip_norm)
    try:
        (model,) = descend(shadow, given.having, [settings], [key])
    except Exception as error:  # whatever a loop ends with
        return [Movement(f"failure on records ({type(error).__name__}: {error})", 1.0, 0.0)]
    (again,) = descend(Replay(made, given.without, shadow.sums), given.without, [settings], [key])
    same = np.array_equal(model, again, equal_nan=True)
    return [
        Movement("sum of a step, in clip norms", shadow.moved, 1.0),
        Movement("model beside the sums", float(not same), 0.0),
    ]


def case(deck: Deck) -> Case:
    """The loop over every engine, optimiser and schedule."""
    model = deck.deal("model", MODELS)(deck.deal("classes", CLASSES))
    name = deck.deal("engine", ENGINES)
    settings = _settings(deck)
    company = deck.deal("company", COMPANIES)(deck.rng, model.features)
    given = worlds(company, model.classes, deck.deal("position", POSITIONS)(len(company.y)))
    make = functools.partial(engine, model, name, settings.double)
    return Case("loop", deck.describe(), functools.partial(_look, make, given, settings))


@dataclasses.dataclass(frozen=True)
class CoupledHoldout(Holdout):
    """A holdout in which the others keep their coins when a record joins them, wherever it stands."""

    place: int | None = None
    held: bool = True

    def groups(self, records: int, key: Randomness) -> tuple[Indices, int]:
        drawn, number = super().groups(records if self.place is None else records - 1, key)
        return drawn if self.place is None else np.insert(drawn, self.place, 0), number

    def places(self, records: int, key: Randomness) -> tuple[Indices, Indices]:
        kept, held = super().places(records if self.place is None else records - 1, key)
        if self.place is None:
            return kept, held
        kept, held = (np.where(one >= self.place, one + 1, one) for one in (kept, held))
        own = np.array([self.place])
        return (kept, np.union1d(held, own)) if self.held else (np.union1d(kept, own), held)


def _modules(deck: Deck, classes: int) -> Any:
    """A function that makes a module with a layer of torch's."""
    from dptune.audit import _supported_torch as torch_layers  # noqa: PLC0415 - optional dependency

    layer = deck.deal("layer", {name: name for name in torch_layers.layers()})
    place = deck.deal(f"place of {layer}", {name: name for name in torch_layers.places(layer)})
    form = deck.deal("form", {name: name for name in torch_layers.FORMS})
    return lambda params: torch_layers.module(layer, place, form, classes, 1)


def _natural(classes: int) -> Score | None:
    return None


def _of_classes(classes: int) -> Score | None:
    """The AUC of two classes, balanced accuracy of more; numbers have their natural score."""
    shares = {2: (0.7, 0.3), 3: (0.5, 0.3, 0.2)}.get(classes)
    return None if shares is None else Auc(shares) if classes == 2 else Balanced(shares)


def trainer_case(deck: Deck) -> Case:
    """A trainer with each kind of validation, on users' modules and on models that are described."""
    module = deck.deal("kind", {"module": True, "description": False})
    wanted = deck.deal("classes", CLASSES)
    model = _modules(deck, wanted) if module else deck.deal("model", MODELS)(wanted)
    features, classes = (32, wanted) if module else (model.features, model.classes)
    company = deck.deal("company", COMPANIES)(deck.rng, features)
    given = worlds(company, classes, deck.deal("position", POSITIONS)(len(company.y)))
    held = deck.deal("validation", {"none": None, "public": False, "held out": True, "trained on": False})
    kind = deck.dealt["validation"]
    score = deck.deal("score", {"natural": _natural, "of classes": _of_classes})(classes)
    settings = dataclasses.replace(_settings(deck), sampling_rate=1.0)
    if plain := deck.deal("training", {"as dealt": False, "one plain step": True}):
        settings = dataclasses.replace(settings, steps=1, optimizer=Sgd(), schedule=Constant())
    whitening = deck.deal("records", _WHITENING) if isinstance(model, Mlp) else None

    def fit(data: Dataset, place: int | None) -> tuple[str | None, Any, float]:
        """The words of a failure, the model, the score."""
        public = public_rows(features, classes)
        coupled = CoupledHoldout(_FRACTION, _DENOMINATOR, 1.0, place, bool(held))
        trainer = DpSgdTrainer(
            model,
            settings,
            validation=public if kind == "public" else None,
            holdout=coupled if kind in {"held out", "trained on"} else None,
            score=score,
            whitening=whitening,
        )
        try:
            fitted = trainer.fit({}, data, Randomness.rehearsal(7))
        except Exception as error:  # whatever a training ends with
            return f"{type(error).__name__}: {error}", None, 0.0
        return None, fitted.model, fitted.score

    def look() -> Sequence[Movement]:
        try:
            DpSgdTrainer(model, settings, score=score, whitening=whitening).check({}, public_rows(features, classes))
        except Exception as error:  # refused for everybody
            raise Unsupported(str(error)) from None
        without, having = fit(given.without, None), fit(given.having, given.place)
        if without[0] is not None or having[0] is not None:
            return [Movement(f"failure on records ({having[0] or without[0]})", 1.0, 0.0)]
        if (
            kind != "held out"
        ):  # the record is trained on; whitened, its step is one of other records (the way "moments")
            return [_step(without[1], having[1], settings)] if plain and whitening is None else []
        outputs = [_outputs(one[1], public_rows(features, classes)) for one in (without, having)]
        return [
            Movement("model, by a held-out record", float(outputs[0] != outputs[1]), 0.0),
            Movement("count of held-out records", abs(having[2] - without[2]) * _DENOMINATOR, 1.0),
        ]

    return Case("trainer", deck.describe(), look)


def _step(without: Any, having: Any, settings: Settings) -> Movement:
    """What a record did to the only sum, seen in the models: the noise is the same, and the step is linear in both."""
    flat = [parameters_of(model).astype(np.float64) for model in (without, having)]
    unit = settings.learning_rate * settings.clip_norm / settings.batch_size
    rounding = 8.0 * float(np.finfo(np.float32).eps) * max(map(float, map(np.linalg.norm, flat))) / unit
    return Movement("sum of a step, by the model", float(np.linalg.norm(flat[1] - flat[0])) / unit, 1.0 + rounding)


def _outputs(model: Any, public: Dataset) -> bytes:
    """What a model says about public rows, to the last bit."""
    if isinstance(model, Trained):
        return np.asarray(model.logits(public.x)).tobytes()
    return b"".join(values.numpy().tobytes() for values in model.state_dict().values())
