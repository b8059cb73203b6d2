"""The tuning methods: one file, one method, one theorem. What they share lives in ``_machinery``.

A method is registered where it is defined (:class:`~dptune.methods.plan.Method`), and every file of this folder is
loaded here, so that a new one is known by its name and no list needs it.
"""

import importlib
import pkgutil

from dptune.methods.adaptive import Adaptive
from dptune.methods.baselines import Naive, NonPrivateOptimum, RandomGuess
from dptune.methods.budget import Budget
from dptune.methods.execute import fit_trial
from dptune.methods.linear_scaling import LinearScaling
from dptune.methods.lines import Line
from dptune.methods.noisy_best import NoisyBest
from dptune.methods.plan import Method, Plan
from dptune.methods.random_stopping import RandomStopping
from dptune.methods.registry import known_methods, method_named
from dptune.methods.stored import plan_from_json
from dptune.methods.subset import Subset
from dptune.methods.surrogate import register_rule
from dptune.methods.threshold import Threshold, register_proposer
from dptune.methods.trial import Outcome, Search, Selection, Trial
from dptune.methods.validation import PrivateValidation
from dptune.methods.voting import Vote

__all__ = [
    "Adaptive",
    "Budget",
    "Line",
    "LinearScaling",
    "Method",
    "Naive",
    "NoisyBest",
    "NonPrivateOptimum",
    "Outcome",
    "Plan",
    "PrivateValidation",
    "RandomGuess",
    "RandomStopping",
    "Search",
    "Selection",
    "Subset",
    "Threshold",
    "Trial",
    "Vote",
    "fit_trial",
    "known_methods",
    "method_named",
    "plan_from_json",
    "register_proposer",
    "register_rule",
]

for _file in pkgutil.iter_modules(__path__):
    if not _file.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_file.name}")
