"""Users' own networks: our compiled step against Opacus' modes and against what the machine can multiply.

    python benchmarks/engine.py [--tasks hype-mnist,hype-cifar] [--batch 64] [--rounds 3]
    python benchmarks/engine.py --threads 2 | --final 2 | --stacks | --errors

One process, one thread, everything interleaved; figures are medians of processor time for one step on random pixels
(clipped sum, noise, descent). 'products' is how many multiply-adds a record needs if outputs, derivatives and one sum
are computed plainly; 'in tiles' counts 3 x 3 convolutions as the engine computes them (16 products for 36, 24 for
72 or 36 for 144). Limits are both counts at the speed of numpy's matrix product, measured between the rounds. With
--threads it prints wall time of our step with one thread and with that many instead, with --final that of whole
trainings (the trainer's fit, as the final training of a sealed run calls it) with the machine's load beside it. With
--stacks it prints how much of a step of small networks is spent outside of the kernel (sums, noise, descent): all that
candidates trained as a stack could share. With --errors it prints how far the gradient of one record is from double
precision, over its norm, of these networks, of deep ones and of one with large weights; torch's in single precision
stands beside it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from dptune.data import Dataset
from dptune.randomness import Randomness
from dptune.training import DpSgdTrainer, Settings, _network_pass
from dptune.training._compiled import kernel
from dptune.training.engines import engine_for
from dptune.training.noise import SecureNoise

training: Any = importlib.import_module("training")  # beside this file
NETWORKS: Any = importlib.import_module("networks").NETWORKS
MODES = ("hooks", "functorch", "ghost")


def products(module: nn.Sequential) -> tuple[float, float]:
    """Multiply-adds for one record: computed plainly, and with 3 x 3 convolutions in tiles."""
    values = torch.zeros((1, int(np.prod(module[0].unflattened_size))))  # type: ignore[arg-type] # it begins with nn.Unflatten
    plain = tiled = 0.0
    passes = 2  # the first layer's inputs have no derivatives
    bent = any(isinstance(layer, nn.Tanh) for layer in module)  # then tiles are small (docs/engine.md)
    for layer in module:
        values = layer(values)
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            continue
        own = float(values.numel() * layer.weight[0].numel())
        plain += passes * own
        tiled += passes * own * (_share(values.shape[2:], 1 if bent else 3) if _in_tiles(layer) else 1.0)
        passes = 3
    return plain, tiled


def _share(sides: Sequence[int], sizes: int) -> float:
    """Products in tiles over plain ones: plan_tiles of _kernel_net.h, for the first of its sizes."""
    places = sides[0] * sides[1]
    work = {}
    for high, wide in ((2, 2), (2, 4), (4, 4))[:sizes]:
        count, values = -(-sides[0] // high) * -(-sides[1] // wide), (high + 2) * (wide + 2)
        if values * (10 * count + 25) <= 72 * places:
            work[values * (10 * count + 60)] = values * count / (9 * places)
    return work[min(work)] if work else 1.0


def _in_tiles(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv2d) or layer.kernel_size != (3, 3) or layer.stride != (1, 1):
        return False
    return layer.in_channels % 16 == 0 and layer.out_channels % 16 == 0


def task(name: str, records: int) -> Any:
    """A network and random pixels."""
    rng = np.random.default_rng(0)
    features = 784 if "mnist" in name else 3072
    data = Dataset(rng.random((records, features), dtype=np.float32), rng.integers(0, 10, records), 10)
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
    """One network's table. There are as many records as in a batch, so that batches are all the same."""
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
    alone = training.noise_alone(SecureNoise, sum(p.numel() for p in one.model.parameters()))(2 * rounds)[0]
    print(f"  secure noise alone   {alone * 1e3:8.1f} ms", flush=True)


def threads(name: str, batch: int, rounds: int, count: int) -> None:
    """Wall time of one network's clipped sum with one thread and with several."""
    one = task(name, 8 * batch)
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


def final(name: str, batch: int, rounds: int, count: int) -> None:
    """Wall time of ten steps of a trainer's fit with one thread and with several, in turns; 8 batches in each step."""
    data, steps = task(name, 20 * batch).data, 10
    settings = Settings(
        sampling_rate=8 * batch / len(data),
        noise_multiplier=1.0,
        steps=steps,
        clip_norm=1.0,
        learning_rate=0.1,
        batch_size=8 * batch,
    )
    key = Randomness.fresh()
    taken: dict[int, list[tuple[float, float]]] = {1: [], count: []}
    for _ in range(rounds + 1):
        for own, each in taken.items():
            torch.manual_seed(0)
            trainer = DpSgdTrainer(lambda params: NETWORKS[name](), settings, engine="network", threads=own)
            begin, processor = time.perf_counter(), time.process_time()
            trainer.fit({}, data, key)
            each.append((time.perf_counter() - begin, time.process_time() - processor))
    wall = {own: statistics.median(one for one, _ in each[1:]) for own, each in taken.items()}
    busy = {own: statistics.median(one for _, one in each[1:]) for own, each in taken.items()}
    print(
        f"{name}: {steps} steps of {8 * batch} records, {rounds} rounds; load of the machine {os.getloadavg()[0]:.1f}"
    )
    for own in taken:
        print(f"  {own} threads: {wall[own]:.2f} s of wall time, {busy[own]:.2f} s of processor time")
    print(f"  {wall[1] / wall[count]:.2f}x in wall time", flush=True)


class Timed:
    """The kernel, with a count of the processor time that its functions take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            begin = time.process_time()
            found = getattr(kernel, name)(*given)
            self.seconds += time.process_time() - begin
            return found

        return call


SMALL: dict[str, Callable[[], nn.Sequential]] = {
    "784-32-10": lambda: nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)),
    "784-128-10": lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
    "small CNN": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 8, 5, 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(288, 10),
    ),
}


def stacks(batch: int, rounds: int) -> None:
    """What a stack of candidates could save at most: everything of a step that is not the kernel's sum."""
    for name, make in SMALL.items():
        torch.manual_seed(0)
        one = training.Task(make(), task("hype-mnist", 20 * batch).data, 1)
        run = training.ours(one, engine_for(one.model, engine="network"), stack=1)
        run(50)
        whole, inside = [], []
        for _ in range(rounds):
            timed = Timed()
            with mock.patch.object(_network_pass, "kernel", timed), mock.patch.object(training, "kernel", timed):
                whole.append(run(200)[0])
            inside.append(timed.seconds / 200)
        step, own = statistics.median(whole), statistics.median(inside)
        print(f"{name:12s} batch {batch}: {step * 1e6:6.0f} us a step, {own * 1e6:6.0f} of them in the kernel", end="")
        print(f"; a stack that shared all the rest would gain at most {step / own:.2f}x", flush=True)


def deep(layers: int, active: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Convolutions of 32 channels behind each other, with group norms and activations."""
    torch.manual_seed(0)
    found: list[nn.Module] = [nn.Unflatten(1, (3, 32, 32)), nn.Conv2d(3, 32, 3, 2, padding=1)]
    for _ in range(layers):
        found += [nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(8, 32), active()]
    return nn.Sequential(*found, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def steep(times: float) -> nn.Sequential:
    """One convolution in large tiles, without a norm; every weight is so many times as large as usual."""
    torch.manual_seed(0)
    inner: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
    found = nn.Sequential(nn.Unflatten(1, (3, 32, 32)), *inner, nn.Flatten(), nn.Linear(32 * 256, 10))
    with torch.no_grad():
        for weights in found.parameters():
            weights.mul_(times)
    return found


def errors(name: str, module: nn.Sequential, records: int) -> None:
    """The distance of one record's gradient from torch's in double precision, relative: worst and median."""
    module = nn.Sequential(*[layer for layer in module if not isinstance(layer, nn.Dropout)])
    data = task("hype-mnist" if "mnist" in name else "hype-cifar", records).data
    flat = np.concatenate([p.detach().numpy().reshape(-1) for p in module.parameters()])
    far: dict[str, list[float]] = {"network": [], "torch": []}
    engines: list[Any] = [engine_for(module, engine="torch", double=True)]
    engines += [engine_for(module, engine=kind) for kind in far]
    for place in range(records):
        found = []
        for engine in engines:
            engine.bind(data)
            out = np.empty((1, len(flat)), engine.dtype)
            engine.clipped_sums(flat[None].astype(engine.dtype), [np.array([place])], np.array([1e6]), out)
            found.append(out[0].astype(np.float64))
        for own, one in zip(far.values(), found[1:], strict=True):
            own.append(float(np.linalg.norm(one - found[0]) / np.linalg.norm(found[0])))
    told = [f"{kind} worst {max(own):.1e}, median {statistics.median(own):.1e}" for kind, own in far.items()]
    print(f"{name:22s} {'; '.join(told)} of {records} records", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(NETWORKS))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--final", type=int)
    parser.add_argument("--stacks", action="store_true")
    parser.add_argument("--errors", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training.BATCH = options.batch
    print(training.machine())
    if options.stacks:
        stacks(options.batch, options.rounds)
        return
    if options.errors:
        for name in options.tasks.split(","):
            errors(name, task(name, 1).model, 8)
        for layers in (1, 2, 4, 5, 6, 8):
            errors(f"{layers} with relu", deep(layers), 8)
        for layers in (4, 6):
            errors(f"{layers} with tanh", deep(layers, nn.Tanh), 8)
        for times in (3, 5):
            errors(f"weights {times} times", steep(times), 8)
        return
    for name in options.tasks.split(","):
        if options.threads:
            threads(name, options.batch, options.rounds, options.threads)
        elif options.final:
            final(name, options.batch, options.rounds, options.final)
        else:
            compare(name, options.batch, options.rounds)


if __name__ == "__main__":
    main()
