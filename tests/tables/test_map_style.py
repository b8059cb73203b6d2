"""Map-style torch data sets: read record by record, and whatever one record does is about that record alone."""

from __future__ import annotations

import os
import random
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dptune.errors import InvalidInput
from dptune.planner import tune
from dptune.planner.incoming import Declared, bring_in
from dptune.regression import RegressionDataset
from dptune.tables import array_dataset, array_regression, array_units
from dptune.tables.map_style import read_map_style, record_shape
from dptune.training import Cnn, DpSgdTrainer, Settings
from dptune.training.models import Conv
from dptune.units import UnitDataset

SHAPE = (1, 4, 3)
COUNT = 9
BAD = 4


class Images(torch.utils.data.Dataset[Any]):
    """Images with a random shift, which other records must not be able to change; one record is read by ``odd``."""

    def __init__(self, odd: Callable[[], Any] | None = None, count: int = COUNT) -> None:
        self.odd, self.count = odd, count
        self.x = torch.rand((count, *SHAPE), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> Any:
        if place == BAD and self.odd is not None:
            return self.odd()
        shift = float(torch.rand(())) + random.random() + np.random.rand()  # noqa: NPY002 - as users do
        return self.x[place] + shift, place % 3


def _raises(error: BaseException) -> Callable[[], Any]:
    def read() -> Any:
        raise error

    return read


def _draws() -> Any:
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002 - as users do
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("error")
    return torch.zeros(SHAPE), 1


def _prints() -> Any:
    print("patient 17")
    print("patient 17", file=sys.stderr)
    warnings.warn("patient 17", stacklevel=1)
    raise ValueError("patient 17")


MISSING: dict[str, Callable[[], Any]] = {
    "raises": _raises(ValueError("patient 17")),
    "exits": _raises(SystemExit(3)),
    "interrupts": _raises(KeyboardInterrupt()),
    "no memory": _raises(MemoryError()),
    "prints": _prints,
    "other shape": lambda: (torch.zeros((1, 4, 4)), 1),
    "fewer dimensions": lambda: (torch.zeros((4, 3)), 1),
    "a scalar": lambda: (torch.tensor(1.0), 1),
    "complex": lambda: (torch.zeros(SHAPE, dtype=torch.complex64), 1),
    "text": lambda: ("patient 17", 1),
    "none": lambda: None,
    "no label": lambda: (torch.zeros(SHAPE),),
    "three": lambda: (torch.zeros(SHAPE), 1, 2),
    "a list of labels": lambda: (torch.zeros(SHAPE), [1, 2]),
    "several labels": lambda: (torch.zeros(SHAPE), torch.tensor([1, 2])),
    "sparse": lambda: (torch.zeros(SHAPE).to_sparse(), 1),
}


@pytest.mark.parametrize("odd", MISSING.values(), ids=MISSING)
def test_a_bad_record_is_missing_and_changes_nothing_else(
    odd: Callable[[], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    clean, _ = read_map_style(Images(), 3, SHAPE)
    found, repairs = read_map_style(Images(odd), 3, SHAPE)
    others = [place for place in range(COUNT) if place != BAD]
    assert np.array_equal(found.x[others], clean.x[others])
    assert np.array_equal(found.y[others], clean.y[others])
    assert not found.x[BAD].any()
    assert found.y[BAD] == 0
    assert repairs == {"missing records": 1}
    assert capfd.readouterr() == ("", "")


def test_a_record_leaves_no_state_behind() -> None:
    clean, _ = read_map_style(Images(), 3, SHAPE)
    states = torch.get_rng_state(), random.getstate()
    found, repairs = read_map_style(Images(_draws), 3, SHAPE)
    others = [place for place in range(COUNT) if place != BAD]
    assert np.array_equal(found.x[others], clean.x[others])
    assert (repairs, torch.get_default_dtype()) == ({}, torch.float32)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


def test_a_record_more_changes_no_other() -> None:
    images = Images()
    fewer = torch.utils.data.Subset(images, list(range(1, COUNT)))
    whole, part = (read_map_style(one, 3, SHAPE)[0] for one in (images, fewer))
    assert np.array_equal(whole.x[1:], part.x)


VALUES: list[tuple[Any, Any]] = [
    (torch.full(SHAPE, 3, dtype=torch.uint8), 3.0),
    (torch.full(SHAPE, 0.5, dtype=torch.bfloat16), 0.5),
    (torch.full(SHAPE, 0.5, dtype=torch.float64, requires_grad=True), 0.5),
    (np.full(SHAPE, True), 1.0),
    (torch.full(SHAPE, float("nan")), 0.0),
    (np.full(SHAPE, 1e300), 1e12),
    ([[[1, 1, 1]] * 4], 1.0),
]


@pytest.mark.parametrize(("given", "kept"), VALUES)
def test_numbers_of_every_kind_are_taken_and_repaired(given: Any, kept: float) -> None:
    found, repairs = read_map_style(Images(lambda: (given, 1)), 3, SHAPE)
    assert found.x.dtype == np.float32
    assert repairs == {}
    assert np.array_equal(found.x[BAD], np.full(SHAPE, kept, np.float32))


@pytest.mark.parametrize("label", [3, -1, 0.5, float("nan"), 10**400, torch.tensor(7), "cat"])
def test_an_unknown_label_becomes_the_first_class(label: Any) -> None:
    found, _ = read_map_style(Images(lambda: (torch.ones(SHAPE), label)), 3, SHAPE)
    assert found.y[BAD] == 0
    assert found.x[BAD].all()


def test_labels_may_have_names() -> None:
    found, _ = read_map_style(Images(lambda: (torch.ones(SHAPE), torch.tensor([2]))), ["0", "2", "1"], SHAPE)
    assert found.y.tolist() == [0, 2, 1, 0, 1, 1, 0, 2, 1]


def test_public_records_are_inferred_or_refused() -> None:
    found, _ = read_map_style(Images(), None, None, public=True)
    assert (found.shape, found.classes) == (SHAPE, 3)
    for odd in MISSING.values():
        with pytest.raises(InvalidInput, match=f"Record {BAD} of the public data cannot be taken: "):
            read_map_style(Images(odd), None, None, public=True)


def test_what_is_public_of_a_torch_data_set_is_refused() -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(())

    class Endless(torch.utils.data.Dataset[Any]):
        pass

    one = torch.utils.data.TensorDataset(torch.zeros(3, 2))
    for data, line in ((Stream(), "one after the other"), (Endless(), "has no length"), (one, "must have two")):
        with pytest.raises(InvalidInput, match=line):
            bring_in(data, Declared(records=9, classes=3, shape=SHAPE), None)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"classes": 3, "shape": SHAPE}, "needs 'records'"),
        ({"records": 9, "shape": SHAPE}, "needs 'classes'"),
        ({"records": 9, "classes": 3}, "needs 'shape'"),
        ({"records": 9, "classes": 3, "shape": "big"}, "'shape' must be"),
        ({"records": 9, "classes": 3, "shape": (1, 0)}, "'shape' must be"),
    ],
)
def test_private_records_need_declared_figures(said: dict[str, Any], line: str) -> None:
    read: list[int] = []
    with pytest.raises(InvalidInput, match=line):
        bring_in(Images(lambda: read.append(1)), Declared(**said), None)
    assert not read


def test_shapes_are_declared_by_examples_and_networks() -> None:
    assert record_shape(torch.zeros(SHAPE)) == SHAPE
    assert record_shape(7) == (7,)
    settings = Settings(0.5, 1.0, steps=2, clip_norm=1.0, learning_rate=0.5, batch_size=4)
    trainer = DpSgdTrainer(Cnn(SHAPE, 3, (Conv(2, 2),)), settings)
    assert bring_in(Images(), Declared(classes=3), trainer).data.shape == SHAPE
    with pytest.raises(InvalidInput, match="has its own"):
        bring_in((np.zeros((3, 2)), np.zeros(3)), Declared(records=9, classes=3, shape=2), None)


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="signals cannot be raised here")
def test_a_real_interrupt_stops() -> None:
    def read() -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return torch.zeros(SHAPE), 1

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        read_map_style(Images(read), 3, SHAPE)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_bad_record_is_noted_in_the_vault_alone(tmp_path: Path) -> None:
    told = {"records": 1000, "classes": 3, "shape": SHAPE, "epsilon": 3, "delta": 1e-4, "explain": None}
    release = tune(Images(MISSING["raises"]), seed=1, data_is="synthetic", out=tmp_path / "run", **told)  # type: ignore[arg-type]
    assert release.model.predict(np.zeros((2, *SHAPE))).shape == (2,)
    for file in (tmp_path / "run" / "release").iterdir():
        assert b"missing records" not in file.read_bytes()


class _Rude:
    """What a label of a class of one's own may do when it is looked at."""

    error: BaseException = RuntimeError("seen")

    def _raise(self, *_: object) -> Any:
        raise self.error

    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = _raise
    __hash__ = __index__ = __int__ = __float__ = __bool__ = __str__ = __repr__ = _raise
    __floor__ = __abs__ = __trunc__ = strip = _raise


class RudeInt(_Rude, int):
    """A whole number."""


class RudeFloat(_Rude, float):
    """A number."""


class RudeText(_Rude, str):
    """A text."""


class RudeExit(_Rude, int):
    """One that ends the process."""

    error = SystemExit(3)


RUDE = {"int": RudeInt(2), "float": RudeFloat(2.0), "text": RudeText("2"), "exit": RudeExit(2), "none": _Rude()}


@pytest.mark.parametrize("classes", [3, ["0", "1", "2"]], ids=["number", "names"])
@pytest.mark.parametrize("kind", RUDE)
def test_a_label_whose_own_methods_raise_is_repaired_alone(kind: str, classes: Any) -> None:
    plain, _ = read_map_style(Images(), classes, SHAPE)
    label = RUDE[kind]
    data, _ = read_map_style(Images(lambda: (torch.zeros(SHAPE), label)), classes, SHAPE)
    others = np.arange(COUNT) != BAD
    assert np.array_equal(data.y[others], plain.y[others])
    assert data.x[others].tobytes() == plain.x[others].tobytes()
    known = kind != "none" and (kind != "text" or classes != 3)  # its value is taken, past its methods
    assert data.y[BAD] == (2 if known else 0)


@pytest.mark.parametrize("kind", RUDE)
def test_a_cell_whose_own_methods_raise_is_repaired_alone(kind: str) -> None:
    labels: list[Any] = ["1", "0", "2", "1"]
    plain = array_dataset(np.zeros((4, 1)), labels, ["0", "1", "2"])
    rude = array_dataset(np.zeros((4, 1)), [*labels[:2], RUDE[kind], "1"], ["0", "1", "2"])
    assert rude.y[[0, 1, 3]].tolist() == plain.y[[0, 1, 3]].tolist()
    numbers = array_regression(np.zeros((3, 1)), [1.0, RUDE[kind], 3], (0, 10)).y
    assert numbers[[0, 2]].tolist() == [1.0, 3.0]
    assert len(array_units(plain, ["a", RUDE[kind], "b", "a"], 2)) in (2, 3)
    assert len(UnitDataset(plain, ["a", RUDE[kind], "b", "a"], 2)) in (2, 3)


class Numbers(torch.utils.data.Dataset[Any]):
    """Targets that are numbers, some of them odd."""

    targets: tuple[Any, ...] = (1.5, torch.tensor(2.0), 10**400, "x", float("nan"), float("inf"), -7)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        return torch.ones(2), self.targets[place]


def test_targets_may_be_numbers() -> None:
    data, repairs = read_map_style(Numbers(), None, (2,), target_range=(0, 4))
    assert isinstance(data, RegressionDataset)
    assert data.y.tolist() == [1.5, 2.0, 2.0, 2.0, 2.0, 4.0, 0.0]
    assert repairs == {}
    taken = bring_in(Numbers(), Declared(records=7, target_range=(0, 4), shape=(2,)), None)
    assert taken.data.y.tolist() == data.y.tolist()
    with pytest.raises(InvalidInput, match="contradict"):
        bring_in(Numbers(), Declared(records=7, target_range=(0, 4), classes=2, shape=(2,)), None)


def test_public_targets_are_taken_for_numbers_as_those_of_arrays_are() -> None:
    class Many(Numbers):
        targets = tuple(place / 4 for place in range(30))

    seen = bring_in(Many(), Declared(public=True), None).data
    assert isinstance(seen, RegressionDataset)
    assert seen.target_range == (0.0, 7.25)
    assert bring_in(Many(), Declared(public=True, task="classification"), None).data.classes == 30

    class Words(Numbers):
        targets = ("a", "b") * 3 + ("a",)

    with pytest.raises(InvalidInput, match="targets that are not numbers"):  # they were taken for classes, unasked
        bring_in(Words(), Declared(public=True, task="regression"), None)


def test_a_loader_is_refused_with_what_to_give() -> None:
    loader = torch.utils.data.DataLoader(Numbers())
    with pytest.raises(InvalidInput, match=r"torch's DataLoader: give its data set, loader\.dataset"):
        bring_in(loader, Declared(records=7, classes=2), None)


def test_tensors_may_have_a_declared_shape() -> None:
    """As the page on torch data sets asks for it of all of them."""
    x, y = torch.zeros((6, *SHAPE)), torch.arange(6) % 3
    for data in (torch.utils.data.TensorDataset(x, y), (x, y)):
        assert bring_in(data, Declared(classes=3, records=6, shape=SHAPE), None).data.shape == SHAPE
        with pytest.raises(InvalidInput, match=r"'shape' says \(5,\), but the records of the tensors have"):
            bring_in(data, Declared(classes=3, records=6, shape=5), None)
