"""The example of a trainer that is tuned by the event of another accountant runs as it is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dptune.ledgers import Ledger, default_ledger
from dptune.sealed import load_release

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "any_accountant.py"


def test_the_example_runs_and_is_short(tmp_path: Path) -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 40
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    release = load_release(tmp_path / "run")
    assert f"epsilon {release.epsilon:.3f} for everything" in done.stdout
    assert 1.3 < (release.epsilon or 0.0) < 1.4  # one training costs .960
    Ledger(tmp_path / "run" / "run.ledger").verify()  # the charge can be priced anew from what is stored
    assert not default_ledger().exists()
