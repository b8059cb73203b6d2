"""What is trained and tried for tables where nobody said: a linear model by DP-SGD with Adam, and its learning rate.

Every figure follows from public ones (features, classes, about how many records, the total). Numbers of a table fill a
small part of their declared ranges and go together, so that steps hardly move what tells records apart. Where the total
is known, records are centred and brought to one level in all directions first, by noised second moments that are part
of the price (:mod:`dptune.training.whitening`); not where there are too many features for that. Adam is here because
its learning rate means the same whatever the scale of the features and the noise: one range serves most tables, and a
rate that was tuned on a part of the records serves the whole.

The constants were chosen on public tables by ``benchmarks/choose_tables.py`` (``docs/accuracy.md``).
"""

from __future__ import annotations

from dptune._validate import integer
from dptune.data import Dataset
from dptune.planner.steps import best_pace, least_noise
from dptune.spaces import Float, Space
from dptune.training import Adam, DpSgdTrainer, Settings, softmax
from dptune.training.whitening import MOST_RECORDS, MOST_SPREAD, Whitening

__all__ = ["LEVELLING", "TABLE_STAKES", "default_space", "default_trainer", "is_levelled", "table_space"]

_STEPS = 300
_LEAST_BATCH = 256
_SHARE = 32
_WORK = 5e9  # numbers that one training may read
TABLE_STAKES = 0.2  # tables lose less to noise and haste than images: benchmarks/steps.py
_RATE, _RATES = 0.02, (0.01, 0.1)  # learning rates for 300 steps
_LEVEL_RATE = 0.1  # the same where records are brought to a level: likeliest, and tried around it
_WIDTH, _SPREAD = 8.0, 1.5
LEVELLING = Whitening(share=0.1, centred=True)
"""How records of tables are brought to a level."""

_MOST_LEVELLED = 1023  # features; and products of numbers for all records: half a minute of one core
_MOST_PRODUCTS = 2e10
_MARGIN = 3.0  # more noise than a single Gaussian's that tuning and few steps may need


def default_trainer(
    features: int,
    classes: int,
    records: int,
    *,
    validation: Dataset | None = None,
    epsilon: float | None = None,
    levelled: bool = True,
) -> DpSgdTrainer:
    """A private softmax regression for a table, from public figures alone.

    With a total, records are brought to a level first, and rate and steps are those of which the planner expects most.
    Without it, batches hold about one record in 32, at least 256 of them, at most a quarter, and there are 300 steps of
    Adam. The clip norm is 1.

    Args:
        features: How many features a record has when it is encoded.
        classes: How many classes there are.
        records: About how many records there are, a public figure.
        validation: Public records for scores; without them scores come from private ones, noised and paid for.
        epsilon: The total budget, where it is known.
        levelled: Whether records are brought to a level where they may be; False: they are trained on as they are.

    Returns:
        The trainer; its noise is set by a plan.

    Raises:
        InvalidInput: If a figure is out of range.

    Example:
        >>> from dptune.planner import default_trainer
        >>> default_trainer(113, 2, 32000).settings.batch_size
        1000.0
    """
    integer("records", records, 4)
    batch, steps = min(records / 4, max(_LEAST_BATCH, records / _SHARE)), _STEPS
    if epsilon is not None:
        pace = best_pace(features, records, epsilon, work=_WORK, stakes=TABLE_STAKES)
        batch, steps = pace.rate * records, pace.steps
    levelled = levelled and epsilon is not None and is_levelled(features, records, epsilon)
    settings = Settings.from_batch(
        batch,
        records,
        noise_multiplier=1.0,  # the plan sets it
        steps=steps,
        clip_norm=1.0,
        learning_rate=(_LEVEL_RATE if levelled else _RATE) * _STEPS / steps,
        optimizer=Adam(),
    )
    return DpSgdTrainer(
        softmax(features, classes), settings, validation=validation, whitening=LEVELLING if levelled else None
    )


def is_levelled(features: int, records: int, epsilon: float) -> bool:
    """Whether records of a table are brought to a level: of few enough features, and where noise fits its lattice.

    Args:
        features: How many features a record has when it is encoded.
        records: About how many records there are.
        epsilon: The total budget.

    Returns:
        Whether :func:`default_trainer` does that.

    Example:
        >>> from dptune.planner.defaults import is_levelled
        >>> is_levelled(20, 5000, 1.0), is_levelled(4000, 5000, 1.0)
        (True, False)
    """
    if features > _MOST_LEVELLED or records > MOST_RECORDS or records * features**2 > _MOST_PRODUCTS:
        return False
    return LEVELLING.spread(features, 1.0 / (_MARGIN * least_noise(epsilon))) <= MOST_SPREAD


def table_space(features: int, records: int, *, epsilon: float, levelled: bool = True) -> Space:
    """The learning rates that are tried with :func:`default_trainer`, where the total is known.

    Args:
        features: How many features a record has when it is encoded.
        records: About how many records there are.
        epsilon: The total budget.
        levelled: As the trainer has it.

    Returns:
        A space with one parameter: likeliest around the default; on records as they are, every rate as likely.

    Example:
        >>> from dptune.planner.defaults import table_space
        >>> table_space(20, 5000, epsilon=1.0).default
        {'learning_rate': 0.0375}
    """
    usual = default_trainer(features, 2, records, epsilon=epsilon, levelled=levelled)
    middle = usual.settings.learning_rate
    if usual.whitening is None:
        return default_space(usual.settings.steps)
    return Space(learning_rate=Float(middle / _WIDTH, middle * _WIDTH, log=True, around=middle, spread=_SPREAD))


def default_space(steps: int = _STEPS) -> Space:
    """The learning rates that are tried with Adam, on records as they are.

    Adam moves a weight by about the learning rate in a step, so all steps move one by at most 3 to 30.

    Args:
        steps: How many steps a training has.

    Returns:
        A space with one parameter, log-uniform from .01 to .1 for 300 steps.

    Example:
        >>> from dptune.planner import default_space
        >>> default_space().names
        ('learning_rate',)
    """
    low, high = (rate * _STEPS / integer("steps", steps, 1) for rate in _RATES)
    return Space(learning_rate=Float(low, high, log=True))
