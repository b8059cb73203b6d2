"""Random ``nn.Sequential`` of everything that the compiled engine knows, drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

from dptune.training.torch_models import TemperedSigmoid

__all__ = ["CLASSES", "networks"]

CLASSES = 5
_POINTWISE: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "tempered": lambda: TemperedSigmoid(1.58, 2.0, 0.71),
    "gelu": nn.GELU,
    "gelu tanh": lambda: nn.GELU("tanh"),
    "silu": nn.SiLU,
    "elu": lambda: nn.ELU(0.7),
    "selu": nn.SELU,
    "none": nn.Identity,
}


def _pair(draw: Any, low: int, high: int) -> tuple[int, int]:
    return draw(st.integers(low, high)), draw(st.integers(low, high))


def _image_layer(draw: Any, shape: tuple[int, ...]) -> nn.Module:
    """A layer over images of a shape."""
    channels, height, width = shape
    kind = draw(st.sampled_from(["conv", "tiles", "max", "average", "group", "layer", "pointwise"]))
    kernel = draw(st.integers(1, min(4, height))), draw(st.integers(1, min(4, width)))
    stride = _pair(draw, 1, 3)
    if kind in {"conv", "tiles"}:
        padding, outputs = _pair(draw, 0, 3), draw(st.integers(1, 20))
        if kind == "tiles":  # two in a row are computed in tiles
            kernel, stride, padding, outputs = (3, 3), (1, 1), _pair(draw, 1, 2), draw(st.sampled_from([16, 16, 32]))
        return nn.Conv2d(channels, outputs, kernel, stride, padding, bias=draw(st.booleans()))
    half = draw(st.integers(0, kernel[0] // 2)), draw(st.integers(0, kernel[1] // 2))
    if kind == "max":
        return nn.MaxPool2d(kernel, stride, half)
    if kind == "average":
        return nn.AvgPool2d(kernel, stride, half, count_include_pad=draw(st.booleans()))
    if kind == "group":
        groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
        return nn.GroupNorm(groups, channels, affine=draw(st.booleans()))
    if kind == "layer":
        return nn.LayerNorm(shape, elementwise_affine=draw(st.booleans()))
    return _POINTWISE[draw(st.sampled_from(sorted(_POINTWISE)))]()


def _flat_layer(draw: Any, width: int) -> nn.Module:
    kind = draw(st.sampled_from(["dense", "dense", "layer", "pointwise"]))
    if kind == "dense":
        return nn.Linear(width, draw(st.integers(1, 40)), bias=draw(st.booleans()))
    if kind == "layer":
        return nn.LayerNorm(width, bias=draw(st.booleans()))
    return _POINTWISE[draw(st.sampled_from(sorted(_POINTWISE)))]()


@st.composite
def networks(draw: Any, outputs: int = CLASSES) -> tuple[nn.Sequential, int]:
    """A network whose parameters are all drawn, and the number of features that it takes."""
    torch.manual_seed(draw(st.integers(0, 2**31)))
    layers: list[nn.Module] = []
    if draw(st.booleans()):
        shape = draw(st.integers(1, 4)), draw(st.integers(3, 12)), draw(st.integers(3, 12))
        features = shape[0] * shape[1] * shape[2]
        layers.append(nn.Unflatten(1, shape))
        values = torch.zeros((2, *shape))
        for _ in range(draw(st.integers(1, 5))):
            layer = _image_layer(draw, tuple(values.shape[1:]))
            values = layer(values)
            layers.append(layer)
        if draw(st.booleans()):
            layers.append(nn.AdaptiveAvgPool2d(1))
        layers.append(nn.Flatten())
        values = nn.Sequential(*layers[1:])(torch.zeros((2, *shape)))
    else:
        features = draw(st.integers(1, 40))
        values = torch.zeros((2, features))
    for _ in range(draw(st.integers(0, 4))):
        layer = _flat_layer(draw, values.shape[1])
        values = layer(values)
        layers.append(layer)
    made = nn.Sequential(nn.Sequential(*layers), nn.Linear(values.shape[1], outputs))
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return made, features
