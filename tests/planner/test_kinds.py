"""Defaults by kind of data: all of them public rules, and what is released takes records as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dptune.accounting import Geometric
from dptune.cli._job import Job, load_data
from dptune.cli._kinds import features_of, kind_of
from dptune.cli._tuning import make_space, make_trainer
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.executors.models import open_model, pack_model
from dptune.methods import Budget
from dptune.planner import choose, tune
from dptune.planner.kinds import KINDS, Kind, kind_named, kind_of_benchmark, kind_with
from dptune.spaces import Float, Space
from dptune.training import Dataset, DpSgdTrainer, Settings, TrainedModel, Whitening, load, softmax
from dptune.training.gradients import centred_gradients

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
SETTINGS = Settings(0.1, 1.0, steps=5, clip_norm=1.0, learning_rate=1.0, batch_size=100)
SPACE = Space(learning_rate=Float(0.1, 1, log=True))


def test_work_grows_with_epsilon_and_stays_affordable() -> None:
    image = kind_named("image")
    made = [image.trainer(976, 10, 60_000, epsilon=epsilon).settings for epsilon in (0.1, 1, 3, 8)]
    work = [one.sampling_rate * one.steps for one in made]
    assert work[0] < work[1] < work[2] < work[3] <= image.work / (976 * 60_000)
    wide = image.trainer(200_000, 10, 60_000, epsilon=8).settings  # no pace is affordable: the least one
    assert (wide.sampling_rate, wide.steps) == (0.02, 100)


@pytest.mark.parametrize("kind", ["image", "photo", "text"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_rule_is_the_middle_of_what_is_tried(kind: str, epsilon: float) -> None:
    one = KINDS[kind]
    settings = one.trainer(441, 10, 50_000, epsilon=epsilon).settings
    ((name, rates),) = one.space(441, 50_000, epsilon=epsilon).dimensions
    assert name == "learning_rate"
    assert isinstance(rates, Float)
    assert rates.around == rates.middle == pytest.approx(settings.learning_rate)
    assert rates.at(0.5) == pytest.approx(settings.learning_rate)
    travel = settings.learning_rate * settings.clip_norm * settings.steps
    plenty = epsilon * 50_000 / 60_000
    assert travel == pytest.approx(2400 * min(plenty, plenty**0.5), rel=0.01)


def test_images_are_whitened_where_they_have_few_enough_features() -> None:
    image = KINDS["image"]
    assert image.trainer(441, 10, 50_000, epsilon=1).whitening == Whitening()
    plain = image.trainer(3969, 10, 50_000, epsilon=1)
    assert plain.whitening is None
    travel = plain.settings.learning_rate * plain.settings.clip_norm * plain.settings.steps
    assert travel == pytest.approx(3200 * 50_000 / 60_000, rel=0.01)
    assert KINDS["text"].trainer(441, 10, 50_000, epsilon=1).whitening is None


def test_few_records_get_larger_shares() -> None:
    rates = [KINDS["text"].trainer(10, 2, records, epsilon=1).settings.sampling_rate for records in (500, 1000, 10**6)]
    assert rates[:2] == pytest.approx([0.25, 0.25])
    assert rates[2] < 0.25


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no kind of data called 'sound'"):
        kind_named("sound")
    assert kind_of_benchmark("svhn") is None
    with pytest.raises(InvalidInput, match="no features called 'wavelets'"):
        features_of({"data": {"file": "x.npz", "features": "wavelets"}})


def test_a_job_that_says_what_it_wants_gets_that() -> None:
    assert kind_of({"data": {"name": "mnist"}}) is KINDS["image"]
    for named in ("none", "scattering"):  # what the released model says is what was computed
        kind = kind_of({"data": {"name": "mnist", "features": named}})
        assert kind is not None
        assert kind.name == "image"
        assert kind.features == named == kind.trainer(784, 10, 60_000, epsilon=1).prepared
    assert features_of({"data": {"name": "mnist"}}) == "two-scale-gradients"
    for section in ({"model": {"kind": "mlp"}}, {"model": {"trainer": "own:trainer", "steps": 3}}):
        assert kind_of({"data": {"name": "mnist"}, **section}) is None
        assert features_of({"data": {"name": "mnist"}, **section}) == "none"
    assert features_of({"data": {"name": "mnist", "features": "none"}}) == "none"


def test_photographs_are_mirrored_and_trained_for_longer() -> None:
    photo = kind_of({"data": {"name": "cifar-10"}})
    assert photo is KINDS["photo"] is kind_named("photo") is kind_of_benchmark("cifar-10")
    assert kind_of({"data": {"file": "x.npz", "features": "levelled-scattering"}}) is photo
    before = kind_of({"data": {"file": "x.npz", "features": "mirrored-scattering"}})
    assert before == replace(photo, features="mirrored-scattering", travel=3200.0)  # as it was when it was the default
    assert kind_with("two-scale-gradients") is KINDS["image"]
    trainer = photo.trainer(7776, 10, 50_000, epsilon=1)
    assert trainer.prepared == "levelled-scattering"
    work, usual = (one.trainer(7776, 10, 50_000, epsilon=3).settings for one in (photo, kind_with("scattering")))
    assert work.sampling_rate * work.steps > 2 * usual.sampling_rate * usual.steps
    ((_, rates),) = photo.space(7776, 50_000, epsilon=1).dimensions
    assert isinstance(rates, Float)
    assert rates.high / rates.low == pytest.approx(64)
    assert rates.spread == pytest.approx(1.5)
    assert work.sampling_rate * work.steps <= photo.work / (7776 * 50_000)  # what ten minutes allow


def test_a_job_may_say_where_the_best_value_is_expected() -> None:
    fields = {"low": 1, "high": 16, "log": True, "around": 4, "spread": 2}
    made = make_space(Job({"data": {"name": "digits"}, "space": {"learning_rate": fields}, "budget": BUDGET}))
    assert made == Space(learning_rate=Float(1, 16, log=True, around=4, spread=2))
    with pytest.raises(InvalidInput, match="'around' and 'spread' belong together"):
        make_space(Job({"data": {"name": "digits"}, "space": {"learning_rate": {"low": 1, "high": 2, "around": 1}}}))


def test_images_of_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.random((30, 64), dtype=np.float32)
    np.savez(tmp_path / "images.npz", x=x, y=rng.integers(0, 3, 30))
    fields = {"file": str(tmp_path / "images.npz"), "classes": 3, "records": 5000, "features": "oriented-gradients"}
    job = Job({"data": fields, "budget": BUDGET})
    loaded = load_data(job)
    assert np.array_equal(loaded.data.x, centred_gradients(x))
    trainer = make_trainer(job, loaded.data, None)
    assert isinstance(trainer, DpSgdTrainer)
    assert trainer.prepared == "oriented-gradients"
    assert make_space(job, loaded.data).names == ("learning_rate",)
    described = {**job.sections, "model": {"schedule": "cosine", "optimizer": "momentum"}}
    own = make_trainer(Job(described), loaded.data, None)
    assert isinstance(own, DpSgdTrainer)
    assert type(own.settings.schedule).__name__ == "Cosine"
    with pytest.raises(InvalidInput, match="'schedule' must be one of constant, cosine"):
        make_trainer(Job({**job.sections, "model": {"schedule": "zigzag"}}), loaded.data, None)
    json.dumps(job.describe())


def test_a_released_model_takes_images_as_they_were() -> None:
    x = np.random.default_rng(2).random((9, 64), dtype=np.float32)
    made = centred_gradients(x)
    description = softmax(made.shape[1], 3)
    flat = np.random.default_rng(3).normal(size=description.dimension).astype(np.float32)
    model = TrainedModel(description, flat, prepared="oriented-gradients")
    found = open_model(pack_model(model))
    assert isinstance(found, TrainedModel)
    assert found.prepared == "oriented-gradients"
    assert np.array_equal(found.predict(x), found.predict(made))
    assert found.predict_proba(x).tobytes() == found.predict_proba(made).tobytes()
    with pytest.raises(InvalidInput, match="no features called"):
        TrainedModel(description, flat, prepared="other").check()
    with pytest.raises(InvalidInput, match="pixels"):
        found.predict(np.zeros((1, 63)))


def test_tune_takes_images_and_releases_a_model_of_pixels(tmp_path: Path) -> None:
    digits, features = load("digits"), "scattering"
    release = tune(
        digits.train, records=1400, features=features, epsilon=8, delta=1e-4, runs=Geometric(2), seed=1,
        data_is="public", explain=None, out=tmp_path / "run",
    )  # fmt: skip
    assert release.model.prepared == features
    assert release.model.accuracy(digits.test) > 0.8
    with pytest.raises(InvalidInput, match="for the default trainer"):
        tune(
            digits.train, features=features, trainer=DpSgdTrainer(softmax(64, 10), SETTINGS), space=SPACE,
            epsilon=1, delta=1e-4,
        )  # fmt: skip


def test_whitening_is_left_out_where_its_noise_does_not_fit_its_lattice() -> None:
    """At tiny totals a training would be refused, and the user could not take whitening out of the defaults."""
    image = KINDS["image"]
    data = Dataset(np.random.default_rng(0).random((300, 976), np.float32), np.zeros(300, np.int64), 10, public=True)
    kept = []
    for epsilon in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0):
        trainer = image.trainer(976, 10, 300, epsilon=epsilon)
        plan = choose(trainer, image.space(976, 300, epsilon=epsilon), Budget(epsilon, 1e-5), records=300).plan
        assert plan.noise_multiplier is not None
        trainer.check({"noise_multiplier": plan.noise_multiplier}, data)
        kept.append(trainer.whitening is not None)
    assert kept == sorted(kept)
    assert not kept[2]
    assert kept[-2:] == [True, True]


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_no_total_is_too_small_for_a_trainer(kind: Kind) -> None:
    trainer = kind.trainer(64, 2, 300, epsilon=5e-324)
    with pytest.raises(BudgetExceeded):
        choose(trainer, kind.space(64, 300, epsilon=5e-324), Budget(5e-324, 1e-5), records=300)
