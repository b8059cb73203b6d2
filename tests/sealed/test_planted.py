"""Whatever somebody plants in a release folder, loading it and asking for its model runs nothing."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import DATA, Inline, ToyTrainer, toy_plan

import dptune as dpt
from dptune.errors import Corrupt, DptuneError, InvalidInput
from dptune.sealed import run


class Trap:
    """Makes a file in whoever unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("genuine") / "run"
    run(toy_plan(count=2), ToyTrainer(), DATA, out=out, executor=Inline(), seed=1, data_is="synthetic")
    return out


Plant = Callable[[Path, bytes], None]


def _state(folder: Path, **changes: Any) -> None:
    path = folder / "release.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _named(name: str, place: str | None = None) -> Plant:
    """The trap at a place, and a release.json that names it with its true hash."""

    def plant(folder: Path, trap: bytes) -> None:
        where = folder / (name if place is None else place)
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(trap)
        _state(folder, model=name, model_sha256=_digest(trap), files=[name])

    return plant


def _absolute(folder: Path, trap: bytes) -> None:
    where = folder.parent / "evil.pickle"
    where.write_bytes(trap)
    _state(folder, model=str(where), model_sha256=_digest(trap))


def _linked(name: str) -> Plant:
    def plant(folder: Path, trap: bytes) -> None:
        where = folder.parent / "evil"
        where.write_bytes(trap)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(where)
        _state(folder, model=name, model_sha256=_digest(trap))

    return plant


def _unhashed(value: Any) -> Plant:
    def plant(folder: Path, trap: bytes) -> None:
        (folder / "model.npz").write_bytes(trap)
        _state(folder, model_sha256=value)

    return plant


def _object_array(folder: Path, trap: bytes) -> None:
    array = np.empty(1, object)
    array[0] = Trap(Path(json.loads((folder / "trap.json").read_text())))
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, total=array)
    _named("model.npz")(folder, buffer.getvalue())


def _bare_array(folder: Path, trap: bytes) -> None:
    array = np.empty(1, object)
    array[0] = Trap(Path(json.loads((folder / "trap.json").read_text())))
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    _named("model.npz")(folder, buffer.getvalue())


def _zipped(description: Any, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model.json", json.dumps(description))
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _described(model: Any) -> Plant:
    def plant(folder: Path, trap: bytes) -> None:
        _named("model.npz")(folder, _zipped({"version": 1, "model": model}, array_0=trap))

    return plant


def _safetensors(described: Any) -> Plant:
    def plant(folder: Path, trap: bytes) -> None:
        target = json.loads((folder / "trap.json").read_text())
        said = json.dumps(described).replace("TARGET", target)
        header = json.dumps({"__metadata__": {"dptune": said, "trap": base64.b64encode(trap).decode()}}).encode()
        _named("model.safetensors")(folder, struct.pack("<Q", len(header)) + header)

    return plant


def _skops(schema: Any) -> Plant:
    def plant(folder: Path, trap: bytes) -> None:
        target = json.loads((folder / "trap.json").read_text())
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("schema.json", json.dumps(schema).replace("TARGET", target))
            archive.writestr("1.npy", trap)
        _named("model.skops")(folder, buffer.getvalue())

    return plant


def _deep(folder: Path, trap: bytes) -> None:
    (folder / "release.json").write_text("[" * 100_000)


def _node(loader: str, content: Any, number: int, kind: str = "builtins.dict") -> dict[str, Any]:
    module, _, name = kind.rpartition(".")
    node = {"__class__": name, "__module__": module, "__loader__": loader, "__id__": number, "content": content}
    return {**node, "key_types": {}, "protocol": 2, "_skops_version": "0.13"}


_CALL = _node(
    "PartialNode",
    {
        "func": _node("FunctionNode", {"module_path": "os", "function": "mkdir"}, 2, "os.mkdir"),
        "args": _node("TupleNode", [_node("JsonNode", '"TARGET"', 3, "builtins.str")], 4, "builtins.tuple"),
        "kwds": _node("DictNode", {}, 5),
        "namespace": _node("DictNode", {}, 6),
    },
    1,
    "functools.partial",
)
_REDUCED = _node("ObjectNode", _node("DictNode", {}, 2), 1, "tests.sealed.test_planted.Trap")
_NAMED = {
    "model.pickle": "model.pickle",
    "../evil.pickle": "../evil.pickle",
    "../../evil.pickle": "../../evil.pickle",
    "sub/model.npz": "sub/model.npz",
    "sub/../model.pickle": "model.pickle",
    "./model.npz": "model.npz",
    "evil.pickle": "evil.pickle",
    "model.joblib": "model.joblib",
    "model.pt": "model.pt",
    "MODEL.PICKLE": "MODEL.PICKLE",
    "model.npz\x00.pickle": "model.npz",
    "": "evil",
    ".": "evil",
    "..": "evil",
}
_LINEAR = {"in_features": 1, "out_features": 1, "dtype": "TARGET"}
_PARAMETERS = {
    "kind": "mlp",
    "features": 1,
    "classes": 2,
    "hidden": [],
    "activation": {"kind": "tanh"},
    "engine": "auto",
    "parameters": 0,
}
_PLANTS: dict[str, Plant] = {
    **{f"named {name!r}": _named(name, place) for name, place in _NAMED.items()},
    "absolute": _absolute,
    "link called model.npz": _linked("model.npz"),
    "link called model.pickle": _linked("model.pickle"),
    "pickle called npz": _named("model.npz"),
    "pickle called safetensors": _named("model.safetensors"),
    "pickle called skops": _named("model.skops"),
    **{f"hash {value!r}": _unhashed(value) for value in (None, "", 0, "*", ["a"])},
    "object array in an npz": _object_array,
    "object array in a bare npy": _bare_array,
    "pickle as a member of an npz": _described({"array": 0}),
    "unknown kind": _described({"pickle": 0}),
    "parameters of a model": _described({"trained": _PARAMETERS}),
    "engine of a model": _described({"trained": {**_PARAMETERS, "engine": "os:mkdir"}}),
    "deep description": _described(json.loads("[" * 900 + "]" * 900)),
    "factory in safetensors": _safetensors(
        {"kind": "factory", "factory": "os:mkdir", "params": "TARGET", "frozen": []}
    ),
    "layer in safetensors": _safetensors({"kind": "layers", "model": {"os.mkdir": {"path": "TARGET"}}, "frozen": []}),
    "argument in safetensors": _safetensors({"kind": "layers", "model": {"Linear": _LINEAR}, "frozen": []}),
    "call in skops": _skops(_CALL),
    "class in skops": _skops(_REDUCED),
    "model is a list": lambda folder, trap: _state(folder, model=["model.pickle"]),
    "model is a number": lambda folder, trap: _state(folder, model=1),
    "deep release.json": _deep,
}


@pytest.mark.parametrize("name", _PLANTS)
def test_nothing_that_is_planted_runs(name: str, genuine: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(genuine / "release", out / "release")
    sprung = tmp_path / "sprung"
    trap = pickle.dumps(Trap(sprung))
    (out / "release" / "trap.json").write_text(json.dumps(str(sprung)))
    _PLANTS[name](out / "release", trap)
    for folder in (out, out / "release"):
        with pytest.raises(DptuneError) as caught:
            _ = dpt.load_release(folder).model
        assert isinstance(caught.value, Corrupt | InvalidInput)
        assert not sprung.exists()
    pickle.loads(trap)
    assert sprung.exists()  # the control: whoever opens it is caught


def test_a_pipe_in_place_of_a_model_does_not_hang(genuine: Path, tmp_path: Path) -> None:
    shutil.copytree(genuine / "release", tmp_path / "release")
    (tmp_path / "release" / "model.npz").unlink()
    os.mkfifo(tmp_path / "release" / "model.npz")
    with pytest.raises(Corrupt, match="not the one that was released"):
        _ = dpt.load_release(tmp_path / "release").model


def test_a_genuine_release_opens_from_both_folders(genuine: Path) -> None:
    assert set(dpt.load_release(genuine).model) == set(dpt.load_release(genuine / "release").model) == {"total", "x"}
