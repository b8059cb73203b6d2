"""Adaptive sampling: DP-HyPO's Framework 1 and Algorithm 3, with the sound and tighter account.

Earlier scores may steer the sampling law as long as it stays within [c, C] times the prior; the cost is
``select_adaptive(base, runs, (c, C))`` (``docs/theorems/adaptive.md``). Adaptivity buys compute, not privacy: hits
on any set are at most those of C times more uniform runs, which are usually cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dptune._typing import Array
from dptune._validate import integer, real
from dptune.accounting import Cost, select_adaptive
from dptune.errors import InvalidInput
from dptune.methods._machinery.costs import TrainingCosts
from dptune.methods._machinery.projection import project, project_kl
from dptune.methods._machinery.search import BestTrial
from dptune.methods.comparison import TOP, Entry, Setting
from dptune.methods.parts import DataPart
from dptune.methods.random_stopping import RandomStopping, StoppingPlan, Tuning
from dptune.methods.surrogate import GaussianProcess, Rule, rule_named
from dptune.methods.trial import Params, Search, Trial
from dptune.methods.validation import PrivateValidation
from dptune.randomness import Randomness
from dptune.spaces import Candidates
from dptune.spaces.dimensions import place_at

__all__ = ["Adaptive", "AdaptivePlan", "AdaptiveTuning", "Steering"]


@dataclass(frozen=True)
class Steering:
    """How scores steer the sampling law: the box around the prior, and what proposes a law inside it.

    Args:
        density: the box (c, C): the law is kept within c and C times the prior.
        tau: the weight of the surrogate's uncertainty.
        beta: the inverse temperature of the softmax; the default suits scores between 0 and 1.
        rule: "gp" or the name of a rule given to ``register_rule``.
        penalty: above 0, the weight of a Kullback-Leibler term in the projection.
        points: in continuous spaces, how many points are drawn from the prior for every choice.
        batch: how many trials share one law.
    """

    density: tuple[float, float] = (0.75, 2.0)
    tau: float = 0.1
    beta: float = 20.0
    rule: str = "gp"
    penalty: float = 0.0
    points: int = 500
    batch: int = 1

    def __post_init__(self) -> None:
        c, big_c = self.density
        hint = "The sampling law is kept within c and C times the prior, so c <= 1 <= C."
        low = real("density c", c, 0, 1, low_open=True, hint=hint)
        object.__setattr__(self, "density", (low, real("density C", big_c, 1, 1e6, hint=hint)))
        GaussianProcess(self.tau, self.beta)
        real("penalty", self.penalty, 0)
        integer("points", self.points, 2, 100_000)
        integer("batch", self.batch, 1)

    def proposer(self) -> Rule:
        """The rule that proposes a law; refuses the name of one that is not registered."""
        return GaussianProcess(self.tau, self.beta) if self.rule == "gp" else rule_named(self.rule)


@dataclass(frozen=True)
class AdaptiveTuning(Tuning):
    """Runs whose configurations follow earlier scores within a box around the prior.

    Args:
        steering: the box, and what proposes laws.
    """

    steering: Steering

    method: ClassVar[str] = "adaptive"

    def choose(self, base: Cost) -> Cost:
        """The cost of choosing the best among runs that each cost ``base``, whatever law was proposed in the box."""
        return select_adaptive(base, self.runs, self.steering.density)

    @property
    def batch(self) -> int:
        """How many runs share one sampling law."""
        return self.steering.batch

    def start(self, randomness: Randomness, default: Params) -> Search:
        """Begin the search.

        Args:
            randomness: the run's.
            default: what is released if all runs fail.
        """
        return AdaptiveSearch(self, randomness, default)


@dataclass(frozen=True)
class AdaptivePlan(StoppingPlan):
    """The best of K runs is released; earlier scores steered later draws."""

    method: ClassVar[str] = "adaptive"
    theorem: ClassVar[str] = "docs/theorems/adaptive.md"


@dataclass(frozen=True)
class Adaptive(RandomStopping):
    """Random stopping whose sampling law follows the scores, within a box around the prior (DP-HyPO).

    Args:
        space: what may be tried, with its prior.
        runs: the law of the number of runs, for example ``Geometric(10)``.
        default: what is released if nothing ran or all failed; by default the middle of the space.
        validation: scores on private records, noised and paid for.
        costs: how configurations of different cost are put together, as in :class:`RandomStopping`.
        density: the box (c, C): the law is kept within c and C times the prior.
        tau: the weight of the surrogate's uncertainty.
        beta: the inverse temperature of the softmax; the default suits scores between 0 and 1, and a law that is
            much sharper than the box loses by the projection.
        rule: "gp" (Gaussian process, upper confidence bound) or the name of a rule given to ``register_rule``.
        penalty: above 0, the weight of a Kullback-Leibler term in the projection.
        points: in continuous spaces, how many points are drawn from the prior for every choice.
        batch: how many trials share one law.

    Raises:
        InvalidInput: an argument is not what it must be, or no rule of this name is registered.

    Example:
        >>> import dptune as dpt
        >>> space = dpt.Space(learning_rate=dpt.Float(1e-3, 10, log=True))
        >>> dpt.Adaptive(space, dpt.Geometric(10), density=(0.5, 2)).density
        (0.5, 2.0)
    """

    density: tuple[float, float] = (0.75, 2.0)
    tau: float = 0.1
    beta: float = 20.0
    rule: str = "gp"
    penalty: float = 0.0
    points: int = 500
    batch: int = 1

    name: ClassVar[str] = "adaptive"
    place: ClassVar[int] = 4
    planned: ClassVar[type[StoppingPlan]] = AdaptivePlan

    def __post_init__(self) -> None:
        super().__post_init__()
        steering = self._steering()
        steering.proposer()
        object.__setattr__(self, "density", steering.density)

    @classmethod
    def entries(cls, setting: Setting) -> tuple[Entry, ...]:
        """Its rows in a comparison of all methods: its chance lies between those of c and of C times the prior."""
        low, high = (setting.runs.hit_probability(min(1.0, bound * TOP)) for bound in setting.density)
        method = cls(setting.candidates, setting.runs, density=setting.density)
        return (Entry("adaptive", method, setting.runs.expected, lambda _: (low, high), "any rule"),)

    def _steering(self) -> Steering:
        return Steering(self.density, self.tau, self.beta, self.rule, self.penalty, self.points, self.batch)

    def choose(self, base: Cost) -> Cost:
        """The cost of choosing the best among runs that each cost ``base``, whatever law was proposed in the box."""
        return select_adaptive(base, self.runs, self.density)

    def tuning(self, base: TrainingCosts, part: DataPart, fixed: Params, validated: PrivateValidation | None) -> Tuning:
        """The runs of this method, given what a training costs.

        Args:
            base: the cost of one training of every configuration.
            part: the records that are tuned on.
            fixed: public parameters of all trainings.
            validated: the private validation with its noise, if there is one.
        """
        return AdaptiveTuning(base, part, fixed, validated, self.space, self.runs, self._steering())


class AdaptiveSearch(BestTrial):
    """One choice after the other (or batch after batch), each from the projected law."""

    def __init__(self, tuning: AdaptiveTuning, randomness: Randomness, default: Params) -> None:
        super().__init__((), randomness, default)
        self._tuning, self._space, self._steering = tuning, tuning.space, tuning.steering
        self._count = tuning.count(randomness)
        self._rule = tuning.steering.proposer()
        self._chosen: list[Array] = []  # coordinates of the configurations tried
        self._codes = self._space.encode(self._space.items) if isinstance(self._space, Candidates) else None

    @property
    def done(self) -> bool:
        """Whether all runs were told."""
        return len(self._trials) == self._count and super().done

    def ask(self) -> list[Trial]:
        """The next batch, from a law that follows all that was told; nothing until the last one is told."""
        if super().done and len(self._trials) < self._count:
            first = len(self._trials)
            for j in range(first, min(first + self._steering.batch, self._count)):
                self._trials[j] = self._next(j, first)
        return super().ask()

    def law(self, points: Array, prior: Array, seen: int) -> Array:
        """The sampling law over some points, projected to the box.

        Args:
            points: their coordinates.
            prior: the prior's weight of each.
            seen: how many of the first outcomes it may follow.

        Returns:
            A probability for each point.
        """
        scores = np.array([self._outcomes.scores[j] for j in range(seen)])
        finite = scores[np.isfinite(scores)]
        if len(finite) == 0:
            weights = prior
        else:
            # A failure tells the rule that the place is bad, not how bad.
            filled = np.where(np.isfinite(scores), scores, finite.min())
            weights = self._weights(np.stack(self._chosen[:seen]), filled, points, prior)
        density, penalty = self._steering.density, self._steering.penalty
        return project_kl(weights, prior, density, penalty) if penalty > 0 else project(weights, prior, density)

    def _weights(self, seen: Array, scores: Array, points: Array, prior: Array) -> Array:
        """What the rule prefers; the prior where it fails, because a run that stops would tell about scores."""
        try:
            raw = np.asarray(self._rule(seen, scores, points), dtype=float)
        except (Exception, SystemExit):
            return prior
        # Softmax is a density: the prior is its reference measure.
        usable = raw.shape == prior.shape and bool(np.isfinite(raw).all()) and bool((raw >= 0).all())
        return raw * prior if usable and 0 < (raw * prior).sum() < np.inf else prior

    def _next(self, j: int, seen: int) -> Trial:
        """The next trial, drawn from the projected law of the first ``seen`` outcomes."""
        u = self._randomness.uniform("candidate", j)
        if isinstance(self._space, Candidates) and self._codes is not None:
            prior = np.asarray(self._space.prior)
            place = place_at(np.cumsum(self.law(self._codes, prior, seen)), u)
            self._chosen.append(self._codes[place])
            return self._tuning.trial(j, dict(self._space.items[place]), ("trial", j), place)
        # Points drawn from the prior, then one of them from weights within [c, C] / m: the density of
        # what is drawn stays within [c, C] times the prior.
        if isinstance(self._space, Candidates):
            raise InvalidInput("A list of candidates has coordinates.")
        m = self._steering.points
        units = self._randomness.generator("points", j).random((m, len(self._space.dimensions)))
        units = np.clip(units, 2.0**-54, 1.0 - 2.0**-53)
        offered = [self._space.draw(lambda i, row=row: float(row[i])) for row in units]  # type: ignore[misc]
        codes = self._space.encode(offered)
        place = place_at(np.cumsum(self.law(codes, np.full(m, 1.0 / m), seen)), u)
        self._chosen.append(codes[place])
        return self._tuning.trial(j, offered[place], ("trial", j))
