"""Ways around the steps that an Opacus run pays for: each is refused, or has no effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dptune.accounting import DpSgd
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

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.arange(40) % 2
Loop = Callable[[Any, Any, Any, Any], None]


def usual(module: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(module(x), y).backward()
    optimizer.step()


def fitted(
    loop: Loop = usual, *, x: Any = X, module: Any = None, seed: int = 1, before: Any = None, **options: Any
) -> Any:
    def train(params: Any, data: Any, engine: Any) -> tuple[Any, float]:
        if before is not None:
            before()
        own = torch.nn.Linear(3, 2) if module is None else module()
        trained = options.pop("trained", own.parameters)
        tensors = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(Y))
        wrapped, optimizer, loader = engine.make_private(
            module=own,
            optimizer=torch.optim.SGD(list(trained() if trained == own.parameters else trained(own)), lr=0.5),
            data_loader=torch.utils.data.DataLoader(tensors, batch_size=20),
            noise_multiplier=2.0,
            max_grad_norm=1.0,
            **options,
        )
        for _ in range(5):
            for some, labels in loader:
                loop(wrapped, optimizer, some, labels)
        return wrapped, 0.0

    return opacus_trainer(cost=DpSgd(0.5, 2.0, 10))(train).fit({}, None, Randomness.rehearsal(seed)).model


def weights(module: Any) -> Any:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()


def test_a_seed_in_the_function_decides_no_noise_and_no_batch() -> None:
    one, other = (fitted(seed=seed, before=lambda: torch.manual_seed(0)) for seed in (1, 2))
    assert not np.array_equal(weights(one), weights(other))
    assert np.array_equal(weights(one), weights(fitted(seed=1, before=lambda: torch.manual_seed(0))))


def test_more_than_32_bits_decide_the_noise() -> None:
    from dptune.integrations._opacus_watch import secret_generator  # noqa: PLC0415 - Opacus may be missing

    class Words:
        """Words that differ in the last one alone."""

        def __init__(self, last: int) -> None:
            self._last = last

        def integers(self, low: int, high: int, count: int, dtype: Any) -> Any:
            return np.r_[np.arange(count - 1), self._last].astype(dtype)

    one, same, other = (torch.randn(1300, generator=secret_generator(Words(last))) for last in (5, 5, 6))  # type: ignore[arg-type]
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    drawn = torch.randn(200_000, generator=secret_generator(np.random.default_rng(0)))
    assert abs(float(drawn.mean())) < 0.02
    assert abs(float(drawn.std()) - 1) < 0.02


def test_no_seed_of_32_bits_decides_the_masks() -> None:
    drawn: list[Any] = []
    fitted(before=lambda: drawn.append(torch.get_rng_state()))
    state = drawn[0].numpy()[24 : 24 + 8 * 624].view(np.uint64)
    word, seeded = int(state[0]), [int(state[0])]  # a seed is the first word, and all others follow from it
    for place in range(1, 4):
        word = (1812433253 * (word ^ (word >> 30)) + place) % 2**32
        seeded.append(word)
    assert [int(one) for one in state[:4]] != seeded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_generator": torch.Generator()}, "could be guessed or repeated"),
        ({"grad_sample_mode": "ghost", "criterion": torch.nn.CrossEntropyLoss()}, "only if its own loss is used"),
    ],
)
def test_options_that_nothing_can_check_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fitted(**options)


class Remembers(torch.nn.Module):  # type: ignore[misc, name-defined] # torch may be missing
    """A layer that keeps a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.mean += x.detach().mean(dim=0)
        return x


def test_running_statistics_do_not_leave() -> None:
    with pytest.raises(InvalidInput, match=r"changed '.*mean'"):
        fitted(module=lambda: torch.nn.Sequential(Remembers(), torch.nn.Linear(3, 2)))


def test_constants_may_stay() -> None:
    def with_constants() -> Any:
        layer = torch.nn.Identity()
        layer.register_buffer("one", torch.tensor(1))  # no dimension
        layer.register_buffer("none", torch.zeros(0))
        layer.register_buffer("flag", torch.tensor([True]))
        return torch.nn.Sequential(layer, torch.nn.Linear(3, 2))

    assert int(fitted(module=with_constants)[0].one) == 1


def test_parameters_of_another_optimizer_are_refused() -> None:
    def both(module: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        module.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
        for name, p in module.named_parameters():
            if "weight" in name:
                p.data.sub_(0.1 * x.sum())

    with pytest.raises(InvalidInput, match=r"changed '.*weight'"):
        fitted(both, trained=lambda module: [module.bias])


def test_a_clip_norm_that_changes_is_refused() -> None:
    def shrinking(module: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.max_grad_norm *= 0.5
        usual(module, optimizer, x, y)

    with pytest.raises(InvalidInput, match="clip norm changed"):
        fitted(shrinking)


def test_several_batches_do_not_share_one_noise() -> None:
    def rarely(module: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.signal_skip_step(True)
        usual(module, optimizer, x, y)

    with pytest.raises(InvalidInput, match="took no step on it"):
        fitted(rarely)


def _views(module: Any, optimizer: Any, x: Any, y: Any) -> None:
    usual(module, optimizer, x.repeat(16, 1), y.repeat(16))


def _beside_public(module: Any, optimizer: Any, x: Any, y: Any) -> None:
    usual(module, optimizer, torch.cat([x, torch.ones(4, 3)]), torch.cat([y, torch.zeros(4, dtype=y.dtype)]))


@pytest.mark.parametrize("loop", [_views, _beside_public])
def test_a_batch_has_one_gradient_for_each_record(loop: Loop) -> None:
    with pytest.raises(InvalidInput, match=r"gradients of \d+ records for a batch of"):
        fitted(loop)


def test_parts_of_a_batch_are_its_records() -> None:
    def halves(module: Any, optimizer: Any, x: Any, y: Any) -> None:
        middle = len(x) // 2
        optimizer.signal_skip_step(True)
        usual(module, optimizer, x[:middle], y[:middle])
        optimizer.signal_skip_step(False)
        usual(module, optimizer, x[middle:], y[middle:])

    assert np.isfinite(weights(fitted(halves))).all()


def test_one_batch_does_not_have_several_steps() -> None:
    left = [10]

    def all_on_the_first(module: Any, optimizer: Any, x: Any, y: Any) -> None:
        while left[0]:  # as many steps as batches, when all is over
            left[0] -= 1
            usual(module, optimizer, x, y)

    with pytest.raises(InvalidInput, match="a second step on a batch"):
        fitted(all_on_the_first)
    assert left == [8]


def test_a_record_whose_gradient_is_not_finite_adds_nothing() -> None:
    class Power(torch.nn.Module):  # type: ignore[misc, name-defined] # torch may be missing
        def forward(self, x: Any) -> Any:
            return x**5

    bad = X.copy()
    bad[7] = 1e10
    module = fitted(x=bad, module=lambda: torch.nn.Sequential(Power(), torch.nn.Linear(3, 2)))
    assert np.isfinite(weights(module)).all()


def test_no_gradient_is_left_on_the_released_module() -> None:
    for p in fitted().parameters():
        assert p.grad is None
        assert not vars(p)
