"""One record moves every score's count by at most 1: all tiny data sets, odd predictions and targets, every place."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from dptune import Dataset, UnitDataset
from dptune._codec import from_json, to_json
from dptune.errors import InvalidInput
from dptune.judging import correct
from dptune.regression import RegressionDataset
from dptune.scores import (
    SCORES,
    AbsoluteError,
    Accuracy,
    Auc,
    Balanced,
    Score,
    SquaredError,
    check_score,
    natural_score,
    score_named,
)

STEPS = 2**20
ODD = (0.0, 1.0, 2.0, 0.5, -7.0, 1e300, np.inf, -np.inf, np.nan)
EACH: list[Score] = [
    Accuracy(),
    Balanced((0.5, 0.3, 0.2)),
    Balanced((1 - 1e-6, 1e-6)),
    AbsoluteError(),
    AbsoluteError(1e-9),
    SquaredError(),
    SquaredError(1.0),
]


class Says:
    """A model that answers with a record's first feature."""

    def predict(self, x: Any) -> Any:
        return np.asarray(x)[:, 0]


class Ranks(Says):
    """The same as a probability."""

    def predict_proba(self, x: Any) -> Any:
        found = np.asarray(x)[:, 0].astype(float)
        return np.column_stack([1 - found, found])


def _data(score: Score, records: list[tuple[float, float]]) -> Any:
    x = np.array([[found] for found, _ in records]).reshape(len(records), 1)
    y = np.array([target for _, target in records])
    if score.numbers:
        return RegressionDataset(x, y, target_range=(0.0, 1.0))
    return Dataset(x, y, len(score.shares) if isinstance(score, Balanced) else 3)


@pytest.mark.parametrize("score", EACH, ids=repr)
def test_a_value_lies_between_0_and_1_whatever_is_predicted(score: Score) -> None:
    found = np.array([one for one, _ in itertools.product(ODD, ODD)])
    targets = np.array([one for _, one in itertools.product(ODD, ODD)])
    with np.errstate(all="ignore"):
        values = score.values(found, targets, (0.0, 1.0))
    assert values.shape == found.shape
    numbers = values[~np.isnan(values)]
    assert ((numbers >= 0.0) & (numbers <= 1.0)).all()
    assert numbers.max() > 0.99  # a record may use what is paid for


@pytest.mark.parametrize("score", EACH, ids=repr)
def test_one_record_moves_the_count_by_at_most_one(score: Score) -> None:
    records = list(itertools.product((0.0, 0.4, 1.0, 2.0, np.nan, -np.inf), (0.0, 1.0, 2.0, np.nan)))
    peers = [records[0], records[7]]
    without = correct(Says(), _data(score, peers), score)
    most = Fraction(0)
    for record, place in itertools.product(records, range(3)):
        having = correct(Says(), _data(score, [*peers[:place], record, *peers[place:]]), score)
        assert 0 <= having - without <= 1
        most = max(most, having - without)
    assert most == 1


def test_one_record_moves_the_auc_of_groups_by_at_most_one_exactly() -> None:
    """All sets of up to 4 records with ranks, classes and groups; the bound is reached."""
    kinds = list(itertools.product((0.0, 1.0, np.nan), (0, 1), (0, 1)))
    most = 0
    for size in range(1, 5):
        for chosen in itertools.combinations_with_replacement(kinds, size):
            ranks, labels, groups = (np.array(column) for column in zip(*chosen, strict=True))
            whole = Auc.count(ranks, labels, groups, 2, STEPS)
            for gone in range(size):
                rest = np.arange(size) != gone
                most = max(most, abs(Auc.count(ranks[rest], labels[rest], groups[rest], 2, STEPS) - whole))
    assert most == STEPS


def test_one_unit_of_several_rows_moves_the_auc_by_at_most_one_exactly() -> None:
    kinds = list(itertools.product((0.0, 0.5, 1.0), (0, 1)))
    most = Fraction(0)
    for peers in itertools.combinations_with_replacement(kinds, 2):
        for own in itertools.combinations_with_replacement(kinds, 2):
            records = [*peers, *own]
            data = Dataset(np.array([[r] for r, _ in records]), np.array([y for _, y in records]), 2)
            units = UnitDataset(data, [0, 1, 2, 2], 2)
            found = [correct(Ranks(), part, Auc((0.5, 0.5))) for part in (units, units.take(np.array([0, 1])))]
            most = max(most, abs(found[0] - found[1]))
    assert Fraction(1, 2) < most <= 1


@pytest.mark.parametrize("records", [10, 1000])
def test_the_plain_auc_moves_by_one_half_however_many_records_there_are(records: int) -> None:
    ranks = np.r_[np.zeros(records - 1), 1.0, -1.0]
    labels = np.r_[np.zeros(records - 1), 1, 1]
    assert roc_auc_score(labels[:-1], ranks[:-1]) == 1.0
    assert roc_auc_score(labels, ranks) == 0.5


def test_scores_are_what_they_are_called() -> None:
    rng = np.random.default_rng(0)
    y, ranks = (rng.random(400) < 0.2).astype(int), rng.random(400)
    x = (0.7 * ranks + 0.3 * y)[:, None]
    shares = (float(np.mean(y == 0)), float(np.mean(y == 1)))
    data, balanced, auc = Dataset(x, y, 2), Balanced(shares), Auc(shares)
    rounded = data.map(np.round)
    count = correct(Says(), rounded, balanced)
    assert float(count) / balanced.denominator(400) == pytest.approx(
        balanced_accuracy_score(y, np.round(x[:, 0])), abs=1e-5
    )
    assert float(correct(Ranks(), data, auc)) / 2 == pytest.approx(roc_auc_score(y, x[:, 0]), abs=1e-5)
    number = Auc.groups(auc.denominator(400))
    groups = rng.integers(0, number, 400)
    grouped = float(correct(Ranks(), data, auc, groups=groups, number=number)) / auc.denominator(400)
    assert 0.5 < grouped < 1.0  # groups without both classes pull it to one half


def test_a_record_without_a_rank_counts_as_ranked_wrong() -> None:
    labels, groups = np.array([0, 1]), np.zeros(2, int)
    for ranks in ([np.nan, 1.0], [0.0, np.nan], [np.nan, np.nan]):
        assert Auc.count(np.array(ranks), labels, groups, 1, STEPS) == 0


def test_scores_by_name_and_in_files() -> None:
    assert [one.kind for one in SCORES.values()] == list(SCORES)
    for name in SCORES:
        score = score_named(name, (0.9, 0.1) if name in ("balanced", "auc") else None)
        assert from_json(to_json(score), Score, "a score") == score
        assert score.sentence()
    with pytest.raises(InvalidInput, match="did you mean 'balanced'"):
        score_named("balancd")
    with pytest.raises(InvalidInput, match="never counted"):
        score_named("balanced")
    for wrong in ((0.5,), (0.5, 0.6), (1.0, 0.0), "ab"):
        with pytest.raises(InvalidInput, match="shares"):
            Balanced(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="two classes"):
        Auc((0.5, 0.3, 0.2))


def test_a_score_must_fit_the_targets() -> None:
    classes = Dataset(np.zeros((2, 1)), np.zeros(2), 2)
    numbers = RegressionDataset(np.zeros((2, 1)), np.zeros(2), target_range=(0, 1))
    assert (natural_score(classes), natural_score(numbers)) == (Accuracy(), AbsoluteError())
    check_score(Balanced((0.5, 0.5)), classes)
    for score, data in ((Accuracy(), numbers), (AbsoluteError(), classes), (Balanced((0.4, 0.3, 0.3)), classes)):
        with pytest.raises(InvalidInput, match="The score"):
            check_score(score, data)
    with pytest.raises(InvalidInput, match="no predict_proba"):
        correct(Says(), classes, Auc((0.5, 0.5)))
