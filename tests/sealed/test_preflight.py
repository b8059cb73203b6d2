"""What follows from public things is refused before the charge: a run is tried on blank records, by its very path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import DATA, Inline, ToyTrainer, is_blank, toy_plan

import dptune as dpt
from dptune.accounting import Cost, Gdp
from dptune.errors import InvalidInput
from dptune.executors import Processes
from dptune.ledgers import Ledger
from dptune.methods.blank import NoBlank, blank_records
from dptune.methods.plan import Plan
from dptune.sealed import read_rehearsal, run
from dptune.training import DpSgdTrainer, Settings, softmax

SPACE = dpt.Space(lr=dpt.Float(0.1, 1.0))
LAW = dpt.Geometric(2)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger.create(tmp_path / "h.ledger")
    book.add("icu", 10.0, 1e-4)
    return book


def _refused(ledger: Ledger, plan: Plan, trainer: Any, data: Any, **options: Any) -> str:
    """What is said; nothing is charged and nothing is left."""
    out = ledger.path.parent / "run"
    with pytest.raises(InvalidInput) as caught:
        run(plan, trainer, data, out=out, ledger=ledger, dataset="icu", **{"executor": Inline(), **options})
    assert ledger.status("icu").charges == 0
    assert not out.exists()
    said = str(caught.value)
    assert said.lower().count("nothing was charged") <= 1
    assert "\n" not in said
    return said


# Blank records.


class Counted:
    """Data of a kind of its own, which says when its records are looked at."""

    def __init__(self, records: list[float], kind: str = "take") -> None:
        self.records, self.kind = records, kind

    def __len__(self) -> int:
        return len(self.records)

    def take(self, index: Any) -> Counted:
        assert len(index) == 0, "a record was looked at"
        return Counted([])


def test_blank_records_have_the_form_of_the_private_ones_and_nothing_else() -> None:
    given = dpt.Dataset(np.full((50, 3), 0.25), np.full(50, 2), 7, "icu", feature_range=(0.0, 0.5))
    other = dpt.Dataset(np.zeros((2, 3)), np.zeros(2, int), 7, "icu", feature_range=(0.0, 0.5))
    made = blank_records(given)
    assert set(made.y) == set(range(7))
    assert (made.classes, made.name, made.feature_range) == (7, "icu", (0.0, 0.5))
    assert made.x.dtype == given.x.dtype
    assert made.x.max() <= 0.5
    assert (made.x == blank_records(other).x).all()
    assert len(made) == len(blank_records(other))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.uint8, bool])
def test_blank_arrays_keep_type_and_shape(kind: Any) -> None:
    x, y = blank_records((np.ones((3, 4, 5), kind), np.full(3, 9)))
    assert x.dtype == kind
    assert x.shape[1:] == (4, 5)
    assert set(y) == {0, 1}
    assert blank_records(np.ones(3, kind)).dtype == kind


def test_data_of_other_kinds_gives_no_records_at_all() -> None:
    assert blank_records([1, 2, 3]) == []
    assert len(blank_records(Counted([1.0, 2.0]))) == 0
    assert len(blank_records((["a"], np.zeros(1)))[0]) == 0
    assert len(blank_records(np.array([{}], object))) == 0
    with pytest.raises(NoBlank):
        blank_records({"a": 1})


def test_data_may_say_itself_what_blank_ones_look_like() -> None:
    class Own:
        def blank(self) -> list[str]:
            return ["blank"]

    assert blank_records(Own()) == ["blank"]


# Trainers that fail whatever the records.


@dataclass(frozen=True)
class Failing:
    """Raises, exits, or returns what cannot be stored."""

    how: str

    def cost(self, params: Any) -> Cost:
        return Gdp(0.5)

    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        if self.how == "raises":
            raise RuntimeError("no\nmodel here")
        if self.how == "exits":
            raise SystemExit("no model here")
        if self.how == "odd":
            return Counted([]), 1.0
        return {"scores but no pair": 1}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "RuntimeError: no model here"),
        ("exits", "SystemExit: no model here"),
        ("odd", "A model of type Counted cannot be stored in a file that is safe to open"),
        ("wrong", "KeyError"),
    ],
)
@pytest.mark.parametrize("data", [DATA, list(DATA)])
def test_a_trainer_that_always_fails_is_refused(ledger: Ledger, how: str, said: str, data: Any) -> None:
    found = _refused(ledger, toy_plan(count=2), Failing(how), data)
    assert said in found
    assert ("There were no records" in found) == isinstance(data, list)


def test_a_pickle_that_is_asked_for_is_not_refused(ledger: Ledger, tmp_path: Path) -> None:
    options: dict[str, Any] = {"out": tmp_path / "run", "ledger": ledger, "dataset": "icu", "executor": Inline()}
    release = run(toy_plan(count=2), Failing("odd"), DATA, pickle=True, **options)
    assert release.details["model"] == "model.pickle"
    assert "PICKLE, which the run was asked for by name" in release.statement


class _Dying(ToyTrainer):
    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        import os  # noqa: PLC0415
        import signal  # noqa: PLC0415

        os.kill(os.getpid(), signal.SIGKILL)


def test_a_trainer_that_always_kills_its_process_is_refused(ledger: Ledger) -> None:
    said = _refused(ledger, toy_plan(count=1), _Dying(), DATA, executor=Processes(1))
    assert "the worker process died" in said


class _SometimesFailing(ToyTrainer):
    """Fails on half of all candidates, blank or not."""

    def fit(self, params: Any, data: Any, rng: Any) -> Any:
        if params["x"] < 1.5:
            raise RuntimeError("diverged")
        return super().fit(params, data, rng)


def test_a_trainer_that_fails_for_some_candidates_is_not_refused(ledger: Ledger, tmp_path: Path) -> None:
    options: dict[str, Any] = {"ledger": ledger, "dataset": "icu", "executor": Inline()}
    run(toy_plan(count=2), _SometimesFailing(), DATA, out=tmp_path / "run", **options)
    assert ledger.status("icu").charges == 1


def test_whether_a_run_is_refused_depends_on_no_record_and_not_on_their_number(ledger: Ledger, tmp_path: Path) -> None:
    seen: list[Any] = []

    class Watching(ToyTrainer):
        def fit(self, params: Any, data: Any, rng: Any) -> Any:
            if is_blank(data):
                seen.append((params["x"], data.tolist(), rng.random()))
            return super().fit(params, data, rng)

    for place, data in enumerate((DATA, DATA[:7] + 3.0, np.full(90, np.nan))):
        run(toy_plan(count=1), Watching(), data, out=tmp_path / str(place), executor=Inline(), data_is="synthetic")
    assert len(seen) == 3  # a last one of NaN alone is not taken for blank
    assert seen[0] == seen[1] == seen[2]


def test_a_rehearsal_goes_on_and_tells(tmp_path: Path) -> None:
    out = tmp_path / "run"
    release = run(toy_plan(count=2), Failing("raises"), DATA, out=out, seed=1, data_is="synthetic", executor=Inline())
    assert release.outcome == "no model"
    said = " ".join(read_rehearsal(out).warnings())
    assert "It would be refused before its charge: RuntimeError: no model here" in said
    assert "2 of 2 trainings failed" in said


# Types and shapes.


def _trainer(**changes: Any) -> DpSgdTrainer:
    settings = Settings(0.2, 1.0, steps=3, clip_norm=1.0, learning_rate=0.5, batch_size=20.0)
    public = dpt.Dataset(np.zeros((4, 3)), np.arange(4) % 2, 2, public=True)
    return DpSgdTrainer(**{"model": softmax(3, 2), "settings": settings, "validation": public, **changes})


def test_arrays_instead_of_a_dataset_are_refused(ledger: Ledger) -> None:
    plan = dpt.RandomStopping(SPACE, LAW).plan(dpt.Budget(3, 1e-4), _trainer())
    said = _refused(ledger, plan, _trainer(), (np.zeros((100, 3)), np.zeros(100)))
    assert "DP-SGD trains on a dptune Dataset; got tuple. Make one of arrays" in said


def test_a_class_that_only_some_records_have_is_tried(ledger: Ledger) -> None:
    """A model with too few outputs fails on the records of the last classes alone."""
    torch = pytest.importorskip("torch")
    trainer = _trainer(model=lambda params: torch.nn.Sequential(torch.nn.Linear(3, 2)), validation=None)
    data = dpt.Dataset(np.zeros((50, 3)), np.zeros(50, int), 3)
    method = dpt.RandomStopping(SPACE, LAW, validation=dpt.PrivateValidation(0.2, 10))
    _refused(ledger, method.plan(dpt.Budget(3, 1e-4), trainer), trainer, data)


# Opacus.


def _opacus(declared: int, epochs: int, *, module: Callable[[], Any] | None = None, **options: Any) -> Any:
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    from dptune.integrations.opacus import opacus_trainer  # noqa: PLC0415 - optional dependency

    @opacus_trainer(cost=lambda params: dpt.DpSgd(0.25, params.get("noise_multiplier", 1.0), declared), **options)
    def train(params: Any, data: Any, engine: Any) -> Any:
        made = torch.nn.Sequential(torch.nn.Linear(3, 2)) if module is None else module()
        optimizer = torch.optim.SGD(made.parameters(), lr=params["lr"])
        loader = torch.utils.data.DataLoader(data, batch_size=10)
        noise = params.get("noise_multiplier", 1.0)
        private, optimizer, loader = engine.make_private(
            module=made, optimizer=optimizer, data_loader=loader, noise_multiplier=noise, max_grad_norm=1.0
        )
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(private(x), y).backward()
                optimizer.step()
        return private, 0.5

    return train


def _tensors(count: int = 40) -> Any:
    torch = pytest.importorskip("torch")
    return torch.utils.data.TensorDataset(torch.zeros(count, 3), torch.zeros(count, dtype=torch.long))


def _plan(trainer: Any, part: float | None = None) -> Plan:
    method: Any = dpt.RandomStopping(SPACE, LAW)
    return (method if part is None else dpt.Subset(method, part)).plan(dpt.Budget(3, 1e-4), trainer)


@pytest.mark.filterwarnings("ignore")
def test_opacus_trains_as_declared_and_its_module_is_stored(ledger: Ledger, tmp_path: Path) -> None:
    trainer = _opacus(8, 2)
    options: dict[str, Any] = {"ledger": ledger, "dataset": "icu", "executor": Inline(), "out": tmp_path / "run"}
    release = run(_plan(trainer), trainer, _tensors(), **options)
    assert release.details["model"] == "model.safetensors"
    assert release.model.predict(np.zeros((2, 3))).shape == (2,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("declared", "said"), [(7, "takes more than that"), (9, "takes 8")])
def test_a_number_of_steps_that_is_off_by_one_is_refused(ledger: Ledger, declared: int, said: str) -> None:
    trainer = _opacus(declared, 2)
    assert f"declares {declared} steps but {said}" in _refused(ledger, _plan(trainer), trainer, _tensors())


@pytest.mark.filterwarnings("ignore")
def test_a_function_may_say_that_its_steps_vary(ledger: Ledger, tmp_path: Path) -> None:
    trainer = _opacus(9, 2, exact_steps=False)
    options: dict[str, Any] = {"ledger": ledger, "dataset": "icu", "executor": Inline(), "out": tmp_path / "run"}
    assert run(_plan(trainer), trainer, _tensors(), **options).outcome == "model"


def test_a_tensor_dataset_of_which_parts_are_needed_is_refused(ledger: Ledger) -> None:
    trainer = _opacus(8, 2)
    said = _refused(ledger, _plan(trainer, 0.3), trainer, _tensors())
    assert "Cannot take a part of TensorDataset" in said


@pytest.mark.filterwarnings("ignore")
def test_batch_normalisation_is_refused(ledger: Ledger) -> None:
    torch = pytest.importorskip("torch")
    layers = (torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    trainer = _opacus(8, 2, module=lambda: torch.nn.Sequential(*layers))
    assert "BatchNorm" in _refused(ledger, _plan(trainer), trainer, _tensors())
