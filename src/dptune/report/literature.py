"""A plan's epsilon beside what the literature would have charged for the same plan, as bars.

Only bounds whose conditions the plan meets are drawn (``docs/literature.md``); the page says which are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dptune.accounting import Cost, Runs
from dptune.accounting.literature import Bound, published
from dptune.methods.adaptive import AdaptivePlan, AdaptiveTuning
from dptune.methods.plan import Plan
from dptune.methods.random_stopping import StoppingPlan
from dptune.methods.subset import SubsetPlan
from dptune.report.figures import Bar

__all__ = ["against_literature", "bars_of_bounds"]

_NAMES = {
    "naive_composition": "naive: as many runs, each paid for",
    "liu_talwar": "Liu and Talwar 2019",
    "papernot_steinke": "Papernot and Steinke 2022",
    "papernot_steinke_exact": "Papernot and Steinke 2022, exact",
    "xiang_theorem3": "Xiang et al., Theorem 3",
    "koskela_redberg_wang": "Koskela, Redberg and Wang 2024",
    "hypo_theorem1": "DP-HyPO, Theorem 1",
    "hypo_theorem2": "DP-HyPO, Theorem 2",
    "hypo_repaired": "DP-HyPO, repaired",
    "koskela_kulkarni_theorem4": "Koskela and Kulkarni 2023, Theorem 4",
    "koskela_kulkarni_theorem5": "Koskela and Kulkarni 2023, Theorem 5",
    "koskela_kulkarni_theorem6": "Koskela and Kulkarni 2023, Theorem 6",
}


def bars_of_bounds(bounds: Mapping[str, Bound]) -> list[Bar]:
    """The published bounds that have an epsilon here, the largest first.

    Args:
        bounds: by name, as :func:`~dptune.accounting.literature.published` returns them.

    Returns:
        One bar for each.

    Example:
        >>> from dptune.accounting import Gaussian, Geometric
        >>> names = [one.name for one in bars_of_bounds(published(Gaussian(5.0), Geometric(10), 1e-5))]
        >>> "Papernot and Steinke 2022" in names
        True
    """
    found = [(name, bound.epsilon) for name, bound in bounds.items() if bound.epsilon is not None]
    rows = [Bar(_NAMES.get(name, name.replace("_", " ")), value, "fb") for name, value in found if math.isfinite(value)]
    return sorted(rows, key=lambda row: -row.value)


def _bounds(plan: Plan) -> Mapping[str, Bound]:
    """Every published bound on the plan; none for a plan that no paper is about."""
    delta = plan.budget.delta
    if plan.validation is not None or len(plan.run_costs) != 1:
        return {}
    if isinstance(plan, SubsetPlan):
        variant = 1 if plan.train_on == "rest" else 2
        plain = not isinstance(plan.tuning, AdaptiveTuning)
        box = None if plain else plan.tuning.steering.density  # type: ignore[attr-defined] # an adaptive one has it
        return published(plan.run_costs[0], plan.tuning.runs, delta, density=box, subset=plan.fraction, variant=variant)
    if isinstance(plan, AdaptivePlan) and isinstance(plan.tuning, AdaptiveTuning):
        return published(plan.run_costs[0], plan.law, delta, density=plan.tuning.steering.density)
    form: tuple[Cost, Runs] | None = plan.published_form if isinstance(plan, StoppingPlan) else None
    return {} if form is None else published(*form, delta)


def against_literature(plan: Plan, epsilon: float | None, lower: float | None) -> list[Bar]:
    """This plan by whom you ask: the published bounds that apply, ours, and the certificate.

    Args:
        plan: what was fixed before any record was read.
        epsilon: as stated.
        lower: the certificate from below, if there is one.

    Returns:
        Bars, the largest bound first; none where nothing finite is known.
    """
    if epsilon is None or not plan.guaranteed:
        return []
    rows = bars_of_bounds(_bounds(plan))
    rows.append(Bar("dptune: the tuning, the choice and the training", epsilon, "fa"))
    if lower is not None:
        rows.append(Bar("certificate: nobody can prove less", lower, "fc", lower=True))
    one = max(cost.epsilon(plan.budget.delta) for cost in plan.run_costs)
    if len(plan.run_costs) == 1 and plan.run_costs[0] is not plan.cost:
        rows.append(Bar("one training on all records, untuned", one, "fd"))
    return rows
