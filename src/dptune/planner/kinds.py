"""Defaults by kind of data, for records whose features have unit length: images and texts.

A linear model, trained by DP-SGD with momentum and a small clip norm. Where every gradient is clipped, learning rate
and clip norm act through their product alone, so one of them is tuned. What is tried is a range around a rule that was
chosen on public data sets by ``benchmarks/defaults.py`` (``docs/accuracy.md`` says on which). Every figure follows from
public ones; nothing here may look at a record. Tables have defaults of their own (:mod:`dptune.planner.defaults`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.planner.defaults import TABLE_STAKES, default_trainer, table_space
from dptune.planner.incoming import Incoming
from dptune.planner.steps import Pace, best_pace, least_noise, pace_loss
from dptune.spaces import Float, Space
from dptune.training import Adam, DpSgdTrainer, Mlp, Momentum, Settings, softmax
from dptune.training.features import named_features
from dptune.training.whitening import MOST_FEATURES, MOST_RECORDS, MOST_SPREAD, Whitening

__all__ = [
    "KINDS",
    "Kind",
    "check_trainer_free",
    "kind_named",
    "kind_of_benchmark",
    "kind_with",
    "lost_to_steps",
    "with_features",
]

_MOST_WORK = 5e9  # features of records that one training reads: some seconds on one core
_TEXT_WORK = 1e10  # of texts twice as much: their rows are wide, and 25,000 are many
_PHOTO_WORK = 3.2e10  # of photographs more: a minute, because long trainings gain most there
_PHOTO_STAKES = 4.0  # what they lose to noise and haste, in what images and texts lose: docs/accuracy.md
_CLIP = 0.1
_TRAVEL = 3200.0  # learning rate x clip norm x steps for _USUAL records at epsilon 1: benchmarks/defaults.py
_SHORTER_TRAVEL = 2400.0  # the same for texts and photographs, and where records are whitened
_USUAL = 60_000
_WIDTH = 8.0  # the best is never expected farther from the rule than this factor
_MARGIN = 3.0  # more noise than a single Gaussian's that tuning and few steps may need
_SPREAD = 1.5  # how far it may well be: docs/accuracy.md, "What is tried"


@dataclass(frozen=True)
class Kind:
    """How one kind of data is prepared and trained where nobody said.

    Args:
        name: "image", "photo", "text" or "table".
        features: the public features that its records become before training.
        work: how many features of records one training may read, so that it does not take too long.
        width: what is tried reaches from the rule over this to the rule times this.
        spread: and is likeliest within this factor of the rule.
        whitened: whether trainings begin with noised second moments, where records have few enough features; records
            of tables are centred and brought to one level.
        travel: learning rate x clip norm x steps for 60,000 records at epsilon 1, where records are not whitened.
        stakes: how many times more noise and haste lose than usual (:mod:`dptune.planner.steps`).

    Example:
        >>> from dptune.planner.kinds import kind_named
        >>> image = kind_named("image")
        >>> image.features
        'two-scale-gradients'
        >>> image.trainer(976, 10, 60000, epsilon=1).settings.steps
        800
        >>> image.space(976, 60000, epsilon=1).names
        ('learning_rate',)
    """

    name: str
    features: str
    work: float = _MOST_WORK
    width: float = _WIDTH
    spread: float = _SPREAD
    whitened: bool = False
    travel: float = _TRAVEL
    stakes: float = 1.0

    def trainer(
        self, features: int, classes: int, records: int, *, epsilon: float, validation: Dataset | None = None
    ) -> DpSgdTrainer:
        """A private linear model from public figures alone.

        Args:
            features: How many features a record has.
            classes: How many classes there are.
            records: About how many records there are.
            epsilon: The total budget; with more of it, more steps pay.
            validation: Public records for scores.

        Returns:
            The trainer; its noise is set by a plan.
        """
        if self.name == "table":
            return default_trainer(
                features, classes, records, validation=validation, epsilon=epsilon, levelled=self.whitened
            )
        pace = self._pace(features, records, epsilon)
        settings = Settings.from_batch(
            pace.rate * records,
            records,
            noise_multiplier=1.0,  # the plan sets it
            steps=pace.steps,
            clip_norm=_CLIP,
            learning_rate=self._learning_rate(features, records, epsilon),
            optimizer=Momentum(0.9),
        )
        return DpSgdTrainer(
            softmax(features, classes),
            settings,
            validation=validation,
            prepared=self.features,
            whitening=Whitening() if self._whitens(features, records, epsilon) else None,
        )

    def space(self, features: int, records: int, *, epsilon: float) -> Space:
        """What is tried with :meth:`trainer`: learning rates, likeliest around the rule.

        Args:
            features: How many features a record has.
            records: About how many records there are.
            epsilon: The total budget.

        Returns:
            A space with one parameter.
        """
        if self.name == "table":
            return table_space(features, records, epsilon=epsilon, levelled=self.whitened)
        middle = self._learning_rate(features, records, epsilon)
        ends = middle / self.width, middle * self.width
        return Space(learning_rate=Float(*ends, log=True, around=middle, spread=self.spread))

    def _pace(self, features: int, records: int, epsilon: float) -> Pace:
        """Rate and steps by expected accuracy, as much as the work allows."""
        return best_pace(features, records, epsilon, work=self.work, stakes=self.stakes)

    def _whitens(self, features: int, records: int, epsilon: float) -> bool:
        """Whether second moments are summed: of few enough features, and where their noise fits its lattice."""
        if not self.whitened or features > MOST_FEATURES or records > MOST_RECORDS:
            return False
        return Whitening().spread(features, 1.0 / (_MARGIN * least_noise(epsilon))) <= MOST_SPREAD

    def _learning_rate(self, features: int, records: int, epsilon: float) -> float:
        """The rule: a way of public length over all steps.

        Noise per record falls with epsilon x records, and the way that pays grows with that; where there is much of it,
        noise is no longer what ends the way, and it grows with the root.
        """
        plenty = min(10.0, max(0.1, epsilon)) * records / _USUAL
        travel = _SHORTER_TRAVEL if self._whitens(features, records, epsilon) else self.travel
        return travel * min(plenty, math.sqrt(plenty)) / (self._pace(features, records, epsilon).steps * _CLIP)


def with_features(brought: Incoming, features: str, trainer: object | None) -> Incoming:
    """What was brought in, with public features computed record by record.

    Args:
        brought: the records as trainers take them.
        features: the features' name; "none" changes nothing.
        trainer: a trainer of the caller's own, which must bring its own features.

    Returns:
        The records with these features.

    Raises:
        InvalidInput: there are no such features, or these records do not take them.

    Example:
        >>> import numpy as np
        >>> from dptune.planner.incoming import Incoming
        >>> images = Incoming(Dataset(np.zeros((3, 64)), np.zeros(3), 2), 3)
        >>> with_features(images, "oriented-gradients", None).data.features
        144
    """
    make = named_features(features)
    if features == "none":
        return brought
    check_trainer_free(trainer)
    if not isinstance(brought.data, Dataset) or brought.encoder is not None:
        raise InvalidInput(f"'features' is for images as rows of an array; leave {features!r} out here.")
    return replace(brought, data=brought.data.map(make, (-1.0, 1.0)))


def check_trainer_free(trainer: object | None) -> None:
    """Refuse features beside a trainer of the caller's own.

    Args:
        trainer: the caller's trainer, or None.

    Raises:
        InvalidInput: there is one.
    """
    if trainer is not None:
        raise InvalidInput("'features' is for the default trainer; give your own one records with features.")


KINDS = {
    "image": Kind("image", "two-scale-gradients", whitened=True),
    "photo": Kind("photo", "levelled-scattering", _PHOTO_WORK, travel=_SHORTER_TRAVEL, stakes=_PHOTO_STAKES),
    "text": Kind("text", "none", _TEXT_WORK, travel=_SHORTER_TRAVEL),  # hashed words have unit length already
    "table": Kind("table", "none", whitened=True),
}

_BENCHMARKS = {
    "digits": "image", "mnist": "image", "fashion-mnist": "image", "cifar-10": "photo", "adult": "table",
    "imdb": "text",
}  # fmt: skip


def kind_named(name: object) -> Kind:
    """The kind of data of this name.

    Args:
        name: "image", "photo", "text" or "table".

    Returns:
        The kind.

    Raises:
        InvalidInput: There is no such kind.

    Example:
        >>> kind_named("table").features
        'none'
    """
    if not isinstance(name, str) or name not in KINDS:
        raise InvalidInput(f"There is no kind of data called {name!r}. Choose one of {', '.join(KINDS)}.")
    return KINDS[name]


def kind_with(features: str) -> Kind:
    """The kind of data whose records become these features: photographs for mirrored ones, otherwise images.

    Args:
        features: the features' name.

    Returns:
        The kind, with these features.

    Example:
        >>> [kind_with(name).name for name in ("scattering", "mirrored-scattering", "levelled-scattering")]
        ['image', 'photo', 'photo']
    """
    for kind in (KINDS["photo"], KINDS["image"]):
        if features == kind.features:
            return kind
    if features == "mirrored-scattering":  # the default of photographs before
        return replace(KINDS["photo"], features=features, travel=_TRAVEL)
    return replace(KINDS["image"], features=features)


def lost_to_steps(trainer: object, epsilon: float) -> float | None:
    """What accuracy a linear model is expected to lose because its steps are not boundless.

    Args:
        trainer: any trainer.
        epsilon: the total.

    Returns:
        A difference of accuracies; None where the public model does not speak of such a trainer.

    Example:
        >>> lost_to_steps(kind_named("image").trainer(976, 10, 60000, epsilon=1), 1.0) < 0.001
        True
    """
    if not isinstance(trainer, DpSgdTrainer) or not isinstance(trainer.model, Mlp) or trainer.model.hidden:
        return None
    own, records = trainer.settings, trainer.declared_records
    stakes = TABLE_STAKES if isinstance(own.optimizer, Adam) else kind_with(trainer.prepared).stakes
    return pace_loss(own.sampling_rate, own.steps, records, epsilon, stakes=stakes) if records >= 1 else None


def kind_of_benchmark(name: object) -> Kind | None:
    """The kind of a benchmark data set, if it has defaults by kind.

    Args:
        name: The data set's name, as :func:`dptune.training.load` takes it.

    Returns:
        The kind, or None.

    Example:
        >>> kind_of_benchmark("imdb").name
        'text'
    """
    return KINDS[_BENCHMARKS[name]] if isinstance(name, str) and name in _BENCHMARKS else None
