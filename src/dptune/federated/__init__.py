"""Federated voting: a secure sum of noisy votes, as pure state machines and as Flower apps.

Importing this package needs neither ``flwr`` nor ``cryptography``: its names load on first use and say which extra they
need. Only what was paid for leaves a client: one masked vector of votes and noise.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptune.federated.client_app import ballot
    from dptune.federated.keys import Identity, Roster
    from dptune.federated.policy import Policy, VoteLedger
    from dptune.federated.server_app import DpHype
    from dptune.federated.simulate import federate
    from dptune.federated.statement import Elected, VoteStatement
    from dptune.federated.vote_files import publish_vote

__all__ = [
    "DpHype",
    "Elected",
    "Identity",
    "Policy",
    "Roster",
    "VoteLedger",
    "VoteStatement",
    "ballot",
    "federate",
    "publish_vote",
]

_HOME = {
    "DpHype": "server_app",
    "Elected": "statement",
    "Identity": "keys",
    "Policy": "policy",
    "Roster": "keys",
    "VoteLedger": "policy",
    "VoteStatement": "statement",
    "ballot": "client_app",
    "federate": "simulate",
    "publish_vote": "vote_files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dptune.federated' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dptune.federated.{_HOME[name]}"), name)
