"""Small pictures as SVG text: lines, bars and boxes with a title and a description, in the colours of the page.

A picture scales with its column and has no fixed colours: classes take them from the page's variables, which follow
light, dark and print. :func:`standalone` adds those variables, for a file of its own.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["CSS", "Picture", "bar", "box", "circle", "line", "path", "standalone", "text"]

CSS = """
.fig { width: 100%; max-width: 36rem; height: auto; display: block; }
.fig text { font: 12px system-ui, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--ink); }
.fig .dim { fill: var(--dim); }
.fig .strong { font-weight: 600; }
.fig .axis { stroke: var(--dim); stroke-width: 1; fill: none; }
.fig .grid { stroke: var(--line); stroke-width: 1; fill: none; }
.fig .a { stroke: var(--accent); stroke-width: 2; fill: none; }
.fig .b { stroke: var(--other); stroke-width: 1.6; fill: none; stroke-dasharray: 5 4; }
.fig .guess { stroke: var(--dim); stroke-width: 1.2; fill: none; stroke-dasharray: 2 3; }
.fig .area { fill: var(--accent); opacity: .14; stroke: none; }
.fig .fa { fill: var(--accent); } .fig .fb { fill: var(--other); } .fig .fc { fill: var(--good); }
.fig .fd { fill: var(--dim); } .fig .empty { fill: var(--soft); stroke: var(--line); }
.fig .fail { stroke: var(--warn); fill: none; stroke-width: 1; opacity: .6; }
.fig .thin { stroke: var(--accent); fill: none; stroke-width: 1; opacity: .45; }
.fig .best { stroke: var(--good); fill: none; stroke-width: 2.5; }
"""

_HEAD = 30  # the room for the title of a file of its own
_COLOURS = """
:root { color-scheme: light dark; --ink: #1b1d21; --dim: #565b64; --paper: #fff; --line: #d3d7de; --soft: #f4f5f7;
  --accent: #0b5cad; --warn: #8a1f11; --good: #1f6b3a; --other: #b35c00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --dim: #a9b0ba; --paper: #15171b; --line: #3a3f47;
  --soft: #1f2329; --accent: #7ab7ff; --warn: #ffb4a8; --good: #7fd49b; --other: #f0a860; } }
"""


@dataclass(frozen=True)
class Picture:
    """One picture.

    Args:
        name: unique on its page; makes the identifiers of title and description.
        title: what it shows, in a few words.
        description: the same for somebody who does not see it, with the figures that matter.
        width: of the coordinates.
        height: of the coordinates.
        parts: elements, as SVG text.

    Example:
        >>> drawn = Picture("p", "A line", "It rises.", 10, 10, (line(0, 10, 10, 0, "a"),)).svg()
        >>> drawn.startswith('<svg class="fig" viewBox="0 0 10 10" role="img"')
        True
    """

    name: str
    title: str
    description: str
    width: int
    height: int
    parts: tuple[str, ...]

    def svg(self, inside: str = "") -> str:
        """The element, to stand in a page."""
        head = (
            f'<svg class="fig" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-labelledby="{self.name}-t {self.name}-d" xmlns="http://www.w3.org/2000/svg">'
        )
        said = (
            f'<title id="{self.name}-t">{html.escape(self.title)}</title>'
            f'<desc id="{self.name}-d">{html.escape(self.description)}</desc>'
        )
        return f"{head}{said}{inside}{''.join(self.parts)}</svg>"


def standalone(picture: Picture) -> str:
    """A picture as a file of its own, light and dark, below its title: there is no page around it that says it.

    Args:
        picture: what is drawn.

    Returns:
        The text of an ``.svg`` file.

    Example:
        >>> standalone(Picture("p", "Nothing", "", 10, 10, ())).startswith("<?xml")
        True
    """
    high = picture.height + _HEAD
    shown = (
        f'<rect width="{picture.width}" height="{high}" fill="var(--paper)"/>',
        text(4, 18, picture.title, "strong"),
        f'<g transform="translate(0 {_HEAD})">',
        *picture.parts,
        "</g>",
    )
    whole = Picture(picture.name, picture.title, picture.description, picture.width, high, shown)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{whole.svg(f"<style>{_COLOURS}{CSS}</style>")}\n'


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line class="{kind}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>'


def path(points: Sequence[tuple[float, float]], kind: str, closed: bool = False) -> str:
    """A line through points."""
    steps = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
    return f'<{"polygon" if closed else "polyline"} class="{kind}" points="{steps}"/>'


def circle(x: float, y: float, radius: float, kind: str) -> str:
    """A dot."""
    return f'<circle class="{kind}" cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"/>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle."""
    return f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(max(0.0, width))}" height="{_n(height)}"/>'


def text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{_n(x)}" y="{_n(y)}"{where}>{html.escape(said)}</text>'


def bar(y: float, share: float, label: str, value: str, kind: str, width: float = 412.0) -> Iterable[str]:
    """A horizontal bar with its label above and its value beside it: readable on a narrow screen."""
    return (
        text(4, y, label),
        text(width + 4, y, value, "strong", "end"),
        box(4, y + 5, width, 10, "empty"),
        box(4, y + 5, width * min(1.0, max(0.0, share)), 10, kind),
    )
