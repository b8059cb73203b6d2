"""dptune: differentially private hyperparameter tuning with one honest budget.

The names below load on first use: ``import dptune`` takes no time, and a command waits for what it needs alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptune._lazy import load_on_use
from dptune._version import __version__

if TYPE_CHECKING:
    from dptune.accounting import (
        Binomial,
        Cost,
        DpSgd,
        Gaussian,
        Gdp,
        Geometric,
        Laplace,
        Logarithmic,
        NegativeBinomial,
        Poisson,
        PureDp,
        compose,
        disjoint,
        mixture,
        parallel,
        select,
        select_adaptive,
        subsample,
    )
    from dptune.errors import BudgetExceeded, Corrupt, DptuneError, InvalidInput, NotComparable, Stopped
    from dptune.ledgers import Ledger
    from dptune.methods import (
        Adaptive,
        Budget,
        NoisyBest,
        PrivateValidation,
        RandomStopping,
        Subset,
        Threshold,
        Vote,
    )
    from dptune.planner import tune
    from dptune.sealed import load_release
    from dptune.sealed.run import resume, run
    from dptune.spaces import Choice, Float, Int, Space
    from dptune.trainer import Trainer, trainer

__all__ = [
    "Adaptive",
    "Binomial",
    "Budget",
    "BudgetExceeded",
    "Choice",
    "Corrupt",
    "Cost",
    "DpSgd",
    "DptuneError",
    "Float",
    "Gaussian",
    "Gdp",
    "Geometric",
    "Int",
    "InvalidInput",
    "Laplace",
    "Ledger",
    "Logarithmic",
    "NegativeBinomial",
    "NoisyBest",
    "NotComparable",
    "Poisson",
    "PrivateValidation",
    "PureDp",
    "RandomStopping",
    "Space",
    "Stopped",
    "Subset",
    "Threshold",
    "Trainer",
    "Vote",
    "__version__",
    "compose",
    "disjoint",
    "load_release",
    "mixture",
    "parallel",
    "resume",
    "run",
    "select",
    "select_adaptive",
    "subsample",
    "trainer",
    "tune",
]

# The same names as above, by the module that holds each; a test compares the two.
_NAMES = {
    "dptune.accounting": (
        "Binomial",
        "Cost",
        "DpSgd",
        "Gaussian",
        "Gdp",
        "Geometric",
        "Laplace",
        "Logarithmic",
        "NegativeBinomial",
        "Poisson",
        "PureDp",
        "compose",
        "disjoint",
        "mixture",
        "parallel",
        "select",
        "select_adaptive",
        "subsample",
    ),
    "dptune.errors": ("BudgetExceeded", "Corrupt", "DptuneError", "InvalidInput", "NotComparable", "Stopped"),
    "dptune.methods": (
        "Adaptive",
        "Budget",
        "NoisyBest",
        "PrivateValidation",
        "RandomStopping",
        "Subset",
        "Threshold",
        "Vote",
    ),
    "dptune.planner": ("tune",),
    "dptune.ledgers": ("Ledger",),
    "dptune.sealed": ("load_release",),
    "dptune.sealed.run": ("resume", "run"),
    "dptune.spaces": ("Choice", "Float", "Int", "Space"),
    "dptune.trainer": ("Trainer", "trainer"),
}

load_on_use(__name__, _NAMES)
