"""From the settings of a job to a method, whichever it is: the fields of its class say what it takes.

A field ``space`` or ``candidates`` gets the job's space, ``runs`` is read as a law, ``validation`` is set where the
trainer has no score of its own, and ``method`` is another method, built from the settings that are left. Nothing here
knows a method by name.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dptune._validate import real
from dptune.accounting.runs import parse_runs
from dptune.errors import InvalidInput
from dptune.methods._setting_types import check_settings
from dptune.methods.lines import Line
from dptune.methods.plan import Method
from dptune.methods.registry import known_methods, method_named
from dptune.methods.validation import PrivateValidation
from dptune.scores import Score
from dptune.spaces import Candidates, Domain, Space

__all__ = ["Surroundings", "method_from_settings"]

_FILLED = ("space", "candidates", "validation", "method")  # from the rest of the job, never from a setting
_POINTS = 5  # of every dimension, where a list of candidates is made of a space


@dataclass(frozen=True)
class Surroundings:
    """What a job has for any method.

    Args:
        space: what may be tried.
        held: the share of the tuned records that scores trainings privately; None where the trainer has a score.
        records: the public number of records, if the job states one; private scores need it.
        score: what one record adds to a private score; None for the natural one.
    """

    space: Space
    held: float | None = None
    records: int | None = None
    score: Score | None = None

    def offered(self, points: Any) -> Domain:
        """The space, or a list of candidates in it: so many points of every dimension, or as a dictionary says."""
        if points is None:
            return self.space
        return self.space.grid(**points) if isinstance(points, Mapping) else self.space.grid(points)

    def validation(self, share: float) -> PrivateValidation | None:
        """How trainings on this share of the records are scored privately; None where the trainer has a score."""
        if self.held is None:
            return None
        if self.records is None:
            raise InvalidInput(
                "Section [data] needs 'records': a public figure, about their number; it must not be counted."
            )
        return PrivateValidation.of(self.held, share * self.records, score=self.score)


def method_from_settings(kind: type[Method], settings: Mapping[str, Any], job: Surroundings) -> Method:
    """A method with these settings.

    Args:
        kind: the method's class; :func:`~dptune.methods.registry.method_named` finds it.
        settings: by the names of its fields; ``grid`` (points of a list of candidates) and ``inner`` (the name of the
            method that this one is made of) are settings, too.
        job: what the rest of the job gives.

    Raises:
        InvalidInput: a setting is unknown, missing, or not what it must be.
    """
    return _built(kind, dict(settings), job, 1.0)


def _built(kind: type[Method], given: dict[str, Any], job: Surroundings, share: float) -> Method:
    """A method of this kind, whose trainings see a share of the records."""
    accepted = inspect.signature(kind).parameters
    if "method" in accepted:
        given = _with_inner(kind, given, job)
    else:
        given = {**kind.usual, **given}
        if "candidates" in accepted:
            given["candidates"] = offered = job.offered(given.pop("grid", _POINTS))
            if isinstance(offered, Candidates):
                unset = [name for name, one in kind.usual.items() if callable(one) and given[name] is one]
                given |= {name: given[name](len(offered)) for name in unset}
        elif "space" in accepted:
            given["space"] = job.offered(given.pop("grid", None))
        if "validation" in accepted and (scored := job.validation(share)) is not None:
            given["validation"] = scored
    _check(kind, given)
    read = {name: _read(name, value) for name, value in given.items()}
    check_settings(kind, read)
    return kind(**read)


def _with_inner(kind: type[Method], given: dict[str, Any], job: Surroundings) -> dict[str, Any]:
    """The settings of a method that is made of another one, which gets what is left."""
    own = {**kind.usual, **{name: given.pop(name) for name in inspect.signature(kind).parameters if name in given}}
    name = given.pop("inner", own.pop("inner", None))
    needed = typing.get_type_hints(kind)["method"]
    inner = method_named(str(name))
    if not issubclass(inner, needed):
        fitting = [one for one in known_methods() if issubclass(method_named(one), needed)]
        raise InvalidInput(f"'inner' must be one of {', '.join(fitting)} here; got {name!r}.")
    check_settings(kind, own)
    return {**own, "method": _built(inner, given, job, real("fraction", own.get("fraction", 1.0)))}


def _check(kind: type[Method], given: Mapping[str, Any]) -> None:
    """Refuse settings that the method does not have, and a method that lacks one."""
    accepted = inspect.signature(kind).parameters
    shown = ", ".join(name for name in accepted if name not in _FILLED)
    for name in sorted(set(given) - set(accepted)):
        raise InvalidInput(f"The method {kind.name!r} has no setting {name!r}; it has {shown}.")
    for name, one in accepted.items():
        if one.default is one.empty and name not in given:
            raise InvalidInput(f"The method {kind.name!r} needs the setting {name!r}.")


def _read(name: str, value: Any) -> Any:
    """A value as job files write it: laws as text, pairs as lists."""
    if name == "runs" and isinstance(value, str):
        return parse_runs(value)
    if name == "costs" and isinstance(value, str) and value.startswith("line:"):
        return _line(value.partition(":")[2])
    return tuple(value) if isinstance(value, list) else value


def _line(text: str) -> Line:
    try:
        return Line(float(text))
    except ValueError:
        raise InvalidInput(f'Cannot read the line {text!r}; write costs = "line" or "line:SLOPE".') from None
