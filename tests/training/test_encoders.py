"""Public encoders: the same bits in every company, zeros for what cannot be encoded, and a name that others can use."""

from __future__ import annotations

import hashlib
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.executors.models import open_model, pack_model
from dptune.training import PublicEncoder, TrainedModel, softmax
from dptune.training.encoders import _KNOWN, encoder_of, importable, named_encoder

ZEROS = "0" * 64
ROWS = np.random.default_rng(0).normal(size=(23, 12)).astype(np.float32)


def picky(row: Any) -> Any:
    """Raises, exits, shouts, draws and answers oddly, each for some records."""
    if row[0] > 1.2:
        raise ValueError(str(row))
    if row[0] < -1.2:
        sys.exit(3)
    print("record", row)
    if row[1] > 1.0:
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 - what users' code may do
    if row[1] < -1.0:
        return row[:2]
    return np.append(row[:4] * row[4:8], np.random.normal())  # noqa: NPY002 - as above


def network(torch: Any) -> Any:
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8 * 6 * 6, 20)
    )


def test_a_record_has_the_same_bits_in_every_company(capsys: pytest.CaptureFixture[str]) -> None:
    encoder = PublicEncoder("somewhere:picky", picky, 5, shape=(12,), weights=ZEROS)
    alone = np.concatenate([encoder.encode(row[None]) for row in ROWS])
    zeros = (np.abs(ROWS[:, 0]) > 1.2) | (ROWS[:, 1] < -1.0)
    assert 0 < zeros.sum() < len(ROWS)
    assert np.array_equal(~alone.any(axis=1), zeros)
    assert np.allclose(np.linalg.norm(alone[~zeros], axis=1), 1, atol=1e-5)
    np.random.seed(5)  # noqa: NPY002 - what is drawn does not depend on it
    state = np.random.get_state()[1].tobytes()  # type: ignore[index] # noqa: NPY002
    for size in (1, 2, 7, 23):
        order = np.random.default_rng(size).permutation(len(ROWS))[:size]
        assert encoder.encode(ROWS[order]).tobytes() == alone[order].tobytes()
    assert np.random.get_state()[1].tobytes() == state  # type: ignore[index] # noqa: NPY002
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("batch", [1, 8])
def test_torch_modules(batch: int) -> None:
    torch = pytest.importorskip("torch")
    images = np.random.default_rng(1).normal(size=(19, 3, 8, 8)).astype(np.float32)
    images[4], images[7] = np.nan, 3e38
    module = network(torch)
    encoder = PublicEncoder("somewhere:net", module, 20, shape=(3, 8, 8), batch=batch)
    assert not module.training
    alone = np.concatenate([encoder.encode(image[None]) for image in images])
    assert not alone[4].any()
    for size in (1, 2, 9, 19):
        order = np.random.default_rng(size).permutation(19)[:size]
        assert encoder.encode(images[order]).tobytes() == alone[order].tobytes()
    flat = images.reshape(19, -1)
    assert encoder.encode(flat).tobytes() == alone.tobytes()
    with torch.inference_mode():
        known = module(torch.from_numpy(images[:1])).numpy()[0]
    known = known - known.mean()
    assert np.allclose(alone[0], known / np.linalg.norm(known), atol=1e-5)


def test_a_module_whose_records_see_each_other_is_given_one_at_a_time() -> None:
    torch = pytest.importorskip("torch")

    class Peers(torch.nn.Module):  # type: ignore[misc,name-defined] # optional
        def forward(self, x: Any) -> Any:
            return torch.cat([x, x[:, :1] / x.abs().max()], dim=1)

    encoder = PublicEncoder("somewhere:peers", Peers(), 13, shape=(12,), batch=8)
    assert encoder._together == 1
    alone = np.concatenate([encoder.encode(row[None]) for row in ROWS])
    assert encoder.encode(ROWS).tobytes() == alone.tobytes()
    linear = PublicEncoder(
        "somewhere:linear",
        torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.ConstantPad1d((0, 1), 0.0)),
        13,
        shape=(3, 4),
        batch=4,
    )
    assert linear._together == 4


def test_texts() -> None:
    encoder = PublicEncoder("somewhere:lengths", lambda text: [len(text), text.count("a"), 1], 3, weights=ZEROS)
    found = encoder.encode(["banana", None, "aa"])
    assert found[0].any()
    assert not found[1].any()
    assert np.array_equal(encoder.encode(np.array(["banana"])), found[:1])


def test_hashes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    first, second = network(torch), network(torch)
    one = PublicEncoder("somewhere:one", first, 20, shape=(3, 8, 8))
    assert one.sha256 == PublicEncoder("somewhere:one", second, 20, shape=(3, 8, 8)).sha256
    with torch.no_grad():
        second[0].bias += 1
    assert one.sha256 != PublicEncoder("somewhere:one", second, 20, shape=(3, 8, 8)).sha256
    (tmp_path / "weights").write_bytes(b"w")
    made = PublicEncoder("somewhere:file", picky, 5, shape=(12,), weights=tmp_path / "weights")
    assert made.sha256 == hashlib.sha256(b"w").hexdigest()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "no name"}, "'package.module:attribute'"),
        ({"weights": None}, "what the encoder"),
        ({"function": 3}, "a function or a torch module"),
        ({"width": 12}, "encoded already"),
    ],
)
def test_refused(given: dict[str, Any], said: str) -> None:
    usual: dict[str, Any] = {"name": "a:b", "function": picky, "width": 5, "shape": (12,), "weights": ZEROS}
    with pytest.raises(InvalidInput, match=said):
        PublicEncoder(**{**usual, **given})


MODULE = """
import numpy as np
from dptune.training import PublicEncoder

def halves(row):
    if row[0] > 0.95:
        raise ValueError("odd")
    return np.concatenate([row[:32] ** 2, row[32:], [0.0]])

encoder = PublicEncoder("toy_encoder:encoder", halves, 65, shape=(64,), weights="0" * 64)
other = PublicEncoder("toy_encoder:encoder_two", halves, 65, shape=(64,), weights="1" * 64)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "toy_encoder.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "toy_encoder", raising=False)
    yield named_encoder("toy_encoder:encoder")
    _KNOWN.pop("toy_encoder:encoder", None)
    sys.modules.pop("toy_encoder", None)


def test_a_model_names_its_encoder_and_imports_nothing(toy: PublicEncoder) -> None:
    description = softmax(65, 3)
    flat = np.random.default_rng(3).normal(size=description.dimension).astype(np.float32)
    content = pack_model(TrainedModel(description, flat, prepared=toy.key))
    rows = np.random.default_rng(4).random((6, 64), dtype=np.float32)
    wanted = open_model(content).predict(rows)
    assert np.array_equal(wanted, open_model(content).predict(toy.encode(rows)))
    del sys.modules["toy_encoder"]
    _KNOWN.pop(toy.name)
    model = open_model(content)  # data: opening it imports nothing
    assert "toy_encoder" not in sys.modules
    with pytest.raises(InvalidInput, match="Import it first"):
        model.predict(rows)
    assert "toy_encoder" not in sys.modules
    PublicEncoder(toy.name, toy.function, 65, shape=(64,), weights="2" * 64)
    with pytest.raises(InvalidInput, match="other weights"):
        model.predict(rows)


def test_encoders_that_nobody_could_import_are_refused(toy: PublicEncoder) -> None:
    assert importable(toy) is toy
    assert encoder_of(toy.key).name == toy.name
    for name in ("toy_encoder:nothing", "toy_encoder:other", "no_such_module:encoder", "__main__:encoder"):
        with pytest.raises(InvalidInput):
            named_encoder(name)
    with pytest.raises(InvalidInput, match="is another one"):
        importable(PublicEncoder("toy_encoder:encoder", picky, 65, shape=(64,), weights="3" * 64))


def test_weights_that_every_import_draws_anew_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    code = """
import torch
from dptune.training import PublicEncoder
{seed}
encoder = PublicEncoder("{name}:encoder", torch.nn.Linear(4, 3), 3, shape=(4,))
"""
    (tmp_path / "drawn_anew.py").write_text(code.format(seed="", name="drawn_anew"))
    (tmp_path / "drawn_once.py").write_text(code.format(seed="torch.manual_seed(3)", name="drawn_once"))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidInput, match="whenever it is imported"):
        named_encoder("drawn_anew:encoder")
    once = named_encoder("drawn_once:encoder")
    assert encoder_of(once.key) is once


class Silent(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def test_an_error_that_cannot_be_told_is_about_its_record_alone() -> None:
    def odd(row: Any) -> Any:
        if row[0] > 9:
            raise Silent
        return row[:2] * [1, 2]

    made = PublicEncoder("somewhere:silent", odd, 2, shape=(3,), weights=ZEROS).encode(
        np.array([[1, 2, 3], [10, 0, 0]])
    )
    assert made[0].any()
    assert not made[1].any()


def test_a_module_that_asks_for_the_scale_of_a_batch_is_given_single_records() -> None:
    torch = pytest.importorskip("torch")

    class Scales(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(x / 255 if (x > 1).any() else x)

    made = PublicEncoder("somewhere:scales", Scales(), 3, shape=(64,), batch=4)
    rows = np.random.default_rng(0).random((4, 64))
    other = rows.copy()
    other[2] *= 255
    assert np.array_equal(made.encode(rows)[[0, 1, 3]], made.encode(other)[[0, 1, 3]])


@pytest.mark.parametrize("shape", [(64,), (1, 8, 8), (4, 16)])
def test_as_many_outputs_as_inputs_are_refused_whatever_the_shape(shape: tuple[int, ...]) -> None:
    """Rows of 64 pixels and rows of 64 outputs look alike, so a model would take one for the other."""
    with pytest.raises(InvalidInput, match="turns 64 numbers into 64"):
        PublicEncoder("somewhere:same", picky, 64, shape=shape, weights=ZEROS)
    assert PublicEncoder("somewhere:other", picky, 65, shape=shape, weights=ZEROS).width == 65
