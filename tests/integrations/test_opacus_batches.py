"""What an Opacus function is handed: a public number of batches, and records whose gradients are their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dptune.accounting import DpSgd
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.integrations.opacus import opacus_trainer
from dptune.randomness import Randomness

torch = pytest.importorskip("torch", reason="the adapter needs torch")
pytest.importorskip("opacus", reason="the adapter needs Opacus")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning"),  # Opacus, on every engine
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),  # torch, on Opacus' hooks
    pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning"),  # the same
]

COST = DpSgd(sampling_rate=0.05, noise_multiplier=1.0, steps=40)


def _data(records: int) -> Dataset:
    return Dataset(np.random.default_rng(0).random((records, 3)) + 1.0, np.arange(records) % 2, 2)


class _Named(torch.utils.data.Dataset):  # type: ignore[misc,name-defined] # torch may be missing
    """Records by name, of a class that nobody knows."""

    def __init__(self, data: Dataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, place: int) -> Any:
        return {"x": torch.from_numpy(self.data.x[place]).float(), "more": (int(self.data.y[place]), "word")}


def _handed(records: int, kind: str) -> tuple[list[Any], list[float]]:
    """The batches that a function gets, and the length of each one's clipped sum."""
    batches: list[Any] = []
    sums: list[float] = []

    def train(params: Any, given: Any, engine: Any) -> tuple[Any, float]:
        module = torch.nn.Linear(3, 2)
        own = torch.utils.data.DataLoader(_Named(_data(records)), batch_size=5)
        module, optimizer, loader = engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=given if kind == "loader" else own,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        inner = optimizer.add_noise

        def noised() -> None:
            sums.append(float(torch.cat([p.summed_grad.reshape(-1) for p in optimizer.params]).norm()))
            inner()

        optimizer.add_noise = noised
        for _ in range(3):
            for batch in loader:
                batches.append(batch)
                x, y = batch if kind == "loader" else (batch["x"], batch["more"][0])
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(module(x), y).backward()
                optimizer.step()
        return module, 0.0

    made = opacus_trainer(cost=COST, records=100)(train) if kind == "loader" else opacus_trainer(cost=COST)(train)
    made.fit({}, _data(records), Randomness.rehearsal(3))
    return batches, sums


@pytest.mark.parametrize(
    ("kind", "records"), [("loader", 0), ("loader", 1), ("loader", 30), ("named", 1), ("named", 9)]
)
def test_no_record_decides_how_many_batches_are_handed_over(kind: str, records: int) -> None:
    batches, sums = _handed(records, kind)
    assert len(batches) == len(sums) == COST.steps
    xs = [batch[0] if kind == "loader" else batch["x"] for batch in batches]
    empty = [not x.any() for x in xs]  # features of records are at least 1
    assert any(empty)
    assert [one == 0.0 for one in sums] == empty  # a blank record adds nothing
    for x, blank in zip(xs, empty, strict=True):
        assert len(x) == 1 if blank else len(x) >= 1


def _mean(module: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(module(x), y)


def _sum(module: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(module(x), y, reduction="sum")


def _largest(module: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(module(x / x.abs().max()), y)


class _TimeFirst(torch.nn.Module):  # type: ignore[misc,name-defined] # torch may be missing
    """Takes (records, time, features); its inner layer is given time first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(1, 2)

    def forward(self, x: Any) -> Any:
        return self.inner(x[:, :, None].transpose(0, 1)).sum(dim=0)


def _preflight(loss: Any, module: Any = None, *, turned: bool = False, **options: Any) -> None:
    def train(params: Any, given: Any, engine: Any) -> tuple[Any, float]:
        own = torch.nn.Linear(3, 2) if module is None else module()
        wrapped, optimizer, loader = engine.make_private(
            module=own, optimizer=torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.9), data_loader=given,
            noise_multiplier=1.0, max_grad_norm=1.0, **options,
        )  # fmt: skip
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                loss(wrapped, x, y).backward()
                optimizer.step()
        return wrapped, 0.0

    data = _data(16)
    opacus_trainer(cost=COST, records=100)(train).preflight(
        {}, data.take(np.array([1, 0]) if turned else np.arange(16)), Randomness.rehearsal(1)
    )


def _with_dropout() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew"])
def test_a_loss_that_is_what_it_says_passes(mode: str) -> None:
    _preflight(_mean, grad_sample_mode=mode)
    _preflight(_sum, loss_reduction="sum", grad_sample_mode=mode)
    _preflight(_mean, module=_with_dropout)
    _preflight(_mean, module=_TimeFirst, batch_first=False)


@pytest.mark.parametrize(
    ("loss", "module", "options", "said"),
    [
        (_mean, None, {"loss_reduction": "sum"}, "0.5 times as long"),
        (_sum, None, {}, "2 times as long"),
        (_largest, None, {}, "follows the others of its batch"),
        (_largest, None, {"turned": True}, "follows the others of its batch"),
        (_mean, _TimeFirst, {}, "gradients of 3 records for a batch of 1"),
    ],
)
def test_gradients_that_are_not_one_records_own_are_refused_before_the_charge(
    loss: Any, module: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        _preflight(loss, module, **options)
