"""What an engine is: the contract of whatever computes clipped gradient sums for the DP-SGD loop (:mod:`dpsgd`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dptune._typing import Floats, Indices
from dptune.randomness import Randomness
from dptune.regression import range_of
from dptune.training.benchmark_data import Dataset

__all__ = ["CLIP_NORMS", "Engine", "ReleasesModules", "SumsOnLattice", "wrong_outputs"]

# Clip norms for which no product of a secure sum overflows or vanishes (docs/theorems/exact_sums.md). Far below them
# squares of what is clipped vanish in single precision, and one record moved a sum by up to 2.8 clip norms.
CLIP_NORMS = (2.0**-40, 2.0**40)


class Engine(Protocol):
    """Computes clipped gradient sums; knows nothing of sampling, noise or optimisers.

    The guarantee rests on what an implementer does here. The sum of a batch is the sum of shares, and a record's share
    depends on that record and the parameters alone, with a norm of at most the clip norm, also for records that
    overflow (their share is zero). Nothing may depend on the number of records, no warning and no error on one of them.
    An engine keeps the arrays it is bound to, writes to ``out`` only, and need not be thread-safe.
    """

    dimension: int
    dtype: type[np.floating[Any]]
    together: int  # how many candidates are best computed at once

    def start(self, key: Randomness) -> Floats:
        """Initial parameters as one flat vector."""

    def bind(self, data: Dataset) -> None:
        """Take the records that later calls refer to by index."""

    def clipped_sums(self, parameters: Floats, batches: Sequence[Indices], clips: Floats, out: Floats) -> None:
        """Write into ``out[s]`` the sum over ``batches[s]`` of gradients clipped to norm ``clips[s]``."""

    def logits(self, parameters: Floats, x: Floats) -> Floats:
        """Outputs on the rows of ``x``; those of one row do not depend on the others, down to the last bit."""


@runtime_checkable
class SumsOnLattice(Protocol):
    """An engine whose sums of whole lattice steps are exact, which secure runs prefer."""

    def lattice_sums(
        self, parameters: Floats, batches: Sequence[Indices], clips: Floats, lattices: Sequence[float], out: Floats
    ) -> bool:
        """Write into ``out[s]`` the exact sum over ``batches[s]`` of shares, each rounded to ``lattices[s]``.

        A share is as in ``clipped_sums``, and a lattice of zero asks for no rounding. Returns False if the engine
        cannot do it here; what it wrote into ``out`` is then not used.
        """


@runtime_checkable
class ReleasesModules(Protocol):
    """An engine that trains users' own modules and gives them back."""

    def release(self, parameters: Floats) -> Any:
        """A module with these parameters that has seen no record."""


def wrong_outputs(outputs: object, data: Dataset) -> str:
    """What is said of a module that gives these outputs where records need others."""
    if range_of(data) is not None:
        return f"The module gives {outputs} outputs for a number. Its last layer must return one, the predicted number."
    needed = f"{data.classes} classes. Its last layer must return one score per class."
    return f"The module gives {outputs} outputs for {needed}"
