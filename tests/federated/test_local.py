"""Partitions, the paper's candidates, and local losses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.federated.local import dirichlet_partition, iid_partition, losses_of, paper_candidates, trainer_losses


def test_table_three_has_a_hundred_candidates() -> None:
    candidates = paper_candidates()
    assert len(candidates) == len({tuple(sorted(c.items())) for c in candidates}) == 100
    assert {c["momentum"] for c in candidates} == {0.0, 0.9}
    assert len({c["lr"] for c in candidates}) == 10


def test_iid_parts_cover_everything_once() -> None:
    parts = iid_partition(1003, 10, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(1003))
    assert {len(part) for part in parts} == {100, 101}


@pytest.mark.parametrize("beta", [0.05, 0.5, 30.0])
def test_dirichlet_parts_cover_everything_once(beta: float) -> None:
    labels = np.random.default_rng(1).integers(0, 10, 5000)
    parts = dirichlet_partition(labels, 50, beta, np.random.default_rng(2), least=5)
    assert sorted(np.concatenate(parts).tolist()) == list(range(5000))
    assert min(len(part) for part in parts) >= 5


def test_a_small_concentration_is_more_skewed() -> None:
    labels = np.random.default_rng(1).integers(0, 10, 20_000)

    def skew(beta: float) -> float:
        parts = dirichlet_partition(labels, 20, beta, np.random.default_rng(3))
        largest = [np.bincount(labels[part], minlength=10).max() / len(part) for part in parts]
        return float(np.mean(largest))

    assert skew(0.1) > 0.4
    assert skew(100.0) < 0.15


@pytest.mark.parametrize(
    ("values", "match"),
    [({"clients": 0}, "clients"), ({"concentration": 0}, "concentration"), ({"least": 100}, "cannot give")],
)
def test_impossible_partitions(values: dict[str, Any], match: str) -> None:
    settings = {"labels": np.zeros(50), "clients": 5, "concentration": 1.0, "rng": np.random.default_rng(0)}
    with pytest.raises(InvalidInput, match=match):
        dirichlet_partition(**{**settings, **values})


def test_a_candidate_that_fails_ranks_last() -> None:
    def fit(candidate: Any) -> float:
        if candidate["lr"] > 1:
            raise FloatingPointError("diverged")
        return float(candidate["lr"])

    losses = losses_of([{"lr": 0.5}, {"lr": 2.0}], fit, lambda model: model + 1)
    assert losses[0] == 1.5
    assert math.isnan(losses[1])


def test_a_training_that_exits_is_a_bad_loss_too() -> None:
    def leave(candidate: Mapping[str, Any]) -> float:
        raise SystemExit(3)

    assert math.isnan(losses_of([{"lr": 0.5}], leave, lambda model: model)[0])


class _Run(NamedTuple):
    model: float
    score: float


class _NearestLevel:
    """A tiny trainer: its model is a level, its score is how near that lies to the data's mean."""

    def fit(self, params: Mapping[str, Any], data: Any, rng: np.random.Generator) -> _Run:
        return _Run(params["level"], -abs(params["level"] - float(np.mean(data))))


def test_a_trainer_gives_one_loss_per_candidate() -> None:
    candidates = [{"level": level} for level in (0.0, 1.0, 5.0)] + [{}]
    losses = trainer_losses(_NearestLevel(), candidates, [1.0, 1.0, 4.0])
    assert losses[:3] == [2.0, 1.0, 3.0]
    assert math.isnan(losses[3])
