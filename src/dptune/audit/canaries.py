"""The record that the attacker plants, and how he looks for it in what is released.

A canary lights a feature that no record uses, so its gradient points where no other does and nothing but noise hides
it; it is bright enough to be clipped, and not so bright that one step teaches it to the model for good. Where every
feature is in use the canary is the largest record with a wrong label. The attacker's statistic is the margin of the
canary's label, in units of one clipped gradient of the released configuration.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from dptune._typing import AnyArray, Array
from dptune.accounting import Cost
from dptune.errors import InvalidInput
from dptune.judging import is_module
from dptune.regression import range_of
from dptune.trainer import Fitted, Params, SupportsWarmStart, Trainer, check_warm_start, fit_many
from dptune.training import Dataset

__all__ = ["Attacker", "CanaryMargin", "Controlled", "canary_for", "with_record"]

DataT = TypeVar("DataT")
ModelT = TypeVar("ModelT")

Attacker = Callable[[Mapping[str, Any], Any], float]
"""From released parameters and model (None: none was released) to a number; larger speaks for the record."""

_BRIGHTNESS = 10.0


def canary_for(data: Dataset) -> Dataset:
    """One record that stands apart from those of ``data``."""
    if len(data) == 0:
        raise InvalidInput("A canary stands apart from other records; there are none.")
    if range_of(data) is not None:
        raise InvalidInput(
            "Canaries have classes; records with numbers are audited by the walk ('dptune audit --help')."
        )
    rows = data.flat.x
    dark = np.flatnonzero(~rows.any(axis=0))
    if len(dark):
        x = np.zeros((1, *data.shape), data.x.dtype)
        x.flat[dark[0]] = _BRIGHTNESS
        return Dataset(x, np.zeros(1, np.int64), data.classes)
    largest = int(np.argmax(np.einsum("nd,nd->n", rows, rows)))
    return Dataset(data.x[[largest]], (data.y[[largest]] + 1) % data.classes, data.classes)


def with_record(data: Dataset, record: Dataset) -> Dataset:
    """The data with one more record, at the end."""
    return Dataset(
        np.concatenate([data.x, record.x.astype(data.x.dtype)]), np.append(data.y, record.y), data.classes, data.name
    )


@dataclass(frozen=True, eq=False)
class CanaryMargin:
    """How far the canary's label leads the other labels, on average, in the released model.

    For softmax regression this is the projection of the weights on the canary's first gradient. The released learning
    rate, clip norm and batch size are public, so they are divided out.
    """

    canary: Dataset

    def __call__(self, params: Mapping[str, Any], model: Any) -> float:
        if model is None:
            return -math.inf
        outputs = _outputs(model, self.canary.x)[0]
        label = int(self.canary.y[0])
        margin = float(outputs[label] - np.delete(outputs, label).mean())
        step = _named(params, "learning_rate", "lr") * _named(params, "clip_norm", "clip")
        return margin * _named(params, "batch_size") / step if math.isfinite(margin) else -math.inf


def _named(params: Mapping[str, Any], *names: str) -> float:
    return next((float(params[name]) for name in names if name in params), 1.0)


@runtime_checkable
class _Logits(Protocol):
    def logits(self, x: AnyArray, /) -> AnyArray: ...


@runtime_checkable
class _Decides(Protocol):
    def decision_function(self, x: AnyArray, /) -> AnyArray: ...


@runtime_checkable
class _LogProbabilities(Protocol):
    def predict_log_proba(self, x: AnyArray, /) -> AnyArray: ...


@runtime_checkable
class _Probabilities(Protocol):
    def predict_proba(self, x: AnyArray, /) -> AnyArray: ...


def _class_scores(model: object, x: AnyArray) -> Array | None:
    """What a model of scikit-learn says about every class, if it does."""
    if isinstance(model, _Decides):
        return np.asarray(model.decision_function(x), dtype=float)
    if isinstance(model, _LogProbabilities):
        return np.asarray(model.predict_log_proba(x), dtype=float)
    if isinstance(model, _Probabilities):
        return np.asarray(model.predict_proba(x), dtype=float)
    return None


def _outputs(model: Any, x: AnyArray) -> Array:
    """One row of class outputs a record: ``logits``, a torch module's call, or scikit-learn's scores."""
    if isinstance(model, _Logits):
        return np.asarray(model.logits(x), dtype=float)
    if is_module(model):
        torch = sys.modules["torch"]
        with torch.no_grad():
            return np.asarray(model(torch.as_tensor(x, dtype=torch.float32)).numpy(), dtype=float)
    scores = _class_scores(model, x)
    if scores is not None:
        return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
    raise InvalidInput(
        f"The attacker cannot read a {type(model).__name__}: it has no logits, decision_function or predict_proba. "
        "Give the game an attacker of your own: a function of (params, model)."
    )


@dataclass(frozen=True)
class Controlled(Generic[DataT, ModelT]):
    """A trainer whose score the attacker controls: his own statistic, squeezed into (0, 1) in the same order."""

    trainer: Trainer[DataT, ModelT]
    attacker: Attacker

    def cost(self, params: Params) -> Cost:
        return self.trainer.cost(params)

    def fit(self, params: Params, data: DataT, rng: np.random.Generator) -> Fitted[ModelT]:
        model, _ = self.trainer.fit(params, data, rng)
        return Fitted(model, self._score(params, model))

    def fit_from(self, params: Params, data: DataT, rng: np.random.Generator, start: ModelT) -> Fitted[ModelT]:
        inner: SupportsWarmStart[DataT, ModelT] = check_warm_start(self.trainer)
        model, _ = inner.fit_from(params, data, rng, start)
        return Fitted(model, self._score(params, model))

    def fit_many(
        self, params: Sequence[Params], data: DataT, rngs: Sequence[np.random.Generator]
    ) -> list[Fitted[ModelT]]:
        fitted = fit_many(self.trainer, params, data, rngs)
        return [Fitted(model, self._score(one, model)) for one, (model, _) in zip(params, fitted, strict=True)]

    def _score(self, params: Params, model: ModelT) -> float:
        seen = self.attacker(params, model)
        return 0.5 + 0.5 * seen / (1.0 + abs(seen)) if math.isfinite(seen) else -math.inf
