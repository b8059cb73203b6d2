"""Clipped gradient sums of torch Sequentials by book-keeping, from layers' inputs and derivatives.

A dense layer's gradient for one record is an outer product, so its norm is a product of norms; a
convolution's is a small matrix product over places. One backward pass, one weighted product per layer.
It must never be used for a module whose layers it does not know: :func:`layers_of` says which those are. Dropout
draws one mask for all records: a mask of each record's own would depend on the records before it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, cross_entropy, linear, unfold

from dptune.training._shares import VANISHED

__all__ = ["TemperedSigmoid", "clipped_sum", "layers_of"]


class TemperedSigmoid(nn.Module):
    """``scale * sigmoid(temperature * x) - offset``."""

    def __init__(self, scale: float, temperature: float, offset: float) -> None:
        super().__init__()
        self.scale, self.temperature, self.offset = scale, temperature, offset

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * torch.sigmoid(self.temperature * x) - self.offset


# Layers without parameters that treat every record on its own.
_PLAIN: tuple[type[nn.Module], ...] = (
    nn.ReLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.SELU,
    nn.LeakyReLU,
    nn.Softplus,
    nn.Hardtanh,
    nn.Identity,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
    TemperedSigmoid,
)
# Layers that multiply by a random mask.
_MASKS: tuple[type[nn.Module], ...] = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def layers_of(module: nn.Module) -> list[nn.Module] | None:
    """The layers of a Sequential in order, or None if book-keeping does not apply."""
    flat = _flatten(module)
    if flat is None:
        return None
    weighted = [layer for layer in flat if isinstance(layer, nn.Linear | nn.Conv2d)]
    if len({id(layer) for layer in weighted}) != len(weighted):
        return None  # one layer used twice: its gradient is a sum, its norm no product
    parameters = [p for layer in weighted for p in layer.parameters()]
    if len({id(p) for p in parameters}) != len(parameters) or not all(p.requires_grad for p in parameters):
        return None
    if any(layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer) for layer in flat):
        return None
    return flat


def _flatten(module: nn.Module) -> list[nn.Module] | None:
    if type(module) is nn.Sequential:
        parts = [_flatten(child) for child in module]
        return None if any(p is None for p in parts) else [layer for p in parts if p is not None for layer in p]
    if type(module) is nn.Linear or type(module) in _PLAIN or type(module) in _MASKS:
        return [module]
    if type(module) is nn.Flatten and module.start_dim >= 1:  # the first dimension is that of records
        return [module]
    if type(module) is nn.Unflatten and isinstance(module.dim, int) and module.dim >= 1:
        return [module]
    if type(module) is nn.Conv2d and module.groups == 1 and module.padding_mode == "zeros":
        return None if isinstance(module.padding, str) else [module]
    return None


def clipped_sum(module: nn.Module, x: Tensor, y: Tensor, clip: float) -> Tensor:
    """The sum over records of gradients clipped to norm ``clip``, flat, in the order of ``parameters()``."""
    layers = layers_of(module)
    if layers is None:
        raise NotImplementedError("This is not a Sequential of known layers.")
    weighted: list[nn.Linear | nn.Conv2d] = []
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for layer in layers:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            if x.dim() != (2 if isinstance(layer, nn.Linear) else 4):
                raise NotImplementedError("There is a dense layer over several places, or an image without channels.")
            weighted.append(layer)
            inputs.append(x.detach())
            x = _apply(layer, x)
            if not x.requires_grad:
                x.requires_grad_()
            outputs.append(x)
        elif type(layer) in _MASKS:
            x = x * layer(torch.ones_like(x[:1]))
        else:
            x = layer(x)
    deltas = torch.autograd.grad(cross_entropy(x, y, reduction="sum"), outputs)
    with torch.no_grad():
        square = torch.zeros(len(x), dtype=x.dtype)
        kept: list[Tensor | None] = []
        for layer, a, d in zip(weighted, inputs, deltas, strict=True):
            size, gradients = _square_norm(layer, a, d)
            square += size
            kept.append(gradients)
        norm = square.sqrt()
        factor = clip / norm.clamp(min=clip)
        fine = torch.isfinite(norm)
        if not bool(fine.all()):  # overflowing records contribute zero
            factor = torch.where(fine, factor, 0.0)
            inputs = [_zero(t, fine) for t in inputs]
            deltas = tuple(_zero(t, fine) for t in deltas)
            kept = [None if g is None else _zero(g, fine) for g in kept]
        parts: list[Tensor] = []
        for layer, a, d, g in zip(weighted, inputs, deltas, kept, strict=True):
            parts += _weighted_sum(layer, a, d, g, factor)
    return torch.cat(parts)


def _zero(values: Tensor, fine: Tensor) -> Tensor:
    return torch.where(fine.view(-1, *[1] * (values.dim() - 1)), values, 0.0)


def _apply(layer: nn.Linear | nn.Conv2d, x: Tensor) -> Tensor:
    """The layer with weights held constant, so that the backward pass computes no weight gradients."""
    bias = None if layer.bias is None else layer.bias.detach()
    if isinstance(layer, nn.Linear):
        return linear(x, layer.weight.detach(), bias)
    return conv2d(x, layer.weight.detach(), bias, layer.stride, layer.padding, layer.dilation)


def _square_norm(layer: nn.Linear | nn.Conv2d, a: Tensor, d: Tensor) -> tuple[Tensor, Tensor | None]:
    """Squared norms of every record's gradient, and for convolutions the gradients of the weights."""
    biased = layer.bias is not None
    if isinstance(layer, nn.Linear):
        return (a.square().sum(1) + (float(biased) + VANISHED)) * (d.square().sum(1) + VANISHED), None
    padding = layer.padding if not isinstance(layer.padding, str) else 0  # layers_of() refuses strings
    patches = unfold(a, layer.kernel_size, layer.dilation, padding, layer.stride)
    places = d.flatten(2)
    gradients = torch.bmm(places, patches.transpose(1, 2))
    size = gradients.flatten(1).square().sum(1)
    if biased:
        size = size + places.sum(2).square().sum(1)
    return size, gradients


def _weighted_sum(
    layer: nn.Linear | nn.Conv2d, a: Tensor, d: Tensor, gradients: Tensor | None, factor: Tensor
) -> list[Tensor]:
    if gradients is None:
        scaled = d * factor[:, None]
        parts = [(scaled.t() @ a).reshape(-1)]
        return parts if layer.bias is None else [*parts, scaled.sum(0)]
    parts = [factor @ gradients.flatten(1)]
    return parts if layer.bias is None else [*parts, factor @ d.flatten(2).sum(2)]
