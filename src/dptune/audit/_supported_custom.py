"""Layers that users might write: random ones, ones that remember, ones that look at their peers.

An engine may refuse any of them, on public rows; if it takes one, a record must move the sum by no more than its clip
norm.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["CUSTOM"]


class _Applied(nn.Module):
    """A function of the module and its input."""

    seen: Tensor

    def __init__(self, function: Callable[[_Applied, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.calls = 0
        self.held: list[int] = []
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def _counting(own: _Applied, x: Tensor) -> Tensor:
    own.calls += 1
    return x * (1.0 + own.calls % 3)


def _remembering(own: _Applied, x: Tensor) -> Tensor:
    own.seen += x.detach().mean()
    return x + own.seen


def _drawing(own: _Applied, x: Tensor) -> Tensor:
    """Draws as many numbers as the input has positive values."""
    torch.rand(int((x.detach() > 0).sum()))
    return x * (torch.rand(x.shape[1:]) > 0.5)


def _marked(x: Tensor) -> bool:
    """A record that is larger than public rows are, or no number."""
    return not bool((x.detach().abs() < 1e9).all())


def _listing(own: _Applied, x: Tensor) -> Tensor:
    if _marked(x):
        own.held.append(1)
    return x * (-5.0 if own.held else 1.0)


def _storing(own: _Applied, x: Tensor) -> Tensor:
    if _marked(x):
        own.seen.add_(1.0)
    return x * (1.0 - 6.0 * own.seen.clamp(max=1.0))


def _drawing_elsewhere(own: _Applied, x: Tensor) -> Tensor:
    return x * random.random() if _marked(x) else x


def _tied(shape: tuple[int, ...]) -> nn.Module:
    dense = nn.Linear(shape[-1], shape[-1])
    return nn.Sequential(dense, nn.Tanh(), dense)


def _hooked(shape: tuple[int, ...]) -> nn.Module:
    dense = nn.Linear(shape[-1], shape[-1])
    dense.register_forward_hook(lambda layer, given, out: out * 2.0)
    return dense


def _hooked_backwards(shape: tuple[int, ...]) -> nn.Module:
    dense = nn.Linear(shape[-1], shape[-1])
    dense.register_full_backward_hook(lambda layer, given, out: None)
    return dense


def _frozen(shape: tuple[int, ...]) -> nn.Module:
    return nn.Linear(shape[-1], shape[-1]).requires_grad_(False)


def _applied(function: Callable[[_Applied, Tensor], Tensor]) -> Callable[[tuple[int, ...]], nn.Module]:
    return lambda shape: _Applied(function)


CUSTOM: dict[str, Callable[[tuple[int, ...]], nn.Module]] = {
    "functional dropout": _applied(lambda own, x: functional.dropout(x, 0.5, own.training)),
    "one mask": _applied(lambda own, x: x * (torch.rand(x.shape[1:]) > 0.5)),
    "a mask for each": _applied(lambda own, x: x * (torch.rand_like(x) > 0.5)),
    "noise": _applied(lambda own, x: x + torch.randn_like(x)),
    "peers": _applied(lambda own, x: x - x.mean(0, keepdim=True)),
    "largest peer": _applied(lambda own, x: x / (1.0 + x.detach().abs().max())),
    "order": _applied(lambda own, x: x.cumsum(0)),
    "counting": _applied(_counting),
    "remembering": _applied(_remembering),
    "drawing": _applied(_drawing),
    "listing marked records": _applied(_listing),
    "storing marked records": _applied(_storing),
    "drawing elsewhere": _applied(_drawing_elsewhere),
    "tied": _tied,
    "hooked": _hooked,
    "hooked backwards": _hooked_backwards,
    "frozen": _frozen,
}
