"""Any estimator that is private by itself, tuned at one total price. python examples/any_estimator.py OUT"""

import sys

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

import dptune as dpt
from dptune.integrations.estimators import estimator_trainer
from dptune.training import load

NOISE = 8.0
DIGITS = load("digits")


class NoisyCentres(ClassifierMixin, BaseEstimator):
    def __init__(self, clip=1.0, random_state=None):
        self.clip, self.random_state = clip, random_state

    def fit(self, x, y):  # a record moves one sum by at most clip: the Gaussian mechanism
        short = x * np.minimum(1, self.clip / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))
        sums = np.stack([short[y == digit].sum(axis=0) for digit in range(10)])
        self.classes_, self.centres_ = np.arange(10), sums + self.random_state.normal(0, NOISE * self.clip, sums.shape)
        return self

    def predict(self, x):
        return (x @ (self.centres_ / np.linalg.norm(self.centres_, axis=1, keepdims=True)).T).argmax(axis=1)


if __name__ == "__main__":
    trainer = estimator_trainer(lambda p: NoisyCentres(**p), cost=dpt.Gaussian(NOISE), validation=DIGITS.test)
    space = dpt.Space(clip=dpt.Float(0.05, 2, log=True))
    plan = dpt.RandomStopping(space, dpt.Geometric(5)).plan(dpt.Budget(2, 1e-5), trainer)
    told = {"dataset": "digits", "out": sys.argv[1], "pickle": True}  # no safe file can hold a class of one's own
    release = dpt.run(plan, trainer, DIGITS.train, **told)
    score = release.open_model(pickle=True).score(DIGITS.test.x, DIGITS.test.y)
    print(f"epsilon {release.epsilon:.3f} for everything; accuracy {score:.3f} with {release.params}")
