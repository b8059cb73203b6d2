"""NTNV and NTCV: real DP-SGD trainings, with and without a canary record, the best of K released (Xiang et al.).

The canary lights a pixel that no record uses, so its clipped gradient has about the same direction at every step
and nothing but noise hides it; the attacker reads the released weights along that direction. In NTNV the score is
accuracy on public records, in NTCV it is the attacker's own statistic. The threshold is chosen on the first half of
the games and judged on the second. Games are kept in a file as they finish, so an interrupted audit goes on where
it stopped.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dptune.accounting import DpSgd
from dptune.audit.auditor import Audit
from dptune.audit.games import TRAINED, Game
from dptune.audit.statistics import Counts, EmpiricalBound, choose_threshold, empirical_bound, expected_bound
from dptune.errors import InvalidInput
from dptune.training import Dataset, RunKey, Settings, descend, engine_for, load, softmax

__all__ = ["Workshop", "play_training", "workshop"]

Array = NDArray[np.float64]

_RECORDS, _VALIDATION = 300, 200
_BRIGHTNESS = 100.0  # the canary's pixel: its gradient is clipped at every step
_RATES = (0.5, 1.0, 2.0)  # the learning rates that are tuned
_CHUNK, _STACK = 50, 16
_DATA = ("digits", "mnist")


@dataclass(frozen=True, eq=False)
class Workshop:
    """Everything a training needs: records with and without the canary, public validation records."""

    without: Dataset
    canary: Dataset
    validation: Dataset

    @property
    def worlds(self) -> tuple[Dataset, Dataset]:
        """World 0 and world 1."""
        both = Dataset(
            np.concatenate([self.without.x, self.canary.x]),
            np.concatenate([self.without.y, self.canary.y]),
            self.without.classes,
        )
        return self.without, both

    def direction(self) -> Array:
        """The canary's negative gradient at equal outputs, with norm 1, in the engine's order of parameters."""
        engine = engine_for(softmax(self.canary.x.shape[1], self.canary.classes))
        engine.bind(self.canary)
        out = np.zeros((1, engine.dimension), engine.dtype)
        start = np.zeros((1, engine.dimension), engine.dtype)
        engine.clipped_sums(start, [np.zeros(1, np.int64)], np.ones(1), out)
        return np.asarray(-out[0] / np.linalg.norm(out[0]), dtype=np.float64)


def workshop(data: str) -> Workshop:
    """A few hundred records of a public data set, and a canary in its first pixel, which is always dark."""
    if data not in _DATA:
        raise InvalidInput(f"'data' must be one of {', '.join(_DATA)}; got {data!r}.")
    split = load(data)
    train, test = split.train.take(np.arange(_RECORDS)), split.test.take(np.arange(_VALIDATION))
    if train.x[:, 0].any():
        raise InvalidInput(f"The first pixel of {data} is in use, so the canary would not stand alone.")
    x = np.zeros((1, train.x.shape[1]), train.x.dtype)
    x[0, 0] = _BRIGHTNESS
    return Workshop(train, Dataset(x, np.zeros(1, np.int64), train.classes), test)


class _Play:
    """Plays chunks of games; the randomness of a chunk is a function of the key and its number."""

    def __init__(self, game: Game, base: DpSgd, shop: Workshop, key: RunKey) -> None:
        self._game, self._base, self._shop, self._key = game, base, shop, key
        self._worlds = shop.worlds
        self._direction = shop.direction()
        self._engine = engine_for(softmax(shop.without.x.shape[1], shop.without.classes))

    def chunk(self, number: int, games: int) -> tuple[list[float], list[float]]:
        """Released statistics of world 0 and of world 1 (minus infinity: the public default)."""
        return self._world(0, number, games), self._world(1, number, games)

    def _world(self, world: int, number: int, games: int) -> list[float]:
        key = self._key.child("world", world, "chunk", number)
        source = key.generator()
        counts = [self._game.runs.sample(lambda: float(source.random())) for _ in range(games)]
        owner = np.repeat(np.arange(games), counts)
        rates = np.array(_RATES)[source.integers(0, len(_RATES), len(owner))]
        ties = source.random(len(owner))
        best: list[tuple[float, float, float]] = [(-math.inf, 0.0, -math.inf)] * games
        for begin in range(0, len(owner), _STACK):
            runs = range(begin, min(begin + _STACK, len(owner)))
            keys = [key.child("run", run) for run in runs]
            trained = descend(self._engine, self._worlds[world], [self._settings(rates[run]) for run in runs], keys)
            for run, flat in zip(runs, trained, strict=True):
                # In units of one clipped gradient; the learning rate is released with the model.
                seen = float(flat @ self._direction) * self._batch / rates[run]
                score = seen if self._game.name == "ntcv" else self._accuracy(flat)
                best[owner[run]] = max(best[owner[run]], (score, float(ties[run]), seen))
        return [seen for _, _, seen in best]

    @property
    def _batch(self) -> float:
        return max(1.0, self._base.sampling_rate * _RECORDS)

    def _settings(self, rate: float) -> Settings:
        return Settings(
            sampling_rate=self._base.sampling_rate,
            noise_multiplier=self._base.noise_multiplier,
            steps=self._base.steps,
            clip_norm=1.0,
            learning_rate=float(rate),
            batch_size=self._batch,
        )

    def _accuracy(self, flat: NDArray[np.floating]) -> float:
        validation = self._shop.validation
        return float(np.mean(np.argmax(self._engine.logits(flat, validation.x), axis=1) == validation.y))


class _State:
    """Finished chunks, one JSON line each, after a line that says what is being played."""

    def __init__(self, path: Path | None, game: Game, data: str) -> None:
        self._path = path
        self.seen: dict[int, tuple[list[float], list[float]]] = {}
        about = {"game": game.name, "cost": game.cost.describe(), "data": data, "chunk": _CHUNK}
        secret = RunKey.fresh().secret
        if path is not None and path.is_file():
            lines = path.read_text().splitlines()
            secret = self._read(lines, about, path)
        self.key = RunKey(secret)
        if path is not None:
            self._write({**about, "key": secret.hex()})

    def _read(self, lines: list[str], about: dict[str, object], path: Path) -> bytes:
        try:
            head = json.loads(lines[0])
            secret = bytes.fromhex(head.pop("key"))
        except (IndexError, KeyError, ValueError):
            raise InvalidInput(f"{path} holds no audit; name a new file, or the one that was begun.") from None
        if head != json.loads(json.dumps(about)):
            raise InvalidInput(f"{path} belongs to another game; name a new file, or repeat its options.")
        for line in lines[1:]:
            with contextlib.suppress(ValueError):  # a line that was cut off is played again
                entry = json.loads(line)
                self.seen[int(entry["chunk"])] = (entry["without"], entry["with"])
        return secret

    def _write(self, head: dict[str, object]) -> None:
        assert self._path is not None  # only called with a file
        lines = [json.dumps(head), *(self._line(number) for number in self.seen)]
        try:
            self._path.write_text("\n".join(lines) + "\n")
        except OSError as error:
            raise InvalidInput(f"'state' cannot be written: {error.strerror}.") from None

    def _line(self, number: int) -> str:
        without, with_record = self.seen[number]
        return json.dumps({"chunk": number, "without": without, "with": with_record})

    def keep(self, number: int, chunk: tuple[list[float], list[float]]) -> None:
        self.seen[number] = chunk
        if self._path is not None:
            with self._path.open("a") as stream:
                stream.write(self._line(number) + "\n")


def _enough(game: Game) -> None:
    """Refuse so few games that even an attacker who is always right would show nothing."""
    fewest = next(m for m in range(2, 10**6) if expected_bound(1.0, 0.0, m, game.delta, game.confidence) > 0.0)
    if game.games < 2 * fewest:
        raise InvalidInput(
            f"'games' must be at least {2 * fewest} per world for confidence {game.confidence:g} (half of them choose "
            f"the threshold); got {game.games}."
        )


@contextlib.contextmanager
def _bar(total: int, show: bool) -> Iterator[Callable[[], None]]:
    if not show:
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where a bar is shown
    from rich.progress import Progress  # noqa: PLC0415 - the same

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("games", total=total)
        yield lambda: progress.advance(task)


def play_training(
    game: Game, data: str = "digits", state: Path | None = None, *, progress: bool = False, key: RunKey | None = None
) -> Audit:
    """Play NTNV or NTCV; ``state`` names the file that keeps finished games, ``key`` is for tests alone."""
    if game.name not in TRAINED:
        raise InvalidInput(f"'game' must be one of {', '.join(TRAINED)} here; got {game.name!r}.")
    base = game.base
    if not isinstance(base, DpSgd):
        raise InvalidInput(f"{game.name} trains models by DP-SGD; write the base as dpsgd:RATE,NOISE,STEPS.")
    _enough(game)
    began = time.perf_counter()
    kept = _State(state, game, data)
    player = _Play(game, base, workshop(data), key or kept.key)
    chunks = math.ceil(game.games / _CHUNK)
    with _bar(chunks, progress) as advance:
        for number in range(chunks):
            if number not in kept.seen:
                kept.keep(number, player.chunk(number, _CHUNK))
            advance()
    without, with_record = (
        np.array([value for number in range(chunks) for value in kept.seen[number][world]])[: game.games]
        for world in (0, 1)
    )
    bound = _judge(game, without, with_record)
    seconds = time.perf_counter() - began
    return Audit(game, "canary", bound, math.nan, game.base_epsilon(), game.certificate(), game.upper(), seconds)


def _judge(game: Game, without: Array, with_record: Array) -> EmpiricalBound:
    """Threshold and direction from the first half, the verdict from the second."""
    half = game.games // 2
    tried = []
    for sign in (1.0, -1.0):
        tested, other = (with_record, without) if sign > 0 else (-without, -with_record)
        mark = choose_threshold(tested[:half], other[:half], game.delta, game.confidence)
        counts = [
            Counts(int((tested[part] > mark).sum()), int((other[part] > mark).sum()), len(tested[part]))
            for part in (slice(None, half), slice(half, None))
        ]
        tried.append((empirical_bound(counts[0], game.delta, game.confidence).low, counts[1]))
    chosen = max(tried, key=lambda item: item[0])[1]
    return empirical_bound(chosen, game.delta, game.confidence)
