"""Reading costs and tuning pipelines as they are written on the command line."""

from __future__ import annotations

from collections.abc import Callable

from dptune.accounting import (
    Cost,
    DpSgd,
    Gaussian,
    Gdp,
    Laplace,
    PureDp,
    RenyiLine,
    Runs,
    compose,
    disjoint,
    known_threshold,
    subsample,
)
from dptune.accounting.lines import ORDERS
from dptune.accounting.selection import select_adaptive
from dptune.errors import InvalidInput

__all__ = ["parse_base", "parse_density", "pipeline"]

_FORMS = "gdp:MU, gaussian:NOISE, laplace:SCALE, pure:EPSILON, dpsgd:RATE,NOISE,STEPS or line:SLOPE"


def parse_base(text: str) -> Cost:
    """Read a base mechanism, for example ``dpsgd:0.01,1.1,2000``."""
    makers: dict[str, tuple[int, Callable[..., Cost]]] = {
        "gdp": (1, Gdp),
        "gaussian": (1, Gaussian),
        "laplace": (1, Laplace),
        "pure": (1, PureDp),
        "dpsgd": (3, DpSgd),
        "line": (1, lambda slope: RenyiLine(slope, ORDERS)),
    }
    name, _, rest = text.partition(":")
    try:
        count, make = makers[name.strip().lower()]
        values = [float(part) for part in rest.split(",")]
        if len(values) != count:
            raise ValueError
    except (KeyError, ValueError):
        raise InvalidInput(f"Cannot read the base {text!r}; write {_FORMS}.") from None
    return make(*values)


def parse_density(text: str | None) -> tuple[float, float]:
    """Read the box of an adaptive sampling law, ``c,C``."""
    if text is None:
        return (1.0, 1.0)
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"Cannot read the density {text!r}; write c,C with 0 < c <= 1 <= C, e.g. 0.75,2.") from None
    return (low, high)


def pipeline(
    base: Cost,
    runs: Runs,
    density: tuple[float, float],
    subset: float | None,
    variant: int,
    threshold: bool = False,
) -> Cost:
    """The total cost of tuning: on all data, or on a random subset followed by a final training.

    ``threshold`` says that the first run to reach a public threshold is released, not the best.
    """
    if threshold and density != (1.0, 1.0):
        raise InvalidInput("A known threshold has no adaptive form yet: leave out --density or --known-threshold.")
    tune = known_threshold(base, runs) if threshold else select_adaptive(base, runs, density)
    if variant not in (1, 2):
        raise InvalidInput(f"'variant' must be 1 (train on the rest) or 2 (train on everything); got {variant}.")
    if subset is None:
        return tune
    if not 0.0 < subset < 1.0:
        raise InvalidInput(
            f"'subset' must be a number in (0, 1), the share of records used for tuning; got {subset:g}."
        )
    return disjoint(tune, base, subset) if variant == 1 else compose(subsample(tune, subset), base)
