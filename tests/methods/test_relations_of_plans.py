"""Plans under other relations: the total is converted once, priced within the budget, and stored with its relation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from tests.methods.test_conformance import METHODS
from tests.methods.test_edited_plans import Toy

from dptune.accounting import (
    ADDED_OR_REMOVED,
    CLIENT_REPLACED,
    RECORD_REPLACED,
    Gaussian,
    Neighbours,
    compose,
    grouped,
    within_client,
)
from dptune.accounting.voting import RingVote
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import Budget, plan_from_json

PATIENTS = ADDED_OR_REMOVED.group(3)
NAMES = ("geometric", "logarithmic, validated", "costs averaged", "subset 1", "noisy best", "vote", "naive", "guess")


@dataclass(frozen=True)
class Noisy:
    """A cost that follows the noise, under a relation of its own."""

    relation: Neighbours = ADDED_OR_REMOVED

    def cost(self, params: dict[str, Any]) -> Gaussian:
        return Gaussian(params["noise_multiplier"], neighbours=self.relation)

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return params, 0.0


@pytest.mark.parametrize("relation", [PATIENTS, RECORD_REPLACED], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_priced_for_the_neighbours_of_its_budget(name: str, relation: Neighbours) -> None:
    single = METHODS[name].plan(Budget(8.0, 1e-5), Toy())
    plan = METHODS[name].plan(Budget(8.0, 1e-5, relation), Toy())
    assert single.cost.neighbours == ADDED_OR_REMOVED
    assert plan.cost.neighbours == relation
    assert single.price() < plan.price() <= 8.0
    assert plan_from_json(plan.to_json()) == plan


def test_the_noise_grows_with_the_group() -> None:
    """Three times the shift needs three times the noise, if the noise is Gaussian and there is one run."""
    one, three = (METHODS["guess"].plan(Budget(1.0, 1e-5, r), Noisy()).noise for r in (ADDED_OR_REMOVED, PATIENTS))
    assert one is not None
    assert three == pytest.approx(3.0 * one, rel=1e-3)


def test_a_relation_cannot_be_edited_away() -> None:
    fields = json.loads(METHODS["geometric"].plan(Budget(8.0, 1e-5, PATIENTS), Toy()).to_json())
    with pytest.raises(InvalidInput, match=r"edited|its settings cost"):
        plan_from_json({**fields, "neighbours": str(ADDED_OR_REMOVED)})
    with pytest.raises(InvalidInput, match="its fields are about"):
        plan_from_json({**fields, "cost": {**fields["cost"], "neighbours": str(ADDED_OR_REMOVED)}})


def _without_relations(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_relations(value) for key, value in data.items() if key != "neighbours"}
    return [_without_relations(item) for item in data] if isinstance(data, list) else data


@pytest.mark.parametrize("name", NAMES)
def test_plans_of_older_versions_are_about_single_records(name: str) -> None:
    plan = METHODS[name].plan(Budget(8.0, 1e-5), Toy())
    older = _without_relations(json.loads(plan.to_json()))
    assert "neighbours" not in json.dumps(older)
    assert plan_from_json(older) == plan


def test_a_trainer_may_declare_its_own_relation() -> None:
    plan = METHODS["geometric"].plan(Budget(3.0, 1e-5, RECORD_REPLACED), Noisy(RECORD_REPLACED))
    assert plan.cost.neighbours == RECORD_REPLACED
    with pytest.raises(InvalidInput, match="No theorem turns a cost for 'one record replaced'"):
        METHODS["geometric"].plan(Budget(3.0, 1e-5), Noisy(RECORD_REPLACED))
    with pytest.raises(InvalidInput, match="is proven for one record added or removed"):
        METHODS["subset 1"].plan(Budget(3.0, 1e-5, RECORD_REPLACED), Noisy(RECORD_REPLACED))
    with pytest.raises(InvalidInput, match="cannot mix"):
        METHODS["noisy best"].plan(Budget(3.0, 1e-5, RECORD_REPLACED), Noisy(RECORD_REPLACED))


def test_a_group_that_no_budget_pays_is_refused() -> None:
    with pytest.raises(BudgetExceeded):
        METHODS["noisy best"].plan(Budget(1.0, 1e-5, ADDED_OR_REMOVED.group(50)), Toy())


def test_a_vote_is_a_guarantee_about_records_by_a_theorem() -> None:
    """Votes are priced for clients, the final training for records: only the converted vote composes with it."""
    vote, training = RingVote(12, 2, 1, 38.0, 1), Gaussian(2.0)
    assert vote.neighbours == CLIENT_REPLACED
    with pytest.raises(InvalidInput, match="cannot mix neighbouring relations: got one client replaced and one record"):
        compose(vote, training)
    assert compose(within_client(vote), training).neighbours == ADDED_OR_REMOVED
    plan = METHODS["vote"].plan(Budget(8.0, 1e-5), Toy())
    assert plan.cost.neighbours == ADDED_OR_REMOVED
    assert grouped(vote, 2).neighbours == CLIENT_REPLACED.group(2)


def test_private_validation_names_what_it_is_proved_for() -> None:
    with pytest.raises(
        InvalidInput, match=r"Private validation is proved for one record added or removed; this trainer"
    ):
        METHODS["logarithmic, validated"].plan(Budget(8.0, 1e-5, RECORD_REPLACED), Noisy(RECORD_REPLACED))
