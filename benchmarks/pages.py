"""The page of a ledger with many charges: how large it is, how long it takes to make, and to open in Chromium.

    python benchmarks/pages.py [--charges 10000] [--datasets 10] [--rounds 5]

The ledger is that of ``benchmarks/ledger.py``. Its page is made as ``dptune report LEDGER`` makes it, verification of
the whole ledger included. Then it is opened again and again in one Chromium without a window (skipped where none is
installed): from the request to the end of the load event, with every row in place. Processor time does not count the
waiting for other programs; Chromium's is that of all its processes.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dptune as dpt
from dptune.ledgers._chain import Chain, make_key

_HERE = Path(__file__).parent
_LOADED = "performance.timing.loadEventEnd - performance.timing.navigationStart"


def _module(name: str, folder: Path) -> Any:
    """A module of this repository, wherever this file was started from."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module(name)


def built(path: Path, charges: int, datasets: int) -> None:
    """Write a ledger with so many charges, of a few costs, over several data sets."""
    bodies = _module("ledger", _HERE).bodies(charges + datasets + 1, datasets, 20)
    Chain(path).build(make_key(path), bodies).rename(path)


def _processor(shown: Any) -> float:
    """Seconds of all processes of the browser so far."""
    session, shown._session = shown._session, None
    found = shown.call("SystemInfo.getProcessInfo")["processInfo"]
    shown._session = session
    return float(sum(one["cpuTime"] for one in found))


def _opened(page: Path, rounds: int) -> None:
    wall, processor = [], []
    with _module("tests.report.browser", _HERE.parent).browser() as shown:
        for _ in range(rounds):
            before = _processor(shown)
            shown.open(page, 1024)
            wall.append(float(shown.value(_LOADED)) / 1e3)
            processor.append(_processor(shown) - before)
        rows = shown.value("document.querySelectorAll('tr').length")
    figures = min(wall), statistics.median(wall), statistics.median(processor)
    print("open      {} rows: fastest {:.2f} s, median {:.2f}, processor {:.2f}".format(rows, *figures))


def main() -> None:
    """Print the figures of one ledger."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--charges", type=int, default=10_000)
    parser.add_argument("--datasets", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hospital.ledger"
        built(path, options.charges, options.datasets)
        print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}: {options.charges} charges")
        start = time.perf_counter(), time.process_time()
        page = dpt.report(path)
        took = time.perf_counter() - start[0], time.process_time() - start[1]
        print(f"make      {page.stat().st_size / 1e6:.2f} MB: {took[0]:.2f} s, processor {took[1]:.2f}")
        if _module("tests.report.browser", _HERE.parent).find_browser() is None:
            print("open      no Chromium is installed")
        else:
            _opened(page, options.rounds)


if __name__ == "__main__":
    main()
