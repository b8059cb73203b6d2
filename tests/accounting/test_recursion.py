"""The compiled recursions against numpy, bit for bit, and against a plain loop over every path."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import ClassVar

import numpy as np
import pytest
from scipy.signal import lfilter

from dptune._typing import Array
from dptune.accounting import Binomial, Gaussian, NegativeBinomial, Poisson, Runs, interleave
from dptune.accounting._hull import hull_profile
from dptune.accounting._ratio import log_ratio
from dptune.accounting._recursion import GAINS, Recursion, _kernel, smoothed
from dptune.accounting.cost import fast_profile
from dptune.accounting.interleave import UpperProgramme, _fill_bend, upper_programme
from dptune.accounting.selected_profile import SelectedProfile

needs_kernel = pytest.mark.skipif(_kernel is None, reason="dptune was installed without a C compiler")
LOSSES = np.exp(np.linspace(0.1, 6.0, 21))  # not a multiple of the lanes


def _gains(rng: np.random.Generator, rows: int, columns: int) -> Array:
    gains = rng.random((GAINS, rows, columns)) * 1e-3
    gains[7:] = np.sort(gains[7:], axis=2) * 0.01
    return gains


def _upper(gains: Array, kernel: object) -> Array:
    state = Recursion(LOSSES, gains.shape[2], kernel)
    half = gains.shape[1] // 2
    state.upper(gains[:, half:])
    state.upper(gains[:, :half])
    return state.best()


@needs_kernel
def test_outward_recursion_is_the_same_compiled() -> None:
    gains = _gains(np.random.default_rng(1), 50, 33)
    np.testing.assert_array_equal(_upper(gains, _kernel), _upper(gains, None))


@needs_kernel
def test_exact_recursion_is_the_same_compiled() -> None:
    rng = np.random.default_rng(2)
    high, low = rng.random((2, 40, 41)) * 1e-2
    values = []
    for kernel in (_kernel, None):
        state = Recursion(LOSSES, 41, kernel)
        state.lower(high, low)
        values.append(state.best())
    np.testing.assert_array_equal(values[0], values[1])


@pytest.mark.parametrize("kernel", [None, pytest.param(_kernel, marks=needs_kernel)])
def test_a_gain_that_is_no_number_is_not_lost(kernel: object) -> None:
    for place in range(GAINS):
        gains = _gains(np.random.default_rng(3), 12, 9)
        gains[place, 5, 4] = np.nan
        assert np.isnan(_upper(gains, kernel)).all(), place


@pytest.mark.parametrize("kernel", [None, pytest.param(_kernel, marks=needs_kernel)])
def test_exact_recursion_is_the_best_path(kernel: object) -> None:
    """Every path by enumeration: S is the first rows, its arcs sit at nodes that fall as the rows rise."""
    rng = np.random.default_rng(4)
    nodes = 6
    high, low = rng.random((2, nodes - 1, nodes)) * [[[1.0]], [[0.4]]]
    state = Recursion(LOSSES, nodes, kernel)
    state.lower(high, low)
    for a, found in zip(LOSSES, state.best(), strict=True):
        best = 0.0
        for length in range(1, nodes):
            for places in combinations_with_replacement(range(nodes - 1, -1, -1), length):
                if all(place > i for i, place in enumerate(places)):
                    gain = sum(high[i, place] - a * low[i, place] for i, place in enumerate(places))
                    best = max(best, gain)
        assert found == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("runs", [Poisson(15), Poisson(300), Binomial(12, 0.5), NegativeBinomial(1, 10)])
def test_gains_between_are_the_gains(runs: Runs) -> None:
    """The product form of the Poisson law, and the clamp, against the definition."""
    rng = np.random.default_rng(5)
    top = np.sort(rng.random(40))
    bottom, d = rng.random((30, 1)) * 0.8, rng.random((30, 1)) * 0.2
    z = np.maximum(top - bottom, d)
    np.testing.assert_allclose(
        runs.gains_between(top, bottom, d), runs.generating(z) - runs.generating(z - d), atol=1e-12
    )
    for order, found in zip((1, 2, 3), runs.slopes_between(top, bottom, d, 1, 2, 3), strict=True):
        np.testing.assert_allclose(found, runs.slope(z, order), rtol=1e-12)


def test_programme_takes_nothing_from_the_memory_it_uses_again() -> None:
    """Gains of one programme lie where those of another lay; whatever was left there must not count."""
    programme = upper_programme(fast_profile(Gaussian(2.0)), Poisson(20), 2.0)
    e = np.linspace(1.0, 6.0, 11)
    found = programme.delta(e)
    upper_programme(fast_profile(Gaussian(1.0)), Poisson(300), 1.0).delta(e)
    kept = interleave._kept.values
    kept.fill(np.nan)
    np.testing.assert_array_equal(programme.delta(e), found)
    assert interleave._kept.values is kept  # asked for once


@needs_kernel
def test_programme_is_the_same_without_the_compiled_module(monkeypatch: pytest.MonkeyPatch) -> None:
    programme = upper_programme(fast_profile(Gaussian(2.0)), Poisson(20), 2.0)
    e = np.linspace(1.0, 6.0, 11)
    compiled = programme.delta(e)
    monkeypatch.setattr(Recursion.__init__, "__defaults__", (None,))
    np.testing.assert_array_equal(programme.delta(e), compiled)


def test_programme_is_convex_in_the_exponential() -> None:
    """A chord between two of its values is above it, which is how an epsilon is read off."""
    for runs in (Poisson(15), Binomial(12, 0.5)):
        programme = upper_programme(fast_profile(Gaussian(2.0)), runs, 2.0)
        a = np.linspace(np.exp(1.0), np.exp(4.0), 41)
        values = programme.delta(np.log(a))
        assert (np.diff(values, 2) >= -1e-12 * values[1:-1]).all()


def test_the_bend_is_never_too_small() -> None:
    """Against a closed form in extended precision, on arcs so narrow that the difference of slopes is all roundoff."""
    rng = np.random.default_rng(6)
    mean = 7.0
    y = np.sort(rng.random(30))
    q0 = rng.random((40, 1)) * 0.5
    q1 = q0 + 10.0 ** rng.uniform(-18, -2, (40, 1))
    bend = np.empty((40, 29))
    (lower,) = Poisson(mean).slopes_between(y[1:], q1, 0.0 * q1, 2)
    _fill_bend(bend, (q0, q1, q1 - q0), y, lower, Poisson(mean))
    wide = np.longdouble
    low, high = q0.astype(wide), q1.astype(wide)
    corner = np.maximum(y.astype(wide), high)
    exact = wide(mean) ** 2 * np.exp(wide(mean) * (corner[:, 1:] - low - 1)) * -np.expm1(-wide(mean) * (high - low))
    exact *= np.diff(corner) ** 2 / 8
    assert (bend >= exact).all()
    assert (bend[:, -1:] <= exact[:, -1:] * 1.01 + 1e-12)[(q1 - q0).ravel() > 1e-9].all()


def test_a_programme_that_is_no_number_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, pair = Poisson(45), fast_profile(Gaussian(3.73))
    hull = hull_profile(pair, runs)
    assert SelectedProfile(hull, runs).epsilon(1e-5) < hull.epsilon(1e-5)
    monkeypatch.setattr(UpperProgramme, "delta", lambda self, e: np.full(np.shape(e), np.nan))
    assert SelectedProfile(hull, runs).epsilon(1e-5) == hull.epsilon(1e-5)


def test_losses_must_be_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        Recursion(np.array([1.0, np.inf]), 3)
    assert len(Recursion(np.empty(0), 3).best()) == 0


def test_laws_that_are_steeper_than_roundoff_are_rounded_outward() -> None:
    """z is known to 1e-16 only; a law that moves by more than that says so in its guard."""
    assert Poisson(10).roundoff < 1e-13
    assert 1e-6 < NegativeBinomial(-0.5, 1e5).roundoff < 1e-3
    steep, base, e = NegativeBinomial(-0.5, 1e8), fast_profile(Gaussian(4.0)), np.array([3.0])
    hull = hull_profile(base, steep)
    # Nothing of the curve survives a guard of 1, and widths are doubled. The one edge that has a closed form
    # (Theorem 3) needs no z and stays exact.
    assert steep.roundoff == 1.0
    line = base.delta(e - log_ratio(base, steep))
    assert SelectedProfile(replace(hull, alone=None), steep).delta(e) == pytest.approx(2e8 * line)
    assert SelectedProfile(hull, steep).delta(e) == pytest.approx(1e8 * line)


@pytest.mark.parametrize("share", [1e-9, 0.003, 0.5, 1.0])
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_smoothing_has_the_bits_of_scipy(share: float, count: int) -> None:
    values = np.cumsum(np.random.default_rng(count).random(count)) * 1e-3
    expected = lfilter([share], [1.0, share - 1.0], values) if count else values
    assert smoothed(values, share).tobytes() == np.asarray(expected).tobytes()
    assert smoothed(values, share, None).tobytes() == np.asarray(expected).tobytes()
    assert values.tobytes() == (np.cumsum(np.random.default_rng(count).random(count)) * 1e-3).tobytes()


@needs_kernel
def test_smoothing_refuses_what_are_no_doubles() -> None:
    with pytest.raises(ValueError, match="doubles"):
        _kernel.smooth(0.5, bytearray(7))


class _Plain(Poisson):
    """Without a way of its own for rows that meet columns."""

    slopes_between = Runs.slopes_between


class _Keeping(_Plain):
    """With a mean of 1 all derivatives are equal: this law makes them once for the same points, and keeps them."""

    kept: ClassVar[dict[bytes, Array]] = {}
    writable: ClassVar[bool] = True

    def slope(self, z: Array, order: int = 1) -> Array:
        values = self.kept.setdefault(np.asarray(z).tobytes(), super().slope(z, order))
        values.flags.writeable = self.writable
        return values


@pytest.mark.parametrize("writable", [True, False])
def test_what_a_law_keeps_of_its_slopes_is_not_overwritten(writable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Keeping, "kept", {})
    monkeypatch.setattr(_Keeping, "writable", writable)
    pair, e = fast_profile(Gaussian(1.0)), np.array([0.5, 2.6])
    found, expected = (upper_programme(pair, runs, 0.5).delta(e) for runs in (_Keeping(1.0), _Plain(1.0)))
    assert np.array_equal(found, expected)
