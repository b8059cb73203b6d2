"""Optuna's objective functions as trainers: ``objective(trial, data)`` keeps its ``suggest`` calls.

The space is read off the ``suggest`` calls by running the objective on blank records, so it may depend on nothing
private. An objective that closes over its records (``objective(trial)``, with the data from outside) would train on
them unpaid: it must take them as its second argument.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptune.accounting import Cost
from dptune.errors import InvalidInput
from dptune.integrations.optuna import from_optuna
from dptune.methods.blank import blank_records
from dptune.spaces import Space
from dptune.trainer import Fitted, Params

__all__ = ["ObjectiveTrainer", "from_objective"]

_ASKED = 6  # trials in which the space must be the same
Objective = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class ObjectiveTrainer:
    """A trainer that runs an Optuna objective with given parameters; :func:`from_objective` makes one.

    Args:
        objective: takes ``(trial, data)`` and returns the value, or ``(value, model)``. The model may also be handed
            over by ``trial.set_user_attr("model", model)``. ``trial.user_attrs["rng"]`` is the run's own generator.
        declared: the cost of one run, or a function of the parameters that returns it; its author's promise.
        sign: 1 if larger values are better, -1 if smaller ones are.

    Example:
        >>> from dptune import PureDp
        >>> ObjectiveTrainer(lambda trial, data: 0.0, lambda params: PureDp(0.5), 1.0).cost({})
        PureDp(pure_epsilon=0.5)
    """

    objective: Objective
    declared: Cost | Callable[[Params], Cost]
    sign: float

    def cost(self, params: Params) -> Cost:
        """The declared cost of one run."""
        return self.declared if isinstance(self.declared, Cost) else self.declared(params)

    def fit(self, params: Params, data: Any, rng: np.random.Generator) -> Fitted[Any]:
        """Run the objective once.

        Args:
            params: what its ``suggest`` calls return.
            data: the records that this run may see.
            rng: all randomness of the run.

        Returns:
            The model and its score.

        Raises:
            InvalidInput: the objective handed over no model.
        """
        trial = _quiet(_optuna().trial.FixedTrial(dict(params)))
        trial.set_user_attr("rng", rng)
        return _fitted(self.objective(trial, data), trial, self.sign)


@dataclass(frozen=True)
class _Unscored(ObjectiveTrainer):
    """One whose value is not public and not paid for: methods need ``PrivateValidation``."""

    validation: None = None


def from_objective(
    objective: Objective,
    data: Any,
    *,
    cost: Cost | Callable[[Params], Cost],
    direction: str,
    score_is: str,
) -> tuple[ObjectiveTrainer, Space]:
    """A trainer and a space from an Optuna objective.

    Args:
        objective: takes ``(trial, data)``. It must not reach the records in any other way.
        data: the records. None is looked at: the space is read off ``suggest`` calls on blank ones of the same form.
        cost: the cost of one run, or a function of the parameters that returns it.
        direction: "maximize" or "minimize", as for a study.
        score_is: "public" if the value comes from public records, or was noised and is part of ``cost``; "private" if
            it does not, and is to be ignored: the method then needs ``validation=PrivateValidation(...)``.

    Returns:
        The trainer and the space.

    Raises:
        InvalidInput: the objective fails on blank records, its space depends on earlier suggestions, or it prunes.

    Example:
        >>> from dptune import Float, PureDp
        >>> def objective(trial, data):
        ...     rate = trial.suggest_float("rate", 0.1, 1.0)
        ...     return rate, {"rate": rate}
        >>> told = {"cost": PureDp(0.1), "direction": "maximize", "score_is": "public"}
        >>> trainer, space = from_objective(objective, [1, 2], **told)
        >>> space == Space(rate=Float(0.1, 1.0))
        True
    """
    if direction not in ("maximize", "minimize"):
        raise InvalidInput(f"'direction' must be 'maximize' or 'minimize'; got {direction!r}.")
    if score_is not in ("public", "private"):
        raise InvalidInput(
            f"'score_is' must be 'public' or 'private', which says what the value rests on; got {score_is!r}."
        )
    if not isinstance(cost, Cost) and not callable(cost):
        raise InvalidInput(
            f"'cost' must be a cost, or a function of the parameters that returns one; got {cost!r:.80}."
        )
    space = _space(objective, blank_records(data))
    kind = ObjectiveTrainer if score_is == "public" else _Unscored
    return kind(objective, cost, 1.0 if direction == "maximize" else -1.0), space


def _optuna() -> Any:
    try:
        return importlib.import_module("optuna")
    except ImportError:
        raise InvalidInput("Optuna is not installed: pip install optuna.") from None


def _space(objective: Objective, blank: Any) -> Space:
    """What the objective suggests, the same in every trial, told by blank records."""
    optuna = _optuna()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        asked = [_suggested(objective, _quiet(study.ask()), blank) for _ in range(_ASKED)]
    finally:
        optuna.logging.set_verbosity(before)
    if any(one != asked[0] for one in asked):
        raise InvalidInput(
            "The objective suggests other parameters in other trials: a space that depends on earlier suggestions has "
            "no prior that could be paid for. Suggest all of them always, and use those that apply."
        )
    if not asked[0]:
        raise InvalidInput("The objective suggests no parameter, so there is nothing to tune; call trial.suggest_...")
    return from_optuna(asked[0])


def _suggested(objective: Objective, trial: Any, blank: Any) -> dict[str, Any]:
    trial.set_user_attr("rng", np.random.default_rng(0))
    try:
        _fitted(objective(trial, blank), trial, 1.0)
    except InvalidInput:
        raise
    except Exception as error:  # on made-up records: it may be told
        raise InvalidInput(
            f"The objective fails on blank records ({type(error).__name__}: {error}), so it would fail in the run. It "
            "is called as objective(trial, data)."
        ) from None
    return dict(trial.distributions)


def _quiet(trial: Any) -> Any:
    """A trial that neither reports nor prunes."""

    def refused(*args: Any, **named: Any) -> Any:
        raise InvalidInput(
            "The objective reports intermediate values or prunes: each is a function of the records that nothing pays "
            "for, and a pruned run shows when it stopped. Train every trial to its end."
        )

    trial.report = trial.should_prune = refused
    return trial


def _fitted(outcome: Any, trial: Any, sign: float) -> Fitted[Any]:
    value, model = outcome if isinstance(outcome, tuple) and len(outcome) == 2 else (outcome, None)
    model = trial.user_attrs.get("model") if model is None else model
    if model is None:
        raise InvalidInput(
            "The objective hands over no model: return (value, model), or call trial.set_user_attr('model', model)."
        )
    return Fitted(model, sign * float(value))
