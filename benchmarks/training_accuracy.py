"""Accuracy of private training on real data: equal to Opacus, and what the shipped models reach.

    DPTUNE_DATA=... python benchmarks/training_accuracy.py compare [--seeds 10] [--first 0] [--data mnist] [--model cnn]
    DPTUNE_DATA=... python benchmarks/training_accuracy.py table [--seeds 3] [--data adult] [--only softmax]
    DPTUNE_DATA=... python benchmarks/training_accuracy.py tune [--steps 200]
    DPTUNE_DATA=... python benchmarks/training_accuracy.py secure [--seeds 6]
    python benchmarks/training_accuracy.py choose

'compare' trains the same network with Opacus and with dptune at equal rate, noise, steps, clip norm and learning
rate, and prints the difference of mean test accuracies with its 95 % interval (Welch). 'table' prints test
accuracies at epsilon 1, 2 and 4 (delta 1e-5) with one set of hyperparameters for each model. 'tune'
times the same 16 configurations trained by Optuna with Opacus, and by dptune. 'secure' prints how far test accuracies
with secure noise and exact sums are from those with fast noise, on the same batches from the same first weights.

How the learning rates of the table are chosen (the rule was fixed before the table was run; 'choose' applies it): for
each image model the value of GRID with the largest mean test accuracy over five runs on scikit-learn's digits, which
are public, enlarged from 8x8 to 28x28 (each pixel three times, a margin of two); ties go to the smaller value. Steps,
clip norm and momentum are those of the table; the batch is a tenth of the digits, and the noise is scaled so that noise
over batch size equals that of the table at epsilon 2. FashionMNIST takes the same values as MNIST. IMDB takes the value
of the regression on oriented gradients, because its records have unit length as well. Adult keeps .25.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are imported

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dptune.accounting import DpSgd
from dptune.accounting.calibrate import calibrate_noise
from dptune.randomness import Randomness
from dptune.training import (
    DpSgdTrainer,
    Mlp,
    Momentum,
    Settings,
    Split,
    descend,
    engine_for,
    load,
    oriented_gradients,
    softmax,
)
from dptune.training.benchmark_data import imdb
from dptune.training.models import adult_mlp, dp_hypo_cnn

COMPARED = Settings.from_batch(250, 60_000, noise_multiplier=1.1, steps=200, clip_norm=1.0, learning_rate=1.0)
CNN_COMPARED = {"mnist": (2.0, 200), "fashion-mnist": (1.0, 600)}  # learning rate, steps
DELTA = 1e-5
GRID = tuple(2.0**k for k in range(-4, 5))
OURS = 2  # for each of Opacus': our runs are cheap, so more of them narrow the interval


def features(split: Split) -> Split:
    """The same records as oriented gradients."""
    return Split(*(part.map(oriented_gradients) for part in split))


def accuracy(model: Any, split: Split, settings: Settings, key: Randomness) -> float:
    """Test accuracy of one run of ours."""
    engine = engine_for(model, double=settings.secure)
    end = descend(engine, split.train, [settings], [key])[0]
    return float(np.mean(np.argmax(engine.logits(end, split.test.x), axis=1) == split.test.y))


def opacus_accuracy(model: Any, split: Split, settings: Settings, seed: int) -> float:
    """Test accuracy of one run of Opacus, with the loop of its tutorial."""
    import torch  # noqa: PLC0415 - after the thread settings
    from opacus import PrivacyEngine  # noqa: PLC0415 - as above

    from dptune.training.torch_models import build  # noqa: PLC0415 - as above

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    module: Any = build(model)
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(split.train.x), torch.from_numpy(split.train.y))
    module, optimizer, loader = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=settings.learning_rate),
        data_loader=torch.utils.data.DataLoader(tensors, batch_size=int(settings.batch_size)),
        noise_multiplier=settings.noise_multiplier,
        max_grad_norm=settings.clip_norm,
    )
    done = 0
    while done < settings.steps:
        for x, y in loader:
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(module(x), y))
            optimizer.step()
            done += 1
            if done == settings.steps:
                break
    with torch.no_grad():
        right = module(torch.from_numpy(split.test.x)).argmax(1).numpy() == split.test.y
    return float(right.mean())


def job(model: Any, split: Split, settings: Settings, seed: int) -> tuple[float, float]:
    """One run in a worker, ours if ``seed`` is negative: test accuracy and processor time."""
    begin = time.process_time()
    if seed < 0:
        value = accuracy(model, split, settings, Randomness.fresh())
    else:
        value = opacus_accuracy(model, split, settings, seed)
    return value, time.process_time() - begin


def gather(pool: ProcessPoolExecutor, run: Any, line: str, seeds: list[int], keep: Path | None) -> Any:
    """Accuracies and processor times of all seeds; those that ``keep`` holds already are not run again."""
    known: dict[int, tuple[float, float]] = {}
    if keep is not None and keep.exists():
        rows = [json.loads(row) for row in keep.read_text().splitlines()]
        known = {row["seed"]: (row["accuracy"], row["seconds"]) for row in rows if row["line"] == line}
    waiting = {pool.submit(run, seed): seed for seed in seeds if seed not in known}
    for future in as_completed(waiting):
        seed = waiting[future]
        known[seed] = future.result()
        if keep is not None:
            row = {"line": line, "seed": seed, "accuracy": known[seed][0], "seconds": known[seed][1]}
            with keep.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return map(np.array, zip(*(known[seed] for seed in seeds), strict=True))


def compare(seeds: range, names: list[str], chosen: str, given: int | None, keep: Path | None) -> None:
    """The difference between the two, with its interval.

    The CNN's learning rates and steps were set after a look at the spread of our own runs, without any of Opacus'.
    """
    for name in names:
        split = load(name)
        for label, model, linear in (
            ("softmax on 441 features", softmax(441, 10), True),
            ("CNN of DP-HyPO", dp_hypo_cnn(), False),
        ):
            if chosen not in ("both", "softmax" if linear else "cnn"):
                continue
            part = features(split) if linear else split
            rate, steps = (1.0, 400) if linear else CNN_COMPARED[name]
            steps = given or steps
            run = partial(job, model, part, replace(COMPARED, learning_rate=rate, steps=steps))
            with ProcessPoolExecutor(2, get_context("spawn")) as pool:
                line = f"{name}, {label}, {steps} steps, learning rate {rate:g}"
                theirs, their_time = gather(pool, run, line, list(seeds), keep)
                ours, our_time = gather(pool, run, line, [-1 - k for k in range(OURS * len(seeds))], keep)
            test = stats.ttest_ind(ours, theirs, equal_var=False)
            low, high = test.confidence_interval(0.95)
            print(
                f"{line}: dptune {ours.mean():.4f} (sd {ours.std(ddof=1):.4f}, {len(ours)} "
                f"seeds), Opacus {theirs.mean():.4f} (sd {theirs.std(ddof=1):.4f}, {len(seeds)} seeds), difference "
                f"{ours.mean() - theirs.mean():+.4f}, 95 % interval [{low:+.4f}, {high:+.4f}]; processor time "
                f"{our_time.mean():.1f} s against {their_time.mean():.1f} s a run",
                flush=True,
            )


def noise_for(settings: Settings, epsilon: float) -> float:
    """The smallest noise that keeps one run within (epsilon, 1e-5)."""
    return calibrate_noise(lambda s: DpSgd(settings.sampling_rate, s, settings.steps), epsilon, DELTA)


def rows() -> list[tuple[str, str, Any, Settings]]:
    """(label, data, model, settings) of every line of the table, chosen by the rule at the top of this file."""
    linear = Settings(0.1, 1.0, 200, 1.0, 16.0, 6000.0, Momentum(0.9))
    network = Settings.from_batch(
        1024, 60_000, noise_multiplier=1.0, steps=600, clip_norm=1.0, learning_rate=0.25, optimizer=Momentum(0.9)
    )
    census = Settings.from_batch(
        1024, 32_561, noise_multiplier=1.0, steps=320, clip_norm=1.0, learning_rate=0.25, optimizer=Momentum(0.9)
    )
    found: list[tuple[str, str, Any, Settings]] = []
    for name in ("mnist", "fashion-mnist"):
        found += [
            ("softmax on 441 features", name, softmax(441, 10), linear),
            ("softmax on pixels", name, softmax(784, 10), replace(linear, learning_rate=1.0)),
            ("MLP 120-120 tanh", name, Mlp(784, 10, (120, 120), "tanh"), replace(network, learning_rate=0.5)),
            ("CNN of DP-HyPO", name, dp_hypo_cnn(), network),
        ]
    return [
        *found,
        ("logistic regression", "adult", softmax(105, 2), census),
        ("MLP 64-64", "adult", adult_mlp(105), census),
        ("logistic regression, 1024 hashed words", "imdb", softmax(1024, 2), replace(linear, batch_size=2500.0)),
    ]


def table(seeds: int, names: list[str], chosen: str) -> None:
    """What the shipped models reach at epsilon 1, 2 and 4."""
    print("| data and model | epsilon 1 | 2 | 4 | processor s a run |\n|---|---|---|---|---|", flush=True)
    for label, name, model, settings in rows():
        if name not in names or chosen not in label:
            continue
        split = imdb(1024) if name == "imdb" else load(name)
        part = features(split) if "441" in label else split
        cells, spent = [], 0.0
        for epsilon in (1.0, 2.0, 4.0):
            run = replace(settings, noise_multiplier=noise_for(settings, epsilon))
            begin = time.process_time()
            values = [accuracy(model, part, run, Randomness.fresh()) for _ in range(seeds)]
            spent += time.process_time() - begin
            cells.append(f"{np.mean(values):.4f}")
        print(f"| {name}: {label} | {' | '.join(cells)} | {spent / (3 * seeds):.1f} |", flush=True)


def secure(seeds: int) -> None:
    """Secure minus fast, in pairs that share all but the noise (multiplier 1.1, clip norm 1)."""
    for name, label, model, batch, steps in (
        ("adult", "logistic regression", softmax(105, 2), 1024, 300),
        ("adult", "MLP 64-64", adult_mlp(105), 1024, 300),
        ("mnist", "softmax on 441 features", softmax(441, 10), 2048, 150),
        ("mnist", "MLP 120-120 tanh", Mlp(784, 10, (120, 120), "tanh"), 1024, 150),
    ):
        part = features(load(name)) if "441" in label else load(name)
        settings = Settings.from_batch(
            batch, len(part.train), noise_multiplier=1.1, steps=steps, clip_norm=1.0, learning_rate=1.0
        )
        fast, slow = [], []
        for _ in range(seeds):
            key = Randomness.fresh()
            fast.append(accuracy(model, part, settings, key))
            slow.append(accuracy(model, part, replace(settings, secure=True), key))
        gaps = np.subtract(slow, fast)
        print(
            f"{name}, {label}, {steps} steps of batch {batch}, {seeds} seeds: secure {np.mean(slow):.4f}, difference "
            f"{gaps.mean():+.4f} (standard error {gaps.std(ddof=1) / seeds**0.5:.4f})",
            flush=True,
        )


def enlarged_digits() -> Split:
    """Scikit-learn's digits as images of 28x28 pixels."""

    def enlarge(x: Any) -> Any:
        big = np.kron(x.reshape(-1, 8, 8), np.ones((1, 3, 3), np.float32))
        return np.pad(big, ((0, 0), (2, 2), (2, 2))).reshape(len(x), 784)

    return Split(*(part.map(enlarge) for part in load("digits")))


def choose(seeds: int) -> None:
    """The learning rate of every image model by the rule at the top of this file."""
    split = enlarged_digits()
    batch = 0.1 * len(split.train)
    for label, name, model, settings in rows():
        if name != "mnist":
            continue
        part = features(split) if "441" in label else split
        noise = noise_for(settings, 2.0) * batch / settings.batch_size
        run = replace(settings, sampling_rate=0.1, batch_size=batch, noise_multiplier=noise)
        means = {}
        for rate in GRID:
            job = partial(accuracy, model, part, replace(run, learning_rate=rate))
            means[rate] = float(np.mean([job(Randomness.fresh()) for _ in range(seeds)]))
        found = max(GRID, key=lambda rate: (means[rate], -rate))
        listed = ", ".join(f"{rate:g}: {value:.4f}" for rate, value in means.items())
        print(f"{label}: {found:g}  ({listed})", flush=True)


def tune(steps: int) -> None:
    """Sixteen configurations of the CNN: Optuna with an Opacus loop as users do today, and the same ones with dptune.

    Interleaved: each configuration that Optuna asks for is trained by Opacus, then by dptune.
    """
    import optuna  # noqa: PLC0415 - only this comparison needs it

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    split, base = load("mnist"), replace(COMPARED, steps=steps)
    trainer = DpSgdTrainer(dp_hypo_cnn(), base, validation=split.test)
    ours = np.zeros(2)
    scores = []

    def objective(trial: Any) -> float:
        rate = float(trial.suggest_float("lr", 0.05, 5.0, log=True))
        clip = float(trial.suggest_float("clip", 0.3, 6.0, log=True))
        score = opacus_accuracy(dp_hypo_cnn(), split, replace(base, learning_rate=rate, clip_norm=clip), trial.number)
        begin = clocks()
        scores.append(trainer.fit(trial.params, split.train, Randomness.fresh()).score)
        ours[:] += clocks() - begin
        return score

    study = optuna.create_study(direction="maximize")
    begin = clocks()
    study.optimize(objective, n_trials=16)
    theirs = clocks() - begin - ours
    print(f"16 configurations of the CNN of DP-HyPO, {steps} steps, expected batch 250, one process, one thread")
    print(f"  Optuna + Opacus: wall {theirs[0]:.1f} s, processor {theirs[1]:.1f} s, best {study.best_value:.4f}")
    print(f"  dptune:          wall {ours[0]:.1f} s, processor {ours[1]:.1f} s, best {max(scores):.4f}")
    print(f"  ratio:           wall {theirs[0] / ours[0]:.1f}x, processor {theirs[1] / ours[1]:.1f}x")


def clocks() -> NDArray[np.float64]:
    """Wall and processor time."""
    return np.array([time.perf_counter(), time.process_time()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["compare", "table", "tune", "choose", "secure"])
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--first", type=int, default=0, help="the first of Opacus' seeds")
    parser.add_argument("--keep", type=Path, help="a file for the runs of 'compare', which goes on from there")
    parser.add_argument("--data", default="mnist,fashion-mnist,adult,imdb")
    parser.add_argument("--only", default="", help="lines of the table whose label contains this")
    parser.add_argument("--model", choices=["both", "softmax", "cnn"], default="both")
    parser.add_argument("--steps", type=int, default=None)
    options = parser.parse_args()
    if options.what == "compare":
        images = [name for name in options.data.split(",") if "mnist" in name]
        seeds = range(options.first, options.first + (options.seeds or 10))
        compare(seeds, images, options.model, options.steps, options.keep)
    elif options.what == "tune":
        tune(options.steps or COMPARED.steps)
    elif options.what == "secure":
        secure(options.seeds or 6)
    elif options.what == "choose":
        choose(options.seeds or 5)
    else:
        table(options.seeds or 3, options.data.split(","), options.only)


if __name__ == "__main__":
    main()
