"""Judging private records: one bad record is wrong, and no other verdict, no trial and no model depends on it."""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptune._global_state import Globals, kept
from dptune.accounting import Binomial, Gaussian, Geometric
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.judging import correct, judges_each_record_alone
from dptune.methods import (
    Adaptive,
    Budget,
    Naive,
    NoisyBest,
    PrivateValidation,
    RandomStopping,
    Subset,
    Threshold,
    Vote,
    register_rule,
)
from dptune.methods.drive import drive
from dptune.methods.execute import fit_trial
from dptune.methods.parts import Client
from dptune.methods.plan import Method
from dptune.randomness import Randomness
from dptune.spaces import Space
from dptune.training import DpSgdTrainer, Holdout, Settings

BAD = 1000.0


class Wild:
    """An answer that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment] # nothing to compare


def _raise(error: BaseException) -> Any:
    raise error


def _warn() -> Any:
    warnings.simplefilter("error")
    warnings.warn("odd", stacklevel=1)


def _strict() -> Any:
    np.seterr(all="raise")
    return np.array([1.0]) / 0.0


ANSWERS: dict[str, Any] = {
    "raises": lambda: _raise(ValueError("odd")),
    "exits": lambda: _raise(SystemExit(3)),
    "interrupts": lambda: _raise(KeyboardInterrupt()),
    "fills the memory": lambda: _raise(MemoryError()),
    "recurses": lambda: _raise(RecursionError()),
    "warns as an error": _warn,
    "makes numpy strict": _strict,
    "answers twice": lambda: np.array([1, 1]),
    "answers nothing": lambda: np.array([]),
    "answers None": lambda: None,
    "answers a word": lambda: np.array(["yes"]),
    "answers a dictionary": lambda: {"class": 1},
    "cannot be compared": lambda: np.array([Wild()], dtype=object),
}


@dataclass
class Model:
    """Right about every positive or negative number; one record makes it answer something odd, or change its mind."""

    odd: str = "raises"
    upset: bool = False

    def predict(self, x: Any) -> Any:
        values = np.asarray(x, dtype=float).reshape(len(x), -1)[:, 0]
        if (values == BAD).any():
            self.upset = True
            return ANSWERS[self.odd]()
        return (values > 0).astype(int) ^ self.upset


class Valued:
    """The same by giving values."""

    def __init__(self, odd: str) -> None:
        self.model = Model(odd)

    def correct(self, data: Any) -> Any:
        x, y = (data[0], data[-1]) if isinstance(data, tuple) else (data.x, data.y)
        return self.model.predict(x) == np.asarray(y)


def _records(place: int | None, label: int = 1) -> tuple[Any, Any]:
    """Thirty records, some labelled wrongly; perhaps the bad one among them."""
    x = np.linspace(-1.0, 1.0, 30)[:, None]
    y = (x[:, 0] > 0).astype(int) ^ (np.arange(30) % 7 == 0)
    return (x, y) if place is None else (np.insert(x, place, BAD, axis=0), np.insert(y, place, label))


def _forms(x: Any, y: Any) -> list[Any]:
    return [(x, y), (x.tolist(), y.tolist()), Dataset(x, y, 2), (x, np.arange(len(x)), y)]


@pytest.mark.parametrize("make", [Model, Valued])
@pytest.mark.parametrize("odd", ANSWERS)
def test_a_record_that_cannot_be_judged_is_wrong_and_alone(odd: str, make: Any) -> None:
    """At the front, in the middle, at the end; whatever it does to the model, the warnings or numpy's settings."""
    model, settings, filters = make(odd), np.geterr(), list(warnings.filters)
    for place in (0, 13, 30):
        for clean, bad in zip(_forms(*_records(None)), _forms(*_records(place)), strict=True):
            assert correct(model, clean) == correct(model, bad) == 25
    assert not (model.model if isinstance(model, Valued) else model).upset  # what may be released is as it was trained
    assert np.geterr() == settings
    assert list(warnings.filters) == filters


def test_answers_for_one_record_do_not_spread_over_others() -> None:
    """A column of answers, compared with a row of labels, would count every record thirty times."""

    class Column(Model):
        def predict(self, x: Any) -> Any:
            return super().predict(x)[:, None]

    class Rows(Model):
        def predict(self, x: Any) -> Any:
            return np.zeros((len(x), 2))

    x, y = _records(None)
    assert correct(Column(), (x, y)) == 25
    assert correct(Rows(), (x, np.zeros((30, 2)))) == 0  # two labels for a record would count twice


class Seeding:
    """Seeds, draws or switches something global when it meets the bad record, and answers by it."""

    def __init__(self, way: str) -> None:
        self.way = way

    def predict(self, x: Any) -> Any:
        torch = pytest.importorskip("torch") if self.way in {"torch", "type"} else None
        bad = float(np.asarray(x)[0, 0]) == BAD
        if self.way == "python":
            random.seed(1) if bad else None
            drawn = random.random()
        elif self.way == "numpy":
            np.random.seed(1) if bad else None  # noqa: NPY002 - what users do
            drawn = float(np.random.random())  # noqa: NPY002 - the same
        elif self.way == "torch":
            torch.manual_seed(3) if bad else None  # type: ignore[union-attr] # imported for this way
            drawn = float(torch.rand(1))  # type: ignore[union-attr] # the same
        else:
            torch.set_default_dtype(torch.float64) if bad else None  # type: ignore[union-attr] # the same
            drawn = float(torch.zeros(1).dtype == torch.float64)  # type: ignore[union-attr] # the same
        return np.array([int(drawn > 0.5)])


@pytest.mark.parametrize("way", ["python", "numpy", "torch", "type"])
def test_global_generators_are_put_back_after_every_record(way: str) -> None:
    """From where they stood, whichever that is, one record moves the count by one at most."""
    rng = np.random.default_rng(0)
    x, y = rng.random((101, 2)), rng.integers(0, 2, 101)
    x[0, 0] = BAD
    with kept():
        for seed in range(5):
            before = Globals.now()
            with_it = correct(Seeding(way), Dataset(x, y, 2))
            before.restore()
            assert abs(with_it - correct(Seeding(way), Dataset(x[1:], y[1:], 2))) <= 1
            Globals.seeded(seed)


def test_no_record_and_no_way_to_judge() -> None:
    x, y = _records(None)
    assert correct(Model(), (x[:0], y[:0])) == 0
    with pytest.raises(InvalidInput, match=r"neither predict\(x\) nor correct"):
        correct(object(), (x, y))


class Promised(Model):
    """Says that batches do not matter, and counts how often it is asked."""

    judges_each_record_alone = True
    asked: list[int]

    def predict(self, x: Any) -> Any:
        self.asked.append(len(x))
        return super().predict(x)


class Heir(Promised):
    """A subclass, which might predict in another way."""


def test_a_promise_is_taken_from_the_class_itself_and_gives_the_same_count() -> None:
    Promised.asked = []
    assert judges_each_record_alone(Promised())
    assert not judges_each_record_alone(Heir())
    assert not judges_each_record_alone(Model())
    given = Model()
    given.judges_each_record_alone = True  # type: ignore[attr-defined] # not by the class
    assert not judges_each_record_alone(given)
    x, y = _records(None)
    assert correct(Promised(), (x, y)) == 25
    assert Promised.asked == [30]
    Promised.asked.clear()
    assert correct(Heir(), (x, y)) == 25
    assert Promised.asked == [1] * 30


@pytest.mark.parametrize("odd", ["raises", "exits", "answers twice"])
def test_a_batch_that_fails_changes_no_verdict(odd: str) -> None:
    class Calm:
        judges_each_record_alone = True

        def predict(self, x: Any) -> Any:
            return ANSWERS[odd]() if (x == BAD).any() else (x[:, 0] > 0).astype(int)

    assert correct(Calm(), _records(5)) == 25


def test_fractions_are_exact() -> None:
    class Half:
        def correct(self, data: Any) -> Any:
            return np.full(len(data), 0.5)

    assert correct(Half(), np.arange(7)) == Fraction(7, 2)


def test_a_torch_module_is_judged_by_its_largest_score() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined] # torch is optional
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 2)
            with torch.no_grad():
                self.layer.weight.copy_(torch.tensor([[-1.0], [1.0]]))
                self.layer.bias.zero_()

        def forward(self, x: Any) -> Any:
            if (x == BAD).any():
                raise ValueError("odd")
            return self.layer(x)

    for place in (None, 0, 30):
        assert correct(Net(), Dataset(*_records(place), 2)) == 25


# Every method.


class Trainer:
    """Looks at no record; candidates differ in how the model takes the bad one."""

    def cost(self, params: dict[str, Any]) -> Gaussian:
        return Gaussian(float(params.get("noise_multiplier", 20.0)))

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        return Model(params["odd"]), 0.0


ITEMS = Space.of([{"odd": "raises"}, {"odd": "exits"}, {"odd": "answers twice"}])
VALIDATION = PrivateValidation(0.5, 15)
METHODS: dict[str, Method] = {
    "random stopping": RandomStopping(ITEMS, Geometric(4), validation=VALIDATION),
    "adaptive": Adaptive(ITEMS, Geometric(4), density=(0.9, 1.3), validation=VALIDATION),
    "subset": Subset(RandomStopping(ITEMS, Geometric(6), validation=VALIDATION), 0.5),
    "naive": Naive(ITEMS, validation=VALIDATION),
    "noisy best": NoisyBest(ITEMS, 4, validation=VALIDATION),
    "threshold": Threshold(ITEMS, 4, validation=VALIDATION),
    "threshold sparse": Threshold(ITEMS, 4, variant="sparse", validation=VALIDATION),
    "threshold batches": Threshold(ITEMS, 4, batch=2, validation=VALIDATION),
    "vote": Vote(ITEMS, 1, 4, validation=VALIDATION),
    "vote skewed": Vote(ITEMS, 1, 4, alpha=0.5, validation=VALIDATION),
}


@pytest.mark.parametrize("name", METHODS)
def test_one_bad_record_makes_no_trial_fail(name: str) -> None:
    """It is only wrong: every score is that of the same records with a plainly wrong one in its place."""
    plan = METHODS[name].plan(Budget(3.0, 1e-5), Trainer())
    met = 0
    for seed in range(12):
        source = Randomness.rehearsal(seed)
        x, y = _records(13)
        plain = x.copy()
        plain[13] = -0.5  # its label is 1
        trials = plan.start(source).ask()
        for trial in trials:
            bad, wrong = (fit_trial(Trainer(), trial, (values, y), source)[1] for values in (x, plain))
            assert math.isfinite(bad)
            assert bad == wrong
        held = source.generator("coin", "validation").random(31) < VALIDATION.fraction
        met += bool(held[13])
    assert met > 0


def test_odd_labels_go_to_a_client_and_stop_nobody() -> None:
    """Dirichlet clients look at labels: what is no number is a class of its own, and moves nobody else."""
    client, source = Client(5, 2, alpha=0.5), Randomness.rehearsal(1)
    plain = client.mask(6, [0, 1, 0, 1, 1, 0], source)
    for odd in (None, "x", math.nan, math.inf, 10**40, [1, 2]):
        found = client.mask(6, [0, 1, 0, odd, 1, 0], source)
        assert np.array_equal(np.delete(found, 3), np.delete(plain, 3))


def test_a_holdout_record_that_breaks_the_module_is_wrong() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined] # torch is optional
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 2)

        def forward(self, x: Any) -> Any:
            if not self.training and (x == BAD).any():
                raise ValueError("odd")
            return self.layer(x)

    settings = Settings(0.2, 1.0, 2, 1.0, 0.1, 6.0)
    trainer = DpSgdTrainer(lambda params: Net(), settings, holdout=Holdout(0.5, 15))
    x, y = _records(0)
    met = 0
    for seed in range(8):
        key = Randomness.rehearsal(seed)
        _, held = Holdout(0.5, 15).places(31, key)
        met += 0 in held
        if 0 in held:  # trained on other records alone, so the model is the same whatever this one holds
            bad, plain = (trainer.fit({}, Dataset(values, y, 2), key).score for values in (x, np.minimum(x, 1.0)))
            assert round(15 * (plain - bad), 6) in (0.0, 1.0)  # the same noise; it is wrong, or was anyway
    assert met > 0


@pytest.mark.parametrize("error", [ValueError, np.linalg.LinAlgError, SystemExit])
def test_a_rule_that_fails_on_scores_does_not_stop_the_search(error: type[BaseException]) -> None:
    """A search that raises would stop the run, and that would tell about scores: the prior is sampled instead."""
    register_rule("fails", lambda seen, scores, points: _raise(error()))
    plan = Adaptive(ITEMS, Geometric(4), density=(0.9, 1.3), rule="fails").plan(Budget(3.0, 1e-5), Trainer())
    plan = replace(plan, tuning=replace(plan.tuning, runs=Binomial(5, 1.0)))
    trials, selection = drive(plan, Randomness.rehearsal(1), lambda trial: float(trial.index))
    assert len(trials) == 5
    assert selection.winner == 4
