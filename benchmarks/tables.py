"""What tables cost and give: Adult from its CSV file to a private model, and how fast a large CSV file is read.

    DPTUNE_DATA=... python benchmarks/tables.py adult [--runs 5]     accuracy on adult.test at total epsilon 1
    python benchmarks/tables.py csv [--rows 1000000]                 seconds and peak memory for 50 columns

Nothing of Adult's test part decides anything: schema, model, space and steps are the defaults of the library and
``examples/adult.toml``.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import dptune as dpt
from dptune.tables import Category, Number, Schema, Target, read_schema, read_table
from dptune.training.benchmark_data import data_root

SCHEMA = Path(__file__).parents[1] / "examples" / "adult.toml"


def adult(runs: int) -> None:
    """Tune on adult.data at total epsilon 1, with private validation, and count right answers on adult.test."""
    schema = read_schema(SCHEMA)
    source = data_root() / "adult" / "adult.data"
    lines = (data_root() / "adult" / "adult.test").read_text().splitlines()[1:]  # the first is no record
    found = []
    with tempfile.TemporaryDirectory() as folder:
        test = Path(folder) / "test.csv"
        test.write_text("\n".join(line.rstrip(".") for line in lines))
        records = read_table(test, schema, public=True).data
        for place in range(runs):
            began = time.perf_counter()
            out = Path(folder) / str(place)
            os.environ["DPTUNE_LEDGER"] = f"{out}.ledger"  # every run a first one, and none in the user's own ledger
            release = dpt.tune(source, schema=SCHEMA, epsilon=1, delta=1e-5, out=out, explain=None)
            seconds = time.perf_counter() - began
            found.append(release.model.accuracy(records))
            print(f"{release.method}: accuracy {found[-1]:.4f}, epsilon {release.epsilon:.4f}, {seconds:.1f} s")
    print(f"{len(records)} test records; mean {np.mean(found):.4f}, smallest {min(found):.4f}")


def _write(path: Path, rows: int) -> Schema:
    """Forty numbers, nine categories and a target."""
    rng = np.random.default_rng(0)
    numbers, words = [f"n{i}" for i in range(40)], [f"c{i}" for i in range(9)]
    with path.open("w") as stream:
        stream.write(",".join([*numbers, *words, "y"]) + "\n")
        for start in range(0, rows, 10_000):
            count = min(10_000, rows - start)
            cells = rng.normal(50, 20, (count, 40)).round(3).astype(str)
            others = rng.integers(0, 12, (count, 10)).astype(str)
            stream.write("\n".join(",".join(row) for row in np.hstack([cells, others])) + "\n")
    columns = [Number(name, 0, 100) for name in numbers]
    values = tuple(str(value) for value in range(10))
    return Schema(rows, (*columns, *(Category(name, values) for name in words), Target("y", ("0", "1"))))


def csv(rows: int) -> None:
    """Read a CSV file of 50 columns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.csv"
        schema = _write(path, rows)
        began, used = time.perf_counter(), time.process_time()
        data = read_table(path, schema).data
        wall, processor = time.perf_counter() - began, time.process_time() - used
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        size = path.stat().st_size / 1e6
    print(
        f"{size:.0f} MB, records {data.x.shape}: {wall:.1f} s, {processor:.1f} s of processor time, peak {peak:.2f} GB"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["adult", "csv"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}")
    adult(options.runs) if options.what == "adult" else csv(options.rows)
