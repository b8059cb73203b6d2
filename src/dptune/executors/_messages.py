"""What the driver and its workers say to each other: a JSON header and raw bytes, never a pickle.

A worker runs the trainer's code, perhaps on another machine, so the driver treats what it says as data from a stranger:
every field is checked, and whatever does not fit raises :class:`BadMessage`. Models are bytes that the driver does not
open. Only the first message to a worker, which holds trainer and data, is a pickle, and only the worker opens it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from dptune.executors.base import Result, Task

__all__ = [
    "LARGEST", "BadMessage", "pack", "pack_ready", "pack_result", "pack_tasks", "unpack", "unpack_ready",
    "unpack_result", "unpack_tasks",
]  # fmt: skip

LARGEST = 1 << 35  # bytes of one message: far above any model, far below what a damaged length may claim
_HEADER = 1 << 26
_SIZE = struct.Struct(">I")


class BadMessage(ValueError):
    """A message that no worker of this version sends."""


def pack(header: Mapping[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """One message: the size of the header, the header with the sizes of the parts, the parts."""
    sizes = {name: len(content) for name, content in parts.items()}
    head = json.dumps({"fields": dict(header), "sizes": sizes}, allow_nan=False).encode()
    return b"".join([_SIZE.pack(len(head)), head, *parts.values()])


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Header and parts of a message; raises :class:`BadMessage` for anything else."""
    if len(message) < _SIZE.size:
        raise BadMessage("The message has no header.")
    size = _SIZE.unpack_from(message)[0]
    start = _SIZE.size + size
    if size > _HEADER or start > len(message):
        raise BadMessage("The header does not fit into the message.")
    try:
        head = json.loads(message[_SIZE.size : start], parse_constant=_refuse)
        fields, sizes = head["fields"], head["sizes"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadMessage("The header cannot be read.") from None
    if set(head) != {"fields", "sizes"} or not isinstance(fields, dict) or not isinstance(sizes, dict):
        raise BadMessage("The header has other fields than 'fields' and 'sizes'.")
    if not all(_whole(one) and one >= 0 for one in sizes.values()) or sum(sizes.values()) != len(message) - start:
        raise BadMessage("The parts do not add up to the message.")
    parts = {}
    for name, length in sizes.items():
        parts[name] = message[start : start + length]
        start += length
    return fields, parts


def _refuse(constant: str) -> None:
    raise BadMessage(f"{constant} is not JSON.")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _to_bytes(text: str) -> bytes:
    """Any text, also one with half a character in it, as a trainer's error may have."""
    return text.encode("utf-8", "backslashreplace")


def pack_ready(problem: str | None) -> bytes:
    """A worker's first answer: trainer and data arrived, or what is wrong."""
    return pack({"ready": problem is None}, {} if problem is None else {"problem": _to_bytes(problem)})


def unpack_ready(message: bytes) -> str | None:
    """None if the worker is ready, or what is wrong there, in one line."""
    fields, parts = unpack(message)
    if fields == {"ready": True} and not parts:
        return None
    if fields == {"ready": False} and set(parts) == {"problem"}:
        said = parts["problem"].decode("utf-8", "replace")
        return " ".join("".join(one if one.isprintable() else " " for one in said).split())[:500]
    raise BadMessage("This is not an answer to the first message.")


def pack_tasks(tasks: Sequence[Task]) -> bytes:
    """Trials to train, with the models that they start from."""
    starts = {str(place): task.start for place, task in enumerate(tasks) if task.start is not None}
    return pack({"tasks": [[task.index, task.trial, task.blank] for task in tasks]}, starts)


def unpack_tasks(message: bytes) -> tuple[Task, ...]:
    """The tasks of a message, as the worker reads them."""
    fields, parts = unpack(message)
    try:
        return tuple(Task(i, text, parts.get(str(p)), blank) for p, (i, text, blank) in enumerate(fields["tasks"]))
    except (KeyError, TypeError, ValueError):
        raise BadMessage("This is not a message with trials.") from None


def pack_result(result: Result) -> bytes:
    """What became of one trial. JSON has no infinity: a failure is null."""
    score: float | str | None = result.score
    if not math.isfinite(result.score):
        score = "inf" if result.score > 0 else None
    parts = {"output": _to_bytes(result.output)}
    if result.model is not None:
        parts["model"] = result.model
    if result.error is not None:
        parts["error"] = _to_bytes(result.error)
    return pack({"index": result.index, "score": score}, parts)


def unpack_result(message: bytes) -> Result:
    """The result of a message, as the driver reads it: every field checked, the model left as it is."""
    fields, parts = unpack(message)
    if set(fields) != {"index", "score"} or not {"output"} <= set(parts) <= {"output", "model", "error"}:
        raise BadMessage("This is not a result.")
    index, error = fields["index"], parts.get("error")
    if not _whole(index):  # a final training has a negative one; whose it is, the session knows
        raise BadMessage("The result does not belong to a trial.")
    return Result(
        index,
        _score(fields["score"]),
        parts.get("model"),
        None if error is None else error.decode("utf-8", "replace"),
        output=parts["output"].decode("utf-8", "replace"),
    )


def _score(value: Any) -> float:
    if value is None:
        return -math.inf
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadMessage("The score is not a number.")
    try:
        return float(value)
    except OverflowError:
        raise BadMessage("The score is not a number.") from None
