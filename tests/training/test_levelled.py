"""Levelled scattering: its synthetic images and its lens by their definitions; no record has a part in them."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from dptune.training import levelled
from dptune.training.features import named_features
from dptune.training.levelled import leaves, levelled_scattering, levelling
from dptune.training.scattering import mirrored_scattering, rooted_scattering

Array = np.ndarray


def photographs(count: int, side: int, seed: int) -> Array:
    """Grey images whose power falls with the frequency, as that of photographs does."""
    rng = np.random.default_rng(seed)
    line = np.fft.fftfreq(side)
    slope = 1 / np.maximum(np.hypot(line[:, None], line[None]), 1 / side)
    made = np.fft.ifft2(np.fft.fft2(rng.normal(size=(count, side, side))) * slope).real
    rows: Array = (0.5 + 0.2 * made / made.std()).reshape(count, -1).astype(np.float32)
    return rows


@pytest.mark.parametrize("colours", [1, 3])
def test_the_last_leaf_over_a_pixel_gives_it_its_colour(colours: int) -> None:
    """By the definition, pixel by pixel, from the front leaf to the back."""
    side, count = 12, 3
    made = leaves(count, side, colours).reshape(count, colours, side, side)
    words = np.random.Philox(0).random_raw(count * 60 * (6 + colours))
    numbers = iter([int(word >> 11) / 2**53 for word in words.tolist()])
    for image in made:
        drawn = [[next(numbers) for _ in range(6 + colours)] for _ in range(60)]
        for (row, column), _ in np.ndenumerate(image[0]):
            for leaf in reversed(drawn[1:]):
                radius = side / math.sqrt(256 - (256 - 16 / 9) * leaf[0])
                x, y = column + 0.5 - side * (1.5 * leaf[1] - 0.25), row + 0.5 - side * (1.5 * leaf[2] - 0.25)
                angle, longer = math.pi * leaf[4], math.exp(0.8 * (2 * leaf[5] - 1))
                along = longer * (math.cos(angle) * x + math.sin(angle) * y)
                if math.hypot(along, (math.cos(angle) * y - math.sin(angle) * x) / longer) <= radius:
                    break
            else:
                leaf = drawn[0]
            shown = [min(1.0, max(0.0, leaf[3] + 0.2 * (2 * tint - 1))) for tint in leaf[6:]]
            assert image[:, row, column] == pytest.approx(shown, abs=1e-6)


def test_leaves_are_the_same_each_time_and_the_first_ones_of_more() -> None:
    assert leaves(3, 8, 3).tobytes() == leaves(5, 8, 3)[:3].tobytes()


@pytest.mark.parametrize("level", [0.5, 2.0, 8.0])
def test_directions_above_the_level_are_brought_down_to_it_and_no_other_is_changed(level: float) -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(200, 12)) * 2.0 ** -np.arange(12)).astype(np.float32)
    lens = levelling(rows, level)
    seen = rows - (rows @ lens.directions * lens.taken) @ lens.directions.T
    before, after = (np.linalg.eigvalsh(one.T.astype(float) @ one / len(one)) for one in (rows, seen))
    assert after == pytest.approx(np.sort(np.minimum(before, level / 12)), rel=1e-3, abs=1e-9)


def test_levelled_is_rooted_with_less_of_what_synthetic_images_have_in_common() -> None:
    images = photographs(20, 16, 0)
    plain, made = rooted_scattering(images, 16), levelled_scattering(images, 16)
    lens = levelling(rooted_scattering(leaves(1000, 16), 16))
    left = plain - (plain @ lens.directions * lens.taken) @ lens.directions.T
    assert np.allclose(made, left / np.linalg.norm(left, axis=1, keepdims=True), atol=1e-5)
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("side", [16, 28])
def test_other_images_lie_along_fewer_common_directions_after_it(side: int) -> None:
    """Directions of leaves are those of other images too: the sum of squared shares falls."""
    images = photographs(400, side, 1)

    def crowded(rows: Array) -> float:
        shares = np.linalg.eigvalsh(rows @ rows.T / len(rows))
        return float((shares**2).sum() / shares.sum() ** 2)

    assert crowded(levelled_scattering(images, side)) < 0.4 * crowded(rooted_scattering(images, side))


def test_roots_are_those_of_orders_one_and_two() -> None:
    """Against the mirrored features: within a group they are the numbers themselves, but for a shift and a factor."""
    image = photographs(1, 16, 2)
    cells, half = 4, 2
    plain, rooted = (make(image, 16).reshape(81, cells, half) for make in (mirrored_scattering, rooted_scattering))
    assert np.allclose(plain[0], rooted[0], atol=1e-6)  # order 0 stays
    for first, last in ((1, 9), (9, 17), (17, 81)):
        order = np.argsort(plain[first:last].ravel())
        assert (np.diff(rooted[first:last].ravel()[order]) >= -1e-6).all()  # roots keep the order
        assert np.linalg.norm(rooted[first:last]) == pytest.approx(0.5, abs=1e-5)
        assert rooted[first:last].mean() == pytest.approx(0, abs=1e-6)
        square, root = np.sort(plain[first:last].ravel()), np.sort(rooted[first:last].ravel())
        fitted = np.polyval(np.polyfit(root, square, 2), root)
        assert np.allclose(fitted, square, atol=1e-5)  # a square of a root plus a constant, times another


def test_images_without_anything_to_see_become_zeros() -> None:
    make = named_features("levelled-scattering")
    flat = np.repeat(np.array([[0.0], [0.3], [1.0], [255.0], [np.nan]], np.float32), 3072, axis=1)
    assert not make(flat).any()


def test_an_image_and_its_mirror_image_have_nearly_the_same_features() -> None:
    images = photographs(12, 32, 3)
    turned = images.reshape(12, 32, 32)[:, :, ::-1].reshape(12, -1)
    make = named_features("levelled-scattering")
    apart = np.linalg.norm(make(images) - make(turned), axis=1)
    assert apart.max() < 0.25 * np.linalg.norm(make(images[1:]) - make(images[:-1]), axis=1).min()


def test_no_record_has_a_part_in_the_lens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lens is made of sizes alone: the same bits whatever was computed before, and what images are given."""
    images = photographs(6, 8, 4)
    first = levelled_scattering(images, 8)
    levelled._lens.cache_clear()
    levelled_scattering(np.full((3, 64), 7.0, np.float32), 8)
    assert levelled_scattering(images, 8).tobytes() == first.tobytes()
    asked: list[tuple[int, ...]] = []

    def noted(*sizes: int) -> Array:
        asked.append(sizes)
        return leaves(*sizes)

    monkeypatch.setattr(levelled, "leaves", noted)
    levelled._lens.cache_clear()
    levelled_scattering(images, 8)
    assert asked == [(1000, 8, 1)]


def test_its_bits_do_not_follow_the_number_of_threads() -> None:
    """A run may be resumed by a process with other settings: its records must be those that it began with."""
    code = (
        "import hashlib, numpy as np; from dptune.training.levelled import levelled_scattering as made; "
        "x = np.random.default_rng(0).random((20, 3072), np.float32); "
        "print(hashlib.sha256(made(x, 32, 3).tobytes()).hexdigest())"
    )
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    plain = {key: value for key, value in os.environ.items() if key not in names}
    made = [
        subprocess.run([sys.executable, "-c", code], env={**plain, **settings}, capture_output=True, check=True).stdout
        for settings in (dict.fromkeys(names, "1"), dict.fromkeys(names, "2"))
    ]
    assert made[0] == made[1]
    assert len(made[0]) == 65
