"""DP-Hype's Figures 4 and 5 and Table IV on tiny sizes: networks side by side, kept tables, judged claims."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dptune.cli import main
from dptune.federated.errors import Aborted
from dptune.reproductions import hype, hype_accuracy, hype_resources
from dptune.reproductions._hype_networks import NetworkBank

TINY = hype_accuracy.Scale(("mnist", "adult"), (6,), 120, 1, 4, 3)


def toy_task(name: str) -> hype._Task:
    rng = np.random.default_rng(len(name))
    y = np.arange(240) % 3
    x = rng.normal(size=(240, 5)) + 2.0 * np.eye(5)[y]
    rows = np.hstack([x, np.ones((240, 1))]).astype(np.float32)
    return hype._Task(rows[:180], y[:180], rows[180:], y[180:], 3)


@pytest.fixture(autouse=True)
def _toy_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hype, "_task", toy_task)
    hype_accuracy._task.cache_clear()
    yield
    hype_accuracy._task.cache_clear()


def test_candidates_trained_together_equal_candidates_trained_alone() -> None:
    rng = np.random.default_rng(0)
    x = np.hstack([rng.normal(size=(90, 6)), np.ones((90, 1))]).astype(np.float32)
    y = rng.integers(0, 3, 90)
    candidates = [
        {"lr": 0.5, "decay": 1.0, "momentum": 0.9},
        {"lr": 1e30, "decay": 1.0, "momentum": 0.9},  # diverges, and spoils nothing
        {"lr": 0.01, "decay": 0.1, "momentum": 0.0},
    ]
    both = NetworkBank(candidates, 6, 3, hidden=4)
    weights = both.train(both.start(), x, y, epochs=range(3), batch=16, rng=np.random.default_rng(1))
    together = both.accuracy(weights, x, y)
    for i, candidate in enumerate(candidates):
        one = NetworkBank([candidate], 6, 3, hidden=4)
        alone = one.train(one.start(), x, y, epochs=range(3), batch=16, rng=np.random.default_rng(1))
        assert one.accuracy(alone, x, y)[0] == pytest.approx(together[i], abs=1e-6)
    assert len(set(together)) == 3  # they do differ


def test_gradients_are_those_of_the_loss() -> None:
    """Against differences of the mean cross-entropy, in double precision."""
    rng = np.random.default_rng(2)
    bank = NetworkBank([{"lr": 1.0, "decay": 1.0, "momentum": 0.0}] * 2, 3, 4, hidden=5)
    x, y = np.hstack([rng.normal(size=(7, 3)), np.ones((7, 1))]), rng.integers(0, 4, 7)
    weights = rng.normal(size=len(bank.start()))

    def loss(values: np.ndarray) -> float:
        inner, outer = bank._parts(values)
        scores = bank._activations(inner, x) @ outer
        logs = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
        return float(-logs[:, np.arange(7), y].mean(axis=1).sum())

    slopes = np.concatenate([part.ravel() for part in bank._gradients(*bank._parts(weights), x, np.eye(4)[y])])
    for place in rng.choice(len(weights), 20, replace=False):
        step = np.zeros_like(weights)
        step[place] = 1e-6
        assert slopes[place] == pytest.approx((loss(weights + step) - loss(weights - step)) / 2e-6, abs=1e-6)


def test_settings_are_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = hype_accuracy.fig5(scale=TINY, folder=tmp_path)
    assert [row["partition"] for row in table.as_dicts()] == ["dirichlet 30", "dirichlet 5", "dirichlet 0.5"] * 2
    assert len(table.verdicts) == 5
    for row in table.as_dicts():
        assert float(row["tenth"]) <= float(row["ninth"])
        assert float(row["guess"]) <= float(row["eps inf"]) <= float(row["opt"])
        assert 1.0 <= float(row["voted for"]) <= 100.0

    def never(*asked: object) -> None:
        raise AssertionError(asked)

    monkeypatch.setattr(hype, "_local", never)
    assert hype_accuracy.fig5(scale=TINY, folder=tmp_path).rows == table.rows


def test_figures_12_and_13_compare_numbers_of_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[hype_accuracy.Setting] = []

    def made(setting: hype_accuracy.Setting, scale: object, folder: object) -> tuple[np.ndarray, np.ndarray]:
        asked.append(setting)
        local = np.random.default_rng(0).uniform(0.1, 0.3, (setting.clients, 100))
        local[:, 7] = 0.9
        return local, np.where(np.arange(100) == 7, 0.9, 0.2) - setting.clients / 10_000

    monkeypatch.setattr(hype_accuracy, "trained", made)
    scale = hype_accuracy.Scale(("mnist", "adult"), repetitions=10)
    table = hype_accuracy.fig12(scale=scale, folder=tmp_path)
    assert [one.clients for one in asked] == [250] * 6 + [50] * 6
    assert asked[5].partition == "dirichlet 2"  # Adult with 250 clients
    *_, lower, gained = table.verdicts
    assert lower.outcome == gained.outcome == "reproduces"
    assert "Opt falls by 0.020 to 0.020" in lower.why


def test_figure_4_is_judged_by_the_share_of_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local, final = np.zeros((250, 100)), np.full(100, 0.2)
    final[7] = 0.9

    def made(setting: hype_accuracy.Setting, scale: object, folder: object) -> tuple[np.ndarray, np.ndarray]:
        table = np.random.default_rng(0).uniform(0.1, 0.3, local.shape)[: setting.clients]
        table[:, 7] = 0.9
        return table, final

    monkeypatch.setattr(hype_accuracy, "trained", made)
    table = hype_accuracy.fig4(scale=hype_accuracy.Scale(("mnist",), repetitions=6), folder=tmp_path)
    assert [row["clients"] for row in table.as_dicts()] == [50, 100, 250]
    outcomes = [one.outcome for one in table.verdicts]
    assert outcomes[2:] == ["cannot be told", *["reproduces"] * 3]  # no Adult
    assert outcomes[0] == "does not reproduce"  # 99 of 100 candidates are alike here
    (last,) = (row for row in table.rows if row[2] == 250)
    assert hype_accuracy.recovered(last, 0.5) == pytest.approx(1.0)


def test_votes_that_agree_are_spread_over_five_candidates() -> None:
    table = np.tile(np.arange(100) / 100, (30, 1))
    assert hype_accuracy.spread_of_votes(table) == pytest.approx(5.0)
    assert hype_accuracy.spread_of_votes(np.zeros((400, 100))) > 90.0  # ties by lot


def test_adult_with_250_clients_has_a_beta_of_its_own() -> None:
    assert hype_accuracy._betas("adult", 250)[-1] == 2.0
    assert hype_accuracy._betas("adult", 100)[-1] == hype_accuracy._betas("mnist", 250)[-1] == 0.5


def test_table_4_measures_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def voting(kind: str, n: int) -> tuple[float, float, float]:
        asked.append((kind, n))
        return (33_780.0, 29_720.0, 5.0) if kind == "SecAgg+" else (4_000.0 + n, 3_000.0, 0.1)

    monkeypatch.setattr(hype_resources, "voting", voting)
    scale = hype_resources.Scale((50, 100), 50, 1, TINY)
    table = hype_resources.table4(scale=scale, folder=tmp_path)
    assert asked == [("our sum", 50), ("our vote", 50), ("SecAgg+", 50), ("our sum", 100), ("our vote", 100)]
    assert [one.outcome for one in table.verdicts[:3]] == ["reproduces"] * 3
    assert hype_resources.table4(scale=scale, folder=tmp_path).rows == table.rows
    assert len(asked) == 5


def test_table_4_keeps_and_tells_every_repetition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three repetitions at 100 clients were one silent step, which looked like standing still and was lost when cut."""
    taken = [5.0, 1.0, 3.0]

    def voting(kind: str, n: int) -> tuple[float, float, float]:
        del kind, n
        return 1.0, 1.0, taken.pop(0)

    monkeypatch.setattr(hype_resources, "voting", voting)
    scale, said = hype_resources.Scale((100,), 0, 2, TINY), list[str]()
    with pytest.raises(IndexError):  # the fourth measurement is cut off
        hype_resources.table4(said.append, scale=scale, folder=tmp_path)
    assert [line.split(":")[0] for line in said] == [
        "our sum, 100 clients, 1 of 2",
        "our sum, 100 clients, 2 of 2",
        "our vote, 100 clients, 1 of 2",
    ]
    taken.append(7.0)
    rows = hype_resources.table4(said.append, scale=scale, folder=tmp_path).rows
    assert [row[4] for row in rows[:2]] == [3.0, 5.0]  # medians of 5 and 1, of 3 and 7
    assert said[3].startswith("our vote, 100 clients, 2 of 2: 4 of 6")


def test_a_sum_that_takes_too_long_is_given_up_in_one_line() -> None:
    secure_sums = pytest.importorskip("dptune.reproductions.secure_sums")
    with secure_sums.quiet_flower(), pytest.raises(Aborted, match=r"12 clients was given up after .* call again"):
        secure_sums.secagg_plus(12, 0.3, 1.0, limit=0.0)


def test_the_sums_are_counted() -> None:
    """Really run, with few clients: payload is counted for both protocols."""
    pytest.importorskip("flwr")
    ours, theirs = hype_resources.voting("our sum", 12), hype_resources.voting("SecAgg+", 12)
    assert 0.0 < ours[0] < 20_000.0
    assert theirs[0] > 0.0


def test_out_says_where_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hype_resources, "SMALL", hype_resources.Scale((50,), 0, 1, TINY))
    monkeypatch.setattr(hype_resources, "voting", lambda kind, n: (1.0, 1.0, 1.0))
    monkeypatch.setattr("dptune.cli.reproduce.require", lambda needs, quick: None)  # the task is made up
    assert main(["reproduce", "hype-table4", "--quick", "--out", str(tmp_path / "mine"), "--json"]) == 0
    assert (tmp_path / "mine" / "hype-table4.jsonl").is_file()
