"""``dptune price``: what a tuning plan costs, beside what every published bound says about it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from dptune.accounting.known_threshold import liu_talwar_threshold
from dptune.accounting.literature import Bound, published
from dptune.accounting.runs import parse_runs
from dptune.cli._expressions import parse_base, parse_density, pipeline
from dptune.cli._output import check_figure, number, print_json, print_rows, wrapped
from dptune.cli._readings import in_words, readings
from dptune.errors import InvalidInput

__all__ = ["price"]


def price(
    base: Annotated[
        str | None,
        typer.Option(help="gdp:MU | gaussian:NOISE | laplace:SCALE | dpsgd:RATE,NOISE,STEPS | pure:EPS | line:SLOPE"),
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(help="geometric:MEAN | logarithmic:MEAN | poisson:MEAN | tnb:SHAPE,MEAN | binomial:N,P"),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The delta of the statement, for example 1e-5.")] = None,
    density: Annotated[str | None, typer.Option(help="c,C: adaptive sampling kept within this box.")] = None,
    subset: Annotated[float | None, typer.Option(help="Tune on this share of the records, drawn by coins.")] = None,
    variant: Annotated[int, typer.Option(help="1: train on the rest; 2: train on everything.")] = 1,
    threshold: Annotated[
        bool,
        typer.Option("--known-threshold", help="Release the first run that reaches a public threshold, not the best."),
    ] = False,
    plan: Annotated[
        Path | None, typer.Option(help="A plan.json, as every release has one; instead of the rest.")
    ] = None,
    attacks: Annotated[
        bool, typer.Option("--attacks", help="Also what attackers can reach: power at 1 in 100, and mu.")
    ] = False,
    figure: Annotated[Path | None, typer.Option(help="Also draw the bounds side by side, as an SVG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> None:
    """Price a tuning plan: one run, the whole, a certificate from below, and the literature."""
    check_figure(figure)
    if plan is not None:
        if figure is not None:
            raise InvalidInput("A picture of a stored plan is part of its page: see 'dptune report RUN'.")
        _price_plan(plan, as_json, attacks)
        return
    if base is None or runs is None or delta is None:
        missing = "--base" if base is None else "--runs" if runs is None else "--delta"
        raise InvalidInput(f"Missing option {missing}: state --base, --runs and --delta, or --plan FILE.")
    mechanism, law, box = parse_base(base), parse_runs(runs), parse_density(density)
    total = pipeline(mechanism, law, box, subset, variant, threshold)
    epsilon = total.epsilon(delta)
    lower = total.epsilon_lower(delta)
    base_epsilon = mechanism.epsilon(delta)
    if threshold:
        pure = liu_talwar_threshold(mechanism, law)
        bounds: dict[str, Bound] = {}
        literature = {"liu_talwar_known_threshold": pure if subset is None and pure < math.inf else None}
    else:
        way = None if subset is None else variant
        within = None if density is None else box
        bounds = published(mechanism, law, delta, density=within, subset=subset, variant=way)
        literature = {name: bound.epsilon for name, bound in bounds.items()}
    if figure is not None:
        _draw(figure, bounds, base_epsilon, epsilon, lower, delta)
    if as_json:
        figures = {"base_epsilon": base_epsilon, "epsilon": epsilon, "epsilon_lower": lower, "delta": delta}
        print_json({**figures, "literature": literature, **(readings(total) if attacks else {})})
        return
    title = f"epsilon at delta {delta:g}: {mechanism}, {law}"
    _show(title, base_epsilon, epsilon, lower, literature)
    if attacks:
        print(in_words(total))


def _draw(figure: Path, bounds: dict[str, Bound], one_run: float, epsilon: float, lower: float, delta: float) -> None:
    """The table for people as a picture."""
    from dptune.cli._figure import write_figure  # noqa: PLC0415 - nobody else waits for pictures
    from dptune.report.figures import Bar, bars  # noqa: PLC0415 - the same
    from dptune.report.literature import bars_of_bounds  # noqa: PLC0415 - the same

    rows = [*bars_of_bounds(bounds), Bar("dptune, proven", epsilon, "fa")]
    if lower > 0:
        rows.append(Bar("certificate from below", lower, "fc", lower=True))
    rows.append(Bar("one run, untuned", one_run, "fd"))
    write_figure(figure, bars("price", f"Epsilon at delta {delta:g}, by whom you ask", rows))


def _show(title: str, one_run: float, epsilon: float, lower: float, literature: dict[str, float | None]) -> None:
    """The table for people: one run, the literature, ours, and the certificate."""
    named = {name.replace("_", " "): bound for name, bound in literature.items()}
    rows = [["one run, untuned", number(one_run), "what is usually reported"]]
    rows += [[name, number(bound), ""] for name, bound in named.items() if bound is not None]
    rows += [
        ["dptune, proven", number(epsilon), "no score costs more"],
        ["certificate from below", number(lower or None), "some score costs this much"],
    ]
    print_rows(title, ["", "epsilon", ""], rows)
    silent = [name for name, bound in named.items() if bound is None]
    if silent:
        print(wrapped(f"Not applicable here: {', '.join(silent)}; docs/literature.md says why."))


def _price_plan(path: Path, as_json: bool, attacks: bool) -> None:
    """What a stored plan costs, computed anew from its description."""
    from dptune.methods import plan_from_json  # noqa: PLC0415 - methods load slowly, and only this needs them

    try:
        stored = plan_from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"The plan {path} cannot be read ({error.strerror}).") from None
    delta = stored.budget.delta
    epsilon = stored.price()
    lower = stored.cost.epsilon_lower(delta) if stored.guaranteed else None
    if as_json:
        figures = {"epsilon": epsilon, "epsilon_lower": lower, "delta": delta}
        print_json(
            {"method": stored.method, **figures, **(readings(stored.cost) if attacks and stored.guaranteed else {})}
        )
        return
    rows = [["dptune, proven", number(epsilon)], ["certificate from below", number(lower or None)]]
    print_rows(f"epsilon at delta {delta:g}: {stored.method}", ["", "epsilon"], rows)
    if attacks and stored.guaranteed:
        print(in_words(stored.cost))
