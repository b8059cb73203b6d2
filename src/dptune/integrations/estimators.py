"""Any estimator with a declared cost as a trainer: a scikit-learn style class that is private by itself.

dptune cannot see inside of such a class: that one ``fit`` costs what is declared is its author's promise. What it
adds is the price of the choice among many of them, and care for what an estimator keeps: the seed of its noise, how
often it was fitted, and which classes it happened to see are in no model that leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune._validate import real
from dptune.accounting import RECORD_REPLACED, Cost, PureDp
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.integrations._generators import forget_generators, secret_state
from dptune.regression import range_of
from dptune.scores import natural_score
from dptune.trainer import Fitted, Params

__all__ = ["EstimatorTrainer", "epsilon_of", "estimator_trainer"]

# By the scikit-learn class: options under which it predicts as diffprivlib's does, and what predictions are made of.
_PREDICTS_BY: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "GaussianNB": ({}, ("classes_", "class_prior_", "theta_", "var_", "n_features_in_")),
    "LogisticRegression": ({"solver": "liblinear"}, ("classes_", "coef_", "intercept_", "n_features_in_")),
    "LinearRegression": ({}, ("coef_", "intercept_", "n_features_in_")),
}
# How many times its epsilon a replaced record of an estimator of diffprivlib costs, where its fit was read.
_TIMES = {"LogisticRegression": 1, "GaussianNB": 2, "DecisionTreeClassifier": 2, "RandomForestClassifier": 2}
# What an estimator of diffprivlib would read off the records if nobody says it.
_MOST_NORM = 2.0  # of a record of diffprivlib's logistic regression
_BOUNDS = ("data_norm", "bounds", "bounds_X", "bounds_y", "classes")


@dataclass(frozen=True)
class EstimatorTrainer:
    """A trainer that fits an estimator; :func:`estimator_trainer` makes one.

    Args:
        factory: a function of the parameters that returns a new, unfitted estimator.
        declared: the cost of one ``fit`` for given parameters.
        validation: records that the caller declares public, on which the score is the accuracy, or for numbers the
            absolute error's. Without them the score says nothing, and methods need
            ``validation=PrivateValidation(...)``.

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

        A public record of every class, all zeros, is added to the private ones: so every fit knows all classes, and
        which of them the private records hold decides neither what is released nor whether ``fit`` raises. Where
        targets are numbers, two such records are added, one at each end of the range.

        Args:
            params: the configuration.
            data: the records that this run may see.
            rng: all randomness of the run.

        Returns:
            The fitted estimator, and its score on the public records.
        """
        estimator = self.factory(params)
        names = [name for name in estimator.get_params() if name.rpartition("__")[2] == "random_state"]
        states = {name: secret_state(rng) for name in names}
        for name, state in states.items():
            estimator.set_params(**{name: state})
        if "accountant" in estimator.get_params():  # by default one for the whole process, which counts its fits
            estimator.set_params(accountant=type(estimator.accountant)())
        ends = range_of(data)
        targets = np.arange(data.classes) if ends is None else np.array(ends)
        blank = np.clip(np.zeros((len(targets), data.features), data.x.dtype), *data.feature_range)
        estimator.fit(np.concatenate([data.x, blank]), np.concatenate([data.y, targets]))
        estimator.set_params(**dict.fromkeys(names))  # who knows the seed can take the noise away again
        forget_generators(estimator, {seed for state in states.values() for seed in state.told})
        model = _plain(estimator)
        if self.validation is None:
            return Fitted(model, 0.0)
        found = np.asarray(model.predict(self.validation.x))
        each = natural_score(self.validation).values(found, self.validation.y, range_of(self.validation))
        return Fitted(model, float(np.mean(each)))

    @property
    def takes_datasets(self) -> bool:
        """Whatever is brought becomes a :class:`~dptune.data.Dataset`."""
        return True

    def check(self, params: Params, data: object) -> None:
        """Refuse records that are no rows; looks at their type and shape alone.

        Args:
            params: the configuration.
            data: the records.

        Raises:
            InvalidInput: they are no data set, or images.
        """
        if not isinstance(data, Dataset):
            raise InvalidInput(f"Estimators are fitted on a dptune Dataset; got {type(data).__name__}.")
        if self.validation is not None and (range_of(self.validation) is None) != (range_of(data) is None):
            raise InvalidInput(
                "The 'validation' of an estimator must have targets as the data has: classes, or numbers."
            )
        if len(data.shape) > 1:
            raise InvalidInput(f"Estimators take rows; these records have the shape {data.shape}. Give 'data.flat'.")


def _plain(estimator: Any) -> Any:
    """A diffprivlib estimator as the scikit-learn one that it is made of, which a safe file can hold.

    Only what predictions need is kept: the number of iterations, for one, is nothing that its epsilon covers.
    """
    kind = type(estimator)
    base = next((one for one in kind.__mro__ if one.__module__.startswith("sklearn.")), None)
    if not kind.__module__.startswith("diffprivlib.") or base is None or base.__name__ not in _PREDICTS_BY:
        return estimator
    made, (options, kept) = base(), _PREDICTS_BY[base.__name__]
    made.set_params(**options)
    for name in kept:
        setattr(made, name, getattr(estimator, name))
    return made


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
            is read off the estimator of diffprivlib, for one record replaced (:func:`epsilon_of`).
        validation: records that the caller declares public, on which the score is the accuracy, or for numbers the
            absolute error's.

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
    """The pure cost that an estimator of diffprivlib states in its attribute ``epsilon``, for one record replaced.

    diffprivlib takes the number of records for public: the priors of its naive Bayes tell it exactly, and noise on its
    means is scaled by it. So what it states holds for a record that is replaced, and for none that is added or removed:
    plan with ``neighbours=RECORD_REPLACED``. A replaced record of ``GaussianNB`` may change its class, which moves the
    counts and sums of two classes, each at the stated price: it costs twice that. So does one of a tree or a forest,
    which leaves one leaf, or class of a leaf, for another.

    ``LogisticRegression`` states the price of a replacement, for the exact minimum of its objective, which its solver
    comes close to. It puts the norm of a record where its proof has the square, which is enough up to a norm of 2; and
    it does not hold back the intercept, which its proof needs. So it is read for ``data_norm`` of at most 2 and
    ``fit_intercept=False``.

    The epsilon of others is not read. ``LinearRegression`` noises sums of squares by its lower bounds alone, not at all
    where they are 0, and with an intercept it spends more than it states; ``KMeans`` keeps the cluster of every record.
    All else is its authors' promise.

    Elsewhere an ``epsilon`` may be anything (a loss's, in scikit-learn's ``SGDClassifier``), so it is not read.

    Args:
        estimator: an unfitted estimator.

    Returns:
        What one ``fit`` of it costs.

    Raises:
        InvalidInput: it is no estimator of diffprivlib, states none, would read bounds off the records, is one whose
            epsilon is not read, or has bounds or options under which a record does more than its noise is made for.

    Example:
        >>> from sklearn.linear_model import SGDClassifier
        >>> epsilon_of(SGDClassifier())
        Traceback (most recent call last):
        dptune.errors.InvalidInput: The 'epsilon' of a SGDClassifier may be anything, ...
    """
    if not any(one.__module__.partition(".")[0] == "diffprivlib" for one in type(estimator).__mro__):
        raise InvalidInput(
            f"The 'epsilon' of a {type(estimator).__name__} may be anything, such as a loss's: only diffprivlib's is "
            "known to be its cost. Declare it: estimator_trainer(factory, cost=...)."
        )
    stated = vars(estimator).get("epsilon", getattr(type(estimator), "epsilon", None))
    if not isinstance(stated, int | float) or isinstance(stated, bool):
        raise InvalidInput(
            f"{type(estimator).__name__} has no number 'epsilon' from which its cost could be read; declare it: "
            "estimator_trainer(factory, cost=...)."
        )
    unsaid = [name for name in _BOUNDS if getattr(estimator, name, 0.0) is None]
    if unsaid:
        raise InvalidInput(
            f"{type(estimator).__name__} would read its bounds off the private records, which no epsilon covers; give "
            f"{unsaid[0]!r} in the factory."
        )
    known = [
        one.__name__ for one in type(estimator).__mro__
        if one.__module__.partition(".")[0] == "diffprivlib" and one.__name__ in _TIMES
    ]  # fmt: skip
    if not known:
        raise InvalidInput(
            f"What diffprivlib's {type(estimator).__name__} states was not found to be the cost of a replaced record, "
            "so it is not read; declare it: estimator_trainer(factory, cost=...), if you have checked it."
        )
    if known[0] == "GaussianNB":
        _check_sums(estimator)
    if known[0] == "LogisticRegression":
        _check_objective(estimator)
    return PureDp(_TIMES[known[0]] * float(stated), neighbours=RECORD_REPLACED)


def _check_objective(estimator: object) -> None:
    """Refuse a logistic regression whose noise is made for less than one record does.

    With records of norm R, a quarter for the second derivative and a regulariser a, a replaced record changes the
    density by a factor of up to 1 + R^2 / 4a. The mechanism allows for (1 + R / 4a)^2, or raises a to R / 4u where u =
    exp(epsilon / 4) - 1 and allows for (1 + u)^2: enough for every a and epsilon if R is at most 2.
    """
    if getattr(estimator, "fit_intercept", True):
        raise InvalidInput(
            "The LogisticRegression of diffprivlib does not hold back its intercept, which the proof of its epsilon "
            "needs, so it is not read; give fit_intercept=False in the factory, or declare the cost."
        )
    if not real("data_norm", getattr(estimator, "data_norm", None), 0.0) <= _MOST_NORM:
        raise InvalidInput(
            "The LogisticRegression of diffprivlib makes its noise for a record's norm where the square is needed; "
            f"its epsilon holds up to data_norm={_MOST_NORM:g}. Scale the features, or declare the cost."
        )


def _check_sums(estimator: object) -> None:
    """Refuse a naive Bayes whose noise is made for less than one record moves its sums by."""
    low, high = (np.asarray(end, np.float64) for end in getattr(estimator, "bounds", (0.0, 0.0)))
    if (low > 0).any() or (high < 0).any():
        raise InvalidInput(
            "GaussianNB noises sums as if a record moved them by high - low at most, which holds where 'bounds' have 0 "
            "between them; shift the features, or declare the cost."
        )
