"""scikit-learn: a classifier and a regressor whose ``fit`` tunes and trains within one total privacy budget.

They look and behave like any other estimator (``clone``, ``Pipeline``, ``set_params``, ``score``), with one thing
missing on purpose: there is no ``cv_results_``. The scores of the candidates are the private part; publishing them
would break the theorem by which tuning is cheap. The budget pays for the winner alone.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from dptune.errors import InvalidInput
from dptune.integrations._sklearn_base import PrivateTuned
from dptune.tables import NumberTarget, Schema, Target

__all__ = ["PrivateTunedClassifier", "PrivateTunedRegressor"]

_LEAST = 4  # records, so that a quarter of them is one


class PrivateTunedClassifier(ClassifierMixin, PrivateTuned):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that is tuned and trained privately, at one total price.

    Private records need ``schema``, which says what is public about them, and ``dataset``, the name under which the
    ledger knows them. Public records need neither. Whatever was *fitted* on the private records before this estimator
    sees them (a scaler or a selection of features in front of it in a ``Pipeline``) is not covered by its statement:
    declare ranges in the schema instead, by which columns are scaled.

    Args:
        epsilon: the total budget: tuning, choice and final training together.
        delta: the delta at which epsilon is stated.
        schema: what is public about the records: a :class:`~dptune.Schema` or the TOML file that says it.
        dataset: the name of the records in the ledger.
        ledger: the budget ledger or its file.
        data_is: "private", "public" or "synthetic".
        out: the folder of the run; unless records are private a temporary one, which is removed.
        random_state: for public and synthetic records only; it makes the run a rehearsal, without a guarantee.
        resume: the folder of a fit that was cut off; with the rest as it was, it is finished at no further charge.

    Raises:
        InvalidInput: from ``fit``: something public is wrong; nothing was charged.
        BudgetExceeded: from ``fit``: the ledger has less left.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> model = PrivateTunedClassifier(epsilon=3.0, data_is="public", random_state=0).fit(x, y)
        >>> model.predict(x[:2]).shape, sorted(model.best_params_)
        ((2,), ['learning_rate', 'noise_multiplier'])
    """

    def predict(self, X: Any) -> Any:
        """The class of each row.

        Args:
            X: rows as in ``fit``.

        Returns:
            Entries of ``classes_``.
        """
        model = self._fitted()
        return self.classes_[model.predict(self._features(X))]

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, in the order of ``classes_``.

        Args:
            X: rows as in ``fit``.

        Returns:
            An array with one row for each row and one column for each class.
        """
        model = self._fitted()
        return model.predict_proba(self._features(X))

    def _public_targets(self, y: Any) -> tuple[Any, dict[str, Any]]:
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"A classifier needs at least two classes; 'y' has 1 class, {self.classes_[0]!r}.")
        return labels, {"classes": len(self.classes_)}

    def _check_schema(self, schema: Schema) -> None:
        if not isinstance(schema.target, Target):
            raise InvalidInput("The schema's target is a number; use PrivateTunedRegressor, or declare classes.")

    def _keep_declared(self, schema: Schema) -> None:
        assert isinstance(schema.target, Target)
        self.classes_ = _as_classes(list(schema.target.classes))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.data_is == "private"  # elsewhere 'random_state' decides
        tags.classifier_tags.poor_score = True  # a few dozen records leave little beside the noise
        return tags


class PrivateTunedRegressor(RegressorMixin, PrivateTuned):  # type: ignore[misc]  # scikit-learn has no types
    """A regressor that is tuned and trained privately, at one total price.

    The target is a number in a range that the schema declares; private targets outside of it are clipped, and
    predictions never leave it. Public records need no schema: the range is that of ``y``. Otherwise it is as
    :class:`PrivateTunedClassifier`; ``score`` is R^2.

    Args:
        epsilon: the total budget: tuning, choice and final training together.
        delta: the delta at which epsilon is stated.
        schema: what is public about the records: a :class:`~dptune.Schema` or the TOML file that says it.
        dataset: the name of the records in the ledger.
        ledger: the budget ledger or its file.
        data_is: "private", "public" or "synthetic".
        out: the folder of the run; unless records are private a temporary one, which is removed.
        random_state: for public and synthetic records only; it makes the run a rehearsal, without a guarantee.
        resume: the folder of a fit that was cut off; with the rest as it was, it is finished at no further charge.

    Raises:
        InvalidInput: from ``fit``: something public is wrong; nothing was charged.
        BudgetExceeded: from ``fit``: the ledger has less left.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> x, y = load_diabetes(return_X_y=True)
        >>> model = PrivateTunedRegressor(epsilon=3.0, data_is="public", random_state=0).fit(x, y)
        >>> model.predict(x[:2]).shape, model.score(x, y) > 0.2
        ((2,), True)
    """

    _validation: ClassVar[dict[str, Any]] = {"y_numeric": True}

    def predict(self, X: Any) -> Any:
        """The predicted number of each row.

        Args:
            X: rows as in ``fit``.

        Returns:
            Numbers in the range of the target.
        """
        model = self._fitted()
        return model.predict(self._features(X))

    def _public_targets(self, y: Any) -> tuple[Any, dict[str, Any]]:
        if len(y) < _LEAST:
            raise ValueError(f"A regression needs at least {_LEAST} records; got n_samples = {len(y)}.")
        low, high = float(np.min(y)), float(np.max(y))
        return np.asarray(y, np.float64), {"target_range": (low, high if high > low else low + 1.0)}

    def _check_schema(self, schema: Schema) -> None:
        if not isinstance(schema.target, NumberTarget):
            raise InvalidInput("The schema's target has classes; use PrivateTunedClassifier, or declare a range.")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.data_is == "private"  # elsewhere 'random_state' decides
        tags.regressor_tags.poor_score = True  # a few dozen records leave little beside the noise
        return tags


def _as_classes(names: list[str]) -> Any:
    """Declared classes as ``y`` has them: whole numbers if all of their names are."""
    try:
        return np.array([int(name) for name in names])
    except ValueError:
        return np.array(names)
