"""dptune: differentially private hyperparameter tuning with one honest budget."""

from dptune.accounting import (
    Binomial,
    Cost,
    DiscreteGaussian,
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
    cost_from_json,
    disjoint,
    mixture,
    parallel,
    select,
    select_adaptive,
    subsample,
)
from dptune.accounting.calibrate import calibrate_noise
from dptune.errors import BudgetExceeded, DptuneError, InvalidInput

__version__ = "0.1.0"

__all__ = [
    "Binomial",
    "BudgetExceeded",
    "Cost",
    "DiscreteGaussian",
    "DpSgd",
    "DptuneError",
    "Gaussian",
    "Gdp",
    "Geometric",
    "InvalidInput",
    "Laplace",
    "Logarithmic",
    "NegativeBinomial",
    "Poisson",
    "PureDp",
    "calibrate_noise",
    "compose",
    "cost_from_json",
    "disjoint",
    "mixture",
    "parallel",
    "select",
    "select_adaptive",
    "subsample",
]
