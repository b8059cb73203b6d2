"""The client's side of the secure sum: four answers, each given once, after checking what the server claims.

Without the roster a client sees keys that the server relays; with it, keys that named members signed for this
very plan. The input enters at the third stage and leaves only masked; the fourth stage opens either a
neighbour's self mask or the escrow of its pairwise masks, never both. State can be frozen to bytes, since
frameworks restart clients between messages.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dptune._typing import Indices
from dptune.federated import messages
from dptune.federated.errors import ProtocolError
from dptune.federated.field import SHARE_BYTES, Random, new_secret, split
from dptune.federated.keys import Agreement, Identity, KeyPair, Roster, open_sealed, seal
from dptune.federated.masks import stream, to_ring
from dptune.federated.messages import SEALED_BYTES, Stage
from dptune.federated.plan import NO_ROSTER, SumPlan

__all__ = ["KEY_BYTES", "SIGNATURE_BYTES", "SumClient", "escrow_key", "keys_statement", "self_mask_key"]

KEY_BYTES, SIGNATURE_BYTES = 32, 64


def keys_statement(plan: SumPlan, index: int, key: bytes) -> bytes:
    """What a member signs: this key is mine, for this plan, under this index."""
    return b"dptune keys 2" + plan.digest + index.to_bytes(2, "big") + key


def escrow_key(plan: SumPlan, index: int, secret: bytes) -> bytes:
    """The key under which a client leaves its pairwise mask keys with the server; also the server's, once opened."""
    return hashlib.sha256(b"dptune escrow 2" + plan.digest + index.to_bytes(2, "big") + secret).digest()


def self_mask_key(plan: SumPlan, index: int, seed: bytes) -> bytes:
    """Expand a client's self-mask seed; also the server's, once the seed is opened."""
    return hashlib.sha256(b"dptune self mask 2" + plan.digest + index.to_bytes(2, "big") + seed).digest()


@dataclass
class _State:
    """All that a client remembers between stages."""

    done: int = 0
    plan: bytes = b""
    index: int = 0
    secret: bytes = b""
    seed: bytes = b""
    own_share: bytes = b""
    peers: dict[int, bytes] = field(default_factory=dict)
    """For each neighbour that is alive: the key that opens its shares, and the key of the common mask."""
    held: dict[int, bytes] = field(default_factory=dict)
    """The two shares that each neighbour entrusted to this client."""


class SumClient:
    """One client in one sum; ``clients``, ``subject`` and ``terms`` pin what the server may claim.

    ``terms`` is the plan that this client agreed to, under any session: with less dropout declared than agreed a server
    could not do harm, with more it could open a sum that holds less noise than was paid for.
    """

    def __init__(
        self,
        *,
        clients: int,
        subject: bytes,
        terms: SumPlan | None = None,
        identity: Identity | None = None,
        roster: Roster | None = None,
        random: Random = os.urandom,
    ) -> None:
        self._clients = clients
        self._subject = subject
        self._terms = terms
        self._identity = identity
        self._roster = roster
        self._random = random
        self._state = _State()

    # -- the four stages

    def answer(self, request: bytes, values: Indices | None = None) -> bytes:
        """Answer whichever stage is next; ``values`` is needed at the third."""
        stage, _, _ = messages.peek(request)
        if stage is Stage.KEYS:
            return self.keys(request)
        if stage is Stage.SHARES:
            return self.shares(request)
        if stage is Stage.UNMASK:
            return self.unmask(request)
        if values is None:
            raise ProtocolError("The masked stage needs this client's values.")
        return self.masked(request, lambda: values)

    def keys(self, request: bytes) -> bytes:
        """Stage 1: check the plan, reply with a fresh public key (signed if there is a roster)."""
        self._once(Stage.KEYS)
        plan, index = messages.read_plan(request)
        self._check_plan(plan, index)
        state = self._state
        pair = KeyPair.new(self._random)
        state.plan, state.index, state.secret = plan.to_bytes(), index, pair.secret
        state.done = Stage.KEYS
        body = pair.public
        if self._identity is not None and self._roster is not None:
            body += self._identity.sign(keys_statement(plan, index, body))
        return messages.pack(Stage.KEYS, plan.session, index, body, reply=True)

    def shares(self, request: bytes) -> bytes:
        """Stage 2: check the neighbours' keys; reply with encrypted shares of two secrets and the escrow of masks.

        One secret is the seed of the self mask. The other opens the escrow: the keys of the pairwise masks, which the
        server needs if this client falls silent. It is not the client's private key, so opening it shows masks only.
        """
        plan, body = self._open(Stage.SHARES, request)
        alive, body = messages.unpack_count(body)
        self._check_alive(plan, alive)
        rows, rest = messages.unpack_rows(body, KEY_BYTES + (SIGNATURE_BYTES if self._roster else 0))
        messages.nothing_left(rest)
        state, threshold = self._state, plan.shape.threshold
        agreement = Agreement(state.secret, state.index, plan.digest)
        publics = {j: row[:KEY_BYTES] for j, row in rows.items()}
        self._check_peers(plan, publics, agreement.public)
        if self._roster is not None:
            for j, row in rows.items():
                self._roster.check(j, keys_statement(plan, j, row[:KEY_BYTES]), row[KEY_BYTES:])
        state.seed, vault = new_secret(self._random), new_secret(self._random)
        holders = sorted([*publics, state.index])
        of_seed = split(state.seed, holders, threshold, self._random)
        of_vault = split(vault, holders, threshold, self._random)
        pairs = {j: agreement.with_peer(j, public) for j, public in publics.items()}
        sealed = {j: seal(keys.outward, of_seed[j] + of_vault[j], plan.digest) for j, keys in pairs.items()}
        escrow = seal(escrow_key(plan, state.index, vault), b"".join(keys.mask for keys in pairs.values()), plan.digest)
        state.peers = {j: keys.inward + keys.mask for j, keys in pairs.items()}
        state.secret, state.own_share, state.done = b"", of_seed[state.index], Stage.SHARES
        commitment = hashlib.sha256(self_mask_key(plan, state.index, state.seed)).digest()
        body = commitment + messages.pack_rows(sealed) + escrow
        return messages.pack(Stage.SHARES, plan.session, state.index, body, reply=True)

    def masked(self, request: bytes, fill: Callable[[], Indices]) -> bytes:
        """Stage 3: keep the neighbours' shares, reply with the values under all masks.

        ``fill`` is called after every check has passed, so that a refused request costs nothing.
        """
        plan, body = self._open(Stage.MASKED, request)
        alive, body = messages.unpack_count(body)
        self._check_alive(plan, alive)
        rows, rest = messages.unpack_rows(body, SEALED_BYTES)
        messages.nothing_left(rest)
        state = self._state
        if not rows.keys() <= state.peers.keys():
            raise ProtocolError("The server relays shares from a client that is not a known neighbour.")
        self._check_holders(plan, len(rows))
        held = {j: self._open_shares(plan, j, sealed) for j, sealed in rows.items()}
        values = fill()
        if values.shape != (plan.length,):
            raise ProtocolError(f"The plan sums vectors of length {plan.length}; got shape {values.shape}.")
        own = stream(self_mask_key(plan, state.index, state.seed), plan.length, plan.bits)
        total = to_ring(values, plan.bits) + own
        for j in held:
            mask = stream(state.peers[j][32:], plan.length, plan.bits)
            total = total + mask if state.index < j else total - mask
        state.held, state.done = held, Stage.MASKED
        state.seed, state.peers = b"", {}  # with the message on the wire they would give the input
        return messages.pack(Stage.MASKED, plan.session, state.index, total.tobytes(), reply=True)

    def unmask(self, request: bytes) -> bytes:
        """Stage 4: open the self mask of each neighbour that contributed, the escrow of each that did not."""
        plan, body = self._open(Stage.UNMASK, request)
        contributed, body = messages.unpack_count(body)
        self._check_alive(plan, contributed)
        alive, body = messages.unpack_rows(body, 0)
        dead, rest = messages.unpack_rows(body, 0)
        messages.nothing_left(rest)
        state = self._state
        if alive.keys() & dead.keys():
            raise ProtocolError(
                "The server lists a client as alive and as dead, which would open its vote. Nothing is sent."
            )
        if state.index in alive or state.index in dead or alive.keys() | dead.keys() != state.held.keys():
            raise ProtocolError("The server's lists of alive and dead do not match this client's neighbours.")
        self._check_holders(plan, len(alive))
        if plan.shape.complete and len(alive) + 1 != contributed:
            raise ProtocolError("The server's list of contributors does not match the number that it claims.")
        shares = {j: state.held[j][:SHARE_BYTES] for j in alive}
        shares[state.index] = state.own_share
        shares |= {j: state.held[j][SHARE_BYTES:] for j in dead}
        index, session = state.index, plan.session
        self._state = _State(done=Stage.UNMASK, plan=state.plan, index=index)  # the secrets have served
        return messages.pack(Stage.UNMASK, session, index, messages.pack_rows(shares), reply=True)

    # -- checks

    def _once(self, stage: Stage) -> None:
        done = self._state.done
        if done >= stage:
            raise ProtocolError(f"Stage {stage.name} was already answered; a stage is answered once.")
        if done != stage - 1:
            raise ProtocolError(f"Stage {stage.name} came before stage {Stage(done + 1).name}.")

    def _open(self, stage: Stage, request: bytes) -> tuple[SumPlan, bytes]:
        self._once(stage)
        plan = SumPlan.from_bytes(self._state.plan)
        return plan, messages.unpack(request, stage, plan.session, self._state.index, reply=False)

    def _check_plan(self, plan: SumPlan, index: int) -> None:
        if plan.clients != self._clients:
            raise ProtocolError(
                f"The server plans for {plan.clients} clients, this client for {self._clients}; a larger "
                "number "
                "would shrink everyone's noise. Nothing is sent."
            )
        if plan.subject != self._subject:
            raise ProtocolError("The server sums something else than this client agreed to; nothing is sent.")
        if self._terms is not None and replace(self._terms, session=plan.session, roster=plan.roster) != plan:
            raise ProtocolError(
                "The server's sum has other terms (dropout, colluders, length or ring) than the vote that this client "
                "agreed to; nothing is sent."
            )
        if (self._roster is None) != (plan.roster == NO_ROSTER):
            ours, theirs = ("a roster", "open mode") if self._roster else ("open mode", "a roster")
            raise ProtocolError(f"This client asks for {ours}, the server for {theirs}; nothing is sent.")
        if self._roster is not None:
            if (
                self._identity is None
                or plan.roster != self._roster.digest
                or len(self._roster.members) != plan.clients
            ):
                raise ProtocolError("The server's roster is not the one that this client pinned; nothing is sent.")
            if self._roster.index(self._identity.public) != index:
                raise ProtocolError("The server gave this client another member's index; nothing is sent.")

    def _check_alive(self, plan: SumPlan, alive: int) -> None:
        if not plan.shape.minimum <= alive <= plan.clients:
            raise ProtocolError(
                f"The server claims {alive} clients, the plan allows from {plan.shape.minimum} to "
                f"{plan.clients}; "
                "the sum must be given up. Nothing is sent."
            )

    def _check_holders(self, plan: SumPlan, others: int) -> None:
        if others + 1 < plan.shape.threshold:
            raise ProtocolError(
                f"Only {others} neighbours are left, the threshold is {plan.shape.threshold}; nothing is sent."
            )
        if plan.shape.complete and others + 1 < plan.shape.minimum:
            raise ProtocolError(
                f"Only {others + 1} clients are left, the plan needs {plan.shape.minimum}; nothing is sent."
            )

    def _check_peers(self, plan: SumPlan, peers: dict[int, bytes], own: bytes) -> None:
        if not peers.keys() <= set(plan.neighbours(self._state.index)):
            raise ProtocolError("The server shows keys of a client that is not a neighbour in the public graph.")
        self._check_holders(plan, len(peers))
        if len({own, *peers.values()}) != len(peers) + 1:
            raise ProtocolError("Two clients are shown with the same key; the server's list is forged.")

    def _open_shares(self, plan: SumPlan, sender: int, sealed: bytes) -> bytes:
        shares = open_sealed(self._state.peers[sender][:32], sealed, plan.digest)
        if shares is None:
            raise ProtocolError(
                f"The shares from client {sender} were tampered with or belong to another vote; nothing is sent."
            )
        return shares

    # -- between messages

    def freeze(self) -> bytes:
        """Return the state as bytes, to be kept on this client only: it contains secrets."""
        values = vars(self._state)
        return json.dumps(values, default=lambda raw: base64.b64encode(raw).decode()).encode()

    def thaw(self, frozen: bytes) -> None:
        """Continue from a frozen state."""
        values = json.loads(frozen)

        def raw(text: str) -> bytes:
            return base64.b64decode(text)

        self._state = _State(
            done=values["done"],
            index=values["index"],
            **{name: raw(values[name]) for name in ("plan", "secret", "seed", "own_share")},
            peers={int(j): raw(text) for j, text in values["peers"].items()},
            held={int(j): raw(text) for j, text in values["held"].items()},
        )
