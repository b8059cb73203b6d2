"""A run from plan to release: order of writing, failures, resumption, rehearsal, what is in the statement."""

from __future__ import annotations

import datetime
import json
import logging
import math
import pickle
import shutil
import stat
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed import toy
from tests.sealed.toy import DATA, MU, Inline, ToyTrainer, cut_off, toy_plan

from dptune.accounting import Gdp
from dptune.data import Dataset
from dptune.errors import BudgetExceeded, Corrupt, DptuneError, Interrupted, InvalidInput, Stopped
from dptune.executors import Processes, Result, Session, Task, Work
from dptune.ledgers import Ledger
from dptune.methods.plan import Plan
from dptune.methods.stored import plan_from_json
from dptune.sealed import Release, Vault, load_release, read_vault, resume, run
from dptune.sealed.amounts import at_most
from dptune.sealed.run import job_of

ONE = Inline()  # processes where they matter: starting one takes longer than all the rest


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger.create(tmp_path / "h.ledger")
    book.add("icu", 10.0, 1e-5, unit="patient")
    return book


def _go(plan: Plan, trainer: Any, out: Path, **options: Any) -> Release:
    if "ledger" not in options:
        options = {"data_is": "synthetic", **options}  # it keeps a ledger of its own
    return run(plan, trainer, DATA, out=out, executor=options.pop("executor", ONE), **options)


def _taken_by_git(folder: Path) -> set[str]:
    """The top folders of what `git add .` takes from here."""
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)
    listed = subprocess.run(["git", "ls-files"], cwd=folder, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(folder / ".git")
    return {line.split("/")[0] for line in listed.splitlines()}


def test_a_run_releases_the_winner_and_its_true_statement(tmp_path: Path, ledger: Ledger) -> None:
    plan = toy_plan(count=4)
    release = _go(plan, ToyTrainer(), tmp_path / "run", ledger=ledger, dataset="icu", executor=Processes(2))
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["release", "vault"]
    assert stat.S_IMODE((tmp_path / "run" / "vault").stat().st_mode) == 0o700
    assert _taken_by_git(tmp_path / "run") == {"release"}

    content = json.loads((tmp_path / "run" / "release" / "release.json").read_text())
    assert content["epsilon"] == plan.cost.epsilon(1e-5) <= plan.budget.epsilon
    assert content["epsilon_lower"] <= content["epsilon"]
    assert {"params", "epsilon", "delta", "epsilon_lower", "method", "dataset"} <= set(content)
    assert plan_from_json((release.path / "plan.json").read_text()) == plan

    reading = read_vault(tmp_path / "run", "test")
    best = max(reading.scores, key=lambda i: reading.scores[i])
    assert release.params == reading.params[best]
    assert release.model["x"][0] == release.params["x"]
    assert release.model["total"][0] + release.params["x"] == pytest.approx(reading.scores[best])

    text = release.statement
    head = ledger.receipt(content["ledger"]["charge"])
    assert head is not None
    for piece in (
        head.head,
        "one patient",
        "adding or removing one patient",
        at_most(release.epsilon),
        "1e-05",
        "Lower certificate",
        "docs/theorems/select.md",
        "operating system",
        "public records",
        "model.npz",
        "Renyi filter",
    ):
        assert piece in text
    assert ledger.status("icu").charges == 1


@dataclass(frozen=True)
class Choosy(ToyTrainer):
    """Knows without any record what it cannot train, and says so loudly."""

    below: float = math.inf
    error: type[Exception] = InvalidInput

    def check(self, params: Any, data: Any) -> None:
        print("asked once more")
        if params["x"] < self.below:
            raise self.error(f"no model for {len(data)} numbers.")


@pytest.mark.parametrize("error", [InvalidInput, RuntimeError])
def test_a_trainer_that_cannot_train_is_refused_before_the_charge(
    tmp_path: Path, ledger: Ledger, capsys: pytest.CaptureFixture[str], error: type[Exception]
) -> None:
    with pytest.raises(InvalidInput, match="no model for 40 numbers"):
        _go(toy_plan(count=4), Choosy(error=error), tmp_path / "run", ledger=ledger, dataset="icu")
    assert not (tmp_path / "run").exists()
    assert ledger.status("icu").charges == 0
    assert capsys.readouterr() == ("", "")


def test_whether_a_run_is_refused_does_not_depend_on_its_own_draw(tmp_path: Path, monkeypatch: Any) -> None:
    """It would tilt the law of the number of runs. Candidates lie between 1 and 2; half of them cannot be trained."""
    asked: list[float] = []
    monkeypatch.setattr(Choosy, "check", lambda self, params, data: asked.append(params["x"]))
    for seed in range(3):
        _go(toy_plan(count=4), Choosy(), tmp_path / str(seed), seed=seed, data_is="synthetic")
    assert len(set(asked)) == 4  # the same four candidates every time
    monkeypatch.undo()
    for seed in range(3):  # not refused for some of them
        _go(toy_plan(count=4), Choosy(below=1.5), tmp_path / f"half {seed}", seed=seed, data_is="synthetic")


def test_the_order_is_vault_then_charge_then_training(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    create, charge = Vault.create.__func__, Ledger.charge  # type: ignore[attr-defined]

    def created(cls: type[Vault], *args: Any) -> Any:
        made = create(cls, *args)
        assert (made.inside / "secret").stat().st_size == 64
        seen.append("vault")
        return made

    def charged(self: Ledger, *args: Any) -> Any:
        receipt = charge(self, *args)
        seen.append("charge")
        return receipt

    class Watching:
        slots = 1

        def __init__(self, session: Session) -> None:
            self.session = session

        def submit(self, *tasks: Task) -> None:
            seen.extend("train" for _ in tasks)
            self.session.submit(*tasks)

        def wait(self, seconds: float) -> Result | None:
            return self.session.wait(seconds)

        def attempt(self, task: Task) -> Result:
            assert task.blank
            seen.append("blank")
            return self.session.attempt(task)  # type: ignore[attr-defined,no-any-return] # of the toy

        def close(self) -> None:
            self.session.close()

    class Executor:
        name = "watching"

        def open(self, work: Work) -> Watching:
            return Watching(ONE.open(work))

    monkeypatch.setattr(Vault, "create", classmethod(created))
    monkeypatch.setattr(Ledger, "charge", charged)
    _go(toy_plan(count=2), ToyTrainer(), tmp_path / "run", ledger=ledger, dataset="icu", executor=Executor())
    assert seen == ["vault", "blank", "charge", "train", "train"]


def test_at_release_the_secret_and_the_models_are_destroyed(tmp_path: Path) -> None:
    _go(toy_plan(count=2), ToyTrainer(), tmp_path / "run")
    vault = tmp_path / "run" / "vault"
    assert not (vault / "inside" / "secret").exists()
    assert list((vault / "inside" / "models").iterdir()) == []
    with pytest.raises(Corrupt, match="secret"):
        Vault.open(vault).randomness()


def test_reads_are_logged_and_need_a_reason(tmp_path: Path) -> None:
    _go(toy_plan(count=1), ToyTrainer(), tmp_path / "run")
    with pytest.raises(InvalidInput, match="reason"):
        read_vault(tmp_path / "run", " ")
    read_vault(tmp_path / "run", "first look")
    assert [row[3] for row in read_vault(tmp_path / "run", "again").reads] == ["first look", "again"]


def test_a_failed_trial_scores_minus_infinity_and_is_not_retried(tmp_path: Path) -> None:
    release = _go(toy_plan(count=8), ToyTrainer(fail_below=1.5), tmp_path / "run")
    reading = read_vault(tmp_path / "run", "test")
    failed = {i for i, p in reading.params.items() if p["x"] < 1.5}
    assert {i for i, s in reading.scores.items() if s == -np.inf} == failed
    assert set(reading.errors) == failed
    assert all("diverged" in text for text in reading.errors.values())
    assert release.params == {"x": 0.0} if len(failed) == 8 else release.params["x"] >= 1.5


def test_if_all_fail_the_public_default_is_released_as_if_nothing_had_run(tmp_path: Path) -> None:
    failed = _go(toy_plan(count=3), ToyTrainer(fail_below=9.0), tmp_path / "failed")
    nothing = _go(toy_plan(count=0), ToyTrainer(), tmp_path / "nothing")
    assert failed.params == nothing.params == {"x": 0.0}
    assert failed.model is nothing.model is None
    for key in ("epsilon", "files", "assumptions", "epsilon_lower"):
        assert failed.details[key] == nothing.details[key]
    drop = {"released", "ledger", "seal"}  # the signature is of each run's own key
    strip = [{k: v for k, v in r.details.items() if k not in drop} for r in (failed, nothing)]
    strip[0]["noise_multiplier"] = strip[1]["noise_multiplier"]
    for one in strip:  # the time and the ledger's state are each run's own
        rows = [row for row in one["statement"]["figures"] if row["name"] not in ("Ledger", "Public time of release")]
        one["statement"] = {**one["statement"], "figures": rows}
    assert strip[0] == strip[1]


def test_a_trial_that_kills_its_process_twice_has_failed(tmp_path: Path) -> None:
    release = _go(toy_plan(count=3), ToyTrainer(die_below=1.5), tmp_path / "run", executor=Processes(2))
    reading = read_vault(tmp_path / "run", "test")
    deadly = {i for i, p in reading.params.items() if p["x"] < 1.5}
    assert reading.deaths == dict.fromkeys(deadly, 2)
    assert {i for i, s in reading.scores.items() if s == -np.inf} == deadly
    assert release.params == {"x": 0.0} if len(deadly) == 3 else release.params["x"] >= 1.5


def test_a_trial_that_killed_its_process_once_gets_its_own_randomness_again(tmp_path: Path) -> None:
    calm = _go(toy_plan(count=3), ToyTrainer(), tmp_path / "calm", seed=5, data_is="synthetic")
    marker = str(tmp_path / "died")
    options: dict[str, Any] = {"seed": 5, "data_is": "synthetic", "executor": Processes(1)}
    shaken = _go(toy_plan(count=3), ToyTrainer(die_once=marker), tmp_path / "s", **options)
    assert read_vault(tmp_path / "s", "test").deaths == {0: 1}
    assert read_vault(tmp_path / "s", "test").scores == read_vault(tmp_path / "calm", "test").scores
    assert shaken.params == calm.params


def test_the_final_training_is_what_is_released(tmp_path: Path) -> None:
    release = _go(toy_plan(count=3, final=True), ToyTrainer(), tmp_path / "run")
    reading = read_vault(tmp_path / "run", "test")
    assert len(reading.scores) == 4
    assert release.model["total"][0] + release.params["x"] == pytest.approx(reading.scores[3])


def test_file_times_are_the_public_time(tmp_path: Path, ledger: Ledger) -> None:
    _go(toy_plan(count=2), ToyTrainer(seconds=0.7), tmp_path / "run", ledger=ledger, dataset="icu")
    details = load_release(tmp_path / "run").details
    moment = datetime.datetime.fromisoformat(details["released"]).timestamp()
    paths = [tmp_path / "run", *(tmp_path / "run").glob("release/**/*")]
    assert {path.stat().st_mtime for path in paths} == {moment}
    receipt = ledger.receipt(details["ledger"]["charge"])
    assert receipt is not None
    assert details["released"] == receipt.time


def test_a_rehearsal_is_repeatable_watermarked_and_free(tmp_path: Path, ledger: Ledger) -> None:
    head = ledger.head
    one = _go(toy_plan(), ToyTrainer(), tmp_path / "a", ledger=ledger, dataset="icu", seed=1, data_is="public")
    two = _go(toy_plan(), ToyTrainer(), tmp_path / "b", seed=1, data_is="synthetic")
    assert one.params == two.params
    assert (one.model["total"] == two.model["total"]).all()
    assert one.details["watermark"] == "NO GUARANTEE"
    assert one.details["guarantee"] is False
    assert one.statement.splitlines()[0].startswith("**NO GUARANTEE")
    assert one.details["replay"] == "exact"
    assert ledger.head == head


def test_a_trainer_that_ignores_its_generator_is_found_and_named(tmp_path: Path) -> None:
    trainer = ToyTrainer(own_noise=True)
    rehearsed = _go(toy_plan(count=2), trainer, tmp_path / "a", seed=1, data_is="synthetic")
    assert rehearsed.details["replay"] == "inexact"
    sealed = _go(toy_plan(count=2), trainer, tmp_path / "b", rehearsal=tmp_path / "a")
    assert sealed.details["replay"] == "inexact"
    assert "NO: a rehearsal gave two different results" in sealed.statement


def test_an_existing_charge_can_be_used(tmp_path: Path, ledger: Ledger) -> None:
    plan = toy_plan(count=1)
    receipt = ledger.charge("icu", plan.cost, charge="reserved")
    release = _go(plan, ToyTrainer(), tmp_path / "run", ledger=ledger, dataset="icu", charge="reserved")
    assert release.details["ledger"]["head"] == receipt.head
    assert ledger.status("icu").charges == 1
    with pytest.raises(InvalidInput, match="used by another run"):
        _go(plan, ToyTrainer(), tmp_path / "again", ledger=ledger, dataset="icu", charge="reserved")
    with pytest.raises(InvalidInput, match="no charge 'other'"):
        _go(plan, ToyTrainer(), tmp_path / "again", ledger=ledger, dataset="icu", charge="other")
    assert not (tmp_path / "again").exists()
    ledger.verify()


def test_a_finished_run_has_nothing_to_resume(tmp_path: Path) -> None:
    release = _go(toy_plan(count=1), ToyTrainer(), tmp_path / "run", job={"a": 1})
    again = resume(tmp_path / "run", ToyTrainer(), DATA, executor=ONE)
    assert again.continued is False
    assert again.params == release.params
    assert job_of(tmp_path / "run") == {"a": 1}


class _Tagged(ToyTrainer):
    """A trainer that says which generator draws its noise."""

    noise_generator = "one"


class _Elsewhere(ToyTrainer):
    """The same on an install with another generator."""

    noise_generator = "two"


def test_a_run_cannot_go_on_with_another_generator(tmp_path: Path) -> None:
    """Trials that were cut off are trained again from their seeds: other noise would be a second draw."""
    cut_off(toy_plan(count=1), _Tagged(), tmp_path / "run")
    assert Vault.open(tmp_path / "run" / "vault").facts()["generator"] == "one"
    for other in (_Elsewhere(), ToyTrainer()):
        with pytest.raises(InvalidInput, match=r"noise by one, this install by (two|another): .* Continue it where"):
            resume(tmp_path / "run", other, DATA, executor=ONE)
    assert resume(tmp_path / "run", _Tagged(), DATA, executor=ONE).params is not None


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out of the statement what takes seconds."""
    monkeypatch.setattr("dptune.sealed._under_way._attackers", lambda plan: None)


class _Dearer(ToyTrainer):
    """Declares another cost than the plan's, whatever it would have in common with the run's trainer."""

    def cost(self, params: Any) -> Any:
        return Gdp(2.0 * MU)


class _Clipping(ToyTrainer):
    """Says how it trains, in words that hold an address of this process."""

    def __init__(self, rule: str) -> None:
        super().__init__()
        self.rule = rule

    @property
    def declared_training(self) -> str:
        return f"{self.rule}; optimiser {object()!r}"


@pytest.mark.usefixtures("brief")
def test_a_run_cannot_go_on_with_a_trainer_of_another_cost(tmp_path: Path) -> None:
    """Each of its trainings would fail, "no model" be released and the secret be destroyed."""
    cut_off(toy_plan(count=1), ToyTrainer(), tmp_path / "run")
    with pytest.raises(
        InvalidInput, match=r"the one in the plan\. Continue it with the arguments that it began with\.$"
    ):
        resume(tmp_path / "run", _Dearer(), DATA, executor=ONE)
    assert resume(tmp_path / "run", ToyTrainer(), DATA, executor=ONE).outcome == "model"


@pytest.mark.usefixtures("brief")
def test_a_run_cannot_go_on_with_another_way_to_train(tmp_path: Path) -> None:
    """The statement says the way with which it began."""
    cut_off(toy_plan(count=1), _Clipping("scaled down"), tmp_path / "run")
    for other, now in ((_Clipping("divided"), "divided; "), (ToyTrainer(), "not declared")):
        with pytest.raises(InvalidInput, match=f"it began with 'scaled down; .*', this is '{now}.* Continue it with"):
            resume(tmp_path / "run", other, DATA, executor=ONE)
    assert resume(tmp_path / "run", _Clipping("scaled down"), DATA, executor=ONE).outcome == "model"


@pytest.mark.usefixtures("brief")
def test_a_run_cannot_go_on_with_another_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [{"name": "a:one", "sha256": digit * 64, "width": 3} for digit in "12"]
    for began, now in ((facts[0], facts[1]), (facts[0], None), (None, facts[0])):
        out = tmp_path / f"run {facts.index(began) if began else 'plain'} {now is None}"
        monkeypatch.setattr("dptune.sealed._declarations.encoder_facts", lambda trainer, facts=began: facts)
        cut_off(toy_plan(count=1), ToyTrainer(), out)
        monkeypatch.setattr("dptune.sealed._declarations.encoder_facts", lambda trainer, facts=now: facts)
        with pytest.raises(InvalidInput, match=r"encoder.*, this is .*encoder.* Continue it with the arguments"):
            resume(out, ToyTrainer(), DATA, executor=ONE)


def test_a_start_that_was_cut_off_is_no_obstacle(tmp_path: Path) -> None:
    plan, out = toy_plan(count=1), tmp_path / "run"
    out.mkdir()
    (out / ".vault-abc").mkdir()
    (out / ".vault-abc" / "secret").write_bytes(b"x" * 32)
    Ledger.create(out / "run.ledger").add("data", plan.budget.epsilon, plan.budget.delta)
    _go(plan, ToyTrainer(), out)
    assert sorted(p.name for p in out.iterdir()) == ["release", "run.ledger", "run.ledger.key", "vault"]


class _Refusing:
    """An executor whose workers cannot start."""

    name = "refusing"

    def open(self, work: Work) -> Session:
        raise InvalidInput("no workers today")


def test_an_error_before_the_charge_leaves_nothing(tmp_path: Path, ledger: Ledger) -> None:
    head = ledger.head
    with pytest.raises(InvalidInput, match="no workers"):
        _go(toy_plan(), ToyTrainer(), tmp_path / "run", ledger=ledger, dataset="icu", executor=_Refusing())
    with pytest.raises(InvalidInput, match="no workers"):
        _go(toy_plan(), ToyTrainer(), tmp_path / "run", executor=_Refusing())
    assert not (tmp_path / "run").exists()
    assert ledger.head == head


def test_a_spent_budget_leaves_nothing(tmp_path: Path, ledger: Ledger) -> None:
    ledger.add("small", 1.0, 1e-5)
    with pytest.raises(BudgetExceeded, match="'small'"):
        _go(toy_plan(), ToyTrainer(), tmp_path / "run", ledger=ledger, dataset="small")
    assert not (tmp_path / "run").exists()
    assert ledger.status("small").charges == 0


def test_an_error_inside_the_seal_says_nothing(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(self: toy.ToySearch, outcome: Any) -> None:
        raise RuntimeError(f"secret score {outcome.score}")

    monkeypatch.setattr(toy.ToySearch, "tell", tell)
    with pytest.raises(Stopped) as caught:
        _go(toy_plan(count=2), ToyTrainer(), tmp_path / "run", ledger=ledger, dataset="icu")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "secret score" in (tmp_path / "run" / "vault" / "inside" / "stopped.txt").read_text()
    monkeypatch.undo()
    release = resume(tmp_path / "run", ToyTrainer(), DATA, executor=ONE)
    assert release.params["x"] > 0
    assert ledger.status("icu").charges == 1


def test_a_search_that_talks_is_not_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Surrogates warn, rules print: how often they do must not be seen."""
    tell = toy.ToySearch.tell

    def talk(self: toy.ToySearch, outcome: Any) -> None:
        print("told", outcome.score)
        print("told", outcome.score, file=sys.stderr)
        warnings.warn(f"told {outcome.score}", stacklevel=1)
        logging.getLogger("surrogate").warning("told %s", outcome.score)
        tell(self, outcome)

    monkeypatch.setattr(toy.ToySearch, "tell", talk)
    _go(toy_plan(count=3), ToyTrainer(), tmp_path / "run")
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    assert (tmp_path / "run" / "vault" / "inside" / "output" / "search.log").read_text().count("told") == 6


def test_refused_input_inside_a_search_says_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(self: toy.ToySearch, outcome: Any) -> None:
        raise InvalidInput(f"score {outcome.score} of trial {outcome.index}")

    monkeypatch.setattr(toy.ToySearch, "tell", tell)
    with pytest.raises(Stopped) as caught:
        _go(toy_plan(count=2), ToyTrainer(), tmp_path / "run")
    assert "score" not in str(caught.value)


class _NoCost:
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        return None, 0.0


class _OtherCost(ToyTrainer):
    def cost(self, params: Any) -> Any:
        return Gdp(2 * MU)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 3}, "marked"),
        ({"trainer": _NoCost()}, "declares no cost"),
        ({"trainer": object()}, "no fit"),
        ({"trainer": _OtherCost()}, "another cost"),
        ({"plan": toy_plan(guaranteed=False)}, "no privacy"),
        ({"plan": toy_plan(epsilon=0.1)}, "more than its own budget"),
        ({"plan": "x"}, "'plan' must"),
        ({"dataset": "unknown"}, "no data set 'unknown'"),
        ({"ledger": "nowhere.ledger"}, "no ledger"),
        ({"release_at": "tomorrow"}, "release_at"),
        ({"data_is": "secret"}, "data_is"),
    ],
)
def test_bad_input_is_one_line_and_charges_nothing(
    tmp_path: Path, ledger: Ledger, change: dict[str, Any], message: str
) -> None:
    given = {"plan": toy_plan(), "trainer": ToyTrainer(), "ledger": ledger, "dataset": "icu", **change}
    with pytest.raises(DptuneError, match=message) as caught:
        run(given.pop("plan"), given.pop("trainer"), DATA, out=tmp_path / "run", executor=ONE, **given)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert ledger.status("icu").charges == 0


def test_a_trainer_that_cannot_travel_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    trainer = ToyTrainer(die_once=threading.Lock())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="cannot be sent"):
        _go(toy_plan(), trainer, tmp_path / "run", ledger=ledger, dataset="icu", executor=Processes(1))
    assert not (tmp_path / "run").exists()
    assert ledger.status("icu").charges == 0


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    _go(toy_plan(count=1), ToyTrainer(), tmp_path / "run")
    with pytest.raises(InvalidInput, match=r"already a run in .*, and it is finished: see .*statement.md"):
        _go(toy_plan(count=1), ToyTrainer(), tmp_path / "run")
    assert load_release(tmp_path / "run").method == "toy"


def test_a_folder_with_an_unfinished_run_says_how_to_finish_it(tmp_path: Path) -> None:
    cut_off(toy_plan(count=1), ToyTrainer(), tmp_path / "run")
    with pytest.raises(InvalidInput, match=r"already a run in .*Finish it with 'dptune resume"):
        _go(toy_plan(count=1), ToyTrainer(), tmp_path / "run")


def test_a_damaged_run_folder_is_one_line(tmp_path: Path) -> None:
    _go(toy_plan(count=1), ToyTrainer(), tmp_path / "run")
    database = tmp_path / "run" / "vault" / "inside" / "run.db"
    database.write_bytes(b"damaged" * 1000)
    with pytest.raises(DptuneError, match="vault") as caught:
        resume(tmp_path / "run", ToyTrainer(), DATA)
    assert "\n" not in str(caught.value)
    with pytest.raises(Corrupt, match="no vault"):
        resume(tmp_path / "nothing", ToyTrainer(), DATA)
    (tmp_path / "run" / "release" / "release.json").write_text("{")
    with pytest.raises(Corrupt, match="release"):
        load_release(tmp_path / "run")


_X, _Y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("data", "other"),
    [
        (DATA, DATA[1:]),
        (DATA, DATA.astype(np.float32)),
        ((_X, _Y), (_X, _Y[::-1])),
        ([_X, _Y], [_X[::-1], _Y]),
        ({"x": _X, "y": _Y}, {"x": _X, "y": 1 - _Y}),
        (Dataset(_X, _Y, 2), Dataset(_X + 1.0, _Y, 2)),
    ],
    ids=["one record less", "type", "labels", "order", "dictionary", "dataset"],
)
def test_a_run_is_continued_with_its_own_records(tmp_path: Path, data: Any, other: Any) -> None:
    """Others were not charged for, and had another budget."""
    cut_off(toy_plan(count=2), Blind(), tmp_path / "run", data=data)
    with pytest.raises(InvalidInput, match=r"not the records with which the run in .* began") as caught:
        resume(tmp_path / "run", Blind(), other, executor=Inline())
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "release").exists()
    again = pickle.loads(pickle.dumps(data))  # equal, as another process would load it
    assert resume(tmp_path / "run", Blind(), again, executor=Inline()).params is not None


class Blind(ToyTrainer):
    """Trains without looking."""

    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        return super().fit(params, DATA, rng)


def test_records_without_a_plain_content_are_not_compared(tmp_path: Path) -> None:
    class Opaque:
        """What it holds nobody can tell."""

    cut_off(toy_plan(count=2), Blind(), tmp_path / "run", data=Opaque())
    assert resume(tmp_path / "run", Blind(), Opaque(), executor=Inline()).params is not None


class _Interrupting:
    """An executor whose session is stopped by Ctrl-C while it waits for a result."""

    name = "interrupting"

    def __init__(self, when: str) -> None:
        self.when = when

    def open(self, work: Work) -> Session:
        if self.when == "open":
            raise KeyboardInterrupt
        session = ONE.open(work)

        def wait(seconds: float) -> Result | None:
            raise KeyboardInterrupt

        session.wait = wait  # type: ignore[method-assign] # this session alone
        return session


def test_control_c_in_python_says_what_was_charged_and_how_to_go_on(tmp_path: Path, ledger: Ledger) -> None:
    plan, out = toy_plan(count=2), tmp_path / "run"
    with pytest.raises(Interrupted, match=r"Stopped before anything was charged\.$") as caught:
        _go(plan, ToyTrainer(), out, ledger=ledger, dataset="icu", executor=_Interrupting("open"))
    assert isinstance(caught.value, KeyboardInterrupt)
    assert not out.exists()
    with pytest.raises(Interrupted) as caught:
        _go(plan, ToyTrainer(), out, ledger=ledger, dataset="icu", executor=_Interrupting("wait"))
    assert str(caught.value) == (
        f"Stopped. The run in {out} was charged epsilon {plan.price():.4g} at delta 1e-05 on 'icu', which stays "
        f"charged: finish it with dptune.resume({str(out)!r}, trainer, data), at no further charge."
    )
    assert ledger.status("icu").charges == 1
    with pytest.raises(Interrupted, match="stays charged: finish it with"):
        resume(out, ToyTrainer(), DATA, executor=_Interrupting("wait"))
    assert resume(out, ToyTrainer(), DATA, executor=ONE).outcome == "model"
    assert ledger.status("icu").charges == 1


def test_control_c_in_a_rehearsal_says_that_nothing_is_charged(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="is not charged: finish it with"):
        _go(toy_plan(count=2), ToyTrainer(), tmp_path / "r", seed=1, data_is="public", executor=_Interrupting("wait"))
