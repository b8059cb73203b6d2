"""The walk over what is supported: it reaches everything that there is, the code holds, and holes put back are caught.

Nothing here is statistical: a walk compares two worlds with the same randomness, so what it finds it finds always.
Mutations replace a public seam (an engine's ``clipped_sums``, the count of right answers, the making of a data set),
never the inside of what they break.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from dptune import scores
from dptune.audit import _supported_torch, _walk_judging, supported
from dptune.audit.implementations import check
from dptune.audit.targets.drawn import one_step
from dptune.audit.walk import Deck, Movement, Walk, cases, walk, ways
from dptune.errors import InvalidInput
from dptune.methods import execute, registry
from dptune.training import (
    Dataset,
    Quantile,
    Settings,
    _bookkeeping,
    _network_pass,
    engine_for,
    ruled_sums,
    softmax,
    torch_engine,
    unit_sums,
)
from dptune.training._compiled import kernel
from dptune.training.softmax_engine import SoftmaxEngine

FAST = {
    "sums": 20,
    "modules": 16,
    "random modules": 20,
    "loop": 10,
    "trainer": 8,
    "judging": 60,
    "scores": 300,
    "records": 60,
    "units": 20,
    "clipping rules": 30,
    "moments": 60,
}


@pytest.mark.parametrize("way", FAST)
def test_the_code_as_it_is_holds(way: str) -> None:
    found = walk(FAST[way], seed=1, only=[way])
    assert not found.findings, "\n".join(f"{case.name}: {one}" for case, one in found.findings)
    assert found.refused[way] < found.counts[way]


@pytest.mark.slow
@pytest.mark.parametrize("way", FAST)
def test_a_long_walk_finds_nothing(way: str) -> None:
    found = walk(50 * FAST[way], seed=2, only=[way])
    assert not found.findings, "\n".join(f"{case.name}: {one}" for case, one in found.findings)


# What the walk reaches.


def test_all_ways_are_walked() -> None:
    assert set(FAST) == set(ways())
    with pytest.raises(InvalidInput, match="no way called 'nowhere'"):
        walk(1, only=["nowhere"])


def test_a_deck_deals_everything_before_it_repeats() -> None:
    deck = Deck(3)
    options = {str(i): i for i in range(20)}
    for _ in range(3):
        assert sorted(deck.deal("number", options) for _ in range(20)) == list(range(20))


@pytest.mark.skipif(kernel is None, reason="the kernels are not compiled")
@pytest.mark.parametrize("way", ["sums", "clipping rules"])
def test_the_pass_over_wide_records_is_walked_over(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    widths: set[int] = set()
    inner = SoftmaxEngine._sums

    def counted(self: SoftmaxEngine, *given: Any) -> Any:
        widths.add(self.model.features)
        return inner(self, *given)

    monkeypatch.setattr(SoftmaxEngine, "_sums", counted)
    walk(300, seed=1, only=[way])
    assert 1030 in widths


def test_a_walk_follows_from_its_seed() -> None:
    names = [[case.name for case in cases(12, seed, ["judging", "records"])] for seed in (5, 5, 6)]
    assert names[0] == names[1] != names[2]


def test_all_engines_are_dealt() -> None:
    with pytest.raises(InvalidInput) as refused:
        engine_for(softmax(2, 2), engine="none")
    known = str(refused.value).split("one of ")[1].rstrip(".").split(", ")
    assert set(supported.ENGINES) == {*known, "interpreted"}


def test_all_settings_of_a_run_are_dealt() -> None:
    """A new setting, such as another clipping rule, must be walked over: deal it where the loop's settings are."""
    walked = {"sampling_rate", "steps", "optimizer", "schedule", "secure", "clipping"}
    constant = {"noise_multiplier", "clip_norm", "learning_rate", "batch_size"}  # clip norms: dealt for sums
    assert set(Settings.__dataclass_fields__) == walked | constant
    assert {"Sgd", "Momentum", "Adam", "AdamBC"} <= set(supported.OPTIMIZERS)
    assert {"Constant", "Cosine", "Decay"} <= set(supported.SCHEDULES)


def test_the_smallest_and_the_largest_clip_norm_are_dealt() -> None:
    """Those that a run may have: a step beyond either is refused."""
    clips = supported.CLIPS.values()
    for clip, beyond in ((min(clips), 0.0), (max(clips), np.inf)):
        made = Settings(0.1, 1.0, 1, clip_norm=clip, learning_rate=0.1, batch_size=1.0)
        assert made.clip_norm == clip
        with pytest.raises(InvalidInput, match="clip_norm"):
            Settings(0.1, 1.0, 1, clip_norm=float(np.nextafter(clip, beyond)), learning_rate=0.1, batch_size=1.0)


def test_all_methods_with_private_scores_are_dealt() -> None:
    unpaid = {"non-private-optimum", "random-guess"}  # gives no guarantee; uses no score
    dealt = {one.method for one in map(_walk_judging.planned, _walk_judging.methods())}
    ours = {name for name, kind in registry._PLANS.items() if kind.__module__.startswith("dptune.")}  # no test's toys
    assert dealt == ours - unpaid


def test_all_layers_are_dealt() -> None:
    known = {kind.__name__ for kind in _bookkeeping._PLAIN}
    assert known <= {*_supported_torch.layers(), "TemperedSigmoid"}
    assert {"Linear", "Conv2d", "GroupNorm", "LayerNorm", "LSTM", "MultiheadAttention"} <= set(
        _supported_torch.layers()
    )
    dropout = {name for name in dir(torch.nn) if "Dropout" in name}
    assert len(dropout) >= 6
    assert dropout <= set(_supported_torch.random_layers())
    assert {"RReLU", "TransformerEncoderLayer", "functional dropout"} <= set(_supported_torch.random_layers())


def test_a_movement_that_is_no_number_is_caught() -> None:
    assert Movement("sum", float("nan"), 1.0).caught
    assert Movement("sum", 1.0 + 2e-6, 1.0).caught
    assert not Movement("sum", 1.0 + 5e-7, 1.0).caught
    assert Movement("failures", 1.0, 0.0).caught


# The mutations. They stand on torch's public functions and on the engine's own, so that they break any engine.


class Positions(torch_engine.TorchEngine):
    """Dropout with a mask for every position of a batch, from a seed that follows from the parameters."""

    def __init__(self, module: Any, **options: Any) -> None:
        super().__init__(module, **options)
        self.own = copy.deepcopy(module).to(torch.float64).train()

    def bind(self, data: Dataset) -> None:
        super().bind(data)
        self.bound = data

    def gradients(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One forward for the whole batch, as book-keeping does it."""
        logits = self.own(x)
        trained = [p for p in self.own.parameters() if p.requires_grad]
        rows = []
        for row, label in zip(logits, y, strict=True):
            parts = torch.autograd.grad(
                cross_entropy(row[None], label[None]), trained, retain_graph=True, allow_unused=True
            )
            flat = [torch.zeros_like(p) if g is None else g for p, g in zip(trained, parts, strict=True)]
            rows.append(torch.cat([g.reshape(-1) for g in flat]))
        return torch.stack(rows)

    def clipped_sums(self, parameters: Any, batches: Sequence[Any], clips: Any, out: Any) -> None:
        trained = [p for p in self.own.parameters() if p.requires_grad]
        for row, batch in enumerate(batches):
            torch.nn.utils.vector_to_parameters(torch.from_numpy(parameters[row].astype(np.float64)), trained)
            out[row] = 0.0
            if len(batch):
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(int(np.abs(parameters[row]).sum() * 1e6))
                    x = torch.from_numpy(self.bound.x[batch].astype(np.float64))
                    every = self.gradients(x, torch.from_numpy(self.bound.y[batch])).detach().numpy()
                norms = np.linalg.norm(every, axis=1)
                fine = np.isfinite(norms)
                out[row] = (clips[row] / np.maximum(norms[fine], clips[row])) @ every[fine]

    def lattice_sums(self, *given: Any) -> bool:
        return False


class Different(Positions):
    """The same by ``vmap`` with another draw for every row."""

    def gradients(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights = {name: p.detach() for name, p in self.own.named_parameters() if p.requires_grad}
        rest = {name: p.detach() for name, p in self.own.named_parameters() if not p.requires_grad}

        def loss(values: Any, one: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return cross_entropy(functional_call(self.own, {**values, **rest}, (one[None],)), label[None])

        every = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(weights, x, y)
        return torch.cat([every[name].reshape(len(x), -1) for name in weights], dim=1)


class SelfChecking(torch_engine.TorchEngine):
    """Compares the first sum with gradients of single records, on the records themselves, and raises."""

    compared = False

    def clipped_sums(self, parameters: Any, batches: Sequence[Any], clips: Any, out: Any) -> None:
        super().clipped_sums(parameters, batches, clips, out)
        if self.compared or not len(batches[0]):
            return
        self.compared = True
        alone, part = np.zeros_like(out), np.zeros_like(out)
        for place in batches[0][:8]:
            super().clipped_sums(parameters, [np.array([place])], clips, part)
            alone += part
        super().clipped_sums(parameters, [batches[0][:8]], clips, part)
        if not np.linalg.norm(part - alone) <= 1e-3 * max(float(np.linalg.norm(alone)), 1e-6 * float(clips[0])):
            raise InvalidInput("another sum than one record at a time")


def _found(way: str, draws: int, *words: str) -> Walk:
    """Walk until something is found, over those cases alone in whose names all words are."""
    found = Walk()
    for case in cases(draws, 1, [way]):
        if all(word in case.name for word in words):
            found.add(case)
        if found.findings:
            break
    return found


@pytest.mark.parametrize("mutated", [Positions, Different])
def test_a_mask_for_every_position_is_caught(mutated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_engine, "TorchEngine", mutated)
    found = _found("random modules", 200)
    assert found.findings
    assert "sum, in clip norms" in str(found.findings[0][1])


def test_rows_that_are_clipped_one_by_one_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit of several rows then adds as many clip norms."""
    monkeypatch.setattr(unit_sums, "ROW", 1.0)
    monkeypatch.setattr(unit_sums, "_clipped", lambda gradients, clip: gradients)
    found = _found("units", 100, "sums fast")
    assert "sum, in clip norms" in str(found.findings[0][1])


def _as_the_rule_says(rule: Any, norms: Any, clip: float, level: float) -> tuple[Any, Any]:
    return rule.factors(norms, clip, level), rule.tail(norms, clip, level)


@pytest.mark.parametrize("wrong", ["kept", "counted"])
def test_a_count_beside_the_gradient_that_nobody_paid_for_is_caught(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradient and count must share the clip norm: a whole one for either is too much for both."""
    monkeypatch.setattr(Quantile, wrong, property(lambda rule: 1.0))
    monkeypatch.setattr(ruled_sums, "_enforced", _as_the_rule_says)  # sums cut what a rule makes too long
    for way in ("clipping rules", "loop"):
        found = _found(way, 100, "clipping quantile")
        assert "clip norms" in str(found.findings[0][1])


def test_a_mask_for_every_position_loses_the_game_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen from outside, in released models: the noise of one clip norm does not hide so many."""
    monkeypatch.setattr(torch_engine, "TorchEngine", Different)
    found = check(one_step(_left_to_torch), 60, seed=1)
    assert found.caught, str(found)


def _left_to_torch(params: Any) -> Any:
    """A module that the compiled engine does not know."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first, last = torch.nn.Linear(32, 24), torch.nn.Linear(24, 3)
    return torch.nn.Sequential(first, torch.nn.Softplus(), torch.nn.Dropout(0.5), last)


def test_a_mask_for_every_batch_loses_the_game(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in the compiled engine: a mask that changes with the batch moves all records."""
    pytest.importorskip("dptune.training._kernel")
    held, drawn = _network_pass.Pass.sums, _network_pass.Pass._masks

    def sums(self: Any, flat: Any, x: Any, y: Any, batch: Any, *others: Any) -> Any:
        monkeypatch.setattr(_network_pass.Pass, "_masks", lambda self, flat: drawn(self, flat + len(batch)))
        return held(self, flat, x, y, batch, *others)

    monkeypatch.setattr(_network_pass.Pass, "sums", sums)
    found = check(one_step(), 60, seed=1)
    assert found.caught, str(found)


@pytest.mark.parametrize(("way", "engine"), [("modules", "mode auto"), ("sums", "engine torch")])
def test_a_check_on_the_records_themselves_is_caught(way: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_engine, "TorchEngine", SelfChecking)
    found = _found(way, 5000, "company opposite", "classes 2", "precision single", engine)
    assert found.findings
    assert "another sum than one record at a time" in str(found.findings[0][1])


def _at_once(model: Any, data: Any, *given: Any, **named: Any) -> Fraction:
    """The whole batch in one call; what raises fails the trial."""
    x, y = (data[0], data[-1]) if isinstance(data, tuple) else (data.x, data.y)
    right = model.predict(x) == y if hasattr(model, "predict") else model.correct(data) > 0.5
    return Fraction(int(np.sum(right)))


def test_a_score_that_one_record_moves_too_far_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the AUCs of the groups, where twice is paid for."""
    real = scores.Auc.count
    monkeypatch.setattr(scores.Auc, "count", staticmethod(lambda *given, **named: 2 * real(*given, **named)))
    found = _found("judging", 3000, "score auc", "part held")
    assert found.findings


def test_every_score_is_dealt() -> None:
    dealt = {type(score) for score, _ in _walk_judging.SCORES.values() if score is not None}
    assert dealt == set(scores.SCORES.values())


def test_a_record_that_fails_the_trial_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "correct", _at_once)
    found = walk(200, seed=1, only=["judging"])
    assert {one.what for _, one in found.findings} >= {"failures", "count of a trial", "sum over shards"}
    judged = {case.name.split("judged ")[1].split(",")[0] for case, _ in found.findings}
    assert {"raising", "exiting"} <= judged
    assert _found("judging", 4000, "judged peers", "part held").findings  # a record that changes what others score


def _refusing(made: Callable[[Any], None]) -> Callable[[Any], None]:
    def refuse(self: Any) -> None:
        if not np.isfinite(self.x).all():
            raise InvalidInput("'x' holds NaN or infinite features.")
        made(self)

    return refuse


def test_a_refusal_of_a_private_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dataset, "__post_init__", _refusing(Dataset.__post_init__))
    found = walk(20, seed=1, only=["records"])
    assert any(one.what.startswith("refusal") for _, one in found.findings)


def test_a_walk_without_findings_says_how_far_it_got() -> None:
    found = walk(5, seed=1, only=["judging"])
    told = found.describe()
    assert told["cases"] == {"judging": 5}
    assert not told["broken"]
    assert 0.0 <= told["widest"]["judging"] <= 1.0
