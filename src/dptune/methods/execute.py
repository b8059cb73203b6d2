"""One training, as a search asked for it: the only way the sealed runner calls a trainer.

Checks that the trainer still declares the cost that the plan paid for, takes the trial's records, trains, and
scores on private validation records where the plan says so. Whatever raises here is a failed
trial, which scores minus infinity; nothing may be retried.
"""

from __future__ import annotations

import inspect
import math
from fractions import Fraction
from typing import Any

import numpy as np

from dptune.errors import InvalidInput
from dptune.methods.base import Randomness, Trial
from dptune.methods.exact import Bits
from dptune.methods.lines import settle
from dptune.methods.parts import part_from_json, records, size

__all__ = ["check_cost", "fit_trial"]

_GRID = 2**20


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
    validation = trial.extra.get("validation")
    options = {}
    if start is not None and "start" in inspect.signature(trainer.fit).parameters:
        options["start"] = _weights(start)
    fitted = trainer.fit(trial.params, training, source, **options)
    model, score = fitted[0], float(fitted[1])
    if validation is None or trial.extra.get("final"):
        return model, score
    held = records(part_from_json(validation["part"]), data, randomness)
    count = correct(model, held)
    noise = Fraction(validation["noise"])
    if noise > 0:
        # Whole numbers only between the count and the released choice: one record moves the count by at most 1.
        bits = Bits(randomness, *trial.seed_label, "score")
        count = Fraction(math.floor(count) + bits.discrete_gaussian(noise))
    return model, float(count / Fraction(validation["denominator"]))


def check_cost(trainer: Any, trial: Trial) -> None:
    """Refuse a trainer that no longer declares what the plan paid for."""
    declared = trial.extra.get("cost")
    if declared is not None and trainer.cost(trial.params).describe() != declared:
        raise InvalidInput("The trainer declares another cost than the one in the plan; plan again with this trainer.")


def correct(model: Any, data: Any) -> Fraction:
    """How many records the model gets right: each record counts between 0 and 1, decided on its own.

    ``model.correct(data)``, if there is one, gives a value for every record, or their number (a whole one: a sum of
    fractions in floating point is not exact). What is no number counts as 0.
    """
    if size(data) == 0:
        return Fraction(0)
    if not callable(getattr(model, "correct", None)):
        x, y = (data[0], data[-1]) if isinstance(data, tuple) else (data.x, data.y)
        return Fraction(int((model.predict(x) == y).sum()))
    judged = np.asarray(model.correct(data), dtype=float)
    most = float(size(data)) if judged.ndim == 0 else 1.0
    # Each value on a grid of its own, then a sum of whole numbers: exact in any order.
    each = np.floor(np.clip(np.nan_to_num(judged, nan=0.0), 0.0, most) * _GRID).astype(np.int64)
    return Fraction(int(each.sum()), _GRID)


def _weights(model: Any) -> Any:
    """What a trainer continues from: the parameters of a model that has them, else the model itself."""
    return getattr(model, "parameters", model)
