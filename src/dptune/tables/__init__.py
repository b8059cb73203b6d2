"""Users' tables behind a public schema: CSV, Parquet, DataFrames and arrays become records that engines see.

Header and schema are public and may be refused. From the first row on nothing is refused, printed or counted: every
record is repaired and encoded on its own, by the schema alone (``docs/tables.md``).
"""

from dptune.tables.arrays import array_dataset, array_regression, array_units, read_npz
from dptune.tables.columns import Category, Column, Ignored, Number, NumberTarget, Target, Text
from dptune.tables.drafting import draft, infer
from dptune.tables.encoder import Encoder
from dptune.tables.records import Records, read_table
from dptune.tables.schema import CsvFormat, Schema
from dptune.tables.schema_files import read_schema, schema_from_toml, schema_to_toml

__all__ = [
    "Category",
    "Column",
    "CsvFormat",
    "Encoder",
    "Ignored",
    "Number",
    "NumberTarget",
    "Records",
    "Schema",
    "Target",
    "Text",
    "array_dataset",
    "array_regression",
    "array_units",
    "draft",
    "infer",
    "read_npz",
    "read_schema",
    "read_table",
    "schema_from_toml",
    "schema_to_toml",
]
