"""Every target of the games against code, by name: the one place where they are registered.

What a record moves with certainty is found by the walk (``walk``); these are for what only shows in many games: too
little noise, noise used twice, a law of K that is not followed. Targets that need an extra or real runs are imported
when they are made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from dptune.audit.implementations import Target
from dptune.audit.targets import choice as choice
from dptune.audit.targets import methods as methods
from dptune.audit.targets import runner as runner
from dptune.audit.targets import training as training

__all__ = ["TARGETS", "Registered"]


@dataclass(frozen=True)
class Registered:
    """How a target is made, and how many games a short check of it plays in each world."""

    make: Callable[[], Target]
    games: int = 1000


def _later(module: str, name: str) -> Callable[[], Target]:
    def make() -> Target:
        found: Target = getattr(importlib.import_module(f"dptune.audit.targets.{module}"), name)()
        return found

    return make


TARGETS = MappingProxyType(
    {
        "discrete Gaussian": Registered(choice.discrete_gaussian),
        "discrete Laplace": Registered(choice.discrete_laplace),
        "permute-and-flip": Registered(choice.flipped),
        "sparse vector": Registered(choice.sparse),
        "vote": Registered(methods.vote, 200),
        "noisy best": Registered(methods.noisy_best, 200),
        "final model": Registered(training.final_model),
        "all iterates": Registered(training.watched_iterates),
        "random stopping": Registered(runner.stopping, 400),
        "failures": Registered(runner.failures),
        "one step": Registered(_later("drawn", "one_step"), 40),
        "federated ballot": Registered(_later("federated", "ballots"), 2000),
        "federated vote": Registered(_later("federated", "federated_vote"), 150),
        "sealed runs": Registered(_later("sealed", "sealed"), 60),
    }
)
