"""Softmax regressions over wide records: the compiled pass against the matrix library, and how exact both are.

    python benchmarks/regressions.py [--rounds 15] [--shrink 1] [--hover]

Clipped sums of a batch of random records, in the sizes that the defaults train: reviews (8,192 numbers, two classes),
photographs (7,776, ten), scattered images (3,969) and two-scale gradients (976). "library" is the numpy engine, which
gathers a batch and multiplies it (the last size has a compiled pass there, too); "pass" reads every record once. Rules
other than flat are computed in double precision by the numpy engine. Times are medians over rounds of processor time of
one thread, interleaved in one process. "error" is the distance of each sum from the same in double precision, in parts
of the batch's clip norms. --shrink divides the numbers of records. --hover prints something else: how far one record
moves sums of records that were made for it (their partial sums wait at a power of two, and with one record more every
rounding turns), in clip norms; 1 is what is paid.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import platform
import statistics
import time
from typing import Any

import numpy as np

from dptune import Dataset
from dptune.training import Automatic, softmax
from dptune.training.clipping import Clipping, Flat
from dptune.training.numpy_engine import NumpyEngine
from dptune.training.ruled_sums import RuledSums
from dptune.training.softmax_engine import SoftmaxEngine

CLIP = 0.1  # the default of images and texts
CASES = (  # features, classes, records, batch, rule
    (8192, 2, 25_000, 2500, Flat()),
    (7776, 10, 12_500, 2500, Flat()),
    (3969, 10, 20_000, 3000, Flat()),
    (976, 10, 60_000, 3000, Flat()),
    (8192, 2, 12_500, 1250, Automatic()),
    (976, 10, 60_000, 3000, Automatic()),
)


def engines(features: int, classes: int, rule: Clipping) -> dict[str, Any]:
    """The engine that was used before, the pass, and double precision."""
    model, flat = softmax(features, classes), isinstance(rule, Flat)
    found: dict[str, Any] = {
        "library": NumpyEngine(model, double=not flat),
        "pass": SoftmaxEngine(model),
        "double": NumpyEngine(model, double=True),
    }
    return found if flat else {name: RuledSums(one, rule) for name, one in found.items()}


def records(count: int, features: int, classes: int, seed: int) -> Dataset:
    """Records of length one."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, features), np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return Dataset(x, rng.integers(0, classes, count), classes)


def summed(engine: Any, flat: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """The clipped sum of a batch."""
    out = np.empty((1, engine.dimension), engine.dtype)
    engine.clipped_sums(flat.astype(engine.dtype)[None], [batch], np.array([CLIP]), out)
    return np.asarray(out[0], np.float64)


def hovering(count: int, width: int, together: int, every: int) -> tuple[Dataset, float]:
    """Records whose sums of so many wait at a power of two; behind them the one that turns them; their clip norm."""
    level = int(np.log2(together / 2))
    top, fine = 2**level, 2.0 ** (level - 24)
    ramp = np.append(np.ones(top - 1), 0.25)
    waiting = np.resize([0.5, -0.5], together - top)
    waiting[every // 2 :: every] -= fine
    values = np.append(np.resize(np.append(ramp, waiting), count), 1.0)
    x = np.repeat((2 * values).astype(np.float32)[:, None], width, 1)
    return Dataset(x, np.zeros(count + 1, np.int64), 2), math.sqrt(0.5 * (1 + width * 4.0))


def hover() -> None:
    """Print how far such a record moves sums, with both engines."""
    for name, kind, width, together, every in (
        ("library, all in one sum", NumpyEngine, 16, 0, 288),
        ("pass, sums of 512", SoftmaxEngine, 1025, 512, 2),
        ("pass, sums of 4", SoftmaxEngine, 1025, 4, 2),
    ):
        for count in (6_000, 32_768, 131_072):
            data, clip = hovering(count, width, together or count, every)
            engine = kind(softmax(width, 2))
            engine.bind(data)
            flat, others = np.zeros((1, engine.dimension), engine.dtype), np.arange(count)
            out = np.zeros((2, engine.dimension), engine.dtype)
            for place, batch in enumerate((others, np.insert(others, 0, count))):
                engine.clipped_sums(flat, [batch], np.array([clip]), out[place : place + 1])
            moved = np.linalg.norm(np.diff(out.astype(np.float64), axis=0)) / clip
            print(f"{name:24} {count:7} records: {moved:.4f} clip norms", flush=True)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--hover", action="store_true", help="print how far records made for it move sums")
    given = parser.parse_args()
    if given.hover:
        hover()
        return
    print(f"{platform.machine()}, {platform.system()}; processor time of one thread, medians of {given.rounds} rounds")
    for features, classes, count, size, rule in CASES:
        data = records(max(64, count // given.shrink), features, classes, 1)
        rng = np.random.default_rng(2)
        flat, made = rng.normal(size=(features + 1) * classes), engines(features, classes, rule)
        batches = [
            np.flatnonzero(rng.random(len(data)) < size / count) for _ in range(given.rounds)
        ]  # as Poisson sampling draws them
        for one in made.values():
            one.bind(data)
        exact = summed(made["double"], flat, batches[0])
        whole = CLIP * max(1, len(batches[0]))
        errors = {name: np.linalg.norm(summed(made[name], flat, batches[0]) - exact) / whole for name in made}
        times: dict[str, list[float]] = {"library": [], "pass": []}
        for batch in batches:
            for name, kept in times.items():
                begun = time.process_time()
                summed(made[name], flat, batch)
                kept.append(time.process_time() - begun)
        slow, fast = (1e3 * statistics.median(kept) for kept in times.values())
        print(
            f"{features:5} numbers, {classes:2} classes, {type(rule).__name__.lower():9} library {slow:7.2f} ms, "
            f"pass {fast:6.2f} ms: {slow / fast:5.2f}x   error {errors['library']:.0e}, {errors['pass']:.0e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
