"""What a statement says, as one frozen value: page one, the annex, the glossary. Every form of it is made from here.

Texts are plain: a renderer escapes them, so nothing that a user named (a data set, a column, a parameter) can become
markup. Values come from :class:`~dptune.sealed.statement.Facts`, which is public; nothing here may come from the vault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dptune._codec import from_json, to_values

__all__ = ["Answer", "Row", "Statement", "statement_from_json"]


@dataclass(frozen=True)
class Answer:
    """One question of page one with its answer.

    Args:
        key: by which machines know the question; it does not change.
        question: in plain words.
        text: paragraphs.
        points: a list below them.
        code: a command or a value, to be copied as it is.

    Example:
        >>> Answer("how long", "For how long?", ("For a year.",)).points
        ()
    """

    key: str
    question: str
    text: tuple[str, ...]
    points: tuple[str, ...] = ()
    code: str | None = None


@dataclass(frozen=True)
class Row:
    """A name and what is said of it: a line of the annex, or a word of the glossary."""

    name: str
    text: str


@dataclass(frozen=True)
class Statement:
    """A privacy statement: what people read, before it is Markdown, HTML or JSON.

    Args:
        title: of the page.
        warnings: what must be read before anything else; a release without a model or a guarantee says so here.
        notes: what is read below the title, before the questions.
        answers: page one.
        figures: the technical annex.
        released: what was released, for specialists.
        rests_on: every assumption, in full.
        proofs: by name, with their place.
        glossary: every word that page one or the annex uses and that not everybody knows.
    """

    title: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    answers: tuple[Answer, ...]
    figures: tuple[Row, ...]
    released: tuple[str, ...]
    rests_on: tuple[str, ...]
    proofs: tuple[Row, ...]
    glossary: tuple[Row, ...]

    def describe(self) -> dict[str, Any]:
        """The statement as plain JSON values."""
        values: dict[str, Any] = to_values(self)
        return values


def statement_from_json(values: object) -> Statement:
    """Read what :meth:`Statement.describe` wrote; unknown, missing and mistyped fields are refused.

    Args:
        values: plain JSON values.

    Returns:
        The statement.

    Raises:
        InvalidInput: they are not those of a statement.

    Example:
        >>> statement_from_json({})
        Traceback (most recent call last):
        ...
        dptune.errors.InvalidInput: ...
    """
    return from_json(values, Statement, "a statement")
