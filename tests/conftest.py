"""Where the tests find the benchmark files, if they are there; memory that nobody wrote, filled with ``--poison``.

``np.empty`` often returns zeros, so code that reads what it did not write passes most of the time. With
``--poison nan`` or ``--poison huge`` such memory is never harmless.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
_BYTES = {"nan": 0xFF, "huge": 0x7F}  # four or eight of them are a NaN, or 3.4e38 and 1.4e306


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--poison", choices=sorted(_BYTES), help="fill numpy.empty and numpy.empty_like with this")


def pytest_configure(config: pytest.Config) -> None:
    kind = config.getoption("--poison")
    if kind:
        for name in ("empty", "empty_like"):
            setattr(np, name, poisoned(getattr(np, name), kind))


def poisoned(make: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """The same function, but arrays of floats, and of bytes that may be viewed as floats, are full of poison."""

    def filled(*given: Any, **named: Any) -> Any:
        array = make(*given, **named)
        if array.dtype.kind == "f" or array.dtype == np.uint8:
            array.fill(np.frombuffer(bytes([_BYTES[kind]] * array.itemsize), array.dtype)[0])
        return array

    return filled


@pytest.fixture(params=sorted(_BYTES))
def poison(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Memory that nobody wrote is full of NaN, or of huge numbers, for one test."""
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(np, name, poisoned(getattr(np, name), request.param))
    return str(request.param)


@pytest.fixture
def data_root(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The benchmark files; the test is skipped without them."""
    root = Path(os.environ.get("DPTUNE_DATA", _BESIDE))
    if not (root / "mnist").is_dir():
        pytest.skip("needs the benchmark files: set DPTUNE_DATA (see docs/training.md)")
    monkeypatch.setenv("DPTUNE_DATA", str(root))
    return root
