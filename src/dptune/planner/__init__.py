"""Which method and settings for this budget, why, and all methods side by side; and ``tune``, which needs no choice."""

from dptune.planner.advice import Advice, choose, default_validation, public_records
from dptune.planner.comparison import Compared, compare
from dptune.planner.tuning import tune

__all__ = ["Advice", "Compared", "choose", "compare", "default_validation", "public_records", "tune"]
