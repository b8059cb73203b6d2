"""DP-HyPO's landscapes with the paper's networks, on made-up accuracies: what is trained, kept, searched and judged."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dptune.reproductions import _hypo_search, hypo_cifar, hypo_network
from dptune.spaces import Float, Space

TINY = hypo_network.Scale(4, 3, 0.01, 2, 3, 10)


def pretend(noise: float, lr: float, clip: float, steps: int, seed: int) -> float:
    del clip, seed
    assert steps == TINY.steps
    return 0.9 - 0.1 * abs(math.log10(lr)) - 0.2 * noise


def test_cells_are_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, ...]] = []

    def counted(*cell: float) -> float:
        asked.append(cell)
        return pretend(*cell)  # type: ignore[arg-type]

    monkeypatch.setattr(hypo_network, "trained", counted)
    table = hypo_network.fig1_mnist(scale=TINY, folder=tmp_path)
    assert len(asked) == len(set(asked)) == 2 * 12 * 2  # two noise levels, cells, two trainings with seeds of their own
    assert [row["T"] for row in table.as_dicts()] == [1, 2, 3, 5, 7, 8, 10]
    wide = hypo_network.table1(scale=TINY, gammas=(0.01, 0.5), folder=tmp_path)
    assert len(asked) == 48
    assert len(wide.verdicts) == 3
    small, large = wide.as_dicts()
    assert small["paper GP/unif"] == "0.943 / 0.940"
    assert large["paper GP/unif"] == "-"
    for row in (small, large):
        assert float(row["ours unif"]) < float(row["PS unif"])
        assert float(row["ours GP"]) < float(row["T1 GP"])
    assert float(small["ours GP"]) == pytest.approx(7.855, abs=2e-3)  # noise .71, 2343 steps, geometric 100


def test_the_grid_is_the_papers() -> None:
    grid = hypo_network.FULL.grid
    assert len(grid) == 320
    rates = sorted({float(item["lr"]) for item in grid.items})
    assert rates == pytest.approx([1e-4 * 10 ** (i / 3) for i in range(16)])
    assert sorted({float(item["clip"]) for item in grid.items}) == pytest.approx([0.3 * i for i in range(1, 21)])
    assert len(hypo_cifar.GRID) == 2500


def test_early_and_late_is_judged_by_errors() -> None:
    error = np.full(20, 0.001)
    gap = np.where(np.arange(20) < 7, -0.01, 0.01)
    assert hypo_network.early_and_late(gap, error, 8).outcome == "reproduces"
    assert hypo_network.early_and_late(-gap, error, 8).outcome == "does not reproduce"
    assert hypo_network.early_and_late(abs(gap), error, 8).outcome == "does not reproduce"  # never worse
    unsure = gap.copy()
    unsure[15] = -0.001
    assert hypo_network.early_and_late(unsure, error, 8).outcome == "cannot be told"


def test_curves_of_clean_scores_never_fall() -> None:
    """With clean scores a curve is the best so far; the first run of an adaptive search is a uniform draw."""
    grid = Space(lr=Float(1e-4, 10, log=True), clip=Float(0.3, 6)).grid(lr=8, clip=8)
    codes = np.asarray(grid.encode(grid.items))
    land = _hypo_search.Landscape(grid, 1.0 - abs(codes - 0.9).sum(axis=1) / 2, np.zeros(64))
    plan = _hypo_search.adaptive_plan(grid, 10)
    bent = np.array([_hypo_search.search(land, plan, 10, seed) for seed in range(8)])
    plain = _hypo_search.uniform(land, 10, 2000, np.random.default_rng(0))
    assert (np.diff(bent, axis=1) >= 0).all()
    assert (np.diff(plain, axis=1) >= 0).all()
    assert np.isin(bent, land.actual).all()
    gap, error = _hypo_search.gaps(bent, plain)
    assert abs(gap[0]) < 5 * error[0]
    assert (_hypo_search.search(land, plan, 10, 3) == bent[3]).all()


def test_told_follows_the_score() -> None:
    assert _hypo_search.told(np.array([[0.1, 0.5, 0.3]]), np.array([[1.0, 0.2, 3.0]])).tolist() == [[0.1, 0.1, 0.3]]


def test_a_process_is_fitted_to_few_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypo_cifar, "trained", lambda noise, lr, clip, steps, seed: 0.4 - 0.1 * abs(math.log10(lr) + 2))
    table = hypo_cifar.fig1_cifar(scale=hypo_cifar.Scale(12, 0.01, 4, 8), folder=tmp_path)
    assert [row["T"] for row in table.as_dicts()] == [1, 2, 3, 5, 7, 8]
    assert len(table.verdicts) == 3
    lands = hypo_cifar.landscapes(hypo_cifar.Scale(12, 0.01, 4, 8), lambda line: None, tmp_path)
    best = hypo_cifar.GRID.items[int(lands["GP"].actual.argmax())]
    assert -3.0 < math.log10(float(best["lr"])) < -1.0
    assert (lands["GP"].spread > 0).all()
