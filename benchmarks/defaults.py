"""Where the defaults come from: settings chosen on public data sets, each scored on a data set that did not choose.

    python benchmarks/defaults.py [--keep benchmarks/landscapes.jsonl]

Reads the table that ``benchmarks/landscapes.py`` made (its sizes and epsilon are printed) and trains nothing. For every
data set X the settings are chosen that do best on the *other* data sets of its kind, by the mean of what they lose
against the best settings of each; then X's accuracy with them is printed, beside that of the defaults in
:mod:`dptune.planner` and that of the best settings for X, which only somebody who looked at X could have chosen. The
rule for the way is scored in the same manner: its one constant is the median over the other data sets and their fifths.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarks.landscapes import EPSILON, KEEP, SETS, TABLE, UNIT, Row, read
else:  # a script's own folder is where it looks first
    from landscapes import EPSILON, KEEP, SETS, TABLE, UNIT, Row, read

Setting = tuple[int, float, float]  # steps, clip norm, way or learning rate
DEFAULTS: dict[str, Setting] = {UNIT: (400, 0.1, 3200.0), TABLE: (300, 1.0, 0.02)}  # planner/kinds.py, defaults.py
_TRAVEL, _USUAL = DEFAULTS[UNIT][2], 60_000  # planner/kinds.py
Landscape = dict[Setting, float]


def landscape(rows: Sequence[Row], name: str) -> Landscape:
    """Accuracy by setting, on all records with the noise of the budget."""
    whole = [row for row in rows if row.cell.data == name and row.cell.part == 1.0 and row.cell.noise == 1.0]
    found: dict[Setting, list[float]] = {}
    for row in whole:
        found.setdefault((row.cell.steps, row.cell.clip, row.cell.pace), []).append(row.accuracy)
    return {setting: float(np.mean(values)) for setting, values in found.items()}


def chosen_without(lands: dict[str, Landscape], name: str) -> tuple[Setting, float] | None:
    """The setting with the least mean loss on the other data sets, and that loss; None where there are no others."""
    others = [land for key, land in lands.items() if key != name]
    if not others:
        return None
    shared = set.intersection(*(set(land) for land in others)) & set(lands[name])
    loss = {one: float(np.mean([max(land.values()) - land[one] for land in others])) for one in shared}
    best = min(sorted(loss), key=lambda one: loss[one])
    return best, loss[best]


def report(rows: Sequence[Row], kind: str) -> list[tuple[str, Setting, float, float, float]]:
    """For every data set of a kind: what others choose, and accuracy with it, with the default and at best."""
    names = [name for name, (one, _) in SETS.items() if one == kind]
    lands = {name: land for name in names if (land := landscape(rows, name))}
    made = []
    for name, land in lands.items():
        found = chosen_without(lands, name)
        if found is not None:
            usual = DEFAULTS[TABLE] if kind == TABLE else _by_rule(rows, name, land)
            made.append((name, found[0], land[found[0]], land[usual], max(land.values())))
    return made


def _by_rule(rows: Sequence[Row], name: str, land: Landscape) -> Setting:
    """The measured setting that is nearest to the rule's."""
    steps, clip, constant = DEFAULTS[UNIT]
    wanted = constant * plenty(max(row.records for row in rows if row.cell.data == name))
    known = [pace for one, other, pace in land if (one, other) == (steps, clip)]
    return steps, clip, min(known, key=lambda pace: abs(math.log(pace / wanted)))


def plenty(records: int) -> float:
    """What the rule in planner/kinds.py multiplies its constant with."""
    ratio = EPSILON * records / _USUAL
    return min(ratio, math.sqrt(ratio))


def ways(rows: Sequence[Row], name: str) -> list[tuple[int, list[float], list[float]]]:
    """Ways and accuracies with the usual steps and clip norm: on everything, and on a fifth as a data set by itself."""
    made = []
    for part in (1.0, 0.2):
        found: dict[float, list[float]] = {}
        some = [row for row in rows if (row.cell.data, row.cell.part, row.cell.noise) == (name, part, 1.0)]
        some = [row for row in some if (row.cell.steps, row.cell.clip) == DEFAULTS[UNIT][:2]]
        for row in some:
            found.setdefault(part * row.cell.pace, []).append(row.accuracy)
        if found:
            order = sorted(found)
            made.append((some[0].records, order, [float(np.mean(found[way])) for way in order]))
    return made


def constants(rows: Sequence[Row], name: str) -> list[float]:
    """The constants with which the rule gives each size of a data set its best way."""
    return [order[int(np.argmax(values))] / plenty(records) for records, order, values in ways(rows, name)]


def peak(order: Sequence[float], values: Sequence[float]) -> float:
    """The best way, in octaves: the top of the parabola through the best measured one and its neighbours."""
    octaves, best = np.log2(order), int(np.argmax(values))
    if best in (0, len(values) - 1):
        return float(octaves[best])
    near = slice(best - 1, best + 2)
    bend, slope, _ = np.polyfit(octaves[near], np.asarray(values)[near], 2)
    return float(-slope / (2 * bend))


def rule(rows: Sequence[Row]) -> None:
    """Print, for each data set and size, the accuracy by the rule with a constant that was fitted without it."""
    names = [name for name, (kind, _) in SETS.items() if kind == UNIT and ways(rows, name)]
    each = {name: constants(rows, name) for name in names}
    lost, far = [], []
    for name in names:
        others = [np.log(value) for key, values in each.items() if key != name for value in values]
        fitted = float(np.exp(np.median(others)))
        for records, order, values in ways(rows, name):
            by = [float(np.interp(np.log(c * plenty(records)), np.log(order), values)) for c in (fitted, _TRAVEL)]
            by.append(float(np.interp(np.log(_TRAVEL * math.sqrt(EPSILON)), np.log(order), values)))
            lost.append([max(values) - one for one in by])
            far.append(peak(order, values) - math.log2(fitted * plenty(records)))
            print(
                f"{name:14} {records:5} records: constant without it {fitted:5.0f} {by[0]:.3f}  default {by[1]:.3f}  "
                f"a way that does not know the records {by[2]:.3f}  best {max(values):.3f}, "
                f"{far[-1]:+.1f} octaves away"
            )
    mean = np.mean(lost, axis=0)
    print(f"mean loss against the best: {mean[0]:.4f} without it, {mean[1]:.4f} default, {mean[2]:.4f} not knowing")
    usual = float(np.sqrt(np.mean(np.square(far))))
    print(f"the best way is usually {usual:.2f} octaves from the rule without it: a factor of {2**usual:.2f}")


def main() -> None:
    """Print a line for every data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, default=KEEP)
    rows = read(parser.parse_args().keep)
    sizes = {row.cell.data: max(one.records for one in rows if one.cell.data == row.cell.data) for row in rows}
    print(f"epsilon {EPSILON:g}; records: " + ", ".join(f"{name} {size}" for name, size in sizes.items()))
    for kind, word in ((UNIT, "way"), (TABLE, "learning rate")):
        steps, clip, pace = DEFAULTS[kind]
        said = f"{word} {pace:g}" if kind == TABLE else "the measured way that is nearest to the rule below"
        print(f"\n{kind}: the default is {steps} steps, clip norm {clip:g}, {said}")
        losses = []
        for name, setting, without, usual, best in report(rows, kind):
            said = f"{setting[0]} steps, clip norm {setting[1]:g}, {word} {setting[2]:g}"
            print(f"{name:14} chosen without it: {said:45} {without:.3f}  default {usual:.3f}  best {best:.3f}")
            losses.append((best - without, best - usual))
        if losses:
            lost = np.mean(losses, axis=0)
            print(f"mean loss against the best: chosen without it {lost[0]:.4f}, default {lost[1]:.4f}")
    print(f"\nthe rule: way = {_TRAVEL:g} x min(r, root of r), r = epsilon x records / {_USUAL}")
    rule(rows)


if __name__ == "__main__":
    main()
