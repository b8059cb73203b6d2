"""What the secure sum costs: CPU seconds and bytes per client, ours beside Flower's SecAgg+, in one process.

    python benchmarks/federated.py                      # n = 50, 100, 250, 1,000; SecAgg+ up to n = 100
    python benchmarks/federated.py --clients 50 --repeat 3

Both protocols run on real Flower messages over the same in-process grid, so neither pays for a network: "sum over
Flower" is the secure sum alone, as SecAgg+ is; "vote over Flower" has noise, account and a synchronous ledger on disk
for every client besides; "bare" is our sum without Flower. SecAgg+ runs twice: set as in the DP-Hype paper (0.3 n
shares), with a threshold of 0.6 so that it too survives a fifth of the clients dropping out; and with as many shares
and the same threshold as ours, which is the like-for-like figure. It is stopped at n = 100: its CPU grows about with
n cubed.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Callable
from functools import partial

from dptune.federated.graph import topology
from dptune.reproductions.secure_sums import (
    DROPOUT,
    LENGTH,
    Cost,
    bare,
    quiet_flower,
    secagg_plus,
    sum_over_flower,
    vote_over_flower,
)


def main() -> None:
    """Measure, interleaved, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 100, 250, 1000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--secagg-up-to", type=int, default=100)
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"vector of {LENGTH}, dropout {DROPOUT}, one colluding; CPU seconds of all parties, bytes per client")
    print(f"{'n':>5} {'protocol':<28} {'CPU s':>9} {'bytes up':>10} {'bytes down':>11}")
    with quiet_flower():
        for n in options.clients:
            measure(n, options.repeat, options.secagg_up_to)


def measure(n: int, repeat: int, secagg_up_to: int) -> None:
    """One number of clients: every protocol in turn."""
    kinds: dict[str, Callable[[], Cost]] = {
        "bare": partial(bare, n),
        f"bare, {n // 5} drop at stage 3": partial(bare, n, dropped=n // 5),
    }
    if n <= 250:
        kinds["sum over Flower"] = partial(sum_over_flower, n)
        kinds["vote over Flower"] = partial(vote_over_flower, n)
    if n <= secagg_up_to:
        kinds["SecAgg+, 0.3 n shares"] = partial(secagg_plus, n, 0.3, 0.6)
        shape = topology(n, DROPOUT, 1)
        kinds["SecAgg+, shares as ours"] = partial(secagg_plus, n, shape.degree + 1, shape.threshold)
    costs: dict[str, list[Cost]] = {name: [] for name in kinds}
    for _ in range(repeat if n <= 250 else 1):
        for name, run in kinds.items():
            costs[name].append(run())
    for name, runs in costs.items():
        cpu = statistics.median(one.cpu for one in runs)
        print(f"{n:>5} {name:<28} {cpu:>9.2f} {runs[0].up:>10,.0f} {runs[0].down:>11,.0f}", flush=True)
    if n <= secagg_up_to:
        for theirs in ("SecAgg+, 0.3 n shares", "SecAgg+, shares as ours"):
            for ours in ("bare", "sum over Flower", "vote over Flower"):
                both = zip(costs[theirs], costs[ours], strict=True)
                ratio = statistics.median(a.cpu / b.cpu for a, b in both)
                print(f"{'':>5} '{theirs}' takes {ratio:.0f} times the CPU of '{ours}'")
    else:
        print(f"{'':>5} SecAgg+ not run at n = {n} (its CPU grows about with n cubed)")


if __name__ == "__main__":
    main()
