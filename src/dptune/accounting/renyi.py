"""Renyi curves of the published bounds: base mechanisms, random stopping, DP-HyPO, subsets.

They stand beside dptune's price (``docs/literature.md``) and cap it (``docs/theorems/published.md``); the curves of
base mechanisms also admit candidates under a line (``docs/theorems/line.md``). Orders, conversion and the rule for
making a curve monotone are dp-accounting's, so that agreement with it is exact. A curve bounds both directions. Where a
paper's formula is false (Poisson with mean below 1) the sound form stands in its place.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

from dptune._typing import Array
from dptune.accounting._reference import renyi_accounting
from dptune.accounting.combination import Compose, Parallel
from dptune.accounting.cost import Cost
from dptune.accounting.curves import RenyiCurve
from dptune.accounting.event_mechanisms import Repeated
from dptune.accounting.lines import RenyiLine
from dptune.accounting.mechanisms import DiscreteGaussian, DpSgd, Gaussian, Gdp, Laplace, PureDp
from dptune.accounting.runs import NegativeBinomial, Poisson, Runs
from dptune.errors import InvalidInput, NotComparable

__all__ = [
    "ORDERS",
    "adaptive_curve",
    "base_curve",
    "check_orders",
    "delta_hat",
    "disjoint_curve",
    "epsilon_of",
    "integer_orders",
    "outward_curve",
    "selected_curve",
    "selection_curve",
    "stopping_curve",
    "subsampled_curve",
]

Orders = tuple[float, ...]

# dp-accounting's own (tested); it is imported where it is used: more than half of the time of 'import dptune'.
ORDERS: Orders = (*(1.0 + x / 10.0 for x in range(1, 100)), *map(float, range(11, 64)), 128.0, 256.0, 512.0, 1024.0)
_LARGEST_INTEGER = 128
_EPS = float(np.finfo(float).eps)


def check_orders(orders: Sequence[float] | None) -> Orders:
    """The given orders, or dp-accounting's; every order must exceed 1."""
    if orders is None:
        return ORDERS
    checked = tuple(float(a) for a in orders)
    if not checked or not all(math.isfinite(a) and a > 1.0 for a in checked):
        raise InvalidInput(f"'orders' must be finite numbers above 1; got {orders!r}. Leave it out for the usual ones.")
    return checked


def integer_orders(orders: Orders) -> Orders:
    """2, 3, ... without gaps: the theorems on subsets expand a binomial and need every smaller order."""
    top = int(min(max(orders), _LARGEST_INTEGER))
    if top < 2:
        raise NotComparable(
            f"The theorems on subsets need integer orders from 2 upwards; the largest is {max(orders):g}."
        )
    return tuple(float(a) for a in range(2, top + 1))


# Base mechanisms.


@lru_cache(maxsize=256)
def _curve(  # noqa: PLR0911 - one return for each mechanism
    base: Cost, orders: Orders
) -> Array:
    """The Renyi curve of a base mechanism, cached; NotComparable if none is known."""
    a = np.array(orders)
    if isinstance(base, Gaussian | Gdp):
        return np.asarray(a * base.distance**2 / 2.0)
    if isinstance(base, DiscreteGaussian):
        # Canonne, Kamath and Steinke 2020, Theorem 4: no worse than the continuous Gaussian.
        return np.asarray(a * (base.sensitivity / base.sigma) ** 2 / 2.0)
    if isinstance(base, PureDp):
        e = base.pure_epsilon
        # Randomised response dominates (Kairouz, Oh and Viswanath 2015).
        top = np.logaddexp(a * e, (1.0 - a) * e) - math.log1p(math.exp(-e)) - e
        return np.asarray(np.clip(top / (a - 1.0), 0.0, e))
    if isinstance(base, Laplace | DpSgd):
        return _accounted(base, orders)
    if isinstance(base, RenyiLine | RenyiCurve):
        return base.curve(a)
    if isinstance(base, Compose):
        return np.asarray(np.sum([_curve(part, orders) for part in base.parts], axis=0))
    if isinstance(base, Repeated):
        return np.asarray(base.count * _curve(base.inner, orders))
    if isinstance(base, Parallel):  # Koskela and Kulkarni, appendix E
        return np.asarray(np.max([_curve(part, orders) for part in base.parts], axis=0))
    raise NotComparable(f"No Renyi curve is published for a {base.kind!r} base; the bound cannot be evaluated.")


def _accounted(base: Laplace | DpSgd, orders: Orders) -> Array:
    """The curve as dp-accounting computes it."""
    dp_event, rdp = renyi_accounting()
    accountant = rdp.RdpAccountant(list(orders))
    # It warns on standard error of orders that it leaves out; an infinite divergence says the same.
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        if isinstance(base, Laplace):
            accountant.compose(dp_event.LaplaceDpEvent(base.noise_multiplier))
        else:
            noise = dp_event.GaussianDpEvent(base.noise_multiplier)
            accountant.compose(dp_event.PoissonSampledDpEvent(base.sampling_rate, noise), base.steps)
    finally:
        logger.setLevel(level)
    return np.asarray(accountant.rdp, dtype=float)


def base_curve(base: Cost, orders: Orders) -> Array:
    """The Renyi curve of one run at these orders; :class:`NotComparable` if none is known."""
    return _curve(base, orders).copy()


def outward_curve(base: Cost, orders: Orders) -> Array:
    """The Renyi curve of one run with what roundoff may have hidden added: safe to charge by."""
    return np.asarray(base_curve(base, orders) * (1.0 + 1e-11) + _hidden(base, np.array(orders)))


def _hidden(base: Cost, a: Array) -> Array:
    """What dp-accounting's sums may be short of: series are cut at exp(-30), binomial coefficients are exponentials of
    differences of log-gamma functions, and a step's error is paid at every step."""
    if isinstance(base, DpSgd):
        return np.asarray(base.steps * (1e-12 + 4.0 * _EPS * a * np.log(a + 1.0)) / (a - 1.0))
    if isinstance(base, Compose | Parallel):
        return np.asarray(np.sum([_hidden(part, a) for part in base.parts], axis=0))
    return np.zeros_like(a)


# Conversions, as dp-accounting does them: to the last bit (a test compares), without waiting for its import.


def epsilon_of(orders: Orders, curve: Array, delta: float) -> float:
    """The epsilon of a curve at this delta (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    return max(0.0, min(_epsilon_at(a, float(r), delta) for a, r in zip(orders, curve, strict=True)))


def _epsilon_at(order: float, divergence: float, delta: float) -> float:
    """What one order gives; 0 where the Kullback-Leibler divergence alone keeps the distance below delta."""
    if divergence < 0 or delta**2 + math.expm1(-divergence) > 0:
        return 0.0
    if order <= 1.01 or math.isnan(divergence):  # too close to 1 for the formula's digits; or not known
        return math.inf
    return divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def _delta_of(orders: Array, curve: Array, epsilon: Array) -> Array:
    """The delta of a curve at each epsilon: the better of Proposition 12 and the Kullback-Leibler bound."""
    with np.errstate(divide="ignore", over="ignore"):
        kl = 0.5 * np.log1p(-np.exp(-np.maximum(curve, 0.0)))
    order = orders[None, :]
    direct = (order - 1.0) * (curve[None, :] - epsilon[:, None] + np.log1p(-1.0 / order)) - np.log(order)
    logs = np.minimum(np.where(order > 1.01, direct, np.inf), kl[None, :])
    return np.asarray(np.exp(np.minimum(logs.min(axis=1), 0.0)))


# Random stopping (Papernot and Steinke 2022).


def delta_hat(orders: Orders, curve: Array, base: Cost | None) -> Array:
    """For each order a, a delta at epsilon log(a/(a-1)): exact from ``base``, or from the curve if there is none."""
    a = np.array(orders)
    at = -np.log1p(-1.0 / a)
    if base is None:
        return _delta_of(a, curve, at)
    return np.maximum(base.profile(at, "remove"), base.profile(at, "add"))


def _best_hat(runs: NegativeBinomial, a: Array, curve: Array, stretch: float = 0.0, shrink: float = 0.0) -> float:
    """(1 + shape) min over b of (1 - 1/b)(e(b) - shrink) + stretch + log(1/gamma)/b."""
    inner = (1.0 - 1.0 / a) * (curve - shrink) + stretch - math.log(runs.stopping) / a
    return (1.0 + runs.shape) * float(np.min(inner))


def stopping_curve(orders: Orders, curve: Array, runs: Runs, exact: Cost | None = None) -> Array:
    """Papernot and Steinke's Theorem 2 (truncated negative binomial) or Theorem 6 (Poisson).

    ``exact`` is the base whose own profile gives the Poisson theorem's delta-hat; without it the curve does.
    """
    a = np.array(orders)
    if isinstance(runs, NegativeBinomial):
        if runs.stopping == 1.0:
            return curve.copy()
        out = curve + math.log(runs.mean) / (a - 1.0) + _best_hat(runs, a, curve)
        return _monotone(a, out)
    if not isinstance(runs, Poisson):
        raise NotComparable(f"Papernot and Steinke treat truncated negative binomial and Poisson laws, not {runs}.")
    m, loss = runs.mean, curve + runs.mean * delta_hat(orders, curve, exact)
    if m >= 1.0:
        return np.asarray(loss + math.log(m) / (a - 1.0))
    # The default that K = 0 releases has the same mass in both worlds; for m < 1 it may not be dropped.
    return np.asarray(np.logaddexp(-m, math.log(m) + (a - 1.0) * loss) / (a - 1.0))


def _monotone(a: Array, curve: Array) -> Array:
    """The smallest value at this or any larger order: Renyi divergence grows with the order."""
    rank = np.argsort(a, kind="stable")
    out = np.empty_like(curve)
    out[rank] = np.minimum.accumulate(curve[rank][::-1])[::-1]
    return out


# Adaptive sampling (Wang, Gao, Zhang, Su and Shen 2023, DP-HyPO).


def adaptive_curve(
    orders: Orders, curve: Array, runs: NegativeBinomial, density: tuple[float, float], repaired: bool
) -> Array:
    """DP-HyPO's Theorem 1, or the form that its proof supports once the masses of its bounding laws are counted."""
    a, (low, high) = np.array(orders), (math.log(density[0]), math.log(density[1]))
    share = a / (a - 1.0)
    paid = curve + math.log(runs.mean) / (a - 1.0)
    if repaired:
        return np.asarray(paid + share * high - low + _best_hat(runs, a, curve, stretch=high, shrink=low))
    return np.asarray(paid + share * (high - low) + _best_hat(runs, a, curve, stretch=high - low))


def selection_curve(base: Cost, runs: Runs, density: tuple[float, float], orders: Orders, one: Array) -> Array:
    """The least curve of the published theorems on selection, from that of one run; NotComparable if none applies."""
    if density == (1.0, 1.0):
        found = [stopping_curve(orders, one, runs)]
        if isinstance(runs, Poisson):
            found.append(stopping_curve(orders, one, runs, exact=base))
    elif isinstance(runs, NegativeBinomial):
        found = [adaptive_curve(orders, one, runs, density, repaired) for repaired in (True, False)]
    else:
        raise NotComparable(f"No Renyi bound on adaptive sampling is published for {runs}.")
    return np.asarray(np.min(found, axis=0))


def selected_curve(base: Cost, runs: Runs, density: tuple[float, float]) -> tuple[Array, Array] | None:
    """Orders and the least curve of the published theorems on selection, rounded up; None if none applies."""
    try:
        curve = selection_curve(base, runs, density, ORDERS, outward_curve(base, ORDERS))
    except NotComparable:
        return None
    return np.array(ORDERS), curve * (1.0 + 1e-11)


# Subsets (Koskela and Kulkarni 2023), integer orders only.


def _log_binomial(n: int, k: Array) -> Array:
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def subsampled_curve(tune: Array, rate: float) -> Array:
    """Their Theorem 4 (Zhu and Wang 2019): a curve at orders 2, 3, ... after Poisson subsampling."""
    q, miss = math.log(rate), math.log1p(-rate)
    out = np.empty_like(tune)
    for i in range(len(tune)):
        a = i + 2
        j = np.arange(3, a + 1, dtype=float)
        terms = [(a - 1) * miss + math.log1p((a - 1) * rate)]
        terms.append(math.log(a * (a - 1) / 2.0) + 2.0 * q + (a - 2) * miss + tune[0])
        rest = math.log(3.0) + _log_binomial(a, j) + j * q + (a - j) * miss + (j - 1.0) * tune[1 : a - 1]
        out[i] = logsumexp(np.concatenate([terms, rest])) / (a - 1)
    return out


def disjoint_curve(tune: Array, base: Array, rate: float) -> Array:
    """Their Theorem 6 at orders 2, 3, ...: tuning on a part, training on the rest; the worse of both directions."""
    q, miss = math.log(rate), math.log1p(-rate)
    # log of exp((j - 1) e(j)) at j = 0 (unused), 1, 2, ...; at j = 1 it is 0.
    grow = np.arange(1, len(tune) + 1, dtype=float)
    tuned, trained = (np.concatenate([[0.0, 0.0], grow * curve]) for curve in (tune, base))
    out = np.empty_like(tune)
    for i in range(len(tune)):
        a = i + 2
        j = np.arange(1, a)
        inner = _log_binomial(a, j.astype(float)) + (a - j) * q + j * miss + tuned[a - j] + trained[j]
        first = logsumexp(np.concatenate([[a * q + tuned[a], a * miss + trained[a]], inner]))
        k = np.arange(0, a)
        second = logsumexp(
            _log_binomial(a - 1, k.astype(float)) + k * q + (a - 1 - k) * miss + tuned[k + 1] + trained[a - k]
        )
        out[i] = max(first, second) / (a - 1)
    return out
