"""The catalogue of experiments, the command around it, and small versions of those that need no training."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dptune.accounting import Geometric, Poisson
from dptune.accounting.renyi import base_curve
from dptune.cli import main
from dptune.cli.reproduce import FIGURES
from dptune.errors import InvalidInput
from dptune.reproductions import (
    _koskela_trainings,
    ding,
    hype,
    hype_rivals,
    hype_simulation,
    koskela,
    koskela_tuning,
    liu_talwar,
    papernot_steinke,
    xiang_bounds,
)
from dptune.reproductions.catalogue import EXPERIMENTS
from dptune.reproductions.figures import draw
from dptune.reproductions.progress import Progress
from dptune.reproductions.table import Table, verdict

WANTED = (
    "koskela-fig1",
    "koskela-fig2",
    "koskela-fig3",
    "koskela-fig4",
    "koskela-fig4-accounting",
    "koskela-fig8",
    "koskela-fig9",
    "xiang-table",
    "xiang-totals",
    "xiang-fig-bound",
    "hypo-fig1-mnist",
    "hypo-table1",
    "hypo-fig1-cifar",
    "hype-fig4",
    "hype-fig5",
    "hype-fig9",
    "hype-fig12",
    "hype-fig10",
    "hype-fig11",
    "hype-rivals-cifar",
    "hype-table4",
    "papernot-steinke-fig7",
    "liu-talwar",
    "ding-fig3",
    "ding-fig4",
    "hypo-mnist-sim",
    "hype-fig2",
    "hype-scales",
    "xiang-audit",
)


def outcomes(table: Table) -> list[str]:
    return [one.outcome for one in table.verdicts]


def test_every_experiment_of_the_papers_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in WANTED)
    assert main(["reproduce", "--list", "--json"]) == 0
    every = json.loads(capsys.readouterr().out)["experiments"]
    assert {one["name"] for one in every} == set(EXPERIMENTS)
    assert [one["name"] for one in every if not one["ready"]] == ["hypo-table2"]


def test_what_cannot_be_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert EXPERIMENTS["hypo-table2"].state == "cannot be run: its data are proprietary"
    assert main(["reproduce", "hypo-table2"]) == 2
    assert "'hypo-table2' cannot be run: its data are proprietary." in capsys.readouterr().err
    assert main(["reproduce"]) == 2
    assert "--list" in capsys.readouterr().err


def test_json_and_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "lines.svg"
    assert main(["reproduce", "koskela-fig9", "--quick", "--json", "--figure", str(target)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["quick"] is True
    assert [one["verdict"] for one in said["verdicts"]] == ["reproduces", "reproduces"]
    assert target.read_text().lstrip().startswith("<?xml")
    assert main(["reproduce", "koskela-savings", "--figure", str(target)]) == 2
    said_both = capsys.readouterr()
    assert "without curves" in said_both.err
    assert "REPRODUCES" in said_both.out  # the table is not lost
    with pytest.raises(InvalidInput, match="cannot be written"):
        draw(koskela.fig9(), tmp_path / "nowhere" / "lines.svg")


@pytest.mark.parametrize("name", ["ding-fig3", "ding-fig4", "hype-fig2"])
def test_figures_of_simulations_have_curves(name: str, tmp_path: Path) -> None:
    target = tmp_path / "drawn.svg"
    small = {
        "ding-fig3": lambda: ding.fig3(k_epsilons=(5.0, 50.0), repeats=20),
        "ding-fig4": lambda: ding.fig4(k_epsilons=(5.0, 50.0), granularities=(0.1, 0.05), repeats=3),
        "hype-fig2": lambda: hype.hype_fig2(clients=20, candidates=20, good=2, votes=(1, 5), repetitions=20),
    }
    draw(small[name](), target)
    assert target.read_text().count("<path") > 10


def test_one_total_is_drawn_over_the_data_sets() -> None:
    rows = [(name, 1.0, who, 4.0, 0.5, 2.0, 0.6, 2.1, 0.7, 5.0) for name in ("a", "b") for who in ("paper", "ours")]
    plot = koskela_tuning.plotted(rows)
    assert plot.x == "data: 1 a, 2 b"
    assert plot.series["variant 2, ours"] == ([1.0, 2.0], [0.7, 0.7])
    more = koskela_tuning.plotted([*rows, ("a", 2.0, "paper", 4.0, 0.8, 2.0, 0.6, 2.1, 0.7, 5.0)])
    assert more.series["baseline, paper"] == ([1.0, 2.0], [0.5, 0.8])


def test_progress_estimates_the_rest() -> None:
    said: list[str] = []
    progress = Progress(2, said.append)
    progress.done("one")
    progress.done("two")
    assert said[0].startswith("one: 1 of 2")
    assert said[1].endswith("about 0 s left")


def test_what_was_kept_does_not_shorten_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    times = iter([0.0, 10.0])
    monkeypatch.setattr("dptune.reproductions.progress.time.monotonic", lambda: next(times))
    progress = Progress(10, said.append)
    for _ in range(7):
        progress.known()  # from an earlier call
    progress.done("one")
    assert said == ["one: 8 of 10, 10 s so far, about 20 s left"]


def test_a_comparison_that_was_not_made_is_no_verdict() -> None:
    assert [verdict("x", held, "y").outcome for held in (True, False, None)] == [
        "reproduces",
        "does not reproduce",
        "cannot be told",
    ]


def test_koskela_figure_1_at_the_reference_points() -> None:
    """Figures that were computed before by other code: 2.455 and 1.712 (Theorem 6), 6.988 and 4.400."""
    (few,) = koskela.fig1(means=(15,), shares=(0.1,)).as_dicts()
    assert few["T6 v1"] == pytest.approx(2.455, abs=2e-3)
    assert few["T6 exact"] == pytest.approx(1.712, abs=2e-3)
    assert few["ours v1"] == pytest.approx(1.420, abs=2e-3)
    assert float(few["cert v1"]) <= float(few["ours v1"]) < float(few["T6 exact"])
    one = base_curve(koskela._BASE, koskela._ORDERS)
    first, second = koskela._their_epsilons(koskela._BASE, one, 45, 0.1, exact=False)
    assert first == pytest.approx(6.988, abs=2e-3)
    assert second < first  # where the paper sees the two bounds cross


def test_savings_of_section_3_4() -> None:
    assert koskela.speed_ups(15, 0.1) == pytest.approx((6.25, 6.0))
    assert outcomes(koskela.section34()) == ["reproduces"] * 3


@pytest.mark.slow
def test_joint_tuning_is_priced_below_the_largest_curve() -> None:
    table = koskela.fig4_accounting(targets=(1.0,), mean=15.0, grids=("CIFAR-10",))
    (row,) = table.as_dicts()
    assert 1.0 <= float(row["Lemma 9"]) < 1.1
    assert float(row["average"]) < float(row["Lemma 9"])
    assert float(row["ours all"]) < float(row["T5 all"])
    assert float(row["ours v1"]) < float(row["T6 v1"])


def test_expected_best_is_what_enumeration_says() -> None:
    accuracies = np.array([0.2, 0.9, 0.5])
    law = Poisson(2.0)
    share = np.array([1, 2, 3]) / 3
    cumulative = np.exp(2.0 * (share - 1.0))
    expected = (np.diff(np.append(math.exp(-2.0), cumulative)) * np.sort(accuracies)).sum()
    assert papernot_steinke.expected_best(accuracies, law) == pytest.approx(expected, rel=1e-12)
    # Best of exactly one run is the mean.
    assert papernot_steinke.expected_best(accuracies, Geometric(1)) == pytest.approx(accuracies.mean())


def test_missing_accuracies_are_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    with pytest.raises(InvalidInput, match=r"lr_acc\.json.*papernot-steinke/"):
        papernot_steinke.fig7()


def test_papernot_steinke_on_made_up_accuracies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "papernot-steinke").mkdir()
    made = {repr(float(rate)): 0.96 * rate for rate in np.logspace(-4, 0, 1000)}
    (tmp_path / "papernot-steinke" / "lr_acc.json").write_text(json.dumps(made))
    monkeypatch.setenv("DPTUNE_DATA", str(tmp_path))
    assert papernot_steinke.candidates().max() == pytest.approx(0.96)
    table = papernot_steinke.fig7(means=(3.0,))
    assert outcomes(table)[0] == "reproduces"  # the base's Renyi curve is the printed one
    for row in table.as_dicts():
        assert float(row["certificate"]) <= float(row["ours"]) < float(row["theirs"])


def test_liu_and_talwar_hold_and_are_nearly_reached() -> None:
    table = liu_talwar.liu_talwar(pures=(1.0,), noises=(4.0,), means=(100.0,))
    pure, normal = table.as_dicts()
    assert 1.97 < float(pure["cert"]) <= float(pure["known"]) <= 2.0
    assert 2.9 < float(pure["best"]) <= 3.0
    assert float(normal["known"]) == pytest.approx(1.545, abs=2e-3)
    assert outcomes(table) == ["reproduces"] * 2


def test_xiang_bounds_are_ordered() -> None:
    table = xiang_bounds.fig_bound(means=(10.0,), laws=("geometric", "poisson"))
    for row in table.as_dicts():
        assert float(row["certificate"]) <= float(row["ours"]) < float(row["theirs"]) < float(row["previous"])
    assert outcomes(table) == ["reproduces", "reproduces"]


def test_xiang_totals_from_one_law() -> None:
    table = xiang_bounds.table_accounting(laws=("geometric",))
    first, second, third, *trained = table.as_dicts()
    assert {row["left: ours"] for row in trained} == {"-"}
    assert first["Theorem 3"] == pytest.approx(1.83, abs=1e-3)
    assert second["Theorem 3"] == pytest.approx(3.535, abs=5e-3)
    assert third["Theorem 3"] == pytest.approx(6.765, abs=5e-3)
    for row in (first, second, third):
        assert float(row["left: previous"]) < float(row["left: theirs"]) < float(row["left: ours"])


def test_more_votes_help_where_losses_overlap() -> None:
    table = hype_simulation.fig2a(deviations=(0.2, 0.8), repetitions=60)
    near, far = table.as_dicts()[:2]
    assert float(near["k = 5"]) == 1.0  # reference .999 and above
    assert float(far["k = 5"]) > float(far["k = 1"])
    assert outcomes(table)[:3] == ["reproduces"] * 3
    assert len(hype_simulation.fig2b(goods=(2, 16), repetitions=20).as_dicts()) == 4
    assert len(hype_simulation.fig2c(candidates=(100, 150), repetitions=20).verdicts) == 4


def test_rivals_read_what_was_trained_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut-off run goes on from the kept tables; here they are made up: one clear winner among 100."""
    scale = hype_rivals.Scale(10, 1, 8)
    rng = np.random.default_rng(0)
    local = rng.uniform(0.1, 0.3, (250, 100))
    local[:, 7] = 0.9
    final = np.full(100, 0.2)
    final[7] = 0.95

    def kept(*asked: object, **named: object) -> tuple[np.ndarray, np.ndarray]:
        del asked, named
        return local, final

    monkeypatch.setattr(hype_rivals, "trained", kept)
    table = hype_rivals.fig10(scale=scale, folder=tmp_path)
    rows = table.as_dicts()
    assert float(rows[-1]["vote"]) == pytest.approx(0.95)
    assert len(rows) == 6
    assert len(hype_rivals.fig11(scale=scale, folder=tmp_path).verdicts) == 3


def test_kept_tables_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hype, "_task", lambda name: (_ for _ in ()).throw(AssertionError(name)))
    scale = hype_rivals.Scale(10, 1, 1)
    with pytest.raises(AssertionError):
        hype_rivals.trained("iid", 3, scale, tmp_path)
    name = hashlib.sha256(b"linear mnist iid 3 10 1").hexdigest()[:16]
    np.savez(tmp_path / f"hype-{name}.npz", local=np.zeros((3, 100)), final=np.ones(100))
    assert hype_rivals.trained("iid", 3, scale, tmp_path)[1].sum() == 100


def test_tuning_on_a_made_up_landscape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise hurts, the scaled learning rate is the right one, and a second call trains nothing."""
    asked: list[_koskela_trainings.Training] = []

    def pretend(cell: _koskela_trainings.Training) -> tuple[float, float]:
        asked.append(cell)
        ideal = 0.1 if cell.part == "subset" else 0.9 if cell.part == "rest" else 1.0
        lost = 0.1 * abs(math.log10(cell.rate / ideal)) + 0.05 * cell.noise
        return 0.9 - lost, 1.0 if cell.part == "subset" else 10.0

    levels = {("baseline", "paper"): 4.7, ("variant 1", "paper"): 2.4, ("variant 2", "paper"): 2.6}
    levels |= {("baseline", "ours"): 3.5, ("variant 1", "ours"): 1.6, ("variant 2", "ours"): 1.9}
    monkeypatch.setattr(koskela_tuning, "noises", lambda total, steps, rate: levels)
    monkeypatch.setattr(_koskela_trainings, "trained", pretend)
    scale = koskela_tuning.Scale(data=("fashion-mnist",))
    table = koskela_tuning.fig2(scale=scale, folder=tmp_path)
    paper, ours = table.as_dicts()
    for row in (paper, ours):
        assert float(row["variant 1"]) > float(row["baseline"])
        assert float(row["time"]) == pytest.approx(150 / 25)
    assert outcomes(table)[:4] == ["reproduces", "reproduces", "cannot be told", "reproduces"]
    assert outcomes(table)[4:] == ["does not reproduce", "cannot be told"]  # exactly 6 times, which is not below
    count = len(asked)
    koskela_tuning.fig2(scale=scale, folder=tmp_path)
    assert len(asked) == count


@pytest.mark.slow
def test_noise_by_account() -> None:
    levels = koskela_tuning.noises(1.0, 376, 0.0213)
    for who in ("paper", "ours"):
        assert levels["baseline", who] > levels["variant 2", who] > levels["variant 1", who]
    for method in ("baseline", "variant 1", "variant 2"):
        assert levels[method, "ours"] < levels[method, "paper"]


def test_chances_of_release() -> None:
    law = Poisson(2.0)
    won = koskela_tuning.chances(np.array([0.3, 0.9, 0.5]), law)
    assert won.sum() == pytest.approx(1.0 - math.exp(-2.0))
    assert won[1] == pytest.approx(1.0 - math.exp(-2.0 / 3.0))  # at least one of the draws is the best


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_every_quick_version_runs(
    name: str,
    data_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    """How long each took is kept in the report (``--junitxml``), and not judged: it depends on the machine."""
    assert data_root.is_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["reproduce", name, "--quick", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    record_property("processor_seconds", said["processor_seconds"])
    assert said["rows"]
    assert said["verdicts"]  # every experiment judges what its paper says
    assert all(one["why"] for one in said["verdicts"])
