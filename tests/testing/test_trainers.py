"""The conformance suite for trainers: every built-in trainer and adapter passes, and every broken promise is found."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from dptune.accounting import Cost, DpSgd, Gaussian
from dptune.audit.canaries import CanaryMargin, Controlled, canary_for
from dptune.errors import InvalidInput
from dptune.regression import RegressionDataset
from dptune.testing.trainers import check_judging, check_sensitivity, check_trainer, weights_of
from dptune.trainer import trainer
from dptune.training import Cnn, Dataset, DpSgdTrainer, Holdout, Mlp, Regression, Settings, linear, softmax
from dptune.training.models import Conv

SETTINGS = Settings(sampling_rate=0.3, noise_multiplier=1.5, steps=4, clip_norm=1.0, learning_rate=0.5, batch_size=9.0)
ONCE = replace(SETTINGS, sampling_rate=1.0, steps=1)
CANDIDATES = [{"lr": 0.5, "clip": 1.0}, {"lr": 0.1, "clip": 0.3}]


def _records(features: int = 6, count: int = 30, public: bool = False) -> Dataset:
    chance = np.random.default_rng(features)
    x = chance.normal(size=(count, features)).astype(np.float32)
    return Dataset(x, chance.integers(0, 3, count), 3, public=public)


DATA, PUBLIC = _records(), _records(count=20, public=True)


def _cnn() -> Cnn:
    return Cnn((1, 6, 6), 3, (Conv(2, 3, 1, 0),), (4,))


BUILT_IN: dict[str, Callable[[], Any]] = {
    "softmax": lambda: DpSgdTrainer(softmax(6, 3), SETTINGS, validation=PUBLIC),
    "network": lambda: DpSgdTrainer(Mlp(6, 3, (5,)), SETTINGS, validation=PUBLIC),
    "unscored": lambda: DpSgdTrainer(softmax(6, 3), SETTINGS),
    "holdout": lambda: DpSgdTrainer(softmax(6, 3), SETTINGS, holdout=Holdout(0.3, 9.0, 0.3)),
    "secure": lambda: DpSgdTrainer(softmax(6, 3), replace(SETTINGS, secure=True), validation=PUBLIC),
    "function": lambda: trainer(cost=DpSgdTrainer(softmax(6, 3), SETTINGS).cost)(
        DpSgdTrainer(softmax(6, 3), SETTINGS).fit
    ),
    "attacked": lambda: Controlled(DpSgdTrainer(softmax(6, 3), SETTINGS), CanaryMargin(canary_for(DATA))),
}


NUMBERS = RegressionDataset(DATA.x, np.random.default_rng(0).random(30), target_range=(0, 1))


@pytest.mark.parametrize("hidden", [(), (5,)])
@pytest.mark.parametrize("secure", [False, True])
def test_regressions_keep_their_promises(hidden: tuple[int, ...], secure: bool) -> None:
    model, settings = Regression(6, hidden, target_range=(0, 1)), replace(SETTINGS, secure=secure)
    made = DpSgdTrainer(model, settings, holdout=Holdout(0.3, 9.0, 0.3))
    check_trainer(made, NUMBERS, CANDIDATES)
    check_judging(made.fit(CANDIDATES[0], NUMBERS, np.random.default_rng(0))[0], NUMBERS)


def test_one_record_moves_a_regression_by_what_is_declared() -> None:
    far = NUMBERS.map(lambda x: 50.0 * x)
    assert check_sensitivity(DpSgdTrainer(linear(6, (0, 1)), ONCE), far, {}) > 0.5


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_trainers_keep_their_promises(name: str) -> None:
    made = BUILT_IN[name]()
    check_trainer(made, DATA, CANDIDATES)
    check_judging(made.fit(CANDIDATES[0], DATA, np.random.default_rng(0))[0], DATA)


def _linear(params: Any) -> Any:
    torch = pytest.importorskip("torch")
    made = torch.nn.Linear(6, 3)
    torch.nn.init.zeros_(made.weight)
    torch.nn.init.zeros_(made.bias)
    return made


def test_trainers_of_torch_keep_their_promises() -> None:
    torch = pytest.importorskip("torch")
    check_trainer(DpSgdTrainer(_linear, SETTINGS, validation=PUBLIC), DATA, CANDIDATES[:1])

    def layers(params: Any) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 3))

    check_trainer(DpSgdTrainer(layers, SETTINGS, validation=PUBLIC), DATA, CANDIDATES[:1])
    images = _records(36, 12)
    check_trainer(DpSgdTrainer(_cnn(), SETTINGS, validation=_records(36, 8, True)), images, CANDIDATES[:1])


def _opacus(declared: DpSgd) -> Any:
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    from dptune.integrations.opacus import opacus_trainer  # noqa: PLC0415 - optional dependency

    @opacus_trainer(cost=declared)
    def train(params: Any, data: Dataset, engine: Any) -> tuple[Any, float]:
        rows = torch.utils.data.TensorDataset(torch.from_numpy(data.x), torch.from_numpy(data.y))
        module = _linear(params)
        made = engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=params["lr"]),
            data_loader=torch.utils.data.DataLoader(rows, batch_size=9),
            noise_multiplier=declared.noise_multiplier,
            max_grad_norm=params["clip"],
        )
        for _ in range(declared.steps):
            for x, y in made[2]:
                made[1].zero_grad()
                torch.nn.functional.cross_entropy(made[0](x), y).backward()
                made[1].step()
        return {name: values.numpy() for name, values in module.state_dict().items()}, 0.0

    return train


@pytest.mark.filterwarnings("ignore")  # of Opacus and torch, about each other
def test_trainers_of_opacus_keep_their_promises() -> None:
    check_trainer(_opacus(DpSgd(0.3, 1.5, 4)), DATA, CANDIDATES[:1])
    assert 0.3 < check_sensitivity(_opacus(DpSgd(1.0, 1.5, 1)), _large(), CANDIDATES[0], replaced=True) < 1.1


def _large() -> Dataset:
    """Records whose gradients are all clipped, and two that point against each other."""
    data = _records()
    return replace(data, x=50.0 * data.x)


@pytest.mark.parametrize("secure", [False, True])
def test_one_record_moves_private_training_by_what_is_declared(secure: bool) -> None:
    made = DpSgdTrainer(softmax(6, 3), replace(ONCE, secure=secure))
    assert 0.9 < check_sensitivity(made, _large(), CANDIDATES[0]) < 1.1


def test_one_record_moves_torch_modules_by_what_is_declared() -> None:
    pytest.importorskip("torch")
    assert 0.9 < check_sensitivity(DpSgdTrainer(_linear, ONCE), _large(), CANDIDATES[0]) < 1.1


# Promises that are not kept.


@dataclass
class Sums:
    """A private sum of clipped rows that keeps every promise; the classes below each break one."""

    seen: list[int] = field(default_factory=list)

    def cost(self, params: dict[str, Any]) -> Cost:
        return Gaussian(params["noise"])

    def fit(self, params: dict[str, Any], data: Any, rng: np.random.Generator) -> tuple[Any, float]:
        repaired = np.clip(np.nan_to_num(data), 0, 0.5)
        return repaired.sum(axis=0) + params["noise"] * rng.normal(size=data.shape[1]), 0.0

    def fit_from(self, params: Any, data: Any, rng: Any, start: Any) -> tuple[Any, float]:
        return start + self.fit(params, data, rng)[0], 0.0

    def fit_many(self, params: Any, data: Any, rngs: Any) -> list[tuple[Any, float]]:
        return [self.fit(one, data, rng) for one, rng in zip(params, rngs, strict=True)]

    def check(self, params: Any, data: Any) -> None:
        if data.shape[1] != 4:
            raise InvalidInput("four columns, please")

    def shape(self, params: Any) -> Any:
        return 1


class OwnNoise(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        return super().fit(params, data, np.random.default_rng())


class GlobalNoise(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        return super().fit(params, data, np.random.default_rng(np.random.randint(99)))  # noqa: NPY002 - on purpose


class FixedNoise(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        return super().fit(params, data, np.random.default_rng(7))


class Remembers(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        self.seen.append(len(data))
        model, _ = super().fit(params, data, rng)
        return model + len(self.seen), 0.0


class CountsInCost(Sums):
    def cost(self, params: Any) -> Cost:
        return Gaussian(params["noise"] * (1 + sum(self.seen)))

    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        self.seen[:] = [len(data)]
        return super().fit(params, data, rng)


class RandomCost(Sums):
    def cost(self, params: Any) -> Cost:
        self.seen.append(1)
        return Gaussian(len(self.seen))


class WordCost(Sums):
    def cost(self, params: Any) -> Any:
        return "little"


class RefusesNone(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        if len(data) == 0:
            raise ValueError("no records")
        return super().fit(params, data, rng)


class RefusesOdd(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        if np.isnan(data).any():
            raise ValueError("missing values")
        return super().fit(params, data, rng)


class SpreadsOdd(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        return np.clip(data, 0, 0.5).sum(axis=0) + params["noise"] * rng.normal(size=data.shape[1]), 0.0


class ChangesRecords(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        data -= 0.1
        return super().fit(params, data, rng)


class ChangesParams(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        params["noise"] *= 2
        return super().fit(params, data, rng)


class OneValue(Sums):
    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        return super().fit(params, data, rng)[0]


class SharedDraw(Sums):
    def fit_many(self, params: Any, data: Any, rngs: Any) -> Any:
        return [self.fit(one, data, np.random.default_rng(0)) for one in params]


class Reversed(Sums):
    def fit_many(self, params: Any, data: Any, rngs: Any) -> Any:
        return super().fit_many(params, data, rngs)[::-1]


class DropsOne(Sums):
    def fit_many(self, params: Any, data: Any, rngs: Any) -> Any:
        return super().fit_many(params, data, rngs)[1:]


class Counts(Sums):
    def check(self, params: Any, data: Any) -> None:
        if len(data) < 3:
            raise InvalidInput("too few records")


class ChecksTooMuch(Sums):
    def check(self, params: Any, data: Any) -> None:
        raise InvalidInput("never")


class ChangesStart(Sums):
    def fit_from(self, params: Any, data: Any, rng: Any, start: Any) -> tuple[Any, float]:
        start += 1.0
        return super().fit_from(params, data, rng, start)


class ManyRecords(Sums):
    declared_records = "many"


class OddRule(Sums):
    transfer_rule = "adam"


BROKEN: dict[type[Sums], str] = {
    OwnNoise: "same generator must give the same model",
    GlobalNoise: "global generators",
    FixedNoise: "other noise",
    Remembers: "same generator must give the same model",
    CountsInCost: "must not follow the records",
    RandomCost: "same cost every time",
    WordCost: "returns a cost",
    RefusesNone: "never refuse records",
    RefusesOdd: "never refuse records",
    SpreadsOdd: "One odd record must not",
    ChangesRecords: "not change the records",
    ChangesParams: "not change the parameters",
    OneValue: r"returns \(model, score\)",
    SharedDraw: "what 'fit' gives it alone",
    Reversed: "what 'fit' gives it alone",
    DropsOne: "one result for each",
    Counts: "not depend on records or their number",
    ChecksTooMuch: "'check' refuses",
    ChangesStart: "not change the model that it starts from",
    ManyRecords: "declared_records",
    OddRule: "transfer_rule",
}

ROWS = np.random.default_rng(3).random((10, 4))
ODD = np.where(np.arange(4) == 2, np.nan, ROWS)


def test_the_sum_keeps_every_promise() -> None:
    check_trainer(Sums(), ROWS.copy(), [{"noise": 2.0}, {"noise": 3.0}], odd=[ODD])


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_every_broken_promise_is_found(kind: type[Sums]) -> None:
    with pytest.raises(AssertionError, match=BROKEN[kind]):
        check_trainer(kind(), ROWS.copy(), [{"noise": 2.0}, {"noise": 3.0}], odd=[ODD])


def test_one_that_cannot_travel_is_found() -> None:
    made = Sums()
    made.lock = threading.Lock()  # type: ignore[attr-defined] # on purpose
    with pytest.raises(TypeError, match="cannot pickle"):
        check_trainer(made, ROWS, [{"noise": 2.0}])


@pytest.mark.parametrize(("clip", "holds"), [(0.5, True), (0.6, False)])  # four columns: a norm of 1, and of 1.2
def test_a_record_that_moves_too_much_is_found(clip: float, holds: bool) -> None:
    class Clips(Sums):
        def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
            return np.clip(data, 0, clip).sum(axis=0) + params["noise"] * rng.normal(size=4), 0.0

    rows = np.ones((12, 4))
    if holds:
        assert check_sensitivity(Clips(), rows, {"noise": 2.0}, seeds=2000) == pytest.approx(1.0, abs=0.05)
    else:
        with pytest.raises(AssertionError, match=r"moves the model by 1\.[12]"):
            check_sensitivity(Clips(), rows, {"noise": 2.0}, seeds=2000)


def test_sensitivity_is_for_one_gaussian_mechanism() -> None:
    with pytest.raises(AssertionError, match="is tested for"):
        check_sensitivity(BUILT_IN["softmax"](), DATA, CANDIDATES[0])
    with pytest.raises(AssertionError, match="declared noise is not there"):
        check_sensitivity(FixedNoise(), ROWS, {"noise": 2.0})


class Ranks:
    """Promises to judge records alone, and ranks them among each other."""

    judges_each_record_alone = True

    def correct(self, data: Any) -> Any:
        return (data[0] >= np.mean(data[0])).astype(float)


def test_a_model_that_judges_in_company_is_found() -> None:
    columns = (np.arange(9.0), np.arange(9))
    with pytest.raises(AssertionError, match="otherwise in company"):
        check_judging(Ranks(), columns)
    check_judging(object(), columns)


def test_weights_of_models() -> None:
    assert weights_of("model") is None
    assert weights_of(2.0) == np.array([2.0])
    model = BUILT_IN["network"]().fit({}, DATA, np.random.default_rng(1)).model
    found = weights_of(model)
    assert found is not None
    assert np.array_equal(found, model.parameters)
