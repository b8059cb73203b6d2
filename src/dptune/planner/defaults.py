"""What is trained and tried where nobody said: a linear model by DP-SGD with Adam, and its learning rate.

Every figure follows from public ones (features, classes, about how many records, the total). Adam is here because its
learning rate means the same whatever the scale of the features: one range serves most tables, and a rate that was tuned
on a part of the records serves the whole.
"""

from __future__ import annotations

from dptune._validate import integer
from dptune.data import Dataset
from dptune.planner.steps import best_pace
from dptune.spaces import Float, Space
from dptune.training import Adam, DpSgdTrainer, Settings, softmax

__all__ = ["TABLE_STAKES", "default_space", "default_trainer"]

_STEPS = 300
_LEAST_BATCH = 256
_SHARE = 32
_WORK = 5e9  # numbers that one training may read
TABLE_STAKES = 0.2  # tables lose less to noise and haste than images: benchmarks/steps.py
_RATES = (0.01, 0.1)  # learning rates for 300 steps


def default_trainer(
    features: int, classes: int, records: int, *, validation: Dataset | None = None, epsilon: float | None = None
) -> DpSgdTrainer:
    """A private softmax regression for a table, from public figures alone.

    With a total, rate and steps are those of which the planner expects most. Without it, batches hold about one record
    in 32, at least 256 of them, at most a quarter, and there are 300 steps. The clip norm is 1.

    Args:
        features: How many features a record has when it is encoded.
        classes: How many classes there are.
        records: About how many records there are, a public figure.
        validation: Public records for scores; without them scores come from private ones, noised and paid for.
        epsilon: The total budget, where it is known.

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
    settings = Settings.from_batch(
        batch,
        records,
        noise_multiplier=1.0,  # the plan sets it
        steps=steps,
        clip_norm=1.0,
        learning_rate=0.02 * _STEPS / steps,
        optimizer=Adam(),
    )
    return DpSgdTrainer(softmax(features, classes), settings, validation=validation)


def default_space(steps: int = _STEPS) -> Space:
    """The learning rates that are tried with :func:`default_trainer`.

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
