"""The generator of an estimator's noise: made for one fit, and forgotten before anybody sees the estimator.

Whoever knows the state of a generator, or the seed it began with, knows the noise that it drew and can subtract it.
A seed of 31 bits, as scikit-learn has it, can even be guessed: every one is tried until the noise fits. Ensembles draw
such a seed for each of their members, and keep some of them as plain numbers.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from types import CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from dptune.errors import InvalidInput
from dptune.randomness import is_generator

__all__ = ["SecretState", "forget_generators", "secret_state"]

_WORDS = 8  # of 32 bits: nobody tries them all
_LEAVES = (str, bytes, int, float, complex, type(None), type, ModuleType, CodeType)  # or nobody's own


_NAMES = ("random_state", "random_states", "seed", "seeds", "random_seed", "random_seeds", "rng_seed")
_PLAIN = (int, float, str, bytes, np.generic, np.ndarray, list, tuple, set, frozenset, dict)  # what a seed can be
_WIDE = 2**28  # numbers drawn from fewer are places of records and the like


class SecretState(np.random.RandomState):
    """A generator that remembers which numbers it gave as seeds, so that they can be looked for in what is released.

    Args:
        source: where its bits come from.
        told: the seeds that it gave; copies of it write into the same set.
    """

    def __init__(self, source: np.random.BitGenerator, told: set[int] | None = None) -> None:
        super().__init__(source)
        self.told: set[int] = set() if told is None else told

    def randint(self, low: Any, high: Any = None, *args: Any, **options: Any) -> Any:
        """Draw whole numbers; those from a wide range, which can be seeds, are remembered."""
        drawn = super().randint(low, high, *args, **options)
        ends = (0, low) if high is None else (low, high)
        if int(np.max(ends[1])) - int(np.min(ends[0])) >= _WIDE:
            self.told.update(np.ravel(drawn).tolist())
        return drawn

    def __deepcopy__(self, memo: dict[int, Any]) -> SecretState:
        """As a generator is copied with its estimator: the copy's seeds are remembered too."""
        made = SecretState(np.random.MT19937(0), self.told)
        made.set_state(self.get_state(legacy=False))
        return made


def secret_state(rng: np.random.Generator) -> SecretState:
    """A generator in the form that estimators take, begun with 256 bits of the run's own."""
    words = rng.integers(0, 2**32, _WORDS, dtype=np.uint32)
    return SecretState(np.random.MT19937(np.random.SeedSequence([int(word) for word in words])))


def forget_generators(estimator: object, told: AbstractSet[int] = frozenset()) -> None:
    """Remove every generator, every ``random_state`` and every seed from an estimator and from what it holds.

    Members of an ensemble have a ``random_state`` of their own, drawn from the whole one's. Attributes are looked at
    in ``__dict__`` and in ``__slots__``; what else an object holds (members of containers, closures and defaults of
    functions, whatever the garbage collector finds) is followed, and a generator there is refused. A seed is known by
    its name, as an attribute or a key, or as a number that the secret generator gave.

    Args:
        estimator: a fitted one; it is changed.
        told: the numbers that the secret generator gave as seeds.

    Raises:
        InvalidInput: a generator or a seed is where it cannot be removed.
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
            if is_generator(value) or name in ("random_state", "random_state_") or _is_seed(name, value):
                _remove(estimator, holder, name)
        _forget_pairs(estimator, holder)
        parts = list(_parts(holder))
        if any(is_generator(part) for part in parts):
            raise _refused(estimator, holder)
        if told and any(_repeats(part, told) for part in (holder, *parts)):
            raise _refused(estimator, holder, "a seed")
        waiting.extend(parts)


def _is_seed(name: object, value: object) -> bool:
    """Whether something is a seed by its name; what is no plain value (a function, an estimator) is none."""
    named = isinstance(name, str) and {name.strip("_"), name.rpartition("__")[2].strip("_")} & set(_NAMES)
    return bool(named) and isinstance(value, _PLAIN)


def _forget_pairs(estimator: object, holder: Any) -> None:
    """Clear seeds that are the values of a dictionary, and refuse one in a pair of a name and a value."""
    if isinstance(holder, dict):
        for name in [name for name, value in dict.items(holder) if _is_seed(name, value)]:
            dict.__setitem__(holder, name, None)
    elif isinstance(holder, tuple | list) and len(holder) == 2 and _is_seed(holder[0], holder[1]):
        raise _refused(estimator, holder, "a seed")


def _repeats(part: Any, told: AbstractSet[int]) -> bool:
    """Whether a whole number, or one of an array of them, is one that was given as a seed."""
    if isinstance(part, int | np.integer) and not isinstance(part, bool):
        return int(part) in told
    return isinstance(part, np.ndarray) and part.dtype.kind in "iu" and not told.isdisjoint(np.unique(part).tolist())


def _refused(estimator: object, holder: object, what: str = "the generator") -> InvalidInput:
    return InvalidInput(
        f"{type(estimator).__name__} keeps {what} of its noise inside of a {type(holder).__name__}, "
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
