"""Softmax regressions over wide records: the compiled pass against the matrix library, and how exact both are.

    python benchmarks/regressions.py [--rounds 15] [--shrink 1]

Clipped sums of a batch of random records, in the sizes that the defaults train: reviews (8,192 numbers, two classes),
photographs (7,776, ten), scattered images (3,969) and two-scale gradients (976). "library" is the numpy engine, which
gathers a batch and multiplies it (the last size has a compiled pass there, too); "pass" reads every record once. Rules
other than flat are computed in double precision by the numpy engine. Times are medians over rounds of processor time of
one thread, interleaved in one process. "error" is the distance of each sum from the same in double precision, in parts
of the batch's clip norms. --shrink divides the numbers of records.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
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


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shrink", type=int, default=1)
    given = parser.parse_args()
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
