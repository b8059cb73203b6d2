"""``dptune plan``: the smallest noise whose whole tuning stays within a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from dptune.accounting import Cost, DpSgd
from dptune.accounting.calibrate import calibrate_noise, calibrate_power
from dptune.accounting.runs import parse_runs
from dptune.cli._display import clock
from dptune.cli._expressions import parse_density, pipeline
from dptune.cli._output import number, print_json, print_rows
from dptune.cli._readings import in_words, readings
from dptune.errors import InvalidInput

__all__ = ["plan"]


def plan(
    delta: Annotated[float, typer.Option(help="The delta of the statement, for example 1e-5.")],
    rate: Annotated[float, typer.Option(help="Sampling rate of DP-SGD: expected batch / records.")],
    steps: Annotated[int, typer.Option(help="Steps of one training.")],
    runs: Annotated[
        str, typer.Option(help="geometric:MEAN | logarithmic:MEAN | poisson:MEAN | tnb:SHAPE,MEAN | binomial:N,P")
    ],
    epsilon: Annotated[
        float | None, typer.Option(help="The total budget: tuning, choice and final training together.")
    ] = None,
    power: Annotated[
        float | None,
        typer.Option(help="Instead of --epsilon: the share of insiders that an attack may find, e.g. .10."),
    ] = None,
    at: Annotated[float, typer.Option(help="With --power: how often that attack may accuse an outsider.")] = 0.01,
    density: Annotated[str | None, typer.Option(help="c,C: adaptive sampling kept within this box.")] = None,
    subset: Annotated[float | None, typer.Option(help="Tune on this share of the records, drawn by coins.")] = None,
    variant: Annotated[int, typer.Option(help="1: train on the rest; 2: train on everything.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Find the smallest noise multiplier whose total stays within a budget, or below the power of an attack."""
    law, box = parse_runs(runs), parse_density(density)

    def whole(noise: float) -> Cost:
        return pipeline(DpSgd(rate, noise, steps), law, box, subset, variant)

    with clock("planning"):
        goal, noise = _calibrated(whole, epsilon, delta, power, at)
        cost = whole(noise)
        total = cost.epsilon(delta)
        base = DpSgd(rate, noise, steps).epsilon(delta)
    if as_json:
        figures = {"noise_multiplier": noise, "epsilon": total, "base_epsilon": base, "delta": delta}
        print_json({**figures, **readings(cost)})
        return
    rows = [
        ["noise multiplier of every run", number(noise)],
        ["total epsilon", number(total)],
        ["epsilon of one run alone", number(base)],
        ["expected runs", number(law.expected, 1)],
    ]
    print_rows(f"plan within {goal}: rate {rate:g}, {steps} steps, {law}", ["", ""], rows)
    print(in_words(cost))


def _calibrated(
    whole: Callable[[float], Cost], epsilon: float | None, delta: float, power: float | None, at: float
) -> tuple[str, float]:
    """What was asked for in words, and the smallest noise that reaches it."""
    if (epsilon is None) == (power is None):
        raise InvalidInput("State what the whole may cost: either --epsilon E, or --power P (with --at F).")
    if epsilon is not None:
        return f"({epsilon:g}, {delta:g})", calibrate_noise(whole, epsilon, delta)
    assert power is not None
    return f"a power of {power:g} at {at:g}", calibrate_power(whole, power, at)
