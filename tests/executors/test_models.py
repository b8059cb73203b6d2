"""Models as files: the same model gives the same bytes, comes back as it was, and what is none is refused."""

from __future__ import annotations

import io
import math
import os
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.executors.models import dumps, kind_of, open_model, pack_model
from dptune.randomness import Randomness
from dptune.sealed._predicting import TorchModel, usable
from dptune.training import Dataset, DpSgdTrainer, Mlp, Settings, TrainedModel, softmax
from dptune.training.models import Activation, Cnn, Conv, GlobalMean, MaxPool, dp_hypo_cnn

SETTINGS = Settings(0.5, 1.0, steps=2, clip_norm=1.0, learning_rate=0.5, batch_size=10.0)


def _values(*, shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# Numbers.


@pytest.mark.parametrize(
    "description",
    [
        softmax(5, 3),
        Mlp(4, 2, (8, 7), "relu"),
        Mlp(4, 2, (8,), Activation("tempered_sigmoid", 1.5, 3.0, 0.7)),
        Cnn((1, 8, 8), 3, (Conv(2, 3, 1, 1), MaxPool(2, 2), GlobalMean()), dense=(4,)),
        dp_hypo_cnn(),
    ],
)
def test_built_in_models_come_back_as_they_were(description: Any) -> None:
    given = TrainedModel(description, _values(shape=(description.dimension,)), "auto")
    content = pack_model(given)
    assert kind_of(content) == "npz"
    assert content == pack_model(given)
    found = open_model(content)
    assert found.description == description
    assert found.engine == "auto"
    assert (found.parameters == given.parameters).all()
    assert found.parameters.dtype == given.parameters.dtype
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:  # anybody with numpy can read it
        assert (arrays["array_0"] == given.parameters).all()


def test_the_dimension_of_a_network_is_that_of_its_engine() -> None:
    pytest.importorskip("torch")
    from dptune.training.torch_models import build  # noqa: PLC0415 - optional dependency

    for model in (dp_hypo_cnn(), Cnn((3, 9, 9), 4, (Conv(5, 3, 2, 1), GlobalMean()), (6,)), Mlp(4, 2, (8, 7))):
        assert model.dimension == sum(p.numel() for p in build(model).parameters())


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2.5, -0.0, "text \ud800".encode("utf-8", "replace").decode(), [], {}, (), (1, [2, (3,)]),
        {"a": {"b": [1.5, None]}, "file": 1}, np.float32(2.5), [np.zeros((0, 2)), np.arange(3)], np.array(["x", "yz"]),
        {"file": np.ones(2)}, {"model.json": np.ones(2)}, math.inf, -math.inf,
    ],
)  # fmt: skip
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    content = pack_model(value)
    assert kind_of(content) == "npz"
    found = open_model(content)
    assert type(found) is type(value)
    np.testing.assert_equal(found, value)


def test_what_is_not_a_number_stays_that() -> None:
    assert math.isnan(open_model(pack_model(math.nan)))


@pytest.mark.parametrize("size", [9, 11])
def test_parameters_that_do_not_belong_to_a_model_are_refused(size: int) -> None:
    content = pack_model(TrainedModel(softmax(4, 2), _values(shape=(size,))))
    with pytest.raises(InvalidInput, match="has 10 parameters"):
        open_model(content)


class Odd:
    """A model of no kind that is known."""


@pytest.mark.parametrize("model", [Odd(), {1, 2}, {"a": Odd()}, {1: 2}, lambda x: x, np.array([Odd()], object)])
def test_other_models_are_refused_unless_a_pickle_is_asked_for(model: Any) -> None:
    with pytest.raises(InvalidInput, match="safe to open"):
        pack_model(model)
    content = pack_model(model, pickle=True)
    assert kind_of(content) == "pickle"
    with pytest.raises(InvalidInput, match="runs code"):
        open_model(content)


def test_a_subclass_of_a_built_in_model_is_not_taken_for_one() -> None:
    class Changed(TrainedModel):
        def predict(self, x: Any) -> Any:
            return 1 - super().predict(x)

    with pytest.raises(InvalidInput, match="Changed"):
        pack_model(Changed(softmax(1, 2), _values(shape=(4,))))


# What built-in models can do.


def test_a_built_in_model_predicts_gives_probabilities_and_is_scored() -> None:
    model = TrainedModel(softmax(1, 2), np.array([-1.0, 1.0, 0.0, 0.0], np.float32))
    x = np.array([[2.0], [-2.0], [0.5]])
    assert model.predict(x).tolist() == [1, 0, 1]
    assert model.predict_proba(x)[:, 1] == pytest.approx(1 / (1 + np.exp(-2 * x[:, 0])), abs=1e-6)
    assert model.score(x, np.array([1, 1, 1])) == pytest.approx(2 / 3)
    assert model.predict(np.array([[2], [-2]])).tolist() == [1, 0]
    for wrong in (np.zeros(3), np.zeros((3, 2)), np.array([["a"]])):
        with pytest.raises(InvalidInput, match="rows of 1 numbers"):
            model.predict(wrong)
    assert repr(TrainedModel(Mlp(4, 2, (8,)), _values(shape=(58,)))) == (
        "TrainedModel(network with hidden layers 8: 4 features, 2 classes, 58 parameters)"
    )


# scikit-learn.


def _estimator() -> Any:
    linear = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    scaling = pytest.importorskip("sklearn.preprocessing")
    x = np.random.default_rng(0).normal(size=(30, 3))
    made = pipeline.make_pipeline(scaling.StandardScaler(), linear.LogisticRegression())
    return made.fit(x, (x[:, 0] > 0).astype(int)), x


def test_estimators_come_back_as_they_were_with_no_address_or_date_in_their_file() -> None:
    pytest.importorskip("skops")
    (given, x), (again, _) = _estimator(), _estimator()
    content = pack_model(given)
    assert kind_of(content) == "skops"
    assert content == pack_model(given) == pack_model(again)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    found = open_model(content)
    assert (found.predict_proba(x) == given.predict_proba(x)).all()
    assert usable(found) is found


def test_estimators_that_need_trust_are_refused() -> None:
    pytest.importorskip("skops")
    trees = pytest.importorskip("sklearn.tree")
    model = trees.DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(InvalidInput, match=r"sklearn.tree._tree.Tree, which skops does not open"):
        pack_model(model)
    assert kind_of(pack_model(model, pickle=True)) == "pickle"


# torch.

torch = pytest.importorskip("torch")


def _module() -> Any:
    made = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    for values in made.parameters():
        torch.nn.init.ones_(values)
    return made


def test_a_released_module_does_not_say_where_in_memory_it_was() -> None:
    """Torch writes addresses, which follow from what a worker allocated before: from its trials, and their records."""
    held = [_module() for _ in range(5)]  # five places in memory
    assert len({pack_model(one) for one in held}) == 1
    assert len({dumps(one) for one in held}) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor(3.5),
        lambda: torch.tensor([True, False]),
        lambda: torch.zeros((0, 4)),
        lambda: torch.arange(6).reshape(2, 3).t(),
        lambda: torch.tensor([1 + 2j]).conj(),
        lambda: torch.ones(2, dtype=torch.bfloat16),
        lambda: torch.ones(2, requires_grad=True),
        lambda: torch.nn.Parameter(torch.ones(2), requires_grad=False),
    ],
)
def test_tensors_come_back_as_they_were(make: Any) -> None:
    given = make()
    found = pickle.loads(dumps(given))
    assert torch.equal(found, given)
    assert (type(found), found.dtype, found.requires_grad) == (type(given), given.dtype, given.requires_grad)


def _cnn() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), nn.GroupNorm(2, 4),
        nn.LeakyReLU(0.2, inplace=True), nn.MaxPool2d(2), nn.Sequential(nn.Flatten(), nn.Dropout(0.3)),
        nn.Linear(16, 5, dtype=torch.float64), nn.LayerNorm(5, eps=1e-3, dtype=torch.float64), nn.LogSoftmax(dim=1),
    )  # fmt: skip


@pytest.mark.parametrize("make", [_module, _cnn, lambda: torch.nn.Linear(3, 2, bias=False)])
def test_described_modules_come_back_as_they_were(make: Any) -> None:
    pytest.importorskip("safetensors")
    given = make()
    next(given.parameters()).requires_grad_(False)
    content = pack_model(given)
    assert kind_of(content) == "safetensors"
    found = open_model(content)
    assert str(found).replace(", inplace=True", "") == str(given).replace(", inplace=True", "")
    assert [p.requires_grad for p in found.parameters()] == [p.requires_grad for p in given.parameters()]
    for name, values in given.state_dict().items():
        assert torch.equal(found.state_dict()[name], values)
        assert found.state_dict()[name].dtype == values.dtype
    assert not found.training


def test_a_state_dict_is_a_model_too() -> None:
    given = _module().state_dict()
    content = pack_model(given)
    assert kind_of(content) == "safetensors"
    found = open_model(content)
    assert found.keys() == given.keys()
    assert all(torch.equal(found[name], given[name]) for name in given)


class Clipped(torch.nn.Linear):  # type: ignore[misc,name-defined] # torch came by importorskip
    """Not what its base is."""

    def forward(self, x: Any) -> Any:
        return super().forward(x).clamp(0, 1)


def _hooked() -> Any:
    made = torch.nn.Sequential(torch.nn.Linear(2, 2))
    made[0].register_forward_hook(lambda module, given, found: found * 2)
    return made


def _tied() -> Any:
    made = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    made[1].weight = made[0].weight
    return made


def _weighted() -> Any:
    return torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: torch.nn.Sequential(Clipped(2, 2)), "layer 0 is a Clipped"),
        (_hooked, "has hooks"),
        (_tied, "shares parameters"),
        (_weighted, "ParametrizedLinear"),
        (lambda: torch.nn.Sequential(torch.nn.LSTM(2, 2)), "layer 0 is a LSTM"),
        (lambda: torch.nn.Embedding(3, 2, max_norm=1.0), "not the one"),
    ],
)
def test_modules_that_a_file_cannot_describe_are_refused(make: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        pack_model(make())
    with pytest.raises(InvalidInput, match="no factory that can be imported"):
        pack_model(make(), factory=lambda params: make(), params={})


def test_a_factory_that_can_be_imported_is_named_and_must_be_given_to_open() -> None:
    from tests.executors.factories import make_own  # noqa: PLC0415 - needs torch

    given = make_own({"width": 4})
    content = pack_model(given, factory=make_own, params={"width": 4, "lr": 0.5})
    assert kind_of(content) == "safetensors"
    assert b"tests.executors.factories:make_own" in content
    with pytest.raises(InvalidInput, match="not imported because a file says so"):
        open_model(content)
    found = open_model(content, factory=make_own)
    x = torch.ones(2, 3)
    assert torch.equal(found(x), given(x))
    with pytest.raises(InvalidInput, match="safe to open"):  # another width: it would not be this module
        pack_model(given, factory=make_own, params={"width": 5})


def test_huge_layers_of_a_file_take_no_memory() -> None:
    from dptune.executors._model_torch import _build  # noqa: PLC0415 - needs torch

    made = _build({"Sequential": [["0", {"Linear": {"in_features": 10**9, "out_features": 10**9}}]]})
    assert all(values.is_meta for values in made.parameters())


def test_a_module_predicts_gives_probabilities_and_is_scored() -> None:
    made = torch.nn.Sequential(torch.nn.Linear(1, 2))
    with torch.no_grad():
        made[0].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        made[0].bias.zero_()
    model, x = usable(made), np.array([[2.0], [-2.0]])
    assert isinstance(model, TorchModel)
    assert model.predict(x).tolist() == [1, 0]
    assert model.predict_proba(x)[0, 1] == pytest.approx(1 / (1 + math.exp(-4)))
    assert model.score(x, [1, 1]) == 0.5
    ending = usable(torch.nn.Sequential(*made, torch.nn.Softmax(dim=1)))
    assert ending.predict_proba(x) == pytest.approx(model.predict_proba(x))
    with pytest.raises(InvalidInput, match="does not take these records"):
        model.predict(np.zeros((2, 7)))
    assert repr(model) == "TorchModel(Sequential: 4 parameters)"


def test_modules_of_dpsgd_and_of_opacus_are_stored() -> None:
    data = Dataset(_values(shape=(20, 3)), np.arange(20) % 2, 2)
    own = DpSgdTrainer(lambda params: torch.nn.Sequential(torch.nn.Linear(3, 2)), SETTINGS)
    assert kind_of(pack_model(own.fit({}, data, Randomness.rehearsal(1)).model)) == "safetensors"
    opacus = pytest.importorskip("opacus")
    wrapped = opacus.GradSampleModule(torch.nn.Sequential(torch.nn.Linear(3, 2)))
    inner = open_model(pack_model(wrapped))
    assert torch.equal(inner[0].weight, wrapped._module[0].weight)
    assert pack_model(wrapped) == pack_model(wrapped._module)


def test_hostile_bytes_are_none_of_the_safe_kinds() -> None:
    for content in (b"", b"\x80\x04.", os.urandom(0), b"{}", b"\x00" * 8 + b"{"):
        assert kind_of(content) == "pickle"
