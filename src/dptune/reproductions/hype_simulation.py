"""DP-Hype's Figure 2 again, all three panels: what the number of votes does to simulated clients.

Losses of good candidates are N(0, s^2), of bad ones N(1, s^2), 250 clients, as in the paper; noise is the exact one,
slightly less than the paper's. Every panel repeats ``hype.hype_fig2`` over its own axis and judges what the text says
of it. No data is touched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from dptune.reproductions.hype import hype_fig2
from dptune.reproductions.progress import Progress, silent
from dptune.reproductions.table import Cell, Plot, Table, Verdict, verdict

__all__ = ["fig2a", "fig2b", "fig2c"]

_VOTES = (1, 5, 10, 25, 100)
_EPSILONS = (0.25, 1.0)
_AT_ONCE = 10_000_000  # losses drawn at a time, to bound memory

Found = Mapping[tuple[float, int, float], float]  # (place on the axis, votes, epsilon) -> success


def _success(
    places: Sequence[tuple[float, int, int, float]], repetitions: int, say: Callable[[str], None]
) -> dict[tuple[float, int, float], float]:
    """Success rates at (place, candidates, good, deviation)."""
    progress = Progress(len(places), say)
    found: dict[tuple[float, int, float], float] = {}
    for place, candidates, good, deviation in places:
        batch = max(1, min(repetitions, _AT_ONCE // (250 * candidates)))
        rounds = math.ceil(repetitions / batch)
        for seed in range(rounds):
            part = hype_fig2(candidates=candidates, good=good, deviation=deviation, repetitions=batch, seed=seed)
            for row in part.as_dicts():
                key = (place, int(row["votes"]), float(row["epsilon"]))
                found[key] = found.get(key, 0.0) + float(row["success"]) / rounds
        progress.done(f"{place:g}")
    return found


def _finished(
    panel: str, axis: str, places: Sequence[float], found: Found, repetitions: int, verdicts: tuple[Verdict, ...]
) -> Table:
    columns = (axis, "epsilon", *(f"k = {k}" for k in _VOTES))
    rows: list[tuple[Cell, ...]] = [(p, e, *(found[p, k, e] for k in _VOTES)) for e in _EPSILONS for p in places]
    series = {f"k = {k}": (list(places), [found[p, k, 0.25] for p in places]) for k in _VOTES}
    worst = 0.5 / math.sqrt(repetitions)
    return Table(
        f"DP-Hype, Figure 2{panel}: how often the vote finds a good candidate, 250 clients, delta 1e-5",
        columns,
        rows,
        (
            f"{repetitions} repetitions (paper: 5000): standard errors below {worst:.3f}. The same "
            f"draws serve every place. "
            "Where the text does not list the places on the axis, they were chosen here.",
        ),
        verdicts,
        Plot(axis, "success at epsilon 0.25", series, log_x=panel != "a"),
    )


def fig2a(
    say: Callable[[str], None] = silent,
    *,
    deviations: Sequence[float] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5),
    repetitions: int = 1000,
) -> Table:
    """Overlap of good and bad losses: 5 good of 100."""
    found = _success([(s, 100, 5, s) for s in deviations], repetitions, say)
    noise = 3.0 * 0.5 / math.sqrt(repetitions)
    wide = [s for s in deviations if found[s, 1, 0.25] < 0.9]
    gains = [max(found[s, k, 0.25] for k in (5, 10)) - found[s, 1, 0.25] for s in wide]
    all_votes = [found[s, 100, e] for s in deviations for e in _EPSILONS]
    trade = [found[s, 25, 1.0] - found[s, 25, 0.25] for s in deviations]
    first = deviations[0]
    ks = [k for k in _VOTES if k < 100]
    tops = {s: max(range(len(ks)), key=lambda i, s=s: found[s, ks[i], 0.25]) for s in deviations}  # type: ignore[misc]
    beside = [found[s, ks[i], 0.25] - found[s, ks[j], 0.25] for s, i in tops.items() for j in (i - 1, i + 1)
              if 0 <= j < len(ks)]  # fmt: skip
    return _finished(
        "a",
        "deviation",
        deviations,
        found,
        repetitions,
        (
            verdict("larger k improves accuracy when the overlap increases (section IV-B)",
                    bool(gains) and max(gains) > noise and min(gains) > -noise,
                    f"k = 5 or 10 against k = 1 at epsilon .25, where k = 1 misses a tenth: {_span(gains)}"),
            verdict("k = 100 drops nearly to zero (section IV-B)", max(all_votes) < 0.05 + noise,
                    f"{_span(all_votes, plus=False)}: a blind guess has .05"),
            verdict("the trade-off manifests only for very small epsilon (section IV-B)",
                    min(found[first, k, 1.0] for k in (1, 5, 10, 25)) > 0.99,
                    f"at epsilon 1 every k up to 25 succeeds at deviation {first:g}; from .25 to 1 k = 25 gains "
                    f"{_span(trade)}"),
            verdict("a k that is slightly off the best decreases utility only slightly (section IV-B)",
                    max(beside) < 0.1,
                    f"the neighbours of the best k among 1, 5, 10, 25 at epsilon .25 lose {_span(beside, plus=False)} "
                    "(slightly is read as .1)"),
        ),
    )  # fmt: skip


def fig2b(
    say: Callable[[str], None] = silent,
    *,
    goods: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    repetitions: int = 1000,
) -> Table:
    """How many of 100 candidates are good."""
    found = _success([(float(g), 100, g, 0.2) for g in goods], repetitions, say)
    noise = 3.0 * 0.5 / math.sqrt(repetitions)
    guess = [found[g, 100, e] - g / 100 for g in goods for e in _EPSILONS]
    rises = found[goods[-1], 25, 0.25] - found[goods[0], 25, 0.25]
    before = max(found[g, 1, 0.25] for g in goods if g <= 4)
    dip = min(found[g, 1, 0.25] for g in goods if g > 4)
    five = [[found[g, 5, 0.25] for g in goods if (g > 16) == late] for late in (False, True)]
    less = max(five[0]) - min(five[1]) if five[1] else math.nan
    return _finished(
        "b",
        "good",
        [float(g) for g in goods],
        found,
        repetitions,
        (
            verdict("for k = 100 the accuracy does not exceed random guessing (section IV-B)",
                    max(map(abs, guess)) < noise, f"difference to guessing {_span(guess)}"),
            verdict("larger k only perform well for a growing number of good candidates (section IV-B)", rises > 0.2,
                    f"k = 25 at epsilon .25: {found[goods[0], 25, 0.25]:.3f} with {goods[0]} good, "
                    f"{found[goods[-1], 25, 0.25]:.3f} with {goods[-1]}"),
            verdict("there is a dip around k = 1 with more than 4 good candidates (section IV-B)", before - dip > noise,
                    f"k = 1 at epsilon .25 is {before:.3f} at best up to 4 good ones and {dip:.3f} at worst beyond"),
            verdict("the dip is slightly smaller for k = 5 with more than 16 good candidates (section IV-B)",
                    None if math.isnan(less) else noise < less < before - dip,
                    f"k = 5 at epsilon .25 falls by {less:.3f} beyond 16 good ones, k = 1 by {before - dip:.3f}"),
        ),
    )  # fmt: skip


def fig2c(
    say: Callable[[str], None] = silent,
    *,
    candidates: Sequence[int] = (100, 300, 900, 2700),
    repetitions: int = 300,
) -> Table:
    """How many candidates there are, 5 of them good."""
    found = _success([(float(p), p, 5, 0.2) for p in candidates], repetitions, say)
    noise = 3.0 * 0.5 / math.sqrt(repetitions)
    lost = {k: found[candidates[0], k, 1.0] - min(found[p, k, 1.0] for p in candidates) for k in _VOTES}
    small = {k: found[candidates[0], k, 0.25] - found[candidates[-1], k, 0.25] for k in _VOTES if k < 100}
    aligned = [found[p, 5, 0.25] for p in candidates]
    hundred = [found[p, 100, 1.0] for p in candidates]
    pairs = list(itertools.pairwise(_VOTES))
    worse = [(p, k) for p in candidates for k, more in pairs if found[p, k, 0.25] < found[p, more, 0.25] - noise]
    return _finished(
        "c",
        "candidates",
        [float(p) for p in candidates],
        found,
        repetitions,
        (
            verdict("at epsilon 1 only k = 100 is noticeably affected by the number of candidates (section IV-B)",
                    all(lost[k] <= noise for k in _VOTES if k < 100) and max(hundred) - min(hundred) > noise,
                    f"largest loss against {candidates[0]} candidates: "
                    + ", ".join(f"k = {k} {loss:.3f}" for k, loss in lost.items())
                    + f"; k = 100 runs from {min(hundred):.3f} to {max(hundred):.3f}"),
            verdict("the trade-off is largely independent of the number of candidates (section IV-B, Figure 2)",
                    max(small.values()) < 0.1 + noise,
                    f"from {candidates[0]} to {candidates[-1]} candidates at epsilon .25 success falls by "
                    + ", ".join(f"{loss:.3f} (k = {k})" for k, loss in small.items())),
            verdict("for smaller budgets a smaller k is preferable (section IV-B)", not worse,
                    "at epsilon .25 k = 1, 5, 10, 25, 100 succeed with "
                    + "; ".join(", ".join(f"{found[p, k, 0.25]:.3f}" for k in _VOTES) + f" ({p} candidates)"
                                for p in candidates)),
            verdict("if k equals the number of good candidates accuracy does not decrease at all (section IV-B)",
                    max(aligned) - min(aligned) <= noise, f"k = 5 at epsilon .25: {_span(aligned, plus=False)}"),
        ),
    )  # fmt: skip


def _span(values: Sequence[float], plus: bool = True) -> str:
    sign = "+" if plus else ""
    return f"{min(values):{sign}.3f} to {max(values):{sign}.3f}" if values else "none"
