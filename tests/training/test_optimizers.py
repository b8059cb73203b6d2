"""Optimisers and schedules agree with torch's on the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.training.optimizers import Adam, Constant, Cosine, Decay, Momentum, Optimizer, Sgd

torch = pytest.importorskip("torch", reason="torch is the reference here")

PAIRS: list[tuple[Optimizer, Callable[[Any], Any]]] = [
    (Sgd(), lambda p: torch.optim.SGD(p, lr=0.3)),
    (Momentum(0.8), lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.8)),
    (Adam(0.8, 0.95), lambda p: torch.optim.Adam(p, lr=0.3, betas=(0.8, 0.95))),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_updates_equal_torch(ours: Optimizer, theirs: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=(2, 30))
    parameters = start.copy()
    reference = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = theirs([reference])
    update = ours.start(parameters)
    for _ in range(25):
        gradient = rng.normal(size=start.shape)
        update(parameters, gradient.copy(), np.full((2, 1), 0.3))
        reference.grad = torch.from_numpy(gradient)
        optimizer.step()
    np.testing.assert_allclose(parameters, reference.detach().numpy(), rtol=1e-10)


def test_large_single_precision_steps_equal_the_plain_formula() -> None:
    """Each candidate of a stack has its own rate, in the compiled pass too."""
    rng = np.random.default_rng(1)
    parameters, gradient = (rng.normal(size=(3, 5003)).astype(np.float32) for _ in range(2))
    rates = np.array([[0.3], [0.0], [2.0]], np.float32)
    expected = parameters - rates * gradient
    Sgd().start(parameters)(parameters, gradient, rates)
    np.testing.assert_allclose(parameters, expected, rtol=1e-5, atol=1e-6)


def test_schedules() -> None:
    assert Constant().factor(7, 10) == 1.0
    cosine = [Cosine(warmup=0.2, floor=0.1).factor(step, 100) for step in range(100)]
    assert cosine[0] == pytest.approx(1 / 21)
    assert cosine[20] == 1.0
    assert np.all(np.diff(cosine[20:]) < 0)
    assert cosine[-1] == pytest.approx(0.1, abs=1e-3)
    assert [Decay(0.5, 0.25).factor(step, 8) for step in range(8)] == [
        1,
        1,
        0.5,
        0.5,
        0.25,
        0.25,
        0.125,
        0.125,
    ]


def test_bad_values() -> None:
    with pytest.raises(InvalidInput, match="'beta' must be"):
        Momentum(1.0)
    with pytest.raises(InvalidInput, match="'warmup' must be"):
        Cosine(warmup=1.0)
