"""The trainer protocol: what is a trainer, what it may be able to do, what is refused before any charge."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptune as dpt
from dptune.accounting import Cost, Gaussian
from dptune.errors import InvalidInput
from dptune.sealed.run import run
from dptune.testing import trainers as conformance
from dptune.trainer import (
    DeclaresBatch,
    DeclaresCost,
    DeclaresGenerator,
    DeclaresHoldout,
    DeclaresRecords,
    DeclaresTransfer,
    DeclaresValidation,
    Fitted,
    SupportsCheck,
    SupportsFit,
    SupportsShapes,
    SupportsStacking,
    SupportsWarmStart,
    Trainer,
    check_trainer,
    check_warm_start,
    fit_many,
    has_own_score,
)
from dptune.training import Adam, DpSgdTrainer, Holdout, Momentum, Settings, Sgd, softmax

SETTINGS = Settings(sampling_rate=0.5, noise_multiplier=1.0, steps=2, clip_norm=1.0, learning_rate=1.0, batch_size=20.0)


class Plain:
    """The least that a trainer can be."""

    def cost(self, params: dict[str, Any]) -> Cost:
        return Gaussian(params.get("noise_multiplier", 2.0))

    def fit(self, params: Any, data: Any, rng: np.random.Generator) -> tuple[float, float]:
        return float(rng.normal()), 0.0


@pytest.mark.parametrize("module", ["dptune.trainer", "dptune.testing.trainers"])
def test_examples_of_the_contract_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.failed == 0
    assert found.attempted > 4


def test_anything_with_fit_and_cost_is_a_trainer_and_nothing_else_is_asked() -> None:
    plain = Plain()
    assert isinstance(plain, Trainer)
    others = (SupportsStacking, SupportsShapes, SupportsCheck, SupportsWarmStart, DeclaresRecords, DeclaresBatch)
    assert not any(isinstance(plain, one) for one in (*others, DeclaresTransfer, DeclaresGenerator, DeclaresHoldout))
    check_trainer(plain)
    assert has_own_score(plain)
    assert not isinstance(object(), DeclaresCost)
    assert len(fit_many(plain, [{}, {}], None, [np.random.default_rng(0)] * 2)) == 2


def test_dp_sgd_has_every_capability_and_declares_what_its_settings_say() -> None:
    made = DpSgdTrainer(softmax(3, 2), SETTINGS)
    everything = (
        *(SupportsFit, SupportsStacking, SupportsShapes, SupportsCheck, SupportsWarmStart, DeclaresValidation),
        *(DeclaresHoldout, DeclaresRecords, DeclaresBatch, DeclaresTransfer, DeclaresGenerator, Trainer),
    )
    assert all(isinstance(made, one) for one in everything)
    assert (made.declared_records, made.declared_batch) == (40, 20.0)
    rules = [
        DpSgdTrainer(softmax(3, 2), Settings(0.5, 1.0, 2, 1.0, 1.0, 20.0, one)).transfer_rule
        for one in (Sgd(), Momentum(0.9), Adam())
    ]
    assert rules == ["sgd", "sgd", "none"]
    assert not has_own_score(made)
    assert has_own_score(DpSgdTrainer(softmax(3, 2), SETTINGS, holdout=Holdout(0.1, 4.0)))


class Costless:
    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Any, float]:
        return None, 0.0


class Fitless:
    def cost(self, params: Any) -> Cost:
        return Gaussian(1.0)


class CostField(Costless):
    """A common slip: the cost is a value, not a method."""

    cost = Gaussian(1.0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Costless(), "declares no cost"),
        (CostField(), "declares no cost"),
        (Fitless(), r"no fit\(params, data, rng\)"),
        (Plain, r"is the class Plain; give an object, Plain\(...\)"),
        (None, r"no fit\(params, data, rng\)"),
    ],
)
def test_what_is_not_a_trainer_is_refused_in_one_line_and_not_charged(wrong: Any, said: str, tmp_path: Path) -> None:
    space = dpt.Space(x=dpt.Float(0.0, 1.0))
    plan = dpt.RandomStopping(space, dpt.Geometric(2)).plan(dpt.Budget(3.0, 1e-5), Plain())
    with pytest.raises(InvalidInput, match=said) as refused:
        run(plan, wrong, np.arange(5.0), out=tmp_path / "run", dataset="five")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_plan_that_continues_from_a_model_needs_a_trainer_that_can(tmp_path: Path) -> None:
    """It was trained from scratch in silence before."""
    space = dpt.Space(x=dpt.Float(0.0, 1.0))
    method = dpt.Subset(dpt.RandomStopping(space, dpt.Geometric(2)), 0.5, warm_start=True)
    plan = method.plan(dpt.Budget(3.0, 1e-5), Plain())
    with pytest.raises(InvalidInput, match=r"the trainer Plain has no fit_from\(params, data, rng, start\)"):
        run(plan, Plain(), np.arange(5.0), out=tmp_path / "run", dataset="five")
    assert not (tmp_path / "run").exists()

    class Continuing(Plain):
        def fit_from(self, params: Any, data: Any, rng: Any, start: float) -> tuple[float, float]:
            return start + float(rng.normal()), 0.0

    check_warm_start(Continuing())


def test_the_decorator_and_the_module_of_its_name_can_both_be_called() -> None:
    """``dptune.trainer`` is whichever was bound last: a lazy import binds the module."""
    module = importlib.import_module("dptune.trainer")
    made = module(cost=Gaussian(1.0))(lambda params, data, rng: (1.0, 0.0))  # type: ignore[operator] # as above
    assert made.fit({}, None, np.random.default_rng(0)) == Fitted(1.0, 0.0)
    assert dpt.trainer(cost=Gaussian(1.0))(made.fit).cost({}) == Gaussian(1.0)
    code = "import dptune.trainer, dptune; dptune.trainer(cost=dptune.Gaussian(1.0)); print('called')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"called\n"


def test_nothing_probes_trainers_any_more() -> None:
    """Capabilities are protocols: no attribute of a trainer, a model or a method is looked for by name."""
    sources = {path: path.read_text() for path in Path(dpt.__file__).parent.rglob("*.py")}
    assert len(sources) > 100
    for probe in ("trainer: Any", "getattr(trainer", "hasattr(trainer", "getattr(self.trainer", "getattr(method",
                  "getattr(model", "hasattr(model"):  # fmt: skip
        assert [path.name for path, text in sources.items() if probe in text] == [], probe


def test_the_suite_is_public() -> None:
    assert {"check_trainer", "check_sensitivity", "check_judging"} <= set(conformance.__all__)
