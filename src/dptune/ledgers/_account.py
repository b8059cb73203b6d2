"""A data set's account: its budget, what was charged, and whether one more charge is admitted.

Read from the sealed state within one transaction; the rule is ``docs/theorems/filter.md``.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from dptune._codec import from_json
from dptune.accounting import ADDED_OR_REMOVED, Cost, Gdp, Neighbours, compose, cost_from_json
from dptune.accounting.filter import Curve, Filter
from dptune.accounting.neighbours import neighbours_from_text
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.ledgers._chain import Transaction
from dptune.ledgers.default import is_default
from dptune.ledgers.entries import DATASETS, Entry, account_key, filter_from_values
from dptune.ledgers.records import Status

__all__ = ["NOT_A_SUM", "Account", "account_of", "check_name", "new_account"]

NOT_A_SUM = "(Epsilons of several charges do not add up: together they cost something else than their sum.)"
_MOST_EPSILON, _MOST_DELTA = 500.0, 0.1  # of a raise that is advised


def check_name(what: str, value: object) -> str:
    """A name that may stand in the ledger."""
    if not isinstance(value, str) or not value.strip() or len(value) > 200 or not value.isprintable():
        raise InvalidInput(f"{what} must be a text of 1 to 200 printable characters; got {value!r:.80}.")
    return value


@dataclass(frozen=True)
class Account:
    """A data set's budget and sums, from the sealed state."""

    dataset: str
    unit: str
    neighbours: Neighbours
    rule: Filter
    charges: int
    spent: Curve
    how: str
    total: float | None  # None in entries of older versions
    last: Entry
    budgets: tuple[tuple[int, float, float], ...]  # from which entry on, epsilon, delta

    def budget_at(self, number: int | None) -> tuple[float, float]:
        """The budget that was in force for an entry; for the next one if none is named."""
        found = [(e, d) for first, e, d in self.budgets if number is None or first < number]
        return found[-1]

    def raised(self, epsilon: float, delta: float) -> Filter:
        """The rule with a larger budget: a new filter while nothing was charged, an odometer from then on."""
        rule = self.rule
        if (epsilon, delta) == (rule.epsilon, rule.delta):
            raise InvalidInput(f"The budget of {self.dataset!r} is epsilon {epsilon:g}, delta {delta:g} already.")
        larger = rule.raised_to(epsilon, delta)
        if self.charges == 0:
            return Filter.of(epsilon, delta)
        if not larger.admits(self.spent):
            raise InvalidInput(
                f"The budget of {self.dataset!r} cannot be raised to epsilon {epsilon:g}, delta {delta:g}: by the rule "
                "that holds after a raise, what was charged so far counts for more. "
                f"{_enough(rule, self.spent, delta)}"
            )
        return larger

    def check_relation(self, cost: Cost) -> None:
        """Refuse a cost under another relation: sums of both would be a guarantee about neither."""
        if cost.neighbours != self.neighbours:
            raise InvalidInput(
                f"The data set {self.dataset!r} is protected for '{self.neighbours}'; this charge is for "
                f"'{cost.neighbours}'. Plan with Budget(epsilon, delta, neighbours) of the data set; nothing was "
                "charged."
            )

    def admission(self, spent: Curve, exact: float) -> str | None:
        """The rule that admits a sum, or None; exact composition is for the charge that opens the account alone."""
        if self.rule.admits(spent):
            return "odometer" if self.rule.raised else "renyi"
        return "fixed" if self.charges == 0 and exact <= self.rule.epsilon else None

    def covered(self) -> float:
        """An epsilon that covers all charges at the budget's delta; a single charge costs what it costs alone."""
        alone = self.last.body.get("epsilon") if self.charges == 1 else None
        if alone is not None:
            return min(float(alone), math.inf if self.total is None else self.total)
        if self.total is not None or self.charges == 0:
            return self.total or 0.0
        if self.how == "fixed":
            return compose(*(cost_from_json(c) for c in self.last.body["costs"])).epsilon(self.rule.delta)
        return self.rule.epsilon_spent(self.spent)

    def left(self) -> float:
        """The epsilon of the largest Gaussian charge that would still be admitted."""
        if self.charges == 0:
            return self.rule.epsilon
        return 0.0 if self.how == "fixed" else _left(self.rule, self.spent)

    def status(self) -> Status:
        """Where the budget stands."""
        rule = self.rule
        spent, left = self.covered(), self.left()
        figures = rule.epsilon, rule.delta, self.charges, spent, left
        return Status(self.dataset, self.unit, *figures, self.how, str(self.neighbours))

    def refusal(self, asked: float, with_it: Curve, ledger: Path) -> BudgetExceeded:
        """What is said when a charge is not admitted: what all cost so far, what they would cost with this one, and the
        command that would admit it."""
        rule, left = self.rule, self.left()
        more = rule.epsilon_spent(with_it)
        would = f"about {more:.4g}" if math.isfinite(more) else "more than can be bounded"
        reason = f"all charges so far together cost {self.covered():.4g}, with this one they would cost {would}"
        if self.how == "fixed":
            reason = "its first charge was admitted by exact composition, which leaves nothing for later ones"
        smaller = f" The largest Gaussian charge that would still be admitted is {left:.4g}." if left < asked else ""
        return BudgetExceeded(
            f"A charge of epsilon {asked:.4g} would exceed the budget of {self.dataset!r} (epsilon {rule.epsilon:g}, "
            f"delta {rule.delta:g}): {reason}.{smaller} {NOT_A_SUM} Plan a cheaper run; nothing was charged. "
            f"{self._advice(with_it, ledger)}"
        )

    def _advice(self, with_it: Curve, ledger: Path) -> str:
        """The command that raises the budget by as much as a charge needs."""
        figures = _needed(self.rule, with_it)
        if figures is None:
            return "No raise would admit it."
        named = [] if is_default(ledger) else [str(ledger)]
        words = ["dptune", "ledger", "raise", *named, self.dataset]
        command = f"{shlex.join(words)} --epsilon {figures[0]!r} --delta {figures[1]!r}"
        return f"Or raise the budget, which weakens its guarantee (docs/sealed_runs.md): `{command}`"


def _enough(rule: Filter, spent: Curve, delta: float) -> str:
    figures = _needed(rule, spent, delta)
    return "No budget is enough." if figures is None else f"Epsilon {figures[0]!r}, delta {figures[1]!r} is enough."


def _needed(rule: Filter, spent: Curve, delta: float | None = None) -> tuple[float, float] | None:
    """The smallest budget, a little rounded up, to which a raise admits a sum; None if there is none."""
    least = rule.delta if delta is None else delta
    while least < _MOST_DELTA:
        if spent.infinite <= rule.infinite * (least / rule.delta):
            epsilon = rule.raised_to(_MOST_EPSILON, least).epsilon_spent(spent)
            if epsilon > _MOST_EPSILON:
                return None
            return _rounded_up(max(epsilon, rule.epsilon)), least
        least = _rounded_up(10.0 * least, digits=2)
    return None


def _rounded_up(value: float, digits: int = 4) -> float:
    """The next decimal of so many digits."""
    step = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    rounded = math.ceil(value / step * (1.0 - 1e-12)) * step
    near = float(f"{rounded:.{digits}g}")
    return near if near >= value else float(f"{rounded + step:.{digits}g}")


def new_account(dataset: str, unit: str, neighbours: Neighbours, rule: Filter, last: Entry) -> Account:
    """The account that a charge is about to open."""
    figures = 0, rule.nothing, "open", None, last
    return Account(dataset, unit, neighbours, rule, *figures, ((0, rule.epsilon, rule.delta),))


def account_of(chain: Transaction, dataset: str) -> Account:
    """The account of a data set, which must be in the ledger."""
    name = check_name("A data set's name", dataset)
    found = chain.state.get(account_key(name))
    if found is None:
        known = ", ".join(sorted(chain.state.get(DATASETS, []))) or "none yet"
        raise InvalidInput(f"The ledger has no data set {dataset!r} (known: {known}). Add it with 'dptune ledger add'.")
    rule = filter_from_values(found["filter"])
    spent = rule.nothing if found["spent"] is None else from_json(found["spent"], Curve, "a Renyi curve")
    last = chain.entry(*found["last"])
    relation = neighbours_from_text(found.get("neighbours", str(ADDED_OR_REMOVED)))
    sums = found["charges"], spent, found["rule"], found["total"], last
    budgets = found.get("budgets", [[0, rule.epsilon, rule.delta]])
    return Account(name, found["unit"], relation, rule, *sums, tuple((n, e, d) for n, e, d in budgets))


def _left(rule: Filter, spent: Curve) -> float:
    """The epsilon, at the budget's delta, of the largest Gaussian charge that the filter would still admit."""

    def admitted(mu: float) -> bool:
        more = Curve(tuple(a * mu * mu / 2.0 for a in rule.orders), rule.cut)
        return rule.admits(spent + more)

    low, high = 0.0, 20.0
    for _ in range(18):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return Gdp(low).epsilon(rule.delta) if low > 1e-5 else 0.0
