"""What a ledger says to its readers: purposes, receipts, the state of a budget, and charges. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from dptune.accounting import ADDED_OR_REMOVED, cost_from_json
from dptune.ledgers.entries import Entry

__all__ = ["Charge", "Purpose", "Receipt", "Status", "charge_of", "receipt_of"]


@dataclass(frozen=True)
class Purpose:
    """What a charge is for: public facts of a run, fixed before anything is trained.

    Args:
        method: the plan's method, for people who read the ledger.
        epsilon: what the run will state.
        delta: the delta at which it will.
        plan: the SHA-256 of the plan's file.
        signer: the public key with which the run will sign its release (``docs/sealed_runs.md``).

    Example:
        >>> Purpose("random-stopping", 3.0, 1e-5, plan="0" * 64, signer="0" * 112).epsilon
        3.0
    """

    method: str
    epsilon: float
    delta: float
    plan: str
    signer: str


@dataclass(frozen=True)
class Receipt:
    """Proof of a charge: its name, the rule that admitted it, and the ledger's head just after it.

    Args:
        charge: the charge's name.
        dataset: what it was charged to.
        rule: "fixed" (one account, fixed before the first release), "renyi" (the filter) or "odometer" (after a raise).
        head: the hash of the entry, which covers the whole ledger up to it.
        number: of the entry.
        time: of the entry, as ISO 8601.

    Example:
        >>> Receipt("run 1", "icu", "renyi", "ab" * 32, 3, "2026-01-01T00:00:00+00:00").dataset
        'icu'
    """

    charge: str
    dataset: str
    rule: str
    head: str
    number: int
    time: str


@dataclass(frozen=True)
class Status:
    """Where a data set's budget stands.

    Args:
        dataset: its name.
        unit: what is protected, in the custodian's words.
        epsilon: the budget.
        delta: the delta at which it is counted.
        charges: how many there were.
        spent: an epsilon that covers all charges at the budget's delta.
        left: the epsilon of the largest single charge of Gaussian noise that would still be admitted. It does not add
            up with ``spent`` to the budget: guarantees compose more slowly than their epsilons add.
        rule: how charges are admitted now.
        neighbours: what every charge must be a guarantee about.

    Example:
        >>> Status("icu", "patient", 3.0, 1e-5, 0, 0.0, 3.0, "fixed").left
        3.0
    """

    dataset: str
    unit: str
    epsilon: float
    delta: float
    charges: int
    spent: float
    left: float
    rule: str
    neighbours: str = str(ADDED_OR_REMOVED)


@dataclass(frozen=True)
class Charge:
    """One charge, as ``dptune ledger show`` lists it.

    Args:
        number: of the entry.
        time: of the entry, as ISO 8601.
        dataset: what it was charged to.
        charge: its name.
        method: of the plan, or the kinds of the costs.
        epsilon: of this charge alone, at the data set's delta; None if nothing finite is known.
        total: an epsilon that covers it and all charges before it; None in entries of older versions.
        rule: how it was admitted.

    Example:
        >>> Charge(3, "2026-01-01T00:00:00+00:00", "icu", "run 1", "subset", 1.5, 2.1, "renyi").method
        'subset'
    """

    number: int
    time: str
    dataset: str
    charge: str
    method: str
    epsilon: float | None
    total: float | None
    rule: str


def receipt_of(entry: Entry) -> Receipt:
    """The receipt of the charge in an entry."""
    body = entry.body
    return Receipt(body["charge"], body["dataset"], body["rule"], entry.hash, entry.number, body["time"])


def charge_of(entry: Entry, delta: float) -> Charge:
    """The charge in an entry; one that an older version made without its epsilon is priced at ``delta``."""
    body = entry.body
    purpose, epsilon = body.get("purpose"), body.get("epsilon")
    kinds = sorted({str(cost.get("cost")) for cost in body["costs"]})
    method = purpose["method"] if purpose is not None else "+".join(kinds)
    if "epsilon" not in body and len(body["costs"]) == 1:
        epsilon = cost_from_json(body["costs"][0]).epsilon(delta)
    names = body["dataset"], body["charge"]
    return Charge(entry.number, body["time"], *names, method, epsilon, body.get("total"), body["rule"])
