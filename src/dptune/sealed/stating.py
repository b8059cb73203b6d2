"""From the public facts of a run to what is said of it: the statement, and the content of ``release.json``.

One source for all forms: Markdown and HTML are rendered from the statement, and ``release.json`` holds it as values.
"""

from __future__ import annotations

from typing import Any

from dptune.sealed.annex import figures, glossary, proofs, released, rests_on
from dptune.sealed.content import Statement
from dptune.sealed.page_one import answers
from dptune.sealed.statement import WATERMARK, Facts, chance_of_no_model, no_model

__all__ = ["release_details", "state"]


def state(facts: Facts) -> Statement:
    """The statement of a run.

    Args:
        facts: all that is public about it.

    Returns:
        What is said; a release without a model, or without a guarantee, says so first.
    """
    return Statement(
        title=f"Privacy statement: {facts.dataset}",
        warnings=_warnings(facts),
        notes=_notes(facts),
        answers=answers(facts),
        figures=figures(facts),
        released=released(facts),
        rests_on=rests_on(facts),
        proofs=proofs(facts),
        glossary=glossary(facts),
    )


def _warnings(facts: Facts) -> tuple[str, ...]:
    said = []
    if facts.model is None:
        said.append(no_model(chance_of_no_model(facts.plan), facts.receipt is not None))
    if facts.receipt is None:
        said.append(
            f"{WATERMARK}. This is a rehearsal on {facts.data_is} data with a fixed seed; nothing below protects "
            "anybody."
        )
    return tuple(said)


def _notes(facts: Facts) -> tuple[str, ...]:
    if facts.receipt is None:
        return (
            "Nothing here is to be approved: a rehearsal has no guarantee. The glossary explains every special word.",
        )
    return (
        "Page one answers the questions of whoever must approve this publication, in plain words. The technical annex "
        "has the figures for specialists. The glossary at the end explains every special word.",
    )


def release_details(facts: Facts, statement: Statement) -> dict[str, Any]:
    """The content of ``release.json``, before it is sealed; :mod:`dptune.sealed.schema` has its schema.

    Args:
        facts: all that is public about a run.
        statement: what is said of it.

    Returns:
        Plain JSON values.
    """
    return {**facts.describe(), "statement": statement.describe()}
