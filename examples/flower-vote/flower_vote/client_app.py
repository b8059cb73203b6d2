"""A client: it votes by its own validation losses, and then takes part in training.

The vote is private; the training that follows is plain federated averaging and is not.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from dptune.federated import Policy, ballot
from flower_vote.task import CANDIDATES, load, loss, new_model, train

app = ClientApp()


def _ledger(context: Context) -> Path:
    # A real client names a durable folder of its own (--node-config 'ledger="/var/lib/..."').
    fallback = Path(tempfile.gettempdir()) / f"flower-vote-{os.getuid()}-{context.run_id}-{context.node_id}.ledger"
    return Path(str(context.node_config.get("ledger", fallback)))


def _partition(context: Context) -> tuple[int, int]:
    return int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])


def _policy(context: Context) -> Policy:
    # What this client allows is its own setting (--node-config 'max-epsilon=1.0'), never the server's.
    return Policy(max_epsilon=float(context.node_config.get("max-epsilon", 4.0)), min_clients=5)


@ballot(app, policy=_policy, ledger=_ledger, candidates=CANDIDATES)
def losses(candidates: Sequence[Mapping[str, Any]], context: Context) -> Sequence[float]:
    """Train every candidate on this client's records and return one validation loss for each."""
    x, y, x_held, y_held = load(*_partition(context))
    return [loss(train(new_model(), x, y, candidate), x_held, y_held) for candidate in candidates]


@app.train()
def fit(message: Message, context: Context) -> Message:
    """Train the shared model on this client's records."""
    x, y, _, _ = load(*_partition(context))
    config = message.content.config_records["config"]
    params = {"lr": float(config["lr"]), "momentum": float(config["momentum"])}  # type: ignore[arg-type] # as sent
    (model,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    model = train(model, x, y, params, epochs=5)
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord([model]), "metrics": metrics}), reply_to=message)
