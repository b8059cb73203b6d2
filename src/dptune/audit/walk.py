"""A walk over what is supported: one record is put in, and whatever moves is held against what was paid for it.

Most ways around an account need no statistics. A sum moves by more than its clip norm, a count by more than one, a
run fails with the record and not without: all of it shows in one comparison, because the randomness of both worlds is
the same. Every case of the walk is dealt from the registries of layers, engines, rules, records and methods
(``supported``), so that what is newly supported is walked over too. What is random even with the record fixed is for
the games (``implementations``).
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dptune._validate import integer
from dptune.errors import InvalidInput

__all__ = ["SLACK", "Case", "Deck", "Movement", "Unsupported", "Walk", "cases", "walk", "ways"]

SLACK = 1e-6
"""What rounding may add to a movement, as a share of what is paid for."""

Option = TypeVar("Option")


class Unsupported(Exception):
    """The code refuses this case whatever the records, so there is nothing to audit."""


@dataclass(frozen=True)
class Movement:
    """How far one record moved something that leaves, and how far it may, in the same unit."""

    what: str
    moved: float
    allowed: float

    @property
    def caught(self) -> bool:
        """Whether it moved by more than was paid for; a movement that is not a number counts as too far."""
        return not self.moved <= self.allowed * (1.0 + SLACK)

    def __str__(self) -> str:
        return f"{self.what}: moved {self.moved:.6g} of {self.allowed:.6g}"


@dataclass(frozen=True)
class Case:
    """One thing to look at: ``look`` runs the real code in both worlds; the name says what was dealt."""

    way: str
    name: str
    look: Callable[[], Sequence[Movement]]


class Deck:
    """Deals options in shuffled rounds: each comes once before any comes twice, so few draws reach them all."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._left: dict[str, list[Any]] = {}
        self.dealt: dict[str, str] = {}

    def deal(self, suit: str, options: Mapping[str, Option]) -> Option:
        """The next option of a suit, by its name."""
        left = self._left.setdefault(suit, [])
        if not left:
            names = list(options)
            left += [names[i] for i in self.rng.permutation(len(names))]
        name = left.pop()
        self.dealt[suit] = name
        return options[name]

    def describe(self) -> str:
        """What was dealt since the last call, as the name of a case."""
        text = ", ".join(f"{suit} {name}" for suit, name in self.dealt.items())
        self.dealt = {}
        return text


Way = Callable[[Deck], Case]

_TORCH = ("modules", "random modules", "trainer")


def ways() -> dict[str, Way]:
    """Everything that is walked over, in the one place where it is registered."""
    from dptune.audit import (  # noqa: PLC0415 - loads engines
        _walk_clipping,
        _walk_judging,
        _walk_loop,
        _walk_moments,
        _walk_records,
        _walk_scores,
        _walk_sums,
        _walk_units,
    )

    known: dict[str, Way] = {
        "sums": _walk_sums.case,
        "modules": _walk_sums.module_case,
        "random modules": _walk_sums.random_case,
        "loop": _walk_loop.case,
        "trainer": _walk_loop.trainer_case,
        "judging": _walk_judging.case,
        "scores": _walk_scores.case,
        "records": _walk_records.case,
        "units": _walk_units.case,
        "clipping rules": _walk_clipping.case,
        "moments": _walk_moments.case,
    }
    if importlib.util.find_spec("torch") is None:  # an extra: no modules without it
        return {name: way for name, way in known.items() if name not in _TORCH}
    return known


def cases(draws: int, seed: int = 0, only: Sequence[str] | None = None) -> Iterator[Case]:
    """``draws`` cases of every way (or of those named), the same for the same seed."""
    integer("draws", draws, 1)
    known = ways()
    for name in only or ():
        if name not in known:
            raise InvalidInput(f"There is no way called {name!r}. Choose among {', '.join(known)}.")
    for number, (name, way) in enumerate(known.items()):
        if only is None or name in only:
            deck = Deck(integer("seed", seed, 0) * 1000 + number)
            for _ in range(draws):
                yield way(deck)


@dataclass
class Walk:
    """What a walk found. ``counts`` are the cases by way, ``refused`` those that the code does not support."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    widest: dict[str, float] = field(default_factory=dict)
    findings: list[tuple[Case, Movement]] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        """Whether something moved by more than was paid for."""
        return bool(self.findings)

    def add(self, case: Case) -> None:
        """Look at one case."""
        self.counts[case.way] += 1
        try:
            seen = case.look()
        except Unsupported:
            self.refused[case.way] += 1
            return
        for one in seen:
            share = one.moved / one.allowed if one.allowed else float(one.moved > 0)
            self.widest[case.way] = max(self.widest.get(case.way, 0.0), share)
            if one.caught:
                self.findings.append((case, one))

    def describe(self) -> dict[str, Any]:
        """What the walk found as plain JSON values."""
        return {
            "cases": dict(self.counts),
            "refused": dict(self.refused),
            "widest": self.widest,
            "broken": self.broken,
            "findings": [
                {"way": case.way, "case": case.name, "what": one.what, "moved": one.moved, "allowed": one.allowed}
                for case, one in self.findings
            ],
        }


def walk(draws: int, seed: int = 0, only: Sequence[str] | None = None) -> Walk:
    """Walk over ``draws`` cases of every way. It is exact: no statistics, and correct code is never accused."""
    found = Walk()
    for case in cases(draws, seed, only):
        found.add(case)
    return found
