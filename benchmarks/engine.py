"""Users' own networks: our compiled step against Opacus' modes and against what the machine can multiply.

    python benchmarks/engine.py [--tasks hype-mnist,hype-cifar] [--batch 64] [--rounds 3] [--threads 2]

One process, one thread, everything interleaved; figures are medians of processor time for one step on random pixels
(clipped sum, noise, descent). 'products' is how many multiply-adds a record needs if outputs, derivatives and one sum
are computed plainly; 'in tiles' counts 3 x 3 convolutions as the engine computes them (16 products for 36). Limits are
both counts at the speed of numpy's matrix product, measured between the rounds. With --threads it prints wall time of
our step with one thread and with that many instead.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import importlib
import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from dptune.data import Dataset
from dptune.training.engines import engine_for

training: Any = importlib.import_module("training")  # beside this file
NETWORKS: Any = importlib.import_module("networks").NETWORKS
MODES = ("hooks", "functorch", "ghost")


def products(module: nn.Sequential) -> tuple[float, float]:
    """Multiply-adds for one record: computed plainly, and with 3 x 3 convolutions in tiles."""
    values = torch.zeros((1, int(np.prod(module[0].unflattened_size))))  # type: ignore[arg-type] # it begins with nn.Unflatten
    plain = tiled = 0.0
    passes = 2  # the first layer's inputs have no derivatives
    for layer in module:
        values = layer(values)
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            continue
        own = float(values.numel() * layer.weight[0].numel())
        plain += passes * own
        tiled += passes * own * (4 / 9 if _in_tiles(layer) else 1.0)
        passes = 3
    return plain, tiled


def _in_tiles(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv2d) or layer.kernel_size != (3, 3) or layer.stride != (1, 1):
        return False
    return layer.in_channels % 16 == 0 and layer.out_channels % 16 == 0


def task(name: str, batch: int) -> Any:
    """A network and random pixels."""
    rng = np.random.default_rng(0)
    features = 784 if "mnist" in name else 3072
    data = Dataset(rng.random((20 * batch, features), dtype=np.float32), rng.integers(0, 10, 20 * batch), 10)
    torch.manual_seed(0)
    return training.Task(NETWORKS[name](), data, 1)


def peak() -> float:
    """Multiply-adds in a second of numpy's matrix product."""
    matrix = np.ones((1024, 1024), np.float32)
    begin = time.process_time()
    for _ in range(3):
        matrix @ matrix
    return 3 * 1024**3 / (time.process_time() - begin)


def compare(name: str, batch: int, rounds: int) -> None:
    """One network's table."""
    one = task(name, batch)
    runs = {f"opacus {mode}": training._opacus_of_a_copy(one, mode) for mode in MODES}
    runs["compiled"] = training._ours_of_a_module(one, "auto", False)
    runs["compiled, secure"] = training._ours_of_a_module(one, "auto", True)
    taken: dict[str, list[float]] = {label: [] for label in runs}
    speed = []
    for label, run in runs.items():
        run(1 if label.startswith("opacus") else 2)
    for _ in range(rounds):
        for label, run in runs.items():
            taken[label].append(run(1 if label.startswith("opacus") else 3)[0])
        speed.append(peak())
    step = {label: statistics.median(own) for label, own in taken.items()}
    best = min(own for label, own in step.items() if label.startswith("opacus"))
    counts, rate = products(one.model), statistics.median(speed)
    print(f"\n{name}: batch {batch}, {counts[0] / 1e6:.1f} million products a record, {counts[1] / 1e6:.1f} in tiles")
    limits = [batch * count / rate * 1e3 for count in counts]
    print(f"  limits at {2 * rate / 1e9:.0f} Gflop/s: {limits[0]:.1f} ms, {limits[1]:.1f} in tiles")
    for label, own in step.items():
        ratios = f"{step['opacus hooks'] / own:6.1f}x plain {best / own:6.1f}x best"
        print(f"  {label:20s} {own * 1e3:8.1f} ms {ratios} {own * 1e3 / limits[1]:6.1f}x limit in tiles", flush=True)


def threads(name: str, batch: int, rounds: int, count: int) -> None:
    """Wall time of one network's clipped sum with one thread and with several."""
    one = task(name, batch)
    engines: dict[int, Any] = {own: engine_for(one.model, engine="network", threads=own) for own in (1, count)}
    taken: dict[int, list[float]] = {own: [] for own in engines}
    places = np.arange(8 * batch)
    for own, engine in engines.items():
        engine.bind(one.data)
        taken[own] = []
    flat = np.concatenate([p.detach().numpy().reshape(-1) for p in one.model.parameters()])
    out = np.empty((1, len(flat)), np.float32)
    for _ in range(rounds + 1):
        for own, engine in engines.items():
            begin = time.perf_counter()
            engine.clipped_sums(flat[None], [places], np.ones(1), out)
            taken[own].append(time.perf_counter() - begin)
    step = {own: statistics.median(each[1:]) for own, each in taken.items()}
    print(
        f"{name}: {len(places)} records, wall time with 1 thread {step[1] * 1e3:.0f} ms, with {count} "
        f"{step[count] * 1e3:.0f} ms ({step[1] / step[count]:.2f}x)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(NETWORKS))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    training.BATCH = options.batch
    print(training.machine())
    for name in options.tasks.split(","):
        if options.threads:
            threads(name, options.batch, options.rounds, options.threads)
        else:
            compare(name, options.batch, options.rounds)


if __name__ == "__main__":
    main()
