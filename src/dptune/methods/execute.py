"""Trainings as a search asked for them: the only way the sealed runner calls a trainer.

Checks that the trainer still declares the cost that the plan paid for, takes the trial's records, trains, and
scores on private validation records where the plan says so. Whatever raises in :func:`fit_trial` is a failed
trial, which scores minus infinity; nothing may be retried. A private validation record cannot make a trial fail: it is
judged by :mod:`dptune.judging`, on its own.

Several trials of one part of the records can be one call of the trainer's ``fit_many``, if it has it: a faster way to
the same values, never another one. The theorems ask that a trial's outcome is a function of its own configuration,
records and generator. So ``fit_many`` either returns what ``fit`` would have returned for each, up to rounding
(``docs/training.md``), or it has not returned anything: a stack that raised, or gave something else than one (model,
score) for each, is no failure of its members. Each is then trained alone by :func:`fit_trial`, from a generator of the
same label, and has the outcome that it would have had in any company. This is no retry that waits for success:
the stack's failure is forgotten, whatever became of the trial, and what is drawn is drawn from the same secret.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dptune.errors import InvalidInput
from dptune.judging import correct
from dptune.methods.exact import Bits
from dptune.methods.lines import settle
from dptune.methods.parts import DataPart, records
from dptune.methods.trial import Trial
from dptune.randomness import Randomness

__all__ = ["check_cost", "fit_stack", "fit_trial", "score_trial", "stacks"]


def fit_trial(
    trainer: Any, trial: Trial, data: Any, randomness: Randomness, *, rng: Any = None, start: Any = None
) -> tuple[Any, float]:
    """Train once; returns the model and its score.

    ``data`` is the whole data set; ``rng`` is what the trainer gets (by default the run's generator for the
    trial's label); ``start`` is the model to continue from, if the trial asks for a warm start.
    """
    trial = settle(trainer, trial)  # not admitted under its line: failed, whatever the records
    check_cost(trainer, trial)
    # An empty part is trained on like any other: failing on it would show one record's presence, unpaid.
    training = records(trial.part, data, randomness)
    source = randomness.generator(*trial.seed_label) if rng is None else rng
    options = {}
    if start is not None and _takes(trainer.fit, "start"):
        options["start"] = _weights(start)
    return score_trial(trial, trainer.fit(trial.params, training, source, **options), data, randomness)


def stacks(trainer: Any, trials: Sequence[Trial], starts: Mapping[int, Any]) -> list[list[Trial]]:
    """The trials that the trainer may train together, with the noise that their lines demand.

    ``starts`` are the models to continue from, by index. Members of a stack see the same records, so no last bit can
    tell one part of the records about another. Trials that stay alone, or fail before they are trained, are left out.
    """
    together = getattr(trainer, "fit_many", None)
    if not callable(together):
        return []
    warm = _takes(trainer.fit, "start")
    found: dict[tuple[DataPart, bool], list[Trial]] = {}
    for trial in trials:
        started = warm and starts.get(trial.index) is not None
        if started and not _takes(together, "starts"):
            continue
        try:
            settled = settle(trainer, trial)
            check_cost(trainer, settled)
        except Exception:  # a failure of this trial's own, which it meets again when it is trained alone
            continue
        found.setdefault((trial.part, started), []).append(settled)
    return [stack for stack in found.values() if len(stack) > 1]


def fit_stack(
    trainer: Any, stack: Sequence[Trial], data: Any, randomness: Randomness, starts: Mapping[int, Any]
) -> dict[int, tuple[Any, float]]:
    """What ``fit_many`` gives for one of the :func:`stacks`, by index; raises if it is not one result for each."""
    training = records(stack[0].part, data, randomness)
    sources = [randomness.generator(*trial.seed_label) for trial in stack]
    options = {}
    if _takes(trainer.fit, "start") and starts.get(stack[0].index) is not None:
        options["starts"] = [_weights(starts[trial.index]) for trial in stack]
    fitted = list(trainer.fit_many([trial.params for trial in stack], training, sources, **options))
    if len(fitted) != len(stack):
        raise InvalidInput(f"fit_many must return one (model, score) for each of {len(stack)}; got {len(fitted)}.")
    return {trial.index: (one[0], float(one[1])) for trial, one in zip(stack, fitted, strict=True)}


def score_trial(trial: Trial, fitted: Any, data: Any, randomness: Randomness) -> tuple[Any, float]:
    """The model and its score: the trainer's own, or the one on private validation records that the trial asks for."""
    model, score = fitted[0], float(fitted[1])
    validation = trial.validation
    if validation is None or trial.final:
        return model, score
    held = records(validation.part, data, randomness)
    count = correct(model, held)
    noise = Fraction(validation.noise)
    if noise > 0:
        # Whole numbers only between the count and the released choice: one record moves the count by at most 1.
        bits = Bits(randomness, *trial.seed_label, "score")
        count = Fraction(math.floor(count) + bits.discrete_gaussian(noise))
    return model, float(count / Fraction(validation.denominator))


def check_cost(trainer: Any, trial: Trial) -> None:
    """Refuse a trainer that no longer declares what the plan paid for."""
    if trial.declared is not None and trainer.cost(trial.params) != trial.declared:
        raise InvalidInput("The trainer declares another cost than the one in the plan; plan again with this trainer.")


def _takes(function: Any, name: str) -> bool:
    return name in inspect.signature(function).parameters


def _weights(model: Any) -> Any:
    """What a trainer continues from: the parameters of a model that has them, else the model itself."""
    return getattr(model, "parameters", model)
