"""Draws the figures of the documentation (``make docs``); every curve is computed here."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from dptune import Cost, DpSgd, Geometric, Poisson, compose, disjoint, select, subsample
from dptune.accounting.literature import published
from dptune.accounting.runs import Runs

mpl.use("Agg")
from matplotlib import pyplot as plt  # the backend must be chosen first

_OUT = Path(__file__).parent / "figures"
_DELTA = 1e-5


def _subset_curves(base: Cost, runs: Runs, fractions: list[float]) -> dict[str, list[float]]:
    tune = select(base, runs)
    curves: dict[str, list[float]] = {
        "variant 1, dptune": [disjoint(tune, base, q).epsilon(_DELTA) for q in fractions],
        "variant 2, dptune": [compose(subsample(tune, q), base).epsilon(_DELTA) for q in fractions],
    }
    for name, variant, key in (
        ("variant 1, Koskela-Kulkarni Theorem 6", 1, "koskela_kulkarni_theorem6"),
        ("variant 2, Koskela-Kulkarni Theorem 4", 2, "koskela_kulkarni_theorem4"),
    ):
        bounds = [published(base, runs, _DELTA, subset=q, variant=variant)[key].epsilon for q in fractions]
        curves[name] = [float("nan") if value is None else value for value in bounds]
    return curves


def subset_figure() -> None:
    """Epsilon against the share of records used for tuning, both variants, beside the paper's own bounds."""
    fractions = [float(q) for q in np.geomspace(0.02, 0.6, 14)]
    settings: list[tuple[str, Cost, Runs]] = [
        ("rate 256/60000, 2344 steps, noise 1.052, geometric(30)", DpSgd(256 / 60000, 1.052, 2344), Geometric(30)),
        ("rate .01, 5000 steps, noise 2, Poisson(15)", DpSgd(0.01, 2.0, 5000), Poisson(15)),
    ]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2))
    for axis, (title, base, runs) in zip(axes, settings, strict=True):
        for (name, values), style in zip(
            _subset_curves(base, runs, fractions).items(), ("C0-", "C1-", "C0:", "C1:"), strict=True
        ):
            axis.plot(fractions, values, style, label=name)
            print(f"{title}: {name}: " + ", ".join(f"{q:.3f}:{v:.3f}" for q, v in zip(fractions, values, strict=True)))
        axis.axhline(base.epsilon(_DELTA), color="0.4", linewidth=0.8, label="one run on all data, untuned")
        axis.set(title=title, xlabel="share of records used for tuning", ylabel=f"total epsilon at delta {_DELTA:g}")
        axis.title.set_fontsize(9)
        axis.set_ylim(0)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(_OUT / "subset.png", dpi=110)


def price_figure() -> None:
    """What twenty runs of DP-SGD cost, by whom you ask."""
    base, runs = DpSgd(256 / 60000, 1.1, 2344), Geometric(20)
    cost = select(base, runs)
    bounds = published(base, runs, _DELTA)
    rows = [("one run, untuned", base.epsilon(_DELTA), "0.7")]
    for key, label in (
        ("naive_composition", "naive composition"),
        ("papernot_steinke", "Papernot-Steinke"),
        ("koskela_redberg_wang", "Koskela-Redberg-Wang"),
        ("xiang_theorem3", "Xiang et al., Theorem 3"),
    ):
        value = bounds[key].epsilon
        if value is not None:
            rows.append((label, value, "C1"))
    rows += [("dptune", cost.epsilon(_DELTA), "C0"), ("certificate from below", cost.epsilon_lower(_DELTA), "C2")]
    figure, axis = plt.subplots(figsize=(8, 3))
    axis.barh([name for name, _, _ in rows], [v for _, v, _ in rows], color=[c for _, _, c in rows])
    for index, (_, value, _) in enumerate(rows):
        axis.text(value, index, f" {value:.3f}", va="center", fontsize=9)
    axis.invert_yaxis()
    axis.set(xlabel=f"epsilon at delta {_DELTA:g}", title="Best of about twenty DP-SGD runs: what does it cost?")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(_OUT / "price.png", dpi=110)


if __name__ == "__main__":
    _OUT.mkdir(exist_ok=True)
    price_figure()
    subset_figure()
