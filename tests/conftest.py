"""Where the tests find the benchmark files, if they are there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def data_root(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The benchmark files; the test is skipped without them."""
    root = Path(os.environ.get("DPTUNE_DATA", _BESIDE))
    if not (root / "mnist").is_dir():
        pytest.skip("needs the benchmark files: set DPTUNE_DATA (see docs/training.md)")
    monkeypatch.setenv("DPTUNE_DATA", str(root))
    return root
