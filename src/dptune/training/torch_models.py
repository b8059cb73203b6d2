"""Model descriptions as torch modules, and a module's trained parameters as one vector."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor, nn

from dptune._global_state import plain_torch
from dptune._typing import Floats
from dptune.training._bookkeeping import TemperedSigmoid
from dptune.training.models import Activation, Cnn, Conv, GlobalMean, Mlp

__all__ = ["InRange", "TemperedSigmoid", "build", "flat_parameters", "in_range"]


class InRange(nn.Module):
    """Shares of a declared range as values, never outside of it: the last layer of released modules for numbers."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = float(low), float(high)

    def forward(self, x: Tensor) -> Tensor:
        """Values in the range; what is below 0 or above 1 is its end."""
        inside = x.clamp(0.0, 1.0)
        return (self.low * (1.0 - inside) + self.high * inside).clamp(self.low, self.high)

    def extra_repr(self) -> str:
        """The range."""
        return f"{self.low}, {self.high}"


def in_range(module: nn.Module, ends: tuple[float, float]) -> nn.Sequential:
    """A module that was trained on shares of a range, giving values of that range."""
    return nn.Sequential(module, InRange(*ends)).eval()


def flat_parameters(module: nn.Module) -> Floats:
    """The trained parameters of a released module as one vector, in the order of :meth:`TorchEngine.start`."""
    trained = [p.detach().reshape(-1) for p in module.parameters() if p.requires_grad]
    return np.array(torch.cat(trained).numpy())


def _nonlinear(activation: Activation) -> nn.Module:
    if activation.kind == "relu":
        return nn.ReLU()
    if activation.kind == "tanh":
        return nn.Tanh()
    return TemperedSigmoid(activation.scale, activation.temperature, activation.offset)


@plain_torch()
def build(model: Mlp | Cnn) -> nn.Sequential:
    """The torch module of a description; it takes flat rows. Its first weights cost the global generator nothing."""
    with torch.random.fork_rng(devices=[]):
        return _build(model)


def _build(model: Mlp | Cnn) -> nn.Sequential:
    layers: list[nn.Module] = []
    if isinstance(model, Cnn):
        layers.append(nn.Unflatten(1, model.image))
        channels = model.image[0]
        for layer in model.layers:
            if isinstance(layer, Conv):
                layers.append(nn.Conv2d(channels, layer.channels, layer.kernel, layer.stride, layer.padding))
                layers.append(_nonlinear(model.nonlinearity))
                channels = layer.channels
            elif isinstance(layer, GlobalMean):
                layers.append(nn.AdaptiveAvgPool2d(1))
            else:
                layers.append(nn.MaxPool2d(layer.size, layer.stride))
        layers.append(nn.Flatten())
        widths = (model.flat, *model.dense)
    else:
        widths = (model.features, *model.hidden)
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), _nonlinear(model.nonlinearity)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], model.classes))
