"""Drafts of schemas: from the names of columns alone, or filled in from public records of the same kind.

A draft of private records reads their header (of a Parquet file: and the declared types) and nothing else; what people
must decide is marked with FILL IN. Only records that the caller declares public are counted and looked at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dptune.errors import InvalidInput
from dptune.tables._cells import numbers, texts
from dptune.tables.arrow_tables import is_arrow, types_of
from dptune.tables.columns import Category, Column, Ignored, Number, NumberTarget, Target, Text
from dptune.tables.schema import VERSION, CsvFormat, Schema
from dptune.tables.schema_files import UNFILLED, column_lines, toml_key, toml_value
from dptune.tables.sources import batches, is_frame, names_of, table_kind

__all__ = ["draft", "infer", "is_regression"]

_DELIMITERS = re.compile(r"[;,\t|]")
_MOST_CATEGORIES = 200
_MOST_CLASSES = 100
_FEW_NUMBERS = 20
_WORDS_WIDTH = 256
_FILL = "  # FILL IN: "
_HEAD = """\
# What is public about these records. Decide it without looking at them: nothing here may be counted or read off.
# Fill in every line that says FILL IN; see docs/tables.md.
"""


def draft(
    source: Any,
    *,
    target: str | None = None,
    unit: str | None = None,
    from_public: Any = None,
    csv: CsvFormat | None = None,
) -> str:
    """The text of a schema file to be filled in, from the names of a table's columns alone.

    Args:
        source: The path of a CSV or Parquet file, a DataFrame, an Arrow table or a Hugging Face data set. Of a CSV file
            only the first line is read, of a Parquet file and of Arrow tables the declared types too.
        target: The name of the column to predict, if it is known.
        unit: The name of the column that says whose row it is, where somebody may have several.
        from_public: A table of the same kind that anybody may see; ranges and values are read off it.
        csv: How the CSV file is written.

    Returns:
        The text; lines that people must decide are marked with FILL IN.

    Raises:
        InvalidInput: If there is no header, it has a column twice, or no column is called like the target or the unit.

    Example:
        >>> from pathlib import Path
        >>> from dptune.tables import draft
        >>> _ = Path("icu.csv").write_text("age,ill\\n80,yes\\n")
        >>> print(draft("icu.csv", target="ill").splitlines()[-1])
        # to predict a number instead: range = [lowest, highest] in place of the classes
    """
    form = csv or CsvFormat()
    names = _distinct_names(source, form)
    if target is not None and target not in names:
        raise InvalidInput(f"There is no column {target!r} to predict; the header has {', '.join(names[:20])}.")
    if unit is not None and (unit not in names or unit == target):
        raise InvalidInput(
            f"There is no column {unit!r} beside the target to tell rows apart; the header has {', '.join(names[:20])}."
        )
    known = {} if from_public is None else _observed(from_public, target, form)
    declared = _declared(source)
    lines = [f"version = {VERSION}", *_unit_lines(unit), ""]
    lines += ["[csv]", f"delimiter = {toml_value(form.delimiter)}"]
    for name in names:
        if name == unit:
            lines += column_lines(Ignored(name))
        elif name in known:
            lines += column_lines(known[name])
        else:
            lines += ["", f"[columns.{toml_key(name)}]", *_unfilled(declared.get(name), name == target)]
    if target is None:
        lines += ["", '# FILL IN: one of the columns is what a model predicts: kind = "target" with its classes.']
    return _HEAD + "\n".join(lines) + "\n"


def infer(source: Any, *, target: str, csv: CsvFormat | None = None, task: str | None = None) -> Schema:
    """The whole schema of a table that anybody may see, read off its records.

    A target whose values are all numbers, and more than 20 different ones with fractions among them or more than 100,
    is a number to be predicted; any other is a class.

    Args:
        source: The path of a CSV or Parquet file, a DataFrame, an Arrow table or a Hugging Face data set, of public
            records.
        target: The name of the column to predict.
        csv: How the CSV file is written.
        task: "classification" or "regression", where the values themselves mislead; None: by the rule above.

    Returns:
        A schema that fits these records.

    Raises:
        InvalidInput: If no column is called like the target, or it has too few or too many classes.

    Example:
        >>> from pathlib import Path
        >>> from dptune.tables import infer
        >>> _ = Path("toy.csv").write_text("age,ill\\n80,yes\\n20,no\\n")
        >>> infer("toy.csv", target="ill").columns[0]
        Number(name='age', low=20.0, high=80.0, missing=50.0, scale='linear')
    """
    form = csv or CsvFormat()
    names = _distinct_names(source, form)
    if target not in names:
        raise InvalidInput(f"There is no column {target!r} to predict; the table has {', '.join(names[:20])}.")
    columns = _observed(source, target, form, task)
    records = sum(batch.size for batch in batches(source, _reading(names, form), labelled=False))
    return Schema(max(1, records), tuple(columns.values()), csv=form)


def _unit_lines(unit: str | None) -> list[str]:
    """How many records there are, and what one is."""
    if unit is None:
        return [f"records = 0{_FILL}about how many there are, a public figure", 'unit = "row"']
    called = unit.removesuffix("_id")
    return [
        f"records = 0{_FILL}about how many different values {toml_value(unit)} has, a public figure",
        f"unit = {toml_value(unit)}",
        f"unit_rows = 0{_FILL}the most rows of one that take part; the rest is left out",
        f"unit_name = {toml_value(called)}",
    ]


def _distinct_names(source: Any, form: CsvFormat) -> list[str]:
    """The names in the header. What may be the first record is refused before any word of it is shown."""
    names = names_of(source, form)
    lines = isinstance(source, str | Path) and table_kind(Path(str(source))) != "parquet"
    pieces = [piece for name in names for piece in (_DELIMITERS.split(name) if lines else [name])]
    if any(_is_number(piece) for piece in pieces):
        raise InvalidInput("The first line holds a number where names of columns should be; put a header there.")
    if lines and len(names) == 1 < len(pieces):
        raise InvalidInput(
            f"The header is one piece when it is split at {form.delimiter!r}; name the delimiter (--delimiter ';')."
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"The header has the column {twice!r} twice; rename one.")
    return names


def _is_number(name: str) -> bool:
    return not math.isnan(float(numbers([name])[0]))


def _declared(source: Any) -> dict[str, str]:
    """The kinds that a Parquet file or an Arrow table declares; nothing for others."""
    if is_arrow(source):
        return dict(types_of(source))
    if is_frame(source) or table_kind(Path(str(source))) != "parquet":
        return {}
    from dptune.tables.parquet_files import parquet_types  # noqa: PLC0415 - optional dependency

    return dict(parquet_types(Path(str(source))))


def _unfilled(declared: str | None, target: bool) -> list[str]:
    if target:
        return [
            'kind = "target"',
            f'classes = []{_FILL}all classes that may occur, for example ["no", "yes"]',
            "# to predict a number instead: range = [lowest, highest] in place of the classes",
        ]
    if declared == "number":
        return ['kind = "number"', f"range = []{_FILL}[lowest, highest], decided without looking"]
    if declared == "truth":
        return ['kind = "category"', 'values = ["false", "true"]']
    if declared == "text":
        return ['kind = "category"', f'values = []{_FILL}those that may occur; or kind = "text", width = 256']
    return [
        f'kind = "{UNFILLED}"{_FILL}number | category | text | target | ignore',
        "# number: range = [lowest, highest]   category: values = [...]   text: width = 256   target: classes = [...]",
    ]


def _reading(names: Sequence[str], form: CsvFormat) -> Schema:
    """A schema by which every column is read as it is."""
    beside = Target("\0", ("0", "1"))  # no column is called so
    return Schema(1, (*(Text(name, 2) for name in names), beside), csv=form)


def _observed(public: Any, target: str | None, form: CsvFormat, task: str | None = None) -> dict[str, Column]:
    """What public records show of each column."""
    names = _distinct_names(public, form)
    found: dict[str, list[str]] = {name: [] for name in names}
    for batch in batches(public, _reading(names, form), labelled=False):
        for name in names:
            found[name] += texts(batch.cells[name])
    return {
        name: _target(name, cells, task) if name == target else _column(name, cells) for name, cells in found.items()
    }


def is_regression(values: Any, task: str | None) -> bool:
    """Whether public targets are numbers to be predicted, rather than classes.

    Args:
        values: The targets that occur, all of them numbers.
        task: "classification" or "regression" decides; None: more than 20 different values with fractions among them,
            or more than 100, are numbers.

    Returns:
        True for numbers.

    Raises:
        InvalidInput: If ``task`` is something else.

    Example:
        >>> is_regression([0, 1, 2], None), is_regression([0.5 * i for i in range(30)], None)
        (False, True)
    """
    if task not in (None, "classification", "regression"):
        raise InvalidInput(f"'task' must be 'classification' or 'regression'; got {task!r}.")
    different = np.unique(np.asarray(values, np.float64))
    fractions = bool((np.floor(different) != different).any())
    return task == "regression" or (task is None and len(different) > (_FEW_NUMBERS if fractions else _MOST_CLASSES))


def _target(name: str, cells: list[str], task: str | None) -> Column:
    given = [cell for cell in cells if cell]
    values, found = sorted(set(given)), numbers(given)
    if given and np.isfinite(found).all() and is_regression(found, task):
        low, high = float(found.min()), float(found.max())
        return NumberTarget(name, low, high if high > low else low + 1.0, float(np.median(found)))
    if task == "regression":
        raise InvalidInput(f"The target {name!r} has values that are not numbers, so it cannot be a regression's.")
    if len(values) > _MOST_CLASSES:
        raise InvalidInput(f"The target {name!r} has {len(values):,} values that are not numbers, too many classes.")
    return Target(name, tuple(values))


def _column(name: str, cells: list[str]) -> Column:
    given = [cell for cell in cells if cell]
    values = sorted(set(given))
    as_numbers = numbers(given)
    if given and not np.isnan(as_numbers).any():
        low, high = float(as_numbers.min()), float(as_numbers.max())
        return Number(name, low, high if high > low else low + 1.0, float(np.median(as_numbers)))
    if 0 < len(values) <= _MOST_CATEGORIES:
        return Category(name, tuple(values))
    return Text(name, _WORDS_WIDTH)
