"""From a CSV to private predictions of a number, on a public data set. python examples/regression.py"""

from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

import dptune as dpt

# 442 patients: how far a disease had gone after a year, from 25 to 346. Ranges as a code book would give them.
table = load_diabetes(as_frame=True, scaled=False).frame
ranges = {"age": (18, 90), "sex": (1, 2), "bmi": (15, 45), "bp": (60, 140), "s1": (90, 310), "s2": (40, 250)}
ranges |= {"s3": (20, 100), "s4": (2, 10), "s5": (3, 6.5), "s6": (55, 130)}
schema = "version = 1\nrecords = 440\n" + "".join(
    f'[columns.{name}]\nkind = "number"\nrange = [{low}, {high}]\n' for name, (low, high) in ranges.items()
)
schema += '[columns.target]\nkind = "target"\nrange = [0, 350]\n'

with TemporaryDirectory() as folder:
    csv, toml = Path(folder, "diabetes.csv"), Path(folder, "diabetes.toml")
    table.to_csv(csv, index=False)
    toml.write_text(schema, encoding="utf-8")
    # The set is public, so no ledger is charged; private records are tuned by the same line with dataset="NAME".
    release = dpt.tune(csv, schema=toml, epsilon=1, delta=1e-3, data_is="public", out=Path(folder, "run"))
    found = release.predict(csv)

truth = table.pop("target")
error = float(((truth - found) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())
print(f"epsilon {release.epsilon:.3f}: R^2 {1 - error:.3f}")
print(f"without privacy: R^2 {LinearRegression().fit(table, truth).score(table, truth):.3f}")
