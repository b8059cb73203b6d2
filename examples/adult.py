"""Adult from its files to a private model and its predictions: python examples/adult.py FOLDER_WITH_ADULT_DATA"""

import sys
from pathlib import Path

import dptune as dpt

folder, schema = Path(sys.argv[1]), Path(__file__).with_name("adult.toml")  # the schema is made from adult.names
release = dpt.tune(folder / "adult.data", schema=schema, epsilon=1, delta=1e-5)
rows = [line.rstrip(".") for line in (folder / "adult.test").read_text().splitlines()[1:] if line]
Path("new.csv").write_text("\n".join(rows))
found = release.predict("new.csv")  # raw rows, names of classes
right = sum(row.endswith(f" {name}") for row, name in zip(rows, found, strict=True))
print(f"epsilon {release.epsilon:.4f} for everything; accuracy {right / len(rows):.4f} on {len(rows)} new rows")
