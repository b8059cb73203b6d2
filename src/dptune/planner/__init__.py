"""Which method and settings for this budget, why, and all methods side by side; and ``tune``, which needs no choice."""

from dptune.planner.advice import Advice, choose, default_validation, public_records
from dptune.planner.comparison import Compared, compare
from dptune.planner.defaults import default_space, default_trainer
from dptune.planner.networks import network_space, network_trainer, try_network
from dptune.planner.regression import default_regression, named_score, regression_space, with_score
from dptune.planner.tuning import tune

__all__ = [
    "Advice",
    "Compared",
    "choose",
    "compare",
    "default_regression",
    "default_space",
    "default_trainer",
    "default_validation",
    "named_score",
    "network_space",
    "network_trainer",
    "public_records",
    "regression_space",
    "try_network",
    "tune",
    "with_score",
]
