"""The generator of an estimator's noise: made for one fit, and forgotten before anybody sees the estimator.

Whoever knows the state of a generator, or the seed it began with, knows the noise that it drew and can subtract it.
A seed of 31 bits, as scikit-learn has it, can even be guessed: every one is tried until the noise fits.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from types import CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from dptune.errors import InvalidInput
from dptune.randomness import is_generator

__all__ = ["forget_generators", "secret_state"]

_WORDS = 8  # of 32 bits: nobody tries them all
_LEAVES = (str, bytes, int, float, complex, type(None), type, ModuleType, CodeType)  # or nobody's own


def secret_state(rng: np.random.Generator) -> np.random.RandomState:
    """A generator in the form that estimators take, begun with 256 bits of the run's own."""
    words = rng.integers(0, 2**32, _WORDS, dtype=np.uint32)
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence([int(word) for word in words])))


def forget_generators(estimator: object) -> None:
    """Remove every generator, and every ``random_state``, from an estimator and from what it holds.

    Members of an ensemble have a ``random_state`` of their own, drawn from the whole one's. Attributes are looked at
    in ``__dict__`` and in ``__slots__``; what else an object holds (members of containers, closures and defaults of
    functions, whatever the garbage collector finds) is followed, and a generator there is refused.

    Args:
        estimator: a fitted one; it is changed.

    Raises:
        InvalidInput: a generator is where it cannot be removed.
    """
    seen: set[int] = set()
    waiting: list[Any] = [estimator]
    kept: list[Any] = []  # parts that are made on the way must not be freed: their places would be taken for seen
    while waiting:
        holder = waiting.pop()
        if id(holder) in seen or isinstance(holder, _LEAVES):
            continue
        seen.add(id(holder))
        kept.append(holder)
        for name, value in _attributes(holder):
            if is_generator(value) or name in ("random_state", "random_state_"):
                _remove(estimator, holder, name)
        parts = list(_parts(holder))
        if any(is_generator(part) for part in parts):
            raise _refused(estimator, holder)
        waiting.extend(parts)


def _refused(estimator: object, holder: object) -> InvalidInput:
    return InvalidInput(
        f"{type(estimator).__name__} keeps the generator of its noise inside of a {type(holder).__name__}, "
        "and would be released with it; let its 'fit' keep none."
    )


def _remove(estimator: object, holder: Any, name: str) -> None:
    try:
        object.__setattr__(holder, name, None)
    except (AttributeError, TypeError):
        raise _refused(estimator, holder) from None


def _attributes(holder: Any) -> list[tuple[str, Any]]:
    """The attributes of an object of Python's own kind, in its dictionary and in its slots."""
    found = list(getattr(holder, "__dict__", {}).items())
    for kind in type(holder).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, MemberDescriptorType) and kind.__module__ != "builtins":
                with contextlib.suppress(AttributeError):  # an empty one
                    found.append((name, slot.__get__(holder)))
    return [(name, value) for name, value in found if isinstance(name, str)]


def _parts(holder: Any) -> Iterator[Any]:
    """What an object holds, however it does. A function's globals and an object's class are not its own."""
    if isinstance(holder, FunctionType):
        yield from (holder.__defaults__, holder.__kwdefaults__, holder.__dict__, *(holder.__closure__ or ()))
    elif isinstance(holder, np.ndarray) and holder.dtype.hasobject:
        yield from holder.ravel().tolist()
    else:
        yield from gc.get_referents(holder)
