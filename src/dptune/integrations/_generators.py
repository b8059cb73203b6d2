"""The generator of an estimator's noise: made for one fit, and forgotten before anybody sees the estimator.

Whoever knows the state of a generator, or the seed it began with, knows the noise that it drew and can subtract it.
A seed of 31 bits, as scikit-learn has it, can even be guessed: every one is tried until the noise fits.
"""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from dptune.errors import InvalidInput

__all__ = ["forget_generators", "secret_state"]

_WORDS = 8  # of 32 bits: nobody tries them all
_KINDS = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator, np.random.SeedSequence)


def secret_state(rng: np.random.Generator) -> np.random.RandomState:
    """A generator in the form that estimators take, begun with 256 bits of the run's own."""
    words = rng.integers(0, 2**32, _WORDS, dtype=np.uint32)
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence([int(word) for word in words])))


def forget_generators(estimator: object) -> None:
    """Remove every generator, and every ``random_state``, from an estimator and from what it holds.

    Members of an ensemble have a ``random_state`` of their own, drawn from the whole one's.

    Args:
        estimator: a fitted one; it is changed.

    Raises:
        InvalidInput: a generator is where it cannot be removed.
    """
    seen: set[int] = set()
    waiting: list[Any] = [estimator]
    while waiting:
        holder = waiting.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        for name, value in list(_named(holder)):
            if isinstance(value, _KINDS) or name in ("random_state", "random_state_"):
                setattr(holder, name, None)
        parts = [value for _, value in _named(holder)] + list(_members(holder))
        if any(isinstance(part, _KINDS) for part in parts):
            raise InvalidInput(
                f"{type(estimator).__name__} keeps the generator of its noise inside of a {type(holder).__name__}, "
                "and would be released with it; let its 'fit' keep none."
            )
        waiting.extend(parts)


def _named(holder: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object of Python's own kind; a generator's are its state."""
    if not isinstance(holder, type):
        yield from getattr(holder, "__dict__", {}).items()


def _members(holder: Any) -> Iterator[Any]:
    """What a collection holds."""
    if isinstance(holder, dict):
        yield from [*holder, *holder.values()]
    elif isinstance(holder, list | tuple | set | frozenset | deque):
        yield from holder
    elif isinstance(holder, functools.partial):
        yield from (holder.func, *holder.args, *holder.keywords.values())
    elif callable(holder) and not isinstance(holder, type):
        yield getattr(holder, "__self__", None)  # a method of a generator is the generator
    elif isinstance(holder, np.ndarray) and holder.dtype.hasobject:
        yield from holder.ravel().tolist()
