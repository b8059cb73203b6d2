"""A torch network on images, its learning rate and width tuned privately. python examples/torch_model.py OUT"""

import sys

from torch import nn

import dptune as dpt
from dptune.training import load

DIGITS = load("digits")
X, NEW = (part.x.reshape(-1, 1, 8, 8) for part in (DIGITS.train, DIGITS.test))  # images stay images


def model(p):
    width = p["channels"]
    return nn.Sequential(nn.Conv2d(1, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * width, 10))


if __name__ == "__main__":
    space = dpt.Space(learning_rate=dpt.Float(0.003, 0.1, log=True), channels=dpt.Choice(4, 8))
    told = {"records": 1400, "classes": 10, "dataset": "digits", "runs": dpt.Geometric(3), "out": sys.argv[1]}
    release = dpt.tune((X, DIGITS.train.y), model=model, space=space, epsilon=3, delta=1e-4, **told)
    score = release.model.score(NEW, DIGITS.test.y)
    print(f"epsilon {release.epsilon:.3f} for everything; accuracy {score:.3f} with {release.params}")
