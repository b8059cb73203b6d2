"""NTNV and NTCV as ``dptune audit`` plays them: random stopping over learning rates of DP-SGD on a few hundred records.

The base mechanism and the law of runs are the game's; the model is softmax regression, the records come from a public
data set, and the canary lights a pixel that is always dark. :mod:`dptune.audit.tuning_games` plays any other plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dptune.accounting import DpSgd
from dptune.audit.auditor import Audit
from dptune.audit.canaries import CanaryMargin, canary_for, with_record
from dptune.audit.games import TRAINED, Game
from dptune.audit.tuning_games import TuningGame, play_tuning
from dptune.errors import InvalidInput
from dptune.methods import RandomStopping
from dptune.methods.budget import Budget
from dptune.randomness import Randomness
from dptune.spaces import Space
from dptune.training import Dataset, DpSgdTrainer, Settings, load, softmax

__all__ = ["Workshop", "play_training", "tuning_game", "workshop"]

_RECORDS, _VALIDATION = 300, 200
_RATES = (0.5, 1.0, 2.0)  # the learning rates that are tuned
_DATA = ("digits", "mnist")


@dataclass(frozen=True, eq=False)
class Workshop:
    """Everything a training needs: records without the canary, the canary, public validation records."""

    without: Dataset
    canary: Dataset
    validation: Dataset

    @property
    def worlds(self) -> tuple[Dataset, Dataset]:
        """World 0 and world 1."""
        return self.without, with_record(self.without, self.canary)


def workshop(data: str) -> Workshop:
    """A few hundred records of a public data set and a canary in a pixel that is dark in all of them."""
    if data not in _DATA:
        raise InvalidInput(f"'data' must be one of {', '.join(_DATA)}; got {data!r}.")
    split = load(data)
    train, test = split.train.take(np.arange(_RECORDS)), split.test.take(np.arange(_VALIDATION))
    return Workshop(train, canary_for(train), test)


def tuning_game(game: Game, data: str = "digits") -> TuningGame:
    """The game against random stopping whose every training is exactly the base mechanism."""
    if game.name not in TRAINED:
        raise InvalidInput(f"'game' must be one of {', '.join(TRAINED)} here; got {game.name!r}.")
    base = game.base
    if not isinstance(base, DpSgd):
        raise InvalidInput(f"{game.name} trains models by DP-SGD; write the base as dpsgd:RATE,NOISE,STEPS.")
    shop = workshop(data)
    settings = Settings(
        sampling_rate=base.sampling_rate,
        noise_multiplier=base.noise_multiplier,
        steps=base.steps,
        clip_norm=1.0,
        learning_rate=1.0,
        batch_size=max(1.0, base.sampling_rate * _RECORDS),
    )
    model = softmax(shop.without.x.shape[1], shop.without.classes)
    trainer = DpSgdTrainer(model, settings, validation=shop.validation)
    # The noise stands in every candidate, so that the plan takes it as it is and calibrates nothing.
    candidates = [{"learning_rate": rate, "noise_multiplier": base.noise_multiplier} for rate in _RATES]
    budget = Budget(game.upper() * 1.001 + 1e-6, game.delta)
    plan = RandomStopping(Space.of(candidates), game.runs).plan(budget, trainer)
    attacker = CanaryMargin(shop.canary)
    return TuningGame(game.name, plan, trainer, shop.worlds, attacker, game.games, game.confidence, "public")


def play_training(
    game: Game,
    data: str = "digits",
    state: Path | None = None,
    *,
    progress: bool = False,
    workers: int | None = None,
    randomness: Randomness | None = None,
) -> Audit:
    """Play NTNV or NTCV; see :func:`dptune.audit.tuning_games.play_tuning`."""
    return play_tuning(tuning_game(game, data), state, progress=progress, workers=workers, randomness=randomness)
