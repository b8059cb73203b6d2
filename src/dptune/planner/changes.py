"""The defaults of a kind of data with some settings changed; what is not said follows, so that all still fit together.

The rule of a kind is about a way: learning rate x clip norm x steps (:mod:`dptune.planner.kinds`). Whoever changes one
of these, or the optimiser, should not lose the others, so the learning rate moves with them. Touches no data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dptune import _validate
from dptune.data import Dataset
from dptune.planner.defaults import default_space
from dptune.planner.kinds import Kind
from dptune.spaces import Float, Space
from dptune.training import Adam, AdamBC, DpSgdTrainer, Momentum
from dptune.training.clipping import Clipping, Quantile, named_clipping
from dptune.training.optimizers import Optimizer, Schedule
from dptune.training.whitening import Whitening

__all__ = ["Changes"]


@dataclass(frozen=True)
class Changes:
    """What is other than the defaults of a kind of data; None leaves a setting as it is.

    Args:
        optimizer: the optimiser; Adam's learning rates are those of tables.
        schedule: of the learning rate.
        clipping: a clipping rule, or its name; "quantile" begins at a clip norm of 1.
        whitening: whether trainings begin with noised second moments.
        batch_size: how many records are expected in a batch.
        steps: how many batches there are; with fewer of them each goes further.
        clip_norm: the clip norm; with a smaller one the learning rate is larger.
        learning_rate: the learning rate, and the middle of those that are tried.

    Raises:
        InvalidInput: a figure is out of range.

    Example:
        >>> from dptune.planner.kinds import kind_named
        >>> image, half = kind_named("image"), Changes(steps=400, clipping="automatic")
        >>> usual, made = (one.trainer(976, 10, 60000, epsilon=1) for one in (image, half.of(image)))
        >>> made.settings.steps, made.settings.learning_rate / usual.settings.learning_rate
        (400, 2.0)
    """

    optimizer: Optimizer | None = None
    schedule: Schedule | None = None
    clipping: Clipping | str | None = None
    whitening: bool | None = None
    batch_size: float | None = None
    steps: int | None = None
    clip_norm: float | None = None
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            _validate.integer("steps", self.steps, 1)
        for name in ("batch_size", "clip_norm", "learning_rate"):
            if getattr(self, name) is not None:
                _validate.real(name, getattr(self, name), 0.0, low_open=True)

    def of(self, kind: Kind) -> Changed:
        """The defaults of this kind with these changes.

        Args:
            kind: the kind of data.

        Returns:
            What makes a trainer and a space, as the kind does.
        """
        return Changed(kind if self.whitening is None else replace(kind, whitened=self.whitening), self)


@dataclass(frozen=True)
class Changed:
    """A kind of data with some settings changed.

    Args:
        kind: the kind.
        changes: what is other than its defaults.
    """

    kind: Kind
    changes: Changes

    def trainer(
        self, features: int, classes: int, records: int, *, epsilon: float, validation: Dataset | None = None
    ) -> DpSgdTrainer:
        """A private linear model from public figures alone.

        Args:
            features: How many features a record has.
            classes: How many classes there are.
            records: About how many records there are.
            epsilon: The total budget.
            validation: Public records for scores.

        Returns:
            The trainer; its noise is set by a plan.

        Raises:
            InvalidInput: a setting is out of range.
        """
        usual = self.kind.trainer(features, classes, records, epsilon=epsilon, validation=validation)
        own, said = usual.settings, self.changes
        steps = own.steps if said.steps is None else said.steps
        optimizer = own.optimizer if said.optimizer is None else said.optimizer
        clipping = own.rule if said.clipping is None else named_clipping(said.clipping)
        clip = own.clip_norm if said.clip_norm is None else said.clip_norm
        if said.clip_norm is None and isinstance(clipping, Quantile):
            clip = 1.0  # it finds its own
        adaptive = isinstance(optimizer, Adam | AdamBC)
        if adaptive and not isinstance(own.optimizer, Adam | AdamBC):
            rate = float(default_space(steps).default["learning_rate"])
        else:
            rate = own.learning_rate * own.steps / steps
            if not adaptive:
                rate *= own.clip_norm / clip * _reach(own.optimizer) / _reach(optimizer)
        batch = own.batch_size if said.batch_size is None else said.batch_size
        settings = replace(
            own,
            batch_size=batch,
            sampling_rate=batch / records,
            steps=steps,
            clip_norm=clip,
            clipping=clipping,
            optimizer=optimizer,
            schedule=own.schedule if said.schedule is None else said.schedule,
            learning_rate=rate if said.learning_rate is None else said.learning_rate,
        )
        asked = Whitening(centred=self.kind.name == "table") if said.whitening else None  # that is never left out
        whitening = usual.whitening or asked
        return replace(usual, settings=settings, whitening=whitening)

    def space(self, features: int, records: int, *, epsilon: float) -> Space:
        """What is tried with :meth:`trainer`: learning rates, likeliest around its own.

        Args:
            features: How many features a record has.
            records: About how many records there are.
            epsilon: The total budget.

        Returns:
            A space with one parameter.
        """
        usual = self.kind.trainer(features, 2, records, epsilon=epsilon).settings
        made = self.trainer(features, 2, records, epsilon=epsilon).settings
        adaptive = [isinstance(one.optimizer, Adam | AdamBC) for one in (usual, made)]
        other = default_space(made.steps) if adaptive == [False, True] else None
        middle = usual.learning_rate if other is None else float(other.default["learning_rate"])
        ((name, rates),) = (other or self.kind.space(features, records, epsilon=epsilon)).dimensions
        assert isinstance(rates, Float)
        return Space(**{name: rates.times(made.learning_rate / middle)})


def _reach(optimizer: Optimizer) -> float:
    """How far one gradient moves a weight over all steps, in learning rates."""
    return 1.0 / (1.0 - optimizer.beta) if isinstance(optimizer, Momentum) else 1.0
