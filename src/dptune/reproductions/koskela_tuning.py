"""Koskela and Kulkarni's Figures 2 and 3 again: learning-rate tuning on a subset, with DP-SGD and with DP-Adam.

One private training for each learning rate is cached, on all records and on the subset; what a Poisson number of
uniform draws releases then follows exactly. The paper's noise (their theorems) and ours (exact accounting) at the same
total stand side by side. Sizes are cut, and every cut is said in the notes. The data sets are public, so accuracies may
be shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from dptune._typing import Array
from dptune.accounting import Cost, DpSgd, Poisson, compose, disjoint, select, subsample
from dptune.accounting.calibrate import calibrate_noise
from dptune.accounting.renyi import base_curve, disjoint_curve, epsilon_of, stopping_curve, subsampled_curve
from dptune.reproductions._koskela_trainings import CLASSES, RATES, SHARE, SIZES, Training, Trainings
from dptune.reproductions.progress import Progress, silent
from dptune.reproductions.table import Cell, Plot, Table, Verdict, verdict

__all__ = ["FULL", "SMALL", "Scale", "chances", "fig2", "fig3", "plotted"]

DELTA, MEAN = 1e-5, 15.0
_ORDERS = tuple(float(a) for a in range(2, 129))
METHODS = ("baseline", "variant 1", "variant 2")
LEARNING_RATES = {  # Table 2
    "mnist": tuple(10.0**-i for i in (4, 3.5, 3, 2.5, 2, 1.5, 1, 0.5, 0)),
    "fashion-mnist": tuple(10.0**-i for i in (3, 2.5, 2, 1.5, 1, 0.5, 0, -0.5, -1, -1.5)),
    "cifar-10": tuple(10.0**-i for i in (3, 2.5, 2, 1.5, 1, 0.5, 0, -0.5, -1, -1.5)),
    "imdb": tuple(10.0**-i for i in (4, 3.5, 3, 2.5, 2, 1.5, 1, 0.5, 0)),
}


@dataclass(frozen=True)
class Scale:
    """How much is trained: data sets, totals, records, epochs (paper: 40; IMDB 110), and final trainings for each
    variant. MNIST's network is six times as slow as any other: it has epochs of its own (cut before any full run)."""

    data: tuple[str, ...] = ("fashion-mnist", "cifar-10", "imdb", "mnist")
    totals: tuple[float, ...] = (1.0,)
    records: int = 60_000
    epochs: int = 8
    finals: int = 3
    epochs_mnist: int = 2


FULL = Scale()
SMALL = Scale(data=("fashion-mnist", "mnist"), records=6_000, epochs=2, finals=1)


# -- noise


def _theirs(method: str, base: DpSgd) -> float:
    """Their epsilon of the whole: Theorem 5, Theorem 6 alone (as in the paper), and Theorem 4 with composition."""
    one = base_curve(base, _ORDERS)
    tuned = stopping_curve(_ORDERS, one, Poisson(MEAN))
    if method == "baseline":
        return epsilon_of(_ORDERS, tuned, DELTA)
    first = method == "variant 1"
    whole = disjoint_curve(tuned, one, SHARE) if first else subsampled_curve(tuned, SHARE) + one
    return epsilon_of(_ORDERS, whole, DELTA)


def _ours(method: str, base: DpSgd) -> Cost:
    tuned = select(base, Poisson(MEAN))
    if method == "baseline":
        return tuned
    return disjoint(tuned, base, SHARE) if method == "variant 1" else compose(subsample(tuned, SHARE), base)


def noises(total: float, steps: int, rate: float) -> dict[tuple[str, str], float]:
    """The noise of one run by method and by who accounts for it."""

    def base(noise: float) -> DpSgd:
        return DpSgd(rate, noise, steps)

    found = {}
    for method in METHODS:

        def excess(log_noise: float, method: str = method) -> float:
            return _theirs(method, base(math.exp(log_noise))) - total

        def whole(noise: float, method: str = method) -> Cost:
            return _ours(method, base(noise))

        found[method, "paper"] = math.exp(float(brentq(excess, math.log(0.5), math.log(50.0), xtol=1e-4)))
        found[method, "ours"] = calibrate_noise(whole, total, DELTA, tolerance=1e-3)
    return found


# -- what is released


def chances(accuracies: Array, runs: Poisson) -> Array:
    """The probability that each learning rate is released; what is missing to 1 is no run at all."""
    order = np.argsort(accuracies, kind="stable")
    n = len(order)
    won = np.empty(n)
    won[order] = runs.gain(np.arange(1, n + 1) / n, np.full(n, 1.0 / n))
    return won


@dataclass(frozen=True)
class _Released:
    """What a method releases in expectation, the processor seconds of the whole, and what the other rule for the final
    learning rate would release (Adam alone: multiplied as for SGD)."""

    accuracy: float
    seconds: float
    other: float = math.nan


def _released(trainings: Trainings, method: str, noise: float, like: Training, scale: Scale) -> _Released:
    grid = LEARNING_RATES[like.data]

    def cell(part: str, rate: float) -> Training:
        return replace(like, part=part, noise=round(noise, 4), rate=rate)

    part = "all" if method == "baseline" else "subset"
    tried = [cell(part, rate) for rate in grid]
    seen = np.array([trainings.accuracy(one) for one in tried])
    each = float(np.mean([trainings.seconds(one) for one in tried]))
    won = chances(seen, Poisson(MEAN))
    never, blind = 1.0 - float(won.sum()), 1.0 / CLASSES[like.data]  # no run at all: a guess
    if method == "baseline":
        return _Released(float(won @ seen) + never * blind, MEAN * each)
    final, stretch = ("rest", (1.0 - SHARE) / SHARE) if method == "variant 1" else ("all", 1.0 / SHARE)
    best = np.argsort(-won)[: scale.finals]
    weights = won[best] / won[best].sum()

    def ending(factor: float) -> tuple[float, float]:
        ends = [cell(final, grid[i] * factor) for i in best]
        got = np.array([trainings.accuracy(one) for one in ends])
        last = float(np.mean([trainings.seconds(one) for one in ends]))
        return float(weights @ got) * (1.0 - never) + never * blind, last

    accuracy, last = ending(1.0 if like.adam else stretch)
    other = ending(stretch)[0] if like.adam and method == "variant 2" else math.nan
    return _Released(accuracy, MEAN * each + last, other)


# -- tables


def _figure(number: int, adam: bool, scale: Scale, say: Callable[[str], None], folder: Path | None) -> Table:
    ends = (3 if adam else 2) * scale.finals
    counted = sum(2 * (3 * len(LEARNING_RATES[name]) + ends) for name in scale.data) * len(scale.totals)
    trainings = Trainings(folder, Progress(counted, say))
    rows: list[tuple[Cell, ...]] = []
    for name in scale.data:
        records, epochs = min(scale.records, SIZES[name]), scale.epochs_mnist if name == "mnist" else scale.epochs
        like = Training(name, adam, "all", 0.0, 0.0, records, epochs, RATES[name])
        for total in scale.totals:
            levels = noises(total, like.steps, RATES[name])
            for who in ("paper", "ours"):
                found = {m: _released(trainings, m, levels[m, who], like, scale) for m in METHODS}
                quicker = found["baseline"].seconds / min(found["variant 1"].seconds, found["variant 2"].seconds)
                figures = [value for m in METHODS for value in (levels[m, who], found[m].accuracy)]
                rows.append((name, total, who, *figures, quicker, *((found["variant 2"].other,) if adam else ())))
    columns = ("data", "total", "account", "noise base", "baseline", "noise v1", "variant 1", "noise v2", "variant 2",
               "time", *(("v2 scaled",) if adam else ()))  # fmt: skip
    return Table(
        f"Koskela and Kulkarni, Figure {number}: learning-rate tuning with {'DP-Adam' if adam else 'DP-SGD'}, q = .1, "
        "Poisson 15, delta 1e-5",
        columns,
        rows,
        (
            "Expected test accuracy of what is released; account: whose theorems set the noise at "
            "this total; time: processor time of the baseline over that of the faster variant"
            + ("; v2 scaled: variant 2 with its final learning rate multiplied as for DP-SGD." if adam else "."),
            f"Cut: {scale.epochs} epochs, MNIST {scale.epochs_mnist} (paper: 40; IMDB 110), at most "
            f"{scale.records} records, one training a cell (paper: 10 runs), the final training for the "
            f"{scale.finals} likeliest learning rates; times leave out the test; scores on at most "
            "10,000 records of the test set. No errors can be stated from one training a cell.",
            "Networks: Opacus' example (MNIST) and 120-120 (FashionMNIST), both with tanh; a last layer on oriented "
            "gradients for CIFAR-10 (the paper's ResNet20 trained on CIFAR-100 is not to be had) and on hashed words "
            "for IMDB (the paper: Opacus' network).",
        ),
        _verdicts(rows, adam),
        plotted(rows),
    )


def _verdicts(rows: list[tuple[Cell, ...]], adam: bool) -> tuple[Verdict, ...]:
    paper = [row for row in rows if row[2] == "paper"]
    gains = [(float(row[6]) - float(row[4]), float(row[8]) - float(row[4])) for row in paper]
    said = ", ".join(f"{row[0]} at {row[1]:g}: {row[4]:.3f}, {row[6]:.3f}, {row[8]:.3f}" for row in paper)
    found = [
        verdict(
            "both variants give a better privacy-utility trade-off than the baseline (section 5)",
            all(min(pair) > 0.0 for pair in gains),
            f"accuracy of baseline, variant 1, variant 2 by the paper's accounting: {said}",
        ),
        verdict(
            "both variants have a lower computational cost (section 5)",
            all(float(row[9]) > 1.0 for row in paper),
            "ratio of processor times " + ", ".join(f"{float(row[9]):.2f} ({row[0]})" for row in paper),
        ),
        _printed_time(paper, *(("fashion-mnist", 9.03, 3) if adam else ("cifar-10", 6.06, 2))),
        _noise(paper, 6 if adam else 5),
    ]
    if adam:
        return (*found, _fixed_rate(paper))
    ahead = ", ".join(f"{first - second:+.3f}" for first, second in gains)
    ratios = [float(row[9]) for row in paper]
    return (
        *found,
        verdict(
            "actual speed-ups are slightly smaller than the count of gradient evaluations, 6 (3.4)",
            max(ratios) < 6.0 and min(ratios) > 3.0,
            f"{min(ratios):.2f} to {max(ratios):.2f} (slightly is read as at least half of it)",
        ),
        verdict(
            "variant 1 is slightly more accurate than variant 2 with DP-SGD (section 5)",
            None,
            f"differences of variant 1 and 2: {ahead}; one training a cell cannot tell them apart",
        ),
    )


def _printed_time(paper: Sequence[tuple[Cell, ...]], data: str, printed: float, figure: int) -> Verdict:
    ratios = [float(row[9]) for row in paper if row[0] == data]
    return verdict(
        f"the baseline takes {printed} times as long on {data} (Figure {figure})",
        all(printed / 1.5 < ratio < printed * 1.5 for ratio in ratios) if ratios else None,
        f"{', '.join(f'{ratio:.2f}' for ratio in ratios)} times (alike is read as within a factor of 1.5); their count "
        "of gradient evaluations says 6"
        if ratios
        else "these data were not run",
    )


def _noise(paper: Sequence[tuple[Cell, ...]], figure: int) -> Verdict:
    """Columns 3, 5 and 7: noise of the baseline and of the variants."""
    return verdict(
        "the variants' noise is significantly smaller than the baseline's, and variant 1's is the smaller "
        f"(Figure {figure})",
        all(float(row[5]) < float(row[7]) < float(row[3]) / 1.2 for row in paper),
        "baseline, variant 1, variant 2: "
        + "; ".join(f"{row[3]:.2f}, {row[5]:.2f}, {row[7]:.2f} ({row[0]})" for row in paper)
        + " (significantly is read as a factor of 1.2)",
    )


def _fixed_rate(paper: Sequence[tuple[Cell, ...]]) -> Verdict:
    """Column 8 has variant 2 with the learning rate kept, column 10 with it multiplied."""
    more = [float(row[8]) - float(row[10]) for row in paper]
    return verdict(
        "with Adam, keeping the learning rate is better than multiplying it for the final training (3.2)",
        True if min(more) > 0.0 else False if max(more) <= 0.0 else None,
        "variant 2 with the kept rate minus with the multiplied one: "
        + ", ".join(f"{gain:+.3f} ({row[0]})" for gain, row in zip(more, paper, strict=True)),
    )


def plotted(rows: Sequence[tuple[Cell, ...]]) -> Plot:
    """Accuracy by method and account: over the totals, or over the data sets where there is one total."""
    names = list(dict.fromkeys(str(row[0]) for row in rows))
    single = len({row[1] for row in rows}) == 1
    series = {}
    for who in dict.fromkeys(row[2] for row in rows):
        picked = [row for row in rows if row[2] == who and (single or row[0] == names[0])]
        x = [float(names.index(str(row[0])) + 1) if single else float(row[1]) for row in picked]
        for name, column in (("baseline", 4), ("variant 1", 6), ("variant 2", 8)):
            series[f"{name}, {who}"] = (x, [float(row[column]) for row in picked])
    places = ", ".join(f"{place} {name}" for place, name in enumerate(names, 1))
    return Plot(f"data: {places}" if single else f"total epsilon ({names[0]})", "accuracy", series)


def fig2(say: Callable[[str], None] = silent, *, scale: Scale = FULL, folder: Path | None = None) -> Table:
    """Learning-rate tuning with DP-SGD."""
    return _figure(2, False, scale, say, folder)


def fig3(say: Callable[[str], None] = silent, *, scale: Scale = FULL, folder: Path | None = None) -> Table:
    """Learning-rate tuning with DP-Adam; the learning rate is not scaled."""
    return _figure(3, True, scale, say, folder)
