"""``dptune plan``: the smallest noise whose whole tuning stays within a budget."""

from __future__ import annotations

from typing import Annotated

import typer

from dptune.accounting import Cost, DpSgd
from dptune.accounting.calibrate import calibrate_noise
from dptune.accounting.runs import parse_runs
from dptune.cli._expressions import parse_density, pipeline
from dptune.cli._output import number, print_json, print_rows

__all__ = ["plan"]


def plan(
    epsilon: Annotated[float, typer.Option(help="The total budget: tuning, choice and final training together.")],
    delta: Annotated[float, typer.Option(help="The delta of the statement, for example 1e-5.")],
    rate: Annotated[float, typer.Option(help="Sampling rate of DP-SGD: expected batch / records.")],
    steps: Annotated[int, typer.Option(help="Steps of one training.")],
    runs: Annotated[
        str, typer.Option(help="geometric:MEAN | logarithmic:MEAN | poisson:MEAN | tnb:SHAPE,MEAN | binomial:N,P")
    ],
    density: Annotated[str | None, typer.Option(help="c,C: adaptive sampling kept within this box.")] = None,
    subset: Annotated[float | None, typer.Option(help="Tune on this share of the records, drawn by coins.")] = None,
    variant: Annotated[int, typer.Option(help="1: train on the rest; 2: train on everything.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Find the smallest noise multiplier whose total cost stays within (epsilon, delta)."""
    law, box = parse_runs(runs), parse_density(density)

    def whole(noise: float) -> Cost:
        return pipeline(DpSgd(rate, noise, steps), law, box, subset, variant)

    noise = calibrate_noise(whole, epsilon, delta)
    total = whole(noise).epsilon(delta)
    base = DpSgd(rate, noise, steps).epsilon(delta)
    if as_json:
        print_json({"noise_multiplier": noise, "epsilon": total, "base_epsilon": base, "delta": delta})
        return
    rows = [
        ["noise multiplier of every run", number(noise)],
        ["total epsilon", number(total)],
        ["epsilon of one run alone", number(base)],
        ["expected runs", number(law.expected, 1)],
    ]
    print_rows(f"plan within ({epsilon:g}, {delta:g}): rate {rate:g}, {steps} steps, {law}", ["", ""], rows)
