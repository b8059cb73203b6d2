"""Clipping rules as one formula: what a compiled engine must know of a rule to follow it by itself."""

from __future__ import annotations

from dataclasses import dataclass

from dptune.training.clipping import Automatic, Clipping, Flat, PerLayer, Quantile

__all__ = ["Formula", "formula_of"]


@dataclass(frozen=True)
class Formula:
    """Factors of the form ``top / max(norm + stability, floor)``, which compiled engines compute by themselves.

    Args:
        top: No share is longer than this.
        stability: What is added to a norm.
        floor: What shorter gradients are divided by.
        by_layer: Whether norms are those of a layer's part; top and floor are then over the root of the number of
            layers.

    Example:
        >>> from dptune.training._formula import formula_of
        >>> from dptune.training.clipping import Quantile
        >>> formula_of(Quantile(share=0.36), 1.0, 2.0)
        Formula(top=0.8, stability=0.0, floor=2.0, by_layer=False)
    """

    top: float
    stability: float
    floor: float
    by_layer: bool = False


def formula_of(rule: Clipping, clip: float, level: float) -> Formula | None:
    """A rule of :mod:`dptune.training.clipping` as a formula; None where each record is computed alone.

    Args:
        rule: The clipping rule.
        clip: The longest share that a record may have.
        level: The clip norm of this step, as learnt so far.

    Returns:
        The formula, whose ``top`` is at most ``clip``. None for rules of other kinds, and for automatic clipping with
        next to no stability.

    Example:
        >>> from dptune.training._formula import formula_of
        >>> from dptune.training.clipping import Automatic
        >>> formula_of(Automatic(0.5), 1.0, 1.0)
        Formula(top=1.0, stability=0.5, floor=0.5, by_layer=False)
    """
    if type(rule) is Automatic and rule.steady:
        return Formula(clip, rule.stability, rule.stability)
    if type(rule) is Quantile:
        return Formula(rule.kept * clip, 0.0, level)
    if type(rule) is Flat or type(rule) is PerLayer:
        return Formula(clip, 0.0, clip, type(rule) is PerLayer)
    return None
