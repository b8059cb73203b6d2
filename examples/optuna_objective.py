"""An Optuna objective, tuned privately; the five changes are numbered. python examples/optuna_objective.py OUT"""

import sys

import numpy as np

import dptune as dpt
from dptune.integrations.objectives import from_objective  # 1: was import optuna
from dptune.training import load

NOISE = 8.0
DIGITS = load("digits")


def objective(trial, data):  # 2: the records are an argument
    clip = trial.suggest_float("clip", 0.05, 5.0, log=True)
    shrink = trial.suggest_float("shrink", 0.0, 1.0)
    x = data.x * np.minimum(1, clip / np.maximum(np.linalg.norm(data.x, axis=1, keepdims=True), 1e-12))
    sums = np.stack([x[data.y == digit].sum(axis=0) for digit in range(10)])  # a record moves one of them by clip
    sums += trial.user_attrs["rng"].normal(0, NOISE * clip, sums.shape)
    centres = sums - shrink * sums.mean(axis=0)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    value = float(np.mean((DIGITS.test.x @ centres.T).argmax(axis=1) == DIGITS.test.y))  # on public records
    return value, {"centres": centres}  # 3: the model comes with its value


if __name__ == "__main__":
    told = {"cost": dpt.Gaussian(NOISE), "direction": "maximize", "score_is": "public"}
    trainer, space = from_objective(objective, DIGITS.train, **told)  # 4: was create_study
    plan = dpt.RandomStopping(space, dpt.Geometric(10)).plan(dpt.Budget(2, 1e-5), trainer)
    release = dpt.run(plan, trainer, DIGITS.train, dataset="digits", out=sys.argv[1])  # 5: was study.optimize
    print(f"epsilon {release.epsilon:.3f} for everything; {release.params}")
