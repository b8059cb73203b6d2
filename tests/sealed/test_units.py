"""Units of privacy: what a ledger protects, what a charge is for, and what the statement says of both."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.sealed.toy import DATA, Inline, ToyPlan, ToyTrainer, toy_plan

from dptune import Dataset, Float, Geometric, PrivateValidation, RandomStopping, Space, UnitDataset
from dptune._codec import to_values
from dptune.accounting import ADDED_OR_REMOVED, RECORD_REPLACED, Cost, Gdp, Neighbours, PureDp, grouped, replaced
from dptune.accounting.filter import Filter
from dptune.errors import Corrupt, InvalidInput
from dptune.ledgers import Ledger
from dptune.ledgers._verify import verify_entries
from dptune.ledgers.default import default_ledger
from dptune.ledgers.entries import START, Entry, digest
from dptune.methods.budget import Budget
from dptune.randomness import Randomness
from dptune.sealed import _under_way, run
from dptune.sealed._records import mark_of
from dptune.sealed.release_check import compare_release
from dptune.sealed.run import resume
from dptune.training import DpSgdTrainer, Settings, softmax

PATIENTS = ADDED_OR_REMOVED.group(5)


@dataclass(frozen=True)
class Forgetful(ToyPlan):
    """The toy plan, priced for single records whatever its budget says."""

    method: ClassVar[str] = "forgetful toy"

    @property
    def cost(self) -> Cost:
        return Gdp(self.mu)


def _plan(relation: Neighbours) -> ToyPlan:
    return replace(toy_plan(count=2), budget=Budget(200.0, 1e-5, relation))


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "h.ledger")


def test_a_charge_for_other_neighbours_is_refused_before_anything_is_charged(book: Ledger) -> None:
    book.add("icu", 10.0, 1e-5, "patient", PATIENTS)
    book.add("rows", 10.0, 1e-5)
    assert book.status("icu").neighbours == "at most 5 records added or removed"
    head = book.head
    for dataset, cost in (
        ("icu", PureDp(0.1)),
        ("icu", grouped(PureDp(0.1), 4)),
        ("rows", grouped(PureDp(0.1), 5)),
        ("rows", replaced(PureDp(0.1))),
    ):
        with pytest.raises(InvalidInput, match=r"is protected for .*this charge is for .*nothing was charged"):
            book.charge(dataset, cost)
    with pytest.raises(InvalidInput, match="is protected for"):
        book.charge("icu", [grouped(PureDp(0.1), 5), PureDp(0.1)])
    assert book.head == head
    book.charge("icu", grouped(PureDp(0.1), 5))
    assert book.status("icu").spent >= 0.49  # five times, not once
    book.verify()


def test_verify_finds_a_charge_for_other_neighbours() -> None:
    """Somebody who rewrote the whole chain would still be found out."""
    ours = {"kind": "dataset", "dataset": "icu", "unit": "patient", "neighbours": str(RECORD_REPLACED)}
    rule = Filter.of(10.0, 1e-5)
    cost = Gdp(0.1)
    curve = rule.curve(cost)
    charge = {"kind": "charge", "dataset": "icu", "charge": "a", "costs": [cost.describe()], "curve": to_values(curve)}
    rest = {"spent": to_values(rule.nothing + curve), "rule": "renyi", "fingerprint": None}
    entries, last = [], START
    bodies: list[dict[str, Any]] = [{**ours, "filter": to_values(rule)}, {**charge, **rest}]
    for number, body in enumerate(bodies):
        last = digest(last, number, json.dumps(body))
        entries.append(Entry(number, body, last))
    with pytest.raises(Corrupt, match="with a cost for 'one record added or removed'"):
        verify_entries(entries)
    older = Entry(0, {key: value for key, value in entries[0].body.items() if key != "neighbours"}, entries[0].hash)
    verify_entries([older, entries[1]])  # an entry that does not say it is about single records


def test_a_run_for_other_neighbours_is_refused_before_anything_is_written(tmp_path: Path, book: Ledger) -> None:
    book.add("icu", 10.0, 1e-5, "patient", PATIENTS)
    with pytest.raises(InvalidInput, match="is protected for 'at most 5 records added or removed'"):
        run(
            toy_plan(count=2),
            ToyTrainer(),
            DATA,
            ledger=book,
            dataset="icu",
            out=tmp_path / "run",
            executor=Inline(),
            data_is="synthetic",
        )
    assert not (tmp_path / "run").exists()
    assert book.status("icu").charges == 0


def test_a_plan_that_forgets_its_budgets_neighbours_is_refused(tmp_path: Path) -> None:
    forgetful = Forgetful(Budget(5.0, 1e-5, PATIENTS), {"x": 0.0}, 0.5, 2, False)
    with pytest.raises(InvalidInput, match="its method must convert the one to the other"):
        run(forgetful, ToyTrainer(), DATA, out=tmp_path / "run", executor=Inline(), data_is="synthetic")


def test_the_statement_speaks_of_the_cost_that_was_charged(tmp_path: Path, book: Ledger) -> None:
    plan = _plan(PATIENTS)
    book.add("icu", 300.0, 1e-5, "patient", PATIENTS)
    release = run(
        plan,
        ToyTrainer(),
        DATA,
        ledger=book,
        dataset="icu",
        out=tmp_path / "run",
        executor=Inline(),
        data_is="synthetic",
    )
    assert "differ by adding or removing one patient with at most 5 records |" in release.statement
    assert "* Every patient has at most 5 records;" in release.statement
    assert release.epsilon == plan.price() > toy_plan(count=2).price()
    details = json.loads((release.path / "release.json").read_text())
    assert details["neighbours"] == "add or remove one patient with at most 5 records"
    assert "Every patient has at most 5 records; one that has more is not covered as a whole." in details["assumptions"]
    found = compare_release(book.verified(), release.path / "release.json")
    assert "neighbouring data sets" in found.compared


def test_a_unit_without_a_grouping_is_an_assumption_of_the_statement(tmp_path: Path, book: Ledger) -> None:
    book.add("icu", 300.0, 1e-5, "patient")
    book.add("rows", 300.0, 1e-5)
    for name, assumed in (("icu", True), ("rows", False)):
        out = tmp_path / name
        release = run(toy_plan(count=2), ToyTrainer(), DATA + 100 * len(name), ledger=book, dataset=name, out=out,
                      executor=Inline())  # fmt: skip
        details = json.loads((release.path / "release.json").read_text())
        sentence = "One record for each patient is assumed"
        assert (sentence in release.statement) is assumed
        assert any(line.startswith(sentence) for line in details["assumptions"]) is assumed


def test_replacing_is_said_so(tmp_path: Path) -> None:
    release = run(
        _plan(RECORD_REPLACED), ToyTrainer(), DATA, out=tmp_path / "run", executor=Inline(), data_is="synthetic"
    )
    assert "differ by replacing one record |" in release.statement


def test_a_charge_of_an_older_version_is_claimed_and_repeated(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older entries hold costs without a relation; they are compared as values."""
    book.add("icu", 10.0, 1e-5)
    cost = PureDp(0.1)
    with monkeypatch.context() as older:
        older.setattr(PureDp, "describe", lambda self: {"cost": "pure", "epsilon": self.pure_epsilon})
        first = book.charge("icu", cost, charge="early")
    assert "neighbours" not in json.dumps([entry.body.get("costs") for entry in book.entries()])
    assert book.charge("icu", cost, charge="early") == first
    assert book.claim("early", "run", "icu", cost) == first
    book.verify()


# Units that the data declare: all rows of a patient are one record.


def _patients(unit: str = "patient") -> UnitDataset:
    rng = np.random.default_rng(0)
    rows = Dataset(rng.normal(size=(90, 3)), rng.integers(0, 2, 90), 2, name="icu")
    return UnitDataset(rows, np.arange(90) % 40, 2, unit, "patient_id")


@functools.cache
def _settled() -> tuple[DpSgdTrainer, Any]:
    trainer = DpSgdTrainer(softmax(3, 2), Settings.from_batch(10, 40, noise_multiplier=1, steps=3, clip_norm=1,
                                                              learning_rate=0.5))  # fmt: skip
    validation = PrivateValidation(0.3, 12)
    method = RandomStopping(Space(learning_rate=Float(0.1, 1.0)), Geometric(2), validation=validation)
    return trainer, method.plan(Budget(4.0, 1e-5), trainer)


def test_the_statement_and_the_ledger_name_the_declared_unit(tmp_path: Path, book: Ledger) -> None:
    trainer, plan = _settled()
    book.add("icu", 10.0, 1e-5, "patient")
    release = run(plan, trainer, _patients(), ledger=book, out=tmp_path / "run", executor=Inline())
    said = "one patient: all rows with the same value in the column 'patient_id', of which at most 2 take part"
    assert f"| Unit of privacy | {said} |" in release.statement
    assert "differ by adding or removing one patient |" in release.statement
    details = json.loads((release.path / "release.json").read_text())
    assert (details["unit"], details["unit_rows"], details["unit_column"]) == ("patient", 2, "patient_id")
    assert not any("patient" in line for line in details["assumptions"])  # the trainer honours it
    assert "unit" in compare_release(book.verified(), release.path / "release.json").compared


def test_a_first_run_opens_the_default_ledger_for_the_declared_unit(tmp_path: Path) -> None:
    trainer, plan = _settled()
    release = run(plan, trainer, _patients(), out=tmp_path / "run", executor=Inline())
    assert Ledger(default_ledger()).status("icu").unit == release.details["unit"] == "patient"
    rehearsed = run(plan, trainer, _patients(), out=tmp_path / "second", executor=Inline(), seed=1, data_is="synthetic")
    assert rehearsed.details["unit"] == "patient"


def test_a_trainer_of_ones_own_is_taken_at_its_word_and_the_statement_says_so(tmp_path: Path) -> None:
    seen: list[int] = []

    class Own(ToyTrainer):
        def fit(self, params: Any, data: Any, rng: Any) -> Any:
            seen.append(len(data))
            return super().fit(params, DATA, rng)

    release = run(toy_plan(count=2), Own(), _patients(), out=tmp_path / "run", executor=Inline())
    assert set(seen) == {len(_patients().blank()), 40}  # tried on blank units, then trained
    assert "* The trainer treats all rows of one patient as one record:" in release.statement
    assert "One record for each patient is assumed" not in release.statement


def test_a_ledger_that_protects_something_else_is_refused(tmp_path: Path, book: Ledger) -> None:
    trainer, plan = _settled()
    book.add("icu", 10.0, 1e-5)
    with pytest.raises(InvalidInput, match=r"protects each record of 'icu', and here a record is a patient.*--unit"):
        run(plan, trainer, _patients(), ledger=book, out=tmp_path / "run", executor=Inline())
    assert not (tmp_path / "run").exists()
    assert book.status("icu").charges == 0


def test_units_and_groups_of_records_do_not_mix(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="all rows of one patient are one record, and the budget is for"):
        run(_plan(PATIENTS), ToyTrainer(), _patients(), out=tmp_path / "run", executor=Inline())
    assert not (tmp_path / "run").exists()


def test_other_units_are_other_records(tmp_path: Path) -> None:
    """The same rows, put together in another way: a run is not continued with them."""
    data, randomness = _patients(), Randomness.rehearsal(0)
    other = UnitDataset(data.rows, np.arange(len(data.rows)), 2, "patient", "patient_id")
    assert mark_of(data, randomness) == mark_of(_patients(), randomness) != mark_of(other, randomness) is not None


def test_a_resumed_run_remembers_its_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, plan = _settled()

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(_under_way, "build_release", stop)
        with pytest.raises(KeyboardInterrupt):
            run(plan, trainer, _patients(), out=tmp_path / "run", executor=Inline())
    with pytest.raises(InvalidInput, match="not the records with which the run"):
        resume(tmp_path / "run", trainer, _patients("person"), executor=Inline())
    release = resume(tmp_path / "run", trainer, _patients(), executor=Inline())
    assert "| Unit of privacy | one patient: all rows" in release.statement
