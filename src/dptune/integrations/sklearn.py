"""scikit-learn: a classifier whose ``fit`` tunes and trains within one total privacy budget.

It looks and behaves like any other estimator (``clone``, ``Pipeline``, ``set_params``, ``score``), with one thing
missing on purpose: there is no ``cv_results_``. The scores of the candidates are the private part; publishing them
would break the theorem by which tuning is cheap. The budget pays for the winner alone.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dptune.errors import InvalidInput
from dptune.planner import tune
from dptune.sealed.release import Release
from dptune.tables import Schema, read_schema
from dptune.tables.sources import is_frame

__all__ = ["PrivateTunedClassifier"]


class PrivateTunedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
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

    Raises:
        InvalidInput: from ``fit``: something public is wrong; nothing was charged.
        BudgetExceeded: from ``fit``: the ledger has less left.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> model = PrivateTunedClassifier(epsilon=3.0, data_is="public", random_state=0).fit(x, y)
        >>> model.predict(x[:2]).shape, sorted(model.best_params_)
        ((2,), ['batch_size', 'learning_rate', 'noise_multiplier'])
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        schema: Schema | str | Path | None = None,
        dataset: str | None = None,
        ledger: Any = None,
        data_is: str = "private",
        out: str | Path | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.dataset = dataset
        self.ledger = ledger
        self.data_is = data_is
        self.out = out
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Tune and train within the budget.

        Args:
            X: the records: a DataFrame with the schema's columns, or an array with them in order.
            y: the classes.

        Returns:
            The fitted estimator.

        Raises:
            InvalidInput: something public is wrong; nothing was charged.
            BudgetExceeded: the ledger has less left; nothing was charged.
        """
        self.__dict__.pop("_encoder", None)  # of an earlier fit, perhaps on other records
        if self.data_is == "private" or self.out is not None or self.ledger is not None:
            self.release_path_ = str(self._fit(X, y, self.out).path)
            return self
        with tempfile.TemporaryDirectory(prefix="dptune-") as folder:
            self._fit(X, y, Path(folder) / "run")
        return self

    def _fit(self, x: Any, y: Any, out: str | Path | None) -> Release:
        """Tune and train in a folder, and keep what the release says."""
        inferred = self.data_is == "public" and self.schema is None
        release = self._fit_public(x, y, out) if inferred else self._fit_declared(x, y, out)
        self.best_params_ = dict(release.params)
        self.epsilon_ = float(release.details["epsilon"])
        self.delta_ = float(release.details["delta"])
        self.statement_ = str(release.statement)
        self.outcome_ = release.outcome
        self.model_ = release.model
        return release

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

    # Public records: everything may be looked at, as scikit-learn does.

    def _fit_public(self, x: Any, y: Any, out: str | Path | None) -> Release:
        x, y = validate_data(self, x, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"A classifier needs at least two classes; 'y' has 1 class, {self.classes_[0]!r}.")
        self._low, high = x.min(axis=0), x.max(axis=0)
        self._span = np.where(high > self._low, high - self._low, 1.0)
        known = {"records": len(x), "classes": len(self.classes_)}
        return self._tune((self._features(x, checked=True), labels), out, **known)

    # Declared records: nothing of a value is looked at before the seal.

    def _fit_declared(self, x: Any, y: Any, out: str | Path | None) -> Release:
        if self.schema is None:
            raise InvalidInput(
                "Private records need schema=..., which says what is public about them: 'dptune schema draft FILE' "
                "drafts one. Public records need data_is='public'."
            )
        if self.data_is == "private" and self.dataset is None:
            raise InvalidInput("Private records need dataset='NAME', under which the ledger knows them.")
        schema = self.schema if isinstance(self.schema, Schema) else read_schema(self.schema)
        if is_frame(x):
            data: Any = x if y is None else x.assign(**{schema.target.name: np.asarray(y)})  # by place, not index
        else:
            warnings.warn(
                "X is an array: if it was made by something that was fitted on the private records (a scaler, a "
                "selection of features), that step is not covered by the statement. Give the raw columns instead.",
                stacklevel=3,
            )
            data = (x, y)
        release = self._tune(data, out, schema=schema)
        assert release.encoder is not None
        self._encoder = release.encoder
        self.classes_ = _as_classes(list(schema.target.classes))
        validate_data(self, x, reset=True, skip_check_array=True)
        return release

    def _tune(self, data: Any, out: str | Path | None, **declared: Any) -> Release:
        seed = None
        if self.random_state is not None:
            if self.data_is == "private":
                raise InvalidInput("A 'random_state' makes a run repeatable, and its noise with it: leave it out.")
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        options = {"ledger": self.ledger, "dataset": self.dataset, "seed": seed, "data_is": self.data_is}
        return tune(data, epsilon=self.epsilon, delta=self.delta, out=out, explain=None, **options, **declared)

    def _fitted(self) -> Any:
        check_is_fitted(self, "outcome_")
        if self.model_ is None:
            raise NotFittedError("The release has no model, so nothing can be predicted; 'statement_' says why.")
        return self.model_

    def _features(self, x: Any, checked: bool = False) -> Any:
        """Rows as the model takes them."""
        if hasattr(self, "_encoder"):
            return self._encoder.encode(x)
        if not checked:
            x = validate_data(self, x, reset=False, dtype=np.float64)
        return ((x - self._low) / self._span).astype(np.float32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.data_is == "private"  # elsewhere 'random_state' decides
        tags.classifier_tags.poor_score = True  # a few dozen records leave little beside the noise
        return tags


def _as_classes(names: list[str]) -> Any:
    """Declared classes as ``y`` has them: whole numbers if all of their names are."""
    try:
        return np.array([int(name) for name in names])
    except ValueError:
        return np.array(names)
