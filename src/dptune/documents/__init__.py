"""The pages of the documentation that statements and messages name, carried by every install.

Beside this file are links to ``docs/``; an installed package holds the pages themselves. So the proofs that a statement
names can be read without the source and without a web address: ``dptune docs NAME`` prints one, and its sha256 says
whether it is the text that the statement means. Must import nothing else of dptune but errors.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from dptune.errors import InvalidInput

__all__ = ["Document", "document", "documents"]

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Document:
    """One page.

    Args:
        name: by which it is asked for, such as ``select`` or ``sharp_edges``.
        place: below ``docs/`` of the source, as statements name it.
        path: where it lies here.

    Example:
        >>> document("docs/theorems/select.md").name
        'select'
    """

    name: str
    place: str
    path: Path

    @property
    def text(self) -> str:
        """What it says, as Markdown."""
        return self.path.read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """Its first line."""
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def sha256(self) -> str:
        """The digest of its bytes: the same text has the same one wherever it is kept."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def documents() -> tuple[Document, ...]:
    """Every page that this install carries.

    Returns:
        Pages for users, then proofs, each in the order of the alphabet.

    Example:
        >>> "sharp_edges" in [one.name for one in documents()]
        True
    """
    pages = [(path, f"docs/{path.name}") for path in sorted(_HERE.glob("*.md"))]
    proofs = [(path, f"docs/theorems/{path.name}") for path in sorted((_HERE / "theorems").glob("*.md"))]
    return tuple(Document(path.stem.replace("README", "theorems"), place, path) for path, place in pages + proofs)


def document(asked: str) -> Document:
    """One page by its name, its place or its title.

    Args:
        asked: such as ``select``, ``docs/theorems/select.md`` or "Random stopping: the tight bound".

    Returns:
        The page.

    Raises:
        InvalidInput: there is none.

    Example:
        >>> document("Composition").place
        'docs/theorems/compose.md'
    """
    wanted = asked.strip().removesuffix(".md").lower()
    for one in documents():
        place = one.place.removesuffix(".md").lower()
        if wanted in (one.name.lower(), place, place.removeprefix("docs/"), one.title.lower()):
            return one
    raise InvalidInput(f"There is no page {asked!r:.100} in this install. 'dptune docs' lists those that are there.")
