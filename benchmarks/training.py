"""Speed of private training against Opacus: time per step, interleaved, two processes with one thread each.

    DPTUNE_DATA=... python benchmarks/training.py [--rounds 7] [--tasks cnn,mlp,tabular,logistic] [--instructions v3]
    DPTUNE_DATA=... python benchmarks/training.py --tasks networks [--batch 64] [--without torch]

Every figure is the median over rounds of processor time per step (wall time in brackets: it also counts what other
programs take); in each round every contestant runs one after the other in the same process, while the second process
does the same, as two workers of a tuner would. 'hooks' is the plain loop of Opacus' tutorial; 'functorch' and 'ghost'
are its other modes. Ours includes sampling, gathering, noise and the optimiser; rows called 'numpy' and 'torch' use no
compiled code of ours; '(no zeros left out)' is the compiled pass on records that were not packed; small models are
timed as stacks of eight candidates, per candidate. Memory is how far a process of its own rises above data and
libraries during five steps. With --instructions the compiled rows use a plainer instruction set than the best one here
(base: what every x86-64 has, v3: AVX2), as on machines that have no better. The second line times users' own modules
(benchmarks/networks.py), CIFAR-10's on random pixels: nothing here depends on what an image shows. --without leaves out
rows that begin with a word.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import copy
import importlib
import itertools
import multiprocessing as mp
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dptune.randomness import Randomness
from dptune.training import Mlp, Settings, _prepared, descend, engine_for, load, noise, optimizers, softmax
from dptune.training._compiled import kernel
from dptune.training.benchmark_data import Dataset, data_root
from dptune.training.dpsgd import Engine
from dptune.training.fused_engine import FusedEngine
from dptune.training.models import Cnn, adult_mlp, dp_hypo_cnn
from dptune.training.noise import FastNoise, SecureNoise
from dptune.training.numpy_engine import NumpyEngine

BATCH = 256
MODULES = ("opacus-mnist", "hype-mnist", "hype-cifar", "handcrafted-cifar", "group-norm")
GOALS = {"cnn": (12, 8), "mlp": (60, 5), "tabular": (50, 15), "logistic": (40, 20)} | dict.fromkeys(MODULES, (12, 8))
FLOORS = {"cnn": 2, "mlp": 35, "tabular": 20, "logistic": 15}  # over the plain loop, without compiled code
BASE = Settings(
    sampling_rate=BATCH / 60_000,
    noise_multiplier=1.1,
    steps=1,
    clip_norm=1.0,
    learning_rate=0.1,
    batch_size=BATCH,
)


Runner = Callable[[int], tuple[float, float]]  # seconds (processor, wall) per step, given a number of steps


@dataclass(frozen=True)
class Task:
    """One model on one data set."""

    model: Any
    data: Dataset
    stack: int


def task(name: str) -> Task:
    """The four comparisons of docs/training.md, and users' own modules."""
    if name in MODULES:
        networks = importlib.import_module("networks")  # beside this file; after the thread settings
        data = load("mnist").train if "mnist" in name else _pixels()
        return Task(networks.NETWORKS[name](), data, 1)
    if name in {"cnn", "mlp"}:
        model: Any = dp_hypo_cnn() if name == "cnn" else Mlp(784, 10, (120, 120), "tanh")
        return Task(model, load("mnist").train, 1)
    data = load("adult").train
    features = data.x.shape[1]
    return Task(adult_mlp(features) if name == "tabular" else softmax(features, 2), data, 8)


def _pixels() -> Dataset:
    """As many random images as CIFAR-10 has, in a tenth of the memory: rows repeat."""
    rng = np.random.default_rng(0)
    return Dataset(rng.random((5000, 3072), dtype=np.float32), rng.integers(0, 10, 5000), 10)


def ours(task: Task, engine: Engine, *, stack: int, secure: bool = False, pure: bool = False) -> Runner:
    """Seconds (processor, wall) per step and candidate of our loop."""
    rate = BATCH / len(task.data)
    keys = [Randomness.fresh() for _ in range(stack)]

    def run(steps: int) -> tuple[float, float]:
        settings = [replace(BASE, sampling_rate=rate, batch_size=BATCH, steps=steps, secure=secure)] * stack
        used = None if pure else kernel
        with mock.patch.object(noise, "kernel", used), mock.patch.object(optimizers, "kernel", used):
            wall, processor = time.perf_counter(), time.process_time()
            descend(engine, task.data, settings, keys)
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
        return processor / steps / stack, wall / steps / stack

    return run


def opacus(task: Task, mode: str) -> Runner:
    """Seconds (processor, wall) per step of the usual Opacus loop in one of its modes."""
    import torch  # noqa: PLC0415 - after the thread settings
    from opacus import PrivacyEngine  # noqa: PLC0415 - as above
    from torch import nn  # noqa: PLC0415 - as above

    from dptune.training.torch_models import build  # noqa: PLC0415 - as above

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = task.model if isinstance(task.model, nn.Module) else build(task.model)
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(task.data.x), torch.from_numpy(task.data.y))
    loader = torch.utils.data.DataLoader(tensors, batch_size=BATCH)
    criterion: Any = nn.CrossEntropyLoss()
    extra: dict[str, Any] = {"grad_sample_mode": mode}
    if mode == "ghost":
        extra["criterion"] = criterion
    private = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.1,
        max_grad_norm=1.0,
        **extra,
    )
    module, optimizer = private[0], private[1]
    if mode == "ghost":
        criterion, batches = private[2], private[3]
    else:
        batches = private[2]

    def run(steps: int) -> tuple[float, float]:
        done = 0
        wall, processor = time.perf_counter(), time.process_time()
        for x, y in batches:
            optimizer.zero_grad()
            loss = criterion(module(x), y)
            loss.backward()
            optimizer.step()
            done += 1
            if done == steps:
                break
        return (time.process_time() - processor) / done, (time.perf_counter() - wall) / done

    return run


def noise_alone(kind: Any, dimension: int) -> Runner:
    """Seconds (processor, wall) that the noise takes of every step."""

    def run(steps: int) -> tuple[float, float]:
        source = kind(Randomness.fresh(), dimension)
        total = np.zeros(dimension, np.float64 if kind is SecureNoise else np.float32)
        wall, processor = time.perf_counter(), time.process_time()
        for step in range(steps):
            source.add(total, 1.0, step)
        return (time.process_time() - processor) / steps, (time.perf_counter() - wall) / steps

    return run


def unpacked(task: Task, stack: int) -> Runner:
    """The compiled pass of an MLP with the zeros of its records."""
    copied = replace(task, data=Dataset(task.data.x, task.data.y, task.data.classes))
    engine = NumpyEngine(task.model, compiled=True)
    with mock.patch.object(_prepared, "_SPARSE", -1.0):
        engine.bind(copied.data)
    return ours(copied, engine, stack=stack)


def contestants(name: str) -> dict[str, Callable[[], Runner]]:
    """Everything that is timed for a task."""
    one = task(name)
    if name in MODULES:
        return _of_modules(one)
    model, stack = one.model, one.stack
    found: dict[str, Callable[[], Runner]] = {
        f"opacus {mode}": partial(opacus, one, mode) for mode in ("hooks", "functorch", "ghost")
    }
    make: Any = NumpyEngine if isinstance(model, Mlp) else FusedEngine
    if not isinstance(model, Mlp):
        found["torch, fast noise"] = lambda: ours(one, engine_for(model, engine="torch"), stack=1, pure=True)
    found["numpy, fast noise"] = lambda: ours(one, make(model, compiled=False), stack=stack, pure=True)
    found["compiled, fast noise"] = lambda: ours(one, make(model), stack=stack)
    if isinstance(model, Mlp) and model.hidden and kernel is not None:
        found["(no zeros left out)"] = lambda: unpacked(one, stack)
    found["numpy, secure noise"] = lambda: ours(
        one, make(model, double=True, compiled=False), stack=stack, secure=True, pure=True
    )
    found["compiled, secure noise"] = lambda: ours(one, make(model, double=True), stack=stack, secure=True)
    if not isinstance(model, Mlp):
        found["torch, secure noise"] = lambda: ours(
            one, engine_for(model, engine="torch", double=True), stack=1, secure=True, pure=True
        )
    dimension = make(model).dimension
    found["(fast noise alone)"] = lambda: noise_alone(FastNoise, dimension)
    found["(secure noise alone)"] = lambda: noise_alone(SecureNoise, dimension)
    return found


def _of_modules(one: Task) -> dict[str, Callable[[], Runner]]:
    """Opacus against our engines for a user's own module; Opacus changes the module it is given."""
    found: dict[str, Callable[[], Runner]] = {
        f"opacus {mode}": partial(_opacus_of_a_copy, one, mode) for mode in ("hooks", "functorch", "ghost")
    }
    for label, kind in {"torch": "torch", "compiled": "auto", "(general kernel)": "network"}.items():
        for double, source in ((False, "fast"), (True, "secure")):
            found[f"{label}, {source} noise"] = partial(_ours_of_a_module, one, kind, double)
    return found


def _opacus_of_a_copy(one: Task, mode: str) -> Runner:
    return opacus(replace(one, model=copy.deepcopy(one.model)), mode)


def _ours_of_a_module(one: Task, kind: str, double: bool) -> Runner:
    return ours(one, engine_for(one.model, engine=kind, double=double), stack=1, secure=double)


def rise(name: str, label: str, instructions: str | None, batch: int, queue: Any) -> None:
    """Megabytes by which a fresh process grows while it runs one contestant."""
    use(instructions, batch)
    makers = contestants(name)
    if label.startswith(("opacus", "torch")):
        importlib.import_module("opacus")  # libraries do not count
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading the data
    before = _memory("VmRSS")
    makers[label]()(5)
    queue.put(_memory("VmHWM") - before)


def _memory(name: str) -> float:
    """Megabytes from Linux's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def use(instructions: str | None, batch: int) -> None:
    """Let the kernel use a plainer instruction set, and take batches of another size."""
    global BATCH  # noqa: PLW0603 - what this process measures
    BATCH = batch
    if instructions is not None:
        kernel.instructions(instructions)


def measure(
    name: str, rounds: int, instructions: str | None, batch: int, without: str | None, queue: Any, ready: Any
) -> None:
    """One worker process: medians of processor and wall time."""
    use(instructions, batch)
    times: dict[str, list[tuple[float, float]]] = {}
    chunk = {}
    makers = contestants(name).items()
    found = {label: make() for label, make in makers if without is None or not label.startswith(without)}
    for label, run in found.items():
        run(3)
        chunk[label] = max(3, min(400, int(0.4 / max(run(3)[1], 1e-6))))
        times[label] = []
    matrix = np.ones((1024, 1024), np.float32)
    peak = []
    ready.wait()
    for _ in range(rounds):
        for label, run in found.items():
            times[label].append(run(chunk[label]))
        begin = time.process_time()
        for _ in range(5):
            matrix @ matrix
        peak.append(5 * 2 * 1024**3 / (time.process_time() - begin))
    median = {
        label: (statistics.median(c for c, _ in v), statistics.median(w for _, w in v)) for label, v in times.items()
    }
    queue.put((median, statistics.median(peak)))


def operations(model: Any) -> float:
    """Floating-point operations of one step that no method avoids: outputs, derivatives, one weighted sum."""
    if isinstance(model, Mlp):
        layers = [a * b for a, b in itertools.pairwise(model.widths)]
    elif not isinstance(model, Cnn):
        layers = _products(model)
    else:
        # 13 of 14 rows and columns are read later; 99 of 104 products of each lie inside the image
        layers = [99 * 99 * 16, 25 * 256 * 32, 512 * 32, 32 * 10]
    return 2.0 * BATCH * (2 * sum(layers) + sum(layers[1:]))


def _products(module: Any) -> list[int]:
    """Products of the layers of a module for one record."""
    import torch  # noqa: PLC0415 - after the thread settings

    found, values = [], torch.zeros((1, int(np.prod(module[0].unflattened_size))))
    for layer in module:
        values = layer(values)
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
            found.append(values.numel() * layer.weight[0].numel())
    return found


def machine() -> str:
    """What the figures were measured on."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next(
            (line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line),
            model,
        )
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}"


def report(name: str, answers: list[Any], memory: dict[str, float]) -> None:
    """One table: means over the two processes."""
    step = {
        label: tuple(statistics.mean(answer[label][k] for answer, _ in answers) for k in range(2))
        for label in answers[0][0]
    }
    peak = statistics.mean(answer[1] for answer in answers)
    limit = operations(task(name).model) / peak
    plain = step["opacus hooks"]
    best = [min(v[k] for label, v in step.items() if label.startswith("opacus")) for k in range(2)]
    goal, over_best = GOALS[name]
    floor = f"; floor {FLOORS[name]}x plain" if name in FLOORS else ""
    print(f"\n{name}: batch {BATCH}; goal {goal}x plain, {over_best}x best{floor}")
    print(f"  {np.mean(task(name).data.x == 0.0):.0%} of the features are zero")
    print(f"  matrix-multiply limit of one core: {limit * 1e3:.3f} ms a step at {peak / 1e9:.0f} Gflop/s")
    for label, (processor, wall) in step.items():
        print(
            f"  {label:24s} {processor * 1e3:8.3f} ms ({wall * 1e3:8.3f}) {plain[0] / processor:6.1f}x plain "
            f"({plain[1] / wall:6.1f})  {best[0] / processor:5.1f}x best ({best[1] / wall:5.1f})  "
            f"{processor / limit:6.1f}x limit" + (f"  +{memory[label]:.0f} MB" if label in memory else "")
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", default="cnn,mlp,tabular,logistic")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--without")
    parser.add_argument("--instructions", choices=None if kernel is None else kernel.instructions())
    options = parser.parse_args()
    use(None, options.batch)
    data_root()  # says what is missing before anything starts
    print(machine() + (f", instructions {options.instructions}" if options.instructions else ""))
    context = mp.get_context("spawn")
    for name in MODULES if options.tasks == "networks" else options.tasks.split(","):
        queue, ready = context.Queue(), context.Barrier(2)
        given = (name, options.rounds, options.instructions, options.batch, options.without, queue, ready)
        workers = [context.Process(target=measure, args=given) for _ in range(2)]
        for worker in workers:
            worker.start()
        answers = [queue.get() for _ in workers]
        for worker in workers:
            worker.join()
        memory = {}
        for label in [label for label in answers[0][0] if not label.startswith("(")]:
            alone = context.Process(target=rise, args=(name, label, options.instructions, options.batch, queue))
            alone.start()
            memory[label] = queue.get()
            alone.join()
        report(name, answers, memory)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
