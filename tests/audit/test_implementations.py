"""Audits of our own code, and of six broken versions of it: each mutation is caught, the real code is not accused.

False alarms: every check accuses correct code with probability at most one in a million (Clopper-Pearson and a
union bound).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptune.accounting import Geometric, Poisson
from dptune.audit._inline import InlineSession, Runner
from dptune.audit.implementations import check, fits_law
from dptune.audit.targets import TARGETS
from dptune.audit.targets.methods import vote
from dptune.audit.targets.runner import failures, observed_runs, stopping
from dptune.audit.targets.training import final_model, tiny_engine, watched_iterates
from dptune.executors.base import Result, Task
from dptune.methods import voting
from dptune.methods.exact import Bits
from dptune.methods.plan import Plan
from dptune.methods.trial import Search, Selection
from dptune.randomness import Randomness
from dptune.training import dpsgd
from dptune.training.noise import FastNoise
from dptune.training.numpy_engine import NumpyEngine

LAW = Poisson(5)  # a law with memory


REAL = {"sealed runs", "federated ballot", "federated vote"}  # have tests of their own
INLINE = [name for name in TARGETS if name not in REAL]


@pytest.mark.parametrize("name", INLINE)
def test_the_code_as_it_is_holds(name: str) -> None:
    target = TARGETS[name]
    found = check(target.make(), target.games, seed=1)
    assert not found.caught, str(found)


def test_the_number_of_runs_follows_its_law_through_interruptions() -> None:
    assert fits_law(observed_runs(Runner(), LAW, 1000, seed=2, lives=3), LAW)


@pytest.mark.slow
@pytest.mark.parametrize("name", INLINE)
def test_a_hundred_repetitions_accuse_nobody(name: str) -> None:
    """A hundred checks: correct code fails this test with probability at most one in ten thousand."""
    target, games = TARGETS[name].make(), TARGETS[name].games // 2
    assert not [str(found) for seed in range(100, 200) if (found := check(target, games, seed)).caught]


@pytest.mark.slow
def test_a_hundred_repetitions_of_the_law() -> None:
    assert all(fits_law(observed_runs(Runner(), LAW, 300, seed, lives=3), LAW) for seed in range(100, 200))


# The mutations.


class HalfNoise(FastNoise):
    """Halves the noise."""

    def add(self, total: Any, scale: float, step: int, unit: float = 1.0) -> None:
        super().add(total, scale / 2.0, step, unit)


class SameNoise(FastNoise):
    """Uses the noise of the first step at every step."""

    def add(self, total: Any, scale: float, step: int, unit: float = 1.0) -> None:
        super().add(total, scale, 0, unit)


class Unclipped(NumpyEngine):
    """Forgets to clip the last record."""

    def clipped_sums(self, parameters: Any, batches: Sequence[Any], clips: Any, out: Any) -> None:
        super().clipped_sums(parameters, batches, clips, out)
        only = [batch[batch == 1000] for batch in batches]  # the canary's place, where there is one
        clipped, whole = np.zeros_like(out), np.zeros_like(out)
        super().clipped_sums(parameters, only, clips, clipped)
        super().clipped_sums(parameters, only, np.full_like(clips, 1e9), whole)
        out += whole - clipped


class Retrying(InlineSession):
    """Trains again, with new randomness, until a trial succeeds."""

    def attempt(self, task: Task, randomness: Randomness) -> Result:
        for turn in range(50):
            result = super().attempt(task, randomness.child("turn", turn))
            if result.score > -math.inf:
                break
        return result


def _leaky(plan: Plan, randomness: Randomness) -> Search:
    """Tells the number of runs among the released parameters."""
    search: Any = plan.start(randomness)
    honest = search.result

    def result() -> Selection:
        chosen: Selection = honest()
        return dataclasses.replace(chosen, params={**chosen.params, "runs": len(search._outcomes.scores)})

    search.result = result
    return search  # type: ignore[no-any-return]


def _redrawn(plan: Plan, randomness: Randomness) -> Search:
    """Continues an interrupted run with a number of runs that is drawn anew."""
    return plan.start(randomness.child("again"))


class HalfBits(Bits):
    """Halves the noise of the vote."""

    def discrete_gaussian(self, sigma: Fraction) -> int:
        return super().discrete_gaussian(sigma / 2)


def test_halved_noise_of_a_vote_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voting, "Bits", HalfBits)
    found = check(vote(), 1500, seed=1)
    assert found.caught, str(found)


def test_halved_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpsgd, "FastNoise", HalfNoise)
    found = check(final_model(), 3000, seed=1)
    assert found.caught, str(found)


def test_a_reused_noise_seed_is_caught_by_watching_iterates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpsgd, "FastNoise", SameNoise)
    found = check(watched_iterates(), 500, seed=1)
    assert found.caught, str(found)


def test_a_forgotten_clip_is_caught() -> None:
    found = check(final_model(lambda: Unclipped(tiny_engine().model)), 300, seed=1)
    assert found.caught, str(found)


def test_retried_failures_are_caught() -> None:
    found = check(failures(Runner(session=Retrying)), 1500, seed=1)
    assert found.caught, str(found)


def test_a_leaked_number_of_runs_is_caught() -> None:
    found = check(stopping(Runner(start=_leaky)), 5000, seed=1)
    assert found.caught, str(found)


def test_a_number_of_runs_drawn_again_is_caught() -> None:
    counts = observed_runs(Runner(resume=_redrawn), LAW, 1000, seed=2, lives=3)
    assert not fits_law(counts, LAW)


def test_a_memoryless_law_hides_a_second_draw_on_top_of_the_first() -> None:
    """Why the law must have memory: what was done plus a fresh geometric number is geometric again."""
    source, law, done = np.random.default_rng(4), Geometric(5), 3
    first = np.array([law.sample(source.random) for _ in range(3000)])
    again = np.array([done + law.sample(source.random) for _ in range(3000)])
    assert fits_law(np.where(first > done, again, first).tolist(), law)
    plain = np.array([LAW.sample(source.random) for _ in range(3000)])
    more = np.array([done + LAW.sample(source.random) for _ in range(3000)])
    assert not fits_law(np.where(plain > done, more, plain).tolist(), LAW)
