"""Nothing but the winner leaves: scores are looked for everywhere outside the vault, and K in every count.

A sealed run in a process of its own, with home, working folder and temporary folder under watch and a trainer that
prints, logs, warns and writes its scores wherever it can.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.sealed.toy import ToySearch, toy_plan

from dptune.ledgers import Ledger
from dptune.randomness import Randomness
from dptune.sealed import read_vault

SCALE = 0.7390851332151607  # scores are no simple function of anything released

SCRIPT = textwrap.dedent("""
    import sys
    from tests.sealed import toy
    from tests.sealed.toy import DATA, toy_plan
    from dptune.executors import Processes
    from dptune.randomness import Randomness
    from dptune.sealed import run
    out, ledger, secret, scale = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3]), float(sys.argv[4])
    Randomness.fresh = classmethod(lambda cls: cls(secret))
    trainer = getattr(toy, sys.argv[5])(shout=True, fail_below=1.2, scale=scale)
    release = run(toy_plan(), trainer, DATA, ledger=ledger, dataset="icu", out=out, executor=Processes(2))
    print(release.params)
    print(release.statement)
""")


@dataclass(frozen=True)
class Seen:
    """Everything that somebody without access to the vault could look at."""

    files: dict[str, bytes]
    output: bytes
    scores: tuple[float, ...]
    runs: int


def _count(secret: bytes) -> int:
    return ToySearch(toy_plan(), Randomness(secret)).count


def _secret(runs: int) -> bytes:
    """A secret whose K is this one."""
    return next(s for s in (n.to_bytes(32, "big") for n in range(100_000)) if _count(s) == runs)


def _watch(folder: Path, runs: int, kind: str) -> Seen:
    home = folder / "watched"
    home.mkdir()
    ledger = Ledger.create(home / "h.ledger")
    ledger.add("icu", 10.0, 1e-5)
    out = home / "run"
    environment = {
        **os.environ,
        **dict.fromkeys(("HOME", "TMPDIR", "TMP", "TEMP", "XDG_CACHE_HOME"), str(home)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", SCRIPT, str(out), str(ledger.path), _secret(runs).hex(), str(SCALE), kind]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, check=True)
    vault = out / "vault"
    paths = [path for path in sorted(home.rglob("*")) if vault not in path.parents]
    files = {str(p.relative_to(home)): p.read_bytes() if p.is_file() else b"" for p in paths}
    reading = read_vault(out, "test")
    scores = tuple(s for s in reading.scores.values() if np.isfinite(s))
    assert len(reading.scores) == runs
    # The vault does hold them, so a search for them can succeed.
    inside = b"".join(path.read_bytes() for path in vault.rglob("*") if path.is_file())
    assert all(repr(score).encode() in inside for score in scores)
    return Seen(files, done.stdout + done.stderr, scores, runs)


@pytest.mark.parametrize("kind", ["ToyTrainer", "StackingTrainer"])
def test_nothing_but_the_winner_leaves(tmp_path: Path, kind: str) -> None:
    watched = []
    for runs in (1, 14):
        (tmp_path / str(runs)).mkdir()
        watched.append(_watch(tmp_path / str(runs), runs, kind))
    _no_score_is_outside_the_vault(watched)
    _nothing_outside_the_vault_counts_the_runs(watched)
    _failures_and_the_number_of_runs_are_not_in_the_statement(watched)


def _forms(score: float) -> list[bytes]:
    texts = [repr(score), f"{score:.6f}", f"{score:.6g}", f"{score:.4f}", str(np.float32(score))]
    raw = [kind(score).tobytes() for kind in (np.float32, np.float64)]
    return [*(text.encode() for text in texts), *raw, *(form[::-1] for form in raw)]


def _no_score_is_outside_the_vault(watched: list[Seen]) -> None:
    for seen in watched:
        everything = b"\0".join([*seen.files.values(), seen.output, "\n".join(seen.files).encode()])
        for score in seen.scores:
            assert not any(form in everything for form in _forms(score))


def _nothing_outside_the_vault_counts_the_runs(watched: list[Seen]) -> None:
    """The same files and the same number of lines everywhere, whatever K was."""
    names = [sorted(seen.files) for seen in watched]
    assert names[0] == names[1]
    for name in names[0]:
        if name.endswith((".json", ".md")):
            assert len({seen.files[name].count(b"\n") for seen in watched}) == 1
    assert len({seen.output.count(b"\n") for seen in watched}) == 1
    assert len({len(seen.files["h.ledger"]) for seen in watched}) == 1
    assert len({seen.files["run/release/plan.json"] for seen in watched}) == 1
    assert len({len(seen.files["run/release/model.npz"]) for seen in watched}) == 1


def _failures_and_the_number_of_runs_are_not_in_the_statement(watched: list[Seen]) -> None:
    for seen in watched:
        text = seen.files["run/release/statement.md"].decode()
        assert "diverged" not in text
        assert f" {seen.runs} runs" not in text
        assert f" {seen.runs} trials" not in text
