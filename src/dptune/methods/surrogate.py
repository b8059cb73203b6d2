"""Update rules for adaptive sampling: from the scores seen so far to a sampling law over points.

The Gaussian process of DP-HyPO's Algorithm 3 (scikit-learn), and a registry for rules of one's own. A rule may do
anything with the history of its own run: the projection to the box, not the rule, carries the privacy proof.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune._validate import real
from dptune.errors import InvalidInput

__all__ = ["GaussianProcess", "Rule", "register_rule", "rule_named"]

# history points (n, d), their scores (n,), the points to weigh (m, d) -> weights (m,), in any scale
Rule = Callable[[Array, Array, Array], Array]

_RULES: dict[str, Rule] = {}
_REFITS = (4, 8, 16, 32, 64, 128, 256)


def register_rule(name: str, rule: Rule) -> None:
    """Give an update rule a name, by which ``Adaptive(rule=...)`` and stored plans refer to it.

    Args:
        name: what plans call it.
        rule: a function (seen, scores, points) -> weights, where ``seen`` are the coordinates of the configurations
            tried, ``scores`` their scores and ``points`` the coordinates to weigh; the weights may have any scale.
            It must be deterministic, and must look at nothing but its arguments.

    Raises:
        InvalidInput: the rule is not a function.

    Example:
        >>> import numpy as np
        >>> def nearest(seen, scores, points):
        ...     best = seen[scores.argmax()]
        ...     return np.exp(-((points - best) ** 2).sum(axis=1))
        >>> register_rule("nearest", nearest)
    """
    if not callable(rule):
        raise InvalidInput(f"A rule is a function (seen, scores, points) -> weights; got {rule!r}.")
    _RULES[name] = rule


def rule_named(name: str) -> Rule:
    """The rule that was registered under a name.

    Args:
        name: as it was registered.

    Returns:
        The rule.

    Raises:
        InvalidInput: nothing was registered under it.
    """
    if name not in _RULES:
        known = ", ".join(sorted(_RULES)) or "none"
        raise InvalidInput(f"No update rule called {name!r} is registered (registered: {known}); call register_rule.")
    return _RULES[name]


@dataclass
class GaussianProcess:
    """The rule of DP-HyPO's Algorithm 3, a softmax of upper confidence bounds: weights exp(beta (mean + tau
    deviation)).

    The kernel's scales are fitted anew when the history has doubled, so that the surrogate costs little beside
    training. Not thread-safe; one instance serves one run.

    Args:
        tau: the weight of the surrogate's uncertainty.
        beta: the inverse temperature of the softmax.
    """

    tau: float = 0.1
    beta: float = 20.0

    def __post_init__(self) -> None:
        self.tau = real("tau", self.tau, 0, 1e6)
        self.beta = real("beta", self.beta, 0, 1e9)
        self._fitted: dict[bytes, Any] = {}

    def bounds(self, seen: Array, scores: Array, points: Array) -> Array:
        """Mean plus tau deviations of the surrogate.

        Args:
            seen: coordinates of the configurations tried.
            scores: their scores.
            points: where the bounds are wanted.

        Returns:
            One bound for each point.
        """
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - slow import, only adaptive runs need it
        from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415 - the same
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel  # noqa: PLC0415 - the same

        kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(0.3, (0.05, 3.0)) + WhiteKernel(0.1, (1e-4, 10.0))
        usable = max((n for n in _REFITS if n <= len(seen)), default=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a scale at its bound is an answer
            if usable and float(np.ptp(scores[:usable])) > 0:
                # Only a prefix decides the scales, so that they are a function of the history, not of call times.
                key = seen[:usable].tobytes() + scores[:usable].tobytes()
                if key not in self._fitted:
                    early = GaussianProcessRegressor(kernel, normalize_y=True).fit(seen[:usable], scores[:usable])
                    self._fitted = {key: early.kernel_}
                kernel = self._fitted[key]
            model = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=None).fit(seen, scores)
            mean, deviation = model.predict(points, return_std=True)
        return np.asarray(mean + self.tau * deviation, dtype=float)

    def __call__(self, seen: Array, scores: Array, points: Array) -> Array:
        if len(seen) == 0 or not math.isfinite(float(scores.max())):
            return np.ones(len(points))
        bound = self.bounds(seen, scores, points)
        return np.asarray(np.exp(self.beta * (bound - bound.max())))
