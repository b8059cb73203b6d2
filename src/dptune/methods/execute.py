"""Trainings as a search asked for them: the only way the sealed runner calls a trainer.

Checks that the trainer still declares the cost that the plan paid for, takes the trial's records, trains, and
scores on private validation records where the plan says so. Whatever raises in :func:`fit_trial` is a failed
trial, which scores minus infinity; nothing may be retried. A private validation record cannot make a trial fail: it is
judged by :mod:`dptune.judging`, on its own.

Several trials of one part of the records can be one call of ``fit_many``, if the trainer has it: a faster way to
the same values, never another one. The theorems ask that a trial's outcome is a function of its own configuration,
records and generator. So ``fit_many`` either returns what ``fit`` would have returned for each, up to rounding
(``docs/training.md``), or it has not returned anything: a stack that raised, or gave something else than one (model,
score) for each, is not a failure of its members. Each is then trained alone by :func:`fit_trial`, from a generator of
the same label, and has the outcome that it would have had in any company. This is not a retry that waits for success:
the stack's failure is forgotten, whatever became of the trial, and what is drawn is drawn from the same secret.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from dptune.errors import InvalidInput
from dptune.judging import correct
from dptune.methods.exact import Bits
from dptune.methods.lines import settle
from dptune.methods.parts import ALL, DataPart, places, records, size
from dptune.methods.trial import Trial
from dptune.randomness import Randomness
from dptune.scores import Auc
from dptune.trainer import (
    DeclaresCost,
    SupportsFit,
    SupportsPreflight,
    SupportsStacking,
    SupportsWarmStart,
    trains_itself,
)

__all__ = ["check_cost", "fit_stack", "fit_trial", "score_trial", "stacks", "try_trial"]

DataT = TypeVar("DataT")
ModelT = TypeVar("ModelT")


def fit_trial(
    trainer: SupportsFit[DataT, ModelT],
    trial: Trial,
    data: DataT,
    randomness: Randomness,
    *,
    rng: np.random.Generator | None = None,
    start: ModelT | None = None,
) -> tuple[ModelT, float]:
    """Train once, as a search asked for it.

    Args:
        trainer: what trains; its cost is asked for where the trial has one to obey.
        trial: the training to do, and what it obeys.
        data: the whole data set.
        randomness: the run's.
        rng: what the trainer gets; by default the run's generator for the trial's label.
        start: the model to continue from, if the trial asks for a warm start.

    Returns:
        The model and its score.

    Raises:
        Exception: the trial failed, for whatever reason.

    Example:
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=dpt.Gaussian(2.0))
        ... def noisy_count(params, data, rng):
        ...     return len(data) + 2.0 * rng.normal(), 0.0
        >>> trial = Trial(0, {}, seed_label=("trial", 0), declared=dpt.Gaussian(2.0))
        >>> count, score = fit_trial(noisy_count, trial, [1, 2, 3], Randomness.rehearsal(1))
        >>> 0 < abs(count - 3) < 20, score
        (True, 0.0)
    """
    trial = settle(trainer, trial)  # not admitted under its line: failed, whatever the records
    check_cost(trainer, trial)
    # An empty part is trained on like any other: failing on it would show one record's presence, unpaid.
    training = records(trial.part, data, randomness)
    source = randomness.generator(*trial.seed_label) if rng is None else rng
    if start is None:
        fitted = trainer.fit(trial.params, training, source)
    elif isinstance(trainer, SupportsWarmStart) and trains_itself(trainer, "fit_from"):
        fitted = trainer.fit_from(trial.params, training, source, start)
    else:
        raise InvalidInput("The trial continues from a model, but the trainer has no fit_from(...).")
    return score_trial(trial, fitted, data, randomness)


def try_trial(trainer: SupportsFit[DataT, ModelT], trial: Trial, blank: DataT) -> ModelT:
    """Train once on blank records, by the same steps as :func:`fit_trial`, and judge the model as it would be.

    All blank records are in every part, so that labels cover all classes. Draws are public: nothing here may depend on
    the run's own secret.

    Args:
        trainer: what trains; one with ``preflight`` also compares what it declares with what it does.
        trial: a training of the plan, from public randomness.
        blank: made-up records.

    Returns:
        The model.

    Raises:
        Exception: every training of the run would fail like this one.
    """
    randomness = Randomness.rehearsal(0)
    held = None if trial.validation is None else replace(trial.validation, part=ALL)
    trial = settle(trainer, replace(trial, part=ALL, validation=held))
    check_cost(trainer, trial)
    fit = trainer.preflight if isinstance(trainer, SupportsPreflight) else trainer.fit
    fitted = fit(trial.params, blank, randomness.generator(*trial.seed_label))
    model: ModelT = score_trial(trial, fitted, blank, randomness)[0]
    return model


def stacks(trainer: object, trials: Sequence[Trial]) -> list[list[Trial]]:
    """The trials that the trainer may train together, with the noise that their lines demand.

    Members of a stack begin from scratch and see the same records, so no last bit can tell one part of the records
    about another. Trials that stay alone (because they continue from a model, or have no peers), or fail before they
    are trained, are left out.

    Args:
        trainer: any trainer; one without ``fit_many`` has no stacks.
        trials: what may be trained now.

    Returns:
        Lists of at least two trials each.
    """
    if not isinstance(trainer, SupportsStacking) or not trains_itself(trainer, "fit_many", beside="fit"):
        return []
    found: dict[DataPart, list[Trial]] = {}
    for trial in trials:
        if trial.warm_start is not None:
            continue
        try:
            settled = settle(trainer, trial)
            check_cost(trainer, settled)
        except Exception:  # a failure of this trial's own, which it meets again when it is trained alone
            continue
        found.setdefault(trial.part, []).append(settled)
    return [stack for stack in found.values() if len(stack) > 1]


def fit_stack(
    trainer: SupportsStacking[DataT, ModelT], stack: Sequence[Trial], data: DataT, randomness: Randomness
) -> dict[int, tuple[ModelT, float]]:
    """The outcomes of one of the :func:`stacks`, from a single call of ``fit_many``.

    Args:
        trainer: what trains.
        stack: trials on the same part of the records.
        data: the whole data set.
        randomness: the run's.

    Returns:
        The model and the score of each trial, by its index.

    Raises:
        Exception: ``fit_many`` failed, or did not give one result for each.
    """
    training = records(stack[0].part, data, randomness)
    sources = [randomness.generator(*trial.seed_label) for trial in stack]
    fitted = list(trainer.fit_many([trial.params for trial in stack], training, sources))
    if len(fitted) != len(stack):
        raise InvalidInput(f"'fit_many' must return one (model, score) for each of {len(stack)}; got {len(fitted)}.")
    return {trial.index: (one[0], float(one[1])) for trial, one in zip(stack, fitted, strict=True)}


def score_trial(
    trial: Trial, fitted: tuple[ModelT, float], data: object, randomness: Randomness
) -> tuple[ModelT, float]:
    """The model and its score: the trainer's own, or the one on private validation records that the trial asks for.

    Args:
        trial: what was trained.
        fitted: what the trainer returned.
        data: the whole data set.
        randomness: the run's, for the noise of the score.

    Returns:
        The model and its score.
    """
    model, score = fitted[0], float(fitted[1])
    validation = trial.validation
    if validation is None or trial.final:
        return model, score
    held, groups, number = records(validation.part, data, randomness), None, 1
    if isinstance(validation.score, Auc):  # a record's group is drawn as its coins are, the same in every trial
        number = Auc.groups(validation.denominator)
        drawn = randomness.generator("score groups").integers(0, number, size(data))
        groups = drawn[places(validation.part, data, randomness)]
    count = correct(model, held, validation.score, groups=groups, number=number)
    noise = Fraction(validation.noise)
    if noise > 0:
        # Whole numbers only between the count and the released choice: one record moves the count by at most 1.
        bits = Bits(randomness, *trial.seed_label, "score")
        count = Fraction(math.floor(count) + bits.discrete_gaussian(noise))
    return model, float(count / Fraction(validation.denominator))


def check_cost(trainer: object, trial: Trial) -> None:
    """Refuse a trainer that no longer declares what the plan paid for."""
    if trial.declared is None:
        return
    if not isinstance(trainer, DeclaresCost) or trainer.cost(trial.params) != trial.declared:
        raise InvalidInput("The trainer declares another cost than the one in the plan; plan again with this trainer.")
