"""Prices, plans and releases that a change of structure must not move: write them before, compare them after.

Run ``python benchmarks/golden.py --write FILE`` with the code as it was and ``--compare FILE`` with the code as it is,
on one machine: everything is compared to the last digit, and new keys may appear. What is stored in
``tests/golden.json`` was made by ``--write``; the test compares with it to nine digits, since libraries
round differently elsewhere.
"""

from __future__ import annotations

import os

# One numerical thread, as in tests: with two, sums are added in another order. Set before numpy is imported.
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import contextlib
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dptune as dpt
from dptune.cli import main
from dptune.methods import Line, Naive, NonPrivateOptimum, PrivateValidation, RandomGuess
from dptune.methods.plan import Method

Golden = dict[str, Any]

BASES = ("gdp:0.3", "gaussian:2", "laplace:1.5", "pure:0.5", "dpsgd:0.01,1.1,2000", "line:0.05")
LAWS = ("geometric:10", "logarithmic:50", "tnb:0.5,20", "poisson:15", "binomial:20,0.5")


def price_commands() -> list[list[str]]:
    """At least sixty expressions: every base under every law, boxes, both subset variants, other deltas."""
    plain = [["--base", base, "--runs", law, "--delta", "1e-5"] for base in BASES for law in LAWS]
    boxed = [
        ["--base", base, "--runs", law, "--delta", "1e-5", "--density", "0.75,2"]
        for base in ("gaussian:2", "dpsgd:0.01,1.1,2000")
        for law in ("geometric:10", "poisson:15")
    ]
    parts = [
        ["--base", base, "--runs", law, "--delta", "1e-5", "--subset", share, "--variant", variant]
        for base in ("gaussian:2", "dpsgd:0.01,1.1,2000", "laplace:1.5")
        for law in ("geometric:10", "poisson:15")
        for share, variant in (("0.1", "1"), ("0.1", "2"), ("0.5", "1"))
    ]
    deltas = [
        ["--base", base, "--runs", "geometric:10", "--delta", delta]
        for base in ("gaussian:2", "dpsgd:0.004,0.9,3000", "pure:0.5")
        for delta in ("1e-10", "1e-7", "1e-3")
    ]
    return [["price", *one, "--json"] for one in (*plain, *boxed, *parts, *deltas)]


def plan_commands() -> list[list[str]]:
    """The smallest noise, as the command finds it."""
    common = ["plan", "--epsilon", "3", "--delta", "1e-5", "--rate", "0.01", "--steps", "1000", "--json"]
    return [
        [*common, "--runs", "geometric:10"],
        [*common, "--runs", "poisson:15"],
        [*common, "--runs", "geometric:10", "--density", "0.75,2"],
        [*common, "--runs", "geometric:30", "--subset", "0.1"],
        [*common, "--runs", "geometric:30", "--subset", "0.1", "--variant", "2"],
    ]


class Toy:
    """DP-SGD's cost, and a score that follows from the configuration and the run's own generator."""

    def cost(self, params: dict[str, Any]) -> dpt.DpSgd:
        return dpt.DpSgd(0.05, params["noise_multiplier"], int(params.get("steps", 100)))

    def fit(self, params: dict[str, Any], data: Any, rng: Any) -> tuple[Any, float]:
        del data
        drawn = float(np.random.default_rng(rng.integers(2**31)).normal())
        return {"drawn": drawn}, 1.0 / (1.0 + abs(math.log10(params["lr"]) + 2.0)) + 0.01 * drawn


SPACE = dpt.Space(lr=dpt.Float(1e-4, 1, log=True), clip=dpt.Choice(0.1, 1, 10))
GRID = SPACE.grid(lr=4)
STEPS = dpt.Space(lr=dpt.Float(1e-4, 1, log=True), steps=dpt.Choice(50, 100))
HELD = PrivateValidation(0.1, 500)
STOPPING = dpt.RandomStopping(SPACE, dpt.Geometric(5))
BUDGET = dpt.Budget(2.0, 1e-5)


def methods() -> dict[str, Method]:
    """Every method, with the options that change what is paid."""
    return {
        "geometric": STOPPING,
        "poisson": dpt.RandomStopping(SPACE, dpt.Poisson(6)),
        "validated": dpt.RandomStopping(SPACE, dpt.Logarithmic(8), validation=HELD),
        "costs averaged": dpt.RandomStopping(STEPS, dpt.Geometric(5)),
        "costs largest": dpt.RandomStopping(STEPS, dpt.Geometric(5), costs="largest"),
        "costs under a line": dpt.RandomStopping(STEPS, dpt.Geometric(5), costs=Line()),
        "adaptive": dpt.Adaptive(SPACE, dpt.Geometric(5)),
        "adaptive grid": dpt.Adaptive(GRID, dpt.Geometric(5), density=(0.8, 1.5)),
        "subset, rest": dpt.Subset(STOPPING, 0.1),
        "subset, all": dpt.Subset(STOPPING, 0.1, final="all", warm_start=True),
        "subset, validated": dpt.Subset(dpt.RandomStopping(SPACE, dpt.Geometric(5), validation=HELD), 0.2),
        "subset of costs": dpt.Subset(dpt.RandomStopping(STEPS, dpt.Geometric(5)), 0.2),
        "noisy best": dpt.NoisyBest(GRID, 50),
        "noisy best, validated": dpt.NoisyBest(GRID, 50, validation=HELD),
        "threshold": dpt.Threshold(GRID, 50),
        "threshold, sparse": dpt.Threshold(GRID, 50, variant="sparse"),
        "threshold, batches": dpt.Threshold(GRID, 50, batch=3),
        "vote": dpt.Vote(GRID, 2, 60),
        "naive": Naive(GRID),
        "optimum": NonPrivateOptimum(GRID),
        "guess": RandomGuess(SPACE),
    }


def _command(arguments: list[str]) -> Any:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main(arguments)
    return json.loads(said.getvalue()) if code == 0 else {"exit": code}


def _plan(method: Method) -> Golden:
    plan = method.plan(BUDGET, Toy())
    said = json.loads(plan.to_json())
    kept = ("method", "cost", "epsilon", "delta", "noise_multiplier", "expected_runs", "theorem", "assumptions")
    return {name: said[name] for name in (*kept, "default", "guaranteed")} | {"price": plan.price()}


def _release(method: Method) -> Golden:
    """A rehearsal's release: who wins, and what is said, is a function of the seed."""
    plan = method.plan(BUDGET, Toy())
    with tempfile.TemporaryDirectory() as folder:
        release = dpt.run(plan, Toy(), np.arange(2000.0), seed=7, data_is="synthetic", out=Path(folder) / "run")
        details = json.loads((release.path / "release.json").read_text(encoding="utf-8"))
    kept = ("params", "epsilon", "epsilon_lower", "delta", "unit", "dataset", "model", "model_sha256", "guarantee")
    return {name: details[name] for name in kept if name in details}


def golden(releases: bool = True) -> Iterator[tuple[str, Any]]:
    """Name and value of everything that must stay, one after the other."""
    for command in (*price_commands(), *plan_commands()):
        yield " ".join(command), _command(command)
    for name, method in methods().items():
        yield f"plan: {name}", _plan(method)
    if releases:
        for name in ("geometric", "adaptive grid", "subset, rest", "noisy best", "threshold, sparse", "vote", "guess"):
            yield f"release: {name}", _release(methods()[name])


def differences(before: Any, now: Any, digits: float, place: str = "") -> Iterator[str]:
    """Where two values differ; keys that are new are no difference. ``digits`` is a relative tolerance."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            if key not in now:
                yield f"{place}.{key} is gone"
            else:
                yield from differences(value, now[key], digits, f"{place}.{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from differences(one, other, digits, f"{place}[{i}]")
    elif isinstance(before, float) and isinstance(now, float):
        if not (before == now or math.isclose(before, now, rel_tol=digits, abs_tol=0.0)):
            yield f"{place}: {before!r} became {now!r}"
    elif before != now:
        yield f"{place}: {before!r} became {now!r}"


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--compare", type=Path)
    chosen = parser.parse_args()
    found = dict(golden())
    print(f"{len(found)} values")
    if chosen.write is not None:
        chosen.write.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if chosen.compare is None:
        return 0
    stored = json.loads(chosen.compare.read_text(encoding="utf-8"))
    wrong = [line for name, value in stored.items() for line in differences(value, found.get(name), 0.0, name)]
    print("\n".join(wrong) if wrong else "nothing moved")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(_main())
