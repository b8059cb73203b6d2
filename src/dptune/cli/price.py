"""``dptune price``: what a tuning plan costs, beside what every published bound says about it."""

from __future__ import annotations

from typing import Annotated

import typer

from dptune.accounting.literature import published
from dptune.accounting.runs import parse_runs
from dptune.cli._expressions import parse_base, parse_density, pipeline
from dptune.cli._output import number, print_json, print_rows

__all__ = ["price"]


def price(
    base: Annotated[
        str, typer.Option(help="gdp:MU | gaussian:NOISE | laplace:SCALE | dpsgd:RATE,NOISE,STEPS | pure:EPS")
    ],
    runs: Annotated[
        str, typer.Option(help="geometric:MEAN | logarithmic:MEAN | poisson:MEAN | tnb:SHAPE,MEAN | binomial:N,P")
    ],
    delta: Annotated[float, typer.Option(help="The delta of the statement, for example 1e-5.")],
    density: Annotated[str | None, typer.Option(help="c,C: adaptive sampling kept within this box.")] = None,
    subset: Annotated[float | None, typer.Option(help="Tune on this share of the records, drawn by coins.")] = None,
    variant: Annotated[int, typer.Option(help="1: train on the rest; 2: train on everything.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Price a tuning plan: one run, the whole, a certificate from below, and the literature."""
    mechanism, law, box = parse_base(base), parse_runs(runs), parse_density(density)
    total = pipeline(mechanism, law, box, subset, variant)
    epsilon = total.epsilon(delta)
    lower = total.epsilon_lower(delta)
    base_epsilon = mechanism.epsilon(delta)
    bounds = published(
        mechanism,
        law,
        delta,
        density=None if density is None else box,
        subset=subset,
        variant=None if subset is None else variant,
    )
    if as_json:
        print_json(
            {
                "base_epsilon": base_epsilon,
                "epsilon": epsilon,
                "epsilon_lower": lower,
                "delta": delta,
                "literature": {name: bound.epsilon for name, bound in bounds.items()},
            }
        )
        return
    rows = [["one run, untuned", number(base_epsilon), "what is usually reported"]]
    rows += [
        [name.replace("_", " "), number(bound.epsilon), bound.citation.split(",")[0]]
        for name, bound in bounds.items()
        if bound.epsilon is not None
    ]
    rows += [
        ["dptune, proven", number(epsilon), "no score costs more"],
        ["certificate from below", number(lower), "some score costs this much"],
    ]
    print_rows(f"epsilon at delta {delta:g}: {mechanism}, {law}", ["", "epsilon", ""], rows)
    silent = [name.replace("_", " ") for name, bound in bounds.items() if bound.epsilon is None]
    print(f"Not applicable here: {', '.join(silent)}; docs/literature.md says why.")
