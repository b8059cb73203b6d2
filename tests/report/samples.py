"""Pages to look at: a public release for every method, made without a run, and a ledger without a file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import dptune as dpt
from dptune.accounting.attackers import attackers
from dptune.ledgers import Charge, Entry, Receipt, Status
from dptune.methods.baselines import NonPrivateOptimum, RandomGuess
from dptune.methods.plan import Plan
from dptune.sealed.content import Statement
from dptune.sealed.public import PublicRelease
from dptune.sealed.statement import Facts
from dptune.sealed.stating import state

SPACE = dpt.Space(learning_rate=dpt.Float(0.01, 10.0, log=True), depth=dpt.Int(1, 4))
LISTED = dpt.Space.of([{"layers": count} for count in (1, 2, 3, 4)])
TIME = "2030-01-01T00:00:00+00:00"


class Described:
    """A mechanism that is priced and never run."""

    def cost(self, params: dict[str, Any]) -> dpt.Cost:
        return dpt.Gaussian(params["noise_multiplier"])


NAMES = (
    "adaptive",
    "guess",
    "noisy best",
    "random stopping",
    "subset",
    "subset, all",
    "threshold",
    "vote",
    "with validation",
)


@cache
def plans() -> dict[str, Plan]:
    """A plan of every method, by the names above; planning takes a while, so it is done once."""
    trainer, budget = Described(), dpt.Budget(3.0, 1e-5)
    random = dpt.RandomStopping(SPACE, dpt.Geometric(5))
    held = dpt.RandomStopping(SPACE, dpt.Geometric(5), validation=dpt.PrivateValidation(0.2, 500))
    methods: dict[str, Any] = {
        "random stopping": random,
        "with validation": held,
        "adaptive": dpt.Adaptive(SPACE, dpt.Geometric(5)),
        "subset": dpt.Subset(random, fraction=0.2),
        "subset, all": dpt.Subset(random, fraction=0.1, final="all"),
        "noisy best": dpt.NoisyBest(LISTED, shards=10),
        "threshold": dpt.Threshold(LISTED, shards=40),
        "vote": dpt.Vote(LISTED, votes=1, clients=60),
        "guess": RandomGuess(LISTED),
    }
    return {name: method.plan(budget, trainer) for name, method in methods.items()}


def unsafe_plan() -> Plan:
    """A plan without a guarantee."""
    return NonPrivateOptimum(LISTED).plan(dpt.Budget(3.0, 1e-5), Described())


def public(plan: Plan, *, dataset: str = "icu", unit: str = "patient", rule: str | None = "renyi") -> PublicRelease:
    """What a run of this plan would say to everybody; ``rule`` is None for a rehearsal."""
    receipt = None if rule is None else Receipt("run 1", dataset, rule, "ab" * 32, 3, TIME)
    epsilon = plan.price()
    facts = Facts(
        plan=plan,
        params={"learning_rate": 0.25, "name <b>": "x & y"},
        dataset=dataset,
        unit=unit,
        epsilon=epsilon,
        epsilon_lower=0.9 * epsilon if plan.guaranteed else None,
        receipt=receipt,
        budget=None if receipt is None else (10.0, 1e-5),
        model="model.npz",
        released=TIME,
        release_at=None,
        late=False,
        replay="exact",
        data_is="private" if receipt is not None else "synthetic",
        attackers=attackers(plan.cost) if plan.guaranteed else None,
        spent=None if receipt is None else 4.25,
        generator="philox-4x32-10, compiled, labelled",
    )
    return PublicRelease(
        statement=state(facts),
        plan=plan,
        params=facts.params,
        epsilon=epsilon if plan.guaranteed else None,
        delta=1e-5,
        epsilon_lower=facts.epsilon_lower,
        method=plan.method,
        dataset=dataset,
        unit=unit,
        guarantee=receipt is not None,
        budget=facts.budget,
        spent=facts.spent,
        files=("release.json", "statement.md", "statement.html", "plan.json", "model.npz"),
        released=TIME,
    )


def vote_statement(mode: str) -> Statement:
    """What a federated vote of many candidates would say to everybody; needs the extra 'flower'."""
    pytest.importorskip("cryptography")
    from dptune.federated.statement import VoteStatement  # noqa: PLC0415 - where the extra is
    from dptune.federated.vote_annex import state_vote  # noqa: PLC0415 - where the extra is
    from dptune.federated.vote_plan import VotePlan  # noqa: PLC0415 - where the extra is

    candidates = [{"learning_rate": rate, "momentum": 0.9} for rate in range(1, 101)]
    plan = VotePlan.calibrated(candidates, votes=5, epsilon=1.0, delta=1e-5, clients=250, dropout=0.2, colluding=3)
    return state_vote(VoteStatement.of(plan, contributed=213, mode=mode, session=bytes(16)), candidates[3])


@dataclass
class SaidLedger:
    """What a page asks of a ledger, without the file: as many charges as one likes."""

    charged: int
    dataset: str = "icu"
    path: Path = Path("hospital.ledger")
    has_key: bool = True

    def charges(self) -> list[Charge]:
        return [
            Charge(i + 3, TIME, self.dataset, f"{i:032x}", "random-stopping", 0.1234, 1.0 + i / 1e4, "renyi")
            for i in range(self.charged)
        ]

    def datasets(self) -> list[Status]:
        spent = self.charges()[-1].total or 0.0 if self.charged else 0.0
        return [Status(self.dataset, "patient", 3.0, 1e-5, self.charged, spent, 0.5, "renyi")]

    def verified(self) -> list[Entry]:
        first: dict[str, Any] = {"kind": "dataset", "dataset": self.dataset, "filter": {"epsilon": 3.0, "delta": 1e-5}}
        later = [{"kind": "charge", "dataset": self.dataset} for _ in range(self.charged)]
        return [Entry(i + 2, body, "cd" * 32) for i, body in enumerate([first, *later])]
