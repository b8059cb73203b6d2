"""How long the command line takes to answer: processor seconds of a process of its own, medians of interleaved repeats.

Run it on a machine that has nothing else to do: processor time grows by half beside busy neighbours.

    python benchmarks/startup.py [REPEATS]
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys

_GDP = ["-m", "dptune", "price", "--base", "gdp:1", "--runs", "geometric:10", "--delta", "1e-5"]
_DPSGD = "dpsgd:0.0042666666666666667,1.1,2344"
COMMANDS: dict[str, list[str]] = {
    "python, nothing else": ["-c", "pass"],
    "import dptune": ["-c", "import dptune"],
    "import dptune.accounting": ["-c", "import dptune.accounting"],
    "dptune --version": ["-m", "dptune", "--version"],
    "dptune --help": ["-m", "dptune", "--help"],
    "dptune tune --help": ["-m", "dptune", "tune", "--help"],
    "dptune price, a Gaussian": _GDP,
    "dptune price, a Gaussian, --json": [*_GDP, "--json"],
    "dptune price, DP-SGD": ["-m", "dptune", "price", "--base", _DPSGD, "--runs", "geometric:20", "--delta", "1e-5"],
}


def processor_seconds(arguments: list[str]) -> float:
    """User and system time of one fresh interpreter, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(repeats: int) -> None:
    """Print a line for every command."""
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}; {repeats} repeats")
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeats):
        for name, arguments in COMMANDS.items():
            seconds[name].append(processor_seconds(arguments))
    for name, found in seconds.items():
        print(f"{name:34} median {statistics.median(found):.3f} s   least {min(found):.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
