"""Tuning all hyperparameters at once: noise for every candidate, a made-up landscape, and one real tiny training."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dptune.accounting import DpSgd
from dptune.accounting.renyi import base_curve, epsilon_of
from dptune.reproductions import _koskela_trainings, koskela_joint

PAIR = (128 / 6000, 47)


def test_pairs_have_the_rates_of_table_1() -> None:
    rates = {rate for rate, _ in koskela_joint.pairs("mnist", 0.1)}
    assert min(rates) == pytest.approx(_koskela_trainings.RATES["mnist"], abs=1e-4)
    assert sorted({epochs for _, epochs in koskela_joint.pairs("mnist", 0.1)}) == pytest.approx([1, 2, 3, 4])
    assert len(koskela_joint.pairs("mnist", 0.1)) == 8


def test_curves_between_levels_are_close_and_noise_reaches_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(koskela_joint, "_LEVELS", np.geomspace(1.8, 3.0, 6))
    koskela_joint._curves.cache_clear()
    exact = base_curve(DpSgd(PAIR[0], 2.3, PAIR[1]), koskela_joint._ORDERS)
    between = koskela_joint.curve(PAIR, 2.3)
    assert np.abs(between[:26] / exact[:26] - 1.0).max() < 1e-3  # beyond, the curve bends
    target = 0.3
    noise = koskela_joint.noise_for(PAIR, target)
    curve = base_curve(DpSgd(PAIR[0], noise, PAIR[1]), koskela_joint._ORDERS)
    assert epsilon_of(koskela_joint._ORDERS, curve, 1e-5) == pytest.approx(target, rel=0.01)
    koskela_joint._curves.cache_clear()


def test_joint_tuning_on_a_made_up_landscape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[_koskela_trainings.Training] = []

    def pretend(cell: _koskela_trainings.Training) -> tuple[float, float]:
        asked.append(cell)
        ideal = 0.1 if cell.part == "subset" else 0.9 if cell.part == "rest" else 1.0
        lost = 0.1 * abs(math.log10(cell.rate / ideal)) + 0.05 * cell.noise
        return 0.9 - lost, cell.epochs * (1.0 if cell.part == "subset" else 10.0)

    level = {"baseline": 5.0, "variant 1": 2.0, "variant 2": 2.2}
    monkeypatch.setattr(koskela_joint, "noises", lambda method, who, grid, total, mean: [level[method]] * len(grid))
    monkeypatch.setattr(_koskela_trainings, "trained", pretend)
    table = koskela_joint.fig4(scale=koskela_joint.SMALL, folder=tmp_path)
    (row,) = table.as_dicts()
    assert len(asked) == 3 * 80 + 2
    assert float(row["variant 1"]) > float(row["variant 2"]) > float(row["baseline"])
    outcomes = [one.outcome for one in table.verdicts]
    assert outcomes == ["reproduces", "reproduces", "cannot be told", "reproduces", "does not reproduce"]  # made up
    koskela_joint.fig4(scale=koskela_joint.SMALL, folder=tmp_path)
    assert len(asked) == 3 * 80 + 2


def test_a_tenth_of_the_records_is_tuned_on() -> None:
    places, lots = _koskela_trainings._order("imdb", 5000)
    assert len(set(places.tolist())) == len(lots) == 5000
    assert 400 < (lots < _koskela_trainings.SHARE).sum() < 600  # fixed seed
    assert (places == _koskela_trainings._order("imdb", 5000)[0]).all()


@pytest.mark.slow
def test_noise_of_the_baseline_is_the_largest() -> None:
    grid = [(128 / 6000, 47), (256 / 6000, 47)]
    for who in ("paper", "ours"):
        levels = {m: koskela_joint.noises(m, who, grid, 1.0, 45.0) for m in ("baseline", "variant 1", "variant 2")}
        assert min(levels["baseline"]) > max(levels["variant 1"])
    exact = koskela_joint._exactly
    theirs = koskela_joint.noises("variant 2", "paper", grid, 1.0, 45.0)
    assert 0.98 < koskela_joint._theirs("variant 2", grid, theirs, 45.0, exact) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar-10", "imdb"])
def test_every_data_set_is_trained(name: str, data_root: Path) -> None:
    assert data_root.is_dir()
    _koskela_trainings._loaded.cache_clear()
    rate = _koskela_trainings.RATES[name]
    cell = _koskela_trainings.Training(name, False, "rest", 1.0, 0.5, 1000, 1.0, rate)
    accuracy, seconds = _koskela_trainings.trained(cell)
    _koskela_trainings._loaded.cache_clear()
    assert 0.05 < accuracy < 0.95
    assert seconds > 0.0
