"""``dptune docs``: the pages that statements and messages name, from the install itself."""

from __future__ import annotations

from typing import Annotated

import typer

from dptune.documents import document, documents

__all__ = ["docs"]


def docs(
    page: Annotated[
        str | None, typer.Argument(help="A name such as 'select', a place such as docs/theorems/select.md, or a title.")
    ] = None,
    where: Annotated[bool, typer.Option("--where", help="Say where the page lies, and its sha256.")] = False,
) -> None:
    """Print a page of the documentation that a statement or a message names: proofs, sharp edges, glossary."""
    if page is not None:
        found = document(page)
        print(f"{found.path}\nsha256 {found.sha256}" if where else found.text.rstrip())
        return
    for one in documents():
        print(f"{one.name:<20} {one.path if where else one.title}")
