"""Data sets: published counts, public preprocessing record by record, clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.training import Dataset, RunKey, load, oriented_gradients
from dptune.training._tabular import columns
from dptune.training._text import hashed_words

COUNTS = {"mnist": (60_000, 10_000, 784, 10), "fashion-mnist": (60_000, 10_000, 784, 10)}


@pytest.mark.parametrize("name", list(COUNTS))
def test_images_have_the_published_counts(name: str, data_root: Path) -> None:
    split = load(name)
    train, test, features, classes = COUNTS[name]
    assert (len(split.train), len(split.test), split.train.x.shape[1]) == (train, test, features)
    assert split.train.classes == classes
    assert split.train.x.min() == 0.0
    assert split.train.x.max() == 1.0
    assert len(np.unique(split.train.y)) == classes


def test_adult_has_the_published_counts_and_categories(data_root: Path) -> None:
    split = load("adult")
    assert (len(split.train), len(split.test)) == (32_561, 16_281)
    layout = columns(data_root / "adult" / "adult.names")
    width = sum(len(values) or 1 for _, values in layout)
    assert split.train.x.shape[1] == split.test.x.shape[1] == width == 105
    assert split.train.y.sum() == 7_841  # as adult.names: 24.08 %
    assert split.test.y.sum() == 3_846
    assert split.train.x.min() >= 0.0
    assert split.train.x.max() <= 1.0


@pytest.mark.slow
def test_reviews_have_the_published_counts(data_root: Path) -> None:
    split = load("imdb")
    assert (len(split.train), len(split.test)) == (25_000, 25_000)
    assert split.train.y.sum() == split.test.y.sum() == 12_500
    np.testing.assert_allclose(np.linalg.norm(split.train.x, axis=1), 1.0, atol=1e-5)


def test_digits_come_with_scikit_learn() -> None:
    split = load("digits")
    assert (len(split.train), len(split.test)) == (1_438, 359)
    assert split.train.x.max() == 1.0


def test_features_look_at_one_record_only() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((20, 784)).astype(np.float32)
    together = oriented_gradients(x)
    assert together.shape == (20, 441)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-5)
    for row in range(20):
        np.testing.assert_allclose(oriented_gradients(x[row : row + 1])[0], together[row], rtol=1e-5, atol=1e-7)
    assert not oriented_gradients(np.zeros((2, 784), np.float32)).any()
    assert oriented_gradients(np.zeros((0, 784), np.float32)).shape == (0, 441)


def test_an_edge_votes_for_its_direction() -> None:
    """A step from dark to bright along x points to direction 0, and only cells on the edge see it."""
    image = np.zeros((28, 28), np.float32)
    image[:, 14:] = 1.0
    votes = oriented_gradients(image.reshape(1, -1)).reshape(9, 7, 7)
    assert votes[0].sum() == pytest.approx(votes.sum())
    assert np.flatnonzero(votes[0].sum(axis=0)).tolist() == [2, 3, 4]


def test_words_are_hashed_by_a_public_rule() -> None:
    one = hashed_words("A good, GOOD film", 64)
    assert np.array_equal(one, hashed_words("good film a good", 64))
    assert np.linalg.norm(one) == pytest.approx(1.0)
    assert not hashed_words("", 64).any()


def test_bad_records_are_one_clear_line() -> None:
    x = np.zeros((3, 2))
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: Dataset(x, np.array([0, 1, 2]), 2), r"labels must lie in \[0, 2\); got values from 0 to 2"),
        (lambda: Dataset(x, np.array([0, -1, 1]), 2), "got values from -1 to 1"),
        (lambda: Dataset(np.full((3, 2), np.nan), np.zeros(3, dtype=int), 2), "NaN or infinite features"),
        (lambda: Dataset(x, np.array([0, 1]), 2), "one label per record"),
        (lambda: Dataset(x, np.array([0.5, 1, 0]), 2), "whole numbers"),
        (lambda: Dataset(np.zeros(3), np.zeros(3, dtype=int), 2), "one row per record"),
        (lambda: Dataset(x, np.zeros(3, dtype=int), 1), r"'classes' must be a whole number in \[2, inf\); got 1"),
        (lambda: Dataset(x, np.zeros(3, dtype=int), "2"), "'classes' must be"),  # type: ignore[arg-type] # careless
        (lambda: Dataset(x, np.array(["yes", "no", "no"]), 2), "'y' must hold numbers; got <U3. Encode words"),
        (lambda: Dataset(np.array([["a"]] * 3), np.zeros(3, dtype=int), 2), "'x' must hold numbers"),
        (lambda: load("cifar"), "no data set called 'cifar'"),
        (lambda: oriented_gradients(np.zeros((2, 100))), "rows of 28x28 pixels"),
        (lambda: oriented_gradients(np.zeros((2, 784)), cell=5), "'cell' must divide 'side'"),
    ]
    for make, message in cases:
        with pytest.raises(InvalidInput, match=message) as caught:
            make()
        assert "\n" not in str(caught.value)


def test_a_missing_folder_says_what_to_put_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DPTUNE_DATA", raising=False)
    with pytest.raises(InvalidInput, match="DPTUNE_DATA is not set"):
        load("mnist")
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    with pytest.raises(InvalidInput, match=r"Put the original train-images-idx3-ubyte.gz into the folder mnist/"):
        load("mnist")
    with pytest.raises(InvalidInput, match=r"Put the original adult.names into the folder adult/"):
        load("adult")
    with pytest.raises(InvalidInput, match=r"Put the original imdb_train.tsv.bz2 into the folder imdb/"):
        load("imdb")


def test_shards_share_the_records_by_independent_labels() -> None:
    data = load("digits").train
    shards = data.shards(7, RunKey.rehearsal(1))
    assert sum(len(shard) for shard in shards) == len(data)
    assert len({len(shard) for shard in shards}) > 1
