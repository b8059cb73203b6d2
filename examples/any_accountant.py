"""Tune a training loop of any library by the event that it declares to dp_accounting: python any_accountant.py OUT"""

import sys

import dp_accounting
import numpy as np

import dptune as dpt

STEPS, NOISE, CLIP, RECORDS = 60, 30.0, 1.0, 2000
EVENT = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(NOISE), STEPS)


def records(seed, count):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4))
    return x, (x @ [1.0, -1.0, 0.5, 0.0] + rng.normal(0, 0.3, count) > 0).astype(float)


PUBLIC = records(2, 500)  # the score is computed on public records, so it costs nothing


@dpt.trainer(cost=dpt.from_dp_event(EVENT))
def fit(params, data, rng):
    x, y = data
    weights = np.zeros(x.shape[1])
    for _ in range(STEPS):  # here stands the loop of any library that does what the event says
        slopes = (1 / (1 + np.exp(-x @ weights)) - y)[:, None] * x
        slopes /= np.maximum(1, np.linalg.norm(slopes, axis=1, keepdims=True) / CLIP)
        weights -= params["rate"] * (slopes.sum(0) + rng.normal(0, NOISE * CLIP, weights.shape)) / RECORDS
    return {"weights": weights}, float(np.mean((PUBLIC[0] @ weights > 0) == PUBLIC[1]))


if __name__ == "__main__":
    method = dpt.RandomStopping(dpt.Space(rate=dpt.Float(0.01, 10, log=True)), dpt.Geometric(5))
    plan = method.plan(dpt.Budget(4, 1e-5), fit)
    release = dpt.run(plan, fit, records(1, RECORDS), data_is="synthetic", out=sys.argv[1])
    print(f"epsilon {release.epsilon:.3f} for everything; {release.params}")
