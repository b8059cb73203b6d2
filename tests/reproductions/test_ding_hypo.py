"""The reproduced experiments: small versions run, and their claims are computed, not written down."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer

from dptune.cli.reproduce import reproduce
from dptune.errors import InvalidInput
from dptune.reproductions import hypo
from dptune.reproductions.ding import fig3, fig4


def test_fig3_orders_the_methods() -> None:
    table = fig3(k_epsilons=(0.5, 10, 100), repeats=200)
    rows = {row["k*eps"]: row for row in table.as_dicts()}
    assert float(rows[100]["final"]) > 0.9 > float(rows[10]["final"]) > float(rows[0.5]["final"])
    for row in rows.values():
        assert float(row["flip"]) > float(row["sparse"]) > float(row["filtered"]) - 0.05
    judged = ["reproduces", "does not reproduce", "cannot be told", "reproduces"]
    assert [one.outcome for one in table.verdicts] == judged
    assert "0.95 takes k*eps = 100" in table.verdicts[1].why


def test_fig4_without_noise_is_the_formula() -> None:
    table = fig4(k_epsilons=(1e9,), granularities=(0.1, 0.01), repeats=20)
    for row in table.as_dicts():
        assert row["T"] == row["T no noise"]
    assert [one.outcome for one in table.verdicts] == ["reproduces", "cannot be told"]


def test_simulation_on_a_made_up_landscape() -> None:
    """Adaptive sampling must gain on a landscape where one corner is good and scores are nearly clean."""
    codes = hypo.GRID.encode(hypo.GRID.items)

    def lay(noise: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.asarray(0.9 - 0.4 * abs(codes - 0.8).sum(axis=1) - 0.01 * noise)

    told: list[str] = []
    table = hypo.mnist_sim(gammas=(0.1, 0.2), most=12, repeats=4, lay=lay, progress=told.append)
    assert len(told) == 4
    assert told[-1].endswith("about 0 s left")
    for row in table.as_dicts():
        assert float(row["noise GP"]) > float(row["noise unif"])
        assert 0 < float(row["uniform"]) < 0.9
        assert 0 < float(row["GP"]) < 0.9
        assert float(row["unif x2"]) > float(row["uniform"])
    (said,) = table.verdicts
    assert said.claim.startswith("GP beats uniform")


def test_prefix_winners_follow_the_noisy_best() -> None:
    actual = np.array([[0.1, 0.5, 0.3]])
    scores = np.array([[1.0, 0.2, 3.0]])
    assert hypo._prefix_winners(actual, np.random.default_rng(0), scores).tolist() == [[0.1, 0.1, 0.3]]
    assert hypo._aggregate(np.array([0.0, 1.0]), 0.25) == pytest.approx(0.75)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()
    app.command()(reproduce)
    app(["ding-fig4", "--json"], standalone_mode=False)
    said = json.loads(capsys.readouterr().out)
    assert len(said["rows"]) == 25
    app(["ding-fig3"], standalone_mode=False)
    assert "DOES NOT REPRODUCE: k >= 5/eps" in capsys.readouterr().out
    with pytest.raises(InvalidInput, match="hypo-mnist-sim"):
        app(["ding-fig9"], standalone_mode=False)
