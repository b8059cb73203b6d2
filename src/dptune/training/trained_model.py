"""A built-in model after its training: the description and its parameters, which predict without the trainer.

Regressions, whose predictions are numbers, are in :mod:`trained_regression`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from dptune._typing import Floats, Indices
from dptune.data import Dataset, flat_rows
from dptune.errors import InvalidInput
from dptune.judging import is_module
from dptune.training.encoders import encoder_of, is_encoder
from dptune.training.engines import engine_for
from dptune.training.features import check_features, named_features
from dptune.training.lens import CentredLens, Lens, carried
from dptune.training.models import Cnn, Mlp

__all__ = ["Trained", "TrainedModel", "parameters_of", "probabilities"]

Description = TypeVar("Description", bound=Mlp | Cnn)


@dataclass(frozen=True, eq=False, repr=False)
class Trained(Generic[Description]):
    """What all built-in models have: a description, its trained parameters, and outputs on rows.

    Args:
        description: The model.
        parameters: One flat vector, in the order of the engine.
        engine: Which engine computes predictions; "auto" chooses.
        prepared: The name of the public features that rows become before the model sees them.
        lens: What rows are looked at through after that, where the training was whitened; released with the model.
    """

    description: Description
    parameters: Floats
    engine: str = "auto"
    prepared: str = "none"
    lens: Lens | CentredLens | None = None

    def check(self) -> None:
        """Refuse parameters that do not belong to the description, and features that do not exist.

        Raises:
            InvalidInput: There are not as many as the model has, or they are not numbers of single or double precision.
        """
        check_features(self.prepared)
        values, wanted = self.parameters, self.description.dimension
        if not isinstance(values, np.ndarray) or values.dtype not in (np.float32, np.float64):
            raise InvalidInput("The parameters of a model must be an array of floating point numbers.")
        if values.shape != (wanted,):
            raise InvalidInput(f"{self.description} has {wanted} parameters; got an array of shape {values.shape}.")
        if self.lens is not None and self.lens.features != self.description.features:
            raise InvalidInput("The lens of a model must take as many features as the model has.")

    def logits(self, x: Floats) -> Floats:
        """Outputs on the rows of ``x``."""
        with np.errstate(all="ignore"):  # a diverged model predicts badly but predicts
            rows = x if self.lens is None else self.lens(x)
            return engine_for(self.description, engine=self.engine).logits(self.parameters, rows)

    def _rows(self, x: Any) -> Floats:
        given, features = np.asarray(x), self.description.features
        if is_encoder(self.prepared) and not (given.ndim == 2 and given.shape[1] == features):
            given = encoder_of(self.prepared).encode(x)
        rows = flat_rows(given)
        if self.prepared != "none" and rows.ndim == 2 and rows.shape[1] != features and rows.dtype.kind in "fiub":
            rows = named_features(self.prepared)(rows)
        if rows.ndim != 2 or rows.shape[1] != features or rows.dtype.kind not in "fiub":
            raise InvalidInput(
                f"The model takes rows of {features} numbers; got an array of {rows.dtype} of shape {given.shape}. "
                "Prepare records as those were that it was trained on."
            )
        return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel(Trained[Mlp | Cnn]):
    """A model description with its trained parameters, in the order of the engine that trained them.

    ``judges_each_record_alone`` is a promise to those who count right answers on private records: the outputs for a row
    are the same bits whatever rows it is given with, however many and in whatever order. Models without it are judged
    one record at a time.

    Args:
        description: The model: an ``Mlp`` or a ``Cnn``.
        parameters: One flat vector, in the order of the engine.
        engine: Which engine computes predictions; "auto" chooses.
        prepared: The name of the public features that rows become before the model sees them. Rows that have the
            width of the features already are taken as they are.
        lens: What rows are looked at through after that, where the training was whitened.

    Example:
        >>> import numpy as np
        >>> from dptune.training import TrainedModel, softmax
        >>> model = TrainedModel(softmax(1, 2), np.array([-1.0, 1.0, 0.0, 0.0], np.float32))
        >>> model.predict(np.array([[2.0], [-2.0]]))
        array([1, 0])
        >>> model
        TrainedModel(softmax regression: 1 feature, 2 classes, 4 parameters)
    """

    judges_each_record_alone: ClassVar[bool] = True

    def __repr__(self) -> str:
        model = self.description
        if isinstance(model, Cnn):
            kind, inputs = "convolutional network", f"{'x'.join(map(str, model.image))} images"
        else:
            hidden = "-".join(map(str, model.hidden))
            kind = f"network with hidden layers {hidden}" if hidden else "softmax regression"
            inputs = f"{model.features} feature{'s' if model.features > 1 else ''}"
        return f"TrainedModel({kind}: {inputs}, {model.classes} classes, {len(self.parameters)} parameters)"

    def predict(self, x: Floats) -> Indices:
        """The most likely class of every row."""
        labels: Indices = np.argmax(self.logits(self._rows(x)), axis=1)
        return labels

    def predict_proba(self, x: Floats) -> Floats:
        """The probability that the model gives to every class, for every row."""
        return probabilities(self.logits(self._rows(x)))

    def score(self, x: Floats, y: Indices) -> float:
        """The share of rows whose class is predicted.

        Args:
            x: One row for each record.
            y: The classes. A score on private records is not covered by the statement of a release.

        Returns:
            A number from 0 to 1.
        """
        return float(np.mean(self.predict(x) == np.asarray(y)))

    def accuracy(self, data: Dataset) -> float:
        """The fraction of records classified correctly."""
        return self.score(data.x, data.y)


def probabilities(logits: Floats) -> Floats:
    """Outputs as probabilities of classes, row by row (the softmax)."""
    with np.errstate(all="ignore"):
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def parameters_of(model: Any, lens: Lens | CentredLens | None = None) -> Floats:
    """The trained parameters of a model, in the order of the engine that trained it.

    Args:
        model: What an earlier run returned.
        lens: What the records of the next run are looked at through: the model's first layer is carried over to it.

    Returns:
        One flat vector.

    Raises:
        InvalidInput: No run returned this.
    """
    if isinstance(model, Trained):
        flat, described = np.asarray(model.parameters), model.description
        if (lens is None and model.lens is None) or not isinstance(described, Mlp):
            return flat
        shape = described.features + 1, (*described.hidden, described.classes)[0]
        count = math.prod(shape)
        first = carried(flat[:count].reshape(shape), model.lens, lens)
        with np.errstate(all="ignore"):  # weights of a diverged run
            return np.concatenate([first.reshape(-1), flat[count:]]).astype(flat.dtype)
    if not is_module(model):
        raise InvalidInput(f"A DP-SGD run continues from a model that one returned; got {type(model).__name__}.")
    from dptune.training.torch_models import flat_parameters  # noqa: PLC0415 - optional dependency

    return flat_parameters(model)
