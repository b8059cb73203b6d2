"""DP-SGD trainers: parameters override settings, scores are public or paid for, candidates stack."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest

from dptune.accounting import DpSgd, Gaussian, Gdp
from dptune.errors import InvalidInput
from dptune.methods.execute import fit_trial
from dptune.methods.trial import Trial
from dptune.randomness import Randomness
from dptune.testing.trainers import weights_of
from dptune.training import DpSgdTrainer, Fitted, Holdout, Mlp, Settings, Trainer, fit_many, load, softmax, trainer
from dptune.training._compiled import kernel
from dptune.training.benchmark_data import Dataset
from dptune.training.models import dp_hypo_cnn
from dptune.training.optimizers import Momentum

SETTINGS = Settings(
    sampling_rate=0.2,
    noise_multiplier=2.0,
    steps=150,
    clip_norm=1.0,
    learning_rate=1.0,
    batch_size=287.0,
    optimizer=Momentum(0.9),
)


def digits_trainer(**changes: object) -> DpSgdTrainer:
    split = load("digits")
    return DpSgdTrainer(softmax(64, 10), SETTINGS, validation=split.test, **changes)  # type: ignore[arg-type] # forwarded


def test_digits_are_learnt() -> None:
    fitted = digits_trainer().fit({"lr": 1.0, "clip": 0.5}, load("digits").train, Randomness.rehearsal(1))
    assert fitted.score > 0.85
    assert fitted.model.accuracy(load("digits").test) == fitted.score
    again = pickle.loads(pickle.dumps(fitted.model))
    assert np.array_equal(again.predict(load("digits").test.x), fitted.model.predict(load("digits").test.x))


def test_parameters_override_settings_and_unknown_ones_are_named() -> None:
    made = digits_trainer()
    assert made.resolve({"lr": 0.3, "clip": 2.0, "steps": 7}).learning_rate == 0.3
    assert made.resolve({"noise_multiplier": 3.0}).noise_multiplier == 3.0
    with pytest.raises(InvalidInput, match="no parameter 'momentum'"):
        made.resolve({"momentum": 0.9})
    with pytest.raises(InvalidInput, match="'clip_norm' must be"):
        made.resolve({"clip": 0})


def test_the_cost_follows_from_rate_noise_and_steps() -> None:
    made = digits_trainer()
    assert made.cost({"steps": 10, "lr": 3.0}) == DpSgd(0.2, 2.0, 10)
    with pytest.raises(InvalidInput, match="no finite cost"):
        made.cost({"noise_multiplier": 0.0})


def test_a_held_out_score_is_part_of_the_cost() -> None:
    """The dearer of training and score: whichever record it is, it meets only one of the two."""
    loud = DpSgdTrainer(softmax(64, 10), SETTINGS, holdout=Holdout(0.2, denominator=287, scale=0.05))
    base = DpSgd(0.2, 2.0, 150)
    assert loud.cost({}).epsilon(1e-5) == pytest.approx(base.epsilon(1e-5), rel=1e-3)
    quiet = DpSgdTrainer(softmax(64, 10), SETTINGS, holdout=Holdout(0.2, denominator=100, scale=0.001))
    assert quiet.cost({}).epsilon(1e-5) == pytest.approx(Gaussian(0.1).epsilon(1e-5), rel=1e-3)


def test_several_candidates_equal_their_single_runs() -> None:
    made, data = digits_trainer(), load("digits").train
    params = [{"lr": 0.5}, {"lr": 1.0, "steps": 20}, {"lr": 2.0, "clip": 0.2}]
    keys = [Randomness.rehearsal(seed) for seed in range(3)]
    together = made.fit_many(params, data, keys)
    for one, key, fitted in zip(params, keys, together, strict=True):
        alone = made.fit(one, data, key)
        np.testing.assert_allclose(alone.model.parameters, fitted.model.parameters, rtol=1e-3, atol=1e-4)


def test_candidates_with_private_scores_are_stacked_too() -> None:
    """Each tosses its own coins over the records, and is what it would be alone."""
    made = DpSgdTrainer(softmax(64, 10), SETTINGS, holdout=Holdout(0.2, 280.0))
    data = load("digits").train
    params = [{"lr": 0.5}, {"lr": 2.0}, {"lr": 1.0, "clip": 0.3}]
    keys = [Randomness.rehearsal(seed) for seed in range(3)]
    assert len(made._groups([made.resolve(one) for one in params])) == 1
    together = made.fit_many(params, data, keys)
    for one, key, fitted in zip(params, keys, together, strict=True):
        alone = made.fit(one, data, key)
        np.testing.assert_allclose(fitted.model.parameters, alone.model.parameters, rtol=1e-4, atol=1e-5)
        assert fitted.score == pytest.approx(alone.score, abs=2 / 280)
        kept = made.holdout.split(data, key)[0]  # type: ignore[union-attr] # it was given above
        again = DpSgdTrainer(softmax(64, 10), SETTINGS, validation=data).fit(one, kept, key)
        np.testing.assert_allclose(fitted.model.parameters, again.model.parameters, rtol=1e-4, atol=1e-5)


def test_a_shape_says_which_candidates_are_worth_a_stack() -> None:
    made = DpSgdTrainer(softmax(64, 2), SETTINGS)
    assert made.shape({"lr": 0.5}) == made.shape({"lr": 2.0, "clip": 0.3, "noise_multiplier": 9.0}) is not None
    assert made.shape({"steps": 7}) != made.shape({})
    large = Mlp(784, 10, (120, 120))
    assert DpSgdTrainer(large, SETTINGS).shape({}) is None
    compiled = DpSgdTrainer(Mlp(64, 2, (8,)), SETTINGS)
    assert (compiled.shape({}) is None) == (kernel is not None)
    assert DpSgdTrainer(softmax(64, 2), SETTINGS, engine="torch").shape({}) is None
    assert DpSgdTrainer(softmax(64, 2), dataclasses.replace(SETTINGS, secure=True)).shape({}) is None
    assert DpSgdTrainer(dp_hypo_cnn(), SETTINGS).shape({}) is None


def test_warm_start_begins_where_the_last_run_ended() -> None:
    made, data = digits_trainer(), load("digits").train
    first = made.fit({"lr": 1.0}, data, Randomness.rehearsal(1))
    still = made.fit({"lr": 1e-9, "steps": 1}, data, Randomness.rehearsal(2), start=first.model.parameters)
    assert still.score == first.score


def test_a_private_score_is_noised_and_an_unnoised_one_is_refused() -> None:
    data = load("digits").train
    made = DpSgdTrainer(softmax(64, 10), SETTINGS, holdout=Holdout(0.2, denominator=287, scale=0.02))
    scores = [made.fit({}, data, Randomness.rehearsal(seed)).score for seed in range(3)]
    assert len(set(scores)) == 3
    assert all(0.6 < score < 1.2 for score in scores)
    noised = [made.holdout.score(200, Randomness.rehearsal(s)) for s in range(4000)] if made.holdout else []
    assert np.mean(noised) == pytest.approx(200 / 287, abs=6 * 0.02 / np.sqrt(4000))
    assert np.std(noised) == pytest.approx(0.02, rel=6 / np.sqrt(8000))
    with pytest.raises(InvalidInput, match="either 'validation'"):
        DpSgdTrainer(softmax(64, 10), SETTINGS, validation=data, holdout=made.holdout)


def test_without_records_to_score_on_there_is_no_score() -> None:
    data = load("digits").train
    made, scored = DpSgdTrainer(softmax(64, 10), SETTINGS), DpSgdTrainer(softmax(64, 10), SETTINGS, validation=data)
    model, score = made.fit({}, data, Randomness.rehearsal(1))
    assert score == 0.0
    assert made.cost({}) == scored.cost({})
    assert np.array_equal(model.parameters, scored.fit({}, data, Randomness.rehearsal(1)).model.parameters)


def test_a_holdout_trains_on_none_of_its_records() -> None:
    data = load("digits").train
    train, held = Holdout(0.3, denominator=400).split(data, Randomness.rehearsal(1))
    assert len(train) + len(held) == len(data)
    assert abs(len(held) - 0.3 * len(data)) < 6 * np.sqrt(0.21 * len(data))


def test_a_generator_of_numpy_is_a_source_of_keys() -> None:
    made, data = digits_trainer(), load("digits").train
    one, again = (made.fit({"steps": 3}, data, np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(one.model.parameters, again.model.parameters)


def test_functions_become_trainers() -> None:
    @trainer(cost=Gdp(1.0))
    def constant(params: object, data: object, rng: object) -> tuple[str, float]:
        return "model", 1.0

    @trainer(cost=lambda params: Gdp(2.0))
    def wrong(params: object, data: object, rng: object) -> tuple[str, float]:
        return "model"  # type: ignore[return-value] # what a careless caller would return

    assert isinstance(constant, Trainer)
    assert isinstance(digits_trainer(), Trainer)
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    assert fit_many(constant, [{}, {}], None, rngs) == [Fitted("model", 1.0)] * 2
    assert constant.cost({}) == Gdp(1.0)
    assert wrong.cost({}) == Gdp(2.0)
    with pytest.raises(InvalidInput, match=r"must return \(model, score\)"):
        wrong.fit({}, None, rngs[0])
    with pytest.raises(InvalidInput, match="'cost' must be a cost"):
        trainer(cost=1.0)  # type: ignore[arg-type] # what a careless caller would pass


def test_modules_come_from_a_function_of_the_parameters() -> None:
    torch = pytest.importorskip("torch", reason="modules need torch")
    data = load("digits")
    made = DpSgdTrainer(
        lambda params: torch.nn.Sequential(
            torch.nn.Linear(64, params["width"]), torch.nn.Tanh(), torch.nn.Linear(params["width"], 10)
        ),
        SETTINGS,
        validation=data.test,
    )
    one, again = (made.fit({"width": 20, "steps": 60}, data.train, Randomness.rehearsal(1)) for _ in range(2))
    assert one.score > 0.5
    assert one.score == again.score  # the initial weights too are a function of the run
    assert one.model(torch.zeros(1, 64)).shape == (1, 10)


def test_the_engine_can_be_chosen() -> None:
    data = load("digits")
    for engine in ("numpy", "torch"):
        if engine == "torch":
            pytest.importorskip("torch", reason="the torch engine needs torch")
        made = DpSgdTrainer(Mlp(64, 10, (16,)), SETTINGS, validation=data.test, engine=engine)
        fitted = made.fit({"steps": 80}, data.train, Randomness.rehearsal(1))
        assert fitted.score > 0.5
        assert fitted.model.accuracy(data.test) == fitted.score
    with pytest.raises(InvalidInput, match="no engine called 'fast'"):
        DpSgdTrainer(softmax(64, 10), SETTINGS, validation=data.test, engine="fast").fit(
            {}, data.train, Randomness.rehearsal(1)
        )


def test_a_holdout_whose_lattice_would_be_wider_than_a_record_is_refused() -> None:
    with pytest.raises(InvalidInput, match="wider than one record"):
        Holdout(0.2, denominator=2.0**21, scale=1.0)


def test_secure_runs_learn_as_well() -> None:
    split = load("digits")
    made = DpSgdTrainer(
        softmax(64, 10), Settings(0.2, 2.0, 150, 0.5, 1.0, 287.0, Momentum(0.9), secure=True), split.test
    )
    assert made.fit({}, split.train, Randomness.rehearsal(1)).score > 0.85


def test_no_records_is_noise_and_a_score() -> None:
    empty = Dataset(np.zeros((0, 64)), np.zeros(0, dtype=int), 10)
    assert 0.0 <= digits_trainer().fit({"steps": 3}, empty, Randomness.rehearsal(1)).score < 0.4


def test_the_core_needs_no_torch() -> None:
    code = "import sys, dptune.training; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_cannot_be_trained_is_said_before_any_record_is_used() -> None:
    digits, secure = load("digits").train, dataclasses.replace(SETTINGS, secure=True)
    digits_trainer().check({"lr": 1.0}, digits)
    DpSgdTrainer(softmax(64, 10), secure).check({}, digits)
    narrow = digits.map(lambda x: x[:, 1:])
    wrong = [
        (DpSgdTrainer(softmax(63, 10), SETTINGS), {}, "takes 63 features but the data has 64"),
        (DpSgdTrainer(softmax(64, 10), SETTINGS, validation=narrow), {}, "64 features but those of 'validation' 63"),
        (DpSgdTrainer(Mlp(64, 10, (2**18,)), secure), {}, "narrower than 262144"),
        (digits_trainer(), {"depth": 3}, "no parameter"),
    ]
    for made, params, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            made.check(params, digits)


def test_a_module_must_come_from_a_function() -> None:
    torch = pytest.importorskip("torch", reason="modules are torch's")
    for wrong in (torch.nn.Linear(64, 10), 3, None):
        with pytest.raises(InvalidInput, match=r"'model' must be a description .* write model=lambda params"):
            DpSgdTrainer(wrong, SETTINGS)  # type: ignore[arg-type] # what a careless caller would pass
    digits = load("digits").train
    DpSgdTrainer(lambda params: torch.nn.Linear(64, 10), SETTINGS).check({}, digits)
    layers = (torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))
    mixing = DpSgdTrainer(lambda params: torch.nn.Sequential(*layers), SETTINGS)
    with pytest.raises(InvalidInput, match="BatchNorm1d: its output for one record depends on the others"):
        mixing.check({}, digits)


@pytest.mark.parametrize("torch_module", [False, True])
def test_a_run_continues_from_the_model_that_an_earlier_one_returned(torch_module: bool) -> None:
    """Of a torch module the bound method 'parameters' was handed over once, and every such final training failed."""
    split = load("digits")
    model: object = softmax(64, 10)
    if torch_module:
        torch = pytest.importorskip("torch")
        model = lambda params: torch.nn.Linear(64, 10)  # noqa: E731 - a factory
    made = DpSgdTrainer(model, dataclasses.replace(SETTINGS, steps=3))  # type: ignore[arg-type] # one of both
    source = Randomness.rehearsal(1)
    start, _ = fit_trial(made, Trial(0, {}, seed_label=("first",)), split.train, source)
    later = Trial(1, {"lr": 1e-9}, seed_label=("second",), warm_start=0)
    warm, _ = fit_trial(made, later, split.train, source, start=start)
    cold, _ = fit_trial(made, later, split.train, source)
    weights, begun, fresh = weights_of(warm), weights_of(start), weights_of(cold)
    assert weights is not None
    assert begun is not None
    assert fresh is not None
    np.testing.assert_allclose(weights, begun, atol=1e-6)
    assert np.abs(weights - fresh).max() > 1e-3
    with pytest.raises(InvalidInput, match="continues from a model that one returned; got str"):
        made.fit_from({}, split.train, Randomness.rehearsal(1), "model")
