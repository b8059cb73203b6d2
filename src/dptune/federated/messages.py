"""The bytes that travel: eight messages, a request and a reply for each of the four stages.

Encodings are fixed and strict: lengths must match exactly, indices must increase, nothing may trail. A
decoder never returns something that a client or server would have to check again for shape.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum

from dptune.federated.errors import ProtocolError
from dptune.federated.field import SHARE_BYTES
from dptune.federated.plan import PLAN_BYTES, SumPlan

__all__ = ["SEALED_BYTES", "TAG_BYTES", "Stage", "pack", "pack_rows", "peek", "unpack", "unpack_rows"]

TAG_BYTES = 16
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
"""Two shares and an authentication tag."""

_HEAD = struct.Struct(">B16sH")
_COUNT = struct.Struct(">H")
_REPLY = 0x80


class Stage(IntEnum):
    """The four stages, in order."""

    KEYS = 1
    SHARES = 2
    MASKED = 3
    UNMASK = 4


def pack(stage: Stage, session: bytes, index: int, body: bytes, *, reply: bool) -> bytes:
    """Put a header (stage and direction, session, the client's index) before a body."""
    return _HEAD.pack(stage | (_REPLY if reply else 0), session, index) + body


def peek(message: bytes) -> tuple[Stage, bytes, int]:
    """Return stage, session and index of a message without reading its body."""
    if len(message) < _HEAD.size:
        raise ProtocolError("The message is shorter than its header.")
    kind, session, index = _HEAD.unpack_from(message)
    try:
        return Stage(kind & ~_REPLY), session, index
    except ValueError as bad:
        raise ProtocolError(f"The message names stage {kind & ~_REPLY}; there are four.") from bad


def unpack(message: bytes, stage: Stage, session: bytes, index: int, *, reply: bool) -> bytes:
    """Return the body of a message that must be of this stage, session, client and direction."""
    got, named, who = peek(message)
    if got is not stage or bool(message[0] & _REPLY) is not reply:
        kind = "reply" if message[0] & _REPLY else "request"
        raise ProtocolError(f"Expected a {stage.name} {'reply' if reply else 'request'}; got a {got.name} {kind}.")
    if named != session:
        raise ProtocolError("The message belongs to another session.")
    if who != index:
        raise ProtocolError(f"The message is for client {who}, not for client {index}.")
    return message[_HEAD.size :]


def pack_rows(rows: Mapping[int, bytes]) -> bytes:
    """Encode rows of equal length by client index, in increasing order."""
    parts = [_COUNT.pack(len(rows))]
    parts.extend(_COUNT.pack(index) + rows[index] for index in sorted(rows))
    return b"".join(parts)


def unpack_rows(data: bytes, width: int) -> tuple[dict[int, bytes], bytes]:
    """Decode rows of a known width; return them and what follows."""
    if len(data) < _COUNT.size:
        raise ProtocolError("The message ends before its list.")
    (count,) = _COUNT.unpack_from(data)
    step = _COUNT.size + width
    end = _COUNT.size + count * step
    if len(data) < end:
        raise ProtocolError(f"The message announces {count} entries and ends before the last.")
    rows: dict[int, bytes] = {}
    last = -1
    for offset in range(_COUNT.size, end, step):
        (index,) = _COUNT.unpack_from(data, offset)
        if index <= last:
            raise ProtocolError("A list in the message is not in increasing order, or names a client twice.")
        rows[index] = data[offset + _COUNT.size : offset + step]
        last = index
    return rows, data[end:]


def pack_count(number: int) -> bytes:
    """Encode a number of clients."""
    return _COUNT.pack(number)


def unpack_count(data: bytes) -> tuple[int, bytes]:
    """Decode a number of clients; return it and what follows."""
    if len(data) < _COUNT.size:
        raise ProtocolError("The message ends before its count.")
    return _COUNT.unpack_from(data)[0], data[_COUNT.size :]


def nothing_left(data: bytes) -> None:
    """Refuse trailing bytes."""
    if data:
        raise ProtocolError(f"{len(data)} bytes follow the end of the message.")


def read_plan(message: bytes) -> tuple[SumPlan, int]:
    """Read the first request: the plan, and the index that the server gives to this client."""
    stage, session, index = peek(message)
    body = message[_HEAD.size :]
    if stage is not Stage.KEYS or message[0] & _REPLY or len(body) != PLAN_BYTES:
        raise ProtocolError("The first message must be a KEYS request with a plan.")
    plan = SumPlan.from_bytes(body)
    if plan.session != session:
        raise ProtocolError("The message belongs to another session.")
    if index >= plan.clients:
        raise ProtocolError(f"There is no client {index} among {plan.clients}.")
    return plan, index
