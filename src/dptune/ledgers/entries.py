"""An entry of the ledger, its hash, and what it changes in the state that admission reads.

The same function is used when an entry is appended and when a ledger is verified from its first entry, so the two
cannot disagree. Nothing here reads or writes a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from dptune._codec import from_json, to_values
from dptune.accounting.filter import Filter

__all__ = [
    "DATASETS",
    "RAISES",
    "START",
    "Entry",
    "account_key",
    "charge_key",
    "claims_key",
    "digest",
    "filter_from_values",
    "filter_values",
    "print_key",
    "record",
]

START = "0" * 64
DATASETS = "datasets"  # the names of all data sets, in order
RAISES = "raises"  # how many there were; a file with some has another version


@dataclass(frozen=True)
class Entry:
    """One line of the ledger.

    Args:
        number: its place, from 0.
        body: what it says.
        hash: covers the body, the number and the hash of the entry before.

    Example:
        >>> Entry(0, {"kind": "ledger"}, digest(START, 0, '{"kind": "ledger"}')).body["kind"]
        'ledger'
    """

    number: int
    body: dict[str, Any]
    hash: str


def digest(previous: str, number: int, body: str) -> str:
    """The hash of an entry; it covers the hash of the entry before."""
    return hashlib.blake2b(f"{previous}\n{number}\n{body}".encode(), digest_size=32).hexdigest()


def account_key(dataset: str) -> str:
    """Where the state has a data set's budget and sums."""
    return f"dataset {dataset}"


def charge_key(charge: str) -> str:
    """Where the state has the place of a charge."""
    return f"charge {charge}"


def claims_key(charge: str) -> str:
    """Where the state has the runs that use a charge."""
    return f"claims {charge}"


def print_key(fingerprint: str) -> str:
    """Where the state has the names under which records with this fingerprint were charged."""
    return f"fingerprint {fingerprint}"


def record(state: MutableMapping[str, Any], entry: Entry) -> None:
    """Bring the state up to date with an entry."""
    body, place = entry.body, [entry.number, entry.hash]
    if body["kind"] == "dataset":
        state[DATASETS] = [*state.get(DATASETS, []), body["dataset"]]
        state[account_key(body["dataset"])] = {
            "unit": body["unit"],
            "filter": body["filter"],
            "charges": 0,
            "spent": None,
            "rule": "open",
            "total": None,
            "last": place,
            # Entries of older versions do not say it, and neither does the state that was sealed with them.
            **({"neighbours": body["neighbours"]} if "neighbours" in body else {}),
        }
    elif body["kind"] == "charge":
        _record_charge(state, body, place)
    elif body["kind"] == "raise":
        _record_raise(state, body, entry.number)
    elif body["kind"] == "claim":
        key = claims_key(body["claimed"])
        state[key] = [*state.get(key, []), [body["run"], body.get("cost"), *place]]


def _record_charge(state: MutableMapping[str, Any], body: dict[str, Any], place: list[Any]) -> None:
    dataset = body["dataset"]
    account = state[account_key(dataset)]
    state[account_key(dataset)] = {
        **account,
        "charges": account["charges"] + 1,
        "spent": body["spent"],
        "rule": body["rule"],
        "total": body.get("total"),
        "last": place,
    }
    state[charge_key(body["charge"])] = place
    if body.get("fingerprint") is not None:  # in entries of older versions
        key = print_key(body["fingerprint"])
        known = state.get(key, [])
        if dataset not in known:
            state[key] = [*known, dataset]


def _record_raise(state: MutableMapping[str, Any], body: dict[str, Any], number: int) -> None:
    """Another rule for charges to come; which budget was in force for which entries stays known."""
    key = account_key(body["dataset"])
    account = state[key]
    state[RAISES] = state.get(RAISES, 0) + 1
    before = account["filter"]
    budgets = account.get("budgets", [[0, before["epsilon"], before["delta"]]])
    state[key] = {
        **account,
        "filter": body["filter"],
        "rule": "odometer" if account["charges"] else account["rule"],
        "total": body["total"],
        "budgets": [*budgets, [number, body["filter"]["epsilon"], body["filter"]["delta"]]],
    }


def filter_values(rule: Filter) -> dict[str, Any]:
    """A filter as plain JSON values; one that was never raised is written as ledgers of before have it."""
    values: dict[str, Any] = to_values(rule)
    return values if rule.raised else {key: value for key, value in values.items() if key != "raised"}


def filter_from_values(data: object) -> Filter:
    """A filter from what :func:`filter_values` gave."""
    known = {"raised": False, **data} if isinstance(data, dict) else data
    return from_json(known, Filter, "a filter")
