"""Opacus under whole methods: the loader keeps the declared rate on parts, and every mismatch is refused unpaid."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptune as dpt
from dptune.errors import InvalidInput
from dptune.integrations.opacus import OpacusLoaderTrainer, opacus_trainer
from dptune.ledgers import Ledger
from dptune.methods.plan import Method
from dptune.randomness import Randomness
from dptune.testing.searches import run_plan

torch = pytest.importorskip("torch", reason="the adapter needs torch")
pytest.importorskip("opacus", reason="the adapter needs Opacus")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning"),  # Opacus, on every engine
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),  # torch, on Opacus' hooks
    pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning"),  # the same
]

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDS, RATE, STEPS = 200, 0.1, 20
Y = np.arange(RECORDS) % 2
X = (np.random.default_rng(0).normal(size=(RECORDS, 1, 4, 4)) + 2 * Y[:, None, None, None] - 1).astype(np.float32)
DATA = dpt.Dataset(X, Y, 2, name="dots")
SPACE = dpt.Space(lr=dpt.Float(0.1, 1.0, log=True))
SEEN: list[tuple[int, int, float, float]] = []


def train(params: Any, loader: Any, engine: Any) -> tuple[Any, float]:
    """The usual loop; what is wrong with it is said by a parameter that is no part of the space."""
    wrong = WRONG
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    given = loader
    if wrong == "other batch size":
        given = torch.utils.data.DataLoader(loader.dataset, batch_size=50)
    if wrong == "other records":
        given = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*loader.dataset.tensors), batch_size=20)
    if wrong == "reads first":
        next(iter(loader))
    module, optimizer, drawn = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=params["lr"]),
        data_loader=given,
        noise_multiplier=params["noise_multiplier"] * {"less noise": 0.5, "more noise": 2.0}.get(wrong, 1.0),
        max_grad_norm=0.5 if wrong == "other clip" else 1.0,
        **({"poisson_sampling": False} if wrong == "fixed batches" else {}),
    )
    if wrong == "fixed loader":
        drawn = torch.utils.data.DataLoader(loader.dataset, batch_size=8)
    for _ in range({"fewer steps": 1, "more steps": 3}.get(wrong, 2)):
        for x, y in drawn:
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(module(x), y))
            optimizer.step()
    SEEN.append((len(loader), len(loader.dataset), float(optimizer.expected_batch_size), params["noise_multiplier"]))
    return module, 0.5


WRONG = ""


def _cost(params: Any) -> dpt.DpSgd:
    return dpt.DpSgd(RATE, params["noise_multiplier"], STEPS)


def made(**options: Any) -> OpacusLoaderTrainer[Any]:
    found = opacus_trainer(cost=_cost, records=RECORDS, clip=1.0, **options)(train)
    assert isinstance(found, OpacusLoaderTrainer)
    return found


METHODS: dict[str, tuple[Method, float]] = {
    "stopping": (dpt.RandomStopping(SPACE, dpt.Geometric(2)), 1.0),
    "subset": (dpt.Subset(dpt.RandomStopping(SPACE, dpt.Geometric(2)), 0.25), 0.25),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_part_keeps_the_declared_rate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, share = METHODS[name]
    plan = method.plan(dpt.Budget(4, 1e-3), made())
    SEEN.clear()
    selection, model = run_plan(plan, made(), DATA, Randomness.rehearsal(2))
    assert model is not None
    assert model(torch.from_numpy(X)).shape == (RECORDS, 2)
    assert not model.training
    tuned = SEEN if name == "stopping" else SEEN[:-1]
    assert tuned
    for passes, records, batch, noise in tuned:
        assert passes == round(1 / RATE)  # whatever the number of records
        assert batch == pytest.approx(RATE * RECORDS * share)
        assert noise == plan.noise_multiplier
        assert (records == RECORDS) == (name == "stopping")
    if name == "subset":
        assert SEEN[-1][2] == pytest.approx(RATE * RECORDS * 0.75)
    assert selection.params["lr"] > 0


LINES = {
    "fixed loader": "not drawn at the declared rate",
    "fixed batches": "'poisson_sampling=False'",
    "other batch size": "has batch_size 50 but the declared rate and number of records make 20",
    "other records": "other records than it was given",
    "reads first": "call engine.make_private",
    "less noise": "used noise",
    "more noise": "which is less",
    "other clip": "clips to 0.5 but declared a clip norm of 1",
    "fewer steps": "declares 20 steps but takes 10",
    "more steps": "declares 20 steps but takes more",
}


@pytest.mark.parametrize("wrong", LINES)
def test_a_mismatch_is_seen_on_blank_records(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dptune.methods.blank import blank_records  # noqa: PLC0415 - for this test alone

    monkeypatch.setattr(sys.modules[__name__], "WRONG", wrong)
    with pytest.raises(InvalidInput, match=LINES[wrong]):
        made().preflight({"lr": 0.5, "noise_multiplier": 1.0}, blank_records(DATA), Randomness.rehearsal(0))


def test_what_opacus_does_right_passes_on_blank_records() -> None:
    from dptune.methods.blank import blank_records  # noqa: PLC0415 - for this test alone

    made().preflight({"lr": 0.5, "noise_multiplier": 1.0}, blank_records(DATA), Randomness.rehearsal(0))


_RUN = """
import sys
from tests.integrations import test_opacus_runs as here
import dptune as dpt
from dptune.errors import InvalidInput
ledger = dpt.Ledger.create(sys.argv[1] + "/one.ledger")
ledger.add("dots", 5, 1e-3)
for place, wrong in enumerate(sys.argv[2:]):
    source = here.train
    def train(params, loader, engine, wrong=wrong):
        here.WRONG = wrong
        return source(params, loader, engine)
    trainer = here.opacus_trainer(cost=here._cost, records=here.RECORDS, clip=1.0)(train)
    plan = here.METHODS["subset" if place % 2 else "stopping"][0].plan(dpt.Budget(4, 1e-3), trainer)
    try:
        dpt.run(plan, trainer, here.DATA, ledger=ledger, dataset="dots", out=f"{sys.argv[1]}/{place}", explain=None)
    except InvalidInput as error:
        print(wrong, "|", error)
print("charges", len(ledger.charges()))
"""


@pytest.mark.slow
def test_every_mismatch_is_refused_before_the_charge(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _RUN, str(tmp_path), *LINES],
        capture_output=True, text=True, cwd=EXAMPLES.parent, check=True, timeout=900,
    ).stdout.splitlines()  # fmt: skip
    assert [line.split(" | ")[0] for line in told[:-1]] == list(LINES)
    for line, words in zip(told, LINES.values(), strict=False):
        assert words in line
    assert told[-1] == "charges 0"


def test_a_mismatch_in_a_sealed_run_charges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(tmp_path / "one.ledger")
    ledger.add("dots", 5, 1e-3)

    def wrong(params: Any, loader: Any, engine: Any) -> tuple[Any, float]:
        module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
        made = {"module": module, "optimizer": torch.optim.SGD(module.parameters(), lr=params["lr"])}
        noise = {"noise_multiplier": params["noise_multiplier"], "max_grad_norm": 1.0}
        module, optimizer, _ = engine.make_private(**made, **noise, data_loader=loader)
        for x, y in torch.utils.data.DataLoader(loader.dataset, batch_size=8):  # fixed batches
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(module(x), y))
            optimizer.step()
        return module, 0.5

    trainer = opacus_trainer(cost=_cost, records=RECORDS)(wrong)
    plan = METHODS["subset"][0].plan(dpt.Budget(4, 1e-3), trainer)
    with pytest.raises(InvalidInput, match="not drawn at the declared rate"):
        dpt.run(plan, trainer, DATA, ledger=ledger, dataset="dots", out=tmp_path / "run", explain=None)
    assert ledger.charges() == []


def test_the_rate_must_not_be_tuned() -> None:
    trainer = opacus_trainer(cost=lambda p: dpt.DpSgd(p["rate"] / 10, 1.0, 5), records=100)(train)
    assert isinstance(trainer, OpacusLoaderTrainer)
    with pytest.raises(InvalidInput, match="must not depend on a tuned parameter"):
        trainer.declared_batch  # noqa: B018 - a property
    epochs = opacus_trainer(cost=lambda p: dpt.DpSgd(0.1, p["noise_multiplier"], 10 * p["epochs"]), records=100)(train)
    assert isinstance(epochs, OpacusLoaderTrainer)
    assert epochs.declared_batch == 10.0


def test_only_data_sets_are_taken() -> None:
    with pytest.raises(InvalidInput, match="train on a dptune Dataset; got list"):
        made().check({}, [1, 2, 3])


def _code(name: str) -> list[str]:
    return (EXAMPLES / name).read_text().split('"""', 2)[2].splitlines()


def test_the_example_changes_six_lines() -> None:
    before, after = _code("opacus_before.py"), _code("opacus_mnist.py")
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ") and line[2:].strip()]
    removed, added = (sum(line.startswith(sign) for line in changes) for sign in "-+")
    assert max(removed, added) <= 6
    assert max(len(before), len(after)) < 40


def _run(folder: Path, *command: str) -> str:
    told = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        capture_output=True, text=True, cwd=folder, check=False,
        env={**os.environ, "DPTUNE_LEDGER": str(folder / "own.ledger")},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_the_examples_run(tmp_path: Path) -> None:
    assert "accuracy" in _run(tmp_path, str(EXAMPLES / "opacus_before.py"), "digits", "1")
    assert "epsilon 4.0" in _run(tmp_path, str(EXAMPLES / "opacus_mnist.py"), "digits", "1")


_MNIST = """
import sys
import dptune as dpt
method, example = sys.argv[1:]
sys.argv, sys.path[:0] = ["", "mnist", "1"], [example]
import opacus_mnist as made
space, runs = dpt.Space(lr=dpt.Float(0.1, 2, log=True)), dpt.Geometric(2)
stopping = dpt.RandomStopping(space, runs)
chosen = stopping if method == "stopping" else dpt.Subset(stopping, fraction=0.1)
data = dpt.Dataset(made.X.numpy(), made.DATA.train.y, 10, name="mnist")
plan = chosen.plan(dpt.Budget(4, 1e-5), made.train)
release = dpt.run(plan, made.train, data, dataset="mnist", explain=None)
found = release.model.predict(made.TEST.numpy())
print(release.outcome, f"{release.epsilon:.2f}", (found == made.DATA.test.y).mean())
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["stopping", "subset"])
def test_the_example_releases_on_mnist(tmp_path: Path, method: str) -> None:
    if not (Path(os.environ.get("DPTUNE_DATA", "")) / "mnist").is_dir():
        pytest.skip("DPTUNE_DATA names no folder with mnist/")
    told = _run(tmp_path, "-c", _MNIST, method, str(EXAMPLES))
    print(method, told)
    assert told.startswith("model 4.00 ")


def _as_opacus_writes_it(params: Any, loader: Any, PrivacyEngine: Any) -> tuple[Any, float]:
    """Makes its own engine, by the line that a program of Opacus has, and gives back a state dict."""
    privacy_engine = PrivacyEngine(secure_mode=False)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    module, optimizer, loader = privacy_engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=params["lr"]),
        data_loader=loader,
        noise_multiplier=params["noise_multiplier"],
        max_grad_norm=1.0,
    )
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(module(x), y))
            optimizer.step()
    return module.state_dict(), privacy_engine.accountant.get_epsilon(delta=1e-3)


PASSES: dict[str, Any] = {"batch": 20, "epochs": 2, "records": RECORDS, "shape": (1, 4, 4), "classes": 2}


def test_a_program_of_opacus_keeps_the_line_that_makes_its_engine() -> None:
    trainer = opacus_trainer(**PASSES)(_as_opacus_writes_it)
    params = {"lr": 0.5, "noise_multiplier": 1.0}
    assert trainer.cost(params) == dpt.DpSgd(0.1, 1.0, 20)
    fitted = trainer.preflight(params, DATA, Randomness.rehearsal(0))
    assert list(fitted.model) == ["1.weight", "1.bias"]  # the module's own names, not those of what is around it
    torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2)).load_state_dict(fitted.model)


def test_a_secure_generator_of_opacus_is_refused() -> None:
    def train(params: Any, loader: Any, engine: Any) -> tuple[Any, float]:
        return engine(secure_mode=True), 0.0

    with pytest.raises(InvalidInput, match="draws its noise from its own secret"):
        opacus_trainer(**PASSES)(train).fit({"noise_multiplier": 1.0}, DATA, Randomness.rehearsal(0))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cost": _cost, "epochs": 2}, "Say what one run costs once"),
        ({"batch": 20, "epochs": 2}, "give 'batch', 'epochs' and 'records'"),
        ({}, "'cost' must be a DpSgd cost"),
        ({"batch": 20, "epochs": 0, "records": 200}, "'epochs' must be"),
        ({"batch": 300, "epochs": 1, "records": 200}, "'batch' is 300, more than the 200 'records'"),
        ({"cost": _cost, "shape": (1, 4, 4)}, "give 'records' too"),
        ({"cost": _cost, "records": 200, "shape": "wide"}, "'shape' must be the shape of one record"),
    ],
)
def test_what_a_run_costs_is_said_once(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        opacus_trainer(**given)


class Pairs(torch.utils.data.Dataset):  # type: ignore[misc,name-defined] # torch is optional here, so untyped
    """Records that are read one by one, as those of torchvision."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return torch.from_numpy(X[place]), int(Y[place])


def test_the_trainer_says_what_its_records_are() -> None:
    from dptune.planner.incoming import Declared, bring_in  # noqa: PLC0415 - for this test alone

    trainer = opacus_trainer(**PASSES)(_as_opacus_writes_it)
    for data in (Pairs(), (X, Y), torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))):
        made = bring_in(data, Declared(), trainer).data
        assert (made.classes, made.x.shape) == (2, (RECORDS, 1, 4, 4))
        assert (made.x == X).all()
        assert (made.y == Y).all()
    with pytest.raises(InvalidInput, match="needs 'shape'"):
        bring_in(Pairs(), Declared(), opacus_trainer(cost=_cost, records=RECORDS)(train))
    other = bring_in(Pairs(), Declared(classes=3), trainer).data  # the caller's word is the last
    assert other.classes == 3
