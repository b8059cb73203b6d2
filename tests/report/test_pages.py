"""Pages for people: every figure there, nothing private, nothing from outside, and one clear line for bad input."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import norm
from tests.report.samples import NAMES, SaidLedger, plans, public, unsafe_plan
from tests.sealed.toy import DATA, ToyTrainer, toy_plan

import dptune as dpt
from dptune.accounting import Gaussian
from dptune.cli import main
from dptune.errors import Corrupt, DptuneError, InvalidInput
from dptune.executors import Processes
from dptune.planner import Compared
from dptune.report.figures import Bar, bars, reach, trade_off
from dptune.report.ledger_page import ledger_html
from dptune.report.literature import against_literature
from dptune.report.plan_picture import plan_picture, stages
from dptune.report.rehearsal_page import _row, parallel_coordinates
from dptune.report.release_page import release_html
from dptune.sealed.rehearsal import RehearsedTrial

ONE = Processes(1)
_VOID = {"meta", "link", "br", "hr", "img", "input"}
_OPTIONAL = {"td", "th", "tr", "li", "p", "dt", "dd"}


class _Page(HTMLParser):
    """What a page is made of; unbalanced elements are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.tags: Counter[str] = Counter()
        self.said = ""
        self._open: list[str] = []
        self.feed(text)
        assert [tag for tag in self._open if tag not in _OPTIONAL] == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags[tag] += 1
        if given.get("id"):
            self.ids[str(given["id"])] += 1
        for name in ("href", "src"):
            if given.get(name):
                self.links.append(str(given[name]))
        for name in ("aria-labelledby", "aria-describedby"):
            self.links += [f"#{one}" for one in (given.get(name) or "").split()]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open[-1] != tag and self._open[-1] in _OPTIONAL:
            self._open.pop()
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.said += data


def _checked(text: str) -> _Page:
    """A page that stands alone: links resolve, identifiers are unique, nothing is asked for."""
    page = _Page(text)
    assert [name for name, count in page.ids.items() if count > 1] == []
    outside = [link for link in page.links if not link.startswith("#")]
    assert [link for link in page.links if link.startswith("#") and link[1:] not in page.ids] == []
    assert outside == []
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert page.tags["script"] == page.tags["img"] == page.tags["link"] == 0
    assert page.tags["h1"] == page.tags["main"] == 1
    assert page.tags["svg"] == page.tags["title"] - 1 == page.tags["desc"]  # one title is the page's
    return page


# The page of a release.


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_every_method(name: str) -> None:
    plan = plans()[name]
    page = _checked(release_html(public(plan)))
    assert {
        "page-one",
        "reach",
        "literature",
        "plan",
        "configuration",
        "budget",
        "annex",
        "glossary",
    } <= page.ids.keys()
    assert page.tags["svg"] == 4
    assert "How do I verify this?" in page.said
    assert "dptune ledger verify LEDGER --statement release.json" in page.said
    assert ("Here nothing was tuned" in page.said) == (name == "guess")
    for stage in stages(plan):
        assert all(0.0 <= start < end <= 1.0 for start, end, _ in stage.parts)
        assert stage.note in page.said


def test_a_rehearsal_s_release_says_so_first_and_draws_no_budget() -> None:
    page = _checked(release_html(public(plans()["subset"], rule=None)))
    assert page.said.split("NO GUARANTEE")[0].count("Privacy statement: icu") == 1  # the page's own title
    assert "budget" not in page.ids
    assert "found of 100, at 1 false alarm" not in page.said
    assert page.said.count("Not here, but in a sealed run of the same plan:") == 2  # below both pictures
    assert "Not here" not in _checked(release_html(public(plans()["subset"]))).said


def test_a_plan_without_a_guarantee_has_no_curve() -> None:
    page = _checked(release_html(public(unsafe_plan(), rule=None)))
    assert "reach" not in page.ids
    assert "literature" not in page.ids


def test_names_cannot_become_markup() -> None:
    hostile = "</title><script>alert(1)</script>\"'"
    text = release_html(public(plans()["guess"], dataset=hostile, unit="<i>"))
    page = _checked(text)
    assert hostile in page.said
    assert "<i>" not in text


def test_the_curve_is_never_below_what_an_attack_reaches() -> None:
    cost = Gaussian(1.0)
    for rate, power in reach(cost):
        assert norm.cdf(norm.ppf(rate) + 1.0) <= power <= norm.cdf(norm.ppf(rate) + 1.0) + 1e-6
    drawn = next(part for part in trade_off(cost, 3.0, 1e-5).parts if 'class="a" points' in part)
    for x, y in (map(float, pair.split(",")) for pair in re.findall(r"[\d.]+,[\d.]+", drawn)):
        rate = 10 ** (4 * (x - 46) / 362 - 4)
        power = (246 - y) / 232
        assert power >= norm.cdf(norm.ppf(min(rate, 1 - 1e-9)) + 1.0) - 6e-3  # a tenth of a pixel, both ways


def test_bounds_are_printed_outward() -> None:
    text = bars("b", "Bounds", [Bar("above", 1.00001, "fa"), Bar("below", 1.00009, "fc", lower=True)]).svg()
    assert "above 1.0001; below 1.0000" in text


def test_the_literature_is_never_below_us() -> None:
    for name, plan in plans().items():
        rows = against_literature(plan, plan.price(), None)
        ours = next(row.value for row in rows if row.kind == "fa")
        # Naive composition is for as many runs, not for this procedure; DP-HyPO's own theorems are not sound.
        other = ("naive", "DP-HyPO, Theorem")
        papers = [row for row in rows if row.kind == "fb" and not row.name.startswith(other)]
        assert all(row.value >= ours * (1 - 1e-6) for row in papers), name
        assert bool(papers) == (name in ("random stopping", "adaptive", "subset", "subset, all")), name


def test_there_is_a_page_for_every_plan() -> None:
    assert set(NAMES) == plans().keys()


def test_shards_are_counted_in_words_where_too_many_to_draw() -> None:
    said = plan_picture(plans()["threshold"]).description
    assert "4 candidates on each of 40 shards (12 are drawn)" in said


# The page of a ledger.


def test_the_page_of_a_ledger(tmp_path: Path) -> None:
    book = dpt.Ledger.create(tmp_path / "h.ledger")
    book.add("icu & <b>", 1.5, 1e-5, "patient")
    book.add("empty", 3.0, 1e-6)
    for _ in range(3):
        book.charge("icu & <b>", dpt.Gdp(0.1))
    book.raise_budget("icu & <b>", 4.0)
    page = _checked(dpt.report(tmp_path / "h.ledger", tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "icu & <b>" in page.said
    assert "Verified when this page was made" in page.said
    assert book.head in page.said
    assert "The budget of the data set was raised" in page.said
    assert "Nothing was charged yet." in page.said
    assert "One record for each patient is assumed" in page.said
    assert page.tags["tr"] == 4
    assert page.tags["rect"] == 3 + 2  # a bar for each charge, and one in each legend
    assert "3 charges" in page.said


def test_one_charge_is_one_bar_of_the_whole_width(tmp_path: Path) -> None:
    book = dpt.Ledger.create(tmp_path / "h.ledger")
    book.add("icu", 2.0, 1e-5, "patient")
    book.charge("icu", dpt.Gdp(0.1))
    page = dpt.report(tmp_path / "h.ledger").read_text(encoding="utf-8")
    assert "1 charges" not in page
    (first, *_) = re.findall(r'<rect class="fa" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', page)
    assert float(first[1]) > 350


def test_ten_thousand_charges_stay_a_small_page() -> None:
    text = ledger_html(SaidLedger(10_000))  # type: ignore[arg-type] # what a page asks of a ledger
    assert len(text.encode()) < 3_000_000
    page = _checked(text)
    assert page.tags["tr"] == 10_001
    assert max(part.count(",") for part in re.findall(r'points="([^"]*)"', text)) < 1000


def test_a_damaged_ledger_gets_no_page(tmp_path: Path) -> None:
    book = dpt.Ledger.create(tmp_path / "h.ledger")
    book.add("icu", 1.5, 1e-5)
    content = bytearray((tmp_path / "h.ledger").read_bytes())
    place = content.rindex(b'"dataset"')
    content[place : place + 9] = b'"databet"'
    (tmp_path / "h.ledger").write_bytes(content)
    with pytest.raises(Corrupt):
        dpt.report(tmp_path / "h.ledger", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


# Runs.


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger, a sealed run and a rehearsal."""
    home = tmp_path_factory.mktemp("runs")
    book = dpt.Ledger.create(home / "h.ledger")
    book.add("icu", 10.0, 1e-5, "patient")
    dpt.run(toy_plan(count=3), ToyTrainer(), DATA, ledger=book, dataset="icu", out=home / "run", executor=ONE)
    options: dict[str, Any] = {"seed": 1, "data_is": "synthetic", "executor": ONE}
    dpt.run(toy_plan(count=6), ToyTrainer(fail_below=1.4), DATA, out=home / "rehearsed", **options)
    return home


@pytest.fixture
def home(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_page_needs_the_release_alone(home: Path) -> None:
    """The same page without a vault: nothing in it came from there."""
    whole = dpt.report(home / "run").read_text(encoding="utf-8")
    shutil.copytree(home / "run" / "release", home / "sent" / "release")
    alone = dpt.report(home / "sent" / "release", home / "alone.html").read_text(encoding="utf-8")
    assert whole == alone
    assert dpt.report(dpt.load_release(home / "run"), home / "b.html").read_text(encoding="utf-8") == whole
    assert dpt.report(home / "run" / "release" / "release.json", home / "c.html").read_text(encoding="utf-8") == whole
    _checked(whole)


def test_the_page_of_a_rehearsal_shows_everything_and_is_marked(home: Path) -> None:
    page = _checked(dpt.report(home / "rehearsed", rehearsal=True).read_text(encoding="utf-8"))
    assert page.said.index("NO GUARANTEE") < page.said.index("Everything that a sealed run would hide")
    assert "failed" in page.said
    assert page.tags["svg"] == 3
    assert page.tags["tr"] == 7


def test_statements_of_charges_are_linked(home: Path) -> None:
    text = dpt.report(home / "h.ledger", home / "page.html", runs=home).read_text(encoding="utf-8")
    assert '<a href="run/release/statement.html">statement 3</a>' in text


_Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: (run / "release" / "statement.html").unlink(), "not as its run wrote it"),
        (lambda run: (run / "release" / "plan.json").write_text("{}"), "not as its run wrote it"),
        (lambda run: (run / "release" / "statement.md").write_text("fine"), "not as its run wrote it"),
        (lambda run: (run / "release" / "release.json").write_text("{"), "is damaged"),
        (lambda run: _edit(run, epsilon=0.01), "not as its run wrote it"),
        (lambda run: _edit(run, seal=None), "not as its run wrote it"),
        (lambda run: _edit(run, schema={"name": "dptune release", "version": 9}), "another version"),
    ],
)
def test_a_damaged_release_gets_no_page(home: Path, damage: _Damage, said: str) -> None:
    damage(home / "run")
    with pytest.raises(DptuneError, match=said):
        dpt.report(home / "run", home / "page.html")
    assert not (home / "page.html").exists()


def _edit(run: Path, **changes: Any) -> None:
    path = run / "release" / "release.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run/vault"], "is a vault"),
        (["run/vault/inside/run.db"], "is a vault"),
        (["nowhere"], "There is no nowhere"),
        (["words.txt"], "neither a run's folder nor a ledger"),
        (["run", "--rehearsal"], "is a sealed run: what its trainings did is not shown"),
        (["run", "--out", "run"], "is a folder"),
        (["run", "--out", "run/release/x.html"], "inside of a release"),
        (["run", "--out", "no/such/folder.html"], "cannot be written"),
        (["rehearsed", "--registry", "r.json"], "no guarantee"),
        (["h.ledger", "--runs", "nothing"], "There is no folder nothing"),
    ],
)
def test_bad_input_is_one_line(
    home: Path,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(home)
    (home / "words.txt").write_text("words")
    assert main(["report", *arguments]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_missing_extra_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["report", str(home / "run")]) == 2
    assert "python -m pip install 'dptune[report]'" in capsys.readouterr().err
    assert (home / "run" / "release" / "statement.html").is_file()  # which needed no extra


def test_the_command_writes_a_page_and_a_registry_entry(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, entry = home / "page.html", home / "entry.json"
    assert main(["report", str(home / "run"), "--out", str(out), "--registry", str(entry), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"page": str(out), "registry": str(entry)}
    assert json.loads(entry.read_text())["unit"] == "patient"
    _checked(out.read_text(encoding="utf-8"))


def test_without_a_name_the_page_stands_beside_what_it_shows(home: Path) -> None:
    assert dpt.report(home / "run") == home / "run" / "report.html"
    assert dpt.report(home / "run" / "release") == home / "run" / "report.html"
    assert dpt.report(home / "h.ledger") == home / "h.ledger.html"
    with pytest.raises(InvalidInput, match="inside of a release"):
        dpt.report(home / "run", home / "run" / "release" / "page.html")


# Figures of other commands.


@pytest.mark.parametrize(
    "command",
    [
        ["price", "--base", "gdp:0.5", "--runs", "geometric:5", "--delta", "1e-5"],
        ["compare", "--epsilon", "3", "--delta", "1e-5", "--steps", "50", "--candidates", "8"],
    ],
)
def test_commands_draw_their_tables(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Compared(f"method {i}", 1.0 + i, 3.0, 1.0, 1e4, 0.05, None) for i in range(4)]
    rows.append(Compared("does not fit", None, math.inf, 1.0, None, 0.0, None, "too little"))
    monkeypatch.setattr("dptune.cli.compare.compare_methods", lambda *_, **__: rows)  # comparing takes a while
    place = tmp_path / "drawn.svg"
    assert main([*command, "--figure", str(place), "--json"]) == 0
    json.loads(capsys.readouterr().out)
    drawn = ET.fromstring(place.read_text(encoding="utf-8"))
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}rect")) > 6
    title, shown = (drawn.findtext(f"{{http://www.w3.org/2000/svg}}{kind}") for kind in ("title", "text"))
    assert title == shown  # a file of its own says what it shows
    assert main([*command, "--figure", str(tmp_path / "drawn.png")]) == 2
    assert "is an SVG file" in capsys.readouterr().err


def test_names_at_the_edges_of_a_picture_are_not_cut_off() -> None:
    """Seen on a page: the first axis was called 'earning_rate'."""
    trials = [RehearsedTrial(i, {"learning_rate": 0.1 + i}, 0.5 + i / 4, 1.0, None, 0) for i in range(2)]
    picture = parallel_coordinates(trials)
    assert picture is not None
    drawn = picture.svg()
    assert re.search(r'<text[^>]* x="0"[^>]*>learning_rate<', drawn)
    assert re.search(rf'<text[^>]* x="{picture.width}"[^>]*text-anchor="end"[^>]*>score<', drawn)


def test_configurations_of_a_rehearsal_are_short() -> None:
    one = RehearsedTrial(3, {"rate": 0.029988957271923, "name": "sgd", "steps": 5}, 0.5, 1.0, None, 0)
    assert _row(one)[-1] == 'name "sgd", rate 0.029989, steps 5'
