"""``dptune compare``: every tuning method at one budget, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dptune.accounting import DpSgd
from dptune.accounting.runs import parse_runs
from dptune.cli._display import clock
from dptune.cli._figure import write_figure
from dptune.cli._output import check_figure, number, print_json, print_rows, wrapped
from dptune.errors import InvalidInput
from dptune.methods import Budget
from dptune.planner import Compared
from dptune.planner import compare as compare_methods
from dptune.report.figures import Bar, bars
from dptune.report.svg import Picture
from dptune.spaces import Candidates

__all__ = ["compare"]

_EXPLAINED = (
    "trainings: their expected number, on parts of the data where the method says so; gradients: their expected "
    "number.\nmodel: the chance holds if utilities are uniform on (0, 1) and a client's score deviates by 0.2 "
    "(400 simulated spaces).\nHow well a configuration does also depends on the noise: less is better."
)


@dataclass(frozen=True)
class _Described:
    """DP-SGD that is priced and never run."""

    rate: float
    steps: int

    def cost(self, params: dict[str, Any]) -> DpSgd:
        return DpSgd(self.rate, params["noise_multiplier"], self.steps)


def compare(
    epsilon: Annotated[float, typer.Option(help="The total budget: tuning, choice and final training together.")],
    delta: Annotated[float, typer.Option(help="The delta of the statement, for example 1e-5.")],
    rate: Annotated[float, typer.Option(help="Sampling rate of DP-SGD: expected batch / records.")] = 0.01,
    steps: Annotated[int, typer.Option(help="Steps of one training.")] = 1000,
    records: Annotated[int, typer.Option(help="Public number of records, for counting gradients.")] = 60_000,
    candidates: Annotated[int, typer.Option(help="Number of candidates.")] = 100,
    runs: Annotated[
        str, typer.Option(help="geometric:MEAN | logarithmic:MEAN | poisson:MEAN | tnb:SHAPE,MEAN | binomial:N,P")
    ] = "geometric:10",
    subset: Annotated[float, typer.Option(help="Share of the records that subset tuning uses.")] = 0.1,
    density: Annotated[str, typer.Option(help="c,C: the box of adaptive sampling.")] = "0.75,2",
    shards: Annotated[int, typer.Option(help="Shards of threshold and noisy best.")] = 100,
    clients: Annotated[int, typer.Option(help="Clients of the vote.")] = 100,
    votes: Annotated[int, typer.Option(help="Votes of a client.")] = 5,
    share: Annotated[float, typer.Option(help="Share of epsilon for choosing by shards or votes.")] = 0.1,
    *,
    figure: Annotated[Path | None, typer.Option(help="Also draw the noise of every method, as an SVG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Show, at one budget, what each method needs and how likely it is to try or choose one of the best 5 %."""
    check_figure(figure)
    if candidates < 2 or candidates > 100_000:
        raise InvalidInput(f"'candidates' must be a whole number in [2, 100000]; got {candidates}.")
    try:
        low, high = (float(part) for part in density.split(","))
    except ValueError:
        raise InvalidInput(f"Cannot read the density {density!r}; write c,C, for example 0.75,2.") from None
    with clock("planning every method"):
        rows = compare_methods(
            _Described(rate, steps),
            Candidates([{"candidate": i} for i in range(candidates)]),
            Budget(epsilon, delta),
            runs=parse_runs(runs),
            records=records,
            fraction=subset,
            density=(low, high),
            shards=shards,
            clients=clients,
            votes=votes,
            share=share,
        )
    if figure is not None:
        write_figure(figure, _picture(rows, epsilon, delta))
    if as_json:
        print_json({"epsilon": epsilon, "delta": delta, "methods": [asdict(row) for row in rows]})
        return
    title = f"At ({epsilon:g}, {delta:g}): DP-SGD rate {rate:g}, {steps} steps, {candidates} candidates, {runs} runs"
    columns = ["method", "noise", "epsilon", "trainings", "gradients", "top 5 %", "note"]
    print_rows(title, columns, [_cells(row) for row in rows])
    print(wrapped(_EXPLAINED))


def _picture(rows: Sequence[Compared], epsilon: float, delta: float) -> Picture:
    """The noise that every method needs at one budget: the shorter the bar, the better for the model."""
    known = [(row.name, row.noise) for row in rows if row.noise is not None]
    drawn = [Bar(name, noise, "fa", said=f"{noise:.4f}") for name, noise in sorted(known, key=lambda one: one[1])]
    return bars(
        "compare", f"Noise of a training at ({epsilon:g}, {delta:g}): less is better", drawn, "noise multipliers"
    )


def _cells(row: Compared) -> list[str]:
    if row.gradients is None:
        return [row.name, "-", "-", "-", "-", "-", row.note]
    top = f"{row.top:.3f}" if row.top_high is None else f"{row.top:.3f} to {row.top_high:.3f}"
    runs, gradients = f"{row.expected_runs:g}", f"{row.gradients:.3g}"
    return [row.name, number(row.noise, 4), number(row.epsilon, 4), runs, gradients, top, row.note]
