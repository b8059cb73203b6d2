"""The algebra of costs: what every part of dptune uses to say what it pays."""

from dptune.accounting.combination import compose, mixture, parallel, worst
from dptune.accounting.conversions import grouped, in_relation, replaced, within_client
from dptune.accounting.cost import Cost, cost_from_json
from dptune.accounting.curves import RenyiCurve
from dptune.accounting.event_mechanisms import DiscreteLaplace, GaussianMixture, Repeated, TruncatedDpSgd
from dptune.accounting.events import from_dp_event
from dptune.accounting.filter import Filter, renyi_curve
from dptune.accounting.known_threshold import known_threshold
from dptune.accounting.lines import RenyiLine
from dptune.accounting.mechanisms import DiscreteGaussian, DpSgd, Gaussian, Gdp, Laplace, PureDp
from dptune.accounting.neighbours import ADDED_OR_REMOVED, CLIENT_REPLACED, RECORD_REPLACED, Neighbours
from dptune.accounting.runs import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, Runs
from dptune.accounting.selection import select, select_adaptive
from dptune.accounting.subsets import disjoint, subsample

__all__ = [
    "ADDED_OR_REMOVED",
    "CLIENT_REPLACED",
    "RECORD_REPLACED",
    "Binomial",
    "Cost",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DpSgd",
    "Filter",
    "Gaussian",
    "GaussianMixture",
    "Gdp",
    "Geometric",
    "Laplace",
    "Logarithmic",
    "NegativeBinomial",
    "Neighbours",
    "Poisson",
    "PureDp",
    "RenyiCurve",
    "RenyiLine",
    "Repeated",
    "Runs",
    "TruncatedDpSgd",
    "compose",
    "cost_from_json",
    "disjoint",
    "from_dp_event",
    "grouped",
    "in_relation",
    "known_threshold",
    "mixture",
    "parallel",
    "renyi_curve",
    "replaced",
    "select",
    "select_adaptive",
    "subsample",
    "within_client",
    "worst",
]
