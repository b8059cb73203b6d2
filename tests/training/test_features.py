"""What is computed of a record is the same bits whatever records are computed with it."""

from __future__ import annotations

import bz2
import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dptune.training import _tabular, _text, oriented_gradients
from dptune.training.benchmark_data import mnist
from dptune.training.features import named_features
from dptune.training.gradients import centred_gradients, gradients_and_brightness, two_scale_gradients

SIZES = [1, 2, 7, 61, 300]


@pytest.mark.parametrize("side", [8, 28])
@pytest.mark.parametrize(
    "layout", [np.ascontiguousarray, np.asfortranarray, lambda x: np.repeat(x, 2, axis=0)[::2], np.float64]
)
def test_oriented_gradients(side: int, layout: Callable[[np.ndarray], np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    x = (rng.random((300, side * side)) * (rng.random((300, side * side)) < 0.4)).astype(np.float32)
    x[5], x[9] = 3e38, np.nan  # none of the others' business
    alone = np.concatenate([oriented_gradients(row[None], side=side) for row in x])
    for size in SIZES:
        order = rng.permutation(300)[:size]
        assert oriented_gradients(layout(x[order]), side=side).tobytes() == alone[order].tobytes()


@pytest.mark.parametrize("make", [centred_gradients, gradients_and_brightness, two_scale_gradients])
@pytest.mark.parametrize("width", [64, 784, 3 * 64])
def test_features_of_images(width: int, make: Callable[[np.ndarray], np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    x = (rng.random((300, width)) * (rng.random((300, width)) < 0.4)).astype(np.float32)
    x[5], x[9] = 3e38, np.nan
    alone = np.concatenate([make(row[None]) for row in x])
    for size in SIZES:
        order = rng.permutation(300)[:size]
        assert make(x[order]).tobytes() == alone[order].tobytes()
    assert np.allclose(np.linalg.norm(np.delete(alone, [5, 9], 0), axis=1), 1, atol=1e-5)
    assert np.allclose(np.delete(alone, [5, 9], 0).sum(axis=1), 0, atol=1e-4)


def test_brightness_is_a_small_picture_beside_the_gradients() -> None:
    x = np.random.default_rng(1).random((3, 784)).astype(np.float32)
    found, gradients = gradients_and_brightness(x), centred_gradients(x)
    picture = x.reshape(3, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(3, 196)
    picture -= picture.mean(axis=1, keepdims=True)
    picture /= 2 * np.linalg.norm(picture, axis=1, keepdims=True)
    assert np.allclose(found, np.concatenate([gradients, picture], axis=1) / np.sqrt(1.25), atol=1e-6)


def votes(image: np.ndarray, cell: int, directions: int) -> np.ndarray:
    """Gradients' votes one pixel, direction and cell at a time, in double precision."""
    side = len(image)
    cells = side // cell
    found = np.zeros((directions, cells, cells))
    for row, column in np.ndindex(side, side):
        down = image[row + 1, column] - image[row - 1, column] if 0 < row < side - 1 else 0.0
        right = image[row, column + 1] - image[row, column - 1] if 0 < column < side - 1 else 0.0
        place = np.arctan2(down, right) / (2 * np.pi) * directions % directions
        first, part = int(place) % directions, place - int(place)
        for direction, share in ((first, 1 - part), ((first + 1) % directions, part)):
            for i, j in np.ndindex(cells, cells):
                near = [max(0.0, 1 - abs(at + 0.5 - (k + 0.5) * cell) / cell) for at, k in ((row, i), (column, j))]
                found[direction, i, j] += near[0] * near[1] * share * np.hypot(down, right) ** 0.5
    return np.sqrt(found).ravel()


def blurred(image: np.ndarray, deviation: float) -> np.ndarray:
    """A Gaussian cut off at 2.5 deviations, beyond the edge the edge's pixels."""
    reach = int(np.ceil(2.5 * deviation))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    weights /= weights.sum()
    wide = np.pad(image, reach, mode="edge")
    once = np.apply_along_axis(np.convolve, 0, wide, weights, mode="valid")
    return np.asarray(np.apply_along_axis(np.convolve, 1, once, weights, mode="valid"))


def test_two_scales_are_what_their_description_says() -> None:
    image = np.random.default_rng(4).random((28, 28)).astype(np.float32).astype(np.float64)
    picture = image.reshape(14, 2, 14, 2).mean(axis=(1, 3)).ravel()
    wanted = []
    for part, length in ((votes(image, 4, 12), 1.0), (votes(blurred(image, 1.5), 7, 12), 1.0), (picture, 0.5)):
        centred = part - part.mean()
        wanted.append(length * centred / np.linalg.norm(centred))
    found = two_scale_gradients(image.reshape(1, -1))[0]
    assert np.allclose(found, np.concatenate(wanted) / 1.5, atol=1e-4)


def test_two_scales_of_images_of_any_size() -> None:
    sizes = {4: 28, 64: 304, 784: 976, 841: 25, 3 * 64: 912, 3 * 1024: 3648}
    for width, features in sizes.items():
        found = two_scale_gradients(np.random.default_rng(5).random((2, width)).astype(np.float32))
        assert found.shape == (2, features)
        assert found.dtype == np.float32
    assert named_features("two-scale-gradients") is two_scale_gradients


def test_two_scales_of_images_that_show_nothing_are_zeros() -> None:
    x = np.zeros((6, 3 * 64), np.float32)
    x[1], x[2], x[3, 5], x[4, 5] = 0.1, 3e38, np.nan, np.inf
    x[5] = np.random.default_rng(6).random(3 * 64)
    found = two_scale_gradients(x)
    assert not found[:5].any()
    assert np.linalg.norm(found[5]) == pytest.approx(1, abs=1e-5)


NAMES = "\n".join(
    [
        "age: continuous.",
        "workclass: Private, State-gov.",
        "fnlwgt: continuous.",
        "education: Bachelors, HS-grad.",
        "education-num: continuous.",
        *(f"{name}: A, B, C." for name in ("marital", "occupation", "relationship", "race", "sex")),
        *(f"{name}: continuous." for name in ("capital-gain", "capital-loss", "hours-per-week")),
        "native-country: X, Y.",
    ]
)


def census(count: int) -> list[str]:
    rng = np.random.default_rng(1)
    return [
        f"{rng.integers(17, 90)}, Private, {rng.integers(1, 10**6)}, HS-grad, {rng.integers(1, 16)}, A, B, C, ?, A, "
        f"{rng.integers(0, 10**5)}, 0, {rng.integers(1, 99)}, Y, {'>50K' if rng.random() < 0.5 else '<=50K'}"
        for _ in range(count)
    ]


def test_census_rows(tmp_path: Path) -> None:
    names, rows = tmp_path / "adult.names", tmp_path / "adult.data"
    names.write_text(NAMES)
    lines = census(61)

    def read(chosen: list[str]) -> np.ndarray:
        rows.write_text("\n".join(chosen) + "\n")
        return np.asarray(_tabular.adult(rows, names)[0])

    alone = np.concatenate([read([line]) for line in lines])
    order = np.random.default_rng(2).permutation(61)
    assert read([lines[place] for place in order]).tobytes() == alone[order].tobytes()


def test_reviews(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(1), tmp_path / "imdb_train.tsv.bz2"
    words = [f"word{chr(97 + i)}" for i in range(26)]
    lines = [f"pos\t9\t{i}\t{' '.join(rng.choice(words, rng.integers(1, 200)))}\n" for i in range(61)]

    def read(chosen: list[str]) -> np.ndarray:
        with bz2.open(path, "wt", encoding="utf-8") as stream:
            stream.writelines(chosen)
        return np.asarray(_text.reviews(path, 64)[0])

    alone = np.concatenate([read([line]) for line in lines])
    order = rng.permutation(61)
    assert read([lines[place] for place in order]).tobytes() == alone[order].tobytes()


def test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    x = np.random.default_rng(1).integers(0, 256, (61, 28, 28), dtype=np.uint8)

    def read(chosen: np.ndarray) -> np.ndarray:
        for part in ("train", "t10k"):
            files = {"images-idx3": (struct.pack(">4I", 0x803, len(chosen), 28, 28), chosen.tobytes())}
            files["labels-idx1"] = (struct.pack(">2I", 0x801, len(chosen)), bytes(len(chosen)))
            for name, (head, body) in files.items():
                (tmp_path / "mnist" / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(head + body))
        return np.asarray(mnist().train.x)

    alone = np.concatenate([read(image[None]) for image in x])
    order = np.random.default_rng(2).permutation(61)
    assert read(x[order]).tobytes() == alone[order].tobytes()
