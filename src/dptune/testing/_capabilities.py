"""What a trainer may be able to do or declare beside training: each capability, if it is there, does what it says.

Part of :mod:`dptune.testing.trainers`; :mod:`dptune.trainer` has the protocols.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from dptune.executors.models import open_model, pack_model
from dptune.testing._runs import odd_data, packed, parts, rng
from dptune.testing._weights import close
from dptune.trainer import (
    DeclaresBatch,
    DeclaresGenerator,
    DeclaresRecords,
    DeclaresTraining,
    DeclaresTransfer,
    Params,
    SupportsCheck,
    SupportsShapes,
    SupportsStacking,
    SupportsWarmStart,
    Trainer,
)

__all__ = ["check_capabilities", "check_declared", "check_stacking"]

DataT = TypeVar("DataT")


def check_capabilities(trainer: Trainer[DataT, object], params: Params, data: DataT) -> None:
    """What the trainer can do with one configuration beside training: check it, continue from a model."""
    _check_check(trainer, params, data)
    _check_warm_start(trainer, params, data)


def _check_check(trainer: Trainer[DataT, object], params: Params, data: DataT) -> None:
    """The capability to check: its answer depends on no record, and does not refuse what trains."""
    if not isinstance(trainer, SupportsCheck):
        return
    said = {_complaint(trainer, params, part) for part in (data, *parts(data), *odd_data(data))}
    assert len(said) == 1, f"'check' must not depend on records or their number; it said {sorted(said)}."
    assert said == {""}, f"'check' refuses parameters that 'fit' trains with: {said.pop()}."


def _complaint(trainer: SupportsCheck[DataT], params: Params, data: DataT) -> str:
    """What the trainer's own check says; nothing if it is content."""
    try:
        trainer.check(dict(params), data)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _check_warm_start(trainer: Trainer[DataT, object], params: Params, data: DataT) -> None:
    """The capability to continue: deterministic, total, and without a change of the start."""
    if not isinstance(trainer, SupportsWarmStart):
        return
    start = trainer.fit(dict(params), data, rng(5))[0]
    content = pack_model(start, pickle=True)
    found = [packed(trainer.fit_from(dict(params), data, rng(6), open_model(content, pickle=True))) for _ in range(2)]
    assert found[0][0] == found[1][0], "The same generator and start must give the same model."
    trainer.fit_from(dict(params), data, rng(6), start)
    assert pack_model(start, pickle=True) == content, "'fit_from' must not change the model that it starts from."
    for part in parts(data):
        trainer.fit_from(dict(params), part, rng(6), start)


def check_stacking(
    trainer: Trainer[DataT, object], candidates: Sequence[Params], data: DataT, tolerance: float
) -> None:
    """The capability to stack: every candidate gets what it gets alone, in any company."""
    if isinstance(trainer, SupportsShapes):
        for params in candidates:
            shape = trainer.shape(dict(params))
            assert hash(shape) == hash(trainer.shape(dict(params))), "'shape' must be the same every time."
    if not isinstance(trainer, SupportsStacking):
        return
    several = [dict(params) for params in candidates for _ in range(2)]
    alone = [trainer.fit(dict(one), data, rng(seed)) for seed, one in enumerate(several)]
    for order in (list(range(len(several))), list(range(len(several)))[::-1], [0]):
        stack = list(trainer.fit_many([several[i] for i in order], data, [rng(i) for i in order]))
        assert len(stack) == len(order), f"'fit_many' returns one result for each of {len(order)}; got {len(stack)}."
        for place, (model, score) in zip(order, stack, strict=True):
            same = close(model, alone[place][0], tolerance) and math.isclose(
                score, alone[place][1], rel_tol=tolerance, abs_tol=0.05
            )  # by rounding, a validation record or two may fall on the other side
            assert same, f"'fit_many' must give candidate {place} what 'fit' gives it alone, whoever is beside it."


def check_declared(trainer: Trainer[DataT, object], copied: Trainer[DataT, object]) -> None:
    """The facts that a trainer declares: of the right kinds, the same in a worker's copy."""
    facts = _facts(trainer)
    assert facts == _facts(copied), "A worker's copy of the trainer must declare the same facts."
    records, batch = facts.get("records"), facts.get("batch", 1.0)
    counted = records is None or (isinstance(records, int) and records >= 1)
    assert counted, f"'declared_records' must be None or a whole number from 1 on; got {records!r}."
    finite = isinstance(batch, int | float) and 0.0 < batch < math.inf
    assert finite, f"'declared_batch' must be a number above 0; got {batch!r}."
    rule, generator = facts.get("transfer", "none"), facts.get("generator", "")
    assert rule in ("sgd", "whitened", "none"), f"'transfer_rule' must be 'sgd', 'whitened' or 'none'; got {rule!r}."
    assert isinstance(generator, str), f"'noise_generator' must be a name; got {generator!r}."


def _facts(trainer: object) -> dict[str, object]:
    """The facts that a trainer declares, by name."""
    facts: dict[str, object] = {}
    if isinstance(trainer, DeclaresRecords):
        facts["records"] = trainer.declared_records
    if isinstance(trainer, DeclaresBatch):
        facts["batch"] = trainer.declared_batch
    if isinstance(trainer, DeclaresTransfer):
        facts["transfer"] = trainer.transfer_rule
    if isinstance(trainer, DeclaresTraining):
        facts["training"] = trainer.declared_training
    if isinstance(trainer, DeclaresGenerator):
        facts["generator"] = trainer.noise_generator
    return facts
