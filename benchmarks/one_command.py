"""The one command itself: how long ``dptune tune --data X --epsilon E`` takes, and what its release reaches.

    DPTUNE_DATA=... python benchmarks/one_command.py [--data mnist,adult] [--epsilon 1]

Runs the command in a process of its own, with a ledger of its own, from its first line to its release. Then it loads
the release and scores it on the half of the test part that ``accuracy.py`` uses, and on the whole test part. One run a
data set, so figures have no errors.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from dptune import load_release
from dptune.training import load

_HALVES = 7  # the seed of the permutation that halves a test part, as in accuracy.py


def main() -> None:
    """Print a line for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist,fashion-mnist,adult,imdb,cifar-10")
    parser.add_argument("--epsilon", default="1")
    given = parser.parse_args()
    for name in given.data.split(","):
        with tempfile.TemporaryDirectory() as folder:
            out, begun, before = Path(folder) / "run", time.perf_counter(), _processor()
            command = [sys.executable, "-m", "dptune", "tune", "--data", name, "--epsilon", given.epsilon]
            surroundings = {**os.environ, "DPTUNE_LEDGER": f"{folder}/budget.ledger"}
            command += ["--delta", "1e-5", "--out", str(out)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=surroundings)
            wall, processor = time.perf_counter() - begun, _processor() - before
            release, test = load_release(out), load(name).test
            half = test.take(np.random.default_rng(_HALVES).permutation(len(test))[len(test) // 2 :])
            reached, whole = release.model.accuracy(half), release.model.accuracy(test)
        print(
            f"{name:14} {wall:4.0f} s, {processor:4.0f} s of processor time; total epsilon {release.epsilon:.4f}; "
            f"accuracy {reached:.4f} on the half, {whole:.4f} on the whole test part",
            flush=True,
        )


def _processor() -> float:
    """Processor time of all processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
