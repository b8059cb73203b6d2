"""NTNV and NTCV against real tuning: any plan, any trainer, two data sets that differ in one record (Xiang et al.).

Every game is a whole run of the plan through the code of sealed runs (``_inline``); the attacker sees the released
parameters and model and reduces them to a number. In NTNV models are scored as the trainer does, in NTCV by the
attacker's number. Threshold and direction are chosen on the first half of the games and judged on the second. Games
are shared by worker processes and kept in a file as they finish.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import pickle
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dptune._typing import Array
from dptune._validate import integer, real
from dptune.accounting import Cost, parallel
from dptune.accounting.literature import Bound, published
from dptune.audit._finished_games import FinishedGames
from dptune.audit._inline import InlineSession, Runner, StackedSession, released
from dptune.audit.auditor import Audit, curve_of
from dptune.audit.canaries import Attacker, Controlled
from dptune.audit.games import TRAINED
from dptune.audit.statistics import Counts, EmpiricalBound, choose_threshold, empirical_bound, expected_bound
from dptune.errors import DptuneError, InvalidInput
from dptune.executors.base import Session, Task, Work
from dptune.executors.models import open_model
from dptune.executors.processes import Processes
from dptune.methods.plan import Plan
from dptune.methods.trial import Trial
from dptune.randomness import Randomness
from dptune.trainer import Trainer, check_trainer, check_warm_start

__all__ = ["TuningGame", "check_unpaid", "judge", "play_tuning"]


_CHUNK = 10


def check_unpaid(data_is: str) -> None:
    """Refuse records that are not marked: games look at thousands of runs and charge nothing."""
    if data_is not in ("public", "synthetic"):
        raise InvalidInput(
            "Games look at thousands of runs on their records and charge nothing, so they are for records that are "
            f"marked 'public' or 'synthetic'; these are {data_is!r}. Audit the plan on synthetic records like yours."
        )


@dataclass(frozen=True, eq=False)
class TuningGame:
    """A game against a plan; ``worlds`` are the data without and with the record, ``games`` are played in each.

    Thousands of runs are looked at and nothing is charged, so the records must be marked: ``data_is`` "public" or
    "synthetic".
    """

    name: str
    plan: Plan
    trainer: Trainer[Any, object]
    worlds: tuple[Any, Any]
    attacker: Attacker
    games: int
    confidence: float = 0.95
    data_is: str = "private"

    def __post_init__(self) -> None:
        check_unpaid(self.data_is)
        if self.name not in TRAINED:
            raise InvalidInput(f"'game' must be one of {', '.join(TRAINED)} here; got {self.name!r}.")
        if not isinstance(self.plan, Plan) or not self.plan.guaranteed:
            raise InvalidInput("An audit needs a plan that claims a guarantee: method.plan(budget, trainer).")
        if self.name == "ntcv" and self.plan.validation is not None:
            raise InvalidInput(
                "In ntcv the attacker is the score; this plan scores on private records itself. Plan without private "
                "validation, or play ntnv."
            )
        check_trainer(self.trainer)
        if self.plan.needs_warm_start:
            check_warm_start(self.trainer)
        integer("games", self.games, 1, 10**9, hint="Games are counted per world.")
        hint = "It is the probability that the lower bound holds; a common choice is 0.95."
        real("confidence", self.confidence, 0, 1, low_open=True, high_open=True, hint=hint)
        fewest = next(m for m in range(2, 10**6) if expected_bound(1.0, 0.0, m, self.delta, self.confidence) > 0.0)
        if self.games < 2 * fewest:  # even an attacker who is always right would show nothing
            raise InvalidInput(
                f"'games' must be at least {2 * fewest} per world for confidence {self.confidence:g} (half of them "
                f"choose the threshold); got {self.games}."
            )

    @property
    def delta(self) -> float:
        return self.plan.budget.delta

    @property
    def cost(self) -> Cost:
        """What the account charges for the release."""
        return self.plan.cost

    def base_epsilon(self) -> float:
        """The epsilon of one training (of the most expensive configuration)."""
        return parallel(*self.plan.run_costs).epsilon(self.delta)

    def upper(self) -> float:
        """The epsilon that the account claims; no audit may exceed it."""
        return self.cost.epsilon(self.delta)

    def certificate(self) -> float:
        """What some score really costs, from theory; NaN where there is no such theory."""
        try:
            return self.cost.epsilon_lower(self.delta)
        except (ArithmeticError, ValueError, IndexError):
            return math.nan

    def published(self) -> Mapping[str, Bound]:
        """Published bounds, where they know the method."""
        known = self.plan.published_form
        return {} if known is None else published(*known, self.delta)

    def describe(self) -> dict[str, Any]:
        """What a file of finished games must agree with."""
        players = re.sub(r" at 0x[0-9a-f]+", "", f"{self.trainer!r} {self.attacker!r}")
        plan, trainer = (hashlib.sha256(text.encode()).hexdigest() for text in (self.plan.to_json(), players))
        records = hashlib.sha256(pickle.dumps(self.worlds, protocol=4)).hexdigest()
        return {"game": self.name, "plan": plan, "trainer": trainer, "records": records, "chunk": _CHUNK}


@dataclass(frozen=True)
class _Player:
    """Plays a chunk of games; for the executor it is a trainer whose model are the statistics that were seen."""

    plan: Plan
    trainer: Trainer[Any, object]
    attacker: Attacker

    def fit(
        self, params: Mapping[str, Any], data: tuple[Any, Any], rng: np.random.Generator
    ) -> tuple[list[float], float]:
        source, runner = Randomness(rng.bytes(32)), Runner(StackedSession)
        seen = []
        for game in range(params["games"]):
            randomness = source.child("game", game)
            chosen, vault, _ = runner.run(self.plan, self.trainer, data[params["world"]], randomness)
            seen.append(float(self.attacker(*released(chosen, vault))))
        return seen, 0.0


@contextlib.contextmanager
def _open(game: TuningGame, randomness: Randomness, workers: int) -> Iterator[Session]:
    trainer: Trainer[Any, object]
    trainer = game.trainer if game.name == "ntnv" else Controlled(game.trainer, game.attacker)
    player = _Player(game.plan, trainer, game.attacker)
    if workers == 1:
        yield InlineSession(player, game.worlds, randomness)
        return
    with tempfile.TemporaryDirectory(prefix="dptune-audit-") as folder:
        session = Processes(workers).open(Work(player, game.worlds, randomness.secret(), Path(folder), pickle=True))
        try:
            yield session
        finally:
            session.close()


@contextlib.contextmanager
def _bar(total: int, done: int, show: bool) -> Iterator[Callable[[], None]]:
    if not show:
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where a bar is shown
    from rich.progress import Progress  # noqa: PLC0415 - the same

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("games", total=total, completed=done)
        yield lambda: progress.advance(task)


def play_tuning(
    game: TuningGame,
    state: str | Path | None = None,
    *,
    progress: bool = False,
    workers: int | None = None,
    randomness: Randomness | None = None,
) -> Audit:
    """Play; ``state`` names the file that keeps finished games, ``randomness`` is fixed in tests alone.

    ``workers`` processes share the games (as many as there are processors; 1: none but this one).
    """
    began = time.perf_counter()
    kept = FinishedGames(None if state is None else Path(state), game.describe(), randomness)
    chunks = math.ceil(game.games / _CHUNK)
    todo = [(chunk, world) for chunk in range(chunks) for world in (0, 1) if (world, chunk) not in kept.seen]
    count = min(integer("workers", workers or os.cpu_count() or 1, 1), max(1, len(todo)))
    if todo:
        with _open(game, kept.randomness, count) as session, _bar(2 * chunks, 2 * chunks - len(todo), progress) as tick:
            _play(session, todo, kept, tick)
    without, with_it = (
        np.array([value for chunk in range(chunks) for value in kept.seen[world, chunk]])[: game.games]
        for world in (0, 1)
    )
    bound = judge(without, with_it, game.delta, game.confidence)
    seconds = time.perf_counter() - began
    known = (game.base_epsilon(), game.certificate(), game.upper())
    return Audit(game, "canary", bound, math.nan, *known, seconds, curve=curve_of(-without, -with_it))


def _play(session: Session, todo: list[tuple[int, int]], kept: FinishedGames, tick: Callable[[], None]) -> None:
    waiting, running = list(enumerate(todo))[::-1], 0
    while waiting or running:
        while waiting and running < session.slots:
            number, (chunk, world) = waiting.pop()
            params = {"world": world, "games": _CHUNK}
            trial = Trial(number, params, seed_label=("world", world, "chunk", chunk))
            session.submit(Task(number, trial.to_json()))
            running += 1
        result = session.wait(0.5)
        if result is None:
            continue
        running -= 1
        if result.model is None:
            reason = (result.error or "the worker died").strip().splitlines()[-1]
            raise DptuneError(
                f"A game could not be played: {reason}. Finished games are kept in the state file, if any."
            )
        chunk, world = todo[result.index]
        kept.keep(world, chunk, open_model(result.model, pickle=True))
        tick()


def judge(without: Array, with_it: Array, delta: float, confidence: float) -> EmpiricalBound:
    """Threshold and direction from the first half of the games, the verdict from the second."""
    half = len(without) // 2
    tried = []
    for sign in (1.0, -1.0):
        tested, other = (with_it, without) if sign > 0 else (-without, -with_it)
        mark = choose_threshold(tested[:half], other[:half], delta, confidence)
        counts = [
            Counts(int((tested[part] > mark).sum()), int((other[part] > mark).sum()), len(tested[part]))
            for part in (slice(None, half), slice(half, None))
        ]
        tried.append((empirical_bound(counts[0], delta, confidence).low, counts[1]))
    chosen = max(tried, key=lambda item: item[0])[1]
    return empirical_bound(chosen, delta, confidence)
