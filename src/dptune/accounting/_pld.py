"""Privacy loss distributions on a uniform grid: the form in which costs compose.

``dots_above`` and ``dots_below`` turn a pair into outcomes whose losses are multiples of a step, with a
profile above or below the pair's (connect-the-dots, Doroshenko et al. 2022; ``docs/theorems/compose.md``).
Convolution by FFT follows, on laws that are tilted towards large losses so that small tails keep their digits; what
rounding and truncation may have hidden is bounded, added to an upper bound and taken from a lower one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.optimize import isotonic_regression

from dptune._typing import Array
from dptune.accounting.profiles import DirectedProfile, ProfilePair, TableProfile

__all__ = ["compose_pairs", "grid_below"]

_TAIL = 1e-15  # probability of the tilted law allowed outside the window of a convolution, on each side
_TILT, _LIFT = 4.5, 10.0  # how unlikely (log) the tilted law's mean may be, and how much noise may grow at the mean
_LOUD = 1e-9  # noise at loss 0 beyond which the sum is also taken without tilting
_EPS = float(np.finfo(float).eps)
_BELOW = 1e-11  # share by which values are lowered before their masses are read off: more than those lose
_CUT = 1e-17  # d below which one component's profile is cut, times its count
_SPREAD = 2e-4  # share by which the grid may inflate the variance of the total loss
_LARGEST = 2**22


@dataclass(frozen=True, eq=False)
class Pld:
    """P-probabilities of the losses (first + k) * step and of an infinite loss, and what they may be wrong by.

    The masses at and above a loss x, together, are known to within ``slack + exp(log_noise - tilt * x)``.
    """

    step: float
    first: int
    masses: Array
    infinite: float
    slack: float
    log_noise: float = -math.inf
    tilt: float = 0.0

    def losses(self) -> Array:
        return np.asarray(self.step * (self.first + np.arange(len(self.masses))), dtype=np.float64)

    @functools.cached_property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the finite part; a million points, asked for several times."""
        losses = self.losses()
        total = self.masses.sum()
        mean = float(self.masses @ losses / total)
        return mean, float(self.masses @ (losses - mean) ** 2 / total)


def _even(step: float, count: int) -> Array:
    """0, step, 2 step, ..."""
    return step * np.arange(count, dtype=np.float64)


def _points(directed: DirectedProfile, step: float, cut: float) -> int:
    """Number of grid points until the profile falls below ``cut`` or ends."""
    end = directed.end
    if float(directed.delta(np.array([end]))[0]) < cut:
        losses = np.linspace(0.0, end, 2000)
        end = float(losses[int(np.argmax(directed.delta(losses) <= cut))])
    return max(4, math.ceil(end / step) + 2)


def _values(pair: ProfilePair, step: float, cut: float) -> tuple[Array, Array]:
    """d at 0, step, 2 step, ... in both directions; they agree at 0."""
    ahead = pair.remove.delta(_even(step, _points(pair.remove, step, cut)))
    back = pair.add.delta(_even(step, _points(pair.add, step, cut)))
    ahead[0] = back[0] = min(ahead[0], back[0])
    return ahead, back


def _slopes(ahead: Array, back: Array, step: float) -> tuple[Array, Array]:
    """Q-mass above each interval, times exp(k step), ahead of 0; and its complement behind 0, outward."""
    above = np.append((ahead[:-1] - ahead[1:]) / math.expm1(step), 0.0)
    rest = np.append((back[:-1] - math.exp(-step) * back[1:]) / -math.expm1(-step), back[-1])
    return above, rest


def _sag(values: Array, step: float) -> Array:
    """The convex minorant (in exp(e)) of values on the grid; convex values come back unchanged.

    Its slopes are the antitonic regression of the slopes, weighted by the lengths of the intervals; values
    are rebuilt from the far end, where they are smallest, so that the tail keeps its digits.
    """
    left = np.exp(np.minimum(_even(step, len(values) - 1), 690.0))
    slopes = (values[:-1] - values[1:]) / (left * math.expm1(step))
    if np.all(slopes[1:] <= slopes[:-1] * (1.0 + 1e-13)):
        return values
    pooled = isotonic_regression(slopes, weights=left, increasing=False).x
    drops = np.maximum(pooled, 0.0) * left * math.expm1(step)
    rebuilt = values[-1] + np.append(np.cumsum(drops[::-1])[::-1], 0.0)
    return np.asarray(np.minimum(rebuilt, values))


def _convex(ahead: Array, back: Array, step: float) -> tuple[Array, Array]:
    """The values with a convex profile below them, joined at 0. Both bounds allow it: the truth is convex
    below an upper bound, and a minorant of a lower bound is a lower bound."""
    for _ in range(20):
        ahead, back = _sag(ahead, step), _sag(back, step)
        above, rest = _slopes(ahead[:2], back[:2], step)
        excess = above[0] + rest[0] - 1.0
        if excess <= 1e-16:
            break
        # Lower d(0) until the two slopes that meet there agree.
        ahead, back = ahead.copy(), back.copy()
        ahead[0] -= excess / (1.0 / math.expm1(step) - 1.0 / math.expm1(-step))
        back[0] = ahead[0]
    return ahead, back


def _pld(ahead: Array, back: Array, step: float, infinite: float) -> Pld:
    """The outcomes whose profile is piecewise linear in exp(e) with the given values."""
    ahead, back = _convex(ahead, back, step)
    above, rest = _slopes(ahead, back, step)
    p_ahead = above[:-1] * math.exp(step) - above[1:]
    with np.errstate(under="ignore"):
        p_back = np.exp(-_even(step, len(back))[1:]) * (rest[:-1] - rest[1:])
    masses = np.concatenate([p_back[::-1], [1.0 - rest[0] - above[0]], p_ahead])
    clipped = float(-masses[masses < 0.0].sum())
    return Pld(step, 1 - len(back), np.maximum(masses, 0.0), infinite, clipped)


def dots_above(pair: ProfilePair, step: float, cut: float) -> Pld:
    """Outcomes whose profile meets the pair's on the grid and is above it everywhere."""
    ahead, back = _values(pair, step, cut)
    made = _pld(ahead, back, step, float(ahead[-1]))
    return Pld(made.step, made.first, made.masses, made.infinite, 0.0)  # a clipped mass only raises it


def _lowered(pair: ProfilePair, step: float, cut: float) -> tuple[Array, Array]:
    """Values on the grid, convex, whose chords are nowhere above the pair's profile.

    A chord exceeds a convex function by at most the height of the triangle that the neighbouring chords
    make with it, so each value is lowered by the larger height beside it.
    """
    ahead, back = (values * (1.0 - _BELOW) for values in _values(pair, step, cut))
    above, rest = _slopes(ahead, back, step)
    grow, shrink = math.exp(step), math.exp(-step)
    before = np.concatenate([[1.0 - rest[0]], above[:-1]])
    before[1:] *= grow
    after = np.append(above[1:], 0.0) * shrink
    height = np.maximum(before - after, 0.0) * math.expm1(step) / 4.0
    # Behind 0 the same, in the mirrored profile's own scale.
    inner = np.concatenate([[1.0 - above[0]], rest[:-1]])
    outer = np.append(rest[1:], rest[-1])
    mirror = np.maximum(inner - outer, 0.0) * -math.expm1(-step) / 4.0
    low_ahead = ahead - np.maximum(height, np.concatenate([[mirror[0]], height[:-1]]))
    low_back = back - np.maximum(mirror, np.concatenate([[height[0]], mirror[:-1] * grow]))
    low_ahead[0] = low_back[0] = min(low_ahead[0], low_back[0])
    low_ahead, low_back = floored(low_ahead), floored(low_back)
    low_ahead[0] = low_back[0] = min(low_ahead[0], low_back[0])
    return _convex(low_ahead, low_back, step)


def dots_below(pair: ProfilePair, step: float, cut: float) -> Pld:
    """Outcomes whose profile is nowhere above the pair's (exact, or itself a convex lower bound)."""
    ahead, back = _lowered(pair, step, cut)
    return _pld(ahead, back, step, 0.0)


def floored(values: Array) -> Array:
    """A lower profile with zeros from one point before its first negative value: chords stay below."""
    negative = np.flatnonzero(values <= 0.0)
    result = values.copy()
    result[max(0, int(negative[0]) - 1) if len(negative) else len(values) - 1 :] = 0.0
    return result


def _binned(pld: Pld, sign: float) -> tuple[Array, Array]:
    """Losses and masses for a bound on moments: single points near the mean, bins of outcomes far from it,
    each bin standing at the end that makes the bound larger."""
    losses = pld.losses()
    mean, variance = pld.moments
    near = np.abs(losses - mean) <= 30.0 * math.sqrt(variance) + pld.step
    left, right = int(np.argmax(near)), len(near) - int(np.argmax(near[::-1]))
    if left + len(near) - right < 8192:
        return losses, pld.masses
    parts = [(losses[left:right], pld.masses[left:right])]
    for lo, hi in ((0, left), (right, len(losses))):
        if hi > lo:
            edges = np.unique(np.linspace(lo, hi, 2049).astype(np.int64))[:-1]
            ends = np.append(edges[1:], hi) - 1 if sign > 0 else edges
            parts.append((losses[ends], np.add.reduceat(pld.masses[lo:hi], edges - lo)))
    return np.concatenate([at for at, _ in parts]), np.concatenate([mass for _, mass in parts])


def _rates(parts: Sequence[tuple[Pld, int]], top: float) -> tuple[Array, float, float]:
    """Rates for moments exp(rate * loss) of the total, its mean, and its standard deviation plus one step."""
    mean = sum(n * p.moments[0] for p, n in parts)
    spread = math.sqrt(sum(n * p.moments[1] for p, n in parts)) + parts[0][0].step
    # Rare large losses want small rates, near-Gaussian sums rates of a few standard deviations.
    farthest = max(p.step * max(len(p.masses) + p.first, -p.first) for p, _ in parts)
    return np.geomspace(min(0.3 / spread, 3.0 / farthest), top / spread, 32), mean, spread


def _log_moments(parts: Sequence[tuple[Pld, int]], rates: Array, sign: float) -> Array:
    """An upper bound on log E exp(sign * rate * total loss) for each rate."""
    logs = np.zeros_like(rates)
    for pld, n in parts:
        losses, masses = _binned(pld, sign)
        exponent = sign * np.outer(rates, losses)
        top = exponent.max(axis=1)
        logs += n * (top + np.log(np.maximum(np.exp(exponent - top[:, None]) @ masses, 1e-300)))
    return logs


def _window(parts: Sequence[tuple[Pld, int]]) -> tuple[float, float]:
    """An interval that holds the total loss but for probability _TAIL on each side (Chernoff)."""
    rates, mean, spread = _rates(parts, 40.0)
    up, down = (float(np.min((_log_moments(parts, rates, sign) - math.log(_TAIL)) / rates)) for sign in (1.0, -1.0))
    return min(-down, mean - spread), max(up, mean + spread)


def _tilt(parts: Sequence[tuple[Pld, int]]) -> float:
    """The rate at which to tilt: the largest that leaves the body of the total loss readable beside its tail."""
    rates, mean, _ = _rates(parts, 12.0)
    logs = _log_moments(parts, rates, 1.0)
    # By convexity the tilted mean is at least the chord's slope; "unlikely" is the relative entropy of the tilted law.
    slopes = np.diff(logs, prepend=0.0) / np.diff(rates, prepend=0.0)
    unlikely, lift = rates * slopes - logs, logs - rates * mean
    fine = np.flatnonzero((unlikely <= _TILT) & (lift <= _LIFT))
    return float(rates[fine[-1]]) if len(fine) else 0.0


def _tilted(pld: Pld, rate: float) -> tuple[Pld, float]:
    """The law with masses times exp(rate * loss), scaled to mass 1, and the log of the scale."""
    exponent = rate * pld.losses()
    top = float(exponent[pld.masses > 0.0].max())
    with np.errstate(under="ignore"):
        masses = pld.masses * np.exp(np.minimum(exponent - top, 0.0))
    total = float(masses.sum())
    return Pld(pld.step, pld.first, masses / total, 0.0, 0.0), top + math.log(total)


def _spectrum(parts: Sequence[tuple[Pld, int]], size: int) -> tuple[NDArray[np.complex128], float]:
    """The transform of the law of the sum on a circle of ``size`` points, and the 2-norm of its error.

    A transform of masses that sum to 1 is wrong by at most ``unit`` in every entry (docs/theorems/compose.md); a power
    multiplies the relative error by its exponent.
    """
    unit = 5.0 * math.log2(size) * _EPS
    logs = np.zeros(size // 2 + 1, dtype=np.complex128)
    loose, share = np.zeros(len(logs)), np.zeros(len(logs))
    for pld, n in parts:
        folded = np.zeros(size)
        np.add.at(folded, (pld.first + np.arange(len(pld.masses))) % size, pld.masses)
        entries = fft.rfft(folded)
        height = np.abs(entries) + unit
        log = np.log(np.where(entries == 0.0, 1e-300, entries))
        logs += n * log
        loose += n * np.log(height)
        share += n * (unit / height + 8.0 * _EPS * (1.0 + np.abs(log)))
    wrong = np.exp(np.minimum(loose, 0.0)) * (np.minimum(share, 2.0) + unit)
    product = np.zeros(len(logs), dtype=np.complex128)
    seen = loose > -200.0
    product[seen] = np.exp(logs[seen])
    return product, math.sqrt(2.0) * float(np.linalg.norm(wrong))


def _convolve(parts: Sequence[tuple[Pld, int]], rate: float = 0.0) -> Pld:
    """The law of the sum of independent losses, each part taken as often as its count says, tilted at this rate."""
    step = parts[0][0].step
    infinite = -math.expm1(sum(n * math.log1p(-min(p.infinite, 1 - 1e-16)) for p, n in parts))
    slack = sum(n * p.slack for p, n in parts)
    scaled = [(*_tilted(pld, rate), n) for pld, n in parts]
    tilted = [(pld, n) for pld, _, n in scaled]
    lift = sum(n * log for _, log, n in scaled)
    low, high = _window(tilted)
    first = math.floor(low / step)
    size = int(fft.next_fast_len(math.ceil(high / step) - first + 1, real=True))
    product, wrong = _spectrum(tilted, size)
    summed = np.roll(fft.irfft(product, size), -(first % size))
    # Errors of the entries, and what the window left out or folded in, all of the tilted law; untilted at a loss x and
    # added up from there they are at most noise * exp(-rate x).
    summands = min(float(size), -1.0 / math.expm1(-2.0 * rate * step)) if rate > 0.0 else float(size)
    noise = wrong * math.sqrt(summands / size) + 2.0 * _TAIL
    losses = step * (first + np.arange(size))
    with np.errstate(under="ignore", divide="ignore", over="ignore"):
        masses = np.exp(np.log(np.maximum(summed, 0.0)) + lift - rate * losses)
    return Pld(step, first, np.minimum(masses, 1.0), infinite, slack, math.log(noise) + lift, rate)


def _profile_of(pld: Pld, upper: bool) -> TableProfile:
    """d(e) on the grid e >= 0, by a recursion whose terms are all positive."""
    from scipy.signal import lfilter  # noqa: PLC0415 - more than half of the time of 'import dptune', and workers need none

    positive = pld.masses[max(0, 1 - pld.first) :]
    offset = max(0, pld.first - 1)
    tail = np.cumsum(np.append(np.zeros(1), positive[::-1]))  # mass above, from the far end
    shrink = -math.expm1(-pld.step)
    values = np.asarray(lfilter([shrink], [1.0, shrink - 1.0], tail))[::-1]
    if offset:  # every loss is positive: extend the line back to 0
        lead = _even(pld.step, offset)
        start = tail[-1] - (tail[-1] - values[0]) * np.exp(lead - pld.step * offset)
        values = np.concatenate([start, values])
    losses = _even(pld.step, len(values))
    noise = np.exp(np.minimum(pld.log_noise - pld.tilt * losses, 0.0))  # beyond 1 nothing is known anyway
    hidden = pld.slack + noise + 4.0 * _EPS * len(values) * values
    if upper:
        return TableProfile(losses, np.minimum(values + pld.infinite + hidden, 1.0), pld.step)
    # The profile falls: where noise hides a small loss, what is proven at a larger one holds.
    proven = np.maximum.accumulate((np.minimum(values, 1.0) - hidden)[::-1])[::-1]
    return TableProfile(losses, _sag(floored(proven), pld.step), pld.step)


def _better(one: TableProfile, two: TableProfile, upper: bool) -> TableProfile:
    """The better of two bounds on one profile, on the grid that reaches further."""
    longer, other = (one, two) if len(one.losses) >= len(two.losses) else (two, one)
    values = other.delta(longer.losses)
    if upper:
        return TableProfile(longer.losses, np.minimum(longer.values, values), longer.step)
    return TableProfile(longer.losses, _sag(np.maximum(longer.values, values), longer.step), longer.step)


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
        tilted = _convolve(parts, _tilt(parts))
        found = _profile_of(tilted, upper)
        if tilted.log_noise <= math.log(_LOUD):
            return found
        # The tail is readable, the losses near 0 are not: those from the law as it is.
        return _better(found, _profile_of(_convolve(parts), upper), upper)

    remove = one_way(pairs)
    if all(pair.symmetric for pair, _ in pairs):
        return ProfilePair(remove, remove)
    return ProfilePair(remove, one_way([(pair.flip(), n) for pair, n in pairs]))


def grid_below(pair: ProfilePair, few: bool = False) -> tuple[TableProfile, TableProfile]:
    """One pair of grid profiles below the given one, which is exact or a convex lower bound itself.

    ``few`` asks for at most a thousand points a side, for use inside other sums.
    """
    ahead, back = pair.remove, pair.add
    if isinstance(ahead, TableProfile) and isinstance(back, TableProfile):
        short = len(ahead.losses) + len(back.losses) <= 2000
        if short or not few:
            return ahead, back
    step = max(pair.remove.end, pair.add.end, 1e-6) / (900.0 if few else 6000.0)
    low_ahead, low_back = _lowered(pair, step, 1e-17)
    return (
        TableProfile(_even(step, len(low_ahead)), low_ahead, step),
        TableProfile(_even(step, len(low_back)), low_back, step),
    )
