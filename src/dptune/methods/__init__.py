"""The tuning methods: one file, one method, one theorem. What they share lives in ``_machinery``."""

from dptune.methods.adaptive import Adaptive
from dptune.methods.baselines import Naive, NonPrivateOptimum, RandomGuess
from dptune.methods.budget import Budget
from dptune.methods.execute import fit_trial
from dptune.methods.lines import Line
from dptune.methods.noisy_best import NoisyBest
from dptune.methods.plan import Method, Plan, known_methods, plan_from_json
from dptune.methods.random_stopping import RandomStopping
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
    "plan_from_json",
    "register_proposer",
    "register_rule",
]
