"""The budget ledger: which data sets there are, what may be spent on each, and what was charged.

One SQLite file per custodian, used by several processes at once. A charge holds the serialised cost, is durable
before the first training starts and is never refunded; the rule of admission is ``filter.py``'s
(``docs/theorems/filter.md``). Nothing that depends on data, on scores or on the number of runs may be written here.
"""

from __future__ import annotations

import datetime
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dptune.accounting import Cost, compose, cost_from_json
from dptune.errors import BudgetExceeded, Corrupt, InvalidInput
from dptune.sealed._chain import Chain, Entry, Transaction
from dptune.sealed._verify import verify_entries
from dptune.sealed.filter import Curve, Filter, curve_from_json, filter_from_json

__all__ = ["Ledger", "Receipt", "Status"]

_MOST_FIXED = 64


@dataclass(frozen=True)
class Receipt:
    """Proof of a charge: its name, the rule that admitted it, and the ledger's head just after it."""

    charge: str
    dataset: str
    rule: str  # "fixed" (one account, fixed before the first release) or "renyi" (the filter)
    head: str
    number: int
    time: str


@dataclass(frozen=True)
class Status:
    """Where a data set's budget stands."""

    dataset: str
    unit: str
    epsilon: float
    delta: float
    charges: int
    spent: float  # an epsilon that covers all charges at the budget's delta
    left: float  # the epsilon of the largest Gaussian-shaped charge that would still be admitted
    rule: str


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _name(dataset: object) -> str:
    if not isinstance(dataset, str) or not dataset.strip() or len(dataset) > 200:
        raise InvalidInput(f"A data set's name must be a text of at most 200 characters; got {dataset!r}.")
    return dataset


class Ledger:
    """A custodian's ledger. Safe to use from several processes; holds no connection between calls."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._chain = Chain(self.path)
        if not self.path.is_file():
            raise InvalidInput(
                f"There is no ledger {self.path}. Make one with Ledger.create or 'dptune ledger add {self.path} ...'."
            )
        with self._chain.transaction() as chain:
            head = chain.last()
        if head is None:
            raise Corrupt(f"The ledger {self.path.name} is empty. Restore it from a backup, or use a new name.")

    @classmethod
    def create(cls, path: str | Path) -> Ledger:
        """Make a ledger, or open the one that is there."""
        path = Path(path)
        if not path.exists():
            chain = Chain(path)
            chain.create()
            with chain.transaction(write=True) as writer:
                if writer.last() is None:
                    writer.append({"kind": "ledger", "version": 1, "id": secrets.token_hex(16), "time": _now()})
        return cls(path)

    def add(self, dataset: str, epsilon: float, delta: float, unit: str = "record") -> Status:
        """Open a data set with its lifetime budget. A budget cannot be changed afterwards."""
        rule = Filter.of(epsilon, delta)
        body = {"kind": "dataset", "dataset": _name(dataset), "unit": unit, "filter": rule.describe(), "time": _now()}
        with self._chain.transaction(write=True) as chain:
            if chain.first(dataset) is not None:
                raise InvalidInput(
                    f"The ledger already has a data set {dataset!r}; a budget is given once. Use another name."
                )
            chain.append(body)
        return self.status(dataset)

    def _opened(self, chain: Transaction, dataset: str) -> tuple[Filter, Entry]:
        first = chain.first(_name(dataset))
        if first is None or first.body.get("kind") != "dataset":
            known = sorted({e.body["dataset"] for e in chain.all() if e.body["kind"] == "dataset"})
            names = ", ".join(known) if known else "none yet"
            raise InvalidInput(
                f"The ledger has no data set {dataset!r} (known: {names}). Add it with 'dptune ledger add'; nothing "
                f"was charged."
            )
        last = chain.last(dataset)
        assert last is not None  # the first one is there
        return filter_from_json(first.body["filter"]), last

    def charge(
        self, dataset: str, cost: Cost | Sequence[Cost], charge: str | None = None, fingerprint: str | None = None
    ) -> Receipt:
        """Commit a cost, or several fixed together, before anything is trained; refuse what does not fit.

        ``charge`` names the charge: asking again with the same name and costs returns the first receipt, so a run
        that was cut off pays once. The charge that opens a data set's account was fixed before any release, so it
        is admitted if its exact composition fits; every later one must pass the filter.
        """
        costs = (cost,) if isinstance(cost, Cost) else tuple(cost)
        if not costs or not all(isinstance(one, Cost) for one in costs):
            raise InvalidInput(f"'cost' must be a cost, or several; got {cost!r}.")
        name = secrets.token_hex(16) if charge is None else charge
        with self._chain.transaction() as reader:
            rule, _ = self._opened(reader, dataset)
        curve = rule.nothing
        for one in costs:  # outside the transaction: it may take a second
            curve = curve + rule.curve(one)
        exact: float | None = None
        while True:
            with self._chain.transaction(write=True) as chain:
                done = chain.charge(name)
                if done:
                    return self._again(done[0], dataset, costs)
                rule, last = self._opened(chain, dataset)
                self._same_data(chain, dataset, fingerprint)
                opening = last.body["kind"] == "dataset"
                spent = (rule.nothing if opening else curve_from_json(last.body["spent"])) + curve
                admitted = "renyi" if rule.admits(spent) else None
                if admitted is None and opening and exact is not None and exact <= rule.epsilon:
                    admitted = "fixed"
                if admitted is not None:
                    entry = chain.append(
                        {
                            "kind": "charge",
                            "dataset": dataset,
                            "charge": name,
                            "costs": [one.describe() for one in costs],
                            "curve": curve.describe(),
                            "spent": spent.describe(),
                            "rule": admitted,
                            "fingerprint": fingerprint,
                            "time": _now(),
                        }
                    )
                    return self._receipt(entry)
            if not opening or exact is not None:
                raise self._refusal(dataset, rule, last, costs)
            exact = compose(*costs).epsilon(rule.delta) if len(costs) <= _MOST_FIXED else math.inf

    @staticmethod
    def _receipt(entry: Entry) -> Receipt:
        body = entry.body
        return Receipt(body["charge"], body["dataset"], body["rule"], entry.hash, entry.number, body["time"])

    def _again(self, entry: Entry, dataset: str, costs: tuple[Cost, ...]) -> Receipt:
        if entry.body["dataset"] != dataset or entry.body["costs"] != [one.describe() for one in costs]:
            raise Corrupt(
                f"The charge {entry.body['charge'][:12]} is in the ledger with other costs; use a new run folder."
            )
        return self._receipt(entry)

    @staticmethod
    def _same_data(chain: Transaction, dataset: str, fingerprint: str | None) -> None:
        """The same records under two names would have two budgets."""
        if fingerprint is None:
            return
        for entry in chain.all():
            if entry.body.get("fingerprint") == fingerprint and entry.body["dataset"] != dataset:
                raise InvalidInput(
                    f"These records are in the ledger as {entry.body['dataset']!r}; one data set has one budget. "
                    "Charge that name; nothing was charged."
                )

    def _refusal(self, dataset: str, rule: Filter, last: Entry, costs: tuple[Cost, ...]) -> BudgetExceeded:
        spent = rule.nothing if last.body["kind"] == "dataset" else curve_from_json(last.body["spent"])
        asked = compose(*costs).epsilon(rule.delta)
        return BudgetExceeded(
            f"A charge of epsilon {asked:.4g} would exceed the budget of {dataset!r} (epsilon {rule.epsilon:g}, delta "
            f"{rule.delta:g}): {_spent(rule, spent):.4g} is spent, about {_left(rule, spent):.4g} is left for one "
            f"more charge. "
            "Plan a cheaper run; nothing was charged."
        )

    def claim(self, charge: str, run: str, dataset: str, cost: Cost) -> Receipt:
        """Use a charge that was committed earlier for a run. One charge serves one run."""
        with self._chain.transaction(write=True) as chain:
            found = chain.charge(charge)
            if not found or found[0].body["dataset"] != dataset or cost.describe() not in found[0].body["costs"]:
                raise InvalidInput(f"The ledger has no charge {charge!r} with this plan's cost for {dataset!r}.")
            names = [entry.body["run"] for entry in chain.all() if entry.body.get("claimed") == charge]
            if run not in names:
                matching = found[0].body["costs"].count(cost.describe())
                if len(names) >= matching:
                    raise InvalidInput(f"The charge {charge!r} was used by another run; nothing was charged.")
                chain.append({"kind": "claim", "claimed": charge, "run": run, "time": _now()})
        return self._receipt(found[0])

    def paid(self, charge: str, run: str) -> bool:
        """Whether a run's charge was committed and, if it was committed earlier under another name, claimed."""
        with self._chain.transaction() as chain:
            if charge == run:
                return bool(chain.charge(charge))
            return any(e.body.get("claimed") == charge and e.body["run"] == run for e in chain.all())

    def receipt(self, charge: str) -> Receipt | None:
        """The receipt of a charge, if it was committed."""
        with self._chain.transaction() as chain:
            found = chain.charge(charge)
        return self._receipt(found[0]) if found else None

    def terms(self, dataset: str) -> tuple[tuple[float, float], str]:
        """A data set's budget (epsilon, delta) and its unit of privacy."""
        with self._chain.transaction() as chain:
            rule, _ = self._opened(chain, dataset)
            first = chain.first(dataset)
        assert first is not None  # it was opened
        return (rule.epsilon, rule.delta), str(first.body["unit"])

    def status(self, dataset: str) -> Status:
        """What was spent on a data set, and what is left."""
        with self._chain.transaction() as chain:
            rule, last = self._opened(chain, dataset)
            entries = chain.all(dataset)
        charges = [entry for entry in entries if entry.body["kind"] == "charge"]
        spent = curve_from_json(last.body["spent"]) if charges else rule.nothing
        fixed = bool(charges) and charges[-1].body["rule"] == "fixed"
        total = _spent(rule, spent)
        if fixed:
            total = compose(*(cost_from_json(c) for c in charges[-1].body["costs"])).epsilon(rule.delta)
        left = 0.0 if fixed else _left(rule, spent) if charges else rule.epsilon
        how = "fixed" if fixed else "renyi" if charges else "open"
        return Status(dataset, entries[0].body["unit"], rule.epsilon, rule.delta, len(charges), total, left, how)

    def datasets(self) -> list[Status]:
        """All data sets, in the order in which they were added."""
        with self._chain.transaction() as chain:
            names = [entry.body["dataset"] for entry in chain.all() if entry.body["kind"] == "dataset"]
        return [self.status(name) for name in names]

    @property
    def head(self) -> str:
        """The hash of the newest entry: it covers the whole ledger."""
        with self._chain.transaction() as chain:
            last = chain.last()
        return "" if last is None else last.hash

    def entries(self) -> list[Entry]:
        """Every entry, checked."""
        return self._chain.check()

    def verify(self, head: str | None = None) -> str:
        """Check hashes, sums and admissions; with ``head`` (from a statement) also that nothing was rolled back.

        Returns the newest head, or raises :class:`~dptune.errors.Corrupt`.
        """
        return verify_entries(self._chain.check(), head)


def _spent(rule: Filter, spent: Curve) -> float:
    return rule.epsilon_spent(spent)


def _left(rule: Filter, spent: Curve) -> float:
    """The epsilon, at the budget's delta, of the largest Gaussian charge that the filter would still admit."""
    from dptune.accounting import Gdp  # noqa: PLC0415 - the one place that needs a mechanism

    def admitted(mu: float) -> bool:
        more = Curve(tuple(a * mu * mu / 2.0 for a in rule.orders), rule.cut)
        return rule.admits(spent + more)

    low, high = 0.0, 20.0
    for _ in range(18):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return Gdp(low).epsilon(rule.delta) if low > 1e-5 else 0.0
