"""The Opacus adapter: the engine's history must stay within the declared cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dptune.accounting import DpSgd
from dptune.errors import InvalidInput
from dptune.integrations.opacus import OpacusTrainer, check_history, opacus_trainer
from dptune.randomness import Randomness
from dptune.training import Trainer, load

torch = pytest.importorskip("torch", reason="the adapter needs torch")
pytest.importorskip("opacus", reason="the adapter needs Opacus")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning"),  # Opacus, on every engine
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),  # torch, on Opacus' hooks
    pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning"),  # the same
]

COST = DpSgd(sampling_rate=1 / 12, noise_multiplier=1.0, steps=24)


def train(params: Any, data: Any, engine: Any) -> tuple[Any, float]:
    """The usual Opacus loop."""
    module = torch.nn.Linear(64, 10)
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(data.train.x), torch.from_numpy(data.train.y))
    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=params["lr"]),
        data_loader=torch.utils.data.DataLoader(tensors, batch_size=120),
        noise_multiplier=params.get("noise", 1.0),
        max_grad_norm=1.0,
        **params.get("extra", {}),
    )
    for _ in range(params.get("epochs", 2)):
        for x, y in loader:
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(module(x), y))
            optimizer.step()
            if params.get("twice"):
                again(module, optimizer, x, y)
    with torch.no_grad():
        right = (module(torch.from_numpy(data.test.x)).argmax(1).numpy() == data.test.y).mean()
    return module, float(right)


def again(module: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(torch.nn.functional.cross_entropy(module(x), y))
    optimizer.step()


def made() -> OpacusTrainer[Any, Any]:
    return opacus_trainer(cost=COST)(train)


def test_an_existing_function_becomes_a_trainer() -> None:
    one = made()
    assert isinstance(one, Trainer)
    assert one.cost({}) == COST
    fitted, again = (one.fit({"lr": 2.0}, load("digits"), Randomness.rehearsal(1)) for _ in range(2))
    assert fitted.score > 0.6
    assert fitted.score == again.score
    for p, q in zip(fitted.model.parameters(), again.model.parameters(), strict=True):
        assert np.array_equal(p.detach().numpy(), q.detach().numpy())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"noise": 0.5}, "used noise 0.5 but declared 1"),
        ({"twice": True}, "a second step on a batch"),
        ({"extra": {"clipping": "adaptive"}}, "divides by the true size of a batch"),
        ({"epochs": 0}, "took no step through its privacy engine"),
        ({"extra": {"poisson_sampling": False}}, "which the accountant does not cover"),
    ],
)
def test_a_run_that_does_more_than_declared_fails(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        made().fit({"lr": 1.0, **params}, load("digits"), Randomness.rehearsal(1))


@pytest.mark.parametrize("mode", ["hooks", "per_layer", "managed"])
@pytest.mark.parametrize("records", [0, 1, 99, 100, 101, 150])
def test_steps_rate_and_denominator_do_not_follow_the_number_of_records(records: int, mode: str) -> None:
    """A hundred and one records are eleven batches for Opacus itself, and none at all is an error."""
    engines: list[Any] = []

    def count(params: Any, data: Any, engine: Any) -> tuple[Any, float]:
        engines.append(engine)
        return few(mode, records, engine), 0.0

    declared = DpSgd(sampling_rate=0.03, noise_multiplier=1.0, steps=50)
    fitted = opacus_trainer(cost=declared)(count).fit({}, None, Randomness.rehearsal(records))
    assert sum(steps for _, _, steps in engines[0].accountant.history) == 50
    assert {(noise, rate) for noise, rate, _ in engines[0].accountant.history} == {(1.0, 0.03)}
    assert fitted.model.expected_batch_size == 10.0


def few(mode: str, records: int, engine: Any) -> Any:
    """Two passes, of 33 and 17 batches, at a rate at which empty batches are common; gives the optimizer."""
    from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: PLC0415 - Opacus may be missing

    module, loss = torch.nn.Linear(8, 2), torch.nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(records, 8, generator=generator), torch.randint(2, (records,), generator=generator)
    made = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), 0.1),
        data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=10),
        noise_multiplier=1.0,
        criterion=loss,
        max_grad_norm=[1.0, 1.0] if mode == "per_layer" else 1.0,
        clipping="per_layer" if mode == "per_layer" else "flat",
    )
    module, optimizer, loader = made[0], made[1], made[-1]
    for _ in range(3):
        if mode == "managed":
            with BatchMemoryManager(data_loader=loader, max_physical_batch_size=2, optimizer=optimizer) as parts:
                step_through(module, optimizer, loss, parts)
        else:
            step_through(module, optimizer, loss, loader)
    return optimizer


def step_through(module: Any, optimizer: Any, loss: Any, loader: Any) -> None:
    for x, y in loader:
        assert len(x) > 0
        optimizer.zero_grad()
        loss(module(x), y).backward()
        optimizer.step()


def test_noise_that_follows_the_number_of_records_is_refused() -> None:
    trainer: OpacusTrainer[None, Any] = opacus_trainer(cost=COST)(
        lambda params, data, engine: engine.make_private_with_epsilon(epochs=1)
    )
    with pytest.raises(InvalidInput, match="takes its noise from the number of records"):
        trainer.fit({}, None, Randomness.rehearsal(1))


def test_histories_within_the_declaration_pass() -> None:
    check_history([(1.0, 1 / 12, 20), (1.5, 1 / 20, 4)], COST)
    with pytest.raises(InvalidInput, match=r"sampled at rate 0.1 but declared 0.0833333"):
        check_history([(1.0, 0.1, 3)], COST)


def test_bad_declarations() -> None:
    with pytest.raises(InvalidInput, match="'cost' must be a DpSgd"):
        opacus_trainer(cost=1.0)  # type: ignore[arg-type] # what a careless caller would pass
    careless: OpacusTrainer[None, str] = opacus_trainer(cost=lambda params: COST)(
        lambda params, data, engine: "model"  # type: ignore[arg-type, return-value] # as above
    )
    with pytest.raises(InvalidInput, match=r"must return \(model, score\)"):
        careless.fit({}, None, Randomness.rehearsal(1))


def test_steps_on_fixed_batches_fail() -> None:
    """The engine's history says nothing of it: the optimizer is the private one, only the batches are not drawn."""

    def fixed(params: Any, data: Any, engine: Any) -> tuple[Any, float]:
        module, (x, y) = torch.nn.Linear(3, 2), data
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        made = {"module": module, "optimizer": optimizer, "data_loader": loader, "noise_multiplier": 1.0}
        module, optimizer, _ = engine.make_private(**made, max_grad_norm=1.0)
        step_through(module, optimizer, torch.nn.CrossEntropyLoss(), loader)
        return module, 0.0

    data = torch.randn(20, 3), torch.zeros(20, dtype=torch.long)
    with pytest.raises(InvalidInput, match="not drawn at the declared rate"):
        opacus_trainer(cost=DpSgd(0.2, 1.0, 5))(fixed).fit({}, data, Randomness.rehearsal(1))
