"""The paper's figures: simulated success rates against two independent simulations, and a small Figure 4."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dptune._typing import Array
from dptune.reproductions import hype
from dptune.reproductions._hype_linear import LinearBank
from dptune.reproductions.hype import _fig4_verdicts, hype_fig2, hype_fig4
from dptune.reproductions.hype_scales import hype_scales
from dptune.reproductions.table import Table


def test_figure_2_at_a_quarter_of_the_budget() -> None:
    # Reference: .96, 1.00 and .83 (two independent simulations, to .01); 1,000 repetitions have deviations below .012,
    # so five of them and .01 is rarer than one in a million.
    table = hype_fig2(votes=(1, 5, 25), epsilons=(0.25,), repetitions=1000, seed=3)
    success = {row["votes"]: float(row["success"]) for row in table.as_dicts()}
    assert success[1] == pytest.approx(0.96, abs=0.01 + 5 * 0.0062)
    assert success[5] > 0.99
    assert success[25] == pytest.approx(0.83, abs=0.01 + 5 * 0.0119)
    assert table.verdicts[0].claim.startswith("as long as k is small")
    assert [row["sigma"] for row in table.as_dicts()] == pytest.approx([18.789, 42.01, 93.94], abs=0.01)


def test_voting_for_all_is_guessing() -> None:
    table = hype_fig2(clients=20, candidates=20, good=5, votes=(20,), epsilons=(1.0,), repetitions=2000)
    assert float(table.as_dicts()[0]["success"]) == pytest.approx(0.25, abs=5 * 0.0097)


def test_the_papers_five_scales() -> None:
    table = hype_scales()
    rows = table.as_dicts()
    outcomes = [one.outcome for one in table.verdicts]
    assert outcomes == ["does not reproduce", "reproduces", "reproduces"]  # a list of deviations, not of variances
    assert [row["exact"] for row in rows] == pytest.approx([97.24, 42.01, 22.24, 11.80, 4.40], abs=0.005)
    # Its own account, over all orders, gives its list to within five percent.
    assert [row["by Renyi"] for row in rows] == pytest.approx([row["paper"] for row in rows], rel=0.05)
    assert all(float(row["ring epsilon"]) <= float(row["epsilon"]) for row in rows)
    assert all(float(row["eps if variance"]) > 2 * float(row["epsilon"]) for row in rows)


def test_candidates_trained_together_equal_candidates_trained_alone() -> None:
    rng = np.random.default_rng(0)
    x, y = LinearBank.inputs(rng.random((90, 6))), rng.integers(0, 3, 90)
    candidates = [{"lr": 0.5, "decay": 1.0, "momentum": 0.9}, {"lr": 0.01, "decay": 0.1, "momentum": 0.0}]
    both = LinearBank(candidates, 6, 3)
    together = both.train(both.start(), x, y, epochs=range(3), batch=16, rng=np.random.default_rng(1))
    for i, candidate in enumerate(candidates):
        one = LinearBank([candidate], 6, 3)
        alone = one.train(one.start(), x, y, epochs=range(3), batch=16, rng=np.random.default_rng(1))
        np.testing.assert_allclose(together[:, 3 * i : 3 * i + 3], alone, rtol=1e-4, atol=1e-6)


def test_linear_figure_4_is_judged() -> None:
    row: dict[str, str | int | float] = {"opt": 0.9, "guess": 0.5, "eps 1": 0.85, "subsets": "-", "feathers": 0.6}
    close, rivals = _fig4_verdicts([row], (1.0,), 1.0)
    assert (close.outcome, rivals.outcome) == ("does not reproduce", "reproduces")
    assert _fig4_verdicts([row | {"eps 1": 0.895}], (1.0,), 1.0)[0].outcome == "reproduces"
    assert _fig4_verdicts([row], (1.0,), 3.0)[1].outcome == "cannot be told"


def test_linear_figure_4_goes_on_where_it_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []

    def linear(name: str, partition: str, n: int, epochs: int, rng: np.random.Generator) -> tuple[Array, Array]:
        del name, partition, epochs
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(n)
        return rng.random((n, 100)), np.arange(100) / 100

    def figure() -> Table:
        partitions = ("iid", "dirichlet 0.5", "dirichlet 5")
        return hype_fig4(
            datasets=("adult",),
            clients=(4,),
            partitions=partitions,
            repetitions=2,
            progress=said.append,
            folder=tmp_path,
        )

    said: list[str] = []
    monkeypatch.setattr(hype, "_linear", linear)
    with pytest.raises(KeyboardInterrupt):
        figure()
    trained.clear()
    assert len(figure().rows) == 3
    assert trained == [4]
    assert said[-1].startswith("adult, dirichlet 5, 4 clients: 3 of 3")


@pytest.mark.slow
def test_figure_4_on_adult(data_root: Path, tmp_path: Path) -> None:
    assert (data_root / "adult").is_dir()
    table = hype_fig4(
        datasets=["adult"], clients=[50], partitions=["iid"], epsilons=[3.0], repetitions=5, folder=tmp_path
    )
    (row,) = table.as_dicts()
    assert float(row["opt"]) > 0.83
    assert row["subsets"] == "-"  # 50 clients cannot cover 100 candidates
    assert all(0.7 < float(row[rival]) <= float(row["opt"]) for rival in ("raw", "feathers"))
    assert float(row["guess"]) < float(row["eps 3"]) <= float(row["opt"])
    assert float(row["eps 3"]) > float(row["opt"]) - 0.02
