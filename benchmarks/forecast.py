"""The constants of the planner's forecast, fitted on public landscapes and scored on the data set that was left out.

    python benchmarks/forecast.py [--keep benchmarks/landscapes.jsonl] [--simulate 400]

Reads the table of ``benchmarks/landscapes.py`` and trains nothing. Fitted are, data set by data set:

* bowl: accuracy lost for each square octave from the best way, on all records
* flatter: how much flatter that is on all records than on a fifth of them (a share)
* restless: the deviation of a training's own score on a part, times the root of the records it saw
* hunger: accuracy lost when noise grows e-fold

A constant for X is the median over the others. It predicts what tuning on a fifth of X loses against X's best way; the
realised loss is that of simulated tuning runs on X's own measured landscape: ways drawn from what the planner tries (a
quarter of the rule to four times the rule), scores of the fifth with their measured spread, the winner's accuracy on
everything. Both are printed, as losses and as accuracies.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dptune.accounting import NegativeBinomial
from dptune.planner import forecast as model

if TYPE_CHECKING:
    from benchmarks.landscapes import EPSILON, KEEP, SETS, SHORT, UNIT, WAYS, Row, read
else:  # a script's own folder is where it looks first
    from landscapes import EPSILON, KEEP, SETS, SHORT, UNIT, WAYS, Row, read

PART = 0.2
RUNS = NegativeBinomial(5.0, 20)
_PACES = np.array([*SHORT, *WAYS])
_OCTAVES = np.log2(_PACES)
_WIDE = 2.0  # octaves to either side of the rule that are tried
_STEPS, _CLIP = 400, 0.1


@dataclass(frozen=True)
class Constants:
    """Those of :mod:`dptune.planner.forecast` that landscapes can tell."""

    bowl: float
    flatter: float
    restless: float
    hunger: float


def curve(rows: Sequence[Row], name: str, *, part: float = 1.0, noise: float = 1.0) -> NDArray[np.float64]:
    """Accuracy by way; the mean over repetitions."""
    found = [
        [row.accuracy for row in rows if _matches(row, name, part, noise) and row.cell.pace == way] for way in _PACES
    ]
    return np.array([float(np.mean(values)) if values else math.nan for values in found])


def _matches(row: Row, name: str, part: float, noise: float) -> bool:
    cell = row.cell
    wanted = (name, _STEPS, _CLIP, part, noise)
    return (cell.data, cell.steps, cell.clip, cell.part, cell.noise) == wanted


def steepness(values: NDArray[np.float64]) -> float:
    """Accuracy lost per square octave within two of the best way: least squares through the best."""
    octaves = _OCTAVES - _OCTAVES[int(np.argmax(values))]
    near = np.abs(octaves) <= _WIDE
    return float(np.sum((values.max() - values[near]) * octaves[near] ** 2) / np.sum(octaves[near] ** 4))


def rule(records: float) -> float:
    """The middle of what the planner tries, in octaves."""
    ratio = EPSILON * records / 60_000
    return math.log2(3200 * min(ratio, math.sqrt(ratio)))


def spread(rows: Sequence[Row], name: str) -> tuple[float, float]:
    """The deviation of repeated scores on a part, and how many records were trained on."""
    same = [row for row in rows if _matches(row, name, PART, 1.0) and row.cell.pace == 3200.0]
    return float(np.std([row.accuracy for row in same], ddof=1)), float(same[0].records)


def fitted(rows: Sequence[Row], name: str) -> Constants:
    """The constants of one data set."""
    whole, part = curve(rows, name), curve(rows, name, part=PART)
    deviation, trained = spread(rows, name)
    noisy = [(math.log(noise), curve(rows, name, noise=noise).max()) for noise in (1.0, 1.5, 2.25)]
    falls = np.polyfit([one for one, _ in noisy], [two for _, two in noisy], 1)
    flatter = steepness(whole) / max(steepness(part), 1e-4)
    return Constants(steepness(whole), flatter, deviation * math.sqrt(trained), float(-falls[0]))


def median(found: Sequence[Constants]) -> Constants:
    """Constant by constant."""
    return Constants(*(float(np.median([getattr(one, field.name) for one in found])) for field in fields(Constants)))


def predicted(one: Constants, trained: float, tested: int) -> float:
    """What tuning on a part is expected to lose against the best way: choice and score, as the planner adds them."""
    edge = one.bowl * _WIDE**2
    ends = np.linspace(0.0, 1.0, 2001) ** 2
    missed = RUNS.generating(1.0 - (ends[1:] + ends[:-1]) / 2)
    choice = float(edge * np.sum(missed * np.diff(ends**2)))
    variance = model._DISAGREE / tested + one.restless**2 / trained
    return choice + min(1.0, one.flatter) * math.sqrt(variance)


def realised(rows: Sequence[Row], name: str, times: int) -> float:
    """What simulated tuning runs lose on the measured landscape."""
    rng = np.random.default_rng(3)
    whole, part = curve(rows, name), curve(rows, name, part=PART)
    deviation, trained = spread(rows, name)
    middle = rule(trained / PART)
    lost = []
    for _ in range(times):
        count = max(1, int(rng.negative_binomial(5, 5 / 25)))
        places = rng.uniform(middle - _WIDE, middle + _WIDE, count)
        scores = np.interp(places, _OCTAVES, part) + deviation * rng.normal(size=count)
        lost.append(whole.max() - float(np.interp(places[int(np.argmax(scores))], _OCTAVES, whole)))
    return float(np.mean(lost))


def main() -> None:
    """Print constants, predictions and what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, default=KEEP)
    parser.add_argument("--simulate", type=int, default=400)
    given = parser.parse_args()
    rows = read(given.keep)
    names = [name for name, (kind, _) in SETS.items() if kind == UNIT]
    names = [name for name in names if np.isfinite(curve(rows, name, noise=2.25)).all()]
    each = {name: fitted(rows, name) for name in names}
    print("data            bowl   flatter restless hunger")
    for name, one in [*each.items(), ("median", median(list(each.values())))]:
        print(f"{name:14} {one.bowl:.4f}  {one.flatter:.2f}   {one.restless:.3f}   {one.hunger:.4f}")
    hand = Constants(model._BOWL, model._FLATTER, model._RESTLESS, model._HUNGER)
    print(f"{'the planner':14} {hand.bowl:.4f}  {hand.flatter:.2f}   {hand.restless:.3f}   {hand.hunger:.4f}\n")
    print("left out        loss predicted without it  by the planner  realised;  accuracy predicted  realised")
    errors = []
    for name in names:
        trained, best = spread(rows, name)[1], curve(rows, name).max()
        tested = next(row.tested for row in rows if row.cell.data == name)
        others = median([one for key, one in each.items() if key != name])
        by = [predicted(one, trained, tested) for one in (others, hand)]
        real = realised(rows, name, given.simulate)
        errors.append([abs(value - real) for value in by])
        accuracy = f"{best - by[0]:.4f}{'':13} {best - real:.4f}"
        print(f"{name:14}  {by[0]:.4f}{'':20} {by[1]:.4f}{'':9} {real:.4f}{'':4} {accuracy}")
    mean = np.mean(errors, axis=0)
    print(f"mean error: {mean[0]:.4f} fitted without it, {mean[1]:.4f} with the planner's constants")


if __name__ == "__main__":
    main()
