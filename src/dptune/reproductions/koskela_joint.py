"""Koskela and Kulkarni's Figures 4 and 8 again: epochs, sampling rate and learning rate tuned together.

Every pair of sampling rate and epochs has the noise that makes one run cost a common target; the target is the one at
which the whole costs the total. Their way takes the largest Renyi curve of all candidates (Lemma 9); ours averages
profiles. One private training for each candidate is kept; what a Poisson number of draws releases follows exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq

from dptune._typing import Array
from dptune.accounting import Cost, DpSgd, Poisson, compose, disjoint, mixture, select, subsample, worst
from dptune.accounting.renyi import base_curve, disjoint_curve, epsilon_of, stopping_curve, subsampled_curve
from dptune.errors import InvalidInput
from dptune.reproductions._koskela_trainings import CLASSES, RATES, SHARE, SIZES, Training, Trainings
from dptune.reproductions.kept import Kept
from dptune.reproductions.koskela_tuning import DELTA, LEARNING_RATES, MEAN, METHODS, chances, plotted
from dptune.reproductions.progress import Progress, silent
from dptune.reproductions.table import Cell, Table, Verdict, verdict

__all__ = ["ADAM", "FULL", "SMALL", "Scale", "fig4", "fig8"]

_ORDERS = tuple(float(a) for a in range(2, 129))
_BATCHES = {"mnist": (128, 256), "fashion-mnist": (128, 256), "cifar-10": (64, 128), "imdb": (64, 128)}
"""Table 2: of the tuning subset."""
_EPOCHS = {
    "mnist": (10, 20, 30, 40),
    "fashion-mnist": (10, 20, 30, 40),
    "cifar-10": (20, 30, 40),
    "imdb": (70, 90, 110),
}
_LEVELS = np.geomspace(0.6, 40.0, 36)  # noise levels between which curves are interpolated

Pair = tuple[float, int]  # sampling rate, steps


@dataclass(frozen=True)
class Scale:
    """How much is trained: data sets, total, mean, records, the share of the paper's epochs, finals, whose accounts.

    MNIST's network is six times as slow as any other, and IMDB has more than twice the epochs: their share is half.
    """

    data: tuple[str, ...] = ("fashion-mnist", "cifar-10", "imdb", "mnist")
    total: float = 1.0
    mean: float = 45.0
    records: int = 20_000
    shrink: float = 0.1
    finals: int = 3
    accounts: tuple[str, ...] = ("paper", "ours")

    def pairs(self, data: str) -> list[tuple[float, float]]:
        """Sampling rates and epochs of these data."""
        return pairs(data, self.shrink * (0.5 if data in ("mnist", "imdb") else 1.0))


FULL, ADAM = Scale(), Scale(data=("fashion-mnist", "cifar-10"))
SMALL = Scale(data=("fashion-mnist",), records=6_000, shrink=0.05, finals=1, accounts=("paper",))


def pairs(data: str, shrink: float) -> list[tuple[float, float]]:
    """Sampling rates and epochs: the batches of Table 2 are those of the subset, as Table 1's rates say."""
    subset = SHARE * SIZES[data]
    return [(batch / subset, shrink * epochs) for batch, epochs in itertools.product(_BATCHES[data], _EPOCHS[data])]


# -- noise


@lru_cache(maxsize=64)
def _curves(pair: Pair) -> PchipInterpolator:
    """Renyi curves over the noise, both in logarithms, between levels that were computed."""
    rate, steps = pair
    logs = np.log([base_curve(DpSgd(rate, float(level), steps), _ORDERS) for level in _LEVELS])
    return PchipInterpolator(np.log(_LEVELS), logs, axis=0)


def curve(pair: Pair, noise: float) -> Array:
    """The Renyi curve at this noise."""
    return np.asarray(np.exp(_curves(pair)(math.log(noise))))


def noise_for(pair: Pair, target: float) -> float:
    """The noise at which one run costs the target, by Renyi divergences as in the paper."""

    def excess(log_noise: float) -> float:
        return epsilon_of(_ORDERS, curve(pair, math.exp(log_noise)), DELTA) - target

    return math.exp(float(brentq(excess, math.log(_LEVELS[0]), math.log(_LEVELS[-1]), xtol=1e-4)))


def _exactly(pair: Pair, noise: float) -> Array:
    """The Renyi curve at this noise, computed anew."""
    return base_curve(DpSgd(pair[0], noise, pair[1]), _ORDERS)


def _theirs(
    method: str,
    grid: Sequence[Pair],
    levels: Sequence[float],
    mean: float,
    one_run: Callable[[Pair, float], Array] = curve,
) -> float:
    one = np.max([one_run(pair, noise) for pair, noise in zip(grid, levels, strict=True)], axis=0)
    tuned = stopping_curve(_ORDERS, one, Poisson(mean))
    if method == "baseline":
        return epsilon_of(_ORDERS, tuned, DELTA)
    first = method == "variant 1"
    whole = disjoint_curve(tuned, one, SHARE) if first else subsampled_curve(tuned, SHARE) + one
    return epsilon_of(_ORDERS, whole, DELTA)


def _ours(method: str, grid: Sequence[Pair], levels: Sequence[float], mean: float) -> float:
    drawn = [DpSgd(rate, noise, steps) for (rate, steps), noise in zip(grid, levels, strict=True)]
    tuned = select(mixture([(1.0 / len(drawn), one) for one in drawn]), Poisson(mean))
    if method == "baseline":
        return tuned.epsilon(DELTA)
    last: Cost = worst(*drawn)  # the winner is not known beforehand
    whole = disjoint(tuned, last, SHARE) if method == "variant 1" else compose(subsample(tuned, SHARE), last)
    return whole.epsilon(DELTA)


def noises(method: str, who: str, grid: Sequence[Pair], total: float, mean: float) -> list[float]:
    """The noise of every pair, for the largest common target at which the whole stays within the total."""
    price = _theirs if who == "paper" else _ours

    def excess(log_target: float) -> float:
        levels = [noise_for(pair, math.exp(log_target)) for pair in grid]
        return price(method, grid, levels, mean) - total

    ends = [[epsilon_of(_ORDERS, curve(pair, level), DELTA) for pair in grid] for level in (_LEVELS[-1], _LEVELS[0])]
    low, high = math.log(1.01 * max(ends[0])), math.log(0.99 * min(ends[1]))
    if excess(high) <= 0.0:  # exact costs are below Renyi's: a target above the total may be within it
        raise InvalidInput(f"'total' {total:g} asks for less noise than {_LEVELS[0]:g}; take a smaller one.")
    place = float(brentq(excess, low, high, xtol=2e-3))
    levels = [noise_for(pair, math.exp(place)) for pair in grid]
    while (  # what lies between levels is only nearly right: never above the total
        _theirs(method, grid, levels, mean, _exactly) if who == "paper" else price(method, grid, levels, mean)
    ) > total:
        levels = [1.003 * level for level in levels]
    return levels


# -- trainings


@dataclass(frozen=True)
class _Released:
    """What a method releases in expectation."""

    accuracy: float
    seconds: float
    noise: float


def _released(
    trainings: Trainings, data: str, adam: bool, method: str, levels: Sequence[float], scale: Scale
) -> _Released:
    records, first = min(scale.records, SIZES[data]), "all" if method == "baseline" else "subset"
    cells = [
        Training(data, adam, first, round(noise, 3), rate, records, epochs, sampling)
        for (sampling, epochs), noise in zip(scale.pairs(data), levels, strict=True)
        for rate in LEARNING_RATES[data]
    ]
    seen = np.array([trainings.accuracy(cell) for cell in cells])
    each = float(np.mean([trainings.seconds(cell) for cell in cells]))
    law = Poisson(scale.mean)
    won = chances(seen, law)
    nothing = (1.0 - float(won.sum())) / CLASSES[data]
    if method == "baseline":
        return _Released(float(won @ seen) + nothing, scale.mean * each, float(np.mean(levels)))
    part, stretch = ("rest", (1.0 - SHARE) / SHARE) if method == "variant 1" else ("all", 1.0 / SHARE)
    best = np.argsort(-won)[: scale.finals]
    ends = [
        Training(data, adam, part, c.noise, c.rate * (1.0 if adam else stretch), records, c.epochs, c.sampling)
        for c in (cells[i] for i in best)
    ]
    got = np.array([trainings.accuracy(cell) for cell in ends])
    last = float(np.mean([trainings.seconds(cell) for cell in ends]))
    weights = won[best] / won[best].sum()
    accuracy = float(weights @ got) * float(won.sum()) + nothing
    return _Released(accuracy, scale.mean * each + last, float(np.mean(levels)))


def fig4(say: Callable[[str], None] = silent, *, scale: Scale = FULL, folder: Path | None = None) -> Table:
    """Accuracy and time of both variants and of the baseline at one total, all hyperparameters tuned, DP-SGD."""
    return _figure(4, False, say, scale, folder)


def fig8(say: Callable[[str], None] = silent, *, scale: Scale = ADAM, folder: Path | None = None) -> Table:
    """The same with DP-Adam; the learning rate is not scaled."""
    return _figure(8, True, say, scale, folder)


def _figure(number: int, adam: bool, say: Callable[[str], None], scale: Scale, folder: Path | None) -> Table:
    counted = sum(3 * len(LEARNING_RATES[d]) * len(scale.pairs(d)) + 2 * scale.finals for d in scale.data)
    trainings = Trainings(folder, Progress(len(scale.accounts) * counted, say))
    kept = Kept("koskela-noises", folder)
    rows: list[tuple[Cell, ...]] = []
    for data, who in itertools.product(scale.data, scale.accounts):
        sizes = scale.pairs(data)
        grid = [(rate, max(1, round(epochs / rate))) for rate, epochs in sizes]
        found = {}
        for method in METHODS:
            key = {"noises": method, "account": who, "grid": grid, "total": scale.total, "mean": scale.mean}
            levels = kept.get(key, lambda method=method, who=who, grid=grid: noises(  # type: ignore[misc]
                method, who, grid, scale.total, scale.mean))  # fmt: skip
            found[method] = _released(trainings, data, adam, method, levels, scale)
        quicker = found["baseline"].seconds / min(found["variant 1"].seconds, found["variant 2"].seconds)
        figures = [value for m in METHODS for value in (found[m].noise, found[m].accuracy)]
        rows.append((data, scale.total, who, *figures, quicker))
    return Table(
        f"Koskela and Kulkarni, Figure {number}: all hyperparameters tuned with {'DP-Adam' if adam else 'DP-SGD'}, "
        f"q = .1, Poisson {scale.mean:g}, delta 1e-5",
        ("data", "total", "account", *(f"{kind}{m}" for m in METHODS for kind in ("noise, ", "")), "time"),
        rows,
        (
            "noise: the mean over candidates; account: whose theorems set it; time: processor time of the baseline "
            "over that of the faster variant.",
            f"Cut: epochs are {scale.shrink:g} of Table 2's (MNIST and IMDB: half of that), {scale.records} "
            f"records, one training a candidate (paper: 10 runs), the final training for the {scale.finals} likeliest "
            "candidates; times leave out the test. Networks as in Figure 2. Learning rates and sampling rates (batches "
            "are those of the subset) are Table 2's. The paper's "
            "means for this figure are in its legends only; 45 is the one its text names.",
        ),
        (*_verdicts(rows, number), _against_figure_2(scale, kept)),
        plotted(rows),
    )  # fmt: skip


def _against_figure_2(scale: Scale, kept: Kept) -> Verdict:
    """At the paper's own sizes, without training: the noise of joint tuning and that of Figure 2, FashionMNIST."""
    grid = [(rate, round(epochs / rate)) for rate, epochs in pairs("fashion-mnist", 1.0)]
    alone = (RATES["fashion-mnist"], round(40 / RATES["fashion-mnist"]))
    found = {}
    for method in METHODS:
        key = {"mean noise": method, "total": scale.total, "mean": scale.mean}
        found[method] = kept.get(key, lambda method=method: [  # type: ignore[misc]
            float(np.mean(noises(method, "paper", grid, scale.total, scale.mean))),
            float(noises(method, "paper", [alone], scale.total, MEAN)[0]),
        ])  # fmt: skip
    return verdict(
        "noise levels are higher than in Figure 2 (section 5)",
        all(joint > single for joint, single in found.values()),
        f"FashionMNIST at the paper's sizes, total {scale.total:g}, mean {scale.mean:g} and {MEAN:g}, mean over "
        "candidates: "
        + ", ".join(f"{method} {joint:.2f} and {single:.2f}" for method, (joint, single) in found.items()),
    )


def _verdicts(rows: list[tuple[Cell, ...]], number: int) -> tuple[Verdict, ...]:
    paper = [row for row in rows if row[2] == "paper"]
    gains = [(float(row[6]) - float(row[4]), float(row[8]) - float(row[4])) for row in paper]
    said = ", ".join(f"{row[0]}: {row[4]:.3f}, {row[6]:.3f}, {row[8]:.3f}" for row in paper)
    smaller = [float(row[3]) / max(float(row[5]), float(row[7])) for row in paper]
    return (
        verdict(
            f"joint tuning: both variants give a better trade-off than the baseline (section 5, Figure {number})",
            all(min(pair) > 0.0 for pair in gains) if gains else None,
            f"accuracy of baseline, variant 1, variant 2 by the paper's accounting: {said}",
        ),
        verdict(
            f"joint tuning: both variants have a lower computational cost (section 5, Figure {number})",
            all(float(row[9]) > 1.0 for row in paper) if paper else None,
            f"ratio of processor times {', '.join(f'{float(row[9]):.2f} ({row[0]})' for row in paper)}; their count of "
            "gradient evaluations says 8 at mean 45",
        ),
        verdict(
            "variant 2 has a slightly better trade-off than variant 1 when all is tuned (section 5)",
            None,
            "differences of variant 2 and 1: "
            + ", ".join(f"{second - first:+.3f}" for first, second in gains)
            + "; one training a candidate cannot tell them apart",
        ),
        verdict(
            "the variants' noise is significantly smaller than the baseline's even at high means (Figures 7 and 8)",
            min(smaller) > 1.2 if smaller else None,
            f"the baseline's is {min(smaller):.2f} to {max(smaller):.2f} times the larger of theirs"
            if smaller
            else "the paper's account was not run",
        ),
    )
