"""The root finders and fits of scipy.optimize, loaded when one is first asked for.

Its import takes as long as all of dptune's own, and neither a worker nor a page of help solves anything. Use them as
attributes, ``_solvers.brentq(...)``: the function that is called is scipy's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy.optimize import brentq, isotonic_regression, minimize_scalar

__all__ = ["brentq", "isotonic_regression", "minimize_scalar"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    from scipy import optimize  # noqa: PLC0415 - slow import

    globals()[name] = getattr(optimize, name)
    return globals()[name]
