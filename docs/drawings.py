"""Draws the pictures of the concept pages (``make docs``): boxes and arrows by hand, every number computed here.

A picture is plain SVG on a light card, so that it reads the same on a light and on a dark page, and has a title and a
description for those who listen to it.
"""

from __future__ import annotations

import tempfile
from html import escape
from pathlib import Path

from dptune import Gaussian, Geometric, Ledger, NegativeBinomial, Poisson, select
from dptune.accounting.runs import Runs

_OUT = Path(__file__).parent / "figures"
_DASHED = 'stroke-dasharray="6 4"'
_BLUE, _ORANGE, _GREEN, _GREY, _INK = "#3f51b5", "#e65100", "#2e7d32", "#aab0ba", "#1d2430"


def _card(width: int, height: int, title: str, description: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="title description" font-family="system-ui, sans-serif" font-size="14" fill="{_INK}">'
    )
    said = f'<title id="title">{escape(title)}</title><desc id="description">{escape(description)}</desc>'
    arrow = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{_INK}"/></marker></defs>'
    )
    card = f'<rect width="{width}" height="{height}" rx="10" fill="#fafbfc"/>'
    return "\n".join([head, said, arrow, card, *parts, "</svg>\n"])


def _text(x: float, y: float, words: str, anchor: str = "middle", colour: str = _INK, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>'


def _box(x: float, y: float, width: float, height: float, lines: list[str], colour: str, filled: bool = False) -> str:
    fill, ink = (colour, "#ffffff") if filled else ("#ffffff", _INK)
    drawn = [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{fill}" stroke="{colour}"/>'
    ]
    top = y + height / 2 + 5 - 9 * (len(lines) - 1)
    drawn += [_text(x + width / 2, top + 18 * k, line, colour=ink, bold=k == 0) for k, line in enumerate(lines)]
    return "\n".join(drawn)


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{_INK}" marker-end="url(#arrow)"/>'


def budget() -> str:
    """A data set's budget after each of three charges, as a ledger counts it."""
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        book = Ledger.create(Path(folder) / "hospital.ledger")
        book.add("icu", 8.0, 1e-6)
        for noise in (3.0, 3.0, 2.0):
            book.charge("icu", Gaussian(noise))
            status = book.status("icu")
            shown.append((Gaussian(noise).epsilon(1e-6), status.spent, status.left))
    parts = [
        _text(20, 32, "A budget of 8 at delta 1e-6: what is spent after each of three charges", "start", bold=True)
    ]
    for row, (price, spent, left) in enumerate(shown):
        y, scale = 56 + 52 * row, 52.0
        parts += [
            f'<rect x="20" y="{y}" width="{8 * scale:g}" height="24" rx="4" fill="#e3e6eb"/>',
            f'<rect x="20" y="{y}" width="{spent * scale:g}" height="24" rx="4" fill="{_BLUE}"/>',
            _text(24, y + 17, f"{spent:.2f}", "start", "#ffffff"),
            _text(446, y + 12, f"charge of {price:.2f}", "start"),
            _text(446, y + 30, f"left for one more: {left:.2f}", "start"),
        ]
    told = "; ".join(f"a charge of {p:.2f}, then spent {s:.2f}, left for one more {r:.2f}" for p, s, r in shown)
    return _card(640, 220, "One budget, three charges", told, parts)


def seal() -> str:
    """What enters a sealed run and what leaves it."""
    parts = [
        _box(16, 40, 130, 54, ["records", "private"], _ORANGE),
        _box(16, 112, 130, 54, ["plan", "public"], _BLUE),
        f'<rect x="206" y="16" width="230" height="190" rx="12" fill="#fff4e6" stroke="{_ORANGE}" {_DASHED}/>',
        _text(321, 38, "vault: nothing leaves", colour=_ORANGE, bold=True),
        _text(321, 66, "number of runs"),
        _text(321, 88, "configurations and scores"),
        _text(321, 110, "models that lost"),
        _text(321, 132, "failures, timings"),
        _text(321, 154, "the secret of all draws"),
        _text(321, 190, "destroyed at release", colour=_GREY),
        _box(496, 40, 128, 126, ["release", "configuration", "model", "statement"], _GREEN),
        _arrow(146, 67, 202, 67),
        _arrow(146, 139, 202, 139),
        _arrow(436, 103, 492, 103),
        _box(206, 222, 230, 52, ["ledger", "charged before any training"], _BLUE),
    ]
    told = "Private records and a public plan enter the vault. Configuration, model and statement leave it."
    return _card(640, 290, "The seal", told, parts)


def run_law() -> str:
    """Three laws of the number of runs, drawn as chances."""
    laws: list[tuple[str, Runs, str]] = [
        ("geometric, mean 30", Geometric(30), _BLUE),
        ("negative binomial (5), mean 30", NegativeBinomial(5, 30), _ORANGE),
        ("Poisson, mean 30", Poisson(30), _GREEN),
    ]
    base, parts = Gaussian(4.0), [_text(20, 30, "How likely is each number of runs?", "start", bold=True)]
    for row, (name, law, colour) in enumerate(laws):
        chances = [float(law.probability(k)) for k in range(81)]
        points = " ".join(f"{50 + 6.8 * k:.1f},{230 - 2300 * p:.1f}" for k, p in enumerate(chances))
        price = select(base, law).epsilon(1e-5)
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            _text(320, 58 + 22 * row, f"{name}: epsilon {price:.2f}", "start", colour),
        ]
    parts += [
        f'<line x1="50" y1="230" x2="600" y2="230" stroke="{_INK}"/>',
        *[_text(50 + 6.8 * k, 248, str(k)) for k in range(0, 81, 20)],
        _text(325, 266, f"number of runs K; one run alone costs {base.epsilon(1e-5):.2f} at delta 1e-5"),
    ]
    told = (
        "Geometric: often small, a long tail. Negative binomial: rarely small. Poisson: close to thirty, the dearest."
    )
    return _card(640, 280, "Laws of the number of runs", told, parts)


def subset_parts() -> str:
    """Who trains on what when tuning happens on a part."""
    parts = [
        _box(16, 60, 120, 90, ["all records"], _GREY),
        _box(226, 16, 170, 62, ["a tenth: tuning", "K runs, the best wins"], _ORANGE),
        _box(226, 132, 170, 62, ["nine tenths", "one final training"], _BLUE),
        _box(496, 132, 128, 62, ["release"], _GREEN),
        _arrow(136, 92, 222, 50),
        _arrow(136, 118, 222, 160),
        _arrow(311, 78, 311, 128),
        _text(322, 110, "configuration", "start"),
        _arrow(396, 163, 492, 163),
        _text(150, 60, "coin", "start", _GREY),
    ]
    told = "A coin sends a tenth of the records to tuning; the winner is trained once on the other nine tenths."
    return _card(640, 212, "Tuning on a part", told, parts)


def neighbours() -> str:
    """Three kinds of neighbouring data sets."""
    parts = []
    kinds = [
        ("one record more or less", 1, True),
        ("one record replaced", 1, False),
        ("one person, up to 3 records", 3, True),
    ]
    for row, (name, count, absent) in enumerate(kinds):
        y = 24 + 62 * row
        parts.append(_text(16, y + 24, name, "start", bold=True))
        for side, changed in ((0, "#ffffff" if absent else _BLUE), (1, _ORANGE)):
            colours = [_GREY] * (6 - count) + [changed] * count
            parts += [
                f'<rect x="{260 + 190 * side + 28 * k}" y="{y}" width="22" height="34" rx="4" fill="{colour}" '
                f'stroke="{_GREY}"/>'
                for k, colour in enumerate(colours)
            ]
    told = "Two data sets differ in one record more, in one that is another, or in up to three records of one person."
    return _card(640, 212, "What is hidden", told, parts)


if __name__ == "__main__":
    _OUT.mkdir(exist_ok=True)
    for name, draw in (
        ("budget", budget),
        ("seal", seal),
        ("run_law", run_law),
        ("parts", subset_parts),
        ("neighbours", neighbours),
    ):
        (_OUT / f"{name}.svg").write_text(draw(), encoding="utf-8")
        print(f"docs/figures/{name}.svg")
