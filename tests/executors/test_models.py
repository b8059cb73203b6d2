"""Models as bytes: the same model gives the same bytes, whatever a process did before."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from dptune.executors.models import dumps, open_model, pack_model

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


def test_modules_come_back_as_they_were() -> None:
    given = _module()
    given[0].weight.requires_grad_(False)
    found = open_model(pack_model(given))
    assert [p.requires_grad for p in found.parameters()] == [p.requires_grad for p in given.parameters()]
    for name, values in given.state_dict().items():
        assert torch.equal(found.state_dict()[name], values)
