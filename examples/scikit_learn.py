"""scikit-learn: a classifier that is tuned and trained within one total budget. python examples/scikit_learn.py"""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from dptune.integrations.sklearn import PrivateTunedClassifier

x, y = load_breast_cancer(return_X_y=True, as_frame=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)

# This set is public. Private records need schema="schema.toml" and dataset="name" in place of data_is.
model = PrivateTunedClassifier(epsilon=3.0, delta=1e-4, data_is="public").fit(x_train, y_train)

print(f"epsilon {model.epsilon_:.3f} pays for {sorted(model.best_params_)} and the training")
print(f"accuracy on records that nobody looked at: {model.score(x_test, y_test):.3f}")
