"""Real sealed runs under audit: ledger, vault, worker processes, every fourth run cut off and resumed.

Runs draw from the operating system, so these tests have no seed: correct code is accused once in a million times.
"""

from __future__ import annotations

from typing import Any

import pytest

from dptune.accounting import Poisson
from dptune.audit.implementations import check, fits_law
from dptune.audit.targets.sealed import observe, sealed
from dptune.randomness import Randomness
from dptune.sealed import Release, run

pytestmark = pytest.mark.slow  # a run takes about a second


def test_real_runs_hold() -> None:
    found = check(sealed(), 60)
    assert not found.caught, str(found)


def test_the_number_of_trials_of_real_runs_follows_its_law() -> None:
    seen = observe(0, 40, Poisson(2))
    assert fits_law([one.trials for one in seen], Poisson(2))
    assert {one.answer == "default" for one in seen if one.trials == 0} <= {True}
    assert len({one.answer for one in seen}) > 1


SECRET = 4  # one under which the two worlds answer differently


def run_with_one_secret(*arguments: Any, **options: Any) -> Release:
    """A runner whose every run has the same secret, which anyone can guess."""
    Randomness.fresh = classmethod(lambda cls: cls.rehearsal(SECRET))  # type: ignore[method-assign,assignment]
    return run(*arguments, **options)


def test_a_reused_secret_is_caught() -> None:
    found = check(sealed(run_with_one_secret), 50)
    assert found.caught, str(found)
