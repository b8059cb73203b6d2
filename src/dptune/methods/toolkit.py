"""What a new method is made of, in one import: pricing, trainings, searches (``docs/contributing.md`` uses all of it).

The names are those that the methods here are made of themselves; a method elsewhere takes them from this file, not
from ``_machinery``.
"""

from __future__ import annotations

from dptune.methods._machinery.costs import Costs, TrainingCosts
from dptune.methods._machinery.pricing import Pricing, calibrated
from dptune.methods._machinery.search import BestTrial, FixedTrials, Outcomes, Training, default_params
from dptune.methods.exact import Bits
from dptune.methods.parts import ALL, Coin, DataPart, Shard
from dptune.methods.random_stopping import PUBLIC_SCORE, draw
from dptune.methods.trial import Outcome, Params, Search, Selection, Trial
from dptune.methods.validation import PrivateValidation, validation_of
from dptune.randomness import Randomness

__all__ = [
    "ALL",
    "PUBLIC_SCORE",
    "BestTrial",
    "Bits",
    "Coin",
    "Costs",
    "DataPart",
    "FixedTrials",
    "Outcome",
    "Outcomes",
    "Params",
    "Pricing",
    "PrivateValidation",
    "Randomness",
    "Search",
    "Selection",
    "Shard",
    "Training",
    "TrainingCosts",
    "Trial",
    "calibrated",
    "default_params",
    "draw",
    "validation_of",
]
