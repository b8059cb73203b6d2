"""Data sets: published counts, public preprocessing record by record, clear refusals."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import load, oriented_gradients
from dptune.training._tabular import adult, columns
from dptune.training._text import hashed_words, reviews

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


def test_what_cannot_be_read_is_one_clear_line() -> None:
    cases: list[tuple[Callable[[], object], str]] = [
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
    shards = data.shards(7, Randomness.rehearsal(1))
    assert sum(len(shard) for shard in shards) == len(data)
    assert len({len(shard) for shard in shards}) > 1


NAMES = ["age: continuous.", "work: Private, State.", *(f"c{i}: a, b." for i in range(12))]
ROW = "39, Private, " + ", ".join(["a"] * 12)
ODD_ROWS = [
    ROW.replace("39", "?") + ", <=50K",
    ROW.replace("39", "nan") + ", >50K",
    ROW.replace("39", "1e999") + ", who knows",
    "one, two",
    "\udce9" + ROW + ", >50K",
    "",
]


def _rows(folder: Path, *odd: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    names, rows = folder / "names", folder / "rows"
    names.write_text("\n".join(NAMES))
    text = "\n".join([f"{ROW}, >50K", *odd, f"{ROW}, <=50K."])
    rows.write_bytes(text.encode(errors="surrogateescape"))
    return adult(rows, names)


@pytest.mark.parametrize("odd", ODD_ROWS)
def test_an_odd_census_row_stops_nobody(odd: str, tmp_path: Path) -> None:
    """It becomes a record by a public rule, or none; its neighbours are the same to the last bit."""
    x, y = _rows(tmp_path)
    more, labels = _rows(tmp_path, odd)
    assert len(more) - len(x) == (odd.count(",") == 14)
    assert np.array_equal(more[[0, -1]], x)
    assert np.array_equal(labels[[0, -1]], y)
    assert np.isfinite(more).all()
    assert more.max() <= 1.0


def test_an_odd_review_stops_nobody(tmp_path: Path) -> None:
    path = tmp_path / "reviews.bz2"

    def read(*lines: bytes) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        path.write_bytes(bz2.compress(b"\n".join([b"1\t7\ta\tgood film", *lines, b"0\t2\tb\tbad film"])))
        return reviews(path, 16)

    x, y = read()
    for odd, counted in ((b"no tabs", 0), (b"\xff\xfe\t\xff\tc\t\xff words", 1), (b"", 0)):
        more, labels = read(odd)
        assert len(more) == 2 + counted
        assert np.array_equal(more[[0, -1]], x)
        assert np.array_equal(labels[[0, -1]], y)


def test_a_file_that_is_cut_off_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    folder = tmp_path / "mnist"
    folder.mkdir()
    whole = gzip.compress(b"\0\0\x08\x03" + bytes(12) + bytes(range(256)) * 40)
    for content in (whole[:-30], b"", b"no gzip", gzip.compress(b"\0\0\x08\x03\0")):
        for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
            (folder / name).write_bytes(content)
        with pytest.raises(InvalidInput) as caught:
            load("mnist")
        assert "\n" not in str(caught.value)
        assert "Put the original" in str(caught.value)
