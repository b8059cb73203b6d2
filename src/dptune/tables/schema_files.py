"""Schemas as TOML files: a strict reader with one clear line for each mistake, and a writer.

A schema is public, so its mistakes may be quoted. Nothing is filled in silently but what the kinds of columns declare
as their defaults; an unknown name is refused with the nearest known one.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dptune._validate import nearest
from dptune.errors import InvalidInput
from dptune.tables.columns import KINDS, MOST_VALUES, Category, Column, Number, NumberTarget, Target, Text
from dptune.tables.schema import ROW, VERSION, CsvFormat, Schema

__all__ = ["UNFILLED", "column_lines", "read_schema", "schema_from_toml", "schema_to_toml", "toml_key", "toml_value"]

UNFILLED = "?"
_MOST_BYTES = 4_000_000
_TOP = ("version", "records", "unit", "unit_rows", "unit_name", "csv", "columns")
_CSV = ("delimiter", "header", "encoding")
_FIELDS: dict[str, tuple[str, ...]] = {
    "number": ("range", "missing", "scale"),
    "category": ("values",),
    "text": ("width",),
    "target": ("classes", "range", "unknown", "shares", "missing"),
    "ignore": (),
}


def read_schema(path: str | Path) -> Schema:
    """The schema in a TOML file.

    Args:
        path: The file, as ``dptune schema draft`` writes it, filled in.

    Returns:
        The schema.

    Raises:
        InvalidInput: If the file cannot be read, or something in it cannot be; the line says what to change.

    Example:
        >>> from pathlib import Path
        >>> from dptune.tables import read_schema
        >>> text = '''
        ... version = 1
        ... records = 1000
        ... [columns.age]
        ... kind = "number"
        ... range = [0, 100]
        ... [columns.ill]
        ... kind = "target"
        ... classes = ["no", "yes"]
        ... '''
        >>> _ = Path("schema.toml").write_text(text)
        >>> read_schema("schema.toml").target.classes
        ('no', 'yes')
    """
    path = Path(path)
    try:
        if path.is_file() and path.stat().st_size > _MOST_BYTES:
            raise InvalidInput(
                f"The schema {path} is larger than {_MOST_BYTES // 10**6} MB; a column declares at most "
                f"{MOST_VALUES:,} values, the rest becomes 'other'."
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"The schema {path} cannot be read ({error.strerror}). 'dptune schema draft FILE' writes one."
        ) from None
    except UnicodeDecodeError:
        raise InvalidInput(f"The schema {path} is not UTF-8 text; save it as UTF-8.") from None
    try:
        return schema_from_toml(text)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def schema_from_toml(text: str) -> Schema:
    """The schema in a text of TOML.

    Args:
        text: The content of a schema file.

    Returns:
        The schema.

    Raises:
        InvalidInput: If something in it cannot be.

    Example:
        >>> from dptune.tables import Number, Schema, Target, schema_from_toml, schema_to_toml
        >>> schema = Schema(1000, (Number("age", 0, 100), Target("ill", ("no", "yes"))))
        >>> schema_from_toml(schema_to_toml(schema)) == schema
        True
    """
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        twice = "declare" in str(error) or "overwrite" in str(error)
        hint = " A column or field is there twice; keep one." if twice else ""
        raise InvalidInput(f"this is not TOML: {error}.{hint}") from None
    if "version" not in values:
        raise InvalidInput(f"the schema has no version; write version = {VERSION} in its first line.")
    _known(values, _TOP, "A schema")
    if values["version"] != VERSION or isinstance(values["version"], bool):
        return Schema(1, (), version=values["version"])  # says which versions are read
    if not values.get("records"):
        raise InvalidInput("the schema needs 'records': about how many there are, a public figure, never counted.")
    described = values.get("columns")
    if not isinstance(described, Mapping) or not described:
        raise InvalidInput("the schema has no columns; declare each as [columns.NAME] with its kind.")
    columns = tuple(_column(name, fields) for name, fields in described.items())
    return Schema(
        values["records"],
        columns,
        values.get("unit", ROW),
        _csv(values.get("csv", {})),
        unit_rows=values.get("unit_rows") or None,
        unit_name=values.get("unit_name"),
    )


def _csv(fields: object) -> CsvFormat:
    if not isinstance(fields, Mapping):
        raise InvalidInput(f"[csv] must be a section with fields; got {fields!r}.")
    _known(fields, _CSV, "[csv]")
    return CsvFormat(**fields)


def _column(name: str, fields: object) -> Column:
    where = f"[columns.{toml_key(name)}]"
    if not isinstance(fields, Mapping):
        raise InvalidInput(f"{where} must be a section with a kind; got {fields!r}.")
    kind = fields.get("kind")
    if kind is None or kind == UNFILLED:
        raise InvalidInput(f"{where} is not filled in: its kind is one of {', '.join(KINDS)}.")
    if kind not in KINDS:
        raise InvalidInput(
            f"{where}: there is no kind {kind!r}{nearest(kind, KINDS)}; it is one of {', '.join(KINDS)}."
        )
    given = {field: value for field, value in fields.items() if field != "kind"}
    _known(given, _FIELDS[kind], where)
    return _MAKERS[kind](name, given, where) if kind in _MAKERS else KINDS[kind](name)


def _number(name: str, given: Mapping[str, Any], where: str) -> Column:
    ends = given.get("range")
    if not isinstance(ends, list) or len(ends) != 2:
        raise InvalidInput(f"{where} needs range = [lowest, highest], decided without looking; got {ends!r}.")
    return Number(name, ends[0], ends[1], given.get("missing"), given.get("scale", "linear"))


def _category(name: str, given: Mapping[str, Any], where: str) -> Column:
    values = given.get("values")
    if not isinstance(values, list) or not values:
        raise InvalidInput(f"{where} needs values = [...], those that are known to be possible; got {values!r}.")
    return Category(name, tuple(values))


def _text(name: str, given: Mapping[str, Any], where: str) -> Column:
    if "width" not in given:
        raise InvalidInput(f"{where} needs a width, for example width = 256: words are hashed to as many features.")
    return Text(name, given["width"])


def _target(name: str, given: Mapping[str, Any], where: str) -> Column:
    ends, classes = given.get("range"), given.get("classes")
    if ends and classes:
        raise InvalidInput(f"{where} has classes and a range; keep the range to predict a number, else the classes.")
    if ends:
        return _number_target(name, given, where)
    if not isinstance(classes, list) or not classes:
        raise InvalidInput(
            f"{where} needs classes = [...], all that may occur, or range = [lowest, highest] to predict a number; "
            f"got {classes!r}."
        )
    if "missing" in given:
        raise InvalidInput(f"{where}: 'missing' is for targets with a range; those with classes have 'unknown'.")
    shares = given.get("shares")
    return Target(name, tuple(classes), given.get("unknown"), None if shares is None else _listed(shares, where))


def _number_target(name: str, given: Mapping[str, Any], where: str) -> Column:
    ends = given["range"]
    if not isinstance(ends, list) or len(ends) != 2:
        raise InvalidInput(f"{where} needs range = [lowest, highest], decided without looking; got {ends!r}.")
    for field in ("unknown", "shares"):
        if field in given:
            raise InvalidInput(f"{where}: {field!r} is for targets with classes; those with a range have 'missing'.")
    return NumberTarget(name, ends[0], ends[1], given.get("missing"))


def _listed(values: object, where: str) -> tuple[Any, ...]:
    if not isinstance(values, list):
        raise InvalidInput(f"{where}: 'shares' must be a list with about the part of each class; got {values!r}.")
    return tuple(values)


_MAKERS = {"number": _number, "category": _category, "text": _text, "target": _target}


def _known(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for field in given:
        if field not in known:
            has = ", ".join(known) or "nothing but a kind"
            raise InvalidInput(f"{where} has no {field!r}{nearest(field, known)}; it has {has}.")


def schema_to_toml(schema: Schema) -> str:
    """A schema as the text of a TOML file, which reads back as the same schema.

    Args:
        schema: The schema.

    Returns:
        The text.

    Example:
        >>> from dptune.tables import Number, Schema, Target, schema_to_toml
        >>> schema = Schema(1000, (Number("age", 0, 100), Target("ill", ("no", "yes"))))
        >>> print(schema_to_toml(schema).splitlines()[0])
        version = 1
    """
    head = [
        f"version = {schema.version}",
        f"records = {schema.records}",
        f"unit = {toml_value(schema.unit)}",
        *_unit_lines(schema),
        "",
        "[csv]",
    ]
    head += [f"{field} = {toml_value(getattr(schema.csv, field))}" for field in _CSV]
    return "\n".join([*head, *(line for column in schema.columns for line in column_lines(column))]) + "\n"


def _unit_lines(schema: Schema) -> list[str]:
    """The fields of units that are not rows."""
    given = {"unit_rows": schema.unit_rows, "unit_name": schema.unit_name}
    return [f"{field} = {toml_value(value)}" for field, value in given.items() if value is not None]


def column_lines(column: Column) -> list[str]:
    """The section of one column."""
    fields: dict[str, Any] = {"kind": column.kind}
    if isinstance(column, Number):
        fields |= {"range": [column.low, column.high], "missing": column.missing, "scale": column.scale}
    elif isinstance(column, Category):
        fields |= {"values": list(column.values)}
    elif isinstance(column, Text):
        fields |= {"width": column.width}
    elif isinstance(column, Target):
        fields |= {"classes": list(column.classes), "unknown": column.unknown}
        if column.shares is not None:
            fields["shares"] = list(column.shares)
    elif isinstance(column, NumberTarget):
        fields |= {"kind": Target.kind, "range": [column.low, column.high], "missing": column.missing}
    return [
        "",
        f"[columns.{toml_key(column.name)}]",
        *(f"{name} = {toml_value(value)}" for name, value in fields.items()),
    ]


def toml_key(name: str) -> str:
    """A name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Any) -> str:
    """A text, number, truth value, or a list of them, as TOML writes it; long lists get a line for each few values."""
    if isinstance(value, list):
        parts = [toml_value(one) for one in value]
        flat = f"[{', '.join(parts)}]"
        if len(flat) <= 100:
            return flat
        return "[\n" + "".join(f"  {part},\n" for part in parts) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value)
