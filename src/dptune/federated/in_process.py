"""Carries the messages of a secure sum between a server and clients that live in one process.

It is a transport, not a mock: the same state machines run behind Flower. Clients can be told to fall silent
at a stage, and every byte is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dptune._typing import Indices
from dptune.federated.messages import Stage
from dptune.federated.sum_server import SumServer

__all__ = ["Summed", "carry"]


@dataclass(frozen=True)
class Summed:
    """The total and what it took."""

    total: Indices
    contributors: tuple[int, ...]
    bytes_up: float
    """Mean bytes that a client sends."""
    bytes_down: float
    """Mean bytes that a client receives."""


def carry(
    server: SumServer,
    clients: Sequence[Callable[[bytes], bytes]],
    drop: Mapping[Stage, Collection[int]] | None = None,
) -> Summed:
    """Run the four stages with one answering function per client; those in ``drop[stage]`` are silent from
    that stage on.
    """
    silent: set[int] = set()
    up = down = 0
    requests = server.open()
    total = np.zeros(server.plan.length, dtype=np.int64)
    for stage in Stage:
        silent.update((drop or {}).get(stage, ()))
        replies = []
        for i, request in requests.items():
            down += len(request)
            if i not in silent:
                reply = clients[i](request)
                up += len(reply)
                replies.append((i, reply))
        if stage is Stage.KEYS:
            requests = server.keys(replies)
        elif stage is Stage.SHARES:
            requests = server.shares(replies)
        elif stage is Stage.MASKED:
            requests = server.masked(replies)
        else:
            total = server.unmask(replies)
    n = server.plan.clients
    return Summed(total, server.contributors, up / n, down / n)
