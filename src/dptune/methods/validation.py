"""Private validation: scores on records of the private data itself, noised and paid for.

A coin sends every record to training or to validation; the score is (number right + noise) / M with a public M. The
number is whole and the noise is an exact discrete Gaussian, so no low bit of a floating-point sum tells anything.
To a validation record a run is one noisy count, to a training record the score is post-processing, so the whole
costs ``parallel(select(base), select(DiscreteGaussian))`` (``docs/theorems/parallel.md``): nearly free. An unnoised
score must never exist outside the methods whose utilities have low sensitivity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dptune._codec import added_later
from dptune._validate import real
from dptune.accounting import Cost, DiscreteGaussian, parallel
from dptune.accounting.calibrate import calibrate_noise
from dptune.errors import InvalidInput
from dptune.methods.budget import Budget
from dptune.methods.exact import short_fraction
from dptune.methods.parts import Coin, DataPart
from dptune.methods.trial import HeldOut
from dptune.scores import Accuracy, Score
from dptune.trainer import has_own_score

__all__ = ["PrivateValidation", "validation_of"]


@dataclass(frozen=True)
class PrivateValidation:
    """Scores on private records: each record is held back by a coin, and the count of records judged right is noised.

    Args:
        fraction: the probability that a record is held back.
        denominator: a public constant, about the number of records held back; a score is the noisy count over it.
        noise: the parameter of the discrete Gaussian on the count, rounded up to a short binary fraction; None lets the
            planner choose.
        score: what one record adds to the count (:mod:`dptune.scores`), never more than 1; None: 1 if its class is
            predicted, and for targets that are numbers the absolute error.

    Raises:
        InvalidInput: a figure is outside of its range.

    Example:
        >>> import dptune as dpt
        >>> holdout = dpt.PrivateValidation(fraction=0.1, denominator=4000, noise=20.0)
        >>> holdout.cost
        DiscreteGaussian(sigma=20.0, sensitivity=1)
    """

    fraction: float
    denominator: float
    noise: float | None = None
    score: Score | None = field(default=None, metadata=added_later())

    @classmethod
    def of(
        cls, fraction: float, records: float, *, noise: float | None = None, score: Score | None = None
    ) -> PrivateValidation:
        """A share of about so many records, with the denominator that belongs to the score.

        Args:
            fraction: the probability that a record is held back.
            records: about how many records there are; public.
            noise: of the count; None lets the planner choose.
            score: what one record adds; None for the natural one.

        Returns:
            The validation.

        Example:
            >>> from dptune.scores import Balanced
            >>> PrivateValidation.of(0.1, 10000, score=Balanced((0.8, 0.2))).denominator
            400.0
        """
        return cls(fraction, (score or Accuracy()).denominator(fraction * records), noise, score)

    def __post_init__(self) -> None:
        hint = "It is the probability that a record is used for validation."
        checked = real("fraction", self.fraction, 0, 1, low_open=True, high_open=True, hint=hint)
        object.__setattr__(self, "fraction", checked)
        hint = "It is a public constant; use the expected number of validation records."
        object.__setattr__(self, "denominator", real("denominator", self.denominator, 1, 1e12, hint=hint))
        if self.noise is not None:
            object.__setattr__(self, "noise", short_fraction(real("noise", self.noise, 0.05, 1e5)))
        if self.score is not None and not isinstance(self.score, Score):
            raise InvalidInput(f"'score' must be a score such as Balanced(shares=...); got {self.score!r:.80}.")

    def chosen(self, budget: Budget, choose: Callable[[Cost], Cost]) -> PrivateValidation:
        """The validation with the least noise for which choosing by the noisy counts alone stays within the budget.

        Args:
            budget: the total.
            choose: the cost of a choice among runs, given that of one score.

        Returns:
            The validation with its noise; as it is, where the noise was given.

        Raises:
            BudgetExceeded: no noise is enough.
        """
        if self.noise is not None:
            return self
        noise = calibrate_noise(
            lambda level: budget.covering(choose(DiscreteGaussian(level))), budget.epsilon, budget.delta
        )
        return PrivateValidation(self.fraction, self.denominator, noise, self.score)

    @property
    def cost(self) -> DiscreteGaussian:
        """What one score costs a validation record."""
        if self.noise is None:
            raise InvalidInput("The noise of the validation has not been chosen yet; plan first.")
        return DiscreteGaussian(self.noise)

    @staticmethod
    def beside(trained: Cost, judged: Cost) -> Cost:
        """What a run costs whose records are either trained on or judged, by the coin.

        Args:
            trained: what a record that is trained on pays.
            judged: what one that is held back pays.

        Returns:
            The larger of the two, at every epsilon.

        Raises:
            InvalidInput: the trainer's cost is for other neighbours than the coin is proved for.

        Example:
            >>> from dptune.accounting import Gaussian
            >>> PrivateValidation.beside(Gaussian(2.0), Gaussian(9.0)).epsilon(1e-5) == Gaussian(2.0).epsilon(1e-5)
            True
        """
        if trained.neighbours != judged.neighbours:
            raise InvalidInput(
                f"Private validation is proved for {judged.neighbours!s}; this trainer declares its cost for "
                f"{trained.neighbours!s}. Give public validation records, or a trainer that declares the other cost."
            )
        return parallel(trained, judged)

    def sentence(self) -> str:
        """What a statement says about the scores."""
        added = "" if self.score is None else f" {self.score.sentence()}"
        return (
            f"Scores are whole counts of private records that were judged right, each record on its own and held back "
            f"with probability {self.fraction:g}; exact integer noise (a discrete Gaussian with parameter "
            f"{self.noise:.4g}) is added to a count, over the public constant {self.denominator:g}.{added}"
        )

    def split(self, part: DataPart) -> tuple[DataPart, DataPart]:
        """The records of a part that are trained on, and those that are held back."""
        coin = Coin(self.fraction, True, "validation")
        return part.narrowed(Coin(self.fraction, False, "validation")), part.narrowed(coin)

    def held_out(self, part: DataPart) -> HeldOut:
        """How a trial is scored on these records; the noise must have been chosen."""
        if self.noise is None:
            raise InvalidInput("The noise of the validation has not been chosen yet; plan first.")
        return HeldOut(part, self.denominator, self.noise, self.score)


def validation_of(trainer: object, given: PrivateValidation | None) -> PrivateValidation | None:
    """The validation that a plan uses; refuses a trainer that says it has no way of scoring privately.

    Args:
        trainer: what is planned for.
        given: the method's own validation, if it has one.

    Returns:
        The validation; None where the trainer's own score decides.

    Raises:
        InvalidInput: the trainer has no score of its own, and none was given.
    """
    if given is not None:
        return given
    if not has_own_score(trainer):
        raise InvalidInput(
            "The trainer has neither public validation records nor a private holdout, so its score would be an unpaid "
            "release. Give the method validation=PrivateValidation(fraction, denominator)."
        )
    return None
