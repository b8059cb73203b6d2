"""What a rehearsal shows: everything. Its data are public or synthetic, so scores, errors and timings are no secret.

The report is read from the rehearsal's vault after its release. It ends with what would go wrong in a sealed run of the
same job, where nobody would hear of it. A sealed run has no report: it is refused here.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.errors import InvalidInput
from dptune.sealed.reading import HEADING, read_vault, trial_line
from dptune.sealed.release import Release, load_release
from dptune.sealed.vault import Vault

__all__ = ["Rehearsed", "RehearsedTrial", "read_rehearsal", "report"]

_MOST = 40  # trials in a report
_TRACEBACKS = 3  # different ones
_LIKELY = 0.01  # a chance of no model above this is worth a line


@dataclass(frozen=True)
class RehearsedTrial:
    """One training of a rehearsal.

    Args:
        number: of the trial; that of the final training comes last.
        params: what the trainer got.
        score: minus infinity for a failure.
        seconds: how long it took, with those that it was handed over with; None if it did not end.
        error: the traceback of a failure.
        deaths: how often its process died.
    """

    number: int
    params: dict[str, Any]
    score: float
    seconds: float | None
    error: str | None
    deaths: int


@dataclass(frozen=True)
class Rehearsed:
    """All that a rehearsal knows.

    Args:
        release: what it released, without a guarantee.
        trials: all trainings, in the order of their numbers.
        refusal: why a sealed run of the same job would be refused before its charge, if it would.

    Example:
        >>> release = Release(Path("release"), {"lr": 0.1}, 3.0, 1e-5, 2.9, "subset", "icu", "", {"model": "model.npz"})
        >>> one = RehearsedTrial(0, {"lr": 0.1}, -math.inf, 0.5, "ValueError: no such column", 0)
        >>> Rehearsed(release, (one,), None).warnings()[0]
        '1 of 1 trainings failed, silently in a sealed run; 1 of them with: ValueError: no such column'
    """

    release: Release
    trials: tuple[RehearsedTrial, ...]
    refusal: str | None

    @property
    def failed(self) -> tuple[RehearsedTrial, ...]:
        """The trainings that gave no model."""
        return tuple(one for one in self.trials if not one.score > -math.inf)

    def warnings(self) -> list[str]:
        """What would go wrong in a sealed run, one sentence each; none if nothing was found."""
        details, found = self.release.details, []
        if self.refusal is not None:
            found.append(f"It would be refused before its charge: {self.refusal}")
        if self.failed:
            reasons = Counter(_reason(one) for one in self.failed)
            said, count = reasons.most_common(1)[0]
            found.append(
                f"{len(self.failed)} of {len(self.trials)} trainings failed, silently in a sealed run; {count} of them "
                f"with: {said}"
            )
        if self.release.outcome == "no model":
            found.append("It would charge its full cost and release no model.")
        chance = details.get("chance_of_no_model")
        if chance is not None and chance > _LIKELY:
            found.append(
                f"By chance alone it would train nothing, and release no model, with probability {chance:.2g}."
            )
        if details.get("replay") == "inexact":
            found.append(
                "The trainer draws from something else than the generator it is given: a trial that is cut off would "
                "draw again."
            )
        if str(details.get("model")).endswith(".pickle"):
            found.append("The model is a pickle: whoever opens the release runs code.")
        return found


def read_rehearsal(run: str | Path) -> Rehearsed:
    """Everything that a finished rehearsal knows.

    Args:
        run: the run's folder.

    Returns:
        All trainings, and what would go wrong.

    Raises:
        InvalidInput: the run was sealed: its scores and errors are not to be shown (``read_vault`` is for curators).
        Corrupt: there is no finished run in the folder.

    Example:
        >>> import numpy as np
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=dpt.PureDp(0.1))
        ... def guess(params, data, rng):
        ...     return {"rate": params["lr"]}, -abs(params["lr"] - 1)
        >>> method = dpt.RandomStopping(dpt.Space(lr=dpt.Float(0.1, 10, log=True)), dpt.Geometric(3))
        >>> plan = method.plan(dpt.Budget(1, 1e-5), guess)
        >>> _ = dpt.run(plan, guess, np.arange(3), seed=1, data_is="synthetic", out="rehearsed")
        >>> len(read_rehearsal("rehearsed").failed)
        0
    """
    folder = Path(run)
    release = load_release(folder)
    if release.details["guarantee"]:
        raise InvalidInput(
            f"{folder} is a sealed run: what its trainings did is not shown. A curator reads it with 'dptune vault "
            f"show {folder} --reason ...'."
        )
    reading = read_vault(folder, "the report of a rehearsal")
    trials = []
    for number in sorted(reading.params, key=lambda one: (one < 0, one)):
        ended = reading.finished.get(number)
        seconds = None if ended is None else ended - reading.started[number]
        score = reading.scores.get(number, -math.inf)
        error = reading.errors.get(number)
        trials.append(
            RehearsedTrial(number, reading.params[number], score, seconds, error, reading.deaths.get(number, 0))
        )
    return Rehearsed(release, tuple(trials), Vault(folder / "vault").facts().get("refusal"))


def report(run: str | Path) -> str:
    """A rehearsal as text for people: a line for each training, different tracebacks, and what would go wrong.

    Args:
        run: the folder of a finished rehearsal.

    Returns:
        Several lines of text.

    Example:
        >>> import numpy as np
        >>> import dptune as dpt
        >>> @dpt.trainer(cost=dpt.PureDp(0.1))
        ... def guess(params, data, rng):
        ...     return {"rate": params["lr"]}, -abs(params["lr"] - 1)
        >>> method = dpt.RandomStopping(dpt.Space(lr=dpt.Float(0.1, 10, log=True)), dpt.Geometric(3))
        >>> plan = method.plan(dpt.Budget(1, 1e-5), guess)
        >>> _ = dpt.run(plan, guess, np.arange(3), seed=1, data_is="synthetic", out="reported")
        >>> print(report("reported").splitlines()[-1])
        Nothing was found that would go wrong in a sealed run.
    """
    found = read_rehearsal(run)
    lines = [HEADING]
    lines += [_line(one) for one in found.trials[:_MOST]]
    if len(found.trials) > _MOST:
        lines.append(f"   ... and {len(found.trials) - _MOST} more")
    shown: dict[str, str] = {}
    for one in found.failed:
        shown.setdefault(_reason(one), one.error or "the worker process died")
    for text in list(shown.values())[:_TRACEBACKS]:
        lines += ["", *text.rstrip().splitlines()]
    lines += ["", _durations(found)]
    warnings = found.warnings()
    if not warnings:
        return "\n".join([*lines, "Nothing was found that would go wrong in a sealed run."])
    return "\n".join([*lines, "In a sealed run of this job:", *(f"* {one}" for one in warnings)])


def _reason(trial: RehearsedTrial) -> str:
    """The last line of a traceback: what was raised."""
    lines = (trial.error or "").strip().splitlines()
    return lines[-1] if lines else "the score was not a number"


def _line(trial: RehearsedTrial) -> str:
    score = f"{trial.score:.4f}" if trial.score > -math.inf else "failed"
    return trial_line(trial.number, score, trial.seconds, trial.params)


def _durations(found: Rehearsed) -> str:
    each = found.release.details.get("seconds_per_training")
    if each is None:
        return "No training was drawn."
    return f"{len(found.trials)} trainings, {each:.3g} seconds each (above: from the start of those trained together)."
