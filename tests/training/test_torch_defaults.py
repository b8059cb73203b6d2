"""Global defaults of torch that a user left set: what is trained, judged, read and opened is the same under all."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dptune._global_state import plain_torch
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.executors.models import open_model, pack_model
from dptune.judging import correct
from dptune.tables.map_style import read_map_style
from dptune.training import DpSgdTrainer, Mlp, Settings
from dptune.training.torch_models import flat_parameters

_X = np.random.default_rng(0).random((30, 5)).astype(np.float32)
_DATA = Dataset(_X, np.arange(30) % 2, 2, public=True)


class _Odd(nn.Module):
    """A module that only torch can train, with tensors that follow the defaults of the moment."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 2)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.get_buffer("scale") + torch.full((2,), 0.5)


def _sequential(params: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.2), nn.Tanh(), nn.Linear(4, 2))


class _Rows(torch.utils.data.Dataset[Any]):
    """Records that are made by torch when they are asked for; one of them changes all defaults."""

    def __init__(self, odd: Callable[[], None]) -> None:
        self.odd = odd

    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> Any:
        if place == 2:
            self.odd()
        return torch.ones(3) * place, place % 2


@contextlib.contextmanager
def _set(device: Any = None, dtype: Any = None, grad: bool = True) -> Iterator[None]:
    torch.set_default_device(device)
    torch.set_default_dtype(dtype or torch.float32)
    torch.set_grad_enabled(grad)
    try:
        yield
        assert torch.get_default_device().type == (device or "cpu")  # the user's are as they were
        assert torch.get_default_dtype() == (dtype or torch.float32)
        assert torch.is_grad_enabled() == grad
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)


DEFAULTS: dict[str, Callable[[], Any]] = {
    "meta": lambda: _set("meta"),
    "with meta": lambda: torch.device("meta"),
    "double": lambda: _set(dtype=torch.float64),
    "half": lambda: _set(dtype=torch.float16),
    "no gradients": lambda: _set(grad=False),
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}
MODELS: list[tuple[Any, str]] = [(Mlp(5, 2, (4,)), "torch"), (_sequential, "auto"), (lambda params: _Odd(), "auto")]


def _trained(model: Any, engine: str) -> tuple[bytes, float, int]:
    settings = Settings(0.5, 1.0, 2, 1.0, 0.1, 15, secure=False)
    trainer = DpSgdTrainer(model, settings, _DATA, engine=engine)
    trainer.check({}, _DATA)
    made = trainer.fit({}, _DATA, np.random.default_rng(1))
    flat = flat_parameters(made.model) if isinstance(made.model, nn.Module) else made.model.parameters
    return flat.tobytes(), made.score, int(correct(made.model, _DATA))


@functools.cache
def _wanted() -> list[tuple[bytes, float, int]]:
    """What comes out under torch's own defaults."""
    return [_trained(model, engine) for model, engine in MODELS]


@pytest.mark.parametrize("kind", DEFAULTS)
def test_training_and_judging_do_not_follow_the_users_defaults(kind: str) -> None:
    wanted = _wanted()
    with DEFAULTS[kind]():
        found = [_trained(model, engine) for model, engine in MODELS]
    assert found == wanted


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_stored_model_opens_with_its_weights(kind: str) -> None:
    content = pack_model(_sequential({}))
    with DEFAULTS[kind]():
        again = open_model(content)
    assert pack_model(again) == content


@pytest.mark.parametrize("kind", DEFAULTS)
def test_records_are_read_as_they_are_whatever_the_defaults(kind: str) -> None:
    plain, _ = read_map_style(_Rows(lambda: None), 2, (3,))
    with DEFAULTS[kind]():
        found, repairs = read_map_style(_Rows(lambda: None), 2, (3,))
    assert not repairs
    assert found.x.tobytes() == plain.x.tobytes()


def test_no_record_changes_the_defaults_for_the_next() -> None:
    def change() -> None:
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.float16)
        torch.set_grad_enabled(False)

    plain, _ = read_map_style(_Rows(lambda: None), 2, (3,))
    found, _ = read_map_style(_Rows(change), 2, (3,))
    others = np.arange(6) != 2
    assert found.x[others].tobytes() == plain.x[others].tobytes()
    assert torch.get_default_device().type == "cpu"


def test_a_search_for_anomalies_is_off_inside_and_back_afterwards() -> None:
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        with plain_torch():
            assert not torch.is_anomaly_enabled()
        assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_check_nan_enabled()
    with plain_torch():
        x = torch.zeros(1, requires_grad=True)
        (x * 0).sqrt().sum().backward()  # type: ignore[no-untyped-call] # torch's
        assert x.grad is not None
        assert x.grad.isnan().all()


def test_a_module_on_another_device_is_refused_before_the_charge() -> None:
    trainer = DpSgdTrainer(lambda params: _sequential({}).to("meta"), Settings(0.5, 1.0, 3, 1.0, 0.1, 15))
    with pytest.raises(InvalidInput, match="is on the device meta, not in this machine's memory"):
        trainer.check({}, _DATA)
