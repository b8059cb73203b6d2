"""``dptune vote``: a federation on one machine votes on a configuration.

The losses are simulated, the protocol, the noise and the account are real. Errors are one line and exit code
2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli._output import wrapped

__all__ = ["vote"]


def vote(
    *,
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 250,
    candidates: Annotated[int, typer.Option(help="Number of candidate configurations.")] = 100,
    votes: Annotated[int, typer.Option(help="Votes per client, exactly.")] = 5,
    epsilon: Annotated[float, typer.Option(help="Budget of the vote.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Delta of the budget.")] = 1e-5,
    dropout: Annotated[float, typer.Option(help="Fraction of clients that may drop out.")] = 0.2,
    colluding: Annotated[int, typer.Option(help="Clients that may collude with the server.")] = 1,
    drop: Annotated[list[str] | None, typer.Option(help="N@STAGE: N clients fall silent at stage 1 to 4.")] = None,
    good: Annotated[int, typer.Option(help="Simulated candidates that are good.")] = 5,
    sd: Annotated[float, typer.Option(help="Standard deviation of the simulated losses.")] = 0.2,
    seed: Annotated[int | None, typer.Option(help="Seed of the simulated losses; never of the noise.")] = None,
    roster: Annotated[bool, typer.Option(help="Let clients sign their keys.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder for the statement: vote.json, Markdown and HTML.")] = None,
    flower: Annotated[bool, typer.Option(help="Run through Flower's simulation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Choose one configuration by a private vote of simulated clients."""
    from dptune.federated import Elected, publish_vote, simulate  # noqa: PLC0415 - needs the extra 'flower'

    drops = simulate.parse_drops(drop or [], clients)
    losses = simulate.simulated_losses(clients, candidates, good=good, deviation=sd, seed=seed)
    names = [{"candidate": j} for j in range(candidates)]
    run = simulate.federate
    if flower:
        from dptune.federated import flower_simulation  # noqa: PLC0415 - needs Ray

        run = flower_simulation.federate
    result = run(
        losses,
        names,
        votes=votes,
        epsilon=epsilon,
        delta=delta,
        dropout=dropout,
        colluding=colluding,
        drop=drops,
        roster=roster,
    )
    if out is not None:
        publish_vote(Elected(result.params, result.statement), out)
    answer = {
        "chosen": result.chosen,
        "good": result.chosen < good,
        "epsilon": result.statement.epsilon,
        "cpu_seconds": result.cpu_seconds,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "statement": result.statement.describe(),
    }
    if as_json:
        print(json.dumps(answer))
        return
    print(f"chosen       candidate {result.chosen} ({'good' if result.chosen < good else 'not good'})")
    print(f"cost         {result.cpu_seconds:.2f} s of CPU in all")
    print(f"traffic      {result.bytes_up:,.0f} bytes up, {result.bytes_down:,.0f} down, per client")
    print(wrapped(str(result.statement)))
    if out is not None:
        print(f"statement    {out / 'statement.html'}")
