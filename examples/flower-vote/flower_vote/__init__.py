"""An example: a private vote on hyperparameters, then federated averaging with the winner."""
