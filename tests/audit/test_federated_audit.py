"""The federation under audit: ballots and whole votes hide one client's choice as their account says; less noise shows.

The noise is the operating system's, so these tests have no seed: correct code is accused once in a million times.
"""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography")

from dptune.audit.implementations import check
from dptune.audit.targets.federated import ballots, federated_vote
from dptune.federated import votes
from dptune.federated.noise import discrete_gaussian


def test_a_ballot_hides_its_choice() -> None:
    found = check(ballots(), 2000)
    assert not found.caught, str(found)


def test_a_vote_hides_one_client_from_a_curious_one() -> None:
    found = check(federated_vote(), 150)
    assert not found.caught, str(found)


@pytest.mark.slow
def test_a_hundred_votes_audits_accuse_nobody() -> None:
    """Correct code fails this test with probability at most one in ten thousand."""
    assert not [str(found) for _ in range(100) if (found := check(ballots(), 200)).caught]
    found = check(federated_vote(), 1000)
    assert not found.caught, str(found)


def _halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(votes, "discrete_gaussian", lambda sigma, size: discrete_gaussian(sigma / 2.0, size))


# Unseeded too: by the normal approximation the mutations escape with probability below one in a million.


def test_halved_noise_of_ballots_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = ballots()
    _halved(monkeypatch)
    found = check(claimed, 2000)
    assert found.caught, str(found)


@pytest.mark.slow
def test_halved_noise_of_votes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = federated_vote()
    _halved(monkeypatch)
    found = check(claimed, 2200)
    assert found.caught, str(found)
