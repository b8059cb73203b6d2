"""A built-in regression after its training: predictions are numbers in the public range of its target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dptune._typing import Array, Floats
from dptune.regression import unscaled
from dptune.training.lens import CentredLens, Lens
from dptune.training.models import Cnn, Mlp, Regression
from dptune.training.trained_model import Trained, TrainedModel

__all__ = ["TrainedRegression", "coefficient_of_determination", "trained"]


@dataclass(frozen=True, eq=False, repr=False)
class TrainedRegression(Trained[Regression]):
    """A regression's description with its trained parameters, in the order of the engine that trained them.

    ``judges_each_record_alone`` is a promise to those who judge it on private records: the prediction for a row has the
    same bits whatever rows it is given with, however many and in whatever order.

    Args:
        description: The model, which knows the range of its target.
        parameters: One flat vector, in the order of the engine.
        engine: Which engine computes predictions; "auto" chooses.

    Example:
        >>> import numpy as np
        >>> from dptune.training import TrainedRegression, linear
        >>> model = TrainedRegression(linear(1, (0, 10)), np.array([0.5, 0.25], np.float32))
        >>> model.predict(np.array([[1.0], [-9.0]]))
        array([7.5, 0. ])
        >>> model
        TrainedRegression(linear regression: 1 feature, target in [0, 10], 2 parameters)
    """

    judges_each_record_alone: ClassVar[bool] = True

    def __repr__(self) -> str:
        model = self.description
        hidden = "-".join(map(str, model.hidden))
        kind = f"regression with hidden layers {hidden}" if hidden else "linear regression"
        inputs = f"{model.features} feature{'s' if model.features > 1 else ''}"
        low, high = model.target_range
        return f"TrainedRegression({kind}: {inputs}, target in [{low:g}, {high:g}], {len(self.parameters)} parameters)"

    def predict(self, x: Any) -> Array:
        """The predicted target of every row, inside of the declared range; NaN where a diverged model has no output."""
        return unscaled(self.logits(self._rows(x))[:, 0], self.description.target_range)

    def score(self, x: Any, y: Any) -> float:
        """The coefficient of determination R^2: 1 is perfect, 0 no better than always saying the mean of ``y``.

        Args:
            x: One row for each record.
            y: The targets. A score on private records is not covered by the statement of a release.

        Returns:
            A number of at most 1.
        """
        return coefficient_of_determination(self.predict(x), y)


def trained(
    model: Mlp | Cnn,
    parameters: Floats,
    engine: str = "auto",
    prepared: str = "none",
    lens: Lens | CentredLens | None = None,
) -> TrainedModel | TrainedRegression:
    """A built-in model with its parameters, of the class that predicts what it is about.

    Args:
        model: The description.
        parameters: One flat vector, in the order of the engine.
        engine: Which engine computes predictions.
        prepared: The name of the public features that rows become before the model sees them.
        lens: What rows are looked at through after that.

    Returns:
        A regression for :class:`~dptune.training.models.Regression`, else a classifier.

    Example:
        >>> from dptune.training import linear
        >>> trained(linear(1, (0, 10)), np.zeros(2, np.float32))
        TrainedRegression(linear regression: 1 feature, target in [0, 10], 2 parameters)
    """
    if isinstance(model, Regression):
        return TrainedRegression(model, parameters, engine, prepared, lens)
    return TrainedModel(model, parameters, engine, prepared, lens)


def coefficient_of_determination(found: Any, targets: Any) -> float:
    """R^2 of predictions: one minus the squared errors over those of the targets' mean.

    Args:
        found: The predictions.
        targets: The truth.

    Returns:
        A number of at most 1; for targets that are all the same 1 if all predictions are right, else 0.

    Example:
        >>> coefficient_of_determination([1.0, 2.0, 4.0], [1.0, 2.0, 3.0])
        0.5
    """
    truth = np.asarray(targets, np.float64)
    errors = float(np.sum((np.asarray(found, np.float64) - truth) ** 2))
    spread = float(np.sum((truth - truth.mean()) ** 2))
    if spread == 0.0:
        return 1.0 if errors == 0.0 else 0.0
    return 1.0 - errors / spread
