"""The server's side of the secure sum: it relays, counts, and at the end unmasks the total alone.

Each stage takes the replies that came and returns the next requests. Below the declared number of survivors
it raises :class:`Aborted` before it has opened a single mask; it must never reconstruct both secrets of one
client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable

import numpy as np

from dptune._typing import Indices
from dptune.federated import messages
from dptune.federated.errors import Aborted, ProtocolError
from dptune.federated.field import SHARE_BYTES, join
from dptune.federated.keys import Roster, open_sealed
from dptune.federated.masks import Ring, stream, to_signed
from dptune.federated.messages import SEALED_BYTES, TAG_BYTES, Stage
from dptune.federated.plan import SumPlan
from dptune.federated.sum_client import KEY_BYTES, SIGNATURE_BYTES, escrow_key, keys_statement, self_mask_key

__all__ = ["Replies", "SumServer"]

Replies = Iterable[tuple[int, bytes]]
"""Messages with the index of the client that the transport says they came from."""


class SumServer:
    """One sum, driven stage by stage."""

    def __init__(self, plan: SumPlan, roster: Roster | None = None) -> None:
        self.plan = plan
        self._roster = roster
        self._stage = 0
        self._rows: dict[int, bytes] = {}
        self._commitments: dict[int, bytes] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}
        self._escrows: dict[int, bytes] = {}
        self._masked: dict[int, Ring] = {}
        self.refused: dict[int, str] = {}
        """Clients one of whose replies was refused, and why; unless an earlier one stands they count as
        dropped.
        """

    @property
    def contributors(self) -> tuple[int, ...]:
        """Who is in the sum, once the third stage is over."""
        return tuple(sorted(self._masked))

    def open(self) -> dict[int, bytes]:
        """Return the first requests, one per planned client."""
        self._advance(0)
        body = self.plan.to_bytes()
        return {i: self._request(Stage.KEYS, i, body) for i in range(self.plan.clients)}

    def keys(self, replies: Replies) -> dict[int, bytes]:
        """Take the public keys; return each client its neighbours' keys."""
        self._advance(Stage.KEYS)
        width = KEY_BYTES + (SIGNATURE_BYTES if self._roster else 0)
        seen: set[bytes] = set()

        def take(i: int, body: bytes) -> None:
            if len(body) != width:
                raise ProtocolError(f"Client {i} sent {len(body)} bytes of keys instead of {width}.")
            if self._roster is not None:
                self._roster.check(i, keys_statement(self.plan, i, body[:KEY_BYTES]), body[KEY_BYTES:])
            if body[:KEY_BYTES] in seen:
                raise ProtocolError(f"Client {i} sent a key that was sent before.")
            seen.add(body[:KEY_BYTES])
            self._rows[i] = body

        self._each(Stage.KEYS, replies, range(self.plan.clients), take)
        self._enough(Stage.KEYS, self._rows)
        requests = {}
        for i in self._rows:
            near = {j: self._rows[j] for j in self.plan.neighbours(i) if j in self._rows}
            self._held(Stage.KEYS, i, len(near))
            body = messages.pack_count(len(self._rows)) + messages.pack_rows(near)
            requests[i] = self._request(Stage.SHARES, i, body)
        return requests

    def shares(self, replies: Replies) -> dict[int, bytes]:
        """Take the encrypted shares; return each client those that its neighbours sealed for it."""
        self._advance(Stage.SHARES)

        def take(i: int, body: bytes) -> None:
            rows, escrow = messages.unpack_rows(body[32:], SEALED_BYTES)
            if rows.keys() != set(self._near(i, self._rows)):
                raise ProtocolError(f"Client {i} sealed shares for other clients than its neighbours.")
            if len(escrow) != KEY_BYTES * len(rows) + TAG_BYTES:
                raise ProtocolError(f"Client {i} left {len(escrow)} bytes in escrow instead of a key per neighbour.")
            self._commitments[i], self._sealed[i], self._escrows[i] = body[:32], rows, escrow

        self._each(Stage.SHARES, replies, self._rows, take)
        self._enough(Stage.SHARES, self._sealed)
        requests = {}
        for i in self._sealed:
            near = {j: self._sealed[j][i] for j in self._near(i, self._sealed)}
            self._held(Stage.SHARES, i, len(near))
            body = messages.pack_count(len(self._sealed)) + messages.pack_rows(near)
            requests[i] = self._request(Stage.MASKED, i, body)
        return requests

    def masked(self, replies: Replies) -> dict[int, bytes]:
        """Take the masked vectors; return each contributor who contributed and who did not."""
        self._advance(Stage.MASKED)
        size = self.plan.length * self.plan.bits // 8

        def take(i: int, body: bytes) -> None:
            if len(body) != size:
                raise ProtocolError(f"Client {i} sent {len(body)} bytes of masked values instead of {size}.")
            self._masked[i] = np.frombuffer(body, dtype=f"<u{self.plan.bits // 8}")

        self._each(Stage.MASKED, replies, self._sealed, take)
        self._enough(Stage.MASKED, self._masked)
        requests = {}
        for i in self._masked:
            near = self._near(i, self._sealed)
            alive = {j: b"" for j in near if j in self._masked}
            dead = {j: b"" for j in near if j not in self._masked}
            self._held(Stage.MASKED, i, len(alive))
            count = messages.pack_count(len(self._masked))
            body = count + messages.pack_rows(alive) + messages.pack_rows(dead)
            requests[i] = self._request(Stage.UNMASK, i, body)
        return requests

    def unmask(self, replies: Replies) -> Indices:
        """Take the shares and return the sum, read as whole numbers around zero."""
        self._advance(Stage.UNMASK)
        opened: dict[int, dict[int, bytes]] = {i: {} for i in self._sealed}
        answered = []

        def take(i: int, body: bytes) -> None:
            shares, rest = messages.unpack_rows(body, SHARE_BYTES)
            messages.nothing_left(rest)
            if shares.keys() != {i, *self._near(i, self._sealed)}:
                raise ProtocolError(f"Client {i} opened other shares than it was asked for.")
            for owner, share in shares.items():
                opened[owner][i] = share
            answered.append(i)

        self._each(Stage.UNMASK, replies, self._masked, take)
        self._enough(Stage.UNMASK, answered)
        dead = [j for j in self._sealed if j not in self._masked and self._near(j, self._masked)]
        for owner in (*self._masked, *dead):
            if len(opened[owner]) < self.plan.shape.threshold:
                raise Aborted(
                    f"Only {len(opened[owner])} holders of client {owner}'s shares answered, the "
                    "threshold is "
                    f"{self.plan.shape.threshold}; the sum stays closed. Start a new vote."
                )
        total = np.zeros(self.plan.length, dtype=f"<u{self.plan.bits // 8}")
        for i, vector in self._masked.items():
            total += vector
            total -= self._self_mask(i, opened[i])
        for j in dead:
            self._remove_pairs(total, j, opened[j])
        return to_signed(total, self.plan.bits)

    # -- opening

    def _self_mask(self, owner: int, shares: dict[int, bytes]) -> Ring:
        key = self_mask_key(self.plan, owner, join(shares, self.plan.shape.threshold))
        if hashlib.sha256(key).digest() != self._commitments[owner]:
            raise ProtocolError(f"The shares of client {owner}'s self mask are wrong: a message was tampered with.")
        return stream(key, self.plan.length, self.plan.bits)

    def _remove_pairs(self, total: Ring, dead: int, shares: dict[int, bytes]) -> None:
        key = escrow_key(self.plan, dead, join(shares, self.plan.shape.threshold))
        opened = open_sealed(key, self._escrows[dead], self.plan.digest)
        if opened is None:
            raise ProtocolError(f"The shares of client {dead}'s escrow are wrong: a message was tampered with.")
        for place, i in enumerate(sorted(self._sealed[dead])):
            if i not in self._masked:
                continue
            mask = stream(opened[KEY_BYTES * place : KEY_BYTES * (place + 1)], self.plan.length, self.plan.bits)
            # The living neighbour added the mask if it is the lower of the two, and subtracted it otherwise.
            if i < dead:
                total -= mask
            else:
                total += mask

    # -- bookkeeping

    def _advance(self, stage: int) -> None:
        if self._stage != stage:
            raise ProtocolError(f"The server is at stage {self._stage}, not {stage}; each stage runs once.")
        self._stage = stage + 1

    def _request(self, stage: Stage, index: int, body: bytes) -> bytes:
        return messages.pack(stage, self.plan.session, index, body, reply=False)

    def _near(self, client: int, among: Collection[int]) -> list[int]:
        return [j for j in self.plan.neighbours(client) if j in among]

    def _each(
        self, stage: Stage, replies: Replies, expected: Collection[int], take: Callable[[int, bytes], None]
    ) -> None:
        """Hand each acceptable reply to ``take``; note why the others are refused."""
        answered: set[int] = set()
        for i, message in replies:
            try:
                if i not in expected:
                    raise ProtocolError(f"Client {i} was not asked at stage {stage.name}.")
                if i in answered:
                    raise ProtocolError(f"Client {i} answered stage {stage.name} twice; its first answer stands.")
                take(i, messages.unpack(message, stage, self.plan.session, i, reply=True))
                answered.add(i)
            except ProtocolError as bad:
                self.refused[i] = str(bad)

    def _enough(self, stage: Stage, alive: Collection[int]) -> None:
        if len(alive) < self.plan.shape.minimum:
            raise Aborted(
                f"{len(alive)} of {self.plan.clients} clients answered stage {stage.name}, the plan needs "
                f"{self.plan.shape.minimum}; nothing was unmasked. Start a new vote, or declare more dropout."
            )

    def _held(self, stage: Stage, client: int, others: int) -> None:
        if others + 1 < self.plan.shape.threshold:
            raise Aborted(
                f"After stage {stage.name} client {client} has {others} neighbours left, the threshold is "
                f"{self.plan.shape.threshold}; nothing was unmasked. Start a new vote."
            )
