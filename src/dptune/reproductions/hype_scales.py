"""The five noise scales that the DP-Hype paper lists in section V-C: what they are, what is needed, what they buy.

No data and no simulation: the paper's own conversion, the exact one, and the discrete noise of the protocol.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq

from dptune.accounting.voting import calibrate_vote, continuous_vote, votes_sigma
from dptune.reproductions.table import Table, Verdict, verdict

__all__ = ["hype_scales"]


def hype_scales(*, clients: int = 250, candidates: int = 100, votes: int = 5, delta: float = 1e-5) -> Table:
    """The five scales that the paper lists: how it gets them, what is needed, and what they buy if misread."""
    listed = {0.1: 103.0, 0.25: 46.0, 0.5: 24.0, 1.0: 12.5, 3.0: 4.7}
    rows: list[tuple[str | int | float, ...]] = []
    for epsilon, paper in listed.items():
        ring = calibrate_vote(epsilon, delta, clients=clients, candidates=candidates, votes=votes)
        rows.append(
            (
                epsilon,
                paper,
                _renyi_sigma(epsilon, delta, math.sqrt(2 * votes)),
                votes_sigma(epsilon, delta, candidates=candidates, votes=votes),
                float(continuous_vote(candidates, votes, math.sqrt(paper)).epsilon(delta)),
                ring.scale,
                ring.total_sigma,
                float(ring.epsilon(delta)),
            )
        )
    columns = ("epsilon", "paper", "by Renyi", "exact", "eps if variance", "s", "ring sigma", "ring epsilon")
    title = f"Noise scales: {votes} votes on {candidates} candidates, delta {delta:g}, {clients} clients"
    notes = (
        "paper: listed as sigma^2, in fact sigma. by Renyi: the paper's own account (its Theorem I.1). exact: analytic",
        "Gaussian. eps if variance: the true epsilon of a reader who takes the list at its word. ring: votes times s,",
        "discrete noise from all clients but one, exact account.",
    )
    return Table(title, columns, rows, notes, (_scales_verdict(rows),))


def _scales_verdict(rows: Sequence[tuple[str | int | float, ...]]) -> Verdict:
    """The list is of variances only if its square roots reach the budget."""
    bought = [float(row[4]) / float(row[0]) for row in rows]
    needed = ", ".join(f"{float(row[3]):.2f}" for row in rows)
    return verdict(
        "noise sigma^2 = 103, 46, 24, 12.5, 4.7 for epsilon .1, .25, .5, 1, 3 (V-C)",
        max(bought) <= 1.01,
        f"read as variances they cost {min(bought):.1f} to {max(bought):.1f} times the epsilon; the list is of "
        f"deviations, of which {needed} are needed",
    )


def _renyi_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The smallest sigma whose Renyi curve converts to the budget by the paper's Theorem I.1, over all orders."""
    orders = 1.0 + np.geomspace(1e-3, 1e4, 20_000)
    convert = np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)

    def excess(sigma: float) -> float:
        return float(np.min(orders * sensitivity**2 / (2.0 * sigma**2) + convert)) - epsilon

    return float(brentq(excess, 1e-2, 1e5))
