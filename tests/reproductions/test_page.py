"""The page of all claims: every claim once, every command known, and no figure of its summary counted by hand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from dptune.cli.reproduce import FIGURES
from dptune.reproductions.catalogue import EXPERIMENTS
from dptune.reproductions.table import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "reproductions.md"
OUTCOMES = get_args(Outcome)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def under(heading: str) -> list[list[str]]:
    """The rows of the first table below this heading, without its head."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return [cells(line) for line in found.group(1).splitlines() if line.startswith("|")][2:]


def papers() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^### (.*)$", text[text.index("## Every claim") :], re.MULTILINE)


CLAIMS = [row for paper in papers() for row in under(paper)]


def named(text: str) -> list[str]:
    """The commands in a cell."""
    return re.findall(r"`([^`]+)`", text)


def test_every_claim_stands_once_and_has_one_of_three_verdicts() -> None:
    assert [int(row[0]) for row in CLAIMS] == list(range(1, len(CLAIMS) + 1))
    assert len(CLAIMS) > 100
    assert {len(row) for row in CLAIMS} == {5}
    assert [row[0] for row in CLAIMS if row[2] not in OUTCOMES] == []
    assert [row[0] for row in CLAIMS if not row[3]] == []  # why


def test_the_summary_counts_the_rows() -> None:
    (summary, *rest) = [
        block for block in PAGE.read_text(encoding="utf-8").split("\n\n") if block.startswith("| paper |")
    ]
    assert not rest
    head, _, *rows = map(cells, summary.splitlines())
    assert head == ["paper", "claims", *OUTCOMES]
    for name, row in zip([*papers(), "all"], rows, strict=True):
        judged = [claim[2] for claim in (CLAIMS if name == "all" else under(name))]
        assert row == [name, str(len(judged)), *(str(judged.count(one)) for one in OUTCOMES)]


def test_every_command_beside_a_claim_exists() -> None:
    for row in CLAIMS:
        for command in named(row[4]):
            name, *options = shlex.split(command)
            assert name in FIGURES or (name == "dptune" and options[0] == "price"), command
            assert set(options) <= {"--quick"} or name == "dptune", command


def test_a_claim_without_a_command_says_why() -> None:
    """Nothing is called reproduced on the page's own word: a command prints it, or a linked proof settles it."""
    bare = [row for row in CLAIMS if not named(row[4])]
    assert [row[0] for row in bare if row[2] != "cannot be told" and "](" not in row[3]] == []


def test_every_experiment_was_run_and_its_time_is_on_the_page() -> None:
    rows = under("When each was run")
    assert [named(row[0]) for row in rows] == [[name] for name in FIGURES]
    seconds = [int(row[2].replace(",", "")) for row in rows]
    assert max(seconds) <= 900 * 2  # a quarter of an hour of two cores
    words = r"the (\d+) take ([\d,]+) s of one core"
    (said,) = re.findall(words, PAGE.read_text(encoding="utf-8"))
    assert [int(one.replace(",", "")) for one in said] == [len(seconds), sum(seconds)]
    assert sum(seconds) <= 4 * 3600 * 2


def test_every_experiment_stands_beside_a_claim() -> None:
    beside = {shlex.split(command)[0] for row in CLAIMS for command in named(row[4])}
    assert [name for name in FIGURES if name not in beside] == []


def test_what_cannot_be_run_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    last = text[text.index("## What cannot be run at all") :]
    assert [name for name, one in EXPERIMENTS.items() if one.run is None and f"`{name}`" not in last] == []


@pytest.mark.parametrize("drawn", re.findall(r"\]\(figures/([^)]+)\.svg\)", PAGE.read_text(encoding="utf-8")))
def test_every_figure_is_drawn_by_a_command_that_the_page_names(drawn: str) -> None:
    assert drawn in FIGURES
    assert (PAGE.parent / "figures" / f"{drawn}.svg").is_file()
    assert f"`dptune reproduce {drawn} --figure {drawn}.svg`" in PAGE.read_text(encoding="utf-8")
