"""What ``benchmarks/choose_encoder.py`` compares: noise per record, kept runs, paired errors, names, and what each
name makes of a tiny random network.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dptune._typing import Floats
from dptune.planner.kinds import kind_with
from dptune.training import Dataset

torch = pytest.importorskip("torch")

KEY = "somewhere:encoder@" + "0" * 64
IMAGES = np.random.default_rng(1).random((6, 3072), np.float32)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    yield importlib.import_module("choose_encoder")
    for name in ("choose_encoder", "encoded", "accuracy"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_few_records_have_the_noise_per_record_of_fifty_thousand(script: Any, epsilon: float) -> None:
    few, all_of_them = (script.rule(KEY, 560, epsilon, records) for records in (500, 50_000))
    assert all_of_them.cost({}).epsilon(1e-5) == pytest.approx(epsilon, rel=1e-3)
    assert all_of_them.cost({}).epsilon(1e-5) <= epsilon
    one, other = few.settings, all_of_them.settings
    assert one.batch_size == pytest.approx(one.sampling_rate * 500)
    on_a_mean = [each.noise_multiplier * each.clip_norm / each.batch_size for each in (one, other)]
    assert on_a_mean[0] == pytest.approx(on_a_mean[1])
    on_moments = [each.whitening.noise_multiplier(each.settings) for each in (few, all_of_them)]
    assert on_moments[0] / 500 == pytest.approx(on_moments[1] / 50_000)
    same = ("sampling_rate", "steps", "clip_norm", "learning_rate", "optimizer")
    assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_plain_rule_is_that_of_what_is_not_whitened(script: Any, epsilon: float) -> None:
    plain, usual = (script.rule(KEY, 560, epsilon, 50_000, one) for one in (True, False))
    assert plain.whitening is None
    assert usual.whitening is not None
    assert plain.cost({}).epsilon(1e-5) == pytest.approx(epsilon, rel=1e-3)
    way = [one.settings.learning_rate * one.settings.steps for one in (plain, usual)]
    kind = kind_with(KEY)
    assert way[0] / way[1] == pytest.approx(kind.travel / 2400.0)  # the kind's own way, not the shorter one
    assert script.rule(KEY, 2560, epsilon, 50_000).whitening is None  # too many numbers


def _given(keep: Path, repeats: int) -> argparse.Namespace:
    return argparse.Namespace(keep=keep, repeats=repeats, records=30, judged=11)


def test_runs_that_are_kept_are_not_made_again(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def trainings(name: str, wanted: list[tuple[float, int]], given: Any) -> Iterator[dict[str, Any]]:
        for epsilon, seed in wanted:
            made.append((epsilon, seed))
            right = np.arange(11) <= seed
            yield {**script.label(name, epsilon, seed, given), "right": np.packbits(right).tobytes().hex()}
            if len(made) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(script, "trainings", trainings)
    keep = tmp_path / "rows.jsonl"
    with pytest.raises(KeyboardInterrupt):
        script.rows_of(script.TODAY, [1.0, 3.0], _given(keep, 2))
    rows = script.rows_of(script.TODAY, [1.0, 3.0], _given(keep, 2))
    assert made == [(1.0, 0), (1.0, 1), (3.0, 0), (3.0, 1)]
    assert len(rows) == len(keep.read_text().splitlines()) == 4
    assert script.table_of(rows, 3.0).sum(axis=1).tolist() == [1.0, 2.0]
    assert script.table_of(rows, 3.0).shape == (2, 11)
    script.rows_of("lite0-128-bilinear-last", [1.0], _given(keep, 1))  # another candidate's runs are others
    assert len(made) == 5
    assert json.loads(keep.read_text().splitlines()[-1])["candidate"] == "lite0-128-bilinear-last"


def test_a_difference_has_the_error_of_judges_and_of_runs(script: Any) -> None:
    rng = np.random.default_rng(0)
    one, other = (rng.random((5, 400)) < 0.8).astype(float), (rng.random((5, 400)) < 0.7).astype(float)
    gap, error = script.difference(one, other)
    assert gap == pytest.approx(script.mean(one)[0] - script.mean(other)[0])
    gaps = one - other
    judges, runs = np.var(gaps.mean(axis=0), ddof=1) / 400, np.var(gaps.mean(axis=1), ddof=1) / 5
    assert error == pytest.approx(math.sqrt(judges + runs))
    assert script.difference(one, one) == (0.0, 0.0)
    assert math.isnan(script.mean(one[:1])[1])


def test_names_of_candidates(script: Any) -> None:
    for names in script.TABLES.values():
        assert len(set(names)) == len(names)
        assert len({script.Candidate.named(name).describe() for name in names}) == len(names)
    found = script.Candidate.named("lite0-128-bicubic-before-mirror")
    assert found.describe() == "lite0, 128 pixels, bicubic, before the last widening, mean with the mirror image"
    found = script.Candidate.named("lite2-160-bilinear-all-both-roots-plain")
    layers, endings = "last layer and last two stages", "mean and largest, signed roots, not whitened"
    assert found.describe() == f"lite2, 160 pixels, bilinear, {layers}, {endings}"
    sides = ("lite2-x-bilinear-last", "lite2-16-bilinear-last")
    others = ("", "lite2", "lite9-160-bilinear-last", "lite2-160-bilinear-first", "lite2-160-nearest-last")
    ends = ("mirror-mirror", "plain-mirror", "largest-both", "rooted", "roots-", "-roots", "")
    for wrong in (*sides, *others, *(f"lite2-160-bilinear-last-{end}" for end in ends)):
        with pytest.raises(SystemExit) as raised:
            script.Candidate.named(wrong)
        assert repr(wrong) in str(raised.value)
        assert "\n" not in str(raised.value)


def test_the_tables_of_the_first_trials(script: Any) -> None:
    first, whitened = script.TABLES["first"], script.TABLES["whitened"]
    assert len(first) == 17  # as many as were made by hand
    assert [name for name in first if not name.endswith("-plain")] == ["lite2-160-bilinear-stages"]
    assert {name.removesuffix("-plain") for name in first} == set(whitened)
    assert len({one for name in first for one in script.Candidate.named(name).passes()}) == 5


def _block(given: int, made: int) -> Any:
    return torch.nn.Sequential(torch.nn.Conv2d(given, made, 3, stride=2, padding=1), torch.nn.Tanh())


@pytest.fixture
def tiny(script: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A random network with stages of 4, 5 and 7 channels, the last one of two blocks, and 11 numbers at its end."""
    torch.manual_seed(0)
    blocks = torch.nn.ModuleList([_block(4, 5), _block(5, 7), _block(7, 7)])
    net = SimpleNamespace(_conv_stem=torch.nn.Conv2d(3, 4, 3), _blocks=blocks, _conv_head=torch.nn.Conv2d(7, 11, 1))
    monkeypatch.setattr(script, "network", lambda name: net)
    return net


def _places(net: Any, images: Floats) -> dict[str, Floats]:
    """What the tiny network sees, a row of places for each channel."""
    with torch.inference_mode():
        given = (torch.from_numpy(images).reshape(-1, 3, 32, 32) * 255 - 127) / 128
        stem = net._conv_stem(torch.nn.functional.interpolate(given, size=(36, 36), mode="bilinear")).clamp(0, 6)
        first = net._blocks[0](stem)
        second = net._blocks[2](net._blocks[1](first))
        seen = {"first": first, "second": second, "last": net._conv_head(second).clamp(0, 6)}
    return {layer: one.flatten(2).numpy().astype(float) for layer, one in seen.items()}


def _centred(part: Floats) -> Floats:
    wide = part.var(axis=1, keepdims=True) + 1e-5  # what layer_norm adds
    centred: Floats = (part - part.mean(axis=1, keepdims=True)) / np.sqrt(wide * part.shape[1])
    return centred


def _unit(part: Floats) -> Floats:
    unit: Floats = part / np.linalg.norm(part, axis=1, keepdims=True)
    return unit


def _rooted(part: Floats) -> Floats:
    rooted: Floats = np.sign(part) * np.sqrt(np.abs(part))
    return rooted


def _numbers(script: Any, ending: str) -> Floats:
    found: Floats = script.Candidate.named(f"lite0-36-bilinear-{ending}").numbers(lambda one: one.encode(IMAGES))
    assert found.dtype == np.float32
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(len(IMAGES)), abs=1e-5)
    return found


def _same(found: Floats, *parts: Floats) -> None:
    assert found == pytest.approx(_unit(np.concatenate(parts, axis=1)), abs=1e-5)


@pytest.mark.parametrize(
    ("layers", "parts"),
    [("last", ["last"]), ("before", ["second"]), ("stages", ["first", "second"]), ("all", ["last", "first", "second"])],
)
def test_layers_are_means_over_places(script: Any, tiny: Any, layers: str, parts: list[str]) -> None:
    means = {layer: one.mean(axis=2) for layer, one in _places(tiny, IMAGES).items()}
    assert [means[one].shape[1] for one in ("first", "second", "last")] == [5, 7, 11]
    _same(_numbers(script, layers), *(_centred(means[one]) for one in parts))


def test_endings_change_the_numbers(script: Any, tiny: Any) -> None:
    turned = IMAGES.reshape(-1, 32, 32)[:, :, ::-1].reshape(IMAGES.shape)
    seen, mirrored = (_places(tiny, images.copy())["second"] for images in (IMAGES, turned))
    means, largest = seen.mean(axis=2), seen.max(axis=2)
    assert (means < 0).any()  # so that signs matter
    _same(_numbers(script, "before-plain"), _centred(means))
    _same(_numbers(script, "before-mirror"), _centred((means + mirrored.mean(axis=2)) / 2))
    _same(_numbers(script, "before-largest"), _centred(largest))
    _same(_numbers(script, "before-both"), _centred(means), _centred(largest))
    _same(_numbers(script, "before-roots"), _centred(_rooted(means)))
    _same(_numbers(script, "before-uncentred"), _unit(means))
    _same(_numbers(script, "before-both-roots-uncentred"), _unit(_rooted(means)), _unit(_rooted(largest)))
    assert np.abs(_numbers(script, "before-uncentred").mean(axis=1)).max() > 0.01
    assert np.abs(_numbers(script, "before").mean(axis=1)).max() < 1e-6


def test_candidates_share_passes(script: Any, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two passes, the second of mirror images, serve seven candidates; later there is nothing left to encode."""
    made: list[tuple[str, int]] = []
    encode = script.Pass.encode

    def counted(one: Any, records: Floats) -> Floats:
        made.append((one.name, len(records)))
        found: Floats = encode(one, records)
        return found

    endings = ("last", "before", "stages", "all", "before-mirror", "before-both-roots", "before-uncentred-plain")
    expected = [_numbers(script, ending).tobytes() for ending in endings]
    monkeypatch.setattr(script.Pass, "encode", counted)
    for _ in range(2):
        for ending, bits in zip(endings, expected, strict=True):
            candidate = script.Candidate.named(f"lite0-36-bilinear-{ending}")
            kept = candidate.numbers(lambda one: script.encoded(one, IMAGES, tmp_path, "train"))
            assert kept.tobytes() == bits
    whole = [name for name, count in made if count == len(IMAGES)]  # one record tells whose files they are
    assert whole == ["lite0-36-bilinear", "lite0-36-bilinear-turned"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_row_is_trained_from_kept_passes(
    script: Any, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = Dataset(np.random.default_rng(2).random((41, 3072), np.float32), np.arange(41) % 10, 10)
    monkeypatch.setattr(script, "first_images", lambda count: some.take(np.arange(min(count, 41))))
    monkeypatch.setattr(script, "example_key", lambda: KEY)
    given = argparse.Namespace(keep=None, repeats=1, records=30, judged=11, folder=tmp_path)
    usual, plain = (script.rows_of(f"lite0-36-bilinear-all{end}", [3.0], given)[0] for end in ("", "-plain"))
    assert usual["numbers"] == plain["numbers"] == 5 + 7 + 11
    steps = [script.rule(KEY, 23, 3.0, 30, without).settings.steps for without in (False, True)]
    assert [usual["steps"], plain["steps"]] == steps
    assert plain["candidate"].endswith("-plain")
    assert plain["milliseconds"] == usual["milliseconds"] > 0  # one pass, timed once
    assert script.table_of([plain], 3.0).mean() == plain["accuracy"]


def test_today_is_what_the_example_encodes(script: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "TODAY", "lite0-36-bilinear-stages")
    candidate = script.Candidate.named(script.TODAY)
    example = SimpleNamespace(key=KEY, encode=lambda some: candidate.numbers(lambda one: one.encode(some)))
    monkeypatch.setattr(script, "encoder_in", lambda module: example)
    assert script.example_key() == KEY
    script.example_key.cache_clear()
    example.encode = lambda some: np.nextafter(candidate.numbers(lambda one: one.encode(some)), np.float32(1))
    with pytest.raises(SystemExit, match="no longer what examples"):
        script.example_key()


def test_tables_are_chosen_by_their_names(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: list[tuple[str, ...]] = []
    monkeypatch.setattr(script, "table", lambda names, epsilons, given: printed.append(names))

    def run(*options: str) -> list[tuple[str, ...]]:
        printed.clear()
        monkeypatch.setattr(sys, "argv", ["choose_encoder.py", "--folder", "features", *options])
        script.main()
        return printed

    assert run() == [script.TABLES[name] for name in ("newest", "first", "whitened")]
    assert run("--only", "first") == [script.FIRST]
    assert run("--candidates", f"{script.TODAY},{script.TODAY}-plain") == [(script.TODAY, f"{script.TODAY}-plain")]
    with pytest.raises(SystemExit, match="There is no candidate 'lite2'"):
        run("--candidates", "lite2")
    with pytest.raises(SystemExit, match="50000 training images"):
        run("--only", "first", "--records", "49000")
    with pytest.raises(SystemExit):
        run("--only", "first", "--candidates", script.TODAY)
    assert "not allowed with" in capsys.readouterr().err


def test_a_table_has_a_line_for_each_candidate(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows_of(name: str, epsilons: list[float], given: Any) -> list[dict[str, Any]]:
        bits = np.packbits(np.arange(8) < (6 if name == script.TODAY else 4)).tobytes().hex()
        same = {"numbers": 560, "steps": 400, "milliseconds": 8.76, "right": bits, "judged": 8, "epsilon": 3.0}
        return [same | {"seed": seed} for seed in range(2)]

    monkeypatch.setattr(script, "rows_of", rows_of)
    script.table((script.TODAY, "lite2-160-bicubic-stages-plain"), [3.0], argparse.Namespace())
    head, rule, first, second = capsys.readouterr().out.strip().splitlines()
    assert head == "| encoder | numbers | steps | ms an image | epsilon 3 | difference |"
    assert rule.count("-") == 3 * 6
    stages = "lite2, 160 pixels, bicubic, last two stages"
    assert first == f"| {stages} | 560 | 400 | 8.8 | 0.7500 (0.0000) |  |"
    judges = math.sqrt(np.var([0, 0, 0, 0, -1, -1, 0, 0], ddof=1) / 8)
    assert second == f"| {stages}, not whitened | 560 | 400 | 8.8 | 0.5000 (0.0000) | -0.2500 ({judges:.4f}) |"
