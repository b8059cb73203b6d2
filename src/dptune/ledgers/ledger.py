"""The budget ledger: which data sets there are, what may be spent on each, and what was charged.

One SQLite file per custodian, used by several processes at once. A charge holds the serialised cost, is durable
before the first training starts and is never refunded; the rule of admission is ``filter.py``'s
(``docs/theorems/filter.md``). Nothing that depends on data, on scores or on the number of runs may be written here,
and nothing is written when a run ends. The class is the whole contract of a ledger, so it stays in one file; the
file's format, accounts and what readers see are in the files beside it.
"""

from __future__ import annotations

import datetime
import math
import secrets
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dptune._codec import to_values
from dptune.accounting import ADDED_OR_REMOVED, Cost, Neighbours, compose, cost_from_json
from dptune.accounting.filter import Curve, Filter
from dptune.accounting.neighbours import check_relation
from dptune.errors import Corrupt, InvalidInput
from dptune.ledgers._account import account_of, check_name, new_account
from dptune.ledgers._chain import Chain, Transaction
from dptune.ledgers._verify import verify_entries
from dptune.ledgers.entries import DATASETS, Entry, account_key, charge_key, claims_key, filter_values
from dptune.ledgers.records import Charge, Purpose, Receipt, Status, charge_of, receipt_of

__all__ = ["Ledger"]

_MOST_FIXED = 64


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Ledger:
    """A custodian's ledger. Safe to use from several processes; holds no connection between calls.

    Args:
        path: the file; ``path.key`` beside it holds the key that seals it.

    Raises:
        InvalidInput: there is no such file, or an older version made it.
        Corrupt: the file was damaged or changed.

    Example:
        >>> from dptune import PureDp
        >>> book = Ledger.create("hospital.ledger")
        >>> book.add("icu", epsilon=3, delta=1e-5).left
        3.0
        >>> receipt = book.charge("icu", PureDp(0.5), "run 1")
        >>> book.status("icu").charges
        1
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._chain = Chain(self.path)
        if not self.path.is_file():
            raise InvalidInput(
                f"There is no ledger {self.path}. Make one with Ledger.create or 'dptune ledger add {self.path} ...'."
            )
        with self._chain.transaction():
            pass

    @classmethod
    def create(cls, path: str | Path) -> Ledger:
        """Make a ledger, or open the one that is there."""
        path = Path(path)
        if not path.exists():
            Chain(path).create({"kind": "ledger", "version": 2, "id": secrets.token_hex(16), "time": _now()})
        return cls(path)

    @classmethod
    def rebuild(cls, path: str | Path) -> Path:
        """Make a ledger anew from its entries: one of an older version, or one whose sealed state or key is lost.

        Every entry is checked as by :meth:`verify` and kept as it is. With a new key, records that were charged
        before are no longer recognised under another name.

        Returns:
            Where the old file is kept.

        Raises:
            Corrupt: an entry does not hold; nothing was changed.
        """
        path = Path(path)
        if not path.is_file():
            raise InvalidInput(f"There is no ledger {path}.")

        def judge(entries: list[Entry]) -> dict[str, Any]:
            verify_entries(entries)
            return {"kind": "rebuilt", "version": 2, "time": _now()}

        return Chain(path).rebuild(judge)

    def add(
        self,
        dataset: str,
        epsilon: float,
        delta: float,
        unit: str = "record",
        neighbours: Neighbours = ADDED_OR_REMOVED,
    ) -> Status:
        """Open a data set with its lifetime budget, fixed before the first release; :meth:`raise_budget` weakens it.

        Args:
            dataset: its name.
            epsilon: the most that may ever be spent on it.
            delta: the delta at which that is counted.
            unit: what is protected, in the custodian's words: record, patient, user.
            neighbours: the relation of every charge. A unit with at most k records is ``ADDED_OR_REMOVED.group(k)``;
                where it is left out, statements say that one record for each unit is assumed.

        Returns:
            Where the budget stands.

        Raises:
            InvalidInput: the ledger has this data set already, or an argument is not acceptable.

        Examples:
            >>> import tempfile
            >>> folder = tempfile.TemporaryDirectory()
            >>> book = Ledger.create(f"{folder.name}/hospital.ledger")
            >>> book.add("icu", 3, 1e-5, "patient", ADDED_OR_REMOVED.group(5)).neighbours
            'at most 5 records added or removed'
            >>> folder.cleanup()
        """
        body = _opening(dataset, Filter.of(epsilon, delta), unit, neighbours)
        with self._chain.transaction(write=True) as chain:
            if account_key(body["dataset"]) in chain.state:
                raise InvalidInput(
                    f"The ledger already has a data set {dataset!r}; a budget is given once. Use another "
                    "name, or 'dptune ledger raise'."
                )
            chain.append(body)
        return self.status(dataset)

    def raise_budget(self, dataset: str, epsilon: float, delta: float | None = None) -> Status:
        """Give a data set a larger budget.

        Before the first charge that is as if it had been opened with it. Afterwards the raise may follow from what was
        released, so the guarantee changes: with probability 1 - delta the privacy loss of everything released so far
        is, at any moment since the raise, at most epsilon (``docs/theorems/filter.md``). Statements of later charges
        say so. Decide on a raise by releases and public things alone, never by what a vault or the records show.

        Args:
            dataset: its name.
            epsilon: the new budget.
            delta: the new delta; by default the one that it has.

        Returns:
            Where the budget stands.

        Raises:
            InvalidInput: the data set is unknown, the budget would not be larger, or would not cover what was charged.

        Examples:
            >>> import tempfile
            >>> from dptune.accounting import Gdp
            >>> folder = tempfile.TemporaryDirectory()
            >>> book = Ledger.create(f"{folder.name}/hospital.ledger")
            >>> _ = book.add("icu", 1, 1e-5)
            >>> _ = book.charge("icu", Gdp(0.2))
            >>> book.raise_budget("icu", 2).rule
            'odometer'
            >>> folder.cleanup()
        """
        with self._chain.transaction(write=True) as chain:
            account = account_of(chain, dataset)
            rule = account.raised(float(epsilon), account.rule.delta if delta is None else float(delta))
            body = {
                "kind": "raise",
                "version": 3,
                "dataset": dataset,
                "filter": filter_values(rule),
                "charges": account.charges,
                "total": rule.epsilon_spent(account.spent) if account.charges else None,
                "time": _now(),
            }
            chain.append(body)
        return self.status(dataset)

    def charge(
        self,
        dataset: str,
        cost: Cost | Sequence[Cost],
        charge: str | None = None,
        purpose: Purpose | None = None,
        opening: tuple[float, float] | None = None,
        unit: str = "record",
    ) -> Receipt:
        """Commit a cost, or several fixed together, before anything is trained; refuse what does not fit.

        The charge that opens a data set's account was fixed before any release, so it is admitted if its exact
        composition fits; every later one must pass the filter.

        Args:
            dataset: what is charged.
            cost: the cost, or several that were fixed together.
            charge: its name. Asking again with the same name and costs returns the first receipt, so a run that was
                cut off pays once.
            purpose: what the charge is for.
            opening: the budget (epsilon, delta) with which a data set is opened that is not in the ledger yet, in one
                step with its first charge; without it such a data set is refused.
            unit: what is protected, in a data set that the charge opens.

        Returns:
            The receipt.

        Raises:
            BudgetExceeded: the charge does not fit; nothing was charged.
            InvalidInput: the data set is unknown, or the cost is a guarantee about other neighbours.
        """
        costs = (cost,) if isinstance(cost, Cost) else tuple(cost)
        if not costs or not all(isinstance(one, Cost) for one in costs):
            raise InvalidInput(f"'cost' must be a cost, or several; got {cost!r}.")
        name = secrets.token_hex(16) if charge is None else check_name("A charge's name", charge)
        with self._chain.transaction() as reader:
            rule = self._rule_for(reader, dataset, costs, opening)
        curve, exact = _priced(rule, costs)  # outside the transaction: it may take a second
        with self._chain.transaction(write=True) as chain:
            done = _find_charge(chain, name)
            if done is not None:
                return self._again(done, dataset, costs, purpose)
            opens = opening is not None and account_key(dataset) not in chain.state
            relation = costs[0].neighbours
            account = new_account(dataset, unit, relation, rule, chain.last()) if opens else account_of(chain, dataset)
            for one in costs:
                account.check_relation(one)
            if account.rule != rule:  # opened or raised by another process since it was read
                curve, exact = _priced(account.rule, costs)
            spent = account.spent + curve
            admitted = account.admission(spent, exact)
            if admitted is not None:
                if opens:
                    chain.append(_opening(dataset, rule, account.unit, relation))
                body = {
                    "kind": "charge",
                    "dataset": dataset,
                    "charge": name,
                    "costs": [one.describe() for one in costs],
                    "curve": to_values(curve),
                    "spent": to_values(spent),
                    "rule": admitted,
                    "epsilon": exact if math.isfinite(exact) else None,
                    "total": exact if admitted == "fixed" else account.rule.epsilon_spent(spent),
                    "purpose": None if purpose is None else asdict(purpose),
                    "time": _now(),
                }
                return receipt_of(chain.append(body))
        raise account.refusal(exact, spent, self.path)

    @staticmethod
    def _rule_for(
        chain: Transaction, dataset: str, costs: Sequence[Cost], opening: tuple[float, float] | None
    ) -> Filter:
        """The rule for these costs: that of the data set, or the one with which the charge would open it."""
        if opening is not None and account_key(check_name("A data set's name", dataset)) not in chain.state:
            return Filter.of(*opening)
        opened = account_of(chain, dataset)
        for one in costs:
            opened.check_relation(one)
        return opened.rule

    def _again(self, entry: Entry, dataset: str, costs: tuple[Cost, ...], purpose: Purpose | None) -> Receipt:
        stored = entry.body.get("purpose")
        other = stored is not None and purpose is not None and stored["signer"] != purpose.signer
        if other or entry.body["dataset"] != dataset or _costs_of(entry) != list(costs):
            raise Corrupt(
                f"The charge {entry.body['charge'][:12]} is in the ledger with other costs; use a new run folder."
            )
        return receipt_of(entry)

    def claim(self, charge: str, run: str, dataset: str, cost: Cost, purpose: Purpose | None = None) -> Receipt:
        """Use a charge that was committed earlier for a run. Each of its costs serves one run.

        Args:
            charge: its name.
            run: who claims it.
            dataset: what it was charged to.
            cost: the cost of the run's plan, which must be one of the charge's.
            purpose: what the run is for.

        Returns:
            The receipt of the charge.

        Raises:
            InvalidInput: there is no such charge, or all its costs were used.
        """
        with self._chain.transaction(write=True) as chain:
            found = _find_charge(chain, charge)
            if found is None or found.body["dataset"] != dataset or cost not in _costs_of(found):
                raise InvalidInput(f"The ledger has no charge {charge!r} with this plan's cost for {dataset!r}.")
            claims = chain.state.get(claims_key(charge), [])
            if all(claim[0] != run for claim in claims):
                free = _free_cost(_costs_of(found), cost, [claim[1] for claim in claims])
                if free is None:
                    raise InvalidInput(f"The charge {charge!r} was used by another run. Charge this one on its own.")
                noted = None if purpose is None else asdict(purpose)
                body = {"kind": "claim", "claimed": charge, "run": run, "cost": free, "purpose": noted}
                chain.append({**body, "time": _now()})
        return receipt_of(found)

    def paid(self, charge: str, run: str) -> bool:
        """Whether a run's charge was committed and, if it was committed earlier under another name, claimed.

        Args:
            charge: its name.
            run: the run that should have paid.

        Returns:
            Whether it did.
        """
        with self._chain.transaction() as chain:
            if charge == run:
                return charge_key(charge) in chain.state
            return any(claim[0] == run for claim in chain.state.get(claims_key(charge), []))

    def receipt(self, charge: str) -> Receipt | None:
        """The receipt of a charge, if it was committed."""
        with self._chain.transaction() as chain:
            found = _find_charge(chain, charge)
        return None if found is None else receipt_of(found)

    def spent_with(self, charge: str) -> float | None:
        """An epsilon that covers a charge and all before it, at the data set's delta of that time.

        Args:
            charge: its name.

        Returns:
            What its entry says, which nothing later changes; None if there is no such charge, or nothing finite.
        """
        return next((one.total for one in self.charges() if one.charge == charge), None)

    def terms(self, dataset: str, entry: int | None = None) -> tuple[tuple[float, float], str]:
        """A data set's budget and its unit of privacy.

        Args:
            dataset: its name.
            entry: the number of an entry, for the budget that was in force for it; by default the one of now.

        Returns:
            The budget (epsilon, delta), and the unit.
        """
        with self._chain.transaction() as chain:
            account = account_of(chain, dataset)
        return account.budget_at(entry), account.unit

    def knows(self, dataset: str) -> bool:
        """Whether a data set is in the ledger."""
        with self._chain.transaction() as chain:
            return account_key(dataset) in chain.state

    def check_relation(self, dataset: str, cost: Cost) -> None:
        """Refuse a cost that is not a guarantee about this data set's neighbours; nothing is charged.

        Args:
            dataset: its name.
            cost: what would be charged.

        Raises:
            InvalidInput: the relations differ, or the ledger has no such data set.

        Examples:
            >>> import tempfile
            >>> from dptune.accounting import PureDp
            >>> folder = tempfile.TemporaryDirectory()
            >>> book = Ledger.create(f"{folder.name}/hospital.ledger")
            >>> _ = book.add("icu", 3, 1e-5)
            >>> book.check_relation("icu", PureDp(0.1))
            >>> folder.cleanup()
        """
        with self._chain.transaction() as chain:
            account = account_of(chain, dataset)
        account.check_relation(cost)

    def status(self, dataset: str) -> Status:
        """What was spent on a data set, and what is left."""
        with self._chain.transaction() as chain:
            return account_of(chain, dataset).status()

    def datasets(self) -> list[Status]:
        """All data sets, in the order in which they were added."""
        with self._chain.transaction() as chain:
            accounts = [account_of(chain, name) for name in chain.state.get(DATASETS, [])]
        return [account.status() for account in accounts]

    def charges(self) -> list[Charge]:
        """All charges, in order, read from entries that were checked against the chain."""
        with self._chain.transaction() as chain:
            entries = chain.all()
        deltas: dict[str, float] = {}
        charged: set[str] = set()
        found: list[Charge] = []
        for entry in entries:
            if entry.body["kind"] in ("dataset", "raise"):
                deltas[entry.body["dataset"]] = float(entry.body["filter"]["delta"])
            elif entry.body["kind"] == "charge":
                charge = charge_of(entry, deltas[entry.body["dataset"]])
                first = charge.dataset not in charged
                charged.add(charge.dataset)
                found.append(replace(charge, total=charge.epsilon) if first and charge.epsilon else charge)
        return found

    @property
    def head(self) -> str:
        """The hash of the newest entry: it covers the whole ledger."""
        with self._chain.transaction() as chain:
            return chain.last().hash

    @property
    def has_key(self) -> bool:
        """Whether the key is there, so that seals are checked too."""
        return self._chain.key is not None

    def entries(self) -> list[Entry]:
        """Every entry, checked."""
        return self._chain.check()[0]

    def verify(self, head: str | None = None) -> str:
        """Check the file's pages, all hashes, the sealed state, sums and admissions, each from the first entry on.

        Args:
            head: a head from a statement; it must be that of one of the entries, so that nothing was rolled back.

        Returns:
            The newest head.

        Raises:
            Corrupt: something does not hold; the message says what.
        """
        return self.verified(head)[-1].hash

    def verified(self, head: str | None = None) -> list[Entry]:
        """Check everything, as :meth:`verify` does, and return every entry."""
        entries, state = self._chain.check()
        verify_entries(entries, head, state)
        return entries


def _find_charge(chain: Transaction, charge: str) -> Entry | None:
    place = chain.state.get(charge_key(charge))
    return None if place is None else chain.entry(*place)


def _costs_of(entry: Entry) -> list[Cost]:
    """The costs of a charge; as values, since older versions wrote fewer fields."""
    return [cost_from_json(cost) for cost in entry.body["costs"]]


def _opening(dataset: str, rule: Filter, unit: str, neighbours: Neighbours) -> dict[str, Any]:
    """The entry that opens a data set."""
    return {
        "kind": "dataset",
        "dataset": check_name("A data set's name", dataset),
        "unit": check_name("The unit of privacy", unit),
        "neighbours": str(check_relation(neighbours)),
        "filter": filter_values(rule),
        "time": _now(),
    }


def _priced(rule: Filter, costs: Sequence[Cost]) -> tuple[Curve, float]:
    """What costs add to the sum under a rule, and their epsilon by exact composition."""
    curve = rule.nothing
    for one in costs:
        curve = curve + rule.curve(one)
    exact = compose(*costs).epsilon(rule.delta) if len(costs) <= _MOST_FIXED else math.inf
    return curve, exact


def _free_cost(costs: list[Cost], wanted: Cost, used: list[int | None]) -> int | None:
    """Which of a charge's costs a run may use; claims of older versions do not say which they used."""
    if None in used:
        return None if len(used) >= costs.count(wanted) else costs.index(wanted)
    return next((place for place, cost in enumerate(costs) if cost == wanted and place not in used), None)
