"""The server: one private vote, then federated averaging with the configuration that won."""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from dptune.federated import DpHype, publish_vote
from flower_vote.task import CANDIDATES, new_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Vote, then train."""
    config = context.run_config
    vote = DpHype(
        CANDIDATES,
        votes=int(config["votes"]),
        epsilon=float(config["epsilon"]),
        delta=float(config["delta"]),
        dropout=float(config["dropout"]),
        clients=int(config["clients"]) or None,
    )
    params, statement = elected = vote.start(grid, stage_timeout=float(config["stage-timeout"]))
    print(f"chosen: {params}")
    print(statement)
    if config["outcome"]:
        publish_vote(elected, Path(str(config["outcome"])).with_suffix(""))  # for people: statement.md, statement.html
        outcome = {"params": dict(params), "statement": statement.describe()}
        Path(str(config["outcome"])).write_text(json.dumps(outcome))
    if int(config["rounds"]) > 0:
        FedAvg(fraction_evaluate=0.0).start(
            grid=grid,
            initial_arrays=ArrayRecord([new_model()]),
            train_config=ConfigRecord(dict(params)),
            num_rounds=int(config["rounds"]),
        )
