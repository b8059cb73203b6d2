"""A ledger with many entries: how long a charge, 'show' and 'verify' take.

    python benchmarks/ledger.py [--entries 10000] [--datasets 10] [--costs 20] [--rounds 20]

The ledger has charges of a few different costs over several data sets, made as the
ledger makes them but in one transaction. Then charges are timed one by one with everything that they do (two read
transactions and one that is durable when it returns), as are what 'dptune ledger show' and 'verify' compute. Printed
are the fastest and the median of the rounds, and the processor time, which does not count the waiting for the disk
and for other programs. A cost that was not seen before takes longer, in 'verify' once for each (its Renyi curve: 10
to 400 milliseconds).
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dptune._codec import to_values
from dptune.accounting import Gdp
from dptune.accounting.filter import Filter
from dptune.ledgers import Ledger
from dptune.ledgers._chain import Chain, make_key

EPSILON, DELTA, TIME = 3.0, 1e-5, "2030-01-01T00:00:00+00:00"


def bodies(entries: int, datasets: int, costs: int) -> list[dict[str, Any]]:
    """The entries of a ledger whose charges use about a third of every budget."""
    rule = Filter.of(EPSILON, DELTA)
    most = 0.3 / (max(entries / datasets, 1.0)) ** 0.5
    kinds = [Gdp(most * (0.5 + 0.5 * k / costs)) for k in range(costs)]
    names = [f"hospital-{k}" for k in range(datasets)]
    found: list[dict[str, Any]] = [{"kind": "ledger", "version": 2, "id": "0" * 32, "time": TIME}]
    found += [
        {"kind": "dataset", "dataset": n, "unit": "patient", "filter": to_values(rule), "time": TIME} for n in names
    ]
    spent = dict.fromkeys(names, rule.nothing)
    for number in range(entries - len(found)):
        name, cost = names[number % datasets], kinds[number % costs]
        curve = rule.curve(cost)
        spent[name] = spent[name] + curve
        found.append(
            {
                "kind": "charge",
                "dataset": name,
                "charge": f"{number:032x}",
                "costs": [cost.describe()],
                "curve": to_values(curve),
                "spent": to_values(spent[name]),
                "rule": "renyi",
                "epsilon": cost.epsilon(DELTA),
                "total": EPSILON,
                "purpose": None,
                "time": TIME,
            }
        )
    return found


def timed(what: str, call: Callable[[int], object], rounds: int) -> None:
    """Print the fastest and the median time of a call, and the median of its processor time."""
    wall, processor = [], []
    for number in range(rounds):
        start = time.perf_counter(), time.process_time()
        call(number)
        wall.append(1e3 * (time.perf_counter() - start[0]))
        processor.append(1e3 * (time.process_time() - start[1]))
    median = statistics.median
    print(f"{what:36} fastest {min(wall):8.1f} ms, median {median(wall):8.1f}, processor {median(processor):8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--datasets", type=int, default=10)
    parser.add_argument("--costs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hospital.ledger"
        built = Chain(path).build(make_key(path), bodies(options.entries, options.datasets, options.costs))
        built.rename(path)
        book, cost = Ledger(path), Gdp(0.001)
        book.charge("hospital-0", cost)
        size, load = path.stat().st_size / 1e6, os.getloadavg()[0]
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}: {options.entries} entries, {size:.1f} MB"
        )
        timed("charge", lambda k: book.charge("hospital-1", cost, f"c{k}"), options.rounds)
        timed("the same charge asked for again", lambda k: book.charge("hospital-1", cost, f"c{k}"), options.rounds)
        few = max(options.rounds // 4, 1)
        timed("show: data sets, charges, head", lambda _: (book.datasets(), book.charges(), book.head), few)
        timed("verify, in a process that knows costs", lambda _: book.verify(), few)


if __name__ == "__main__":
    main()
