"""Whole votes in one process: the right candidate, the exact account, every kind of dropout and bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dptune.accounting.voting import RingVote
from dptune.errors import InvalidInput
from dptune.federated.errors import Aborted
from dptune.federated.messages import Stage
from dptune.federated.simulate import federate, parse_drops, simulated_losses
from dptune.federated.vote_plan import VotePlan

NAMES = [{"candidate": j} for j in range(20)]


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize("roster", [False, True])
def test_a_clear_winner_is_chosen(stage: Stage, roster: bool) -> None:
    # Candidate 7 is best on every client: 40 votes against noise of deviation 2 at epsilon 3, which hides them less
    # than once in 1e40 runs.
    losses = np.ones((50, 20))
    losses[:, 7] = 0.0
    result = federate(losses, NAMES, votes=1, epsilon=3, drop={stage: 10}, roster=roster)
    assert result.params == {"candidate": 7}
    statement = result.statement
    assert statement.contributed == (50 if stage is Stage.UNMASK else 40)
    assert statement.mode == ("roster" if roster else "open")
    assert statement.epsilon <= statement.stated_epsilon == 3


def test_the_statement_accounts_for_the_noise_that_was_added() -> None:
    losses = simulated_losses(30, 20, seed=1)
    plan = VotePlan.calibrated(NAMES, votes=5, epsilon=1, delta=1e-5, clients=30, dropout=0.2, colluding=2)
    statement = federate(losses, NAMES, dropout=0.2, colluding=2, drop={Stage.MASKED: 3}).statement
    assert statement.epsilon == RingVote(20, 5, plan.scale, plan.sigma, 27 - 2).epsilon(1e-5)


@pytest.mark.parametrize(
    ("n", "votes", "epsilon", "dropout", "colluding"),
    [
        (5, 1, 1.0, 0.2, 1),
        (5, 5, 3.0, 0.0, 1),
        (5, 5, 0.1, 0.2, 2),
        (50, 1, 0.1, 0.2, 1),
        (50, 1, 3.0, 0.2, 1),
        (50, 5, 0.25, 0.0, 1),
        (50, 5, 1.0, 0.3, 10),
        (50, 25, 0.5, 0.2, 2),
        (50, 99, 1.0, 0.2, 1),
        (250, 1, 0.25, 0.2, 1),
        (250, 5, 0.1, 0.2, 1),
        (250, 5, 1.0, 0.2, 1),
        (250, 5, 3.0, 0.2, 1),
        (250, 5, 3.0, 0.45, 25),
        (250, 25, 1.0, 0.1, 50),
    ],
)
def test_the_exact_account_of_honest_survivors_is_within_budget(
    n: int, votes: int, epsilon: float, dropout: float, colluding: int
) -> None:
    names = [{"candidate": j} for j in range(100)]
    plan = VotePlan.calibrated(
        names, votes=votes, epsilon=epsilon, delta=1e-5, clients=n, dropout=dropout, colluding=colluding
    )
    honest = n - math.floor(dropout * n + 1e-9) - colluding
    cost = RingVote(100, votes, plan.scale, plan.sigma, honest)
    assert cost.epsilon(1e-5) <= epsilon
    assert cost.epsilon(1e-5) >= 0.9 * epsilon


def test_one_dropout_too_many_aborts() -> None:
    with pytest.raises(Aborted, match="nothing was unmasked"):
        federate(simulated_losses(20, 20), NAMES, drop={Stage.SHARES: 5})


def test_nan_losses_vote_by_lot_and_last() -> None:
    losses = np.full((60, 20), np.nan)
    losses[:, 3] = 5.0
    assert federate(losses, NAMES, votes=1, epsilon=3).params == {"candidate": 3}


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"votes": 21}, "more candidates than"),
        ({"votes": 20}, "pure noise"),
        ({"votes": 0}, "votes"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"dropout": 1}, "dropout"),
        ({"colluding": 0}, "colluding"),
        ({"colluding": 16}, "no honest client"),
    ],
)
def test_bad_input(values: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        federate(simulated_losses(20, 20), NAMES, **values)


def test_losses_must_fit_the_candidates() -> None:
    with pytest.raises(InvalidInput, match="20 columns"):
        federate(np.ones((5, 19)), NAMES)


def test_drops_are_read_by_number_and_by_name() -> None:
    assert parse_drops(["3@2", "1@masked", "2@2"], 10) == {Stage.SHARES: 5, Stage.MASKED: 1}
    for text in ("3", "x@1", "3@5", "3@late", "-1@1", "@1"):
        with pytest.raises(InvalidInput, match="N@STAGE"):
            parse_drops([text], 10)
    with pytest.raises(InvalidInput, match="there are 10"):
        parse_drops(["11@1"], 10)
