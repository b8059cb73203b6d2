"""A statement as Markdown and as one self-contained page of HTML, both from the same value.

Texts are escaped here and nowhere else. The page needs no other file, no script and no library: it must open in ten
years. Anchors are those of the questions' keys.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from dptune.sealed.content import Answer, Row, Statement

__all__ = [
    "STYLE",
    "annex_html",
    "questions_html",
    "statement_body",
    "statement_html",
    "statement_markdown",
    "warnings_html",
]

_SPECIAL = re.compile(r"([\\`*<\[|])|(?<!\w)(_)|(_)(?!\w)|(&)(?=#?\w+;)")

STYLE = """
:root { color-scheme: light dark; --ink: #1b1d21; --dim: #565b64; --paper: #fff; --line: #d3d7de; --soft: #f4f5f7;
  --accent: #0b5cad; --warn: #8a1f11; --warn-soft: #fdecea; --good: #1f6b3a; --other: #b35c00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --dim: #a9b0ba; --paper: #15171b; --line: #3a3f47;
  --soft: #1f2329; --accent: #7ab7ff; --warn: #ffb4a8; --warn-soft: #3b1a16; --good: #7fd49b; --other: #f0a860; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 1.25rem; overflow-wrap: anywhere; color: var(--ink);
  background: var(--paper);
  font: 1rem/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1.02rem; margin: 1.1rem 0 .2rem; }
p, ul { margin: .3rem 0; }
ul { padding-left: 1.3rem; }
a { color: var(--accent); }
a.term { color: inherit; text-decoration: underline dotted; text-underline-offset: .18em; }
:target { background: var(--soft); }
a:focus-visible, pre:focus-visible, [tabindex]:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
code { overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .88em; }
pre { background: var(--soft); border: 1px solid var(--line); padding: .6rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; color: var(--dim); padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
th[scope=row] { width: 32%; font-weight: 600; }
dt { font-weight: 600; margin-top: .5rem; }
dd { margin: 0 0 0 1rem; }
.warning { border: 2px solid var(--warn); background: var(--warn-soft); color: var(--warn); padding: .7rem .9rem;
  font-weight: 600; margin: .8rem 0; }
.note { color: var(--dim); }
@media (max-width: 30rem) { body { padding: .8rem; } th[scope=row] { width: 40%; } }
@media print { :root { --ink: #000; --dim: #333; --paper: #fff; --line: #999; --soft: #fff; --accent: #000;
  --warn: #000; --warn-soft: #fff; } body { max-width: none; padding: 0; font-size: 9pt; line-height: 1.24; }
  .questions { columns: 2; column-gap: 1.6rem; font-size: 8pt; } section { break-inside: avoid; }
  @page { margin: 12mm; } h1 { font-size: 14pt; margin: 0 0 .4rem; } h2 { font-size: 11pt; margin: .8rem 0 .2rem; }
  h3, section > h2 { font-size: 9.5pt; margin: .38rem 0 .05rem; border: 0; padding: 0; } p, ul { margin: .1rem 0; }
  pre { padding: .2rem .4rem; margin: .2rem 0; } nav { display: none; }
  .annex { break-before: page; } h2, h3 { break-after: avoid; } tr, li { break-inside: avoid; }
  a, a.term { text-decoration: none; } }
"""


def _md(text: str) -> str:
    """A plain text as Markdown that shows it as it is."""
    return _SPECIAL.sub(lambda found: "\\" + found[0], text)


def _fenced(code: str) -> list[str]:
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, code, fence]


def _answer_lines(answer: Answer) -> list[str]:
    lines = [f"### {_md(answer.question)}", ""]
    for paragraph in answer.text:
        lines += [_md(paragraph), ""]
    if answer.points:
        lines += [*(f"* {_md(point)}" for point in answer.points), ""]
    if answer.code is not None:
        lines += [*_fenced(answer.code), ""]
    return lines


def _table_lines(rows: Iterable[Row]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {_md(row.name)} | {_md(row.text)} |" for row in rows), ""]


def statement_markdown(statement: Statement) -> str:
    """The statement as Markdown.

    Args:
        statement: what it says.

    Returns:
        The text of ``statement.md``; what must be read first comes first.
    """
    lines: list[str] = []
    for warning in statement.warnings:
        lines += [f"**{_md(warning)}**", ""]
    lines += [f"# {_md(statement.title)}", ""]
    for note in statement.notes:
        lines += [_md(note), ""]
    for answer in statement.answers:
        lines += _answer_lines(answer)
    lines += ["## Technical annex", "", *_table_lines(statement.figures)]
    for title, points in (("What was released", statement.released), ("What this rests on", statement.rests_on)):
        lines += [f"## {title}", "", *(f"* {_md(point)}" for point in points), ""]
    lines += ["## Proofs", "", *(f"* {_md(row.name)}: {_md(row.text)}" for row in statement.proofs), ""]
    lines += ["## Glossary", "", *(f"* **{_md(row.name)}**: {_md(row.text)}" for row in statement.glossary), ""]
    return "\n".join(lines)


def _p(text: str) -> str:
    return html.escape(text)


def anchor(key: str) -> str:
    """The place of a question or a word on its page."""
    return re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")


class _Linked:
    """Texts as HTML in which words of the glossary are links to it, each where it first stands.

    Args:
        words: of the glossary; several in one entry have commas or "and" between them.
    """

    def __init__(self, words: Iterable[Row]) -> None:
        self._places = {
            part.lower(): anchor(row.name) for row in words for part in re.split(r", | and ", row.name) if part
        }
        longest = sorted(self._places, key=len, reverse=True)
        inside = "|".join(re.escape(word) for word in longest)
        self._pattern = re.compile(rf"(?<![\w./-])({inside})s?(?![\w/-])", re.IGNORECASE) if longest else None

    def __call__(self, text: str, seen: set[str]) -> str:
        """One text; words that are ``seen`` already stay as they are, new ones are added to them."""
        parts, done = [], 0
        for found in self._pattern.finditer(text) if self._pattern is not None else ():
            place = self._places.get(found[1].lower())  # None: a letter that only looks like another's lower case
            if place is not None and place not in seen:
                seen.add(place)
                link = f'<a class="term" href="#w-{place}">{_p(found[0])}</a>'
                parts += [_p(text[done : found.start()]), link]
                done = found.end()
        return "".join([*parts, _p(text[done:])])

    def list(self, points: Iterable[str], seen: set[str]) -> str:
        """Several texts as a list."""
        return "<ul>" + "".join(f"<li>{self(point, seen)}</li>" for point in points) + "</ul>"


def _answer_html(answer: Answer, level: int, linked: _Linked) -> str:
    place, seen = anchor(answer.key), set[str]()
    parts = [f'<section aria-labelledby="q-{place}"><h{level} id="q-{place}">{_p(answer.question)}</h{level}>']
    parts += [f"<p>{linked(paragraph, seen)}</p>" for paragraph in answer.text]
    if answer.points:
        parts.append(linked.list(answer.points, seen))
    if answer.code is not None:
        parts.append(f"<pre><code>{_p(answer.code)}</code></pre>")
    return "".join([*parts, "</section>"])


def _row_html(row: Row, linked: _Linked) -> str:
    seen = set[str]()
    return f'<tr><th scope="row">{linked(row.name, seen)}</th><td>{linked(row.text, seen)}</td></tr>'


def _rows_html(rows: Iterable[Row], caption: str, linked: _Linked) -> str:
    body = "".join(_row_html(row, linked) for row in rows)
    return f"<table><caption>{_p(caption)}</caption><tbody>{body}</tbody></table>"


def warnings_html(statement: Statement) -> str:
    """What must be read first, as HTML."""
    return "".join(f'<p class="warning" role="note">{_p(warning)}</p>' for warning in statement.warnings)


def questions_html(statement: Statement, level: int = 2) -> str:
    """Page one, as HTML without its title."""
    linked = _Linked(statement.glossary)
    return f'<div class="questions">{"".join(_answer_html(one, level, linked) for one in statement.answers)}</div>'


def annex_html(statement: Statement) -> str:
    """Page two, as HTML."""
    words = "".join(
        f'<dt id="w-{anchor(row.name)}">{_p(row.name)}</dt><dd>{_p(row.text)}</dd>' for row in statement.glossary
    )
    linked = _Linked(statement.glossary)
    proofs = _rows_html(statement.proofs, "Each by name, and where it is written down", linked)
    parts = [
        '<h2 id="annex" class="annex">Technical annex</h2>',
        _rows_html(statement.figures, "The figures of this release", linked),
        f'<h2 id="released">What was released</h2>{linked.list(statement.released, set())}',
        f'<h2 id="rests-on">What this rests on</h2>{linked.list(statement.rests_on, set())}',
        f'<h2 id="proofs">Proofs</h2>{proofs}',
        f'<h2 id="glossary">Glossary</h2><dl>{words}</dl>',
    ]
    return "".join(parts)


def statement_body(statement: Statement) -> str:
    """The statement as HTML without a page around it.

    Args:
        statement: what it says.

    Returns:
        Page one and page two.
    """
    notes = "".join(f'<p class="note">{_p(note)}</p>' for note in statement.notes)
    return (
        f"{warnings_html(statement)}<h1>{_p(statement.title)}</h1>{notes}"
        '<nav aria-label="Contents"><p><a href="#annex">Technical annex</a> · <a href="#proofs">Proofs</a> · '
        f'<a href="#glossary">Glossary</a></p></nav>{questions_html(statement)}{annex_html(statement)}'
    )


def statement_html(statement: Statement) -> str:
    """The statement as one self-contained page.

    Args:
        statement: what it says.

    Returns:
        The text of ``statement.html``: no script, no request, light and dark, ready to print.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_p(statement.title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>{statement_body(statement)}</main></body></html>\n"
    )
