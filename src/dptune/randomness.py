"""One randomness for everything: each draw of a run is a function of one 32-byte secret and a label.

The secret comes from the operating system and is expanded by keyed BLAKE2b, so that a run that was cut off can be
continued without drawing anything again (``docs/sealed_runs.md``). The secret must never be printed, logged or
released: together with a released model it would remove the noise.
"""

from __future__ import annotations

import hashlib
import math
import random
import secrets
import sys

import numpy as np

from dptune._validate import integer
from dptune.errors import InvalidInput

__all__ = ["SEED_BYTES", "Label", "Randomness", "Rng", "as_randomness", "is_generator"]

Label = str | int

SEED_BYTES = 32
_BLOCK = 64
_PERSON = b"dptune sealed"
_REHEARSAL = b"dptune rehearsal: anyone can guess this seed"
_UNIFORM_BITS = 128


def _encode(label: tuple[Label, ...]) -> bytes:
    """An injective encoding: type, length and text of every part."""
    parts = []
    for part in label:
        if isinstance(part, bool) or not isinstance(part, str | int):
            raise InvalidInput(f"A label of randomness is made of texts and whole numbers; got {part!r}.")
        text = str(part).encode()
        parts.append(b"%s%d:" % (b"s" if isinstance(part, str) else b"i", len(text)) + text)
    return b"".join(parts)


class Randomness:
    """Independent streams, one for each label. Equal secrets and labels give equal values.

    It has no state, so threads may share it, and draws may come in any order.

    Args:
        secret: 32 bytes that nobody else knows. Use :meth:`fresh` for a new secret, and :meth:`rehearsal` in tests.

    Raises:
        InvalidInput: If the secret is not 32 bytes.

    Example:
        >>> from dptune.randomness import Randomness
        >>> randomness = Randomness.rehearsal(7)
        >>> randomness.uniform("ties", 1) == randomness.uniform("ties", 1)
        True
        >>> randomness.child("trial", 3).integer_bits(8, "coin") < 256
        True
        >>> randomness
        Randomness(secret)
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != SEED_BYTES:
            raise InvalidInput(f"A secret of randomness must be {SEED_BYTES} bytes. Use Randomness.fresh().")
        self._secret = secret

    @classmethod
    def fresh(cls) -> Randomness:
        """A new secret from the operating system."""
        return cls(secrets.token_bytes(SEED_BYTES))

    @classmethod
    def rehearsal(cls, seed: int) -> Randomness:
        """A secret that anyone can guess from ``seed``: for rehearsals and tests, never for a guarantee."""
        number = integer("seed", seed, 0, 2**64 - 1)
        return cls(hashlib.blake2b(_REHEARSAL + b"%d" % number, digest_size=SEED_BYTES).digest())

    def __repr__(self) -> str:
        return "Randomness(secret)"

    def secret(self) -> bytes:
        """The secret itself, for the vault and for workers inside the seal; never for anything else."""
        return self._secret

    def _bytes(self, count: int, purpose: bytes, label: tuple[Label, ...]) -> bytes:
        message = purpose + b"/" + _encode(label)
        blocks = [
            hashlib.blake2b(block.to_bytes(8, "big") + message, key=self._secret, person=_PERSON).digest()
            for block in range(-(-count // _BLOCK))
        ]
        return b"".join(blocks)[:count]

    def child(self, *label: Label) -> Randomness:
        """Randomness for one purpose, from which nothing about its parent or its siblings follows."""
        return Randomness(self._bytes(SEED_BYTES, b"child", label))

    def integer_bits(self, n: int, *label: Label) -> int:
        """A uniform whole number.

        Args:
            n: Of how many bits, at least 1.
            *label: What it is for.

        Returns:
            A number from 0 to 2^n - 1.
        """
        width = integer("n", n, 1)
        count = -(-width // 8)
        return int.from_bytes(self._bytes(count, b"bits %d" % width, label), "big") >> (8 * count - width)

    def uniform(self, *label: Label) -> float:
        """A uniform in the open interval (0, 1), fine near 0 (128 bits)."""
        value = math.ldexp(self.integer_bits(_UNIFORM_BITS, "uniform", *label) + 0.5, -_UNIFORM_BITS)
        return min(max(value, math.ldexp(0.5, -_UNIFORM_BITS)), math.nextafter(1.0, 0.0))

    def generator(self, *label: Label) -> np.random.Generator:
        """A counter-based generator (Philox 4x64-10) whose key and counter are secret."""
        words = np.frombuffer(self._bytes(48, b"generator", label), dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=words[:2], counter=words[2:6]))


Rng = np.random.Generator | Randomness
"""What a trainer is given to draw from: a generator, or the randomness itself."""


def as_randomness(rng: Rng) -> Randomness:
    """The randomness of one training, drawn from a generator unless it already is one.

    Args:
        rng: A numpy generator, of which 32 bytes are drawn, or a :class:`Randomness`, which is returned as it is.

    Returns:
        Randomness that is addressed by labels.

    Raises:
        InvalidInput: If ``rng`` is neither.

    Example:
        >>> import numpy as np
        >>> from dptune.randomness import Randomness, as_randomness
        >>> own = Randomness.rehearsal(0)
        >>> as_randomness(own) is own
        True
        >>> type(as_randomness(np.random.default_rng(0))).__name__
        'Randomness'
    """
    if isinstance(rng, Randomness):
        return rng
    if isinstance(rng, np.random.Generator):
        return Randomness(rng.bytes(SEED_BYTES))
    raise InvalidInput(f"'rng' must be a numpy Generator or a Randomness; got {type(rng).__name__}.")


def is_generator(value: object) -> bool:
    """Whether a value is a source of draws, whose state tells those that were made: Python's, numpy's, torch's, ours.

    Args:
        value: Anything.

    Returns:
        True for a generator or what it is seeded by; torch is not loaded for the question.

    Example:
        >>> import numpy as np
        >>> from dptune.randomness import is_generator
        >>> is_generator(np.random.default_rng(0)), is_generator(0)
        (True, False)
    """
    torch = sys.modules.get("torch")
    return isinstance(value, _GENERATORS) or (torch is not None and isinstance(value, torch.Generator))


_GENERATORS = (
    Randomness,
    random.Random,
    np.random.RandomState,
    np.random.Generator,
    np.random.BitGenerator,
    np.random.SeedSequence,
)
