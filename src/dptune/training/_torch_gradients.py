"""Gradients of single records of a torch module, their clipped sum, and what keeps records from being talked about."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, smooth_l1_loss

__all__ = ["clip_and_add", "first_line", "gradient_alone", "gradients_by_vmap", "loss_of", "silence", "single_records"]


def loss_of(outputs: Tensor, y: Tensor) -> Tensor:
    """The loss of one record: cross-entropy for a label; for a number, which is a share of its range, half the squared
    error up to an error of 1, the whole range, and a straight line beyond it."""
    if y.is_floating_point():
        return smooth_l1_loss(outputs[:, 0], y)
    return cross_entropy(outputs, y)


def gradient_alone(module: nn.Module, trained: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """The gradient of one record as one flat vector; zero for parameters that its loss does not use."""
    parts = torch.autograd.grad(loss_of(module(x), y), trained, allow_unused=True)
    filled = [torch.zeros_like(p) if g is None else g for p, g in zip(trained, parts, strict=True)]
    return torch.cat([g.reshape(-1) for g in filled])


def gradients_by_vmap(
    module: nn.Module, names: Sequence[str], trained: Sequence[Tensor], x: Tensor, y: Tensor
) -> Tensor:
    """The gradients of all records, one a row, traced once; random layers draw the same for every record."""
    weights = {n: p.detach() for n, p in zip(names, trained, strict=True)}
    rest = {n: p.detach() for n, p in module.named_parameters() if n not in weights}
    rest |= dict(module.named_buffers())

    def loss(values: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, {**values, **rest}, (one.unsqueeze(0),))
        return cross_entropy(logits, label.unsqueeze(0))

    every = vmap(grad(loss), in_dims=(None, 0, 0), randomness="same")(weights, x, y)
    return torch.cat([every[name].reshape(len(x), -1) for name in names], dim=1)


def clip_and_add(gradients: Tensor, clip: float) -> Tensor:
    """Sum of the rows, each scaled down to norm ``clip``; rows that overflow contribute zero."""
    norm = gradients.norm(dim=1)
    fine = torch.isfinite(norm)
    if not bool(fine.all()):
        gradients, norm = gradients[fine], norm[fine]
    total: Tensor = (clip / norm.clamp(min=clip)) @ gradients
    return total


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """No warning about a record: one that is an error would drop the first record that causes it, and no other."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def single_records(x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of one record each, in order."""
    return zip(torch.split(x, 1), torch.split(y, 1), strict=True)


def first_line(error: Exception) -> str:
    """The first line of an error, to stand within a sentence."""
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
