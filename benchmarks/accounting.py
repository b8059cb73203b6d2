"""Milliseconds for one epsilon of private selection, ours beside dp-accounting's RepeatAndSelect, on the same base.

Run ``python benchmarks/accounting.py [--repeats N]``. Both sides are measured in one process, interleaved, medians.
Every repetition uses a mean that differs in the eleventh digit, so our selection is never found in the cache, while the
base's loss distribution stays built, as it does in practice. dp-accounting is shown twice: composing the base anew, as
its interface does, and with the base's Renyi curve already known, which is the like-for-like figure.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_repeat_and_select

from dptune.accounting import Cost, DpSgd, Gaussian, Geometric, Logarithmic, NegativeBinomial, Poisson, Runs, select
from dptune.accounting._hull import hull_profile
from dptune.accounting.cost import fast_profile
from dptune.accounting.renyi import ORDERS, base_curve

DELTA = 1e-5
BASES: list[tuple[str, Cost]] = [
    ("Gaussian, noise 3.73", Gaussian(3.73)),
    ("DP-SGD, noise 1.052", DpSgd(256 / 60000, 1.052, 2344)),
]
LAWS: list[Runs] = [Geometric(10), Logarithmic(50), Geometric(100), Poisson(15), Poisson(45)]
HEADINGS = ("ours", "tight alone", "theirs", "curve known", "ours/theirs", "ours/known")


def fresh(runs: Runs, k: int) -> Runs:
    """A law of another description that costs the same to ten digits."""
    mean = runs.expected * (1.0 + k * 1e-11)
    return NegativeBinomial(runs.shape, mean) if isinstance(runs, NegativeBinomial) else Poisson(mean)


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def their_event(base: Cost) -> object:
    if isinstance(base, Gaussian):
        return dp_event.GaussianDpEvent(base.noise_multiplier)
    if not isinstance(base, DpSgd):
        raise TypeError(f"no event for {base}")
    step = dp_event.PoissonSampledDpEvent(base.sampling_rate, dp_event.GaussianDpEvent(base.noise_multiplier))
    return dp_event.SelfComposedDpEvent(step, base.steps)


def epsilon(base: Cost, runs: Runs) -> float:
    return select(base, runs).epsilon(DELTA)


def tight_alone(base: Cost, runs: Runs) -> float:
    """The tight bound without the exact programme."""
    built = fast_profile(base)
    ways = [built] if built.symmetric else [built, built.flip()]
    return max(hull_profile(way, runs).epsilon(DELTA) for way in ways)


def compare(base: Cost, runs: Runs, repeats: int) -> tuple[float, float, float, float]:
    """Median milliseconds: ours, our tight bound alone, theirs composing the base, theirs given its curve."""
    shape = runs.shape if isinstance(runs, NegativeBinomial) else float("inf")
    event = dp_event.RepeatAndSelectDpEvent(their_event(base), runs.expected, shape)
    orders, curve = np.array(ORDERS), base_curve(base, ORDERS)
    fast_profile(base)

    def composing() -> float:
        accountant = RdpAccountant()
        accountant.compose(event)
        return float(accountant.get_epsilon(DELTA))

    def converting() -> float:
        rdp = _compute_rdp_repeat_and_select(orders, curve, runs.expected, shape)
        return float(compute_epsilon(orders, rdp, DELTA)[0])

    columns: list[list[float]] = [[], [], [], []]
    for k in range(1, repeats + 1):
        works: list[Callable[[], float]] = [
            partial(epsilon, base, fresh(runs, k)),
            partial(tight_alone, base, fresh(runs, k + repeats)),
            composing,
            converting,
        ]
        for column, work in zip(columns, works, strict=True):
            column.append(milliseconds(work))
    ours, alone, theirs, known = (statistics.median(column) for column in columns)
    return ours, alone, theirs, known


def machine() -> str:
    model = platform.processor() or platform.machine()
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    repeats: int = parser.parse_args().repeats
    print(machine())
    print("milliseconds, medians; 'tight alone' leaves out the exact programme, which only Poisson needs")
    print(f"{'base':<22}{'runs':<26}" + "".join(f"{heading:>13}" for heading in HEADINGS))
    for label, base in BASES:
        for runs in LAWS:
            ours, alone, theirs, known = compare(base, runs, repeats)
            cells = (ours, alone, theirs, known, ours / theirs, ours / known)
            print(f"{label:<22}{runs!s:<26}" + "".join(f"{cell:13.2f}" for cell in cells), flush=True)
    bases = [DpSgd(256 / 60000, 1.0 + k * 1e-6, 2344) for k in range(repeats)]
    build = statistics.median(milliseconds(partial(base.epsilon, DELTA)) for base in bases)
    print(f"building the loss distribution of 2344 steps of DP-SGD: {build:.1f}, once a base")


if __name__ == "__main__":
    main()
