"""Scattering against a second implementation in space, and the properties that make it a good public transform."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.training.features import named_features
from dptune.training.scattering import _bank, _folded, scattering, scattering_plane

Array = np.ndarray


def gauss(side: int, width: float, pitch: float, angle: float, slant: float) -> Array:
    """A Gaussian window times a wave, sampled on a torus in space: copies from neighbouring tori are added up."""
    made = np.zeros((side, side), complex)
    for down in range(-3, 4):
        for right in range(-3, 4):
            y, x = np.mgrid[0:side, 0:side] + np.array([down * side, right * side])[:, None, None]
            along, across = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
            window = np.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2))
            made += window * np.exp(1j * pitch * along)
    return made * slant / (2 * math.pi * width**2)


def morlet(side: int, scale: int, angle: int) -> Array:
    """The wavelet by its definition: its values add up to zero."""
    turned, width, pitch = math.pi * angle / 8, 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    wave, plain = gauss(side, width, pitch, turned, 0.5), gauss(side, width, 0.0, turned, 0.5)
    wavelet: Array = wave - plain * (wave.sum() / plain.sum())
    return wavelet


def convolved(image: Array, wavelet: Array) -> Array:
    """A convolution on a torus, by the sum that defines it."""
    total = np.zeros(image.shape, complex)
    for down in range(len(image)):
        for right in range(len(image)):
            total += image[down, right] * np.roll(wavelet, (down, right), axis=(0, 1))
    return total


def smoothed(image: Array, cells: int) -> Array:
    """Averages around the centres of cells, one number at a time; the image starts four pixels before them."""
    step = (4 * cells + 8) // len(image)
    made = np.zeros((cells, cells))
    for row in range(cells):
        for column in range(cells):
            total = weights = 0.0
            for (down, right), value in np.ndenumerate(image):
                gap = (step * down - 4 * row - 5.5) ** 2 + (step * right - 4 * column - 5.5) ** 2
                weight = math.exp(-gap / (2 * 1.6**2))
                total, weights = total + weight * value, weights + weight
            made[row, column] = total / weights
    return made


def naive(image: Array, gain: float) -> Array:
    """The transform in space, in double precision: convolve, modulus, keep every second pixel, smooth."""
    cells = math.ceil(len(image) / 4)
    side = 4 * cells + 8
    padded = np.pad(image.astype(float), (4, side - len(image) - 4), mode="reflect")
    wavelets = [[gain * morlet(side, scale, angle) for angle in range(8)] for scale in range(2)]
    fine = [np.abs(convolved(padded, one)) for one in wavelets[0]]
    coarse = [np.abs(convolved(padded, one))[::2, ::2] for one in wavelets[1]]
    second = [np.abs(convolved(first, one))[::2, ::2] for first in fine for one in wavelets[1]]
    return np.stack([smoothed(one, cells) for one in (padded, *fine, *coarse, *second)])


def spectra(side: int) -> tuple[Array, Array]:
    """Wavelets and low pass in frequency, with the gain of the bank."""
    bank = _bank(side)
    gain = float(np.max(bank.fine[0]) / np.max(np.fft.fft2(morlet(bank.padded, 0, 0)).real))
    waves = np.stack([np.fft.fft2(gain * morlet(bank.padded, scale, a)) for scale in (0, 1) for a in range(8)])
    return waves, np.fft.fft2(gauss(bank.padded, 1.6, 0.0, 0.0, 1.0)).real


@pytest.mark.parametrize("side", [8, 10])
def test_it_is_what_sums_in_space_say(side: int) -> None:
    image = np.random.default_rng(side).random((side, side)).astype(np.float32)
    bank = _bank(side)
    gain = float(np.max(bank.fine[0]) / np.max(np.fft.fft2(morlet(bank.padded, 0, 0)).real))
    assert np.allclose(scattering_plane(image), naive(image, gain), rtol=1e-4, atol=2e-6)


def test_filters_enlarge_nothing_and_lose_little() -> None:
    waves, low = spectra(28)
    energy = (np.abs(waves) ** 2).sum(axis=0)
    both = (energy + np.roll(energy[::-1, ::-1], 1, axis=(0, 1))) / 2 + low**2
    assert both.max() == pytest.approx(1.0, abs=1e-6)
    inner = np.hypot(*np.meshgrid(*[2 * math.pi * np.fft.fftfreq(len(low))] * 2)) < 0.75 * math.pi
    assert both[inner].min() > 0.3  # no frequency is lost up to the finest wavelet's
    assert np.abs(waves[:, 0, 0]).max() < 1e-12  # a constant image has nothing but its mean


def test_it_is_not_expansive() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        first, second = rng.random((2, 28, 28), dtype=np.float32)
        gap = np.linalg.norm(np.pad(first - second, (4, 4), mode="reflect"))
        assert np.linalg.norm(scattering_plane(first) - scattering_plane(second)) <= gap


def test_a_shift_by_a_pixel_moves_it_much_less_than_the_image() -> None:
    window = np.pad(np.hanning(16)[:, None] * np.hanning(16)[None, :], 6)
    for seed in range(5):
        image = (window * np.random.default_rng(seed).normal(size=(28, 28))).astype(np.float32)
        for axis in (0, 1):
            moved = np.roll(image, 1, axis=axis)
            before, after = scattering_plane(image)[1:], scattering_plane(moved)[1:]
            change = np.linalg.norm(before - after) / np.linalg.norm(before)
            assert change < 0.3 * np.linalg.norm(image - moved) / np.linalg.norm(image)


def test_waves_go_to_the_channel_of_their_scale_and_direction() -> None:
    y, x = np.mgrid[0:28, 0:28]
    for scale in (0, 1):
        for angle in range(8):
            turned, pitch = math.pi * angle / 8, 0.75 * math.pi / 2**scale
            wave = np.cos(pitch * (math.cos(turned) * x + math.sin(turned) * y)).astype(np.float32)
            first = scattering_plane(wave)[1:17, 2:5, 2:5].sum(axis=(1, 2))
            assert int(np.argmax(first)) == 8 * scale + angle


@pytest.mark.parametrize("name", ["scattering", "mirrored-scattering", "levelled-scattering"])
@pytest.mark.parametrize("width", [64, 784, 3 * 64, 3 * 100])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, lambda x: np.repeat(x, 2, axis=0)[::2]])
def test_a_record_has_the_same_bits_in_every_company(name: str, width: int, layout: Callable[[Array], Array]) -> None:
    rng, count = np.random.default_rng(0), 60
    x = (rng.random((count, width)) * (rng.random((count, width)) < 0.4)).astype(np.float32)
    x[5], x[9], x[11, 0] = 3e38, np.nan, np.inf  # none of the others' business
    make = named_features(name)
    alone = np.concatenate([make(row[None]) for row in x])
    for size in (1, 2, 7, 41):
        order = rng.permutation(count)[:size]
        assert make(layout(x[order])).tobytes() == alone[order].tobytes()
    good = np.delete(alone, [5, 9, 11], 0)
    assert np.allclose(np.linalg.norm(good, axis=1), 1, atol=1e-5)
    assert not alone[[9, 11]].any()  # no numbers: zeros


def mirror(images: Array, side: int) -> Array:
    """Every image with left and right exchanged."""
    shown: Array = images.reshape(len(images), -1, side, side)[..., ::-1].reshape(len(images), -1)
    return shown


@pytest.mark.parametrize(("side", "colours"), [(28, 1), (32, 3), (12, 3)])
def test_an_image_and_its_mirror_image_have_the_same_mirrored_features(side: int, colours: int) -> None:
    """The same but for every second pixel, which is another one in the mirror: nearly nothing in smooth images."""
    y, x = np.mgrid[0:side, 0:side] / side
    rng = np.random.default_rng(side)
    waves = rng.normal(size=(12, colours, 6))
    images = np.stack(
        [
            [a * np.sin(9 * b * x + 9 * c * y) + d * np.cos(9 * e * x) + f * y for a, b, c, d, e, f in image]
            for image in waves
        ]
    ).reshape(12, -1)
    images = images.astype(np.float32)
    plain, folded = named_features("scattering"), named_features("mirrored-scattering")
    reflected = mirror(images, side)
    moved = np.linalg.norm(folded(images) - folded(reflected), axis=1)
    assert moved.max() < 0.02
    assert np.all(np.linalg.norm(plain(images) - plain(reflected), axis=1) > 10 * moved)  # without folding they differ
    apart = np.linalg.norm(folded(images)[1:] - folded(images)[:-1], axis=1)
    assert apart.min() > 0.3  # different images stay apart


@pytest.mark.parametrize("side", [8, 12, 16, 28])
def test_folding_is_the_mean_with_the_mirror_image(side: int) -> None:
    """Against the mean of the two images' channels, from two transforms; lengths are those of the whole mean."""
    image = np.random.default_rng(side).random((side, side)).astype(np.float32)
    channels = scattering_plane(image)[None]
    cells = channels.shape[-1]
    turned = np.concatenate([np.arange(1), 1 + -np.arange(8) % 8, 9 + -np.arange(8) % 8])
    second = [17 + 8 * (-a % 8) + -b % 8 for a in range(8) for b in range(8)]
    mean = (channels + channels[:, [*turned, *second], :, ::-1]) / 2
    folded = _folded(channels)
    assert folded.shape[-1] == (cells + 1) // 2
    assert np.linalg.norm(folded) == pytest.approx(np.linalg.norm(mean), rel=1e-5)
    middle = folded[..., cells // 2 :]
    assert np.allclose(middle, mean[..., cells // 2 : (cells + 1) // 2], rtol=1e-6)
    orders = [0, *range(1, 17)]  # what only skips pixels after the modulus is checked against the mirror image itself
    other = scattering_plane(np.ascontiguousarray(image[:, ::-1]))[None]
    whole = (channels[:, orders[:9]] + other[:, orders[:9]]) / 2
    assert np.allclose(folded[:, :9, :, : cells // 2] / math.sqrt(2), whole[..., : cells // 2], atol=0.02)


def test_sizes() -> None:
    assert named_features("mirrored-scattering")(np.zeros((2, 784), np.float32)).shape == (2, 81 * 7 * 4)
    make = named_features("scattering")
    assert make(np.zeros((2, 784), np.float32)).shape == (2, 3969)
    assert make(np.zeros((2, 3072), np.float32)).shape == (2, 3 * 81 * 8 * 8)
    assert np.abs(make(np.full((1, 784), 0.3, np.float32))).max() < 1e-3  # nothing to see, no direction
    with pytest.raises(InvalidInput, match="at least 8 pixels"):
        make(np.zeros((1, 49), np.float32))
    with pytest.raises(InvalidInput, match="rows of 1 x 28 x 28"):
        scattering(np.zeros((1, 783), np.float32), 28)
