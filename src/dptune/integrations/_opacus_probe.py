"""What an Opacus function does with single records, tried on blank ones before the charge.

Clipping bounds what one record adds only if its gradient does not follow the others of its batch. Where the loss is a
mean and ``loss_reduction`` says a sum, or the other way round, every gradient is scaled by the size of the batch: one
record more moves those of all others, and the sum by up to two clip norms. A wrong ``batch_first`` takes another
dimension for that of records. Both show in a few batches of chosen records, with the same weights.
"""

from __future__ import annotations

from typing import Any

import torch

from dptune.errors import InvalidInput

__all__ = ["Probe"]

_BATCHES = ([0], [0], [1], [0, 1])
_GRADIENTS = sum(map(len, _BATCHES))
_TOLERANCE = 1e-2  # of a gradient's norm: losses in single precision, summed in another order


class Probe:
    """Hands over one record, the same again, another one, and both; compares the gradients of each alone and not.

    A function that draws (dropout, augmentation) gives other gradients for the same record: of those only the number
    of gradients is compared.

    Args:
        optimizer: the private one, whose weights are put back after each batch.
    """

    steps = len(_BATCHES) + 1
    """It needs so many: the last batches are drawn."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._weights: list[torch.Tensor] = []
        self._handed: list[int] | None = None
        self._place = 0
        self._found: list[torch.Tensor] = []

    def batch(self, records: int) -> list[int] | None:
        """The next batch to try; None when all were."""
        if self._place > len(_BATCHES) or records < 2:
            self._handed = None
            return None
        if self._place == 0:
            self._weights = [p.detach().clone() for p in self._optimizer.params]
        for p, before in zip(self._optimizer.params, self._weights, strict=True):
            p.data.copy_(before)
        self._handed = _BATCHES[self._place] if self._place < len(_BATCHES) else None
        self._place += 1
        return self._handed

    def look(self, gradients: list[list[Any]]) -> None:
        """Called before gradients are clipped, with those of every parameter.

        Raises:
            InvalidInput: there is not one gradient for each record, or one record's follows another record.
        """
        if self._handed is None or len(self._found) >= _GRADIENTS:
            return
        tensors = [one for part in gradients for one in part if isinstance(one, torch.Tensor)]
        if any(len(one) < len(self._handed) for one in tensors):  # split into smaller ones, to save memory
            self._place, self._handed = len(_BATCHES) + 1, None
            return
        if any(len(one) > len(self._handed) for one in tensors):
            raise InvalidInput(
                f"The run has gradients of {len(tensors[0])} records for a batch of {len(self._handed)}: what is "
                "clipped are not records. Let the first dimension be that of records, or set 'batch_first' of "
                "make_private() to what the module does."
            )
        self._found.extend(
            torch.cat([one[place].detach().reshape(-1).double() for one in tensors])
            for place in range(len(self._handed))
        )
        if len(self._found) == _GRADIENTS:
            first, again, second, *both = self._found
            if float((first - again).norm()) <= 1e-4 * float(first.norm()):  # else the function draws
                self._compare(first, both[0])
                self._compare(second, both[1])

    def _compare(self, once: torch.Tensor, beside: torch.Tensor) -> None:
        size = float(once.norm())
        if not 0.0 < size < float("inf"):
            return  # nothing to see
        if float((once - beside).norm()) > _TOLERANCE * size:
            raise InvalidInput(
                "One record's gradient follows the others of its batch (beside another record it is "
                f"{float(beside.norm()) / size:.3g} times as long), so clipping it bounds nothing. If the loss is a "
                "sum, say make_private(loss_reduction='sum'), if it is a mean, 'mean'; use no statistic of a batch."
            )
