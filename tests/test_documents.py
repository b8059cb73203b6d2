"""The pages that statements and messages name travel with every install, and are found by name."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dptune.cli._commands import Commands, _loaded
from dptune.documents import document, documents
from dptune.errors import InvalidInput
from dptune.sealed.annex import PROOFS, named_proofs

ROOT = Path(__file__).parents[1]


def test_every_page_that_the_program_names_is_carried() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"\bdocs/(?:theorems/)?[\w-]+\.md", sources))
    assert len(named) > 20
    assert named <= {one.place for one in documents()}


def test_commands_that_statements_name_print_their_pages() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/dptune").glob("*/*page*.py"))
    names = re.findall(r"dptune docs (\w+)", sources)
    assert set(names) == {"federated", "sharp_edges"}
    for name in names:
        done = CliRunner().invoke(_loaded("docs"), [name])
        assert done.output.strip() == (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").strip()


def test_carried_pages_are_those_of_the_source_and_have_one_name_each() -> None:
    for one in documents():
        assert one.path.read_bytes() == (ROOT / one.place).read_bytes()
        assert document(one.name) == document(one.place) == document(one.title) == one


@pytest.mark.parametrize("page", sorted(PROOFS))
def test_a_proof_is_named_with_an_address_that_stays(page: str) -> None:
    """A reader who has the statement and any copy of the page can tell whether it is the one that is meant."""
    (row,) = named_proofs([page])
    assert row.name == PROOFS[page]
    assert hashlib.sha256((ROOT / page).read_bytes()).hexdigest() in row.text
    (name,) = re.findall(r"the command dptune docs (\S+) prints it", row.text)
    assert document(name).place == page


def test_a_proof_of_somebody_s_own_method_is_not_claimed() -> None:
    (row,) = named_proofs(["docs/theorems/../../../etc/passwd"])
    assert "does not carry" in row.text
    assert "sha256" not in row.text


def test_a_page_that_is_not_there_is_one_line() -> None:
    with pytest.raises(InvalidInput, match=r"There is no page 'nix'.*'dptune docs' lists"):
        document("nix")


def test_the_list_says_where_pages_are() -> None:
    assert "docs" in Commands().list_commands(None)
    listed = CliRunner().invoke(_loaded("docs"), []).output
    assert "Random stopping: the tight bound" in listed
    placed = CliRunner().invoke(_loaded("docs"), ["select", "--where"]).output.split()
    assert Path(placed[0]).name == "select.md"
    assert placed[2] == hashlib.sha256((ROOT / "docs/theorems/select.md").read_bytes()).hexdigest()
