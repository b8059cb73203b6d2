"""``dptune demo``: price a real tuning plan and show what every published bound would have said."""

from __future__ import annotations

from typing import Annotated

import typer

from dptune.cli.price import price

__all__ = ["demo"]

_RECORDS, _BATCH, _EPOCHS, _NOISE = 60_000, 256, 10, 1.1


def demo(as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False) -> None:
    """DP-SGD on 60,000 records, batch 256, 10 epochs, about twenty configurations tried: what does it cost?"""
    steps = round(_EPOCHS * _RECORDS / _BATCH)
    price(
        base=f"dpsgd:{_BATCH / _RECORDS},{_NOISE},{steps}",
        runs="geometric:20",
        delta=1e-5,
        as_json=as_json,
    )
