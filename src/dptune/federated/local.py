"""What happens on a client before it votes: splitting data for simulations, the paper's candidates, local losses.

Local training need not be private, since only votes leave; the losses that are returned here must go to the ballot and
nowhere else.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dptune import _validate
from dptune._typing import Indices
from dptune.errors import InvalidInput
from dptune.federated.vote_plan import Candidate
from dptune.trainer import SupportsFit

__all__ = ["dirichlet_partition", "iid_partition", "losses_of", "paper_candidates", "trainer_losses"]

DataT = TypeVar("DataT")
_log = logging.getLogger("dptune.federated")


def paper_candidates() -> list[dict[str, float]]:
    """Return the 100 candidates of Table III of the DP-Hype paper: ten learning rates, five decays, two momenta."""
    rates = (0.5, 0.1, 0.05, 1e-3, 5e-3, 1e-5, 1e-6, 5e-6, 5e-7, 1e-7)
    return [
        {"lr": rate, "decay": decay, "momentum": momentum}
        for rate in rates
        for decay in (0.0, 0.1, 0.25, 0.99, 1.0)
        for momentum in (0.0, 0.9)
    ]


def iid_partition(records: int, clients: int, rng: np.random.Generator) -> list[Indices]:
    """Divide records at random into portions whose sizes differ by at most one."""
    _validate.integer("clients", clients, 1, records, hint="Every client needs a record.")
    return [np.sort(part) for part in np.array_split(rng.permutation(records), clients)]


def dirichlet_partition(
    labels: npt.ArrayLike, clients: int, concentration: float, rng: np.random.Generator, *, least: int = 1
) -> list[Indices]:
    """Divide records by label: for each label, shares from a symmetric Dirichlet law (smaller is more skewed).

    Clients with fewer than ``least`` records take some from the largest, so that every client can train.
    """
    y = np.asarray(labels)
    _validate.integer("clients", clients, 1, max(1, len(y)))
    _validate.integer("least", least, 0)
    beta = _validate.real("concentration", concentration, 0, low_open=True)
    if least * clients > len(y):
        raise InvalidInput(f"{len(y)} records cannot give {least} to each of {clients} clients; ask for fewer clients.")
    parts: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        shares = rng.dirichlet(np.full(clients, beta))
        cuts = (np.cumsum(shares)[:-1] * len(members)).astype(int)
        for part, chunk in zip(parts, np.split(members, cuts), strict=True):
            part.extend(chunk.tolist())
    for part in parts:
        while len(part) < least:
            part.append(max(parts, key=len).pop())
    return [np.sort(np.asarray(part, dtype=np.int64)) for part in parts]


def losses_of(
    candidates: Sequence[Candidate], fit: Callable[[Candidate], Any], loss: Callable[[Any], float]
) -> list[float]:
    """Train every candidate and return one loss for each; a candidate that fails has the loss NaN and ranks last."""
    losses = []
    for candidate in candidates:
        try:
            losses.append(float(loss(fit(candidate))))
        except (Exception, SystemExit):  # which candidates fail depends on the data: it is a bad loss, not news
            _log.exception("A candidate failed on this client; it ranks last.")
            losses.append(math.nan)
    return losses


def trainer_losses(
    trainer: SupportsFit[DataT, object],
    candidates: Sequence[Candidate],
    data: DataT,
    rng: np.random.Generator | None = None,
) -> list[float]:
    """Return one loss per candidate from a trainer of dptune, private or not: minus its score on this client."""
    generator = np.random.default_rng() if rng is None else rng
    return losses_of(
        candidates, lambda params: trainer.fit(dict(params), data, generator), lambda fitted: -float(fitted[1])
    )
