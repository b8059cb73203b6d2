"""A walk through ``dptune tune``: which file calls which, recorded while a small job runs in one process.

Prints how often files call each other, the pairs that call each other back and forth, and every call that goes uphill:
into a room that the drawing of ``docs/architecture.md`` has above the caller's. Going uphill is possible through a
value alone (a function or an object that was handed down), because no file imports a room above its own; such calls
are allowed to those in ``HANDED_DOWN``, each with its reason. What an object calls on itself, in a base class of
another file, stays inside of the object and is no call between files.

    python benchmarks/walk.py [--calls]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import dptune
from dptune import cli

SOURCE = Path(str(dptune.__file__)).parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__", "__main__"),
    ("cli",),
    ("testing",),
    ("reproductions", "leaderboard"),
    ("report", "integrations", "audit", "federated"),
    ("planner",),
    ("sealed",),
    ("executors", "ledgers"),
    ("methods",),
    ("training", "tables"),
    ("data", "_places", "trainer", "judging", "scores", "regression", "units"),
    ("accounting", "spaces"),
    (
        "randomness",
        "errors",
        "documents",
        "_validate",
        "_typing",
        "_compiled",
        "_codec",
        "_files",
        "_global_state",
        "_memory",
        "_keys",
        "_progress",
        "_repairs",
        "_lazy",
        "_threads",
        "_version",
    ),
)
"""The drawing, top to bottom: a room calls those below it and its neighbours."""

ROOMS: dict[str, str] = {}
"""Files that belong to another room than the folder that they are in."""

HANDED_DOWN: dict[str, str] = {
    "_codec.py": "a value is written by its attributes and read by its constructor",
}
"""Who may call uphill, and why."""

PLANNING = ("calibrated", "plan", "plan_from_json")
"""Functions of methods and planner that are passed through when a run is planned."""


def room(file: str) -> str:
    """The room of a file, by its path inside of the package."""
    return ROOMS.get(file, file.partition("/")[0].removesuffix(".py"))


def line(file: str) -> int:
    """The line of the drawing on which a file's room is; 0 is the top."""
    return next(number for number, rooms in enumerate(LAYERS) if room(file) in rooms)


@dataclass
class Walk:
    """Calls between files, by (caller, callee), and how often functions of planning were entered."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    functions: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    planned: Counter[str] = field(default_factory=Counter)
    _seen: dict[int, FrameType] = field(default_factory=dict)
    _files: dict[CodeType, str | None] = field(default_factory=dict)

    def _file(self, code: CodeType) -> str | None:
        """The file of some code inside of the package; None for any other."""
        if code not in self._files:
            path = Path(code.co_filename)
            inside = path.is_relative_to(SOURCE) and path.name != "_lazy.py"  # it passes on, as functools does
            self._files[code] = path.relative_to(SOURCE).as_posix() if inside else None
        return self._files[code]

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """What ``sys.setprofile`` calls."""
        del argument
        code = frame.f_code
        if event != "call" or (callee := self._file(code)) is None or code.co_name.startswith("<"):
            return  # comprehensions and lambdas are part of the expression that they stand in
        if code.co_flags & inspect.CO_GENERATOR:
            if self._seen.get(id(frame)) is frame:
                return  # resumed, not called
            self._seen[id(frame)] = frame
        if callee.startswith(("methods/", "planner")) and code.co_name in PLANNING:
            self.planned[code.co_name] += 1
        above = self._above(frame.f_back)
        caller = None if above is None else self._file(above.f_code)
        if above is None or caller is None or caller == callee or _same_object(above, frame):
            return
        self.calls[caller, callee] += 1
        self.functions.setdefault((caller, callee), set()).add(code.co_name)

    def _above(self, frame: FrameType | None) -> FrameType | None:
        """The nearest call in the package on the way up: what lies between (contextlib, functools) only passes on."""
        while frame is not None and self._file(frame.f_code) is None:
            frame = frame.f_back
        return frame

    @contextlib.contextmanager
    def recording(self) -> Iterator[Walk]:
        """Record what is called inside."""
        before = sys.getprofile()
        sys.setprofile(self.note)
        try:
            yield self
        finally:
            sys.setprofile(before)

    @property
    def back_and_forth(self) -> list[tuple[str, str]]:
        """Pairs of files each of which calls the other."""
        return sorted(pair for pair in self.calls if pair[0] < pair[1] and pair[::-1] in self.calls)

    @property
    def uphill(self) -> list[tuple[str, str]]:
        """Calls into a room above the caller's."""
        return sorted(pair for pair in self.calls if line(pair[1]) < line(pair[0]))


def _same_object(caller: FrameType, callee: FrameType) -> bool:
    """Whether an object calls itself: its class and that one's base may stand in two files; nobody else is asked."""
    one, other = caller.f_locals.get("self"), callee.f_locals.get("self")
    return one is not None and one is other


JOB = """
[data]
name = "digits"
kind = "public"
validation = "test"
[model]
kind = "softmax"
batch_size = 64
steps = 2
[space]
learning_rate = {low = 0.1, high = 1.0, log = true}
[method]
name = "random-stopping"
runs = "binomial:2,1.0"
[budget]
epsilon = 3.0
delta = 1e-4
"""


def walk_of_tune() -> Walk:
    """Run ``dptune tune`` on a small job with random stopping, and record it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.sealed.toy import Inline  # noqa: PLC0415 - found only from the repository's root

    walk = Walk()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        job = Path(folder) / "job.toml"
        job.write_text(JOB, encoding="utf-8")
        arguments = ["tune", str(job), "--out", str(Path(folder) / "run"), "--json"]
        importlib.import_module("dptune.cli.tune")  # imports are no part of the walk
        with mock.patch("dptune.cli.tune.make_executor", return_value=Inline()), walk.recording():
            code = cli.main(arguments)
    if code != 0:
        raise RuntimeError(f"dptune tune ended with exit code {code}.")
    return walk


def main(show_calls: bool) -> None:
    """Print the walk."""
    walk = walk_of_tune()
    print(f"{len(walk.calls)} pairs of files, {sum(walk.calls.values())} calls between them")
    if show_calls:
        for (caller, callee), count in sorted(walk.calls.items(), key=lambda one: (line(one[0][0]), one[0])):
            print(f"  {count:6}  {caller} -> {callee}: {', '.join(sorted(walk.functions[caller, callee]))}")
    for title, pairs in (("back and forth", walk.back_and_forth), ("uphill", walk.uphill)):
        print(f"{title}: {len(pairs)} pairs of files")
        for pair in pairs:
            reason = HANDED_DOWN.get(pair[0], "") if title == "uphill" else ""
            there, back = (", ".join(sorted(walk.functions.get(way, ()))) for way in (pair, pair[::-1]))
            print(f"  {pair[0]} -> {pair[1]} ({there}){f', back ({back})' if back else ''}{reason and f': {reason}'}")
    print("planning:", ", ".join(f"{name} {count}" for name, count in sorted(walk.planned.items())))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="list every pair of files")
    main(parser.parse_args().calls)
