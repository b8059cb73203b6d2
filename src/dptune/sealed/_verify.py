"""Checking a ledger: sums, admissions and claims are computed anew from the costs that its entries hold.

Hashes are the chain's own business (``_chain.py``); this is what somebody who rewrote the whole chain would still
have to get right. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from dptune.accounting import compose, cost_from_json
from dptune.errors import Corrupt
from dptune.sealed._chain import Entry
from dptune.sealed.filter import Curve, Filter, curve_from_json, filter_from_json

__all__ = ["verify_entries"]


def verify_entries(entries: Sequence[Entry], head: str | None) -> str:
    """The newest head, or :class:`~dptune.errors.Corrupt`; ``head`` must be that of one of the entries."""
    rules: dict[str, Filter] = {}
    sums: dict[str, Curve] = {}
    seen: dict[str, int] = {}
    for entry in entries:
        body = entry.body
        if body["kind"] == "dataset":
            rules[body["dataset"]] = filter_from_json(body["filter"])
        elif body["kind"] == "charge":
            _verify_charge(entry, rules, sums)
            if body["charge"] in seen:
                raise Corrupt(f"Entry {entry.number} of the ledger repeats the charge {body['charge'][:12]}.")
            seen[body["charge"]] = len(body["costs"])
        elif body["kind"] == "claim":
            seen[body["claimed"]] -= 1
            if seen[body["claimed"]] < 0:
                raise Corrupt(f"Entry {entry.number} of the ledger uses a charge twice.")
    if head is not None and head not in {entry.hash for entry in entries}:
        raise Corrupt(
            f"The head {head[:12]}... of the statement is not in this ledger: it was rolled back, or it is "
            f"another one. "
            "Restore the newest backup."
        )
    return entries[-1].hash


def _verify_charge(entry: Entry, rules: dict[str, Filter], sums: dict[str, Curve]) -> None:
    body, dataset = entry.body, entry.body["dataset"]
    rule, before = rules[dataset], sums.get(dataset)
    costs = [cost_from_json(cost) for cost in body["costs"]]
    curve = rule.nothing
    for cost in costs:
        curve = curve + rule.curve(cost)
    stored = curve_from_json(body["curve"])
    spent = (rule.nothing if before is None else before) + stored
    if any(a < b * (1.0 - 1e-6) for a, b in zip(stored.values, curve.values, strict=True)):
        raise Corrupt(f"Entry {entry.number} of the ledger charges less than its cost.")
    fits = rule.admits(spent)
    if body["rule"] == "fixed":
        fits = before is None and compose(*costs).epsilon(rule.delta) <= rule.epsilon * (1.0 + 1e-9)
    if curve_from_json(body["spent"]) != spent or not fits:
        raise Corrupt(f"Entry {entry.number} of the ledger exceeds the budget of {dataset!r}, or its sum is wrong.")
    sums[dataset] = spent
