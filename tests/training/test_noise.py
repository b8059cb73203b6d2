"""Noise: a Gaussian on every coordinate, a function of (run, step), independent across runs.

Moment tests use n draws and bounds of 6 standard errors: a false alarm has probability below 1e-8 each, and
the keys are fixed, so they either pass always or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy import stats

from dptune.errors import InvalidInput
from dptune.randomness import Randomness, as_randomness
from dptune.training._compiled import kernel
from dptune.training.noise import FastNoise, NoiseStack, SecureNoise, generator_of

KINDS = [
    pytest.param(lambda key, d: FastNoise(key, d, compiled=False), id="fast"),
    pytest.param(
        lambda key, d: FastNoise(key, d, compiled=True),
        id="compiled",
        marks=pytest.mark.skipif(kernel is None, reason="the kernel was not compiled"),
    ),
    pytest.param(SecureNoise, id="secure"),
]
Kind = Callable[[Randomness, int], FastNoise | SecureNoise]


def draws(kind: Kind, key: Randomness, dimension: int, steps: int) -> np.ndarray:
    noise = kind(key, dimension)
    return np.stack([np.array(noise.sample(step), dtype=np.float64) for step in range(steps)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [7, 20_001])
def test_noise_is_standard_normal(kind: Kind, dimension: int) -> None:
    values = draws(kind, Randomness.rehearsal(1), dimension, max(20, 200_000 // dimension)).ravel()
    n = values.size
    assert abs(values.mean()) < 6 / np.sqrt(n)
    assert abs(values.var() - 1) < 6 * np.sqrt(2 / n)
    assert abs((values**4).mean() - 3) < 6 * np.sqrt(96 / n)
    assert stats.kstest(values, "norm").pvalue > 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_every_coordinate_and_every_step_is_independent(kind: Kind) -> None:
    values = draws(kind, Randomness.rehearsal(2), 40, 4000)
    gram = values.T @ values / len(values)
    assert np.abs(gram - np.eye(40)).max() < 7 * np.sqrt(2 / len(values))
    lagged = (values[1:] * values[:-1]).mean(axis=0)
    assert np.abs(lagged).max() < 7 / np.sqrt(len(values))


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_a_function_of_run_and_step(kind: Kind) -> None:
    key = Randomness.rehearsal(3)
    forward = draws(kind, key, 33, 500)
    again = kind(key, 33)
    for step in (499, 0, 250):
        assert np.array_equal(np.array(again.sample(step), dtype=np.float64), forward[step])
    other = draws(kind, Randomness.rehearsal(4), 33, 500)
    assert abs(np.corrcoef(forward.ravel(), other.ravel())[0, 1]) < 6 / np.sqrt(forward.size)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dimension", [1, 63, 64, 65, 1000])
def test_what_is_added_is_the_scaled_sample(kind: Kind, dtype: type, dimension: int) -> None:
    total: np.ndarray = np.linspace(-1.0, 1.0, dimension + 8).astype(dtype)
    before = total.copy()
    kind(Randomness.rehearsal(5), dimension).add(total[:dimension], 0.7, 2, 0.25)
    expected = 0.25 * (before[:dimension] + np.float32(0.7) * kind(Randomness.rehearsal(5), dimension).sample(2))
    np.testing.assert_allclose(total[:dimension], expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal(total[dimension:], before[dimension:])  # nothing beyond the last coordinate


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scales", [[0.7, 1.3, 40.0], [0.7, 0.0, 40.0], [1.3]])
@pytest.mark.parametrize("dimension", [1, 212, 9001])
def test_a_stack_adds_to_every_run_its_own_noise(kind: Kind, scales: list[float], dimension: int) -> None:
    units = [0.25, 1.0 / 3.0, 1.0][: len(scales)]
    keys = [Randomness.rehearsal(seed) for seed in range(len(scales))]
    together = NoiseStack([kind(key, dimension) for key in keys], scales, units)
    dtype: type[np.floating] = np.float64 if kind is SecureNoise else np.float32
    for step in (0, 1, 50, 7):
        totals: np.ndarray = np.linspace(-1.0, 1.0, len(scales) * dimension).reshape(len(scales), -1).astype(dtype)
        alone: np.ndarray = totals.copy()
        together.add(totals, step)
        for key, row, scale, unit in zip(keys, alone, scales, units, strict=True):
            kind(key, dimension).add(row, scale, step, unit)
        assert np.array_equal(totals, alone)


def test_the_generator_has_a_name() -> None:
    assert len({generator_of(True), generator_of(False)}) == 2
    assert ("compiled" in generator_of(False)) == (kernel is not None)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_fast_noise_reaches_the_tail_of_the_law(kind: Kind) -> None:
    values = draws(kind, Randomness.rehearsal(5), 100_000, 40).ravel()
    beyond = np.sum(np.abs(values) > 4)
    expected = 2 * stats.norm.sf(4) * values.size
    assert abs(beyond - expected) < 6 * np.sqrt(expected)


def test_secure_noise_lands_on_the_same_lattice_for_all_sums() -> None:
    scale, dimension = 1.7, 5000
    noise = SecureNoise(Randomness.rehearsal(6), dimension)
    step = 2.0**-20
    for sums in (np.zeros(dimension), np.random.default_rng(0).normal(size=dimension)):
        total = sums.copy()
        noise.add(total, scale, 0)
        assert np.array_equal(total / step, np.rint(total / step))
    assert noise.margin(dimension, scale, 1.0) == step * np.sqrt(dimension) + 2.0**-13


def test_secure_noise_commutes_with_lattice_shifts() -> None:
    """Moving the sum by lattice points moves the output by exactly as much."""
    scale, step = 0.9, 2.0**-21
    shift = step * np.arange(-50, 50)
    first, second = np.zeros(100), shift.copy()
    SecureNoise(Randomness.rehearsal(7), 100).add(first, scale, 3)
    SecureNoise(Randomness.rehearsal(7), 100).add(second, scale, 3)
    assert np.array_equal(second - first, shift)


def test_secure_sums_wrap_around_with_their_noise() -> None:
    """Sums that differ by a step on both sides of the seam are as close as others: the noise hides the seam, too."""
    step, half = 2.0**-20, 2.0**52
    at, beyond = np.full(2000, (half - 1) * step), np.full(2000, -half * step)
    SecureNoise(Randomness.rehearsal(9), 2000).add(at, 1.0, 0)
    SecureNoise(Randomness.rehearsal(9), 2000).add(beyond, 1.0, 0)
    assert set((beyond - at) / step) <= {1.0, 1.0 - 2 * half}  # the next step, modulo 2^53
    assert ((beyond < 0) & (at < 0)).any()
    assert ((beyond > 0) & (at > 0)).any()
    assert max(np.abs(at).max(), np.abs(beyond).max()) <= half * step


def test_rounding_cannot_exceed_the_margin() -> None:
    rng = np.random.default_rng(1)
    dimension, scale = 64, 0.5
    noise = SecureNoise(Randomness.rehearsal(8), dimension)
    margin = noise.margin(dimension, scale, 1.0) - 2.0**-13  # the rest is for rounding inside engines
    for _ in range(200):
        one = rng.normal(size=dimension)
        move = rng.normal(size=dimension)
        move *= (1.0 - margin) / np.linalg.norm(move)
        two = one + move
        noise.add(one, scale, 0)
        noise.add(two, scale, 0)
        assert np.linalg.norm(two - one) <= 1.0


def test_keys_hide_their_bits_and_refuse_other_lengths() -> None:
    key = Randomness.fresh()
    assert key.secret().hex() not in repr(key)
    assert repr(key.secret()) not in repr(key)
    assert Randomness.fresh() != Randomness.fresh()
    with pytest.raises(InvalidInput, match="32 bytes"):
        Randomness(b"short")
    with pytest.raises(InvalidInput, match="'rng' must be"):
        as_randomness(3)  # type: ignore[arg-type] # what a careless caller would pass


def test_secure_noise_refuses_single_precision() -> None:
    with pytest.raises(InvalidInput, match="double precision"):
        SecureNoise(Randomness.rehearsal(1), 3).add(np.zeros(3, np.float32), 1.0, 0)


@pytest.mark.usefixtures("instruction_set")
def test_the_compiled_generator_gives_the_published_answers() -> None:
    """Philox4x32-10 of Random123's known answers: zeros, ones, digits of pi."""

    def words(counter: list[int], key: list[int]) -> list[int]:
        secret = np.array([*key, counter[1], counter[3]], np.uint32).tobytes()
        answer = np.frombuffer(kernel.words(secret, counter[2], counter[0]), np.uint32)
        return [int(word) for word in answer[:4]]

    ones = 0xFFFFFFFF
    assert words([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert words([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert words(pi, [0xA4093822, 0x299F31D0]) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_every_instruction_set_draws_the_same_noise(instruction_set: str) -> None:
    """Up to the last bits: some sets fuse a product and a sum, others round in between."""
    best, key, rng = kernel.instructions()[-1], b"sixteen bytes ok", np.random.default_rng(9)
    sums = rng.normal(size=1000).astype(np.float32)
    found = {}
    for name in (best, instruction_set):
        kernel.instructions(name)
        normals, total, parameters = np.empty(10_007, np.float32), sums.copy(), sums.copy()
        kernel.normals(key, 3, normals)
        kernel.add_normals(key, 3, 0.7, 0.25, total)
        kernel.descend(parameters, normals[:1000], 0.3)
        found[name] = (kernel.words(key, 3, 123_456), normals, total, parameters)
    assert found[best][0] == found[instruction_set][0]
    for one, other in zip(found[best][1:], found[instruction_set][1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


@pytest.fixture(params=() if kernel is None else kernel.instructions())
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    kernel.instructions(request.param)
    yield request.param
    kernel.instructions(kernel.instructions()[-1])


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 16, 17, 31, 4099])
def test_compiled_secure_noise_is_numpys(dimension: int, instructions: str) -> None:
    key, sums = Randomness.rehearsal(dimension), 7.0 * np.random.default_rng(0).normal(size=dimension)
    found = []
    for compiled in (True, False):
        total = sums.copy()
        SecureNoise(key, dimension, compiled=compiled).add(total, 1.3, 5, 0.5)
        found.append(total)
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], 0.5 * sums)


def test_compiled_secure_noise_has_the_bits_of_double_precision(instructions: str) -> None:
    """Uniforms at both ends, at powers of two and at quarters of a turn, to 2^-44 of the deviation."""
    ends = [0, 1, 2**11 - 1, 2**11, 2**52, 2**53, 2**61, 2**62, 3 * 2**61, 2**63, 3 * 2**62, 2**64 - 2**11, 2**64 - 1]
    drawn = np.random.default_rng(0).integers(0, 2**64, 3000, dtype=np.uint64)
    words = np.concatenate([np.array(ends, np.uint64), drawn])
    radii, angles = (np.ascontiguousarray(one.reshape(-1)) for one in np.meshgrid(words[:200], words[:200]))
    stream, total = np.concatenate([radii, angles]), np.zeros(2 * len(radii))
    kernel.add_secure(stream, 2.0**44, 1.0, 1.0, total)
    shift = np.uint64(11)
    radius = np.sqrt(-2.0 * np.log(((radii >> shift).astype(np.float64) + 0.5) * 2.0**-53))
    turn = (angles >> shift).astype(np.float64) * 2.0**-53
    expected = np.concatenate([np.cos(2.0 * np.pi * turn) * radius, np.sin(2.0 * np.pi * turn) * radius])
    assert np.abs(total * 2.0**-44 - expected).max() <= 1e-13
    assert total.max() * 2.0**-44 == pytest.approx(np.sqrt(108.0 * np.log(2.0)))  # where the law is cut


@pytest.mark.skipif(kernel is None, reason="the kernel was not compiled")
def test_the_kernel_refuses_a_short_stream() -> None:
    with pytest.raises(ValueError, match="stream"):
        kernel.add_secure(bytes(31), 1.0, 1.0, 1.0, np.zeros(3))


def test_secure_noise_has_a_name_of_its_own_where_it_is_compiled() -> None:
    assert ("compiled" in generator_of(True)) == (kernel is not None)
