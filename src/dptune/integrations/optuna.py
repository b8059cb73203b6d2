"""Spaces that were written for Optuna: a distribution, trial or study becomes a :class:`~dptune.spaces.Space`.

Only the declared ranges are read; the values and scores of a study's trials must never be looked at here.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

from dptune.errors import InvalidInput
from dptune.spaces import Choice, Dimension, Float, Int, Space

__all__ = ["from_optuna"]


def from_optuna(source: Any) -> Space:
    """The space of Optuna distributions.

    Args:
        source: a dictionary of distributions, a trial, or a study (what its trials have in common). Values and scores
            of trials are not looked at.

    Returns:
        The same space, ready for any method.

    Raises:
        InvalidInput: if Optuna is not installed or ``source`` has no distributions that a space can hold.

    Example:
        >>> from optuna.distributions import FloatDistribution
        >>> from_optuna({"lr": FloatDistribution(1e-3, 1.0, log=True)}) == Space(lr=Float(1e-3, 1.0, log=True))
        True
    """
    try:
        known = importlib.import_module("optuna.distributions")
    except ImportError:
        raise InvalidInput("Optuna is not installed; install it, or write the space with Float, Int, Choice.") from None
    return Space(**{name: _from_optuna(known, name, one) for name, one in _distributions(source).items()})


def _distributions(source: Any) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if isinstance(getattr(source, "distributions", None), Mapping):
        found: Mapping[str, Any] = source.distributions
        return found
    if callable(getattr(source, "get_trials", None)):
        common: Mapping[str, Any] = importlib.import_module("optuna.search_space").intersection_search_space(
            source.get_trials(deepcopy=False)
        )
        if common:
            return common
        raise InvalidInput("The Optuna study has no finished trial that shows its space; give the distributions.")
    raise InvalidInput(f"Give a dictionary of Optuna distributions, a trial or a study; got {source!r}.")


def _from_optuna(known: Any, name: str, one: Any) -> Dimension:
    step = getattr(one, "step", None)
    if isinstance(one, known.CategoricalDistribution):
        return Choice(*one.choices)
    if not isinstance(one, known.FloatDistribution | known.IntDistribution):
        raise InvalidInput(f"The Optuna distribution of {name!r} is not Float, Int or Categorical; got {one!r}.")
    if isinstance(one, known.IntDistribution) and step == 1:
        return Int(one.low, one.high, one.log)
    if one.low == one.high:
        return Choice(one.low)
    if step is None:
        return Float(one.low, one.high, one.log)
    count = math.floor((one.high - one.low) / step + 1e-9) + 1
    return Choice(*(min(one.low + i * step, one.high) for i in range(count)))  # the last one as Optuna has it
