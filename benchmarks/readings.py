"""Readings beside riskcal and gdpnum: power, advantage and Bayes risk must not be below an optimistic computation.

Both work on loss distributions of dp-accounting; with an optimistic one they bound the truth from below. They are not
part of our set-up: ``pip install riskcal gdpnum`` first. Run: ``python benchmarks/readings.py``.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from dptune.accounting import Cost, DpSgd, Gaussian, Laplace, compose

_RATES, _PRIORS = (0.001, 0.01, 0.1), (0.1, 0.5)
_EXPRESSIONS: tuple[tuple[Cost, ...], ...] = (
    *((Gaussian(noise),) for noise in (0.5, 1.0, 2.0, 5.0)),
    *((Laplace(scale),) for scale in (0.5, 1.0, 3.0)),
    *((DpSgd(*one),) for one in ((0.01, 1.0, 1000), (0.004, 1.1, 2344), (0.1, 2.0, 100), (0.02, 0.8, 200))),
    (DpSgd(0.5, 4.0, 50),),
    (Gaussian(2.0), Laplace(2.0)),
    (DpSgd(0.01, 1.0, 500), Gaussian(3.0)),
    (Laplace(1.0), Laplace(2.0)),
    (Gaussian(3.0), Gaussian(4.0)),
)


def _distribution(costs: tuple[Cost, ...], pessimistic: bool) -> Any:
    """The loss distribution of several mechanisms, rounded to one side."""
    made = importlib.import_module("dp_accounting.pld.privacy_loss_distribution")
    side = {
        "pessimistic_estimate": pessimistic,
        "use_connect_dots": pessimistic,
        "value_discretization_interval": 1e-4,
    }
    total: Any = None
    for cost in costs:
        if isinstance(cost, Laplace):
            one = made.from_laplace_mechanism(cost.noise_multiplier, **side)
        elif isinstance(cost, DpSgd):
            rate, noise = cost.sampling_rate, cost.noise_multiplier
            one = made.from_gaussian_mechanism(noise, sampling_prob=rate, **side).self_compose(cost.steps)
        elif isinstance(cost, Gaussian):
            one = made.from_gaussian_mechanism(cost.noise_multiplier, **side)
        total = one if total is None else total.compose(one)
    return total


def _independent(conversions: Any, loss: Any) -> list[float]:
    """Powers, the advantage, and one minus the Bayes risks: all of them are larger where more is lost."""
    powers = [1.0 - float(min(conversions.get_beta_from_pld(loss, alpha=[rate]))) for rate in _RATES]
    risks = [1.0 - float(conversions.get_bayes_risk_from_pld(loss, prior)) for prior in _PRIORS]
    return [*powers, float(conversions.get_advantage_from_pld(loss)), *risks]


def main() -> int:
    """Print every expression; the exit code says whether one of our figures is below."""
    try:
        conversions = importlib.import_module("riskcal.analysis.conversions")
        converter = importlib.import_module("gdpnum.converter")
    except ImportError as missing:
        print(f"not compared: {missing}; pip install riskcal gdpnum")
        return 0
    below = compared = 0
    for costs in _EXPRESSIONS:
        cost = costs[0] if len(costs) == 1 else compose(*costs)
        ours = [*(cost.power(rate) for rate in _RATES), cost.advantage(), *(1 - cost.bayes_risk(p) for p in _PRIORS)]
        least = _independent(conversions, _distribution(costs, pessimistic=False))
        most = _independent(conversions, _distribution(costs, pessimistic=True))
        compared += len(ours)
        below += sum(a < b - 1e-9 for a, b in zip(ours, least, strict=True))
        gap = max((a - b) / b for a, b in zip(ours, most, strict=True))
        mu = float(converter.PLDConverter(_distribution(costs, pessimistic=True)).get_mu())
        print(f"{' + '.join(map(str, costs))}: at most {gap:.1e} above riskcal; mu {cost.mu().mu:.4f}, gdpnum {mu:.4f}")
    print(f"{compared} figures, {below} below an independent one")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
