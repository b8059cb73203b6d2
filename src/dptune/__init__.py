"""dptune: differentially private hyperparameter tuning with one honest budget."""

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
from dptune.errors import DptuneError
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
from dptune.sealed import load_release, resume, run
from dptune.spaces import Choice, Float, Int, Space
from dptune.trainer import Trainer, trainer

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "Binomial",
    "Budget",
    "Choice",
    "Cost",
    "DpSgd",
    "DptuneError",
    "Float",
    "Gaussian",
    "Gdp",
    "Geometric",
    "Int",
    "Laplace",
    "Ledger",
    "Logarithmic",
    "NegativeBinomial",
    "NoisyBest",
    "Poisson",
    "PrivateValidation",
    "PureDp",
    "RandomStopping",
    "Space",
    "Subset",
    "Threshold",
    "Trainer",
    "Vote",
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
