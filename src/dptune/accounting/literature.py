"""What the papers say: every published bound on private tuning, under its own conditions, by name.

``docs/literature.md`` lists them with what was found about each. They stand beside dptune's own price, which those
that are sound also cap, as profiles (``docs/theorems/published.md``). A function here raises :class:`NotComparable`
outside its paper's conditions, and :func:`published` turns that into an entry without an epsilon and with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dptune._validate import real
from dptune.accounting._profile_bounds import (
    koskela_redberg_wang,
    liu_talwar,
    naive_composition,
    xiang_theorem3,
)
from dptune.accounting._renyi_bounds import (
    Density,
    hypo_repaired,
    hypo_theorem1,
    hypo_theorem2,
    koskela_kulkarni_theorem4,
    koskela_kulkarni_theorem5,
    koskela_kulkarni_theorem6,
    papernot_steinke,
    papernot_steinke_exact,
)
from dptune.accounting.cost import Cost
from dptune.accounting.runs import Runs
from dptune.accounting.selection import select_adaptive
from dptune.errors import InvalidInput, NotComparable

__all__ = [
    "DING_THEOREM3",
    "Bound",
    "hypo_repaired",
    "hypo_theorem1",
    "hypo_theorem2",
    "koskela_kulkarni_theorem4",
    "koskela_kulkarni_theorem5",
    "koskela_kulkarni_theorem6",
    "koskela_redberg_wang",
    "liu_talwar",
    "naive_composition",
    "papernot_steinke",
    "papernot_steinke_exact",
    "published",
    "xiang_theorem3",
]


@dataclass(frozen=True)
class Bound:
    """One published bound: its epsilon here, or why it has none."""

    name: str
    epsilon: float | None
    citation: str
    conditions: str
    reason: str = ""  # why there is no epsilon; empty if there is one


DING_THEOREM3 = Bound(
    "ding_theorem3",
    None,
    "Ding et al., Constant-overhead differentially private hyperparameter tuning, Theorem 3",
    "stated for utilities averaged over shards, with rounds of noisy thresholds",
    "Not a DP guarantee: its epsilon and delta depend on the best utility on the private data, and the number of "
    "rounds they count is unbounded. docs/theorems/ding-theorem3.md has neighbouring data sets on which it claims 0.",
)


@dataclass(frozen=True)
class _Plan:
    base: Cost
    runs: Runs
    delta: float
    density: Density
    subset: float | None
    variant: int | None

    def everything(self, paper: str, *, adaptive: bool = False) -> tuple[Cost, Runs, float]:
        """The arguments of a bound on tuning over all the data."""
        if self.subset is not None:
            raise NotComparable(f"{paper} prices tuning on all the data; this plan tunes on a subset.")
        if not adaptive and self.density != (1.0, 1.0):
            raise NotComparable(f"{paper} needs candidates drawn from one fixed law; this plan adapts it.")
        return self.base, self.runs, self.delta

    def part(self, variant: int | None) -> tuple[Cost, Runs, float, float]:
        """The arguments of a bound on tuning over a subset."""
        if self.subset is None:
            raise NotComparable("Koskela and Kulkarni price tuning on a subset; this plan has none.")
        if self.density != (1.0, 1.0):
            raise NotComparable("Koskela and Kulkarni tune with candidates from one fixed law; this plan adapts it.")
        if variant is not None and self.variant != variant:
            raise NotComparable(f"The theorem is for variant {variant}; this plan is variant {self.variant}.")
        return self.base, self.runs, self.delta, self.subset


_LT = "Liu and Talwar 2019, Private selection from private candidates, Theorem 3.2"
_PS = "Papernot and Steinke 2022, Hyperparameter tuning with Renyi differential privacy, Theorems 2 and 6"
_XW = "Xiang, Wang, Wang and Wang, Revisiting differentially private hyper-parameter tuning, Theorem 3"
_KRW = "Koskela, Redberg and Wang 2024, Privacy profiles for private selection"
_HY = "Wang, Gao, Zhang, Su and Shen 2023, DP-HyPO: an adaptive private hyperparameter optimization framework"
_KK = "Koskela and Kulkarni 2023, Practical differentially private hyperparameter tuning with subsampling"
_TNB_RDP = "truncated negative binomial runs; a Renyi curve for the base; densities within [c, C] of the prior"
_INTEGER = "a Renyi curve for the base; integer orders; Poisson sampling of the subset"

_Price = Callable[[_Plan], float]
_ENTRIES: tuple[tuple[str, str, str, _Price], ...] = (
    (
        "naive_composition",
        "composition of a fixed number of runs, ceil(E[K]), by loss distributions",
        "every run is released; for the same expected number of runs, not for the same procedure",
        lambda p: naive_composition(p.base, p.runs, p.delta),
    ),
    ("liu_talwar", _LT, "pure base; geometric runs", lambda p: liu_talwar(*p.everything("Liu and Talwar"))),
    (
        "papernot_steinke",
        _PS,
        "truncated negative binomial or Poisson runs; a Renyi curve for the base",
        lambda p: papernot_steinke(*p.everything("Papernot and Steinke")),
    ),
    (
        "papernot_steinke_exact",
        f"{_PS}, delta-hat from the base's profile",
        "Poisson runs; a Renyi curve and a profile for the base",
        lambda p: papernot_steinke_exact(*p.everything("Papernot and Steinke")),
    ),
    ("xiang_theorem3", _XW, "a trade-off curve for the base", lambda p: xiang_theorem3(*p.everything("Theorem 3"))),
    (
        "koskela_redberg_wang",
        _KRW,
        "a profile for the base; truncated negative binomial, Poisson or binomial runs",
        lambda p: koskela_redberg_wang(*p.everything("The bound")),
    ),
    (
        "hypo_theorem1",
        f"{_HY}, Theorem 1",
        _TNB_RDP,
        lambda p: hypo_theorem1(*p.everything("DP-HyPO", adaptive=True), p.density),
    ),
    (
        "hypo_repaired",
        f"{_HY}, Theorem 1 with its proof repaired (docs/literature.md)",
        _TNB_RDP,
        lambda p: hypo_repaired(*p.everything("DP-HyPO", adaptive=True), p.density),
    ),
    (
        "hypo_theorem2",
        f"{_HY}, Theorem 2",
        "pure base; truncated negative binomial runs; densities within [c, C] of the prior",
        lambda p: hypo_theorem2(*p.everything("DP-HyPO", adaptive=True), p.density),
    ),
    (
        "koskela_kulkarni_theorem4",
        f"{_KK}, Theorem 4 and composition",
        f"variant 2; {_INTEGER}",
        lambda p: koskela_kulkarni_theorem4(*p.part(2)),
    ),
    (
        "koskela_kulkarni_theorem5",
        f"{_KK}, Theorem 5",
        "Poisson runs; a Renyi curve for the base; prices tuning on all the data, their baseline",
        lambda p: koskela_kulkarni_theorem5(*p.part(None)[:3]),
    ),
    (
        "koskela_kulkarni_theorem6",
        f"{_KK}, Theorem 6, or Theorem 4 and composition where smaller",
        f"variant 1; {_INTEGER}",
        lambda p: koskela_kulkarni_theorem6(*p.part(1)),
    ),
    (
        "koskela_kulkarni_theorem4_exact",
        f"{_KK}, Theorem 4 and composition, delta-hat from the base's profile",
        f"variant 2; Poisson runs; {_INTEGER}",
        lambda p: koskela_kulkarni_theorem4(*p.part(2), exact=True),
    ),
    (
        "koskela_kulkarni_theorem6_exact",
        f"{_KK}, Theorem 6, delta-hat from the base's profile",
        f"variant 1; Poisson runs; {_INTEGER}",
        lambda p: koskela_kulkarni_theorem6(*p.part(1), exact=True),
    ),
)


def published(
    base: Cost,
    runs: Runs,
    delta: float,
    *,
    density: Density | None = None,
    subset: float | None = None,
    variant: int | None = None,
) -> dict[str, Bound]:
    """Every published bound for this plan, by name; one whose conditions fail has no epsilon and says why.

    ``density`` is (c, C) for adaptive sampling; ``subset`` the fraction tuned on, ``variant`` 1 (train on the rest,
    the default) or 2 (train on everything).
    """
    made = select_adaptive(base, runs, (1.0, 1.0) if density is None else density)
    level = real("delta", delta, 0, 1, low_open=True, high_open=True, hint="A common choice is 1e-5.")
    if subset is None and variant is not None:
        raise InvalidInput(f"'variant' is for tuning on a subset; got {variant!r} without 'subset'.")
    if variant not in (None, 1, 2):
        raise InvalidInput(f"'variant' must be 1 (train on the rest) or 2 (train on everything); got {variant!r}.")
    rate = None if subset is None else real("subset", subset, 0, 1, low_open=True, high_open=True)
    plan = _Plan(made.base, made.runs, level, made.density, rate, variant or (None if rate is None else 1))
    bounds: dict[str, Bound] = {}
    for name, citation, conditions, price in _ENTRIES:
        try:
            bounds[name] = Bound(name, price(plan), citation, conditions)
        except NotComparable as why:
            bounds[name] = Bound(name, None, citation, conditions, str(why))
    return {**bounds, DING_THEOREM3.name: DING_THEOREM3}
