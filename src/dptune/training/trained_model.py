"""A built-in model after its training: the description and its parameters, which predict without the trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dptune._typing import Floats, Indices
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.judging import is_module
from dptune.training.engines import engine_for
from dptune.training.models import Cnn, Mlp

__all__ = ["TrainedModel", "parameters_of"]


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model description with its trained parameters, in the order of the engine that trained them.

    ``judges_each_record_alone`` is a promise to those who count right answers on private records: the outputs for a row
    are the same bits whatever rows it is given with, however many and in whatever order. Models without it are judged
    one record at a time.

    Args:
        description: The model: an ``Mlp`` or a ``Cnn``.
        parameters: One flat vector, in the order of the engine.
        engine: Which engine computes predictions; "auto" chooses.

    Example:
        >>> import numpy as np
        >>> from dptune.training import TrainedModel, softmax
        >>> model = TrainedModel(softmax(1, 2), np.array([-1.0, 1.0, 0.0, 0.0], np.float32))
        >>> model.predict(np.array([[2.0], [-2.0]]))
        array([1, 0])
    """

    judges_each_record_alone: ClassVar[bool] = True

    description: Mlp | Cnn
    parameters: Floats
    engine: str = "auto"

    def logits(self, x: Floats) -> Floats:
        """Outputs on the rows of ``x``."""
        with np.errstate(all="ignore"):  # a diverged model predicts badly but predicts
            return engine_for(self.description, engine=self.engine).logits(self.parameters, x)

    def predict(self, x: Floats) -> Indices:
        """The most likely class of every row."""
        labels: Indices = np.argmax(self.logits(x), axis=1)
        return labels

    def accuracy(self, data: Dataset) -> float:
        """The fraction of records classified correctly."""
        return float(np.mean(self.predict(data.x) == data.y))


def parameters_of(model: Any) -> Floats:
    """The trained parameters of a model, in the order of the engine that trained it."""
    if isinstance(model, TrainedModel):
        return model.parameters
    if not is_module(model):
        raise InvalidInput(f"A DP-SGD run continues from a model that one returned; got {type(model).__name__}.")
    from dptune.training.torch_models import flat_parameters  # noqa: PLC0415 - optional dependency

    return flat_parameters(model)
