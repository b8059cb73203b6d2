"""Whether a release is what was charged and signed: every figure of its ``release.json`` against the ledger.

``dptune ledger verify --statement`` shows the result to people. What a charge of an older version does not hold is
listed as not compared, never passed over in silence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dptune.accounting import ADDED_OR_REMOVED, cost_from_json
from dptune.accounting.neighbours import neighbours_from_text
from dptune.errors import Corrupt, InvalidInput
from dptune.ledgers.entries import Entry
from dptune.sealed._binding import digest_of, file_digest, sealed_by

__all__ = ["Comparison", "compare_release"]

_FILES = {"statement.md": "statement text", "statement.html": "statement page", "plan.json": "plan"}
_FIELDS = {"params": "parameters", "model_sha256": "model hash"}
_UNSIGNED = "the charge was made by an older version, which signed nothing"


@dataclass(frozen=True)
class Comparison:
    """What was compared and agrees, and what could not be compared, with the reason.

    Args:
        charge: the name of the charge.
        entry: its number in the ledger.
        compared: the figures that agree.
        not_compared: the others, each with the reason.

    Example:
        >>> Comparison("run 1", 3, ("epsilon", "delta"), ()).compared
        ('epsilon', 'delta')
    """

    charge: str
    entry: int
    compared: tuple[str, ...]
    not_compared: tuple[tuple[str, str], ...]


@dataclass
class _Findings:
    same: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    unknown: list[tuple[str, str]] = field(default_factory=list)

    def compare(self, name: str, stated: object, true: object) -> None:
        if stated == true and type(stated) is type(true):
            self.same.append(name)
        else:
            self.other.append(f"{name} (stated {_short(stated)}, in the ledger {_short(true)})")

    def expect(self, name: str, holds: bool) -> None:
        (self.same if holds else self.other).append(name)


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def compare_release(entries: Sequence[Entry], path: Path) -> Comparison:
    """Compare a ``release.json``, and the files beside it, with the entries of a verified ledger.

    Args:
        entries: those of a ledger that passed :meth:`~dptune.sealed.Ledger.verify`.
        path: the ``release.json``; ``statement.md``, ``statement.html``, ``plan.json`` and the model are looked for
            beside it.

    Returns:
        What was compared and agrees, and what could not be compared.

    Raises:
        InvalidInput: the file is not a ``release.json`` of a charged run.
        Corrupt: something differs; the message names all of it.

    Example:
        >>> compare_release([], Path("nothing.json"))
        Traceback (most recent call last):
        ...
        dptune.errors.InvalidInput: ...
    """
    details = _details(path)
    stated = details["ledger"]
    charges = [e for e in entries if e.body["kind"] == "charge" and e.body["charge"] == stated.get("charge")]
    if not charges:
        raise Corrupt(
            f"{path.name} does not belong to this ledger: there is no charge {_short(stated.get('charge'))} in it. It "
            "was rolled back, or it is another one."
        )
    entry, found = charges[0], _Findings()
    found.compare("head", stated.get("head"), entry.hash)
    found.compare("entry", stated.get("entry"), entry.number)
    found.compare("rule of admission", stated.get("rule"), entry.body["rule"])
    _compare_dataset(found, details, entries, entry)
    purpose, costs = _purpose(entries, entry, details.get("seal"))
    _compare_cost(found, details, purpose, costs)
    if purpose is None:
        found.unknown += [(n, _UNSIGNED) for n in ("parameters", "plan", "model hash", "statement text", "the rest")]
    else:
        _compare_seal(found, details, purpose, path.parent)
    if found.other:
        raise Corrupt(
            f"{path.name} is not what was charged in entry {entry.number} of the ledger and signed by its run. "
            f"Different: {'; '.join(found.other)}. Do not rely on it; ask for the release as the run wrote it."
        )
    return Comparison(entry.body["charge"], entry.number, tuple(found.same), tuple(found.unknown))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which nothing is stated twice: a reader would see one value, and this comparison the other."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place]))
        raise Corrupt(
            f"The release states {twice!r:.80} twice. Do not rely on it; ask for the release as the run wrote it."
        )
    return found


def _details(path: Path) -> dict[str, Any]:
    try:
        details = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror or error}).") from None
    except (ValueError, RecursionError):
        raise InvalidInput(
            f"{path} is not a release.json of a sealed run: it is not JSON. Give the one in the run's release folder."
        ) from None
    if isinstance(details, dict) and details.get("mode") == "rehearsal":
        raise InvalidInput(f"{path} is from a rehearsal, which is not charged: there is nothing to compare.")
    if not isinstance(details, dict) or not isinstance(details.get("ledger"), dict):
        raise InvalidInput(f"{path} is not a release.json of a sealed run. Give the one in the run's release folder.")
    return details


def _compare_dataset(found: _Findings, details: dict[str, Any], entries: Sequence[Entry], entry: Entry) -> None:
    name = entry.body["dataset"]
    opened = next(e.body for e in entries if e.body["kind"] == "dataset" and e.body["dataset"] == name)
    budgets = [e.body for e in entries if e.body["kind"] in ("dataset", "raise") and e.number < entry.number]
    in_force = next(body for body in reversed(budgets) if body["dataset"] == name)["filter"]
    budget = {key: in_force[key] for key in ("epsilon", "delta")}
    found.compare("data set", details.get("dataset"), name)
    found.compare("unit", details.get("unit"), opened["unit"])
    relation = neighbours_from_text(opened.get("neighbours", str(ADDED_OR_REMOVED)))
    found.compare("neighbouring data sets", details.get("neighbours"), relation.phrase(opened["unit"]))
    found.compare("budget of the data set", details.get("dataset_budget"), budget)


def _purpose(entries: Sequence[Entry], entry: Entry, seal: Any) -> tuple[dict[str, Any] | None, list[Any]]:
    """What the charge says about the run, and its cost; of several runs that share a charge, the one that signed."""
    costs = entry.body["costs"]
    if entry.body.get("purpose") is not None:
        return entry.body["purpose"], costs
    claims = [e.body for e in entries if e.body["kind"] == "claim" and e.body["claimed"] == entry.body["charge"]]
    signed = [claim for claim in claims if claim.get("purpose") is not None]
    for claim in signed:
        if sealed_by(seal, claim["purpose"]["signer"]):
            return claim["purpose"], [costs[claim["cost"]]]
    return (signed[0]["purpose"], [costs[signed[0]["cost"]]]) if signed else (None, costs)


def _compare_cost(found: _Findings, details: dict[str, Any], purpose: dict[str, Any] | None, costs: list[Any]) -> None:
    """The stated epsilon must be what one of the charged costs comes to at the stated delta, computed anew."""
    epsilon, delta = details.get("epsilon"), details.get("delta")
    if purpose is not None:
        found.compare("epsilon", epsilon, purpose["epsilon"])
        found.compare("delta", delta, purpose["delta"])
        found.compare("method", details.get("method"), purpose["method"])
    holds = any(_comes_to(cost, epsilon, delta) for cost in costs)
    found.expect("epsilon and delta of the charged cost, computed anew", holds)


def _comes_to(cost: Any, epsilon: Any, delta: Any) -> bool:
    if not isinstance(epsilon, float) or not isinstance(delta, float) or not 0.0 < delta < 1.0:
        return False
    return math.isclose(cost_from_json(cost).epsilon(delta), epsilon, rel_tol=1e-6)


def _compare_seal(found: _Findings, details: dict[str, Any], purpose: dict[str, Any], folder: Path) -> None:
    """Every field and file against the digests that the run signed."""
    seal = details.get("seal")
    if not sealed_by(seal, purpose["signer"]):
        found.expect("the signature of the run" if seal is not None else "the signature of the run (missing)", False)
        return
    assert isinstance(seal, dict)  # it was signed
    found.same.append("the signature of the run")
    stated = {name: digest_of(value) for name, value in details.items() if name != "seal"}
    for name in sorted(stated.keys() | seal["fields"].keys()):
        if name in _FIELDS or stated.get(name) != seal["fields"].get(name):
            found.expect(_FIELDS.get(name, f"the field {name!r}"), stated.get(name) == seal["fields"].get(name))
    found.same.append("every other field")
    found.compare("plan of the charge", seal["files"].get("plan.json"), purpose["plan"])
    for name, expected in sorted(seal["files"].items()):
        label = _FILES.get(name, "model")
        try:
            found.expect(label, file_digest((folder / name).read_bytes()) == expected)
        except OSError:
            found.unknown.append((label, f"{name} is not beside the release.json"))
