"""dptune: differentially private hyperparameter tuning with one honest budget."""

__version__ = "0.1.0"
