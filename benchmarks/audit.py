"""How fast the games on empty training are: games per second, Gaussian and DP-SGD bases, both scores.

``python benchmarks/audit.py [GAMES]`` plays GAMES per world (1e8 unless told) and prints plan and play apart; processor
time is what the games cost on a machine that does something else too.
"""

from __future__ import annotations

import os
import platform
import sys
import time

from dptune.accounting import Cost, DpSgd, Gdp, Geometric, Poisson, Runs
from dptune.audit import Game, empirical_bound, plan_attack, play
from dptune.audit.etcv import base_mu

DELTA = 1e-5


def main() -> None:
    games = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**8
    print(f"{platform.machine()}, {os.cpu_count()} cores, {games:g} games per world")
    print(
        f"{'game':>12} {'base':>36} {'runs':>14} {'plan s':>7} {'play s':>7} {'cpu s':>7} {'cpu ns/game':>11} "
        f"{'shown':>7} {'claimed':>8}"
    )
    sgd = DpSgd(0.01, 0.8, 1000)
    cases: list[tuple[str, Cost, Runs]] = [
        ("etcv", Gdp(base_mu(1.0, DELTA)), Geometric(10)),
        ("etcv", sgd, Geometric(10)),
        ("worst-case", Gdp(base_mu(1.0, DELTA)), Geometric(10)),
        ("worst-case", Gdp(base_mu(4.0, DELTA)), Geometric(10)),
        ("worst-case", sgd, Geometric(10)),
        ("worst-case", Gdp(base_mu(1.0, DELTA)), Poisson(15)),
    ]
    for name, base, runs in cases:
        game = Game(name, base, runs, DELTA, games)
        began = time.perf_counter()
        attack = plan_attack(game)
        planned, cpu = time.perf_counter(), time.process_time()
        counts = play(attack, games)
        played, cpu = time.perf_counter() - planned, time.process_time() - cpu
        low = empirical_bound(counts, DELTA).low
        print(
            f"{name:>12} {base!s:>36} {runs!s:>14} {planned - began:7.2f} {played:7.2f} {cpu:7.2f} "
            f"{cpu / games / 2 * 1e9:11.1f} {low:7.4f} {game.upper():8.4f}"
        )


if __name__ == "__main__":
    main()
