"""Damage to a vault: each kind is refused in one line before anything is released, or changes nothing at all.

One run that was cut off just before its release is copied for every kind, damaged, and resumed.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import DATA, Inline, ToyTrainer, cut_off, toy_plan

from dptune.errors import Corrupt
from dptune.ledgers import Ledger
from dptune.randomness import Randomness
from dptune.sealed import Release, load_release, read_vault, resume
from dptune.sealed._seal import SCHEMA, pack_secret

TRIALS = 4


@dataclass(frozen=True)
class Cut:
    """A run that was cut off, and what it releases if nobody touches it."""

    out: Path
    release: Release
    winner: int
    ledger: Ledger


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Cut:
    folder = tmp_path_factory.mktemp("cut")
    ledger = Ledger.create(folder / "h.ledger")
    ledger.add("icu", 10.0, 1e-5)
    cut_off(toy_plan(count=TRIALS), ToyTrainer(fail_below=1.05), folder / "run", ledger=ledger, dataset="icu")
    scores = read_vault(folder / "run", "test").scores
    assert len(scores) == TRIALS
    shutil.copytree(folder / "run", folder / "calm")
    release = _resume(folder / "calm")
    return Cut(folder / "run", release, max(scores, key=lambda i: scores[i]), ledger)


def _resume(out: Path) -> Release:
    return resume(out, ToyTrainer(fail_below=1.05), DATA, executor=Inline())


@pytest.fixture
def out(cut: Cut, tmp_path: Path) -> Path:
    return Path(shutil.copytree(cut.out, tmp_path / "run"))


Damage = Callable[[Path, Cut], None]


def _file(name: str, change: Callable[[bytes], bytes]) -> Damage:
    """A file of the vault with other content; ``WINNER`` in its name is the winner's number."""

    def damage(out: Path, cut: Cut) -> None:
        path = out / "vault" / "inside" / name.replace("WINNER", str(cut.winner))
        path.write_bytes(change(path.read_bytes()))

    return damage


def _sql(*statements: str) -> Damage:
    def damage(out: Path, cut: Cut) -> None:
        with contextlib.closing(sqlite3.connect(out / "vault" / "inside" / "run.db")) as database, database:
            for statement in statements:
                database.execute(statement.replace("WINNER", str(cut.winner)))

    return damage


def _path(act: Callable[[Path, Cut], Any]) -> Damage:
    """Something done to the inner folder."""
    return lambda out, cut: act(out / "vault" / "inside", cut)


def _flip(place: int, bit: int = 2) -> Callable[[bytes], bytes]:
    return lambda content: content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


def _swap_models(inside: Path, cut: Cut) -> None:
    models = sorted((inside / "models").iterdir())
    one = inside / "models" / f"{cut.winner}.model"
    other = next(path for path in models if path != one)
    here, there = one.read_bytes(), other.read_bytes()
    one.write_bytes(there)
    other.write_bytes(here)


def _remove_losers(inside: Path, cut: Cut) -> None:
    for path in (inside / "models").iterdir():
        if path.stem != str(cut.winner):
            path.unlink()


def _swap(table: str, columns: str) -> Damage:
    """The contents of two rows, the keys left where they are."""

    def damage(out: Path, cut: Cut) -> None:
        with contextlib.closing(sqlite3.connect(out / "vault" / "inside" / "run.db")) as database, database:
            rows = database.execute(f"SELECT number, {columns} FROM {table} ORDER BY number LIMIT 2").fetchall()
            marks = ", ".join(f"{column} = ?" for column in columns.split(", "))
            for (number, *_), (_, *values) in zip(rows, reversed(rows), strict=True):
                database.execute(f"UPDATE {table} SET {marks} WHERE number = ?", (*values, number))

    return damage


def _half_a_release(out: Path, cut: Cut) -> None:
    (out / "release").mkdir()
    shutil.copy(cut.release.path / "release.json", out / "release")


def _another_release(out: Path, cut: Cut) -> None:
    shutil.copytree(cut.release.path, out / "release")
    statement = out / "release" / "statement.md"
    statement.write_text(statement.read_text().replace("1e-05", "1e-06"))


CORRUPT: dict[str, Damage] = {
    # the secret
    **{f"secret, bit of byte {place}": _file("secret", _flip(place)) for place in (0, 15, 31, 32, 63)},
    "secret, truncated": _file("secret", lambda content: content[:40]),
    "secret, without its checksum": _file("secret", lambda content: content[:32]),
    "secret, empty": _file("secret", lambda _: b""),
    "secret, longer": _file("secret", lambda content: content + b"\0"),
    "secret, another run's": _file("secret", lambda _: pack_secret(Randomness.fresh().secret())),
    "secret, removed": _path(lambda inside, _: (inside / "secret").unlink()),
    # facts
    "plan edited": _sql("UPDATE facts SET value = replace(value, '\"mu\": 0.5', '\"mu\": 0.4') WHERE name = 'terms'"),
    "terms emptied": _sql("UPDATE facts SET value = '{}' WHERE name = 'terms'"),
    "data set renamed": _sql("UPDATE facts SET value = replace(value, '\"icu\"', '\"icv\"') WHERE name = 'terms'"),
    "state edited": _sql("UPDATE facts SET value = '\"released\"' WHERE name = 'state'"),
    "receipt edited": _sql("UPDATE facts SET value = replace(value, 'renyi', 'fixed') WHERE name = 'receipt'"),
    "fact renamed": _sql("UPDATE facts SET name = 'other' WHERE name = 'receipt'"),
    "fact removed": _sql("DELETE FROM facts WHERE name = 'receipt'"),
    "fact added": _sql("INSERT INTO facts SELECT 'workers', value, mac FROM facts WHERE name = 'state'"),
    "no facts": _sql("DELETE FROM facts"),
    # trials
    "parameters edited": _sql("UPDATE trials SET trial = replace(trial, '\"x\": 1', '\"x\": 2')"),
    "trial renumbered": _sql("UPDATE trials SET number = 99 WHERE number = 0"),
    "start edited": _sql("UPDATE trials SET started = started + 1 WHERE number = 0"),
    "deaths edited": _sql("UPDATE trials SET deaths = 2 WHERE number = 0"),
    "trial removed": _sql("DELETE FROM trials WHERE number = 0"),
    "trials swapped": _swap("trials", "trial"),
    "trials swapped with their checks": _swap("trials", "trial, started, deaths, mac"),
    "trial doubled": _sql("INSERT INTO trials SELECT 99, trial, started, deaths, mac FROM trials WHERE number = 0"),
    # outcomes
    "score edited": _sql("UPDATE outcomes SET score = score + 1 WHERE number = WINNER"),
    "last bit of a score": _sql("UPDATE outcomes SET score = score * (1 + 2.3e-16) WHERE number = WINNER"),
    "score removed": _sql("UPDATE outcomes SET score = NULL WHERE number = 0"),
    "score a text": _sql("UPDATE outcomes SET score = 'high' WHERE number = 0"),
    "error edited": _sql("UPDATE outcomes SET error = 'none' WHERE number = 0"),
    "output edited": _sql("UPDATE outcomes SET output = 'loud' WHERE number = 0"),
    "model's check edited": _sql("UPDATE outcomes SET model = NULL WHERE number = WINNER"),
    "end edited": _sql("UPDATE outcomes SET finished = finished + 1"),
    "outcome renumbered": _sql("UPDATE outcomes SET number = 99 WHERE number = 0"),
    "winner's outcome removed": _sql("DELETE FROM outcomes WHERE number = WINNER"),
    "trial and outcome removed": _sql("DELETE FROM outcomes WHERE number = 0", "DELETE FROM trials WHERE number = 0"),
    "all outcomes removed": _sql("DELETE FROM outcomes"),
    "scores swapped": _swap("outcomes", "score"),
    "outcomes swapped with their checks": _swap("outcomes", "score, error, output, model, finished, mac"),
    "check of a row edited": _sql("UPDATE outcomes SET mac = zeroblob(32) WHERE number = 0"),
    "check of a row a text": _sql("UPDATE outcomes SET mac = 'checked' WHERE number = 0"),
    # the check of all rows
    "count edited": _sql("UPDATE seal SET count = count - 1"),
    "sum edited": _sql("UPDATE seal SET sum = zeroblob(32)"),
    "seal removed": _sql("DELETE FROM seal"),
    "second seal": _sql("INSERT INTO seal SELECT 2, count, sum, mac FROM seal"),
    # models
    "winner's model removed": _path(lambda inside, cut: (inside / "models" / f"{cut.winner}.model").unlink()),
    "models removed": _path(lambda inside, _: shutil.rmtree(inside / "models")),
    "winner's model truncated": _file("models/WINNER.model", lambda content: content[:-1]),
    "winner's model empty": _file("models/WINNER.model", lambda _: b""),
    "bit of the winner's model": _file("models/WINNER.model", _flip(30)),
    "models swapped": _path(_swap_models),
    # the file
    "database cut": _file("run.db", lambda content: content[: len(content) // 2]),
    "database empty": _file("run.db", lambda _: b""),
    "database removed": _path(lambda inside, _: (inside / "run.db").unlink()),
    "database garbage": _file("run.db", lambda content: b"garbage!" * (len(content) // 8)),
    **{f"a format that may not be written, bit {bit}": _file("run.db", _flip(18, bit)) for bit in range(1, 8)},
    "a format that may not be read": _file("run.db", _flip(19, 2)),
    "page of zeros": _file("run.db", lambda content: content[:8192] + bytes(4096) + content[12288:]),
    **{f"no table {table}": _sql(f"DROP TABLE {table}") for table in SCHEMA},
    "trigger": _sql("CREATE TRIGGER t AFTER INSERT ON outcomes BEGIN DELETE FROM outcomes; END"),
    "view": _sql("CREATE VIEW v AS SELECT * FROM outcomes"),
    "index": _sql("CREATE INDEX i ON outcomes (score)"),
    "table": _sql("CREATE TABLE other (x)"),
    "column": _sql("ALTER TABLE outcomes ADD COLUMN other"),
    # a release that the run did not make
    "half a release": _half_a_release,
    "another release": _another_release,
    "empty release": lambda out, _: (out / "release").mkdir(),
    # everything
    "vault removed": lambda out, _: shutil.rmtree(out / "vault"),
    "inner folder removed": _path(lambda inside, _: shutil.rmtree(inside)),
}

HARMLESS: dict[str, Damage] = {
    "nothing": lambda out, cut: None,
    "log of reads edited": _sql("UPDATE reads SET reason = 'none'"),
    "log of reads emptied": _sql("DELETE FROM reads"),
    "built release removed": _path(lambda inside, _: shutil.rmtree(inside / "release")),
    "built release edited": _file("release/statement.md", lambda _: b"public"),
    "output removed": _path(lambda inside, _: shutil.rmtree(inside / "output")),
    "working folder removed": _path(lambda inside, _: shutil.rmtree(inside / "work")),
    "a foreign file": _path(lambda inside, _: (inside / "notes.txt").write_text("x")),
    "a write-ahead file of nothing": _path(lambda inside, _: (inside / "run.db-wal").write_bytes(b"x" * 4096)),
    "a journal of nothing": _path(lambda inside, _: (inside / "run.db-journal").write_bytes(b"x" * 4096)),
    "losers' models removed": _path(_remove_losers),
}


def test_there_are_enough_kinds() -> None:
    assert len(CORRUPT) >= 40


@pytest.mark.parametrize("kind", CORRUPT)
def test_damage_is_refused_before_the_release(kind: str, cut: Cut, out: Path) -> None:
    CORRUPT[kind](out, cut)
    foreign = (out / "release").exists()
    with pytest.raises(Corrupt) as caught:
        _resume(out)
    text = str(caught.value)
    assert "\n" not in text
    assert any(advice in text for advice in ("Restore", "Start a new run", "cannot be continued"))
    assert not any(f"{word} {number}" in text for word in ("trial", "outcome", "row") for number in range(TRIALS))
    assert foreign or not (out / "release").exists()
    secret = out / "vault" / "inside" / "secret"
    assert secret.exists() or kind in ("secret, removed", "vault removed", "inner folder removed")


def _same(one: Release, other: Release) -> bool:
    return one.params == other.params and all(np.array_equal(one.model[k], other.model[k]) for k in other.model)


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_nothing_depends_on_changes_nothing(kind: str, cut: Cut, out: Path) -> None:
    HARMLESS[kind](out, cut)
    release = _resume(out)
    assert _same(release, cut.release)
    assert release.statement == cut.release.statement


def test_flipped_bits_of_the_database(cut: Cut, tmp_path: Path) -> None:
    """Each one is refused, or the release is the same to the last bit."""
    chance, refused = random.Random(11), 0
    for number in range(120):
        out = Path(shutil.copytree(cut.out, tmp_path / str(number)))
        path = out / "vault" / "inside" / "run.db"
        content = bytearray(path.read_bytes())
        used = [place for place, byte in enumerate(content) if byte]  # most of the file is empty
        content[chance.choice(used)] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        release = None
        with contextlib.suppress(Corrupt):
            release = _resume(out)
        assert release is None or _same(release, cut.release)
        assert (release is None) == (not (out / "release").exists())
        refused += release is None
    assert refused > 60  # it can fail


def test_a_damaged_run_that_is_restored_goes_on(cut: Cut, out: Path) -> None:
    CORRUPT["score edited"](out, cut)
    with pytest.raises(Corrupt):
        _resume(out)
    shutil.rmtree(out)
    shutil.copytree(cut.out, out)
    assert _same(_resume(out), cut.release)


def test_damage_under_way_is_found_before_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only where a vault is opened: a score that is edited while the last trial trains."""
    out = tmp_path / "run"
    fit = ToyTrainer.fit

    def edit(self: ToyTrainer, params: Any, data: Any, rng: Any) -> Any:
        with contextlib.closing(sqlite3.connect(out / "vault" / "inside" / "run.db", timeout=60)) as database, database:
            database.execute("UPDATE outcomes SET score = 1e9 WHERE number = 0")
        return fit(self, params, data, rng)

    monkeypatch.setattr(ToyTrainer, "fit", edit)
    with pytest.raises(Corrupt, match="is damaged; nothing was released"):
        cut_off(toy_plan(count=3), ToyTrainer(), out)


def test_a_finished_release_that_was_changed_is_noticed(cut: Cut, out: Path) -> None:
    release = _resume(out)
    model = release.path / str(release.details["model"])
    model.write_bytes(model.read_bytes() + b"\0")
    with pytest.raises(Corrupt, match="not what the run released"):
        _resume(out)
    with pytest.raises(Corrupt, match="not the one that was released"):
        _ = load_release(release.path).model


def test_a_release_without_its_charge_is_refused(tmp_path: Path) -> None:
    """The ledger is asked again at the very end, and when a charged run is resumed."""
    ledger = Ledger.create(tmp_path / "h.ledger")
    ledger.add("icu", 10.0, 1e-5)
    before = tmp_path / "before.ledger"
    shutil.copy(ledger.path, before)
    cut_off(toy_plan(count=2), ToyTrainer(), tmp_path / "run", ledger=ledger, dataset="icu")
    shutil.copy(ledger.path, tmp_path / "newest.ledger")
    shutil.copy(before, ledger.path)
    with pytest.raises(Corrupt, match="no longer holds the charge") as caught:
        _resume(tmp_path / "run")
    assert "nothing was charged" not in str(caught.value).lower()
    assert not (tmp_path / "run" / "release").exists()
    shutil.copy(tmp_path / "newest.ledger", ledger.path)
    assert _resume(tmp_path / "run").params is not None


def test_a_name_of_a_table_that_is_no_text(cut: Cut, out: Path) -> None:
    """One bit of the file makes a name of bytes of a name that is a text, which SQLite still takes."""
    with contextlib.closing(sqlite3.connect(out / "vault" / "inside" / "run.db")) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET name = ? WHERE name = 'seal'", (b"seal",))
    with pytest.raises(Corrupt):
        _resume(out)
