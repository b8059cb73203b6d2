"""Networks that tests of the compiled engine share: one of every kind, with drawn records and their gradients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from tests.training import network_reference as reference
from tests.training.drawn_networks import CLASSES
from torch import nn

from dptune.data import Dataset
from dptune.training._recognise import describe, record_shape
from dptune.training.torch_models import TemperedSigmoid


def flat_of(module: nn.Module) -> Any:
    return np.concatenate([p.detach().numpy().reshape(-1) for p in module.parameters()])


def drawn_records(features: int, count: int, classes: int = CLASSES) -> Dataset:
    rng = np.random.default_rng(features)
    return Dataset(rng.normal(size=(count, features)).astype(np.float32), rng.integers(0, classes, count), classes)


def summed(engine: Any, data: Dataset, flat: Any, clip: float, count: int | None = None) -> Any:
    out = np.full((1, len(flat)), np.nan, engine.dtype)
    engine.bind(data)
    batch = np.arange(len(data) if count is None else count)
    engine.clipped_sums(flat[None].astype(engine.dtype), [batch], np.array([clip]), out)
    return out[0].astype(np.float64)


def expected_size(layers: Any, flat: Any, data: Dataset, clip: float) -> float:
    """The sum of the norms of what is added up: what errors are compared with."""
    each = (reference.gradient(layers, data.x.shape[1:], flat, x, int(y)) for x, y in zip(data.x, data.y, strict=True))
    return float(sum(min(clip, float(np.linalg.norm(own))) for own in each))


def image_net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Unflatten(1, (2, 9, 8)),
        nn.Conv2d(2, 20, 3, padding=1),
        nn.GroupNorm(4, 20),
        nn.SiLU(),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(20, 7, (2, 3), bias=False),
        TemperedSigmoid(1.58, 2.0, 0.71),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(14, 33),
        nn.Tanh(),
        nn.Linear(33, CLASSES),
    )


def flat_net() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Linear(21, 65), nn.LayerNorm(65), nn.GELU(), nn.Linear(65, 17), nn.ELU(), nn.Linear(17, CLASSES)
    )


def pooled_net() -> nn.Sequential:
    """Most derivatives of its convolutions are zero: they have a way of their own."""
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Unflatten(1, (3, 17, 13)),
        nn.Conv2d(3, 18, 3, padding=(1, 0)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(18, 33, (2, 3), padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3),
        nn.Flatten(),
        nn.Linear(33 * 3, CLASSES),
    )


def tiled_net() -> nn.Sequential:
    """Convolutions that are computed in tiles: odd and even sides, with and without margin and bias."""
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Unflatten(1, (2, 11, 9)),
        nn.Conv2d(2, 16, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(16, 32, 3, padding=(0, 1), bias=False),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.Conv2d(32, 16, 3, padding=(2, 0)),
        nn.SiLU(),
        nn.Conv2d(16, 48, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, CLASSES),
    )


def bare_net() -> nn.Sequential:
    """Nothing has a bias; the first layer is a convolution with one place."""
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Unflatten(1, (1, 3, 3)),
        nn.Conv2d(1, 8, 3, bias=False),
        nn.Flatten(),
        nn.Tanh(),
        nn.Linear(8, 17, bias=False),
        nn.ReLU(),
        nn.Linear(17, CLASSES, bias=False),
    )


def normed_net() -> nn.Sequential:
    """Norms that are computed together with the pooling behind them: with weights and without, falling ones too."""
    torch.manual_seed(8)
    module = nn.Sequential(
        nn.Unflatten(1, (2, 12, 8)),
        nn.Conv2d(2, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.GroupNorm(1, 16, affine=False),
        nn.MaxPool2d(2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(96, CLASSES),
    )
    norm: Any = module[2]
    with torch.no_grad():
        norm.weight.add_(torch.randn(32))  # of both signs
        norm.bias.add_(torch.randn(32))
    return module


def large_net() -> nn.Sequential:
    """Convolutions in large tiles, as networks with relu alone have them: 4 x 4 outputs, then 2 x 4; odd sides."""
    torch.manual_seed(9)
    return nn.Sequential(
        nn.Unflatten(1, (2, 15, 18)),
        nn.Conv2d(2, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=(0, 1), bias=False),
        nn.ReLU(),
        nn.Conv2d(32, 16, 3),
        nn.GroupNorm(2, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=(2, 1)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )


def wide_net() -> nn.Sequential:
    """Dense layers so large that their weights stay in torch's order: behind an image, and behind another."""
    torch.manual_seed(10)
    return nn.Sequential(
        nn.Unflatten(1, (1, 14, 6)),
        nn.Conv2d(1, 48, 3, (2, 1), padding=1),
        nn.MaxPool2d((1, 2), padding=(0, 1)),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48 * 28, 80),
        nn.Tanh(),
        nn.Linear(80, 832, bias=False),
        nn.ReLU(),
        nn.Linear(832, CLASSES),
    )


def turned_net() -> nn.Sequential:
    """The same, where the image has as many places as fit vectors."""
    torch.manual_seed(11)
    return nn.Sequential(
        nn.Unflatten(1, (2, 8, 8)),
        nn.Conv2d(2, 64, 3, 2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1024, 71),
        nn.ReLU(),
        nn.Linear(71, CLASSES),
    )


MAKERS = [image_net, flat_net, pooled_net, tiled_net, bare_net, normed_net, large_net, wide_net, turned_net]


@functools.cache
def expected_gradients(make: Any) -> Any:
    """300 drawn records and the gradient of each, for a network of this file."""
    module = make()
    layers, flat = describe(module), flat_of(module)
    data = drawn_records(record_shape(layers)[0], 300)  # type: ignore[index] # all say their shape
    each = [reference.gradient(layers, data.x.shape[1:], flat, x, int(y)) for x, y in zip(data.x, data.y, strict=True)]
    return data, np.array(each)
