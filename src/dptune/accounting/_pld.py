"""Composition of costs: privacy loss distributions of the parts, convolved, and read as a profile again.

The parts become outcomes on one uniform grid (``_dots``), their losses are added (``_convolution``), and the sum is a
table (``docs/theorems/compose.md``). What rounding and truncation may have hidden is added to an upper bound and taken
from a lower one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dptune.accounting._convolution import convolve, tilt
from dptune.accounting._dots import Pld, convex_minorant, dots_above, dots_below, even, floored
from dptune.accounting._recursion import smoothed
from dptune.accounting.profiles import ProfilePair, TableProfile

__all__ = ["compose_pairs"]

_EPS = float(np.finfo(float).eps)
_LOUD = 1e-9  # noise at loss 0 beyond which the sum is also taken without tilting
_CUT = 1e-17  # d below which one component's profile is cut, times its count
_SPREAD = 2e-4  # share by which the grid may inflate the variance of the total loss
_LARGEST = 2**22


def _profile_of(pld: Pld, upper: bool) -> TableProfile:
    """d(e) on the grid e >= 0, by a recursion whose terms are all positive."""
    positive = pld.masses[max(0, 1 - pld.first) :]
    offset = max(0, pld.first - 1)
    tail = np.cumsum(np.append(np.zeros(1), positive[::-1]))  # mass above, from the far end
    shrink = -math.expm1(-pld.step)
    values = smoothed(tail, shrink)[::-1]
    if offset:  # every loss is positive: extend the line back to 0
        lead = even(pld.step, offset)
        start = tail[-1] - (tail[-1] - values[0]) * np.exp(lead - pld.step * offset)
        values = np.concatenate([start, values])
    losses = even(pld.step, len(values))
    noise = np.exp(np.minimum(pld.log_noise - pld.tilt * losses, 0.0))  # beyond 1 nothing is known anyway
    hidden = pld.slack + noise + 4.0 * _EPS * len(values) * values
    if upper:
        return TableProfile(losses, np.minimum(values + pld.infinite + hidden, 1.0), pld.step)
    # The profile falls: where noise hides a small loss, what is proven at a larger one holds.
    proven = np.maximum.accumulate((np.minimum(values, 1.0) - hidden)[::-1])[::-1]
    return TableProfile(losses, convex_minorant(floored(proven), pld.step), pld.step)


def _better(one: TableProfile, two: TableProfile, upper: bool) -> TableProfile:
    """The better of two bounds on one profile, on the grid that reaches further."""
    longer, other = (one, two) if len(one.losses) >= len(two.losses) else (two, one)
    values = other.delta(longer.losses)
    if upper:
        return TableProfile(longer.losses, np.minimum(longer.values, values), longer.step)
    return TableProfile(longer.losses, convex_minorant(np.maximum(longer.values, values), longer.step), longer.step)


def _step(pairs: Sequence[tuple[ProfilePair, int]]) -> float:
    """A grid step that inflates the variance of the total loss by a share of about _SPREAD."""
    variance = 0.0
    for pair, n in pairs:
        end = max(pair.remove.end, pair.add.end, 1e-6)  # the grid covers both directions
        rough = min(end, 60.0) / 1500.0
        moment = dots_above(pair, rough, _CUT).moments[1]
        for _ in range(6):
            finer = math.sqrt(moment) / 4.0
            if rough <= finer or rough < 1e-7:
                break
            rough = max(finer, end / 400_000.0)
            moment = dots_above(pair, rough, _CUT).moments[1]
        variance += n * moment
    count = sum(n for _, n in pairs)
    step = math.sqrt(4.0 * _SPREAD * variance / max(count, 20))
    widest = max(max(p.remove.end, p.add.end) for p, _ in pairs)
    # The short side of a pair (adding a rarely sampled record) wants a few points too, within reason.
    shortest = min(min(p.remove.end, p.add.end) for p, _ in pairs)
    step = min(step, max(shortest / 4.0, step / 8.0))
    return max(step, widest / (_LARGEST / 4), 1e-9)


def compose_pairs(pairs: Sequence[tuple[ProfilePair, int]], upper: bool = True) -> ProfilePair:
    """The pair of the composition of independent mechanisms, from above or from below."""
    step = _step(pairs)
    dots = dots_above if upper else dots_below

    def one_way(sided: Sequence[tuple[ProfilePair, int]]) -> TableProfile:
        parts = [(dots(pair, step, _CUT / n), n) for pair, n in sided]
        if len(parts) == 1 and parts[0][1] == 1:
            return _profile_of(parts[0][0], upper)
        tilted = convolve(parts, tilt(parts))
        found = _profile_of(tilted, upper)
        if tilted.log_noise <= math.log(_LOUD):
            return found
        # The tail is readable, the losses near 0 are not: those from the law as it is.
        return _better(found, _profile_of(convolve(parts), upper), upper)

    remove = one_way(pairs)
    if all(pair.symmetric for pair, _ in pairs):
        return ProfilePair(remove, remove)
    return ProfilePair(remove, one_way([(pair.flip(), n) for pair, n in pairs]))
