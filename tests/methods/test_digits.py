"""Every method end to end with real DP-SGD on scikit-learn's digits, without the seal.

The accuracies asserted are far below what was seen and far above a guess (0.1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dptune.accounting import Geometric
from dptune.methods import (
    Adaptive,
    Budget,
    Naive,
    NoisyBest,
    NonPrivateOptimum,
    PrivateValidation,
    RandomGuess,
    RandomStopping,
    Subset,
    Threshold,
    Vote,
)
from dptune.methods.plan import Method
from dptune.planner import choose
from dptune.randomness import Randomness
from dptune.spaces import Choice, Float, Space
from dptune.testing.searches import run_plan
from dptune.training import DpSgdTrainer, Settings, load, softmax

BUDGET = Budget(6.0, 1e-4)
SPACE = Space(lr=Float(0.1, 4, log=True), clip=Choice(0.5, 2.0))
GRID = SPACE.grid(lr=2)
RECORDS = 1438


def _trainer() -> DpSgdTrainer:
    settings = Settings.from_batch(150, RECORDS, noise_multiplier=1.0, steps=60, clip_norm=1.0, learning_rate=1.0)
    return DpSgdTrainer(softmax(64, 10), settings, validation=load("digits").test)


def _unscored() -> DpSgdTrainer:
    """The same training without public validation records: scores must come from the private ones."""
    return replace(_trainer(), validation=None)


METHODS: dict[str, Method] = {
    "random stopping": RandomStopping(SPACE, Geometric(5)),
    "adaptive": Adaptive(GRID, Geometric(3), density=(0.8, 1.5)),
    "subset, rest": Subset(RandomStopping(SPACE, Geometric(5)), 0.3),
    "subset, all, warm": Subset(RandomStopping(SPACE, Geometric(5)), 0.3, final="all", warm_start=True),
    "threshold": Threshold(GRID, 4, share=0.3),
    "threshold, batches": Threshold(GRID, 4, share=0.3, batch=2),
    "noisy best": NoisyBest(GRID, 4, share=0.3),
    "vote": Vote(GRID, 1, 4, share=0.3),
    "naive": Naive(GRID),
    "optimum": NonPrivateOptimum(GRID),
    "guess": RandomGuess(GRID),
}


@pytest.mark.parametrize("name", METHODS)
def test_runs_on_digits(name: str) -> None:
    trainer, split = _trainer(), load("digits")
    plan = METHODS[name].plan(BUDGET, trainer)
    selection, model = run_plan(plan, trainer, split.train, Randomness.rehearsal(1))
    assert model is not None
    assert model.accuracy(split.test) > 0.5
    assert selection.params["noise_multiplier"] == plan.noise_multiplier
    if plan.guaranteed:
        assert plan.price() <= BUDGET.epsilon


@pytest.mark.parametrize(
    "make",
    [
        lambda v: RandomStopping(SPACE, Geometric(5), validation=v),
        lambda v: Subset(RandomStopping(SPACE, Geometric(5), validation=v), 0.4),
        lambda v: NoisyBest(GRID, 4, share=0.3, validation=v),
        lambda v: Vote(GRID, 1, 4, share=0.3, validation=v),
        lambda v: Naive(GRID, validation=v),
    ],
)
def test_runs_with_private_validation(make: Any) -> None:
    trainer, split = _unscored(), load("digits")
    plan = make(PrivateValidation(0.2, 100)).plan(BUDGET, trainer)
    _, model = run_plan(plan, trainer, split.train, Randomness.rehearsal(2))
    assert model is not None
    assert model.accuracy(split.test) > 0.5


def test_the_planner_runs_without_public_records() -> None:
    trainer, split = _unscored(), load("digits")
    advice = choose(trainer, SPACE, BUDGET, records=RECORDS)
    assert "held back" in advice.explanation
    _, model = run_plan(advice.plan, trainer, split.train, Randomness.rehearsal(3))
    assert model is not None
    assert model.accuracy(split.test) > 0.5


def test_denominators_follow_the_part_where_the_rate_is_tuned() -> None:
    trainer = _trainer()
    plan = Subset(RandomStopping(SPACE, Geometric(5)), 0.3).plan(BUDGET, trainer)
    assert plan.tuning.fixed == {"batch_size": pytest.approx(45)}
    assert plan.final.fixed == {"batch_size": pytest.approx(105)}
    assert plan.factors["lr"] == pytest.approx(0.7 / 0.3)
    clips = Subset(RandomStopping(Space(clip=Choice(0.5, 2.0)), Geometric(5)), 0.3).plan(BUDGET, trainer)
    assert clips.tuning.fixed == {}
    assert clips.final.fixed == {}
