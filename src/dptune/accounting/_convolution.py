"""Sums of independent privacy losses by FFT, with a bound on what rounding and truncation may have hidden.

Laws are tilted towards large losses first, so that small tails keep their digits (``docs/theorems/compose.md``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from dptune._typing import Array
from dptune.accounting._dots import Pld

__all__ = ["convolve", "tilt"]


_TAIL = 1e-15  # probability of the tilted law allowed outside the window of a convolution, on each side
_TILT, _LIFT = 4.5, 10.0  # how unlikely (log) the tilted law's mean may be, and how much noise may grow at the mean
_EPS = float(np.finfo(float).eps)


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


def tilt(parts: Sequence[tuple[Pld, int]]) -> float:
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


def convolve(parts: Sequence[tuple[Pld, int]], rate: float = 0.0) -> Pld:
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
