"""Settings that a job leaves out: every method can be made for a table, whose space has one parameter."""

from __future__ import annotations

import pytest

import dptune as dpt
from dptune.methods import Vote
from dptune.methods.settings import Surroundings, method_from_settings
from dptune.spaces import Space


@pytest.mark.parametrize(("space", "votes"), [({"lr": 5}, 4), ({"lr": 5, "clip": 5}, 5), ({"lr": 2}, 1)])
def test_votes_that_nobody_set_are_fewer_than_candidates(space: dict[str, int], votes: int) -> None:
    job = Surroundings(Space(**{name: dpt.Float(0.1, 1) for name in space}))
    made = method_from_settings(Vote, {"grid": min(space.values())}, job)
    assert isinstance(made, Vote)
    assert made.votes == votes
    asked = method_from_settings(Vote, {"grid": 5, "votes": 3}, job)
    assert isinstance(asked, Vote)
    assert asked.votes == 3
