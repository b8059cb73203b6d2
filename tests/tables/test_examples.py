"""The schemas in ``examples/`` are read, and say what the page about tables says."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dptune.tables import read_schema, read_table

_EXAMPLES = Path(__file__).parents[2] / "examples"
_ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Cuba, "
)


def test_the_schema_of_adult(tmp_path: Path) -> None:
    schema = read_schema(_EXAMPLES / "adult.toml")
    assert (schema.width, len(schema.columns), schema.csv.header) == (113, 15, False)
    path = tmp_path / "adult.data"
    path.write_text(f"{_ROW}<=50K\n{_ROW.replace('Cuba', '?')}>50K\n\n")
    data = read_table(path, schema).data
    assert data.y.tolist() == [0, 1]
    assert np.count_nonzero(data.x, axis=1).tolist() == [13, 13]  # no capital loss
    assert np.flatnonzero(data.x[0] != data.x[1]).tolist() == [71 + 12, 112]  # Cuba, and other
