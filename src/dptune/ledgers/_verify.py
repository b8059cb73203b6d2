"""Checking a ledger: sums, admissions and claims are computed anew from the costs that its entries hold.

Hashes and seals are the chain's own business (``_chain.py``); this is what somebody who rewrote the whole chain would
still have to get right. Nothing here writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dptune._codec import from_json
from dptune.accounting import ADDED_OR_REMOVED, Cost, Neighbours, compose, cost_from_json
from dptune.accounting.filter import Curve, Filter
from dptune.accounting.neighbours import neighbours_from_text
from dptune.errors import Corrupt, InvalidInput
from dptune.ledgers.entries import Entry, account_key, filter_from_values, record

__all__ = ["verify_entries"]


def verify_entries(entries: Sequence[Entry], head: str | None = None, state: dict[str, Any] | None = None) -> str:
    """The newest head, or :class:`~dptune.errors.Corrupt`.

    ``head`` must be that of one of the entries; ``state`` must be what the entries give, key by key.
    """
    check = _Check()
    for entry in entries:
        try:
            check.entry(entry)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, InvalidInput):
            raise Corrupt(f"Entry {entry.number} of the ledger cannot be understood. Restore a backup.") from None
    check.close()
    if state is not None and state != check.state:
        raise Corrupt(
            "The ledger was changed: what admission reads is not what the entries give. Restore it from a backup."
        )
    if head is not None and head not in {entry.hash for entry in entries}:
        raise Corrupt(
            f"The head {head[:12]}... of the statement is not in this ledger: it was rolled back, or it is another "
            "one. Restore the newest backup."
        )
    return entries[-1].hash


class _Check:
    """One pass over a ledger."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self._rules: dict[str, Filter] = {}
        self._relations: dict[str, Neighbours] = {}
        self._sums: dict[str, Curve] = {}
        self._charged: dict[str, tuple[str, int]] = {}
        self._claimed: dict[str, list[int | None]] = {}
        self._last: dict[str, int] = {}  # the newest charge that the filter had to admit
        self._curves: dict[tuple[str, str], Curve] = {}

    def entry(self, entry: Entry) -> None:
        body = entry.body
        if body["kind"] == "dataset":
            if account_key(body["dataset"]) in self.state:
                raise Corrupt(f"Entry {entry.number} of the ledger opens {body['dataset']!r} a second time.")
            self._rules[body["dataset"]] = filter_from_values(body["filter"])
            self._relations[body["dataset"]] = neighbours_from_text(body.get("neighbours", str(ADDED_OR_REMOVED)))
        elif body["kind"] == "charge":
            self._charge(entry)
        elif body["kind"] == "claim":
            self._claim(entry)
        elif body["kind"] == "raise":
            self._raise(entry)
        elif body["kind"] not in ("ledger", "rebuilt"):
            raise Corrupt(f"Entry {entry.number} of the ledger is of an unknown kind {body['kind']!r:.40}.")
        record(self.state, entry)

    def _curve(self, rule: Filter, dataset: str, costs: list[Any]) -> Curve:
        """What costs charge; computed once for each, since profiles take longer than all the rest."""
        total = rule.nothing
        for cost in costs:
            key = (f"{rule.cut!r} {dataset}", json.dumps(cost, sort_keys=True))
            if key not in self._curves:
                made = cost_from_json(cost)
                if made.neighbours != self._relations[dataset]:
                    raise Corrupt(
                        f"The ledger charges {dataset!r}, which is about '{self._relations[dataset]}', with a cost for "
                        f"'{made.neighbours}'."
                    )
                self._curves[key] = rule.curve(made)
            total = total + self._curves[key]
        return total

    def _charge(self, entry: Entry) -> None:
        body, dataset = entry.body, entry.body["dataset"]
        rule, before = self._rules[dataset], self._sums.get(dataset)
        if body["charge"] in self._charged:
            raise Corrupt(f"Entry {entry.number} of the ledger repeats the charge {body['charge'][:12]}.")
        curve, stored = self._curve(rule, dataset, body["costs"]), from_json(body["curve"], Curve, "a Renyi curve")
        pairs = zip((*stored.values, stored.infinite), (*curve.values, curve.infinite), strict=True)
        if not all(a >= b * (1.0 - 1e-6) for a, b in pairs):
            raise Corrupt(f"Entry {entry.number} of the ledger charges less than its cost.")
        spent = (rule.nothing if before is None else before) + stored
        wrong = from_json(body["spent"], Curve, "a Renyi curve") != spent
        if body["rule"] == "fixed":
            exact = compose(*self._costs(body["costs"])).epsilon(rule.delta)
            wrong |= before is not None or exact > rule.epsilon * (1.0 + 1e-9)
        else:
            wrong |= (body["rule"] == "odometer") != rule.raised
            self._last[dataset] = entry.number
        if wrong:
            raise self._exceeded(entry.number, dataset)
        self._sums[dataset] = spent
        self._charged[body["charge"]] = dataset, len(body["costs"])

    @staticmethod
    def _costs(described: list[Any]) -> list[Cost]:
        return [cost_from_json(cost) for cost in described]

    @staticmethod
    def _exceeded(number: int, dataset: str) -> Corrupt:
        return Corrupt(f"Entry {number} of the ledger exceeds the budget of {dataset!r}, or its sum is wrong.")

    def _claim(self, entry: Entry) -> None:
        body = entry.body
        _, count = self._charged[body["claimed"]]
        claims = self._claimed.setdefault(body["claimed"], [])
        claims.append(body.get("cost"))
        chosen = [claim for claim in claims if claim is not None]
        if len(claims) > count or len(set(chosen)) < len(chosen) or any(not 0 <= place < count for place in chosen):
            raise Corrupt(f"Entry {entry.number} of the ledger uses a charge twice.")

    def _raise(self, entry: Entry) -> None:
        """What was admitted before must fit the old rule, and the new one must be the old one raised."""
        body, dataset = entry.body, entry.body["dataset"]
        rule, spent = filter_from_values(body["filter"]), self._sums.get(dataset)
        self._settle(dataset)
        before = self._rules[dataset]
        if spent is None:
            wanted, fits = Filter.of(rule.epsilon, rule.delta), True
        else:
            wanted, fits = before.raised_to(rule.epsilon, rule.delta), rule.admits(spent)
        if rule != wanted or not fits or rule.epsilon < before.epsilon or rule.delta < before.delta:
            raise Corrupt(f"Entry {entry.number} of the ledger raises the budget of {dataset!r} by another rule.")
        self._rules[dataset] = rule

    def _settle(self, dataset: str) -> None:
        """Sums only grow and the filter is monotone: if it admits a data set's last sum, it admits those before."""
        number = self._last.pop(dataset, None)
        if number is not None and not self._rules[dataset].admits(self._sums[dataset]):
            raise self._exceeded(number, dataset)

    def close(self) -> None:
        """Every sum must fit the rule under which it was admitted."""
        for dataset in list(self._last):
            self._settle(dataset)
