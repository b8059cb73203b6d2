"""How a vote travels in Flower messages: one config record under one name, nothing else.

Server and client app share these names; a reply is always built from scratch by :func:`reply_with`, so that
nothing a user's code left in a record can leave the client.
"""

from __future__ import annotations

from dptune.federated.errors import MissingExtra

try:
    from flwr.app import ConfigRecord, Message, RecordDict
except ImportError as missing:  # pragma: no cover - exercised by a subprocess test
    raise MissingExtra("flwr", "flower") from missing

__all__ = ["MESSAGE_TYPE", "RECORD", "read", "reply_with", "request"]

ACTION = "dptune_vote"
MESSAGE_TYPE = f"query.{ACTION}"
RECORD = "dptune"

Value = str | bytes
REPLY_KEYS = ("ready", "identity", "answer", "refused")


def request(values: dict[str, Value], node: int, ttl: float) -> Message:
    """Build a request to one node."""
    return Message(RecordDict({RECORD: ConfigRecord(dict(values))}), node, MESSAGE_TYPE, ttl=ttl)


def reply_with(message: Message, values: dict[str, Value]) -> Message:
    """Build a reply that holds these values and no other record."""
    allowed = {key: value for key, value in values.items() if key in REPLY_KEYS}
    return Message(RecordDict({RECORD: ConfigRecord(dict(allowed))}), reply_to=message)


def read(message: Message) -> dict[str, Value]:
    """Return the values of a vote's record; an error or a foreign message gives none."""
    if not message.has_content() or RECORD not in message.content.config_records:
        return {}
    record = message.content.config_records[RECORD]
    return {key: value for key, value in record.items() if isinstance(value, str | bytes)}


def payload(message: Message) -> int:
    """Return the bytes of a message's records."""
    return sum(record.count_bytes() for record in message.content.values()) if message.has_content() else 0
