"""scikit-learn: a regressor that is tuned and trained within one total budget.

python examples/scikit_learn_regression.py
"""

import numpy as np
from sklearn.linear_model import LinearRegression

from dptune.integrations.sklearn import PrivateTunedRegressor

# Made-up flats: the truth is known, so we can see what privacy costs.
rng = np.random.default_rng(0)
x = np.column_stack([rng.uniform(20, 150, 5000), rng.integers(1, 7, 5000), rng.uniform(0, 30, 5000)])
rent = 150 + 9.0 * x[:, 0] + 40.0 * x[:, 1] - 12.0 * x[:, 2] + rng.normal(0, 120, 5000)
train, test = slice(0, 4000), slice(4000, None)

# These records are made up. Private ones need schema="schema.toml", whose target has a range, and dataset="name".
model = PrivateTunedRegressor(epsilon=1.0, delta=1e-5, data_is="public").fit(x[train], rent[train])

print(f"epsilon {model.epsilon_:.3f} pays for {sorted(model.best_params_)} and the training")
print(f"R^2 on records that nobody looked at: {model.score(x[test], rent[test]):.3f}")
print(f"R^2 without privacy: {LinearRegression().fit(x[train], rent[train]).score(x[test], rent[test]):.3f}")
