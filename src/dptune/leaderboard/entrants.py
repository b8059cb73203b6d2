"""Who takes part: each entrant is a plan and a trainer at the same total, run sealed like any other.

An entrant may use the setting's public defaults and nothing else. What it costs is what its plan costs, by the one
accountant of dptune; a rival's own calibration (Papernot and Steinke's) only decides how much noise it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dptune.accounting import Geometric, select
from dptune.accounting.cost import Cost
from dptune.accounting.literature import papernot_steinke
from dptune.errors import InvalidInput
from dptune.leaderboard.setting import Setting
from dptune.methods import Budget, LinearScaling, Naive, NonPrivateOptimum, Plan, RandomGuess, RandomStopping
from dptune.planner import choose, default_space
from dptune.spaces import Float, Space
from dptune.training import Adam, AdamBC, DpSgdTrainer, Quantile
from dptune.training.clipping import Clipping
from dptune.training.free_trainer import FreeTrainer

__all__ = ["ENTRANTS", "Entrant", "entrant"]

_RUNS = Geometric(10)
_SMALL_RUNS, _WIDER = Geometric(5), 4.0
_LISTED = 5  # candidates of naive composition
_UNPAID = 9  # candidates of the yardstick


@dataclass(frozen=True)
class Entrant:
    """One method of the leaderboard.

    Args:
        name: as flags and files have it.
        what: what it does, in one line.
        enter: its plan and its trainer in a setting.
        guaranteed: whether what it releases is private at the total; False for yardsticks.
    """

    name: str
    what: str
    enter: Callable[[Setting], tuple[Plan, Any]]
    guaranteed: bool = True


def _planner(given: Setting) -> tuple[Plan, Any]:
    return _tuned(given, given.trainer, given.space)


def _tuned(given: Setting, trainer: DpSgdTrainer, space: Space) -> tuple[Plan, Any]:
    """What the planner picks for a trainer and a space."""
    return choose(trainer, space, given.budget, records=given.records).plan, trainer


def _fixed(given: Setting, trainer: DpSgdTrainer) -> tuple[Plan, Any]:
    """One training with the trainer's own learning rate."""
    only = Space.of([{"learning_rate": trainer.settings.learning_rate}])
    return RandomGuess(only).plan(given.budget, trainer), trainer


def _default(given: Setting) -> tuple[Plan, Any]:
    return _fixed(given, given.trainer)


def _guess(given: Setting) -> tuple[Plan, Any]:
    return RandomGuess(given.range).plan(given.budget, given.trainer), given.trainer


def _stopping(given: Setting) -> tuple[Plan, Any]:
    method = RandomStopping(given.range, _RUNS, validation=given.validation)
    return method.plan(given.budget, given.trainer), given.trainer


def _papernot_steinke(given: Setting) -> tuple[Plan, Any]:
    """As random stopping, but with the noise that their bound asks for at the total."""
    trainer, delta = given.trainer, given.budget.delta

    def run(noise: float) -> Cost:
        return trainer.cost({"noise_multiplier": noise})

    noise = _least_noise(lambda level: papernot_steinke(run(level), _RUNS, delta), given.budget.epsilon)
    spent = select(run(noise), _RUNS).epsilon(delta)  # what that noise costs by our account: less
    method = RandomStopping(given.range, _RUNS, validation=given.validation)
    return method.plan(Budget(min(spent, given.budget.epsilon), delta), given.trainer), given.trainer


def _least_noise(price: Callable[[float], float], epsilon: float) -> float:
    """The smallest noise whose price is at most epsilon, to a thousandth; prices fall with noise."""
    low, high = 0.1, 0.2
    while price(high) > epsilon:
        low, high = high, 2.0 * high
        if high > 1e6:
            raise InvalidInput(f"No noise brings this within epsilon {epsilon:g}.")
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if price(middle) > epsilon else (low, middle)
    return high


def _naive(given: Setting) -> tuple[Plan, Any]:
    method = Naive(given.range.grid(_LISTED), validation=given.validation)
    return method.plan(given.budget, given.trainer), given.trainer


def _linear(given: Setting) -> tuple[Plan, Any]:
    """Learning rates at small budgets are smaller, so the space is widened downwards by another factor of four."""
    rates = dict(given.range.dimensions)["learning_rate"]
    assert isinstance(rates, Float)
    space = Space(learning_rate=Float(rates.low / _WIDER, rates.high, log=True))
    method = LinearScaling(space, _SMALL_RUNS, validation=given.validation)
    return method.plan(given.budget, given.trainer), given.trainer


def _free(given: Setting) -> tuple[Plan, Any]:
    trainer = FreeTrainer(given.trainer)
    return RandomGuess(Space.of([{"batch_size": given.trainer.settings.batch_size}])).plan(
        given.budget, trainer
    ), trainer


def _unpaid(given: Setting) -> tuple[Plan, Any]:
    """The best of a list on the public half, with one run paid for; it needs public scores."""
    if given.public is None:
        raise InvalidInput("'unpaid' chooses by public records; run the leaderboard with --validation public.")
    return NonPrivateOptimum(given.range.grid(_UNPAID)).plan(given.budget, given.trainer), given.trainer


def _plain(given: Setting) -> tuple[Plan, Any]:
    """What one command did before records were whitened: the learning rates are those for plain records."""
    plain = replace(given, kind=replace(given.kind, whitened=False))
    return _tuned(plain, plain.trainer, plain.space)


def _clipped(given: Setting, rule: Clipping | str, **others: Any) -> DpSgdTrainer:
    """The default trainer with another clipping rule."""
    trainer = given.trainer
    return replace(trainer, settings=replace(trainer.settings, clipping=rule, **others))


def _automatic(given: Setting) -> tuple[Plan, Any]:
    return _tuned(given, _clipped(given, "automatic"), given.space)


def _automatic_fixed(given: Setting) -> tuple[Plan, Any]:
    return _fixed(given, _clipped(given, "automatic"))


def _quantile(given: Setting) -> tuple[Plan, Any]:
    """Its clip norm finds about 1 by itself, so where the defaults clip far below learning rates are smaller."""
    usual, space = given.trainer.settings, given.space
    if "adam" not in type(usual.optimizer).__name__.lower():
        rates = dict(space.dimensions)["learning_rate"]
        assert isinstance(rates, Float)
        space = Space(learning_rate=rates.times(usual.clip_norm))
    middle = float(space.default["learning_rate"])
    return _tuned(given, _clipped(given, Quantile(), clip_norm=1.0, learning_rate=middle), space)


def _adambc(given: Setting) -> tuple[Plan, Any]:
    """Adam's learning rates mean the same whatever the gradients: those of tables as they are, for all other kinds."""
    trainer = given.trainer
    own = isinstance(trainer.settings.optimizer, Adam)
    space = given.space if own else default_space(trainer.settings.steps)
    settings = replace(trainer.settings, optimizer=AdamBC(), learning_rate=float(space.default["learning_rate"]))
    return _tuned(given, replace(trainer, settings=settings), space)


_ALL = (
    Entrant("planner", "what one command does: the planner's method, tuning paid for", _planner),
    Entrant("default", "the default settings of the kind of data, trained once, untuned", _default),
    Entrant("plain", "the planner's method without whitening, learning rates by the rule for plain records", _plain),
    Entrant("guess", "one configuration drawn from what the others tune over, trained once", _guess),
    Entrant("stopping", "best of a random number of runs on everything (geometric, mean 10), our bound", _stopping),
    Entrant("papernot-steinke", "the same runs, noise by Papernot and Steinke's bound", _papernot_steinke),
    Entrant("naive", f"{_LISTED} configurations, each paid for, by composition", _naive),
    Entrant("linear-scaling", "learning rate tuned at two small budgets and extrapolated (Panda et al.)", _linear),
    Entrant("automatic", "automatic clipping, learning rate tuned by the planner", _automatic),
    Entrant("automatic-fixed", "automatic clipping with the default learning rate, untuned", _automatic_fixed),
    Entrant("quantile", "clip norm that follows a quantile (.75), learning rate tuned by the planner", _quantile),
    Entrant("adambc", "DP-AdamBC, learning rate tuned by the planner", _adambc),
    Entrant("free", "learning rate from noised sums over losses at every step, paid for; nothing to tune", _free),
    Entrant("unpaid", f"best of {_UNPAID} configurations, only one run of them paid for: NOT private", _unpaid, False),
)  # fmt: skip

ENTRANTS = {one.name: one for one in _ALL}
"""All entrants by name, in the order of tables."""


def entrant(name: str) -> Entrant:
    """The entrant of this name.

    Args:
        name: one of ``ENTRANTS``.

    Returns:
        The entrant.

    Raises:
        InvalidInput: there is none.

    Example:
        >>> entrant("default").guaranteed
        True
    """
    if name not in ENTRANTS:
        raise InvalidInput(f"'methods' must be among {', '.join(ENTRANTS)}; got {name!r}.")
    return ENTRANTS[name]
