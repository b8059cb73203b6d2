"""Rate and steps by expected accuracy: against the accountant, against a plain search, and at the edges."""

from __future__ import annotations

import math

import pytest

from dptune.accounting import DpSgd
from dptune.accounting.calibrate import calibrate_noise
from dptune.errors import InvalidInput
from dptune.methods import Budget
from dptune.planner import choose, default_space, default_trainer
from dptune.planner.expected import scarcity
from dptune.planner.forecast import HUNGER
from dptune.planner.kinds import KINDS, lost_to_steps
from dptune.planner.steps import HASTE, best_pace, pace_loss
from dptune.spaces import Choice, Float, Space
from dptune.training import DpSgdTrainer, Mlp, Settings, Whitening


def _noise(rate: float, steps: int, epsilon: float) -> float:
    """Noise per record."""
    return calibrate_noise(lambda level: DpSgd(rate, level, steps), epsilon, 1e-5) / rate / math.sqrt(steps)


def _lost(rate: float, steps: int, records: int, epsilon: float) -> float:
    """The model in its own words: noise per record against the noise of very many steps, and haste."""
    noise = [_noise(rate, steps, epsilon), _noise(0.5, 20_000, epsilon)]
    return HUNGER * scarcity(records, epsilon) * math.log(noise[0] / noise[1]) + HASTE / steps


@pytest.mark.parametrize(("rate", "steps", "epsilon"), [(0.05, 100, 1.0), (0.1, 400, 3.0), (0.2, 800, 8.0)])
def test_the_loss_is_noise_and_haste(rate: float, steps: int, epsilon: float) -> None:
    assert pace_loss(rate, steps, 25_000, epsilon) == pytest.approx(_lost(rate, steps, 25_000, epsilon), abs=1e-4)
    assert pace_loss(rate, steps, 25_000, epsilon, stakes=4.0) == pytest.approx(
        4 * pace_loss(rate, steps, 25_000, epsilon)
    )


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 3.0, 20.0])
@pytest.mark.parametrize(("features", "records", "stakes"), [(976, 60_000, 1.0), (100, 700, 1.0), (7776, 50_000, 4.0)])
def test_no_pace_that_was_passed_over_is_better(features: int, records: int, stakes: float, epsilon: float) -> None:
    """What prunes the search is only hoped to bound it: every pace of the grid is computed here."""
    least = min(0.25, 256 / records)
    worth = {}
    for rate in {max(one, least) for one in (0.02, 0.05, 0.1, 0.2)}:
        for steps in (100, 150, 200, 300, 400, 600, 800):
            read = features * records * rate * steps
            if read <= 2e10:
                worth[rate, steps] = 2e-4 * read / 1e9 + pace_loss(rate, steps, records, epsilon, stakes=stakes)
    best = best_pace(features, records, epsilon, work=2e10, stakes=stakes)
    assert worth[best.rate, best.steps] == min(worth.values())
    assert best.lost == pace_loss(best.rate, best.steps, records, epsilon, stakes=stakes)


def test_odd_totals_are_planned_and_bad_figures_refused() -> None:
    assert best_pace(10, 1000, 1e-6, work=1e9).steps >= 100  # no noise is enough: planning says so, not this
    assert best_pace(10, 1000, 1e4, work=1e9).steps == 800
    for bad in ((0, 1000, 1.0), (10, 3, 1.0), (10, 1000, 0.0), (10, 1000, math.nan)):
        with pytest.raises(InvalidInput):
            best_pace(*bad, work=1e9)


def test_tables_know_the_total() -> None:
    plain, known = default_trainer(108, 2, 32_000), default_trainer(108, 2, 32_000, epsilon=3.0)
    assert (plain.settings.batch_size, plain.settings.steps, plain.settings.learning_rate) == (1000.0, 300, 0.02)
    assert known.settings.sampling_rate * known.settings.steps > plain.settings.sampling_rate * plain.settings.steps
    assert known.settings.learning_rate * known.settings.steps == pytest.approx(30.0)
    assert known.whitening == Whitening(0.1, centred=True)
    assert plain.whitening is None
    ((_, rates),) = KINDS["table"].space(108, 32_000, epsilon=3.0).dimensions
    assert rates.around == known.settings.learning_rate  # type: ignore[union-attr]
    ((_, rates),) = default_space(known.settings.steps).dimensions
    assert rates.low * known.settings.steps == pytest.approx(3.0)  # type: ignore[union-attr]


@pytest.mark.parametrize(("features", "records", "epsilon"), [(1024, 5000, 1.0), (500, 100_000, 1.0), (20, 2**25, 1.0)])
def test_tables_that_cannot_be_levelled_in_time_are_trained_on_as_they_are(
    features: int, records: int, epsilon: float
) -> None:
    made = default_trainer(features, 2, records, epsilon=epsilon)
    assert made.whitening is None
    assert made.settings.learning_rate * made.settings.steps == pytest.approx(6.0)
    space = KINDS["table"].space(features, records, epsilon=epsilon)
    assert space == default_space(made.settings.steps)


def test_steps_of_no_number_are_refused() -> None:
    with pytest.raises(InvalidInput, match="'steps'"):
        default_space(0)


def test_the_explanation_tells_steps_and_what_they_lose() -> None:
    image = KINDS["image"]
    trainer, space = image.trainer(976, 10, 60_000, epsilon=1), image.space(976, 60_000, epsilon=1)
    said = choose(trainer, space, Budget(1, 1e-5), records=60_000).explanation
    own = trainer.settings
    assert f"{own.steps} steps, each with a share of {own.sampling_rate:g} of its records" in said
    assert f"boundless steps would gain about {lost_to_steps(trainer, 1.0):.4f}" in said


def test_where_steps_are_tuned_none_are_named() -> None:
    trainer = KINDS["text"].trainer(10, 2, 20_000, epsilon=1)
    tried = Space(learning_rate=Float(0.1, 10, log=True), steps=Choice(100, 400))
    said = choose(trainer, tried, Budget(1, 1e-5), records=20_000).explanation
    assert said.startswith("Chosen: ")
    assert "steps" not in said


def test_the_model_does_not_speak_of_networks() -> None:
    settings = Settings.from_batch(60, 600, noise_multiplier=1.0, steps=50, clip_norm=1.0, learning_rate=1.0)
    assert lost_to_steps(DpSgdTrainer(Mlp(4, 2, (8,)), settings), 1.0) is None
    assert lost_to_steps(object(), 1.0) is None
