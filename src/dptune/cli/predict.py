"""``dptune predict``: what a released model says of new records, as a CSV.

The release is opened as data: its model's file must have the hash that the release states, and nothing in it is run.
The records are yours to show or not: predictions on private records are not covered by the release's statement.
"""

from __future__ import annotations

import csv
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dptune._typing import AnyArray
from dptune.cli._job import Job
from dptune.errors import DptuneError, InvalidInput
from dptune.judging import GivesProbabilities, Predicts
from dptune.sealed import load_release
from dptune.tables import Encoder, Target
from dptune.tables.sources import table_kind

__all__ = ["predict", "rows_of"]


def predict(
    release: Annotated[Path, typer.Argument(help="A release folder, or the run's folder.")],
    file: Annotated[
        Path, typer.Argument(help="Raw rows as the schema names them (.csv, .parquet), or numbers (.csv, .npz).")
    ],
    out: Annotated[Path, typer.Option(help="The predictions: one line for each record.")] = Path("predictions.csv"),
    factory: Annotated[
        str | None, typer.Option(help="module:function that makes the torch module, where the release names one.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="module:name of the public encoder that the release names: this runs its code.")
    ] = None,
    pickle: Annotated[bool, typer.Option("--pickle", help="Open a pickle: this runs code of whoever made it.")] = False,
) -> None:
    """Predict with a released model: a class for every record and the probability of each, or a number."""
    found = load_release(release)
    if found.outcome == "no model":
        raise InvalidInput(f"The release in {release} has no model, so nothing can be predicted with it.")
    if features is not None:
        Job({}, str(Path.cwd())).attribute(features, "encoder")  # importing it makes it known by its name
    make = None if factory is None else Job({}, str(Path.cwd())).attribute(factory, "factory")
    model = found.open_model(pickle=pickle, factory=make)
    if not isinstance(model, Predicts):
        raise InvalidInput(
            f"The released model is {type(model).__name__}, which has no predict(x): use it from Python."
        )
    encoder = found.encoder
    x = _arrays(file) if encoder is None else rows_of(file, encoder)
    labels, probabilities = _ask(model.predict, x), None
    if isinstance(model, GivesProbabilities):
        probabilities = _ask(model.predict_proba, x)
    classes = encoder.schema.target.classes if encoder and isinstance(encoder.schema.target, Target) else None
    if encoder is not None:
        labels = np.array(encoder.named(labels), dtype=object)
    _write(out, labels, probabilities, classes)
    print(f"{len(labels)} predictions of {model!r:.200} in {out}.")


def _ask(call: Callable[[AnyArray], Any], x: AnyArray) -> AnyArray:
    """What a model answers, with one line if it does not take these records."""
    try:
        return np.asarray(call(x))
    except DptuneError:
        raise
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"The model does not take these records ({said:.300}).") from None


def rows_of(file: Path, encoder: Encoder) -> AnyArray:
    """The features of raw rows, made as those were that the model was trained on."""
    if table_kind(file) == "npz":
        return encoder.encode(_arrays(file))
    if table_kind(file) is None:
        raise InvalidInput(f"The records {file} must be a .csv, a .parquet or an .npz with an array 'x'.")
    return encoder.encode(file)


def _arrays(file: Path) -> AnyArray:
    """The numbers of a file, as they are."""
    kind = table_kind(file)
    try:
        if kind == "npz":
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                return np.asarray(arrays["x"])
        if kind == "csv":
            return _table(file)
    except InvalidInput:
        raise
    except OSError as error:
        raise InvalidInput(f"The records {file} cannot be read ({error.strerror or type(error).__name__}).") from None
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"The records {file} must be an .npz with an array 'x' ({type(error).__name__}).") from None
    raise InvalidInput(f"The records {file} must be an .npz with an array 'x', or a .csv of numbers.")


def _table(file: Path) -> AnyArray:
    """The numbers of a CSV, with or without a line of names."""
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
        rows = [row for row in csv.reader(stream) if row]
    if rows and not all(_is_number(cell) for cell in rows[0]):
        del rows[0]
    if not rows:
        raise InvalidInput(f"{file} holds no records.")
    for line, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]) or not all(_is_number(cell) for cell in row):
            raise InvalidInput(f"Record {line} of {file} is not a row of {len(rows[0])} numbers.")
    return np.array([[float(cell) for cell in row] for row in rows])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _write(out: Path, labels: AnyArray, probabilities: AnyArray | None, classes: tuple[str, ...] | None) -> None:
    """One line for each record, with classes by name where they have one; the file appears whole or not at all."""
    names = ["prediction"]
    columns: list[AnyArray] = [labels.reshape(len(labels), -1)]
    if probabilities is not None and probabilities.ndim == 2:
        names += [f"probability_{name}" for name in classes or range(probabilities.shape[1])]
        columns.append(probabilities)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_name(f"{out.name}.{os.getpid()}.part")
        with temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(names)
            writer.writerows([*left.tolist(), *right] for left, right in zip(columns[0], _shown(columns), strict=True))
        temporary.replace(out)
    except OSError as error:
        raise InvalidInput(f"{out} cannot be written ({error.strerror or type(error).__name__}).") from None


def _shown(columns: list[AnyArray]) -> list[list[str]]:
    if len(columns) == 1:
        return [[] for _ in columns[0]]
    return [[f"{value:.6g}" for value in row] for row in columns[1]]
