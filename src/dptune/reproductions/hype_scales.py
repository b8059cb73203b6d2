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
    return Table(title, columns, rows, notes, (_scales_verdict(rows), _listed_verdict(rows), selection_verdict()))


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


def _listed_verdict(rows: Sequence[tuple[str | int | float, ...]]) -> Verdict:
    """Theorem III.1 with Theorem I.1 gives the list, up to rounding, if it is one of deviations."""
    ratios = [float(row[1]) / float(row[2]) for row in rows]
    return verdict(
        "k votes have Renyi divergence alpha k / sigma^2 (Theorem III.1), from which the noise follows",
        all(abs(ratio - 1.0) < 0.05 for ratio in ratios),
        f"the list is {min(ratios):.3f} to {max(ratios):.3f} times the deviations that follow (alike is read as 5 %)",
    )


def selection_verdict(bad: int = 95, good: int = 5, repetitions: int = 20_000) -> Verdict:
    """Theorem IV.1: the vote finds a good candidate at least as often as its bound says, for several gaps."""
    rng, held = np.random.default_rng(0), []
    for gap in (
        1.5,
        2.0,
        3.0,
        4.0,
        5.0,
        6.0,
    ):  # in units of the deviation; as few votes for good ones as the gap allows
        noise = rng.standard_normal((repetitions, good + bad))
        noise[:, :good] += gap
        found = float((noise.argmax(axis=1) < good).mean())
        bound = 1.0 - bad / (gap * math.sqrt(math.pi)) * math.exp(-(gap**2) / 4.0)
        held.append((gap, found, max(bound, 0.0)))
    error = 3.0 * 0.5 / math.sqrt(repetitions)
    return verdict(
        "the vote finds a good candidate with at least a probability that grows with the gap in votes (Theorem IV.1)",
        all(found >= bound - error for _, found, bound in held),
        f"simulated and bound, {good} good and {bad} bad, by gap over deviation: "
        + ", ".join(f"{gap:g}: {found:.3f} and {bound:.3f}" for gap, found, bound in held),
    )


def _renyi_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The smallest sigma whose Renyi curve converts to the budget by the paper's Theorem I.1, over all orders."""
    orders = 1.0 + np.geomspace(1e-3, 1e4, 20_000)
    convert = np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)

    def excess(sigma: float) -> float:
        return float(np.min(orders * sensitivity**2 / (2.0 * sigma**2) + convert)) - epsilon

    return float(brentq(excess, 1e-2, 1e5))
