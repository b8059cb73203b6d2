"""What is trained and tried where nobody said, for targets that are numbers; and which score compares models.

Every figure follows from public ones. Gradients of a regression are errors, as shares of the range, times features:
mostly a tenth or less, so the clip norm is small. The learning rate falls to zero, which averages noise out. Where the
total is known, records are brought to a level first, as those of other tables (:mod:`dptune.planner.defaults`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dptune._validate import integer
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.planner.defaults import LEVELLING, is_levelled
from dptune.regression import range_of
from dptune.scores import Score, check_score, score_named
from dptune.spaces import Float, Space
from dptune.tables import Encoder, Target
from dptune.trainer import DeclaresScore, Trainer
from dptune.training import Adam, Cosine, DpSgdTrainer, Settings, linear
from dptune.units import UnitDataset

__all__ = ["default_regression", "named_score", "regression_space", "with_score"]

_STEPS, _FEW_STEPS = 300, 100
_FEW = 4096
_LEAST_BATCH = 256
_SHARE = 32


def default_regression(
    features: int,
    target_range: tuple[float, float],
    records: int,
    *,
    validation: Dataset | None = None,
    epsilon: float | None = None,
) -> DpSgdTrainer:
    """A private linear regression for a table, from public figures alone.

    Batches hold about one record in 32, at least 256 of them, in 300 steps; of at most 4096 records they hold half, in
    100 steps. The clip norm is .1.

    Args:
        features: How many features a record has when it is encoded.
        target_range: The declared range of the target.
        records: About how many records there are, a public figure.
        validation: Public records for scores; without them scores come from private ones, noised and paid for.
        epsilon: The total budget, where it is known; then records are brought to a level first.

    Returns:
        The trainer; its noise is set by a plan.

    Raises:
        InvalidInput: If a figure is out of range.

    Example:
        >>> from dptune.planner import default_regression
        >>> default_regression(13, (0, 50), 32000).model
        Regression(features=13, hidden=(), activation=..., target_range=(0.0, 50.0))
    """
    integer("records", records, 4)
    few = records <= _FEW
    batch = records / 2 if few else max(_LEAST_BATCH, records / _SHARE)
    settings = Settings.from_batch(
        batch,
        records,
        noise_multiplier=1.0,  # the plan sets it
        steps=_FEW_STEPS if few else _STEPS,
        clip_norm=0.1,
        learning_rate=0.02,
        optimizer=Adam(),
        schedule=Cosine(),
    )
    levelled = epsilon is not None and is_levelled(features, records, epsilon)
    model = linear(features, target_range)
    return DpSgdTrainer(model, settings, validation=validation, whitening=LEVELLING if levelled else None)


def regression_space() -> Space:
    """The learning rates that are tried with :func:`default_regression`.

    Returns:
        A space with one parameter, log-uniform from .01 to .05.

    Example:
        >>> from dptune.planner import regression_space
        >>> regression_space().names
        ('learning_rate',)
    """
    return Space(learning_rate=Float(0.01, 0.05, log=True))


def named_score(
    score: str | Score | None, shares: Sequence[float] | None, data: Any, encoder: Encoder | None, *, public: bool
) -> Score | None:
    """The score that a user asked for, with the shares that belong to it.

    Args:
        score: A name, a score, or None.
        shares: Declared shares of the classes; None: those of the schema's target; public records are counted.
        data: The records; they are counted only if they are public.
        encoder: How rows of a table were encoded, if there was a schema.
        public: Whether the records may be shown to anybody.

    Returns:
        The score; None where none was asked for.

    Raises:
        InvalidInput: If there is no such score, it does not fit the targets, or shares are missing.

    Example:
        >>> named_score("accuracy", None, [], None, public=False)
        Accuracy()
    """
    if score is None:
        if shares is not None:
            raise InvalidInput("'shares' belong to a score; give score='balanced' or score='auc', too.")
        return None
    if isinstance(score, str) and score in ("balanced", "auc") and shares is None:
        shares = _known_shares(data, encoder, public)
    found = score_named(score, shares) if isinstance(score, str) else score
    check_score(found, data)
    return found


def _known_shares(data: Any, encoder: Encoder | None, public: bool) -> Sequence[float] | None:
    """The shares that the schema declares; those of public records are counted."""
    target = None if encoder is None else encoder.schema.target
    if isinstance(target, Target) and target.shares is not None:
        return target.shares
    rows = data.rows if isinstance(data, UnitDataset) else data
    if not public or not isinstance(rows, Dataset) or range_of(rows) is not None:
        return None
    counts = np.bincount(rows.y, minlength=rows.classes) + 1.0
    return tuple(float(share) for share in counts / counts.sum())


def with_score(trainer: Trainer[Any, object], score: Score | None) -> Trainer[Any, object]:
    """The trainer with this score.

    Args:
        trainer: What trains.
        score: The score; None leaves the trainer as it is.

    Returns:
        The trainer.

    Raises:
        InvalidInput: If the trainer has a score of its own that cannot be set.

    Example:
        >>> from dptune.scores import Accuracy
        >>> with_score(default_regression(3, (0, 1), 100), None).declared_score
        AbsoluteError(tolerance=0.25)
    """
    if score is None:
        return trainer
    if isinstance(trainer, DpSgdTrainer):
        return replace(trainer, score=score)
    if isinstance(trainer, DeclaresScore) and trainer.declared_score == score:
        return trainer
    raise InvalidInput(
        "'score' is for the built-in trainers; a trainer of your own says it by an attribute 'declared_score', or is "
        "planned with validation=PrivateValidation.of(..., score=...)."
    )
