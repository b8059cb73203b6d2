"""Private training: the trainer protocol, DP-SGD engines, models and data sets.

Training knows nothing of ledgers or selection; a trainer declares its cost and runs once when asked.
"""

from dptune.trainer import Fitted, Trainer, fit_many, trainer
from dptune.training.benchmark_data import Dataset, Split, load
from dptune.training.clipping import Automatic, Flat, PerLayer, Quantile
from dptune.training.dpsgd import Settings, descend
from dptune.training.dpsgd_trainer import DpSgdTrainer
from dptune.training.encoders import PublicEncoder
from dptune.training.engines import engine_for
from dptune.training.gradients import oriented_gradients
from dptune.training.holdout import Holdout
from dptune.training.models import Activation, Cnn, Mlp, Regression, linear, softmax
from dptune.training.optimizers import Adam, AdamBC, Constant, Cosine, Decay, Momentum, Sgd
from dptune.training.trained_model import TrainedModel
from dptune.training.trained_regression import TrainedRegression
from dptune.training.whitening import Whitening

__all__ = [
    "Activation",
    "Adam",
    "AdamBC",
    "Automatic",
    "Cnn",
    "Constant",
    "Cosine",
    "Dataset",
    "Decay",
    "DpSgdTrainer",
    "Fitted",
    "Flat",
    "Holdout",
    "Mlp",
    "Momentum",
    "PerLayer",
    "PublicEncoder",
    "Quantile",
    "Regression",
    "Settings",
    "Sgd",
    "Split",
    "TrainedModel",
    "TrainedRegression",
    "Trainer",
    "Whitening",
    "descend",
    "engine_for",
    "fit_many",
    "linear",
    "load",
    "oriented_gradients",
    "softmax",
    "trainer",
]
