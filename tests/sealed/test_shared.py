"""One budget by default: runs on the same private records meet in the user's ledger, whatever led to the records."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import DATA, CutOff, Inline, ToyTrainer, cut_off, toy_plan

import dptune.sealed._under_way as under_way
from dptune import Dataset, Gdp, UnitDataset
from dptune.cli import main
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.ledgers import Ledger, OverlapWarning, default_ledger
from dptune.sealed import Release, compare_release, read_vault, resume, run
from dptune.sealed._shared import notice
from dptune.tables import Category, Number, Schema, Target, array_units, read_table
from dptune.tables.columns import Ignored
from dptune.tables.schema import CsvFormat


def _go(out: Path, data: Any = DATA, plan: Any = None, **options: Any) -> Release:
    return run(plan or toy_plan(count=1), ToyTrainer(), data, out=out, executor=Inline(), **options)


def _raise(error: BudgetExceeded) -> None:
    """Do what a refusal says."""
    (command,) = re.findall(r"`dptune (.*)`", str(error))
    assert main(shlex.split(command)) == 0


def test_the_second_run_sees_what_the_first_one_spent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = _go(tmp_path / "a", dataset="icu")
    said = capsys.readouterr().out
    assert f"'icu' is new in the ledger {default_ledger()}" in said
    assert "its own epsilon 3, delta 1e-05" in said
    assert first.details["dataset_budget"] == {"epsilon": 3.0, "delta": 1e-5}
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["release", "vault"]
    assert Ledger(default_ledger()).status("icu").charges == 1
    with pytest.raises(BudgetExceeded, match="nothing was charged") as caught:
        _go(tmp_path / "b", dataset="icu")
    assert not (tmp_path / "b").exists()
    _raise(caught.value)
    capsys.readouterr()
    second = _go(tmp_path / "b", dataset="icu")
    assert capsys.readouterr().out == ""  # it opened nothing
    assert Ledger(default_ledger()).status("icu").charges == 2
    assert _go(tmp_path / "c", DATA + 100, dataset="ward").dataset == "ward"  # other records, another budget
    for release, raised in ((first, False), (second, True)):
        details = json.loads((release.path / "release.json").read_text())
        assert (details["ledger"]["rule"] == "odometer") is raised
        assert ("with probability at least 1 - delta, at every moment" in release.statement) is raised
        assert ("raised after earlier releases |" in release.statement) is raised
        assert any("raised after earlier releases" in line for line in details["assumptions"]) is raised
        found = compare_release(Ledger(default_ledger()).verified(), release.path / "release.json")
        assert "budget of the data set" in found.compared
    assert first.details["dataset_budget"] != second.details["dataset_budget"]


def test_records_without_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"need a name .* give dataset='\.\.\.'.*Nothing was charged"):
        _go(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not default_ledger().exists()
    assert _go(tmp_path / "run", data_is="synthetic").dataset == "data"
    assert (tmp_path / "run" / "run.ledger").exists()
    assert not default_ledger().exists()


def test_a_refused_run_opens_no_budget(tmp_path: Path) -> None:
    class Broken(Inline):
        def open(self, work: Any) -> Any:
            raise InvalidInput("no workers today.")

    with pytest.raises(InvalidInput, match=r"no workers today\. Nothing was charged"):
        run(toy_plan(count=1), ToyTrainer(), DATA, out=tmp_path / "a", executor=Broken(), dataset="icu", explain=None)
    assert not Ledger(default_ledger()).knows("icu")
    _go(tmp_path / "b", dataset="icu", plan=toy_plan(9.0, count=1), explain=None)
    assert Ledger(default_ledger()).status("icu").epsilon == 9.0


def test_every_way_to_a_file_is_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, link, folder = tmp_path / "rows.npy", tmp_path / "link.npy", tmp_path / "linked"
    file.touch()
    link.symlink_to(file)
    folder.symlink_to(tmp_path, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    first = _go(tmp_path / "first", source=file, explain=None)
    assert first.dataset == str(file.resolve())
    for number, source in enumerate(["rows.npy", "./linked/rows.npy", link, folder / "link.npy", Path("rows.npy")]):
        with pytest.raises(BudgetExceeded, match=re.escape(repr(first.dataset))):
            _go(tmp_path / f"{number}", source=source, explain=None)
    monkeypatch.chdir(tmp_path)
    release = run(
        toy_plan(count=1), ToyTrainer(), DATA + 50, source=tmp_path / "other.npy", executor=Inline(), explain=None
    )
    assert re.fullmatch(r"other-[0-9a-f]{8}", release.path.parent.name)


def test_a_run_that_was_killed_is_charged_and_opens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(toy_plan(count=1), ToyTrainer(), tmp_path / "a", dataset="icu", data_is="private", explain=None)
    assert Ledger(default_ledger()).status("icu").charges == 1
    with pytest.raises(BudgetExceeded):
        _go(tmp_path / "b", dataset="icu")
    resume(tmp_path / "a", ToyTrainer(), DATA, executor=Inline())
    assert Ledger(default_ledger()).status("icu").charges == 1

    # Cut off between the vault and the charge: what opens the data set is kept with the run.
    def end(*_: Any) -> None:
        raise CutOff

    with monkeypatch.context() as patch:
        patch.setattr(under_way.UnderWay, "_charge", end)
        patch.setattr(sys.modules["dptune.sealed.run"], "_charged", lambda _: True)  # as if nobody could clean up
        with pytest.raises(CutOff):
            _go(tmp_path / "c", DATA + 100, dataset="ward")
    assert not Ledger(default_ledger()).knows("ward")
    resume(tmp_path / "c", ToyTrainer(), DATA + 100, executor=Inline())
    assert Ledger(default_ledger()).status("ward").charges == 1


def test_overlapping_records_are_a_warning_and_nothing_else(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "h.ledger")
    for name in ("icu", "copy", "other"):
        book.add(name, 20.0, 1e-5)
    _go(tmp_path / "a", ledger=book, dataset="icu")
    _go(tmp_path / "d", DATA[::-1], ledger=book, dataset="icu")  # the same name: no warning
    with pytest.warns(OverlapWarning, match=r"50% .*'icu'.*for the custodian alone") as caught:
        release = _go(tmp_path / "b", np.concatenate([DATA[:20], DATA[:20] + 90.5]), ledger=book, dataset="copy")
    told = [str(one.message) for one in caught]
    assert read_vault(tmp_path / "b", "a test").notes["overlaps"] == told
    everything = "".join(path.read_text(errors="replace") for path in release.path.iterdir())
    assert "overlap" not in everything
    assert "custodian alone" not in everything
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _go(tmp_path / "c", DATA + 1000.5, ledger=book, dataset="other")
    hashes = book.path.with_name("h.ledger.overlap")
    assert stat.S_IMODE(hashes.stat().st_mode) == 0o700
    assert stat.S_IMODE((hashes / "hashes.db").stat().st_mode) == 0o600
    assert book.status("copy").charges == 1
    book.verify()


def test_a_file_is_noticed_under_another_schema(tmp_path: Path) -> None:
    lines = [f"{age},{ward},{ill}" for age, ward, ill in zip(range(20, 80), "ab" * 30, ["no", "yes"] * 30, strict=True)]
    book = Ledger.create(tmp_path / "h.ledger")
    path, part = tmp_path / "icu.csv", tmp_path / "part.csv"
    path.write_text("\n".join(["age,ward,ill", *lines]))
    part.write_bytes(b"\r\n".join(line.encode() for line in ["age,ward,ill", *lines[:30], *["99,c,no"] * 70]) + b"\r\n")

    def go(out: str, file: Path, dataset: str, *columns: Any, header: bool = True) -> Release:
        schema = Schema(60, (*columns, Target("ill", ("no", "yes"))), csv=CsvFormat(header=header))
        read, told = read_table(file, schema), {"source": file, "dataset": dataset, "ledger": book}
        return _go(tmp_path / out, read.data.x[:, 0].astype(float), encoder=read.encoder, **told)

    for name in ("icu", "again", "part", "other"):
        book.add(name, 20.0, 1e-5)
    go("a", path, "icu", Number("age", 0, 120), Category("ward", ("a", "b")))
    with pytest.warns(OverlapWarning, match=r"About 100% .*'icu'"):
        go("b", path, "again", Number("age", 18, 65), Ignored("ward"))
    with pytest.warns(OverlapWarning, match="About 97% .*'(icu|again)'"):  # 30 of the 31 different lines are in both
        go("c", part, "part", Number("age", 0, 90), Category("ward", ("a",)))
    path.write_text("age,ward,ill\n" + "".join(f"{age}.5,c,no\n" for age in range(50)))  # its header alone is the same
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go("d", path, "other", Number("age", 0, 100), Ignored("ward"))
    assert not any(b"20,a,no" in one.read_bytes() for one in book.path.with_name("h.ledger.overlap").iterdir())


@pytest.mark.parametrize("data", [np.zeros((0, 2)), [], Dataset(np.zeros((0, 2)), np.zeros(0, int), 2), ([], [])])
def test_data_without_a_record_is_refused_before_the_charge(data: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no records"):
        _go(tmp_path / "a", data, dataset="icu")
    assert not (tmp_path / "a").exists()
    assert not default_ledger().exists()


class Blind(ToyTrainer):
    """Takes any records, and looks at none."""

    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        return {"x": 0.0}, 0.0


def test_rows_of_nobody_are_private_and_charged(tmp_path: Path) -> None:
    rows = Dataset(np.zeros((3, 2)), np.zeros(3, int), 2)
    nobodys = array_units(rows, ["", None, ""], 2, unit="patient")
    assert len(nobodys) == 0
    run(toy_plan(count=1), Blind(), nobodys, out=tmp_path / "a", executor=Inline(), dataset="icu", explain=None)
    assert Ledger(default_ledger()).status("icu").charges == 1
    with pytest.raises(InvalidInput, match="holds no records"):
        array_units(rows.take(np.zeros(0, int)), [], 2)


def test_a_damaged_file_of_hashes_stops_no_run(tmp_path: Path) -> None:
    _go(tmp_path / "a", dataset="icu", explain=None)
    hashes = default_ledger().with_name(f"{default_ledger().name}.overlap") / "hashes.db"
    hashes.write_bytes(b"not a database, but long enough to be taken for one" * 40)
    with pytest.warns(OverlapWarning, match="The run goes on"):
        _go(tmp_path / "b", DATA + 100, dataset="ward", explain=None)


def test_the_command_line_keeps_one_budget_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).clip(-3, 3)
    np.savez(tmp_path / "rows.npz", x=x, y=(x[:, 0] > 0).astype(int))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.npz").symlink_to("rows.npz")
    job = ["--classes", "2", "--records", "400", "--epsilon", "2", "--delta", "1e-4", "--method", "random-stopping"]
    job += ["--runs", "geometric:1", "--json", "--workers", "1"]
    assert main(["tune", "rows.npz", *job, "--out", "a"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["dataset"] == str((tmp_path / "rows.npz").resolve())
    assert "opens its budget with its own epsilon 2, delta 0.0001" in err
    assert main(["tune", "link.npz", *job, "--out", "b"]) == 2
    refused = capsys.readouterr().err
    assert f"dptune ledger raise {(tmp_path / 'rows.npz').resolve()} --epsilon" in refused
    (command,) = re.findall(r"`dptune (.*)`", refused)
    assert main(shlex.split(command)) == 0
    assert main(["tune", "link.npz", *job, "--out", "b"]) == 0
    capsys.readouterr()
    assert main(["ledger", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["charges"] for one in shown["datasets"]] == [2]
    assert main(["tune", "rows.npz", *job, "--out", "c", "--dataset", "another"]) == 0  # its own budget, and a warning
    assert "dptune: warning: About 100% of these records" in capsys.readouterr().err


def test_the_default_ledger_is_where_the_platform_keeps_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPTUNE_LEDGER")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert default_ledger() == tmp_path / ".local" / "share" / "dptune" / "budget.ledger"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # the specification says to ignore it
    assert default_ledger() == tmp_path / ".local" / "share" / "dptune" / "budget.ledger"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "x"))
    assert default_ledger() == tmp_path / "x" / "dptune" / "budget.ledger"
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_ledger() == tmp_path / "Library" / "Application Support" / "dptune" / "budget.ledger"
    monkeypatch.setattr("sys.platform", "linux")
    before = os.umask(0)
    try:
        _go(tmp_path / "run", dataset="icu", explain=None)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x" / "dptune").stat().st_mode) == 0o700
    monkeypatch.setenv("DPTUNE_LEDGER", "here.ledger")
    with pytest.raises(InvalidInput, match="absolute path"):
        default_ledger()


class _Unspeakable(int):
    """A record that cannot be written as text."""

    def __repr__(self) -> str:
        raise RuntimeError("a secret")


@pytest.mark.parametrize(
    "records", [[_Unspeakable(1), 2], (np.array([[1.0], [2.0]]), np.array(["a", None], object))], ids=["text", "object"]
)
def test_records_that_cannot_be_compared_stop_no_run(records: Any, tmp_path: Path) -> None:
    """They did: the comparison's own failure ended the run, because of what one record was."""
    Ledger.create(default_ledger())
    assert notice(records, "icu", Ledger(default_ledger())) in (
        [],
        ["The records were not compared with those under other names (RuntimeError)."],
    )


def test_a_warning_that_is_an_error_stops_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _go(tmp_path / "a", dataset="icu")
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverlapWarning)
        assert _go(tmp_path / "b", dataset="ward").outcome == "model"
    assert "two names have two budgets" in capsys.readouterr().err


def test_rows_of_units_are_compared_too(tmp_path: Path) -> None:
    book = Ledger.create(default_ledger())
    book.add("icu", 3.0, 1e-5)
    rows = Dataset(np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1]), 2, name="icu")
    assert notice(rows, "icu", book) == []
    book.charge("icu", Gdp(0.1))
    with pytest.warns(OverlapWarning):
        assert notice(UnitDataset(rows, [1, 1, 2, 2], 2, "patient"), "ward", book)
