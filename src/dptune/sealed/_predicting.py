"""What a released model can do: predict, give probabilities, be scored; the same calls whatever kind it is.

Built-in models and estimators of scikit-learn have these methods themselves. A torch module gets them here. Anything
else (arrays by name, plain values) is handed over as it is.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune._typing import Floats, Indices
from dptune.errors import InvalidInput
from dptune.judging import is_module
from dptune.training.trained_model import probabilities
from dptune.training.trained_regression import coefficient_of_determination

__all__ = ["TorchModel", "usable"]


@dataclass(frozen=True, eq=False, repr=False)
class TorchModel:
    """A released torch module, ready to predict.

    Args:
        module: The module itself; calling this object calls it.

    Example:
        >>> import torch
        >>> model = TorchModel(torch.nn.Sequential(torch.nn.Linear(2, 3)))
        >>> model.predict_proba([[0.0, 1.0]]).shape
        (1, 3)
        >>> model
        TorchModel(Sequential: 9 parameters)
    """

    module: Any

    def __call__(self, *arguments: Any) -> Any:
        """What the module answers."""
        return self.module(*arguments)

    def __repr__(self) -> str:
        count = sum(values.numel() for values in self.module.parameters())
        return f"TorchModel({type(self.module).__name__}: {count} parameters)"

    @property
    def _numbers(self) -> bool:
        """Whether the module ends by putting numbers into their declared range."""
        return type(list(self.module.modules())[-1]).__name__ == "InRange"

    def predict(self, x: Any) -> Indices | Floats:
        """The most likely class of every row, or the predicted number."""
        outputs = self._outputs(x)
        return outputs[:, 0] if self._numbers else np.asarray(np.argmax(outputs, axis=1))

    def predict_proba(self, x: Any) -> Floats:
        """The probability of every class, for every row: the softmax of the outputs, unless the module ends in one."""
        if self._numbers:
            raise InvalidInput("This model predicts numbers, so there are no probabilities of classes. Use predict(x).")
        outputs = self._outputs(x)
        parts = list(self.module.modules())
        return outputs if type(parts[-1]).__name__ == "Softmax" else probabilities(outputs)

    def score(self, x: Any, y: Any) -> float:
        """The share of rows whose class is predicted, or R^2 of numbers. On private records, not in the statement."""
        if self._numbers:
            return coefficient_of_determination(self.predict(x), y)
        return float(np.mean(self.predict(x) == np.asarray(y)))

    def _outputs(self, x: Any) -> Floats:
        torch = sys.modules["torch"]  # who has a module has imported it
        kind = next((values.dtype for values in self.module.parameters()), None)
        try:
            with torch.no_grad():
                outputs = np.asarray(self.module(torch.as_tensor(np.asarray(x), dtype=kind)))
        except (RuntimeError, TypeError, ValueError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InvalidInput(
                f"The model does not take these records ({said}). Prepare them as those were that it was trained on."
            ) from None
        if outputs.ndim != 2:
            raise InvalidInput(f"The model gives outputs of shape {outputs.shape}, not one for each class. Call it.")
        return outputs


def usable(model: Any) -> Any:
    """The model as users get it."""
    return TorchModel(model) if is_module(model) else model
