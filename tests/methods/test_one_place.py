"""What is priced is what is drawn: plans and runs agree, and draws have the scales that the account names."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.accounting import Cost, Gaussian, Geometric, RenyiLine
from dptune.accounting.shards import ElasticRounds, ElasticStep, above_threshold
from dptune.errors import InvalidInput
from dptune.methods import Budget, Line, NoisyBest, PrivateValidation, RandomStopping, Subset, Threshold, Vote
from dptune.methods.drive import drive
from dptune.methods.exact import Bits
from dptune.methods.execute import score_trial
from dptune.methods.lines import admit
from dptune.methods.plan import Method
from dptune.methods.utilities import UNIT, sensitivity_of
from dptune.randomness import Randomness
from dptune.sealed import run
from dptune.spaces import Space

ITEMS = Space.of([{"x": 1.0}, {"x": 2.0}])
BUDGET = Budget(3.0, 1e-5)


class Strict:
    """Sets its own noise, and refuses parameters that it does not know, in one of several ways."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def cost(self, params: dict[str, Any]) -> Cost:
        if set(params) != {"x"}:
            raise self.error("unknown parameter")
        return Gaussian(10.0)

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        if set(params) != {"x"}:
            raise self.error("unknown parameter")
        return {"x": np.array([params["x"]])}, 0.5


@pytest.mark.parametrize("error", [InvalidInput, TypeError, KeyError, ValueError, AttributeError])
@pytest.mark.parametrize("subset", [False, True])
def test_a_trainer_that_sets_its_own_noise_plans_and_runs_under_a_line(
    error: type[Exception], subset: bool, tmp_path: Path
) -> None:
    trainer = Strict(error)
    assert admit(trainer, {"x": 1.0}, RenyiLine(0.01, (2.0, 4.0))) == {"x": 1.0}
    inner = RandomStopping(ITEMS, Geometric(3), costs=Line(0.01))
    method: Method = Subset(inner, 0.5) if subset else inner
    if error is not InvalidInput:  # the first line says it for all of them; whole runs take a second each
        method.plan(BUDGET, trainer)
        return
    release = run(method.plan(BUDGET, trainer), trainer, np.arange(10), out=tmp_path / "run", dataset="numbers")
    assert release.params["x"] in (1.0, 2.0)
    assert release.model is not None


class Recorded(Bits):
    """Writes down the scales that are drawn; every noise is 0."""

    def __init__(self) -> None:
        self.scales: list[Fraction] = []

    def discrete_laplace(self, scale: Fraction) -> int:
        self.scales.append(scale)
        return 0


@pytest.mark.parametrize("shards", [1, 50])
@pytest.mark.parametrize("validation", [None, PrivateValidation(0.5, 20)])
@pytest.mark.parametrize("granularity", [0.5, 0.02, 0.001])
def test_thresholds_draw_no_less_noise_than_is_charged(
    shards: int, validation: PrivateValidation | None, granularity: float
) -> None:
    """Recomputed from the theorem: Lap(D/e1), Lap(2cD/e2) with e1 + e2 = e; or Lap(2D/e), Lap(4D/e) in each round."""
    trainer = Strict(InvalidInput)
    d = sensitivity_of(shards, validation)
    # One record moves an average score by 1 / shards, and by 1 / 20 where it is one of 20 validation records.
    assert d >= shards * UNIT * max(1.0 / shards, 0.0 if validation is None else 1.0 / 20.0)
    for variant in ("sparse", "rounds"):
        method = Threshold(ITEMS, shards, granularity=granularity, variant=variant, validation=validation)
        plan = method.plan(BUDGET, trainer)
        charged, bits = Fraction(plan.rounds.epsilon), Recorded()
        gate = plan.gate(bits)
        spent = Fraction(0)
        while gate.open:
            first = len(bits.scales)
            passed = gate.first_above([shards * UNIT, shards * UNIT], 0.5)
            assert passed == 0
            if variant == "rounds":
                threshold, query = bits.scales[first:]
                e = 2 * d / threshold
                assert 4 * d / query <= e * (1 + Fraction(1, 2**19))  # scales are rounded up to whole numbers
                spent += e
        if variant == "sparse":
            threshold, *queries = bits.scales
            assert len(queries) == plan.rounds.passes
            spent = d / threshold + 2 * len(queries) * Fraction(d) / max(queries)
        assert spent <= charged
        assert spent >= charged * Fraction(1, 2)


def test_the_weight_of_rounds_is_that_of_the_step_itself() -> None:
    """Walk the elastic step to a utility of 1 and add up what above_threshold charges."""
    for granularity in (0.5, 0.1, 0.02, 1 / 127):
        step, one, spent, passes = ElasticStep(0.0, granularity), above_threshold(1, 1), Fraction(0), 0
        while step.step:
            passed = not step.impossible
            spent += one.passed if passed else one.failed
            passes += passed
            step.answer(passed)
        public = ElasticRounds(0.0, granularity)
        assert float(spent) <= public.weight() + 1e-9
        assert passes <= public.most_passes()


def test_a_flip_has_the_rate_of_its_budget() -> None:
    """Two utilities at distance D: the worse one is accepted with probability exp(-B/2)."""
    plan = NoisyBest(ITEMS, 4).plan(BUDGET, Strict(InvalidInput))
    seen: list[Fraction] = []

    class Flips(Bits):
        def __init__(self) -> None:
            super().__init__(Randomness.rehearsal(0), "flips")

        def bernoulli_exp(self, x: Fraction) -> bool:
            seen.append(x)
            return x == 0

    Flips().permute_and_flip([UNIT, 0], UNIT, Fraction(plan.epsilon))
    assert set(seen) <= {Fraction(0), Fraction(plan.epsilon) / 2}


def test_votes_and_counts_are_drawn_with_the_noise_that_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Fraction] = []

    def note(self: Bits, sigma: Fraction) -> int:
        drawn.append(sigma)
        return 0

    monkeypatch.setattr(Bits, "discrete_gaussian", note)
    trainer, source = Strict(InvalidInput), Randomness.rehearsal(1)
    vote = Vote(ITEMS, 1, 4).plan(BUDGET, trainer)
    drive(vote, source, lambda trial: float(trial.index))
    assert set(drawn) == {Fraction(sigma) for sigma in _named(vote.cost.describe(), "ring-vote", "sigma")}
    drawn.clear()
    counted = RandomStopping(ITEMS, Geometric(3), validation=PrivateValidation(0.5, 5)).plan(BUDGET, trainer)
    for trial in counted.start(source).ask():
        score_trial(trial, (Right(), 0.0), np.arange(10), source)
    assert set(drawn) == {Fraction(noise) for noise in _named(counted.cost.describe(), "discrete-gaussian", "sigma")}


class Right:
    """Right about everything."""

    def correct(self, data: Any) -> float:
        return 1.0


def _named(cost: Any, kind: str, field: str) -> list[float]:
    """The values of a field in all costs of a kind, however deep."""
    if isinstance(cost, list):
        return [value for part in cost for value in _named(part, kind, field)]
    if not isinstance(cost, dict):
        return []
    own = [cost[field]] if cost.get("cost") == kind else []
    return own + [value for part in cost.values() for value in _named(part, kind, field)]
