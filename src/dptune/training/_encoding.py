"""What encoding one record is made of: the record as numbers, its outputs scaled, the weights' hash, and the trial that
tells whether records may be encoded several at a time. Nothing here keeps anything of a record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dptune._typing import AnyArray, Floats
from dptune.tables.map_style import plain_array

__all__ = ["module_hash", "row_of", "same_everywhere", "scaled"]

_TINY = 1e-6  # outputs shorter than this have no direction


def row_of(record: Any, shape: tuple[int, ...]) -> Floats:
    """One record of numbers, in memory of its own; raises if it has another size."""
    return plain_array(record).astype(np.float32, order="C").reshape(shape).copy()


def scaled(answer: AnyArray, width: int) -> Floats:
    """One record's outputs, centred and of length one; raises if they are not so many finite numbers."""
    flat = answer.astype(np.float32, order="C").reshape(-1)
    if flat.shape != (width,):
        raise ValueError("another width than declared")
    centred = flat - flat.mean()
    made: Floats = centred / np.maximum(np.linalg.norm(centred), np.float32(_TINY))
    if not np.isfinite(made).all():
        raise ValueError("not finite")
    return made


def _of_all_scales(shape: tuple[int, ...]) -> list[Floats]:
    """Batches of normal numbers, others like them, zeros, parts of one, bytes, and huge ones: a module may ask which
    of these it was given, of the whole batch."""
    rng = np.random.default_rng(0)
    normal, other = rng.normal(size=(2, *shape))
    part, byte = rng.random(shape), rng.integers(0, 256, shape)
    return [np.asarray(one, np.float32) for one in (normal, other, np.zeros(shape), part, byte, 1e30 * np.ones(shape))]


def same_everywhere(forward: Callable[[Floats], AnyArray], shape: tuple[int, ...]) -> bool:
    """Whether random records of several scales have the same bits at every place of a batch and in other company."""
    some, *kinds = _of_all_scales(shape)
    companies = (*kinds, np.full_like(some, np.nan))
    few = sorted({1, shape[0] // 2, shape[0] - 1} - {0})
    try:
        first = forward(some.copy())
        turned = [np.roll(forward(np.roll(some, turn, axis=0)), -turn, axis=0) for turn in range(1, shape[0])]
        cuts = [(cut, others) for cut in range(1, shape[0]) for others in companies]
        mixed = [forward(np.concatenate([some[:cut], others[cut:]]))[:cut] for cut, others in cuts]
        for own in kinds:
            alone = forward(own.copy())
            for cut, others in ((cut, others) for cut in few for others in (some, *companies)):
                if forward(np.concatenate([own[:cut], others[cut:]]))[:cut].tobytes() != alone[:cut].tobytes():
                    return False
    except Exception:  # on public records: then each alone, which says what is wrong
        return False
    same = all(one.tobytes() == first.tobytes() for one in turned)
    return same and all(one.tobytes() == first[: len(one)].tobytes() for one in mixed)


def module_hash(module: Any) -> str:
    """The sha256 of a torch module's parameters and buffers, by name, with their types and shapes."""
    state = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        array = np.ascontiguousarray(value.detach().cpu().numpy())
        state.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        state.update(array.tobytes())
    return state.hexdigest()
