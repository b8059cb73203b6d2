"""What a large data set costs in memory and time when several workers train on it.

    python benchmarks/large_data.py [--rows 5000000] [--features 50] [--workers 2] [--source npz|memmap|arrays]
        [--plain]

Writes the records to a file, then tunes on them in a process of its own (a rehearsal on synthetic records). Memory is
that of the process and all its children, sampled ten times a second: PSS counts a page that several processes map once,
RSS once for each of them. Times begin when the plan is made and the records are read; making them is not part of it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np

_PROGRAM = """
import dataclasses, json, sys, time
import numpy as np
import dptune as dpt
from dptune.executors import Processes
from dptune.methods import Budget
from dptune.planner import default_space, default_trainer
from dptune.planner.advice import choose
from dptune.planner.incoming import Declared, bring_in

folder, source, *figures = sys.argv[1:]
rows, features, workers, steps, plain = map(int, figures)
trainer = default_trainer(features, 2, rows, epsilon=1)
trainer = dataclasses.replace(trainer, whitening=None) if plain else trainer
trainer = dataclasses.replace(trainer, settings=dataclasses.replace(trainer.settings, steps=steps))
plan = choose(trainer, default_space(), Budget(1, 1e-7), records=rows, runs=dpt.Geometric(3)).plan
print(json.dumps({"method": plan.method}), flush=True)
began, first = time.perf_counter(), []
used = time.process_time()
if source == "npz":
    data = folder + "/records.npz"
else:
    data = np.load(folder + "/x.npy", mmap_mode="r" if source == "memmap" else None), np.load(folder + "/y.npy")
records = bring_in(data, Declared(records=rows, classes=2), trainer).data
read = time.perf_counter() - began
options = {"seed": 1, "data_is": "synthetic", "out": folder + "/run", "executor": Processes(workers)}
options["beat"] = lambda _: first.append((time.perf_counter() - began, time.process_time() - used))
release = dpt.run(plan, trainer, records, **options)
said = {"read": read, "first": first[0], "whole": time.perf_counter() - began, "params": release.params}
print(json.dumps(said))
"""


def _tree(root: int) -> list[int]:
    """The process and everything below it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    found = [root]
    for one in found:
        found.extend(child for child, parent in parents.items() if parent == one)
    return found


def _memory(processes: list[int]) -> tuple[int, int]:
    """Bytes of PSS and of RSS."""
    pss = rss = 0
    for one in processes:
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        values = {line.split()[0]: int(line.split()[1]) << 10 for line in lines[1:]}
        pss, rss = pss + values.get("Pss:", 0), rss + values.get("Rss:", 0)
    return pss, rss


def _watch(process: subprocess.Popen[str]) -> tuple[int, int]:
    """The largest sums that were seen until the process ended."""
    most = (0, 0)
    while process.poll() is None:
        time.sleep(0.1)
        pss, rss = _memory(_tree(process.pid))
        most = max(most[0], pss), max(most[1], rss)
    return most


def main() -> None:
    """Print peaks and times."""
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or ""))
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--source", choices=("npz", "memmap", "arrays"), default="npz")
    parser.add_argument("--plain", action="store_true", help="train on records as they are, not brought to one level")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), given.source, given.rows, given.features)
        command = [sys.executable, "-c", _PROGRAM, folder, given.source]
        command += [str(one) for one in (given.rows, given.features, given.workers, given.steps, int(given.plain))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        planned = json.loads(process.stdout.readline())
        pss, rss = _watch(process)
        said = json.loads(process.stdout.read())
    size = given.rows * given.features * 4
    print(f"{platform.machine()}, {given.rows} x {given.features} float32 ({size / 1e9:.2f} GB), from {given.source}")
    print(f"peak of all processes: PSS {pss / 1e9:.2f} GB, sum of RSS {rss / 1e9:.2f} GB")
    print(f"{planned['method']}: read in {said['read']:.1f} s, first trial after {said['first'][0]:.1f} s ", end="")
    print(f"({said['first'][1]:.1f} s of processor time in the process that drives the run), ", end="")
    print(f"released after {said['whole']:.1f} s: {said['params']}")


def _write(folder: Path, source: str, rows: int, features: int) -> None:
    """Synthetic records: two classes that a plane parts."""
    rng = np.random.default_rng(0)
    x = rng.random((rows, features), dtype=np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int64)
    if source == "npz":
        np.savez(folder / "records.npz", x=x, y=y)
    else:
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)


if __name__ == "__main__":
    main()
