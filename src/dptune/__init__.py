"""dptune: differentially private hyperparameter tuning with one honest budget.

The names below load on first use: ``import dptune`` takes no time, and a command waits for what it needs alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptune._lazy import load_on_use
from dptune._version import __version__

if TYPE_CHECKING:
    from dptune.accounting import (
        ADDED_OR_REMOVED,
        CLIENT_REPLACED,
        RECORD_REPLACED,
        Binomial,
        Cost,
        DpSgd,
        Gaussian,
        Gdp,
        Geometric,
        Laplace,
        Logarithmic,
        NegativeBinomial,
        Neighbours,
        Poisson,
        PureDp,
        compose,
        disjoint,
        from_dp_event,
        grouped,
        known_threshold,
        mixture,
        parallel,
        replaced,
        select,
        select_adaptive,
        subsample,
        within_client,
    )
    from dptune.data import Dataset
    from dptune.errors import BudgetExceeded, Corrupt, DptuneError, Interrupted, InvalidInput, NotComparable, Stopped
    from dptune.integrations.estimators import estimator_trainer
    from dptune.integrations.objectives import from_objective
    from dptune.integrations.opacus import opacus_trainer
    from dptune.ledgers import Ledger
    from dptune.methods import (
        Adaptive,
        Budget,
        LinearScaling,
        NoisyBest,
        PrivateValidation,
        RandomStopping,
        Subset,
        Threshold,
        Vote,
    )
    from dptune.planner import tune
    from dptune.regression import RegressionDataset
    from dptune.report import report
    from dptune.sealed import Release, load_release
    from dptune.sealed.run import resume, run
    from dptune.spaces import Choice, Float, Int, Space
    from dptune.trainer import Trainer, trainer
    from dptune.units import UnitDataset

__all__ = [
    "ADDED_OR_REMOVED",
    "CLIENT_REPLACED",
    "RECORD_REPLACED",
    "Adaptive",
    "Binomial",
    "Budget",
    "BudgetExceeded",
    "Choice",
    "Corrupt",
    "Cost",
    "Dataset",
    "DpSgd",
    "DptuneError",
    "Float",
    "Gaussian",
    "Gdp",
    "Geometric",
    "Int",
    "Interrupted",
    "InvalidInput",
    "Laplace",
    "Ledger",
    "LinearScaling",
    "Logarithmic",
    "NegativeBinomial",
    "Neighbours",
    "NoisyBest",
    "NotComparable",
    "Poisson",
    "PrivateValidation",
    "PureDp",
    "RandomStopping",
    "RegressionDataset",
    "Release",
    "Space",
    "Stopped",
    "Subset",
    "Threshold",
    "Trainer",
    "UnitDataset",
    "Vote",
    "__version__",
    "compose",
    "disjoint",
    "estimator_trainer",
    "from_dp_event",
    "from_objective",
    "grouped",
    "known_threshold",
    "load_release",
    "mixture",
    "opacus_trainer",
    "parallel",
    "replaced",
    "report",
    "resume",
    "run",
    "select",
    "select_adaptive",
    "subsample",
    "trainer",
    "tune",
    "within_client",
]

_NAMES = {
    "dptune.accounting": (
        "ADDED_OR_REMOVED",
        "CLIENT_REPLACED",
        "RECORD_REPLACED",
        "Binomial",
        "Cost",
        "DpSgd",
        "Gaussian",
        "Gdp",
        "Geometric",
        "Laplace",
        "Logarithmic",
        "NegativeBinomial",
        "Neighbours",
        "Poisson",
        "PureDp",
        "compose",
        "disjoint",
        "from_dp_event",
        "grouped",
        "known_threshold",
        "mixture",
        "parallel",
        "replaced",
        "select",
        "select_adaptive",
        "subsample",
        "within_client",
    ),
    "dptune.data": ("Dataset",),
    "dptune.errors": (
        "BudgetExceeded",
        "Corrupt",
        "DptuneError",
        "Interrupted",
        "InvalidInput",
        "NotComparable",
        "Stopped",
    ),
    "dptune.integrations.estimators": ("estimator_trainer",),
    "dptune.integrations.objectives": ("from_objective",),
    "dptune.integrations.opacus": ("opacus_trainer",),
    "dptune.ledgers": ("Ledger",),
    "dptune.methods": (
        "Adaptive",
        "Budget",
        "LinearScaling",
        "NoisyBest",
        "PrivateValidation",
        "RandomStopping",
        "Subset",
        "Threshold",
        "Vote",
    ),
    "dptune.planner": ("tune",),
    "dptune.report": ("report",),
    "dptune.regression": ("RegressionDataset",),
    "dptune.sealed": (
        "Release",
        "load_release",
    ),
    "dptune.sealed.run": (
        "resume",
        "run",
    ),
    "dptune.spaces": (
        "Choice",
        "Float",
        "Int",
        "Space",
    ),
    "dptune.trainer": (
        "Trainer",
        "trainer",
    ),
    "dptune.units": ("UnitDataset",),
}

load_on_use(__name__, _NAMES)
