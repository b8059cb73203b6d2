"""Steps of a long training: a rehearsal that is watched shows them; a sealed run has nobody to tell, and no file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed.toy import DATA, ToyTrainer, is_blank, toy_plan

from dptune._progress import VARIABLE, listener, read_steps, written_to
from dptune.data import Dataset
from dptune.executors import Processes
from dptune.executors.processes import environment
from dptune.ledgers import Ledger
from dptune.randomness import Randomness
from dptune.sealed import run
from dptune.sealed.loop import Beat
from dptune.training import Settings, descend, engine_for, softmax


@dataclass(frozen=True)
class Telling(ToyTrainer):
    """Tells a step if somebody listens, and then waits until it was seen; writes down whether anybody did."""

    notes: str = ""

    def fit(self, params: Mapping[str, Any], data: Any, rng: np.random.Generator) -> tuple[Any, float]:
        tell, notes = listener(), Path(self.notes)
        if not is_blank(data):
            (notes / "heard").write_text(f"{tell is not None} {VARIABLE in os.environ}")
        elif tell is not None:
            (notes / "blank").touch()
        if tell is not None:
            tell(17, 200)
            end = time.monotonic() + 60.0
            while not (notes / "seen").exists() and time.monotonic() < end:
                time.sleep(0.01)
        return super().fit(params, data, rng)


def _watched(notes: Path, **options: Any) -> list[Beat]:
    beats: list[Beat] = []

    def beat(one: Beat) -> None:
        beats.append(one)
        if one.steps is not None:
            (notes / "seen").touch()

    trainer, workers = Telling(notes=str(notes)), Processes(1)
    run(toy_plan(count=1), trainer, DATA, out=notes / "run", executor=workers, beat=beat, **options)
    return beats


def test_a_rehearsal_shows_steps(tmp_path: Path) -> None:
    beats = _watched(tmp_path, data_is="synthetic", seed=1)
    assert (17, 200) in [beat.steps for beat in beats]
    assert (tmp_path / "heard").read_text() == "True True"
    assert not (tmp_path / "blank").exists()
    assert not list((tmp_path / "run" / "vault").rglob("steps/*"))


def test_a_sealed_run_tells_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))  # of whoever started it: it is not handed on
    book = Ledger.create(tmp_path / "h.ledger")
    book.add("icu", 10.0, 1e-5)
    beats = _watched(tmp_path, ledger=book, dataset="icu")
    assert {(beat.done, beat.asked, beat.steps) for beat in beats} == {(None, None, None)}
    assert (tmp_path / "heard").read_text() == "False False"
    assert not list((tmp_path / "run").rglob("steps"))
    assert VARIABLE not in environment(tmp_path)


def test_the_loop_tells_its_steps(tmp_path: Path) -> None:
    seen: list[tuple[int, int] | None] = []
    data = Dataset(np.eye(4), np.array([0, 1, 0, 1]), 2)
    settings = Settings(0.5, 1.0, steps=5, clip_norm=1.0, learning_rate=0.1, batch_size=2.0)
    engine, key = engine_for(softmax(4, 2)), Randomness.rehearsal(1)

    class Seeing:
        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def clipped_sums(self, *given: Any) -> None:
            seen.append(read_steps(tmp_path))
            engine.clipped_sums(*given)

    (plain,) = descend(engine, data, [settings], [key])
    with written_to(tmp_path / "3"):
        (told,) = descend(Seeing(), data, [settings], [key])
    assert np.array_equal(plain, told)
    assert seen[0] == (0, 5)  # later ones are written a few times a second
    assert read_steps(tmp_path) is None
    assert listener() is None
    (tmp_path / "1").write_text("3 10")
    (tmp_path / "-1").write_text("4 100")  # a final training
    (tmp_path / "2").write_text("x")
    assert read_steps(tmp_path) == (7, 110)
