"""What all tests share: surroundings that are the same everywhere, how property tests draw, memory that nobody wrote,
filled with ``--poison``, and where the benchmark files are, if they are there.

``np.empty`` often returns zeros, so code that reads what it did not write passes most of the time. With
``--poison nan`` or ``--poison huge`` such memory is never harmless.
"""

# ruff: noqa: E402 - the surroundings come before what reads them when it is imported
from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]

# One numerical thread for a process, as dptune's workers have it. Two of pytest's workers with two threads each wait
# for one another on two processors, and for minutes beside a busy neighbour.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
# One worker for a sealed run that was not told how many: starting a second one takes longer than most runs of a test.
os.environ["DPTUNE_WORKERS"] = "1"
# What a person's shell says must not change what tests see: width and colours of tables, language.
for _name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
    os.environ.pop(_name, None)
os.environ.update(COLUMNS="80", TERM="xterm", LC_ALL="C.UTF-8")
# No test charges a person's own ledger: what begins outside of a test finds one in a folder that goes with us.
_LEDGERS = tempfile.TemporaryDirectory(prefix="dptune-tests-")
os.environ["DPTUNE_LEDGER"] = str(Path(_LEDGERS.name) / "outside.ledger")
# A shell that starts us in the background lets us ignore Ctrl-C, and every process that we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Processes that tests start find this tree, and the tests' toys, wherever they are started.
_PLACES = [str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(place for place in _PLACES if place)

import hypothesis
import numpy as np
import pytest

# The default suite tries the same examples every time: a change is judged by what it changed, not by a draw. New
# examples are explored by `make test-all` (--hypothesis-profile=explore); what they find is kept as an @example.
# Neither profile looks at a clock: a busy machine is no failure.
_UNTIMED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
    "print_blob": True,
    "database": None,
}
hypothesis.settings.register_profile("repeat", derandomize=True, **_UNTIMED)
hypothesis.settings.register_profile("explore", derandomize=False, **_UNTIMED)
hypothesis.settings.load_profile("repeat")

_BESIDE = _ROOT.parent / "shared" / "data"
_BYTES = {"nan": 0xFF, "huge": 0x7F}  # four or eight of them are a NaN, or 3.4e38 and 1.4e306


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--poison", choices=sorted(_BYTES), help="fill numpy.empty and numpy.empty_like with this")


def pytest_configure(config: pytest.Config) -> None:
    kind = config.getoption("--poison")
    if kind:
        for name in ("empty", "empty_like"):
            setattr(np, name, poisoned(getattr(np, name), kind))
        # Processes that tests start: glibc writes the complement of this, the bytes of "huge", into what malloc gives.
        # It knows no NaN: their complement, zero, switches it off.
        os.environ["MALLOC_PERTURB_"] = str(0xFF ^ _BYTES["huge"])


def poisoned(make: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """The same function, but arrays of numbers are full of poison: whole numbers are -1, or huge, too."""

    def filled(*given: Any, **named: Any) -> Any:
        array = make(*given, **named)
        if array.dtype.kind in "fciu":
            array.fill(np.frombuffer(bytes([_BYTES[kind]] * array.itemsize), array.dtype)[0])
        return array

    return filled


@pytest.fixture(autouse=True)
def _own_default_ledger(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has a default ledger of its own: none sees what another one spent."""
    monkeypatch.setenv("DPTUNE_LEDGER", str(tmp_path_factory.mktemp("home") / "default.ledger"))


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
