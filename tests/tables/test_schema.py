"""Schemas: what is written reads back, every mistake is one clear line, and a draft reads nothing but the header."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune.cli import main
from dptune.errors import InvalidInput
from dptune.tables import (
    Category,
    CsvFormat,
    Encoder,
    Ignored,
    Number,
    Schema,
    Target,
    Text,
    draft,
    infer,
    read_schema,
    schema_from_toml,
    schema_to_toml,
)

GOOD = """
version = 1
records = 5000
[columns.age]
kind = "number"
range = [0, 120]
[columns."home town"]
kind = "category"
values = ["Ulm", "Bonn"]
[columns.ill]
kind = "target"
classes = ["no", "yes"]
"""
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_VALUES = st.lists(_NAMES.map(str.strip), min_size=2, max_size=4, unique=True)
_FLOATS = st.floats(-1e9, 1e9)


@st.composite
def _schemas(drawn: st.DrawFn) -> Schema:
    names = drawn(st.lists(_NAMES, min_size=4, max_size=4, unique=True))
    low, high = sorted(drawn(st.lists(_FLOATS, min_size=2, max_size=2, unique=True)))
    number = Number(names[0], low, high, None, drawn(st.sampled_from(["linear", "log"])))
    classes = tuple(drawn(_VALUES))
    target = Target(names[3], classes, classes[-1])
    columns = (number, Category(names[1], tuple(drawn(_VALUES))), Text(names[2], 64), target)
    return Schema(drawn(st.integers(1, 10**9)), columns, csv=CsvFormat(drawn(st.sampled_from(",;\t|")), False))


@given(_schemas())
def test_a_schema_reads_back_from_toml_and_json(schema: Schema) -> None:
    assert schema_from_toml(schema_to_toml(schema)) == schema
    assert Schema.from_json(schema.describe()) == schema
    assert Encoder.from_json(Encoder(schema).describe()) == Encoder(schema)


def test_defaults_are_those_of_the_columns() -> None:
    schema = schema_from_toml(GOOD)
    assert schema.columns[0] == Number("age", 0, 120, 60, "linear")
    assert isinstance(schema.target, Target)
    assert schema.target.unknown == "no"
    assert (schema.width, schema.unit, schema.csv) == (4, "row", CsvFormat())


def test_values_may_be_numbers_and_are_compared_as_texts() -> None:
    schema = schema_from_toml(GOOD.replace('["no", "yes"]', "[0, 1.0]").replace('"Ulm"', "true"))
    assert isinstance(schema.target, Target)
    assert schema.target.classes == ("0", "1")
    assert Category("town", ("true", "Bonn")).values == schema.columns[1].values  # type: ignore[attr-defined]


_MISTAKES = {
    "misspelt kind": ('"number"', '"nubmer"', "did you mean 'number'?"),
    "misspelt field": ("range =", "rnage =", "did you mean 'range'?"),
    "misspelt top field": ("records =", "record =", "did you mean 'records'?"),
    "no kind": ('kind = "number"\n', "", "is not filled in: its kind is one of"),
    "no target": ('kind = "target"\nclasses = ["no", "yes"]', 'kind = "ignore"', "has no target"),
    "two targets": (
        'kind = "category"\nvalues = ["Ulm", "Bonn"]',
        'kind = "target"\nclasses = [1, 2]',
        "has 2 targets ('home town', 'ill')",
    ),
    "column twice": ('[columns."home town"]', "[columns.age]", "there twice; keep one"),
    "older version": ("version = 1", "version = 0", "has version 0; this dptune reads version 1"),
    "newer version": ("version = 1", "version = 2", "has version 2; this dptune reads version 1"),
    "no version": ("version = 1", "", "write version = 1"),
    "too many records": ("records = 5000", "records = 1_000_000_000_000_000", "'records' must be a whole number in"),
    "no records": ("records = 5000", "records = 0", "needs 'records'"),
    "no range": ("range = [0, 120]", "", "needs range = [lowest, highest]"),
    "empty range": ("[0, 120]", "[5, 5]", "must be [lowest, highest]"),
    "endless range": ("[0, 120]", "[0, inf]", "got inf"),
    "missing outside": ("[0, 120]", "[0, 120]\nmissing = 121", "missing of column 'age'"),
    "one class": ('["no", "yes"]', '["no"]', "at least 2 values; got 1"),
    "a class twice": ('["no", "yes"]', '["no", "no"]', "has 'no' twice"),
    "strange unknown": ('["no", "yes"]', '["no", "yes"]\nunknown = "?"', "must be one of its classes; got '?'"),
    "empty range of the target": ('classes = ["no", "yes"]', "range = [1, 1]", "and not one value"),
    "unit": ("records = 5000", 'records = 5000\nunit = "patient_id"', "is no column of the schema"),
    "unit without rows": ("records = 5000", 'records = 5000\nunit = "age"', "need 'unit_rows'"),
    "unit is the target": ("records = 5000", 'records = 5000\nunit = "ill"\nunit_rows = 3', "is the target"),
    "rows without unit": ("records = 5000", "records = 5000\nunit_rows = 3", "is for units of several rows"),
    "too many rows": ("records = 5000", 'records = 5000\nunit = "age"\nunit_rows = 5000', "unit_rows"),
    "unit called row": (
        "records = 5000",
        'records = 5000\nunit = "age"\nunit_rows = 3\nunit_name = "record"',
        "cannot be called 'record'",
    ),
    "delimiter": ("[columns.age]", '[csv]\ndelimiter = ",,"\n[columns.age]', "must be one character"),
    "no columns": (GOOD[GOOD.index("[columns.age]") :], "", "has no columns"),
    "no TOML": ("version = 1", "version 1", "this is not TOML"),
}


@pytest.mark.parametrize("mistake", _MISTAKES)
def test_a_mistake_in_a_schema_is_one_clear_line(mistake: str) -> None:
    before, after, said = _MISTAKES[mistake]
    assert before in GOOD
    with pytest.raises(InvalidInput) as error:
        schema_from_toml(GOOD.replace(before, after))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_million_categories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="at most 10,000 values; got 1,000,000"):
        Category("case", tuple(map(str, range(10**6))))
    path = tmp_path / "schema.toml"
    path.write_text(GOOD.replace('["Ulm", "Bonn"]', str(list(map(str, range(10**6))))))
    with pytest.raises(InvalidInput, match="larger than 4 MB"):
        read_schema(path)


def test_a_schema_that_cannot_be_read_says_how_to_draft_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="dptune schema draft FILE"):
        read_schema(tmp_path / "none.toml")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_schema(tmp_path)


def test_a_draft_reads_the_header_alone(tmp_path: Path) -> None:
    texts = []
    for rows in ("1,x,no\n2,y,yes\n", "secret,\xff,\0\n" * 3, ""):
        path = tmp_path / "icu.csv"
        path.write_text('age,"home, town",ill\n' + rows, encoding="latin-1")
        texts.append(draft(path, target="ill"))
    assert len(set(texts)) == 1
    parsed = tomllib.loads(texts[0])
    assert list(parsed["columns"]) == ["age", "home, town", "ill"]
    assert texts[0].count("FILL IN:") == 4  # records, two kinds, the classes
    with pytest.raises(InvalidInput, match="records"):
        schema_from_toml(texts[0])
    with pytest.raises(InvalidInput, match=r"age.*is not filled in"):
        schema_from_toml(texts[0].replace("records = 0", "records = 9"))


def test_a_file_without_a_header_is_not_quoted_in_a_draft(tmp_path: Path) -> None:
    path = tmp_path / "icu.csv"
    path.write_text("Miller,81,yes\n")
    with pytest.raises(InvalidInput) as error:
        draft(path)
    assert "number where names" in str(error.value)
    assert "Miller" not in str(error.value)


@pytest.mark.parametrize("line", ["Miller;81;yes", "Miller\t81\tyes", "Miller|81|yes", "yes,81,yes", "Miller,54;2,no"])
def test_a_first_record_is_not_quoted_however_it_is_written(line: str, tmp_path: Path) -> None:
    path = tmp_path / "icu.csv"
    path.write_text(f"{line}\n")
    for target, unit in ((None, None), ("ill", None), (None, "patient")):
        with pytest.raises(InvalidInput) as error:
            draft(path, target=target, unit=unit)
        assert "number where names" in str(error.value)
        assert not any(word in str(error.value) for word in ("Miller", "81", "yes"))


def test_a_header_of_one_piece_asks_for_the_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "icu.csv"
    path.write_text("age;ward;ill\n")
    with pytest.raises(InvalidInput, match="--delimiter"):
        draft(path, target="ill")
    assert "[columns.ward]" in draft(path, target="ill", csv=CsvFormat(";"))


def test_a_draft_is_filled_from_public_records(tmp_path: Path) -> None:
    (tmp_path / "private.csv").write_text("age,town,note,ill\n999,Rome,secret,maybe\n")
    rows = "".join(
        f"{20 + i % 60},{'Ulm' if i % 2 else 'Bonn'},case {i},{'no' if i % 3 else 'yes'}\n" for i in range(500)
    )
    (tmp_path / "public.csv").write_text("age,town,note,ill\n" + rows)
    text = draft(tmp_path / "private.csv", target="ill", from_public=tmp_path / "public.csv")
    schema = schema_from_toml(text.replace("records = 0", "records = 9"))
    assert schema.columns[0] == Number("age", 20, 79, 48.0)
    assert schema.columns[1] == Category("town", ("Bonn", "Ulm"))
    assert schema.columns[2] == Text("note", 256)
    assert schema.target == Target("ill", ("no", "yes"))
    assert infer(tmp_path / "public.csv", target="ill") == Schema(500, schema.columns)


def test_the_command_drafts_and_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "icu.csv").write_text("age,ill\n80,yes\n")
    given = ["schema", "draft", str(tmp_path / "icu.csv"), "--target", "ill"]
    assert main(given) == 0
    printed = capsys.readouterr().out
    assert printed == draft(tmp_path / "icu.csv", target="ill")
    assert main([*given, "--out", str(tmp_path / "icu.toml")]) == 0
    assert (tmp_path / "icu.toml").read_text() == printed
    capsys.readouterr()
    assert main([*given, "--out", str(tmp_path / "icu.toml")]) == 2
    assert "overwrites nothing" in capsys.readouterr().err
    assert main([*given[:3], "--target", "sick"]) == 2
    assert "no column 'sick'" in capsys.readouterr().err


def test_ignored_columns_have_no_features() -> None:
    schema = Schema(5, (Ignored("id"), Number("age", 0, 1), Target("ill", ("no", "yes"))))
    assert [column.name for column in schema.features] == ["age"]
    with pytest.raises(InvalidInput, match="no column to learn from"):
        Schema(5, (Ignored("id"), Target("ill", ("no", "yes"))))
