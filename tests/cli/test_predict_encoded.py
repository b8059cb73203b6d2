"""``dptune predict`` with a public encoder: it is imported where its name is given, and never by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

ENCODER = """
import numpy as np
from dptune.training import PublicEncoder

ends = PublicEncoder("my_ends:ends", lambda row: row[:5] - row[-5:], 5, shape=(8,), weights="0" * 64)
"""
JOB = """
[data]
file = "rows.npz"
kind = "public"
records = 300
classes = 2
features = "my_ends:ends"
[budget]
epsilon = 3.0
delta = 1e-4
"""


def _dptune(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dptune", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_encoder_is_imported_where_it_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 8))
    np.savez(tmp_path / "rows.npz", x=x, y=(x[:, 0] > x[:, -1]).astype(int))
    np.savez(tmp_path / "new.npz", x=x[:7])
    (tmp_path / "my_ends.py").write_text(ENCODER)
    (tmp_path / "job.toml").write_text(JOB)
    done = _dptune(tmp_path, "tune", "job.toml", "--seed", "1", "--out", "run")
    assert done.returncode == 0, done.stderr
    alone = _dptune(tmp_path, "predict", "run", "new.npz")
    assert alone.returncode == 2
    assert "'dptune predict' takes --features my_ends:ends" in alone.stderr
    assert alone.stderr.count("\n") == 1
    assert not (tmp_path / "predictions.csv").exists()
    named = _dptune(tmp_path, "predict", "run", "new.npz", "--features", "my_ends:ends")
    assert named.returncode == 0, named.stderr
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 8
