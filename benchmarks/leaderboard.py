"""The leaderboard of docs/leaderboard.md: the same as ``dptune leaderboard``, with the same flags.

DPTUNE_DATA=... python benchmarks/leaderboard.py [--quick] [--data mnist,adult] [--epsilon 1,3] [--out FOLDER]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import sys

from dptune.cli import main

if __name__ == "__main__":
    sys.exit(main(["leaderboard", *sys.argv[1:]]))
