"""Many linear classifiers at once: one per candidate, trained side by side by matrix products.

Used to reproduce the paper's evaluation on two cores: a hundred candidates cost little more than one. The candidates
share data and batches and differ in learning rate, decay and momentum alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dptune._typing import Array, Floats, Indices
from dptune.federated.vote_plan import Candidate

__all__ = ["LinearBank"]


class LinearBank:
    """Softmax regression for every candidate; weights have shape (features + 1, candidates * classes)."""

    def __init__(self, candidates: Sequence[Candidate], features: int, classes: int) -> None:
        self.candidates, self.classes = len(candidates), classes
        self._shape = (features + 1, self.candidates * classes)
        self._lr = self._spread([c["lr"] for c in candidates])
        self._decay = self._spread([c["decay"] for c in candidates])
        self._momentum = self._spread([c["momentum"] for c in candidates])

    def _spread(self, values: Sequence[Any]) -> Floats:
        return np.repeat(np.asarray(values, dtype=np.float32), self.classes)

    def start(self) -> Floats:
        """Return the weights that every training starts from."""
        return np.zeros(self._shape, dtype=np.float32)

    @staticmethod
    def inputs(x: npt.ArrayLike) -> Floats:
        """Append the constant feature."""
        rows = np.asarray(x, dtype=np.float32)
        return np.hstack([rows, np.ones((len(rows), 1), dtype=np.float32)])

    def train(
        self,
        weights: Floats,
        x: Floats,
        y: Indices,
        *,
        epochs: Sequence[int],
        batch: int,
        rng: np.random.Generator,
    ) -> Floats:
        """Return the weights after these epochs (their numbers set the decay: lr times decay to the epoch)."""
        weights = weights.copy()
        speed = np.zeros_like(weights)
        target = np.eye(self.classes, dtype=np.float32)
        for epoch in epochs:
            rate = self._lr * self._decay**epoch
            order = rng.permutation(len(y))
            for start in range(0, len(y), batch):
                rows = order[start : start + batch]
                errors = self._probabilities(x[rows] @ weights) - target[y[rows]][:, None, :]
                gradient = x[rows].T @ errors.reshape(len(rows), -1)
                gradient /= len(rows)
                speed *= self._momentum
                speed += gradient
                weights -= rate * speed
        return weights

    def _probabilities(self, scores: Floats) -> Floats:
        cube = scores.reshape(len(scores), self.candidates, self.classes)
        cube = cube - cube.max(axis=2, keepdims=True)
        np.exp(cube, out=cube)
        return np.asarray(cube / cube.sum(axis=2, keepdims=True), dtype=np.float32)

    def accuracy(self, weights: Floats, x: Floats, y: Indices) -> Array:
        """Return one accuracy per candidate."""
        scores = (x @ weights).reshape(len(x), self.candidates, self.classes)
        hits = scores.argmax(axis=2) == y[:, None]
        return np.asarray(hits.mean(axis=0), dtype=np.float64)
