"""Any estimator with a declared cost as a trainer: a scikit-learn style class that is private by itself.

dptune cannot see inside of such a class: that one ``fit`` costs what is declared is its author's promise. What it
adds is the price of the choice among many of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune.accounting import Cost, PureDp
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.integrations._generators import forget_generators, secret_state
from dptune.trainer import Fitted, Params

__all__ = ["EstimatorTrainer", "epsilon_of", "estimator_trainer"]


@dataclass(frozen=True)
class EstimatorTrainer:
    """A trainer that fits an estimator; :func:`estimator_trainer` makes one.

    Args:
        factory: a function of the parameters that returns a new, unfitted estimator.
        declared: the cost of one ``fit`` for given parameters.
        validation: records that the caller declares public, on which the score is the accuracy. Without them the
            score says nothing, and methods need ``validation=PrivateValidation(...)``.

    Example:
        >>> from sklearn.dummy import DummyClassifier
        >>> from dptune import PureDp
        >>> EstimatorTrainer(lambda params: DummyClassifier(), lambda params: PureDp(0.5)).cost({})
        PureDp(pure_epsilon=0.5)
    """

    factory: Callable[[Params], Any]
    declared: Cost | Callable[[Params], Cost]
    validation: Dataset | None = None

    def cost(self, params: Params) -> Cost:
        """The declared cost of one ``fit``."""
        return self.declared if isinstance(self.declared, Cost) else self.declared(params)

    def fit(self, params: Params, data: Dataset, rng: np.random.Generator) -> Fitted[Any]:
        """Fit one estimator; if it takes a ``random_state``, that is a function of the run, and removed afterwards.

        The state tells the noise, and an estimator is released with its parameters.

        Args:
            params: the configuration.
            data: the records that this run may see.
            rng: all randomness of the run.

        Returns:
            The fitted estimator, and its accuracy on the public records.
        """
        estimator = self.factory(params)
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=secret_state(rng))
        estimator.fit(data.x, data.y)
        forget_generators(estimator)
        if self.validation is None:
            return Fitted(estimator, 0.0)
        return Fitted(estimator, float(np.mean(estimator.predict(self.validation.x) == self.validation.y)))


def estimator_trainer(
    factory: Callable[[Params], Any],
    *,
    cost: Cost | Callable[[Params], Cost] | None = None,
    validation: Dataset | None = None,
) -> EstimatorTrainer:
    """Make a trainer of estimators that are private by themselves.

    Args:
        factory: a function of the parameters that returns a new, unfitted estimator.
        cost: the cost of one ``fit``, or a function of the parameters that returns it; by default a pure epsilon that
            is read off the estimator (``estimator.epsilon``), as diffprivlib's have it.
        validation: records that the caller declares public, on which the score is the accuracy.

    Returns:
        The trainer.

    Raises:
        InvalidInput: ``cost`` is neither.

    Example:
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from dptune import PureDp
        >>> estimator_trainer(lambda params: GaussianNB(), cost=PureDp(1.0)).cost({})
        PureDp(pure_epsilon=1.0)
    """
    if cost is None:
        return EstimatorTrainer(factory, lambda params: epsilon_of(factory(params)), validation)
    if not isinstance(cost, Cost) and not callable(cost):
        raise InvalidInput(
            f"'cost' must be a cost, or a function of the parameters that returns one; got {cost!r:.80}."
        )
    return EstimatorTrainer(factory, cost, validation)


def epsilon_of(estimator: object) -> PureDp:
    """The pure cost that an estimator states in its attribute ``epsilon``, as diffprivlib's do.

    Args:
        estimator: an unfitted estimator.

    Returns:
        What one ``fit`` of it costs.

    Raises:
        InvalidInput: it has none, or has an accountant that says otherwise.

    Example:
        >>> class Noisy:
        ...     epsilon = 0.25
        >>> epsilon_of(Noisy())
        PureDp(pure_epsilon=0.25)
    """
    stated = vars(estimator).get("epsilon", getattr(type(estimator), "epsilon", None))
    if not isinstance(stated, int | float) or isinstance(stated, bool):
        raise InvalidInput(
            f"{type(estimator).__name__} has no number 'epsilon' from which its cost could be read; declare it: "
            "estimator_trainer(factory, cost=...)."
        )
    if getattr(estimator, "data_norm", 0.0) is None or getattr(estimator, "bounds", 0.0) is None:
        raise InvalidInput(
            f"{type(estimator).__name__} would read its bounds off the private records, which no epsilon covers; give "
            "'data_norm' or 'bounds' in the factory."
        )
    return PureDp(float(stated))
