"""``dptune plan`` finds noise whose whole pipeline is within budget, and refuses bad input in one line."""

from __future__ import annotations

import json

import pytest

from dptune import DpSgd, Geometric, compose, disjoint, select, subsample
from dptune.cli import main

_ARGUMENTS = ["plan", "--epsilon", "3", "--delta", "1e-5", "--rate", ".01", "--steps", "500", "--runs", "geometric:10"]


def _plan(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, float]:
    assert main([*_ARGUMENTS, *more, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert isinstance(data, dict)
    return data


def test_the_plan_is_within_budget_and_close_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = _plan(capsys)
    total = select(DpSgd(0.01, found["noise_multiplier"], 500), Geometric(10)).epsilon(1e-5)
    assert found["epsilon"] == pytest.approx(total, abs=1e-12)
    assert 2.99 < found["epsilon"] <= 3.0
    assert found["base_epsilon"] < found["epsilon"]


@pytest.mark.parametrize("variant", [1, 2])
def test_subset_plans_price_the_whole_pipeline(capsys: pytest.CaptureFixture[str], variant: int) -> None:
    found = _plan(capsys, "--subset", ".1", "--variant", str(variant))
    base = DpSgd(0.01, found["noise_multiplier"], 500)
    tune = select(base, Geometric(10))
    total = disjoint(tune, base, 0.1) if variant == 1 else compose(subsample(tune, 0.1), base)
    assert found["epsilon"] == pytest.approx(total.epsilon(1e-5), abs=1e-12)
    assert 2.98 < found["epsilon"] <= 3.0


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--epsilon", "0", "'epsilon' must be a number in (0, inf)"),
        ("--delta", "1", "'delta' must be a number in (0, 1)"),
        ("--delta", "nan", "'delta' must be a number in (0, 1)"),
        ("--rate", "1.5", "'sampling_rate' must be a number in (0, 1]"),
        ("--steps", "0", "'steps' must be a whole number in [1, 10000000]"),
        ("--runs", "geometric:0.5", "'mean' must be a number in [1, 1e+09]"),
        ("--runs", "nonsense", "Cannot read the runs 'nonsense'"),
        ("--density", "2,3", "'density c' must be a number in (0, 1]"),
        ("--density", "x", "Cannot read the density 'x'"),
        ("--subset", "1.5", "'subset' must be a number in (0, 1)"),
        ("--variant", "3", "'variant' must be 1"),
        ("--steps", "many", "Invalid value for '--steps'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], option: str, value: str, says: str
) -> None:
    arguments = [*_ARGUMENTS]
    if option in arguments:
        arguments[arguments.index(option) + 1] = value
    else:
        arguments += [option, value]
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("dptune: ")
    assert says in printed.err
    assert printed.err.count("\n") == 1


def test_a_missing_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--epsilon", "3"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_plan_for_the_power_of_an_attack(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["plan", "--delta", "1e-5", "--rate", ".05", "--steps", "50", "--runs", "geometric:5"]
    assert main([*options, "--power", ".1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0.0999 < found["attack"]["power"] <= 0.1
    assert main([*options, "--power", ".1", "--epsilon", "1"]) == 2
    assert main(options) == 2
    assert "either --epsilon E, or --power P" in capsys.readouterr().err
