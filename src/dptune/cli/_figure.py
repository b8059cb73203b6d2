"""Pictures that commands write to a file of their own."""

from __future__ import annotations

from pathlib import Path

from dptune.errors import InvalidInput
from dptune.report.svg import Picture, standalone

__all__ = ["write_figure"]


def write_figure(place: Path, picture: Picture) -> None:
    """Write a picture as an SVG file, light and dark."""
    try:
        place.write_text(standalone(picture), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"The figure cannot be written to {place} ({error.strerror}).") from None
