"""Trials as stacks: the same records, starts, costs and private scores as alone, and nothing across parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dptune.accounting import Gaussian, RenyiLine
from dptune.errors import InvalidInput
from dptune.methods import fit_trial
from dptune.methods.execute import fit_stack, score_trial, stacks
from dptune.methods.parts import ALL, Coin, Shard
from dptune.methods.trial import HeldOut, Trial
from dptune.randomness import Randomness

DATA = np.arange(200)
SOURCE = Randomness.rehearsal(3)


class Model:
    """Knows what it was made of."""

    def __init__(self, value: float) -> None:
        self.parameters = value

    def correct(self, data: Any) -> Any:
        return (data % 7 < self.parameters % 7).astype(float)


@dataclass
class Sums:
    """A noisy sum from a start; writes down what it was given."""

    calls: list[tuple[int, int]] = field(default_factory=list)  # candidates, records

    def cost(self, params: Mapping[str, Any]) -> Gaussian:
        return Gaussian(params.get("noise_multiplier", 2.0))

    def fit(self, params: Any, data: Any, rng: Any) -> tuple[Model, float]:
        return self.fit_from(params, data, rng, Model(0.0))

    def fit_from(self, params: Any, data: Any, rng: Any, start: Model) -> tuple[Model, float]:
        value = start.parameters + params["x"] + float(np.sum(data)) + float(rng.normal())
        return Model(value), value

    def fit_many(self, params: Sequence[Any], data: Any, rngs: Sequence[Any]) -> list[tuple[Model, float]]:
        self.calls.append((len(params), len(data)))
        return [self.fit(one, data, rng) for one, rng in zip(params, rngs, strict=True)]


def _trial(index: int, part: Any = ALL, **extra: Any) -> Trial:
    return Trial(index, {"x": 10.0 * index}, part, ("trial", index), **extra)


def _together(trainer: Sums, trials: list[Trial]) -> dict[int, tuple[Any, float]]:
    found: dict[int, Any] = {}
    for stack in stacks(trainer, trials):
        found |= fit_stack(trainer, stack, DATA, SOURCE)
    return {t.index: score_trial(t, found[t.index], DATA, SOURCE) for t in trials if t.index in found}


def _check(trials: list[Trial]) -> Sums:
    trainer = Sums()
    found = _together(trainer, trials)
    assert set(found) == {trial.index for trial in trials}
    for trial in trials:
        model, score = fit_trial(trainer, trial, DATA, SOURCE)
        assert found[trial.index][0].parameters == model.parameters
        assert found[trial.index][1] == score
    return trainer


def test_a_stack_is_given_what_each_would_be_given_alone() -> None:
    assert _check([_trial(i) for i in range(3)]).calls == [(3, 200)]


def test_stacks_do_not_mix_parts_of_the_records() -> None:
    trials = [_trial(i, ALL.narrowed(Shard(2, i % 2))) for i in range(6)]
    calls = _check(trials).calls
    assert [count for count, _ in calls] == [3, 3]
    assert sum(size for _, size in calls) == 200


def test_a_trial_alone_on_its_part_is_no_stack() -> None:
    assert stacks(Sums(), [_trial(0), _trial(1, ALL.narrowed(Coin(0.5)))]) == []


def test_scores_on_private_records_are_those_of_single_trials() -> None:
    """With the same noise for each, from its own label."""
    held, kept = (ALL.narrowed(Coin(0.3, inside, "validation")) for inside in (True, False))
    validation = HeldOut(held, 60.0, 3.0)
    _check([_trial(i, kept, validation=validation) for i in range(4)])


def test_trials_that_continue_from_a_model_are_trained_one_by_one() -> None:
    trials = [_trial(i, warm_start=9 if i in (1, 2) else None) for i in range(4)]
    assert [[trial.index for trial in stack] for stack in stacks(Sums(), trials)] == [[0, 3]]
    cold, warm = (fit_trial(Sums(), trials[1], DATA, SOURCE, start=start)[1] for start in (None, Model(1000.0)))
    assert warm == pytest.approx(cold + 1000.0, abs=1e-6)


def test_a_trainer_that_cannot_continue_fails_a_trial_that_must() -> None:
    class Plain:
        def cost(self, params: Any) -> Gaussian:
            return Gaussian(2.0)

        def fit(self, params: Any, data: Any, rng: Any) -> tuple[float, float]:
            return float(rng.normal()), 0.0

    assert fit_trial(Plain(), _trial(0), DATA, SOURCE)[1] == 0.0
    with pytest.raises(InvalidInput, match="fit_from"):
        fit_trial(Plain(), _trial(0, warm_start=9), DATA, SOURCE, start=5.0)


def test_a_trial_with_another_cost_or_above_its_line_is_left_to_fail_alone() -> None:
    dear = _trial(1, declared=Gaussian(1.0))
    line = RenyiLine(1e-3, (2.0, 4.0))
    above = Trial(2, {"x": 0.0, "noise_multiplier": 2.0}, ALL, ("trial", 2), line=line)
    settled = _trial(3, line=line)
    (stack,) = stacks(Sums(), [_trial(0), dear, above, settled])
    assert [trial.index for trial in stack] == [0, 3]
    assert stack[1].params["noise_multiplier"] == pytest.approx(22.36, abs=0.01)  # sqrt(1 / (2 * 1e-3))
    for trial in (dear, above):
        with pytest.raises(InvalidInput):
            fit_trial(Sums(), trial, DATA, SOURCE)
