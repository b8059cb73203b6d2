"""What a curator may read of a vault; every reading is logged with its reason before anything is returned."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dptune.errors import InvalidInput
from dptune.sealed.vault import Vault

__all__ = ["HEADING", "Reading", "read_vault", "trial_line"]

HEADING = f"{'trial':>6} {'score':>10} {'seconds':>8}  parameters"


@dataclass(frozen=True)
class Reading:
    """What a curator read. Not releasable: each of these would break the run's guarantee.

    Args:
        scores: of the trials that are over, by number.
        params: of every trial that was begun.
        errors: tracebacks of failures.
        deaths: how often a process died with a trial.
        started: times, in seconds.
        finished: times, in seconds.
        reads: every reading so far: time, reader, what, reason.
        notes: about the records, such as how many cells were repaired.

    Example:
        >>> Reading({0: 0.9}, {0: {"lr": 1.0}}, {}, {0: 0}, {0: 1.0}, {0: 2.0}, []).scores
        {0: 0.9}
    """

    scores: dict[int, float]
    params: dict[int, dict[str, Any]]
    errors: dict[int, str]
    deaths: dict[int, int]
    started: dict[int, float]
    finished: dict[int, float]
    reads: list[tuple[float, str, str, str]]
    notes: dict[str, Any] = field(default_factory=dict)


def read_vault(run: str | Path, reason: str) -> Reading:
    """Open a run's vault as its curator. The read is logged, with its reason, before anything is returned.

    Until the release everything is checked first; afterwards the key is destroyed, and what is read is what lies there.

    Args:
        run: the run's folder.
        reason: why; it is logged.

    Returns:
        Scores, parameters, errors and times.

    Raises:
        InvalidInput: no reason was given, or there is no run.
        Corrupt: the vault was damaged.

    Example:
        >>> from dptune.randomness import Randomness
        >>> Path("run").mkdir()
        >>> vault = Vault.create(Path("run/vault"), {"state": "open"}, Randomness.rehearsal(1))
        >>> vault.begin({0: '{"params": {"lr": 1.0}}'})
        >>> read_vault("run", "the nightly check").params
        {0: {'lr': 1.0}}
    """
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInput("Reading a vault needs a reason: it is logged, and what you read must not be released.")
    vault = Vault.open(Path(run) / "vault")
    vault.log_read("scores, parameters, errors and timings", reason)
    with vault._database() as database:
        trials = database.execute("SELECT number, trial, started, deaths FROM trials").fetchall()
        outcomes = database.execute("SELECT number, score, error, finished FROM outcomes").fetchall()
        reads = database.execute("SELECT time, reader, what, reason FROM reads ORDER BY time").fetchall()
    try:
        params = {row[0]: json.loads(row[1])["params"] for row in trials}
    except (ValueError, TypeError, KeyError):
        raise vault._damaged() from None
    return Reading(
        scores={row[0]: row[1] for row in outcomes},
        params=params,
        errors={row[0]: row[2] for row in outcomes if row[2]},
        deaths={row[0]: row[3] for row in trials if row[3]},
        started={row[0]: row[2] for row in trials},
        finished={row[0]: row[3] for row in outcomes},
        reads=reads,
        notes=vault.facts().get("notes") or {},
    )


def trial_line(number: int, score: str, seconds: float | None, params: dict[str, Any]) -> str:
    """One training in a list of them, under :data:`HEADING`, in 80 columns; the final one has no number."""
    shown = {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in params.items()}
    took = "-" if seconds is None else f"{seconds:.2f}"
    head = f"{'final' if number < 0 else number:>6} {score:>10} {took:>8}  "
    text = json.dumps(shown, default=str)
    return textwrap.fill(
        text,
        80,
        initial_indent=head,
        subsequent_indent=" " * (len(head) + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )
