"""The planner: what it chooses, what it says, and the table of all methods."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from dptune.accounting import DpSgd, Geometric, NegativeBinomial, PureDp
from dptune.cli.compare import compare as command
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.methods import Budget, RandomStopping, Subset
from dptune.methods.models import elastic_rounds, flip_choices, sparse_choices, top_share
from dptune.planner import choose, compare, public_records, tune
from dptune.planner.forecast import choice_loss, data_loss
from dptune.spaces import Float, Space
from dptune.training import DpSgdTrainer, Settings, load, softmax

SPACE = Space(lr=Float(1e-3, 1, log=True))


class Priced:
    """DP-SGD that is priced, never run."""

    validation: Any = "public"

    def cost(self, params: dict[str, Any]) -> DpSgd:
        return DpSgd(256 / 60000, params["noise_multiplier"], 2344)


class Private(Priced):
    validation = None


def test_subset_tuning_is_the_default_with_many_records() -> None:
    advice = choose(Priced(), SPACE, Budget(2.0, 1e-5), records=60_000)
    assert isinstance(advice.method, Subset)
    assert advice.plan.price() <= 2
    assert f"noise {advice.plan.noise_multiplier:.4g}" in advice.explanation
    assert re.search(r"random stopping with \S.* runs on all records needs", advice.explanation)
    assert "\n" not in advice.explanation


@pytest.mark.parametrize(("epsilon", "records"), [(0.5, 700), (2.0, 1000), (8.0, None)])
@pytest.mark.parametrize("octaves", [0.5, 4.0, 20.0])
def test_random_stopping_has_the_law_that_loses_least(epsilon: float, records: int | None, octaves: float) -> None:
    """Of those that it weighs, by the model's own figures and the price of each alone."""
    space = Space(lr=Float(1.0, 2.0**octaves, log=True))
    plan = choose(Priced(), space, Budget(epsilon, 1e-5), records=records).plan
    lost = {}
    for law in (Geometric(10), NegativeBinomial(5, 10), NegativeBinomial(5, 20)):
        noise = RandomStopping(space, law).plan(Budget(epsilon, 1e-5), Priced()).noise_multiplier
        assert noise is not None
        lost[law] = choice_loss(space, law) + data_loss(noise)
    assert plan.law == min(lost, key=lambda law: lost[law])
    if octaves != 4:
        assert (plan.law == Geometric(10)) == (octaves < 1)  # where all values are near, few runs do


def test_a_fixed_cost_takes_the_cheapest_law() -> None:
    class Fixed(Priced):
        def cost(self, params: dict[str, Any]) -> Any:
            return PureDp(0.2)

    assert choose(Fixed(), SPACE, Budget(2.0, 1e-5), records=1000).plan.law == Geometric(10)


@pytest.mark.parametrize("trainer", [Priced(), Private()])
@pytest.mark.parametrize("records", [1000, 60_000])
def test_three_sentences_at_most(trainer: Any, records: int) -> None:
    said = choose(trainer, SPACE, Budget(2.0, 1e-5), records=records).explanation
    assert len(re.findall(r"\.(?= [A-Z]|$)", said)) <= 3
    assert not re.search(r"\.\.|; ;|;\.", said)


def test_few_or_unknown_records_mean_random_stopping() -> None:
    few = choose(Priced(), SPACE, Budget(2.0, 1e-5), records=1000)
    assert few.plan.method == "random-stopping"
    assert "too small" in few.explanation
    unknown = choose(Priced(), SPACE, Budget(2.0, 1e-5))
    assert unknown.plan.method == "random-stopping"
    assert "was not given" in unknown.explanation


def test_no_public_validation_means_private_validation() -> None:
    advice = choose(Private(), SPACE, Budget(2.0, 1e-5), records=60_000)
    assert advice.plan.validation is not None
    assert advice.plan.validation.denominator == pytest.approx(2100)  # .35 of a tenth: forecast.py
    assert "held back" in advice.explanation
    with pytest.raises(InvalidInput, match="how many records"):
        choose(Private(), SPACE, Budget(2.0, 1e-5))


def test_records_follow_from_public_settings() -> None:
    class Trainer(Priced):
        declared_records = 60_000

    class Wrong(Priced):
        declared_records = "many"

    settings = Settings.from_batch(256, 60_000, noise_multiplier=1.0, steps=40, clip_norm=1.0, learning_rate=1.0)
    assert public_records(DpSgdTrainer(softmax(64, 10), settings)) == 60_000
    assert public_records(Trainer()) == 60_000
    assert public_records(Priced()) is None
    with pytest.raises(InvalidInput, match="declared_records"):
        public_records(Wrong())


def test_tune_plans_explains_and_runs(tmp_path: Path) -> None:
    pytest.importorskip("dptune.sealed.run", reason="the sealed runner is not installed")
    split = load("digits")
    settings = Settings.from_batch(150, 1438, noise_multiplier=1.0, steps=40, clip_norm=1.0, learning_rate=1.0)
    trainer = DpSgdTrainer(softmax(64, 10), settings, validation=split.test)
    said: list[str] = []
    space = Space(lr=Float(0.3, 3, log=True))
    release = tune(
        split.train, trainer=trainer, space=space, epsilon=6.0, delta=1e-4, out=tmp_path / "run", runs=Geometric(3),
        explain=said.append, seed=1, data_is="public",
    )  # fmt: skip
    assert said
    assert said[0].startswith("Chosen: ")
    assert set(release.params) >= {"lr", "noise_multiplier"}
    assert "Nothing was found that would go wrong" in said[1]  # a rehearsal hides nothing
    options: dict[str, Any] = {"runs": Geometric(3), "explain": said.append, "rehearsal": tmp_path / "run"}
    tune(split.train, trainer=trainer, space=space, epsilon=6.0, delta=1e-4, out=tmp_path / "sealed", **options)
    assert "release_at = 'auto'" in said[3]


def test_a_fixed_cost_that_does_not_fit_is_refused() -> None:
    class Fixed(Priced):
        def cost(self, params: dict[str, Any]) -> Any:
            return PureDp(5.0)

    with pytest.raises(BudgetExceeded):
        choose(Fixed(), SPACE, Budget(2.0, 1e-5), records=60_000)


def test_compare_lists_every_method_within_the_budget() -> None:
    rows = compare(Priced(), SPACE.grid(20), Budget(3.0, 1e-5), runs=Geometric(10), records=60_000)
    by_name = {row.name: row for row in rows}
    assert len(by_name) == 10
    assert all(row.epsilon <= 3 for row in rows)
    assert by_name["random guess"].top == 0.05
    assert by_name["random stopping"].top == pytest.approx(Geometric(10).hit_probability(0.05))
    assert by_name["adaptive"].top_high is not None
    passes = 256 / 60000 * 2344
    assert by_name["subset, rest"].gradients == pytest.approx(60_000 * passes * (10 * 0.1 + 0.9))
    assert by_name["naive composition"].gradients == pytest.approx(60_000 * passes * 20)
    noises = {row.name: row.noise or math.nan for row in rows}
    assert noises["subset, rest"] < noises["random stopping"] < noises["adaptive"]
    assert noises["random stopping"] < noises["naive composition"]
    assert by_name["noisy best"].top > by_name["threshold, sparse"].top > by_name["threshold, rounds"].top - 0.05


def test_the_command_prints_both_ways(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []

    def once(*given: Any, **named: Any) -> Any:
        computed.append(computed[0] if computed else compare(*given, **named))
        return computed[0]

    monkeypatch.setattr(sys.modules["dptune.cli.compare"], "compare_methods", once)
    app = typer.Typer()
    app.command()(command)
    options = ["--epsilon", "3", "--delta", "1e-5", "--steps", "100", "--candidates", "10", "--votes", "2"]
    app([*options, "--json"], standalone_mode=False)
    assert len(json.loads(capsys.readouterr().out)["methods"]) == 10
    app(options, standalone_mode=False)
    assert "model" in capsys.readouterr().out
    for bad in (["--density", "2"], ["--candidates", "1"], ["--runs", "often"]):
        with pytest.raises(InvalidInput):
            app([*options, *bad], standalone_mode=False)


def test_fidelities_of_the_shard_methods() -> None:
    """Reference values of an independent simulation: 100 uniform utilities, g = .02, k B = 20 / 100 / 500.

    Seeded; tolerances are five standard errors of the mean at 600 (rounds, sparse) and 4,000 (flip) draws.
    """
    rng = np.random.default_rng(5)
    rows = rng.random((4000, 100))
    best = rows.max(axis=1)
    for kb, flip, rounds, sparse in ((20, 0.91, 0.54, 0.59), (100, 0.988, 0.65, 0.82), (500, 0.999, 0.91, 0.97)):
        chosen = flip_choices(rows, kb, rng)
        assert np.mean(rows[np.arange(4000), chosen] / best) == pytest.approx(flip, abs=0.01)
        some = rows[:600]
        picked = [elastic_rounds(row, kb / 12.5, 0.02, rng, budget=12.5).final for row in some]
        got = np.mean([row[i] / row.max() if i >= 0 else 0 for row, i in zip(some, picked, strict=True)])
        assert got == pytest.approx(rounds, abs=0.07)
        picked = [sparse_choices(row, kb, 0.02, rng) for row in some]
        got = np.mean([row[i] / row.max() if i >= 0 else 0 for row, i in zip(some, picked, strict=True)])
        assert got == pytest.approx(sparse, abs=0.07)
    assert top_share(rows, np.argmax(rows, axis=1), 0.05) == 1
    assert top_share(rows, np.full(4000, -1), 0.05) == 0
