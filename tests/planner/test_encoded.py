"""Public encoders on the way of a run: refused before the charge, kept in the vault, named by the release."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.accounting import Geometric
from dptune.cli._job import Job, load_data
from dptune.cli._tuning import make_trainer
from dptune.errors import InvalidInput
from dptune.planner import tune
from dptune.planner.encoded import bring_in_with, features_name
from dptune.planner.incoming import Declared
from dptune.randomness import Randomness
from dptune.sealed.features import keep_features, kept_features
from dptune.sealed.vault import Vault
from dptune.training import Dataset, DpSgdTrainer, PublicEncoder, Settings, load, softmax
from dptune.training.encoders import _KNOWN, named_encoder

MODULE = """
import numpy as np
from dptune.training import PublicEncoder

CALLS = []

def halves(row):
    CALLS.append(1)
    if row[20] == 16.0:
        raise ValueError("odd")
    return np.concatenate([row[:32] ** 2 / 16, row[32:], [0.0]])

encoder = PublicEncoder("toy_halves:encoder", halves, 65, shape=(64,), weights="0" * 64)
lengths = PublicEncoder("toy_halves:lengths", lambda text: [len(text), text.count("a"), 1], 3, weights="0" * 64)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PublicEncoder]:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "toy_halves.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "toy_halves", raising=False)
    yield named_encoder("toy_halves:encoder")
    for name in ("encoder", "lengths"):
        _KNOWN.pop(f"toy_halves:{name}", None)
    sys.modules.pop("toy_halves", None)


def test_a_run_with_an_encoder(tmp_path: Path, toy: PublicEncoder) -> None:
    digits, out = load("digits"), tmp_path / "run"
    raw = digits.train
    release = tune(
        raw, records=1400, features=toy, epsilon=8, delta=1e-4, runs=Geometric(2), seed=1, data_is="public",
        explain=None, out=out,
    )  # fmt: skip
    assert release.details["public_encoder"] == {"name": toy.name, "sha256": "0" * 64, "width": 65}
    assert any(toy.name in one and "declared public" in one for one in release.details["assumptions"])
    assert f"{toy.name}, declared public" in (release.path / "statement.md").read_text()
    assert release.model.prepared == toy.key
    assert release.model.accuracy(digits.test) > 0.7  # rows as they were
    assert kept_features(out) is None  # gone with the secret


def test_texts_and_refusals(tmp_path: Path, toy: PublicEncoder) -> None:
    texts = (["banana", "aa", "xyz"], np.array([0, 1, 0]))
    made = bring_in_with(texts, Declared(records=3, classes=2), None, features_name("toy_halves:lengths"))
    assert made.data.features == 3
    given: dict[str, Any] = {
        "records": 3,
        "classes": 2,
        "epsilon": 1,
        "delta": 1e-5,
        "dataset": "toy",
        "out": tmp_path / "none",
    }
    unnamed = PublicEncoder("__main__:it", toy.function, 65, shape=(64,), weights="0" * 64)
    for encoder, said in ((unnamed, "PublicEncoder of this name"), ("nowhere:it", "cannot be imported")):
        with pytest.raises(InvalidInput, match=said):
            tune(texts, features=encoder, **given)
    with pytest.raises(InvalidInput, match="equal length"):
        tune((["a"], np.array([0, 1])), features="toy_halves:lengths", **given)
    with pytest.raises(InvalidInput, match="takes no 'features'"):
        tune(texts, features=toy, model=lambda params: None, **given)
    assert not (tmp_path / "none").exists()


def test_the_vault_keeps_features_until_the_release(tmp_path: Path, toy: PublicEncoder) -> None:
    settings = Settings(0.1, 1.0, steps=5, clip_norm=1.0, learning_rate=1.0, batch_size=100)
    data = Dataset(toy.encode(load("digits").train.x[:40]), np.zeros(40), 10)
    (tmp_path / "run").mkdir()
    vault = Vault.create(tmp_path / "run" / "vault", {}, Randomness.rehearsal(1))
    keep_features(vault, DpSgdTrainer(softmax(65, 10), settings), data)
    assert kept_features(tmp_path / "run") is None  # no encoder
    keep_features(vault, DpSgdTrainer(softmax(65, 10), settings, prepared=toy.key), data)
    found = kept_features(tmp_path / "run")
    assert found is not None
    assert found.tobytes() == data.x.tobytes()
    (file,) = (vault.inside / "work").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    vault.destroy()
    assert kept_features(tmp_path / "run") is None


def test_a_job_names_an_encoder_and_a_resumed_one_does_not_encode_again(tmp_path: Path, toy: PublicEncoder) -> None:
    digits = load("digits").train
    np.savez(tmp_path / "images.npz", x=digits.x[:30], y=digits.y[:30])
    fields = {"file": str(tmp_path / "images.npz"), "classes": 10, "records": 5000, "features": toy.name}
    job = Job({"data": fields, "budget": {"epsilon": 1.0, "delta": 1e-5}}, str(tmp_path / "modules"))
    loaded = load_data(job)
    assert loaded.data.x.tobytes() == toy.encode(digits.x[:30]).tobytes()
    trainer = make_trainer(job, loaded.data, None)
    assert isinstance(trainer, DpSgdTrainer)
    assert trainer.prepared == toy.key
    (tmp_path / "run").mkdir()
    vault = Vault.create(tmp_path / "run" / "vault", {}, Randomness.rehearsal(1))
    keep_features(vault, trainer, loaded.data)
    calls = sys.modules["toy_halves"].CALLS
    calls.clear()
    again = load_data(job, tmp_path / "run")
    assert not calls
    assert again.data.x.tobytes() == loaded.data.x.tobytes()
    assert again.data.y.tobytes() == loaded.data.y.tobytes()
    with pytest.raises(InvalidInput, match="cannot be imported"):
        load_data(Job({"data": {**fields, "features": "toy_halves:nothing"}}, job.folder))
