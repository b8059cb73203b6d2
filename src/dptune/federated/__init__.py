"""Federated voting: a secure sum of noisy votes, as pure state machines and as Flower apps.

Importing this package needs neither ``flwr`` nor ``cryptography``; its parts say which extra they need. Only
what was paid for leaves a client: one masked vector of votes and noise.
"""

from __future__ import annotations

__all__: list[str] = []
