"""Joining costs: composition, public mixtures, disjoint parts.

``compose`` is for mechanisms on the same records whose costs were fixed in advance (budgets that are chosen
adaptively go through the ledger's filter instead); see ``docs/theorems/compose.md``, ``mixture.md``, ``parallel.md``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from dptune._validate import real
from dptune.accounting._checks import is_free, only_added_or_removed, same_relation
from dptune.accounting._combined import Compose, Mixture, Parallel
from dptune.accounting.cost import Cost, check_cost
from dptune.accounting.mechanisms import DpSgd
from dptune.errors import InvalidInput

__all__ = ["Compose", "Mixture", "Parallel", "compose", "mixture", "parallel", "worst"]


def compose(*costs: Cost) -> Cost:
    """The cost of releasing the outputs of all these mechanisms, computed on the same records.

    Their costs must be fixed in advance; budgets that are chosen after earlier releases go through a ledger's
    :class:`~dptune.accounting.Filter`.

    Args:
        costs: at least one.

    Returns:
        The cost of all of them together.

    Raises:
        InvalidInput: none was given, or they are about different neighbours.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> round(compose(Gaussian(2.0), Gaussian(2.0)).epsilon(1e-5), 3)  # twice Gaussian(2.0) would be 3.986
        2.943
    """
    if not costs:
        raise InvalidInput("'compose' needs at least one cost; got none.")
    same_relation("compose", *(check_cost("costs", cost) for cost in costs))
    flat: list[Cost] = []
    for cost in costs:
        flat.extend(cost.parts if isinstance(cost, Compose) else [cost])
    paid = [cost for cost in flat if not is_free(cost)]
    steps: Counter[tuple[float, float]] = Counter()
    rest: list[Cost] = []
    for cost in paid:
        if isinstance(cost, DpSgd):
            steps[(cost.sampling_rate, cost.noise_multiplier)] += cost.steps
        else:
            rest.append(cost)
    merged = [*rest, *(DpSgd(rate, noise, n) for (rate, noise), n in steps.items())]
    if not merged:
        return flat[0]
    return merged[0] if len(merged) == 1 else Compose(tuple(merged))


def mixture(weighted: Iterable[tuple[float, Cost]]) -> Cost:
    """The cost of one of these mechanisms, chosen with public probabilities, where the choice is part of the output.

    Args:
        weighted: pairs of a probability and a cost; the probabilities sum to 1.

    Returns:
        The average of the profiles.

    Raises:
        InvalidInput: the weights are not probabilities that sum to 1, or the costs are about different neighbours.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> round(mixture([(0.9, Gaussian(4.0)), (0.1, Gaussian(2.0))]).epsilon(1e-5), 3)
        1.698
    """
    items = [(real("weight", w, 0, 1), check_cost("cost", c)) for w, c in weighted]
    items = [(w, c) for w, c in items if w > 0]
    total = math.fsum(w for w, _ in items)
    if not items or abs(total - 1.0) > 1e-9:
        raise InvalidInput(f"The weights of a mixture are probabilities and must sum to 1; got {total:g}.")
    same_relation("mixture", *(c for _, c in items))
    gathered: dict[Cost, float] = {}
    for w, c in items:
        gathered[c] = gathered.get(c, 0.0) + w
    if len(gathered) == 1:
        return next(iter(gathered))
    # Divide by the sum but never round a weight down.
    return Mixture(tuple(min(1.0, w / min(total, 1.0)) for w in gathered.values()), tuple(gathered))


def parallel(*costs: Cost) -> Cost:
    """The cost of mechanisms on disjoint parts of the data: the pointwise maximum.

    Which part a record belongs to must depend on that record alone (or on an independent coin). It is a theorem about
    one record added or removed: one that is replaced may leave its part for another, and both change.

    Args:
        costs: at least one.

    Returns:
        The largest of them at every epsilon.

    Raises:
        InvalidInput: none was given, or they are about other neighbours.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> parallel(Gaussian(1.0), Gaussian(2.0)).epsilon(1e-5) == Gaussian(1.0).epsilon(1e-5)
        True
    """
    if not costs:
        raise InvalidInput("'parallel' needs at least one cost; got none.")
    checked = [check_cost("costs", cost) for cost in costs]
    same_relation("parallel", *checked)
    if len(checked) > 1:
        instead = "A change of several parts is not one of them: put the parts together first, then convert the whole."
        only_added_or_removed("parallel", checked[0], instead)
    return worst(*checked)


def worst(*costs: Cost) -> Cost:
    """The cost of one mechanism of which it is only known that it is one of these: the pointwise maximum.

    Unlike :func:`parallel` this holds under every relation, since one of them alone sees the data.

    Args:
        costs: at least one, all under the same relation.

    Returns:
        The largest of them at every epsilon.

    Raises:
        InvalidInput: none was given, or they are about different neighbours.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> worst(Gaussian(1.0), Gaussian(2.0)).epsilon(1e-5) == Gaussian(1.0).epsilon(1e-5)
        True
    """
    if not costs:
        raise InvalidInput("'worst' needs at least one cost; got none.")
    distinct = tuple(dict.fromkeys(check_cost("costs", cost) for cost in costs))
    same_relation("worst", *distinct)
    return distinct[0] if len(distinct) == 1 else Parallel(distinct)
