"""The root finders and fits of scipy.optimize, loaded when one is first called.

Its import takes as long as all of dptune's own, and neither a worker nor a page of help solves anything.
"""

from __future__ import annotations

from typing import Any

__all__ = ["brentq", "isotonic_regression", "minimize_scalar"]


def brentq(*given: Any, **options: Any) -> Any:
    """A root between two points: ``scipy.optimize.brentq``."""
    from scipy import optimize  # noqa: PLC0415 - slow import

    return optimize.brentq(*given, **options)


def minimize_scalar(*given: Any, **options: Any) -> Any:
    """The least value along a line: ``scipy.optimize.minimize_scalar``."""
    from scipy import optimize  # noqa: PLC0415 - slow import

    return optimize.minimize_scalar(*given, **options)


def isotonic_regression(*given: Any, **options: Any) -> Any:
    """The closest monotone sequence: ``scipy.optimize.isotonic_regression``."""
    from scipy import optimize  # noqa: PLC0415 - slow import

    return optimize.isotonic_regression(*given, **options)
