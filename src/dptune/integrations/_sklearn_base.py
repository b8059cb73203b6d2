"""What the estimators for scikit-learn have in common: parameters, one fit within one budget, how rows become features.

A classifier and a regressor differ in their targets alone; those are the hooks at the end of the class.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dptune.errors import InvalidInput
from dptune.planner import tune
from dptune.sealed.release import Release
from dptune.tables import Schema, read_schema
from dptune.tables.sources import is_frame

__all__ = ["PrivateTuned"]


class PrivateTuned(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator that is tuned and trained privately, at one total price; one for classes and one for numbers derive
    from it."""

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
        resume: str | Path | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.dataset = dataset
        self.ledger = ledger
        self.data_is = data_is
        self.out = out
        self.random_state = random_state
        self.resume = resume

    def fit(self, X: Any, y: Any = None) -> Self:
        """Tune and train within the budget.

        Args:
            X: the records: a DataFrame with the schema's columns, or an array with them in order.
            y: the targets.

        Returns:
            The fitted estimator.

        Raises:
            InvalidInput: something public is wrong; nothing was charged.
            BudgetExceeded: the ledger has less left; nothing was charged.
            Interrupted: Ctrl-C; one line says what was charged. The same with ``resume`` finishes it.
        """
        self.__dict__.pop("_encoder", None)  # of an earlier fit, perhaps on other records
        kept = (self.out, self.ledger, self.resume)
        if self.data_is == "private" or any(one is not None for one in kept):
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

    # Public records: everything may be looked at, as scikit-learn does.

    def _fit_public(self, x: Any, y: Any, out: str | Path | None) -> Release:
        x, y = validate_data(self, x, y, dtype=np.float64, **self._validation)
        targets, known = self._public_targets(y)
        self._low, high = x.min(axis=0), x.max(axis=0)
        self._span = np.where(high > self._low, high - self._low, 1.0)
        return self._tune((self._features(x, checked=True), targets), out, records=len(x), **known)

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
        self._check_schema(schema)
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
        self._keep_declared(schema)
        validate_data(self, x, reset=True, skip_check_array=True)
        return release

    def _tune(self, data: Any, out: str | Path | None, **declared: Any) -> Release:
        seed = None
        if self.random_state is not None:
            if self.data_is == "private":
                raise InvalidInput("A 'random_state' makes a run repeatable, and its noise with it: leave it out.")
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        options = {"ledger": self.ledger, "dataset": self.dataset, "seed": seed, "data_is": self.data_is}
        options["resume"] = self.resume
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

    # What is different for classes and for numbers.

    _validation: ClassVar[dict[str, Any]] = {}

    def _public_targets(self, y: Any) -> tuple[Any, dict[str, Any]]:
        """Public targets as they are tuned on, and what is said of them."""
        raise NotImplementedError

    def _check_schema(self, schema: Schema) -> None:
        """Refuse a schema whose target is of the other kind."""
        raise NotImplementedError

    def _keep_declared(self, schema: Schema) -> None:
        """Keep what the schema says of the targets."""
