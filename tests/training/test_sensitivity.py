"""One record moves a clipped sum by at most the clip norm: engines A and C, every model, at every place of a batch."""

from __future__ import annotations

import pytest
from tests.training.sensitivity import CLASSES, Sums, check, fast, records, secure, stacked

from dptune.training import models
from dptune.training.fused_engine import FusedEngine
from dptune.training.models import Activation, Mlp, Regression, softmax
from dptune.training.numpy_engine import NumpyEngine

ACTIVATIONS: list[str | Activation] = ["relu", "tanh", Activation("tempered_sigmoid", 1.58, 3.0, 0.71)]
MLPS = [
    softmax(20, CLASSES),
    softmax(20, 2),
    softmax(20, 10),
    *(Mlp(20, CLASSES, hidden, activation) for activation in ACTIVATIONS for hidden in ((7,), (70, 66))),
    *(Regression(20, hidden, one, target_range=(0, 1)) for one in ACTIVATIONS for hidden in ((), (7,), (70, 66))),
]


@pytest.mark.parametrize("filled", [1.0, 0.2])
@pytest.mark.parametrize("model", MLPS)
def test_engine_a(model: Mlp, compiled: bool, filled: float) -> None:
    data = records(20, model.classes, filled=filled)
    check(lambda: NumpyEngine(model, compiled=compiled), data)


@pytest.mark.parametrize("model", MLPS)
@pytest.mark.parametrize("sums", [fast, secure, stacked])
def test_engine_a_in_double_precision_and_in_stacks(model: Mlp, sums: Sums) -> None:
    check(lambda: NumpyEngine(model, double=sums is not stacked, compiled=False), records(20, model.classes), sums)


@pytest.mark.parametrize("sums", [fast, secure])
def test_the_fused_engine(compiled: bool, sums: Sums) -> None:
    data = records(784, 10)
    double = sums is secure
    check(lambda: FusedEngine(models.dp_hypo_cnn(), compiled=compiled, double=double), data, sums, [0.1, 1.0])
