"""Tune 16 configurations on MNIST: Optuna with an Opacus loop as users do today, and the same work with dptune.

    DPTUNE_DATA=... python benchmarks/training_end_to_end.py [--steps 60] [--model cnn|mlp]

Optuna proposes learning rate and clip norm and trains each with the loop of Opacus' tutorial; dptune then trains the
same 16 configurations (same network, rate, noise, steps). One process, one thread each. Printed: seconds of wall and
processor time, and their ratios. The scores of both are accuracies on the public test part.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are imported

import argparse
import time
from dataclasses import replace
from typing import Any

import optuna

from dptune.training import DpSgdTrainer, Mlp, RunKey, Settings, load
from dptune.training.models import dp_hypo_cnn
from training_accuracy import opacus_accuracy

TRIALS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--model", choices=["cnn", "mlp"], default="cnn")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    split = load("mnist")
    model: Any = dp_hypo_cnn() if options.model == "cnn" else Mlp(784, 10, (120, 120), "tanh")
    base = Settings.from_batch(250, 60_000, noise_multiplier=1.1, steps=options.steps, clip_norm=1.0, learning_rate=1.0)

    def objective(trial: Any) -> float:
        changed = replace(
            base,
            learning_rate=trial.suggest_float("lr", 0.05, 5.0, log=True),
            clip_norm=trial.suggest_float("clip", 0.3, 6.0, log=True),
        )
        return opacus_accuracy(model, split, changed, trial.number)

    study = optuna.create_study(direction="maximize")
    wall, processor = time.perf_counter(), time.process_time()
    study.optimize(objective, n_trials=TRIALS)
    theirs = (time.perf_counter() - wall, time.process_time() - processor)

    trainer = DpSgdTrainer(model, base, validation=split.test)
    wall, processor = time.perf_counter(), time.process_time()
    fitted = trainer.fit_many(
        [trial.params for trial in study.trials], split.train, [RunKey.fresh() for _ in range(TRIALS)]
    )
    ours = (time.perf_counter() - wall, time.process_time() - processor)
    print(f"{TRIALS} configurations, {options.model}, {options.steps} steps, expected batch 250")
    print(f"  Optuna + Opacus: wall {theirs[0]:.1f} s, processor {theirs[1]:.1f} s, best {study.best_value:.4f}")
    print(
        f"  dptune:          wall {ours[0]:.1f} s, processor {ours[1]:.1f} s, best {max(f.score for f in fitted):.4f}"
    )
    print(f"  ratio:           wall {theirs[0] / ours[0]:.1f}x, processor {theirs[1] / ours[1]:.1f}x")


if __name__ == "__main__":
    main()
