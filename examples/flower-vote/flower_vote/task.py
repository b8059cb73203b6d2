"""The task: handwritten digits, a linear model, and the candidates that clients vote on.

Everything here is public except what ``load`` returns; that must stay on its client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

Array = npt.NDArray[np.float64]

CANDIDATES: list[dict[str, float]] = [
    {"lr": lr, "momentum": momentum} for lr in (3.0, 0.3, 0.03, 0.003, 0.0003) for momentum in (0.0, 0.9)
]
CLASSES, FEATURES = 10, 64


def load(partition: int, partitions: int) -> tuple[Array, npt.NDArray[np.int64], Array, npt.NDArray[np.int64]]:
    """Return this client's records for training and for validation."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))[partition::partitions]
    x, y = digits.data[order] / 16.0, digits.target[order].astype(np.int64)
    cut = len(y) * 3 // 4
    return x[:cut], y[:cut], x[cut:], y[cut:]


def new_model() -> Array:
    """Return the model that everyone starts from."""
    return np.zeros((FEATURES + 1, CLASSES))


def _probabilities(model: Array, x: Array) -> Array:
    scores = x @ model[:-1] + model[-1]
    scores -= scores.max(axis=1, keepdims=True)
    weights: Array = np.exp(scores)
    return weights / weights.sum(axis=1, keepdims=True)


def train(model: Array, x: Array, y: npt.NDArray[np.int64], params: Mapping[str, Any], epochs: int = 20) -> Array:
    """Return the model after some epochs of full-batch gradient descent with momentum."""
    model, speed = model.copy(), np.zeros_like(model)
    target = np.eye(CLASSES)[y]
    inputs = np.hstack([x, np.ones((len(x), 1))])
    for _ in range(epochs):
        gradient = inputs.T @ (_probabilities(model, x) - target) / max(len(y), 1)
        speed = params["momentum"] * speed + gradient
        model -= params["lr"] * speed
    return model


def loss(model: Array, x: Array, y: npt.NDArray[np.int64]) -> float:
    """Return the mean negative log-likelihood."""
    return float(-np.log(_probabilities(model, x)[np.arange(len(y)), y] + 1e-12).mean())


def accuracy(model: Array, x: Array, y: npt.NDArray[np.int64]) -> float:
    """Return the fraction of correct predictions."""
    return float((_probabilities(model, x).argmax(axis=1) == y).mean())
