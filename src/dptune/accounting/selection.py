"""Private selection: the cost of releasing the best of a random number of runs.

``select`` is random stopping (Liu and Talwar 2019; Papernot and Steinke 2022), ``select_adaptive`` lets earlier scores
steer the sampling within a box (DP-HyPO). Both hold only if nothing but the winner leaves: no score, no
count, no timing; see ``docs/theorems/select.md``, ``interleaving.md`` and ``adaptive.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from dptune._validate import real
from dptune.accounting._convex import joined
from dptune.accounting._profiles import Pair
from dptune.accounting._selected import Certificate, certify, selected_half, tabulate
from dptune.accounting.combination import check_cost
from dptune.accounting.cost import Cost, cost_from_json, lower_pair, operand, profile
from dptune.accounting.runs import Runs, runs_from_json
from dptune.errors import InvalidInput

__all__ = ["Select", "select", "select_adaptive"]


@dataclass(frozen=True)
class Select(Cost):
    """The best of K runs of ``base``, K drawn from ``runs``; made by :func:`select` and :func:`select_adaptive`.

    ``density`` bounds the sampling law against the prior; (1, 1) is no adaptation.
    """

    kind: ClassVar[str] = "select"
    base: Cost
    runs: Runs
    density: tuple[float, float] = (1.0, 1.0)

    def _fields(self) -> dict[str, object]:
        return {"base": self.base.describe(), "runs": self.runs.describe(), "density": list(self.density)}

    @classmethod
    def _from_fields(cls, fields: dict[str, object]) -> Self:
        base, density = fields["base"], fields.get("density", [1.0, 1.0])
        if not isinstance(base, dict) or not isinstance(density, list) or len(density) != 2:
            raise TypeError("'base' is no object or 'density' no pair")
        made = select_adaptive(cost_from_json(base), runs_from_json(fields["runs"]), (density[0], density[1]))
        return cls(made.base, made.runs, made.density)

    def _profile(self) -> Pair:
        base = operand(self.base)
        remove = selected_half(base, self.runs, self.density)
        if base.symmetric:
            return Pair(remove, remove)
        return Pair(remove, selected_half(base.flip(), self.runs, self.density))

    def _operand(self) -> Pair:
        exact = profile(self)
        remove = tabulate(exact.remove)
        both = joined(remove, remove if exact.symmetric else tabulate(exact.add))
        return Pair(both.remove, both.remove) if exact.symmetric else both

    def _certificate(self, delta: float) -> tuple[Certificate, bool]:
        """The better of the two directions, and whether it is the removal direction.

        Not adapting is allowed whatever the density, so the certificate of plain selection holds throughout.
        """
        base = lower_pair(self.base, delta)
        upper = profile(self)
        found = [(certify(base, self.runs, delta, upper.remove.epsilon(delta)), True)]
        if not base.symmetric:
            found.append((certify(base.flip(), self.runs, delta, upper.add.epsilon(delta)), False))
        return max(found, key=lambda item: item[0].epsilon)

    def _lower(self, delta: float) -> Pair:
        certificate, forward = self._certificate(delta)
        pair = certificate.pair()
        return pair if forward else pair.flip()


def select(base: Cost, runs: Runs) -> Select:
    """The cost of releasing the best of K independent runs of ``base``.

    The score must be part of what a run pays for (public validation data, or a noised score); K = 0 releases
    a public default; ties are broken at random; failed runs score minus infinity and are not retried.
    """
    return select_adaptive(base, runs, (1.0, 1.0))


def select_adaptive(base: Cost, runs: Runs, density: tuple[float, float]) -> Select:
    """The cost of selection whose sampling law may follow the scores within [c, C] times the prior."""
    check_cost("base", base)
    if not isinstance(runs, Runs):
        raise InvalidInput(f"'runs' must be a law such as Geometric(10) or Poisson(15); got {runs!r}.")
    try:
        low, high = density
    except (TypeError, ValueError):
        raise InvalidInput(f"'density' must be a pair (c, C) with 0 < c <= 1 <= C; got {density!r}.") from None
    hint = "The sampling law is kept within c and C times the prior, so c <= 1 <= C."
    c = real("density c", low, 0, 1, low_open=True, hint=hint)
    big_c = real("density C", high, 1, 1e6, hint=hint)
    if (c == 1.0) != (big_c == 1.0):
        # A law above c = 1 times the prior everywhere, or below C = 1 times it, is the prior itself.
        c = big_c = 1.0
    return Select(base, runs, (c, big_c))
