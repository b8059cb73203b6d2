"""A game against one step of DP-SGD: the attacker knows everything but whether the record is there, and the noise.

Start, others and record are his, and what the engine sums up without noise; so he knows where the two sums are, and
looks along the line between them at the model that a trainer releases. The module has dropout in it unless told
otherwise: layers that draw are where sums have moved most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune.accounting import DpSgd
from dptune.audit.implementations import Target
from dptune.audit.supported import POSITIONS, Company, Worlds, worlds
from dptune.randomness import Randomness
from dptune.training import DpSgdTrainer, Settings
from dptune.training.dpsgd import descend
from dptune.training.engines import engine_for

__all__ = ["one_step"]


_NOISE, _RATE, _OTHERS = 4.0, 0.01, 200


def _dropout(params: Any) -> Any:
    """A small module with dropout; its first weights are public, a function of nothing."""
    import torch  # noqa: PLC0415 - optional dependency

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layers = torch.nn.Linear(32, 24), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(24, 3)
    return torch.nn.Sequential(*layers)


def _settings() -> Settings:
    return Settings(
        sampling_rate=1.0, noise_multiplier=_NOISE, steps=1, clip_norm=1.0, learning_rate=_RATE, batch_size=1.0
    )


def _flat(model: Any) -> Array:
    """The parameters of a module as one vector."""
    return np.concatenate([p.detach().numpy().reshape(-1) for p in model.parameters()]).astype(np.float64)


def _noiseless(model: Any, given: Worlds) -> tuple[Array, Sequence[Array]]:
    """The public start, and what one step subtracts from it in both worlds without noise."""
    settings, key = dataclasses.replace(_settings(), noise_multiplier=0.0), Randomness.rehearsal(0)
    engine = engine_for(model({}))
    start = np.asarray(engine.start(key), dtype=np.float64)
    after = [descend(engine_for(model({})), data, [settings], [key])[0] for data in (given.without, given.having)]
    return start, [(start - one) / _RATE for one in after]


def one_step(model: Callable[[Any], Any] = _dropout, position: str = "front", seed: int = 0) -> Target:
    """One step on all records; ``model`` makes a module whose weights are always the same."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0.0, 30.0, (_OTHERS + 1, 32))  # steep: every gradient is clipped, and a mask turns it
    company = Company(rows[1:], rng.integers(0, 3, _OTHERS), rows[0], 0)
    given = worlds(company, 3, POSITIONS[position](_OTHERS))
    start, (low, high) = _noiseless(model, given)
    apart = float(np.linalg.norm(high - low))
    direction = (high - low) / max(apart, 1e-300)
    trainer = DpSgdTrainer(model, _settings())

    def draw(world: int, games: int, seed: int) -> Array:
        data, key = (given.without, given.having)[world], Randomness.rehearsal(seed)
        fitted = (trainer.fit({}, data, key.child("game", game)).model for game in range(games))
        return np.array([((start - _flat(one)) / _RATE - low) @ direction for one in fitted])

    middle = apart / 2.0
    return Target("one step", DpSgd(1.0, _NOISE, 1), draw, (middle - _NOISE, middle, middle + _NOISE))
