"""Adaptive sampling: DP-HyPO's Framework 1 and Algorithm 3, with the sound and tighter account.

Earlier scores may steer the sampling law as long as it stays within [c, C] times the prior; the cost is
``select_adaptive(base, runs, (c, C))`` (``docs/theorems/adaptive.md``). Adaptivity buys compute, not privacy: hits
on any set are at most those of C times more uniform runs, which are usually cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune._validate import integer, real
from dptune.accounting import Cost, select_adaptive
from dptune.accounting.runs import runs_from_json
from dptune.errors import InvalidInput
from dptune.methods._costs import Priced
from dptune.methods._search import Told, make_trial, winner_of
from dptune.methods.base import Outcome, Params, Plan, Randomness, Selection, Trial, register_search
from dptune.methods.projection import project, project_kl
from dptune.methods.random_stopping import RandomStopping, meaning_from
from dptune.methods.surrogate import GaussianProcess, Rule, rule_named
from dptune.methods.validation import PrivateValidation
from dptune.spaces import Candidates, space_from_json

__all__ = ["Adaptive"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Adaptive(RandomStopping):
    """Random stopping whose sampling law follows the scores within ``density`` = (c, C) times the prior.

    ``rule`` is "gp" (Gaussian process, upper confidence bound with weight ``tau``, softmax with inverse temperature
    ``beta``) or the name of a rule given to ``register_rule``. The default ``beta`` suits scores between 0 and 1; a law
    that is much sharper than the box loses by the projection. ``penalty`` > 0 adds the KL term to the projection.
    In continuous spaces ``points`` are drawn from the prior for every choice. ``batch`` trials share one law.
    """

    density: tuple[float, float] = (0.75, 2.0)
    tau: float = 0.1
    beta: float = 20.0
    rule: str = "gp"
    penalty: float = 0.0
    points: int = 500
    batch: int = 1

    name = "adaptive"
    theorem = "docs/theorems/adaptive.md"

    def __post_init__(self) -> None:
        super().__post_init__()
        c, big_c = self.density
        hint = "The sampling law is kept within c and C times the prior, so c <= 1 <= C."
        low = real("density c", c, 0, 1, low_open=True, hint=hint)
        object.__setattr__(self, "density", (low, real("density C", big_c, 1, 1e6, hint=hint)))
        GaussianProcess(self.tau, self.beta)
        real("penalty", self.penalty, 0)
        integer("points", self.points, 2, 100_000)
        integer("batch", self.batch, 1)
        if self.rule != "gp":
            rule_named(self.rule)

    def choose(self, base: Cost) -> Cost:
        return select_adaptive(base, self.runs, self.density)

    def settings(self, priced: Priced, validation: PrivateValidation | None, trainer: Any, share: float) -> Params:
        return {
            **super().settings(priced, validation, trainer, share),
            "density": list(self.density),
            "tau": self.tau,
            "beta": self.beta,
            "rule": self.rule,
            "penalty": self.penalty,
            "points": self.points,
            "batch": self.batch,
        }


class AdaptiveSearch:
    """One choice after the other (or batch after batch), each from the projected law."""

    def __init__(self, plan: Plan, randomness: Randomness) -> None:
        self._randomness, self._default, self._told = randomness, plan.default, Told()
        self._settings = plan.settings
        self._space = space_from_json(plan.settings["space"])
        self._count = runs_from_json(plan.settings["runs"]).sample(lambda: randomness.uniform("runs"))
        name = plan.settings["rule"]
        gp = GaussianProcess(plan.settings["tau"], plan.settings["beta"])
        self._rule: Rule = gp if name == "gp" else rule_named(name)
        self._trials: dict[int, Trial] = {}
        self._chosen: list[Array] = []  # coordinates of the configurations tried
        self._codes = self._space.encode(self._space.items) if isinstance(self._space, Candidates) else None

    @property
    def done(self) -> bool:
        return len(self._trials) == self._count and self._told.has(self._trials)

    def ask(self) -> list[Trial]:
        if self._told.has(self._trials) and len(self._trials) < self._count:
            first = len(self._trials)
            for j in range(first, min(first + self._settings["batch"], self._count)):
                self._trials[j] = self._next(j, first)
        return self._told.ask(self._trials.values())

    def tell(self, outcome: Outcome) -> None:
        self._told.tell(outcome)

    def result(self) -> Selection:
        if not self.done:
            raise InvalidInput("The search is not done; tell every outcome first.")
        return winner_of(self._trials, self._told.scores, self._randomness, self._default)

    def law(self, points: Array, prior: Array, seen: int) -> Array:
        """The projected law over points, from the first ``seen`` outcomes."""
        density = (self._settings["density"][0], self._settings["density"][1])
        scores = np.array([self._told.scores[j] for j in range(seen)])
        finite = scores[np.isfinite(scores)]
        if len(finite) == 0:
            weights = prior
        else:
            # A failure tells the rule that the place is bad, not how bad.
            filled = np.where(np.isfinite(scores), scores, finite.min())
            weights = self._weights(np.stack(self._chosen[:seen]), filled, points, prior)
        penalty = self._settings["penalty"]
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
        u = self._randomness.uniform("candidate", j)
        if isinstance(self._space, Candidates) and self._codes is not None:
            prior = np.asarray(self._space.prior)
            place = _drawn(self.law(self._codes, prior, seen), u)
            self._chosen.append(self._codes[place])
            return make_trial(self._settings, j, dict(self._space.items[place]), ("trial", j), place=place)
        # Points drawn from the prior, then one of them from weights within [c, C] / m: the density of
        # what is drawn stays within [c, C] times the prior.
        if isinstance(self._space, Candidates):
            raise InvalidInput("A list of candidates has coordinates.")
        m = self._settings["points"]
        units = self._randomness.generator("points", j).random((m, len(self._space.dimensions)))
        units = np.clip(units, 2.0**-54, 1.0 - 2.0**-53)
        offered = [self._space.draw(lambda i, row=row: float(row[i])) for row in units]  # type: ignore[misc]
        codes = self._space.encode(offered)
        place = _drawn(self.law(codes, np.full(m, 1.0 / m), seen), u)
        self._chosen.append(codes[place])
        return make_trial(self._settings, j, offered[place], ("trial", j))


def _drawn(law: Array, u: float) -> int:
    cumulative = np.cumsum(law)
    return min(int(np.searchsorted(cumulative, u * cumulative[-1], side="right")), len(law) - 1)


def adaptive_from(settings: Params) -> Adaptive:
    """The method that has these settings, as far as its cost goes."""
    law = runs_from_json(settings["runs"])
    low, high = settings["density"]
    return Adaptive(space_from_json(settings["space"]), law, density=(low, high))


register_search(Adaptive.name, lambda settings: meaning_from(adaptive_from(settings), settings))(AdaptiveSearch)
