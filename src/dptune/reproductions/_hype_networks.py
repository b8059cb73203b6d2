"""Many small networks at once: one hidden layer for every candidate, trained side by side by matrix products.

The counterpart of ``_hype_linear.LinearBank`` for DP-Hype's Figures 4 and 5: all candidates share data, batches and
start, and differ in learning rate, decay and momentum alone. A candidate that diverges spoils no other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptune._typing import Array, Floats, Indices
from dptune.federated.vote_plan import Candidate

__all__ = ["NetworkBank"]


class NetworkBank:
    """One-hidden-layer networks (relu); the weights of all candidates are one vector."""

    def __init__(self, candidates: Sequence[Candidate], features: int, classes: int, hidden: int = 32) -> None:
        self.candidates, self.classes, self.hidden = len(candidates), classes, hidden
        self._inner = (features + 1, self.candidates * hidden)
        self._outer = (self.candidates, hidden + 1, classes)
        self._split = self._inner[0] * self._inner[1]
        columns = [np.asarray([c[name] for c in candidates], dtype=np.float32) for name in ("lr", "decay", "momentum")]
        self._lr, self._decay, self._momentum = columns

    def _parts(self, weights: Floats) -> tuple[Floats, Floats]:
        return weights[: self._split].reshape(self._inner), weights[self._split :].reshape(self._outer)

    def start(self) -> Floats:
        """The weights that every training starts from, the same for every candidate."""
        rng = np.random.default_rng(0)
        features = self._inner[0] - 1
        first = rng.standard_normal((features + 1, self.hidden)) * np.sqrt(2.0 / features)
        second = rng.standard_normal((self.hidden + 1, self.classes)) * np.sqrt(1.0 / self.hidden)
        first[-1] = second[-1] = 0.0
        parts = (np.tile(first, self.candidates), np.tile(second, (self.candidates, 1, 1)))
        return np.concatenate([part.ravel() for part in parts]).astype(np.float32)

    def train(
        self, weights: Floats, x: Floats, y: Indices, *, epochs: Sequence[int], batch: int, rng: np.random.Generator
    ) -> Floats:
        """The weights after these epochs (their numbers set the decay: lr times decay to the epoch)."""
        weights = weights.copy()
        inner, outer = self._parts(weights)
        speeds = np.zeros_like(inner), np.zeros_like(outer)
        wide = np.repeat(self._momentum, self.hidden), self._momentum[:, None, None]
        target = np.eye(self.classes, dtype=np.float32)
        with np.errstate(all="ignore"):  # candidates with large steps diverge: they are bad, not news
            for epoch in epochs:
                rate = self._lr * self._decay**epoch
                rates = np.repeat(rate, self.hidden), rate[:, None, None]
                order = rng.permutation(len(y))
                for begin in range(0, len(y), batch):
                    rows = order[begin : begin + batch]
                    slopes = self._gradients(inner, outer, x[rows], target[y[rows]])
                    for i, part in enumerate((inner, outer)):
                        speeds[i][...] = speeds[i] * wide[i] + slopes[i]
                        np.subtract(part, rates[i] * speeds[i], out=part)
        return weights

    def _activations(self, inner: Floats, x: Floats) -> Floats:
        """Hidden values with a constant one, by candidate: (candidates, records, hidden + 1)."""
        values = np.maximum(x @ inner, 0.0).reshape(len(x), self.candidates, self.hidden).transpose(1, 0, 2)
        return np.concatenate([values, np.ones((self.candidates, len(x), 1), dtype=values.dtype)], axis=2)

    def _gradients(self, inner: Floats, outer: Floats, x: Floats, target: Floats) -> tuple[Floats, Floats]:
        """Derivatives of the mean cross-entropy by both layers."""
        active = self._activations(inner, x)
        scores = active @ outer
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        scores -= target
        scores /= len(x)
        back = (scores @ outer[:, :-1].transpose(0, 2, 1)) * (active[:, :, :-1] > 0)
        return x.T @ back.transpose(1, 0, 2).reshape(len(x), -1), active.transpose(0, 2, 1) @ scores

    def accuracy(self, weights: Floats, x: Floats, y: Indices) -> Array:
        """One accuracy for each candidate; a network that diverged counts as one that always says the first class."""
        inner, outer = self._parts(weights)
        hits = np.zeros(self.candidates)
        with np.errstate(all="ignore"):
            for begin in range(0, len(x), 500):  # bounds the memory
                scores = np.nan_to_num(self._activations(inner, x[begin : begin + 500]) @ outer)
                hits += (scores.argmax(axis=2) == y[None, begin : begin + 500]).sum(axis=1)
        return hits / len(x)
