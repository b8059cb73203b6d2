"""Records whose targets are numbers: each is repaired on its own by public rules, public ones are refused."""

from __future__ import annotations

import numpy as np
import pytest

from dptune import UnitDataset
from dptune.errors import InvalidInput
from dptune.methods.blank import blank_records
from dptune.regression import RegressionDataset, range_of, scaled, unscaled

X = np.zeros((5, 2))
ODD = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300])


def test_private_targets_are_repaired_one_by_one() -> None:
    data = RegressionDataset(X, ODD, target_range=(-1, 3), missing_target=0)
    assert data.y.tolist() == [0, 3, -1, 3, -1]
    assert data.scaled.tolist() == [0.25, 1, 0, 1, 0]
    for place in range(5):
        changed = np.array([2.0, 2.0, 2.0, 2.0, 2.0])
        changed[place] = ODD[place]
        assert np.delete(RegressionDataset(X, changed, target_range=(-1, 3)).y, place).tolist() == [2.0] * 4
    assert RegressionDataset(X, ODD, target_range=(0, 10)).y[0] == 5  # the middle, where nothing is declared


def test_public_targets_are_refused_if_they_are_outside() -> None:
    with pytest.raises(InvalidInput, match="declared range"):
        RegressionDataset(X, ODD, public=True, target_range=(0, 1))
    assert len(RegressionDataset(X, np.ones(5), public=True, target_range=(0, 1))) == 5


@pytest.mark.parametrize("ends", [(1, 1), (2, 1), (0,), "ab", (0, np.inf), (np.nan, 1), (1e15, 1e15 + 1), (0, 1e300)])
def test_a_range_that_is_none_is_refused(ends: object) -> None:
    with pytest.raises(InvalidInput, match="target_range"):
        RegressionDataset(X, np.ones(5), target_range=ends)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="missing_target"):
        RegressionDataset(X, np.ones(5), target_range=(0, 1), missing_target=2)


def test_parts_and_units_stay_regressions() -> None:
    data = RegressionDataset(X, np.arange(5.0), target_range=(0, 10))
    part = data.take(np.array([4, 0]))
    assert isinstance(part, RegressionDataset)
    assert part.y.tolist() == [4, 0]
    units = UnitDataset(data, ["a", "b", "a", "b", "a"], 2)
    assert range_of(units) == range_of(part) == (0, 10)
    assert range_of(units.blank()) == range_of(blank_records(data)) == (0, 10)
    assert {float(blank_records(data).y.min()), float(blank_records(data).y.max())} == {0.0, 10.0}


def test_scaling_there_and_back_stays_inside() -> None:
    ends = (-7.3, 11.1)
    values = np.random.default_rng(0).uniform(*ends, 1000)
    assert np.allclose(unscaled(scaled(values, ends), ends), values, atol=1e-12)
    far = unscaled(np.array([-5.0, 5.0, np.inf]), ends)
    assert far.tolist() == [ends[0], ends[1], ends[1]]
