"""NTNV and NTCV on digits: the canary is seen, the account is not exceeded, any plan can be played, games go on."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.accounting import DpSgd, Geometric, PureDp
from dptune.audit import Game
from dptune.audit._finished_games import FinishedGames
from dptune.audit._inline import Runner, StackedSession, released
from dptune.audit.canaries import CanaryMargin, Controlled, canary_for, with_record
from dptune.audit.training_games import play_training, tuning_game, workshop
from dptune.audit.tuning_games import TuningGame, play_tuning
from dptune.errors import InvalidInput
from dptune.executors import Processes
from dptune.methods import Adaptive, NoisyBest, PrivateValidation, RandomStopping, Subset, Threshold, Vote
from dptune.methods.budget import Budget
from dptune.methods.plan import Plan
from dptune.randomness import Randomness
from dptune.sealed import run
from dptune.spaces import Float, Space
from dptune.training import Dataset, DpSgdTrainer, Mlp, Settings, TrainedModel, softmax, trainer

SEEDED = Randomness.rehearsal(3)
# The noise stands in the candidates, so that plans need no calibration.
RATES = Space.of([{"learning_rate": rate, "noise_multiplier": 1.0} for rate in (0.5, 2.0)])
BUDGET = Budget(20.0, 1e-5)


def _game(name: str, games: int, base: DpSgd) -> Game:
    return Game(name, base, Geometric(2), 1e-5, games)


@pytest.mark.parametrize("name", ["ntnv", "ntcv"])
def test_the_canary_is_seen_but_the_account_holds(name: str) -> None:
    # Little noise: the attacker must succeed. A bound above the account would have probability below 0.05; seeded.
    game = _game(name, 200, DpSgd(0.5, 0.6, 4))
    found = play_training(game, workers=1, randomness=SEEDED)
    assert 0.5 < found.bound.low < found.upper
    assert found.upper == pytest.approx(game.upper(), rel=1e-9)
    assert found.base_epsilon == pytest.approx(game.base_epsilon(), rel=1e-9)
    assert found.bound.counts.games == 100  # half of them choose the threshold


def _trainer(**others: Any) -> DpSgdTrainer:
    shop = workshop("digits")
    settings = Settings(
        sampling_rate=0.3, noise_multiplier=1.0, steps=4, clip_norm=1.0, learning_rate=1.0, batch_size=90.0
    )
    return DpSgdTrainer(**{"model": softmax(64, 10), "settings": settings, "validation": shop.validation, **others})


METHODS: dict[str, Any] = {
    "random stopping": RandomStopping(RATES, Geometric(2)),
    "adaptive": Adaptive(RATES, Geometric(2), density=(0.75, 2.0)),
    "subset": Subset(RandomStopping(RATES, Geometric(2)), 0.3),
    "subset, warm": Subset(RandomStopping(RATES, Geometric(2)), 0.3, final="all", warm_start=True),
    "noisy best": NoisyBest(RATES, 3, share=0.3),
    "threshold": Threshold(RATES, 3),
    "vote": Vote(RATES, 1, clients=4, share=0.3),
    "private validation": RandomStopping(RATES, Geometric(2), validation=PrivateValidation(0.2, 60)),
}


@functools.cache
def _plan(method: str) -> Plan:
    plan: Plan = METHODS[method].plan(BUDGET, _trainer())
    return plan


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["ntnv", "ntcv"])
def test_any_method_can_be_attacked(method: str, name: str) -> None:
    shop, fitter = workshop("digits"), _trainer()
    plan = _plan(method)
    if name == "ntcv" and method == "private validation":
        with pytest.raises(InvalidInput, match="private records"):
            TuningGame(name, plan, fitter, shop.worlds, CanaryMargin(shop.canary), 20, data_is="public")
        return
    game = TuningGame(name, plan, fitter, shop.worlds, CanaryMargin(shop.canary), 20, data_is="public")
    found = play_tuning(game, workers=1, randomness=SEEDED)
    assert found.bound.low <= found.upper <= BUDGET.epsilon
    assert found.base_epsilon == pytest.approx(DpSgd(0.3, 1.0, 4).epsilon(1e-5), rel=1e-9)
    level, power, _ = found.curve or (np.ones(1), np.ones(1), True)
    assert 0.0 < level[-1] == power[-1] == 1.0  # every game was played and none fell out


class Leaky:
    """Claims pure 0.1 and releases the number of records, with a little noise."""

    def cost(self, params: Mapping[str, Any]) -> PureDp:
        return PureDp(0.1)

    def fit(self, params: Mapping[str, Any], data: Any, rng: np.random.Generator) -> tuple[float, float]:
        count = len(data) + rng.normal(0.0, 0.05)
        return count, -abs(count)


def test_a_trainer_that_lies_is_found_out_by_its_release() -> None:
    """Any trainer, any data, the attacker's own statistic; here and in two processes."""
    plan = RandomStopping(Space(x=Float(0.0, 1.0)), Geometric(2)).plan(Budget(1.0, 1e-5), Leaky())
    worlds = (np.zeros(5), np.zeros(6))
    for name, workers in (("ntnv", 1), ("ntcv", 2)):
        game = TuningGame(name, plan, Leaky(), worlds, lambda params, model: float(model), 60, data_is="synthetic")
        assert play_tuning(game, workers=workers, randomness=SEEDED).broken


def test_a_function_can_be_the_trainer_and_a_network_the_model() -> None:
    shop = workshop("digits")
    inner = _trainer(model=Mlp(64, 10, (8,)))
    plain = trainer(cost=inner.cost)(inner.fit)
    plan = RandomStopping(RATES, Geometric(2)).plan(BUDGET, plain)
    game = TuningGame("ntcv", plan, plain, shop.worlds, CanaryMargin(shop.canary), 20, data_is="public")
    assert play_tuning(game, workers=1, randomness=SEEDED).bound.low <= plan.price()


def test_a_game_is_what_a_sealed_run_would_do(tmp_path: Path) -> None:
    """The same secret in a rehearsal with folders and a worker process: same parameters, same model."""
    shop, fitter = workshop("digits"), _trainer()
    plan = _plan("subset")
    real = run(plan, fitter, shop.worlds[1], out=tmp_path / "run", seed=3, data_is="public", executor=Processes(1))
    params, model = released(*Runner().run(plan, fitter, shop.worlds[1], Randomness.rehearsal(3))[:2])
    assert params == real.params
    assert (model.parameters == real.model.parameters).all()


def test_stacked_games_are_those_of_single_trainings() -> None:
    game = tuning_game(_game("ntcv", 50, DpSgd(0.3, 0.8, 5)))
    for fitter in (game.trainer, Controlled(game.trainer, game.attacker)):
        for number in range(10):
            source = SEEDED.child("game", number)
            seen = []
            for runner in (Runner(), Runner(StackedSession)):
                chosen, vault, _ = runner.run(game.plan, fitter, game.worlds[1], source)
                seen.append((chosen.winner, len(vault.scores), game.attacker(*released(chosen, vault))))
            assert seen[0][:2] == seen[1][:2]
            assert seen[0][2] == pytest.approx(seen[1][2], rel=1e-3, abs=1e-3)


def test_the_margin_is_the_projection_on_the_first_gradient() -> None:
    shop = workshop("digits")
    source = np.random.default_rng(1)
    flat = source.normal(size=650).astype(np.float32)
    seen = CanaryMargin(shop.canary)({"learning_rate": 2.0, "batch_size": 30.0}, TrainedModel(softmax(64, 10), flat))
    x, label = np.append(shop.canary.x[0], 1.0), int(shop.canary.y[0])
    gradient = np.outer(np.eye(10)[label] - 0.1, x)  # minus the gradient at equal outputs
    weights = np.concatenate([flat[:640].reshape(10, 64), flat[640:, None]], axis=1)
    transposed = np.concatenate([flat[:640].reshape(64, 10).T, flat[640:, None]], axis=1)
    wanted = [float((gradient * w).sum()) / 0.9 * 30.0 / 2.0 for w in (weights, transposed)]
    assert any(seen == pytest.approx(value, rel=1e-4) for value in wanted)
    assert CanaryMargin(shop.canary)({}, None) == -math.inf


def test_the_canary_stands_alone() -> None:
    shop = workshop("digits")
    place = int(np.argmax(shop.canary.x[0]))
    assert len(shop.worlds[1]) == len(shop.worlds[0]) + 1
    assert not shop.without.x[:, place].any()
    full = Dataset(np.array([[1.0, 2.0], [3.0, 1.0]]), np.array([0, 1]), 2)
    wrong = canary_for(full)
    assert (wrong.x[0].tolist(), int(wrong.y[0])) == ([3.0, 1.0], 0)
    assert len(with_record(full, wrong)) == 3


def test_an_interrupted_audit_goes_on(tmp_path: Path) -> None:
    game, path = _game("ntcv", 40, DpSgd(0.5, 0.6, 2)), tmp_path / "games.jsonl"
    whole = play_training(game, state=path, workers=1)
    lines = path.read_text().splitlines()
    assert len(lines) == 1 + 2 * 4
    path.write_text("\n".join([*lines[:5], lines[5][:40]]))  # killed while writing the fifth chunk
    again = play_training(game, state=path, workers=2)
    assert again.bound == whole.bound
    assert sorted(path.read_text().splitlines()[1:]) == sorted(lines[1:])
    unopened = play_training(game, state=path, workers=1)  # nothing left to play
    assert unopened.bound == whole.bound


def test_a_file_of_another_game_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "games.jsonl"
    first, second = (tuning_game(_game(name, 50, DpSgd(0.5, 0.6, 2))) for name in ("ntcv", "ntnv"))
    FinishedGames(path, first.describe())
    with pytest.raises(InvalidInput, match="another game"):
        FinishedGames(path, second.describe())
    path.write_text("nothing")
    with pytest.raises(InvalidInput, match="is not the state of an audit"):
        FinishedGames(path, first.describe())


def test_too_few_games_and_unknown_data() -> None:
    with pytest.raises(InvalidInput, match="at least"):
        play_training(_game("ntnv", 4, DpSgd(0.5, 0.6, 2)))
    with pytest.raises(InvalidInput, match="'data'"):
        workshop("faces")


def test_records_that_are_not_marked_are_not_played_with() -> None:
    """A game looks at thousands of unpaid runs."""
    shop = workshop("digits")
    with pytest.raises(InvalidInput, match="charge nothing"):
        TuningGame("ntnv", _plan("subset"), _trainer(), shop.worlds, CanaryMargin(shop.canary), 20)
