"""An Optuna study of models with noise, each as if it were the only one. python examples/optuna_before.py TRIALS"""

import sys

import numpy as np
import optuna

from dptune.training import load

NOISE = 8.0
DATA = load("digits")


def objective(trial, data):
    clip = trial.suggest_float("clip", 0.05, 5.0, log=True)
    shrink = trial.suggest_float("shrink", 0.0, 1.0)
    x = data.x * np.minimum(1, clip / np.maximum(np.linalg.norm(data.x, axis=1, keepdims=True), 1e-12))
    sums = np.stack([x[data.y == digit].sum(axis=0) for digit in range(10)])  # a record moves one of them by clip
    sums += np.random.default_rng().normal(0, NOISE * clip, sums.shape)
    centres = sums - shrink * sums.mean(axis=0)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    # The score comes from public records.
    return float(np.mean((DATA.test.x @ centres.T).argmax(axis=1) == DATA.test.y))


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    study.optimize(lambda trial: objective(trial, DATA.train), n_trials=int(sys.argv[1]))
    print(f"accuracy {study.best_value:.3f} with {study.best_params}")
