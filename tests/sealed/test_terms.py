"""The terms of a run, stored and read again by the one codec: strict in every field, the plan derived again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

import dptune as dpt
from dptune.errors import Corrupt
from dptune.sealed._terms import Terms, terms_of
from dptune.sealed._units import DeclaredUnits
from dptune.sealed.vault import Vault

LATER = {"encoder", "pickle", "units", "opening", "training", "public_encoder"}


class _Kept:
    """As much of a vault as terms are read from."""

    path = Path("run") / "vault"

    def __init__(self, stored: object) -> None:
        self.stored = stored

    def facts(self) -> dict[str, Any]:
        return {"terms": self.stored}


def _read(stored: object) -> Terms:
    return terms_of(cast(Vault, _Kept(stored)))


@pytest.fixture(scope="module")
def terms() -> Terms:
    train: Any = dpt.trainer(cost=dpt.Gaussian(10.0))(lambda params, data, rng: (None, 0.0))
    space = dpt.Space(learning_rate=dpt.Float(1e-3, 10, log=True))
    return Terms(
        plan=dpt.RandomStopping(space, dpt.Geometric(10)).plan(dpt.Budget(1, 1e-5), train),
        run="a",
        charge="a",
        ledger="book",
        dataset="icu",
        data_is="private",
        release_at=None,
        replay="unknown",
        job={"run": {"seeds": [1, 2]}},
        encoder={"version": 1},
        pickle=True,
        units=DeclaredUnits("patient", 3, None, True),
        opening=(1.0, 1e-5),
        training="a loop",
        public_encoder={"name": "net", "sha256": "ab"},
    )


def _stored(terms: Terms) -> dict[str, Any]:
    """As a vault gives them back."""
    found: dict[str, Any] = json.loads(json.dumps(terms.describe()))
    return found


def test_terms_come_back_equal(terms: Terms) -> None:
    assert _read(_stored(terms)) == terms


def test_terms_of_earlier_versions_are_read(terms: Terms) -> None:
    stored = {name: value for name, value in _stored(terms).items() if name not in LATER}
    found = _read({**stored, "fingerprint": "ab"})
    assert (found.plan, found.job) == (terms.plan, terms.job)
    assert (found.encoder, found.pickle, found.units, found.opening) == (None, False, None, None)
    assert _read({**stored, **dict.fromkeys(LATER - {"pickle"}), "pickle": False}) == found  # written out once


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run", 1),
        ("ledger", ["book"]),
        ("data_is", None),
        ("job", "run"),
        ("encoder", [["version", 1]]),
        ("pickle", "no"),
        ("units", {"unit": "patient", "unit_rows": 3, "column": None}),
        ("units", {"unit": "patient", "unit_rows": "3", "column": None, "honoured": True}),
        ("opening", [1.0]),
        ("opening", ["1.0", 1e-5]),
        ("training", 5),
        ("other", 1),
    ],
)
def test_what_is_unknown_or_of_another_type_is_refused(terms: Terms, field: str, value: object) -> None:
    with pytest.raises(Corrupt, match=r"damaged\. This is not the terms of a run: .*Restore"):
        _read({**_stored(terms), field: value})


def test_what_is_missing_is_refused(terms: Terms) -> None:
    stored = _stored(terms)
    assert set(stored) == LATER | {
        "plan",
        "run",
        "charge",
        "ledger",
        "dataset",
        "data_is",
        "release_at",
        "replay",
        "job",
    }
    for gone in set(stored) - LATER:
        said = "Not a plan" if gone == "plan" else f"the field '{gone}' of Agreement is missing"
        with pytest.raises(Corrupt, match=said):
            _read({name: value for name, value in stored.items() if name != gone})
    nothings: list[object] = [None, [], "terms"]
    for nothing in nothings:
        with pytest.raises(Corrupt, match="damaged"):
            _read(nothing)


def test_the_plan_is_derived_again(terms: Terms) -> None:
    stored = _stored(terms)
    assert stored["plan"] == terms.plan.describe()
    with pytest.raises(Corrupt, match="'expected_runs' is not what its settings give"):
        _read({**stored, "plan": {**stored["plan"], "expected_runs": 2.0}})
    with pytest.raises(Corrupt, match="its settings cost"):
        _read({**stored, "plan": {**stored["plan"], "cost": {"cost": "pure", "epsilon": 0.01}}})
