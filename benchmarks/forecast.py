"""The constants of the planner's forecast, fitted on public landscapes and scored on the data set that was left out.

    python benchmarks/forecast.py [--keep benchmarks/landscapes.jsonl] [--simulate 2000]

Reads the table of ``benchmarks/landscapes.py`` and trains nothing. Fitted are, landscape by landscape:

* bowl: accuracy lost for each square octave from the best way, on all records
* flatter: how much flatter that is on all records than on a part of them (a share)
* restless: the deviation of a training's own score on a part, times the root of the records it saw
* hunger: accuracy lost when noise grows e-fold

Bowl and hunger are stated for 60,000 records at epsilon 1, by the planner's own law of scarcity. A constant for X is
the median over the landscapes of other data sets. It predicts what tuning on a part of X loses against X's best way,
and what the untuned rule loses. The realised loss is that of simulated tuning runs on X's own measured landscape: ways
drawn as the planner draws them, scores of the part with their measured spread, the winner's accuracy on everything.
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
from dptune.planner.expected import Outlook, scarcity
from dptune.planner.kinds import kind_named

if TYPE_CHECKING:
    from benchmarks.landscapes import EPSILON, KEEP, LARGE, LARGE_EPSILON, LARGE_PART, SETS, TABLE, UNIT, Row, read
else:  # a script's own folder is where it looks first
    from landscapes import EPSILON, KEEP, LARGE, LARGE_EPSILON, LARGE_PART, SETS, TABLE, UNIT, Row, read

MEANS = {UNIT: 20, LARGE: 60}  # about how many runs the planner asks for
PARTS = {UNIT: 0.2, LARGE: LARGE_PART}
EPSILONS = {UNIT: EPSILON, LARGE: LARGE_EPSILON}
CONSTANTS = {UNIT: 3200.0, LARGE: 2400.0}  # of the rule: planner/kinds.py
LONGER = {UNIT: 0.0, LARGE: math.log2(4 / 3)}  # octaves by which a way is longer on a part: methods/subset.py
_NEAR = 2.0  # octaves around the best way that the bowl is fitted to
_STEPS, _CLIP = 400, 0.1


@dataclass(frozen=True)
class Constants:
    """Those of :mod:`dptune.planner.forecast` that landscapes can tell."""

    bowl: float
    flatter: float
    restless: float
    hunger: float


@dataclass(frozen=True)
class Curve:
    """Accuracy by way, in octaves; the mean over repetitions."""

    octaves: NDArray[np.float64]
    values: NDArray[np.float64]

    def at(self, octaves: NDArray[np.float64]) -> NDArray[np.float64]:
        """Between what was measured, on straight lines."""
        return np.interp(octaves, self.octaves, self.values)

    @property
    def best(self) -> float:
        """The best measured accuracy."""
        return float(self.values.max())

    def bowl(self) -> float:
        """Accuracy lost per square octave near the best way: least squares through the best."""
        away = self.octaves - self.octaves[int(np.argmax(self.values))]
        near = np.abs(away) <= _NEAR
        return float(np.sum((self.best - self.values[near]) * away[near] ** 2) / np.sum(away[near] ** 4))


@dataclass(frozen=True)
class Landscape:
    """What was measured of one data set at one size."""

    name: str
    kind: str
    rows: tuple[Row, ...]

    def curve(self, *, part: float = 1.0, noise: float = 1.0) -> Curve | None:
        """Accuracy by way on everything or on a part; None where it was not measured."""
        found: dict[float, list[float]] = {}
        for row in self.rows:
            cell = row.cell
            if (cell.steps, cell.clip, cell.part, cell.noise) == (_STEPS, _CLIP, part, noise):
                found.setdefault(cell.pace, []).append(row.accuracy)
        ways = sorted(found)
        return Curve(np.log2(ways), np.array([np.mean(found[way]) for way in ways])) if ways else None

    @property
    def family(self) -> str:
        """The data set, whatever the size."""
        return self.name.removesuffix("-large")

    @property
    def records(self) -> int:
        """Of the whole."""
        return max(row.records for row in self.rows)

    @property
    def trained(self) -> int:
        """Of the part."""
        return min(row.records for row in self.rows)

    @property
    def tested(self) -> int:
        """How many records judge."""
        return self.rows[0].tested

    @property
    def scarcity(self) -> float:
        """How much more everything costs than with 60,000 records at epsilon 1."""
        return scarcity(self.records, EPSILONS[self.kind])

    @property
    def rule(self) -> float:
        """The middle of what the planner tries, in octaves."""
        ratio = EPSILONS[self.kind] * self.records / 60_000
        return math.log2(CONSTANTS[self.kind] * min(ratio, math.sqrt(ratio)))

    @property
    def deviation(self) -> float:
        """Of repeated scores on the part, way by way."""
        part = PARTS[self.kind]
        groups: dict[float, list[float]] = {}
        for row in self.rows:
            if (row.cell.steps, row.cell.clip, row.cell.part, row.cell.noise) == (_STEPS, _CLIP, part, 1.0):
                groups.setdefault(row.cell.pace, []).append(row.accuracy)
        again = [np.var(values, ddof=1) for values in groups.values() if len(values) > 2]
        return float(np.sqrt(np.mean(again)))

    def fitted(self) -> Constants | None:
        """The constants; None where noise was not measured."""
        whole, part = self.curve(), self.curve(part=PARTS[self.kind])
        noisy = [(math.log(noise), self.curve(noise=noise)) for noise in (1.0, 1.5, 2.25)]
        known = [(log, curve.best) for log, curve in noisy if curve is not None]
        if whole is None or part is None or len(known) < 2:
            return None
        falls = np.polyfit([log for log, _ in known], [best for _, best in known], 1)
        flatter = min(1.0, whole.bowl() / max(part.bowl(), 1e-4))
        restless = self.deviation * math.sqrt(self.trained)
        return Constants(whole.bowl() / self.scarcity, flatter, restless, float(-falls[0]) / self.scarcity)

    def predicted(self, one: Constants) -> tuple[float, float]:
        """What tuning on the part is expected to lose against the best way, and what the rule is."""
        octaves = math.log2(kind_named("image").spread)
        outlook = Outlook(octaves, one.bowl * self.scarcity * octaves**2, 0.0, one.flatter)
        deviation = math.sqrt(model._DISAGREE / self.tested + one.restless**2 / self.trained)
        return outlook.tuned(NegativeBinomial(5.0, MEANS[self.kind]), deviation), outlook.untuned

    def realised(self, times: int) -> tuple[float, float]:
        """What simulated tuning runs lose on the measured landscape, and what the rule does."""
        rng, kind = np.random.default_rng(3), kind_named("image")
        whole, part = self.curve(), self.curve(part=PARTS[self.kind])
        assert whole is not None
        assert part is not None
        octaves, far, lost = math.log2(kind.spread), math.log2(kind.width), []
        law, deviation = NegativeBinomial(5.0, MEANS[self.kind]), self.deviation
        for _ in range(times):
            count = law.sample(rng.random)
            places = self.rule + np.clip(octaves * rng.normal(size=count), -far, far)
            scores = part.at(places + LONGER[self.kind]) + deviation * rng.normal(size=count)
            chosen = places[int(np.argmax(scores))] if count else self.rule
            lost.append(whole.best - float(whole.at(np.array(chosen))))
        return float(np.mean(lost)), whole.best - float(whole.at(np.array(self.rule)))


def median(found: Sequence[Constants]) -> Constants:
    """Constant by constant."""
    return Constants(*(float(np.median([getattr(one, field.name) for one in found])) for field in fields(Constants)))


def main() -> None:
    """Print constants, predictions and what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, default=KEEP)
    parser.add_argument("--simulate", type=int, default=2000)
    given = parser.parse_args()
    rows = read(given.keep)
    lands = [
        Landscape(name, kind, tuple(row for row in rows if row.cell.data == name))
        for name, (kind, _) in SETS.items()
        if kind != TABLE and any(row.cell.data == name for row in rows)
    ]
    each = {land: found for land in lands if (found := land.fitted()) is not None}
    print(f"{'data':22} records  bowl   flatter restless hunger")
    for land, one in each.items():
        print(f"{land.name:22} {land.records:6}  {_shown(one)}")
    hand = Constants(model.BOWL, model.FLATTER, model._RESTLESS, model.HUNGER)
    print(f"{'median':22} {'':6}  {_shown(median(list(each.values())))}")
    print(f"{'the planner':22} {'':6}  {_shown(hand)}\n")
    print(f"{'left out':22} tuned: predicted without it, by the planner, realised;  untuned: the same")
    errors = []
    for land in each:
        others = median([one for other, one in each.items() if other.family != land.family])
        by, planner, real = land.predicted(others), land.predicted(hand), land.realised(given.simulate)
        errors.append([[abs(one - two) for one, two in zip(some, real, strict=True)] for some in (by, planner)])
        tuned, untuned = (f"{by[place]:.4f}  {planner[place]:.4f}  {real[place]:.4f}" for place in (0, 1))
        accuracy = f"predicted {_best(land) - by[0]:.4f}, realised {_best(land) - real[0]:.4f}"
        print(f"{land.name:22} {tuned};  {untuned};  accuracy when tuned: {accuracy}")
    mean = np.mean(errors, axis=0)
    print(f"mean error, tuned: {mean[0][0]:.4f} fitted without it, {mean[1][0]:.4f} with the planner's constants")
    print(f"mean error, untuned: {mean[0][1]:.4f} fitted without it, {mean[1][1]:.4f} with the planner's constants")


def _best(land: Landscape) -> float:
    whole = land.curve()
    assert whole is not None
    return whole.best


def _shown(one: Constants) -> str:
    return f"{one.bowl:.4f}  {one.flatter:.2f}   {one.restless:.3f}   {one.hunger:.4f}"


if __name__ == "__main__":
    main()
