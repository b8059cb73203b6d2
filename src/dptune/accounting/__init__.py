"""The algebra of costs: what every part of dptune uses to say what it pays."""

from dptune.accounting.combination import compose, mixture, parallel
from dptune.accounting.cost import Cost, cost_from_json
from dptune.accounting.filter import Filter, renyi_curve
from dptune.accounting.lines import RenyiLine
from dptune.accounting.mechanisms import DiscreteGaussian, DpSgd, Gaussian, Gdp, Laplace, PureDp
from dptune.accounting.runs import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, Runs
from dptune.accounting.selection import select, select_adaptive
from dptune.accounting.subsets import disjoint, subsample

__all__ = [
    "Binomial",
    "Cost",
    "DiscreteGaussian",
    "DpSgd",
    "Filter",
    "Gaussian",
    "Gdp",
    "Geometric",
    "Laplace",
    "Logarithmic",
    "NegativeBinomial",
    "Poisson",
    "PureDp",
    "RenyiLine",
    "Runs",
    "compose",
    "cost_from_json",
    "disjoint",
    "mixture",
    "parallel",
    "renyi_curve",
    "select",
    "select_adaptive",
    "subsample",
]
