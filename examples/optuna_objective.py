"""The same, tuned privately at one price, with six changed lines. python examples/optuna_objective.py OUT"""

import sys

import numpy as np

import dptune as dpt
from dptune.training import load

NOISE = 8.0
DATA = load("digits")


def objective(trial, data):
    clip = trial.suggest_float("clip", 0.05, 5.0, log=True)
    shrink = trial.suggest_float("shrink", 0.0, 1.0)
    x = data.x * np.minimum(1, clip / np.maximum(np.linalg.norm(data.x, axis=1, keepdims=True), 1e-12))
    sums = np.stack([x[data.y == digit].sum(axis=0) for digit in range(10)])  # a record moves one of them by clip
    sums += trial.user_attrs["rng"].normal(0, NOISE * clip, sums.shape)
    centres = sums - shrink * sums.mean(axis=0)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    # The score comes from public records.
    return float(np.mean((DATA.test.x @ centres.T).argmax(axis=1) == DATA.test.y)), {"centres": centres}


if __name__ == "__main__":
    told = {"cost": dpt.Gaussian(NOISE), "direction": "maximize", "score_is": "public"}
    trainer, space = dpt.from_objective(objective, DATA.train, **told)
    print(dpt.tune(DATA.train, trainer=trainer, space=space, epsilon=2, delta=1e-5, dataset="digits", out=sys.argv[1]))
