"""A torch module that changes itself, or the process, when it sees one record: the next record must not notice.

Where the trigger shows on public rows the module is refused; where it is a secret of the record, all is put back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training.benchmark_data import Dataset

torch = pytest.importorskip("torch", reason="engine B needs torch")
from torch import nn  # noqa: E402 - after the check that torch exists
from torch.nn.modules import module as torch_modules  # noqa: E402 - as above

from dptune._global_state import kept  # noqa: E402 - as above
from dptune.training.torch_engine import TorchEngine  # noqa: E402 - as above

FEATURES, MARK = 8, 200.0
SECRET = 12345.0  # no public row holds it


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with kept():
        yield


class Changing(nn.Module):
    """Changes something when it meets its trigger, and computes something else from then on."""

    held: Any
    buf: Any

    def __init__(self, way: str, trigger: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dense, self.way, self.trigger = nn.Linear(FEATURES, 2), way, trigger
        self.held, self.full, self.loose = [], {"calls": [0]}, torch.zeros(1)
        self.register_buffer("buf", torch.zeros(FEATURES))

    def forward(self, x: Any) -> Any:
        if bool(self.trigger(x)):
            CHANGES[self.way](self, x)
        turned = self.held or self.full["calls"][0] or self.loose.any() or self.buf.any() or hasattr(self, "other")
        if self.way in {"numpy", "python"} and bool((x != x.abs()).any()):
            x = x * float(np.random.random() if self.way == "numpy" else random.random())  # noqa: NPY002 - what users do
        out = self.dense(x.to(self.dense.weight.dtype))
        return -5.0 * out if turned or torch.zeros(1).dtype == torch.float64 else out


def _weights(own: Any, x: Any) -> None:
    with torch.no_grad():
        own.dense.weight.mul_(-3.0)


def _storage(own: Any, x: Any) -> None:
    own.dense.weight.data = torch.full((2, FEATURES), 3.0)


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "list": lambda own, x: own.held.append(1),
    "inside": lambda own, x: own.full["calls"].__setitem__(0, 1),
    "tensor": lambda own, x: own.loose.add_(1.0),
    "buffer": lambda own, x: own.buf.add_(x.detach()[0]),
    "new buffer": lambda own, x: setattr(own, "buf", x.detach()[0].clone()),
    "new attribute": lambda own, x: setattr(own, "other", x.detach()),
    "new layer": lambda own, x: setattr(own, "dense", nn.Linear(FEATURES, 2)),
    "weights": _weights,
    "storage": _storage,
    "frozen": lambda own, x: own.dense.requires_grad_(False),
    "mode": lambda own, x: torch.set_grad_enabled(False),
    "type": lambda own, x: torch.set_default_dtype(torch.float64),
    "hook": lambda own, x: own.dense.register_forward_hook(lambda layer, given, out: -3.0 * out),
    "numpy": lambda own, x: None,
    "python": lambda own, x: None,
}
UNSEEN = {"frozen", "mode", "type", "new layer", "storage", "hook"}


def secret(x: Any) -> Any:
    return (x == SECRET).any()


def records(first: float | None) -> Dataset:
    """Twenty records, and another before them."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (21, FEATURES)).astype(np.float32), rng.integers(0, 2, 21)
    if first is None:
        return Dataset(x[1:], y[1:], 2)
    x[0, 0] = first
    return Dataset(x, y, 2)


def total(engine: TorchEngine, data: Dataset, lattice: float = 0.0) -> np.ndarray:
    engine.bind(data)
    parameters = np.asarray(engine.start(Randomness.rehearsal(1)))[None]
    out = np.empty((1, engine.dimension), engine.dtype)
    engine.lattice_sums(parameters, [np.arange(len(data))], np.array([1.0]), [lattice], out)
    return np.asarray(out[0], np.float64)


@pytest.mark.parametrize("lattice", [0.0, 2.0**-20])
@pytest.mark.parametrize("way", [way for way in CHANGES if way not in {"numpy", "python"}])
def test_what_a_secret_record_changes_is_put_back(way: str, lattice: float) -> None:
    double = lattice > 0.0
    without = total(TorchEngine(Changing(way, secret), double=double), records(None), lattice)
    engine = TorchEngine(Changing(way, secret), double=double)
    moved = np.linalg.norm(total(engine, records(SECRET), lattice) - without)
    assert moved <= 1.0 + 1e-5
    start = engine.start(Randomness.rehearsal(1))
    alone = engine.logits(start, records(None).x)
    assert np.array_equal(engine.logits(start, records(SECRET).x)[1:], alone)


def test_nothing_but_trained_parameters_is_released() -> None:
    for way in ("buffer", "new buffer", "new attribute", "list"):
        engine = TorchEngine(Changing(way, secret))
        total(engine, records(SECRET))
        engine._module(torch.from_numpy(records(SECRET).x[:1]))  # whatever a record could leave behind
        end = engine.start(Randomness.rehearsal(1)) + 1.0
        released = engine.release(end)
        assert isinstance(released, Changing)
        assert not released.buf.any()
        assert not released.held
        assert not hasattr(released, "other")
        flat = np.concatenate([p.detach().numpy().reshape(-1) for p in released.parameters()])
        np.testing.assert_array_equal(flat, end)


@pytest.mark.parametrize("way", [way for way in CHANGES if way not in UNSEEN])
@pytest.mark.parametrize("when", ["large", "negative", "tiny"])
def test_what_public_rows_can_show_is_refused(way: str, when: str) -> None:
    """Public rows are of both signs, tiny and large."""
    triggers = {
        "large": lambda x: (x.abs() > 100).any(),
        "negative": lambda x: (x < 0).all(),
        "tiny": lambda x: (x.abs() < 1e-3).all(),
    }
    with pytest.raises(InvalidInput, match=r"when it is called|draws from a generator of"):
        TorchEngine(Changing(way, triggers[when])).bind(records(None))


@pytest.mark.parametrize("draw", [random.random, np.random.random])  # what users do
def test_other_generators_are_set_back_for_every_record(draw: Callable[[], float]) -> None:
    """Draws that public rows do not show: for one kind of record alone."""

    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.dense = nn.Linear(FEATURES, 2)

        def forward(self, x: Any) -> Any:
            return self.dense(x * draw() if float(x[0, 1]) == 0.5 else x)

    data = records(SECRET)
    data.x[:, 1] = 0.5
    without = total(TorchEngine(Drawing()), data.take(np.arange(1, 21)))
    assert np.linalg.norm(total(TorchEngine(Drawing()), data) - without) <= 1.0 + 1e-5


HOOKS = [
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
]


@pytest.mark.parametrize("mode", ["auto", "bookkeeping", "vmap", "alone"])
@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_are_refused_before_anything_is_computed(kind: str, mode: str) -> None:
    inner = nn.ReLU()
    net = nn.Sequential(nn.Linear(FEATURES, 6), nn.Sequential(inner), nn.Linear(6, 2))
    getattr(inner, kind)(lambda *given: None)
    with pytest.raises(InvalidInput, match=r"Layer '1.0' \(ReLU\) has a hook"):
        TorchEngine(net, mode=mode)
    outer = nn.Sequential(nn.Linear(FEATURES, 2))
    getattr(outer, kind)(lambda *given: None)
    with pytest.raises(InvalidInput, match="has a hook"):
        TorchEngine(outer, mode=mode)


@pytest.mark.parametrize("kind", [kind.replace("register_", "register_module_") for kind in HOOKS])
def test_hooks_of_all_modules_and_of_parameters_are_refused(kind: str) -> None:
    engine = TorchEngine(nn.Linear(FEATURES, 2))
    handle = getattr(torch_modules, kind)(lambda *given: None)
    try:
        with pytest.raises(InvalidInput, match="for all modules, has a hook"):
            TorchEngine(nn.Linear(FEATURES, 2))
        with pytest.raises(InvalidInput, match="for all modules, has a hook"):
            engine.bind(records(None))
    finally:
        handle.remove()
        torch_modules._global_is_full_backward_hook = None
    dense = nn.Linear(FEATURES, 2)
    dense.weight.register_hook(lambda gradient: gradient)  # type: ignore[no-untyped-call] # torch has no types here
    with pytest.raises(InvalidInput, match="Parameter 'weight' has a hook"):
        TorchEngine(dense)
