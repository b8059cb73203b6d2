"""The statement: every question answered on page one, one word for the unit, one source for every form, a schema."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sealed.toy import DATA, ToyTrainer, toy_plan

from dptune.accounting import ADDED_OR_REMOVED, RECORD_REPLACED, Gaussian, replaced
from dptune.accounting.attackers import attackers, of_a_hundred
from dptune.accounting.event_mechanisms import TruncatedDpSgd
from dptune.errors import InvalidInput
from dptune.executors import Processes
from dptune.ledgers import Ledger, Receipt
from dptune.sealed import Release, run
from dptune.sealed.amounts import at_least, at_most
from dptune.sealed.annex import PROOFS
from dptune.sealed.content import Statement, statement_from_json
from dptune.sealed.page_one import _counts_records
from dptune.sealed.rendering import statement_html, statement_markdown
from dptune.sealed.schema import registry_entry, release_schema
from dptune.sealed.statement import RAISED, Facts
from dptune.sealed.stating import state

ROOT = Path(__file__).parents[2]
ONE = Processes(1)
ASKED = {
    "who": "who is protected",
    "against whom": "against whom",
    "how strongly": "how strongly",
    "how long": "for how long",
    "again": "what if somebody runs again",
    "published": "what was published",
    "promises": "who promised what",
    "forged": "can it be forged",
    "verify": "how do I verify",
    "not covered": "what is not covered",
}


def _facts(**changes: Any) -> Facts:
    plan = toy_plan(count=3)
    receipt = Receipt("run 1", "icu", "renyi", "ab" * 32, 3, "2030-01-01T00:00:00+00:00")
    made = Facts(
        plan=plan,
        params={"x": 1.5},
        dataset="icu",
        unit="patient",
        epsilon=plan.price(),
        epsilon_lower=0.5,
        receipt=receipt,
        budget=(10.0, 1e-5),
        model="model.npz",
        released="2030-01-01T00:00:00+00:00",
        release_at=None,
        late=False,
        replay="exact",
        data_is="private",
        attackers=attackers(plan.cost),
        spent=4.25,
    )
    return replace(made, **changes)


def _texts(statement: Statement) -> list[str]:
    """Every piece of text that a statement holds."""

    def walk(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [text for one in inside for text in walk(one)]

    keys = {answer.key for answer in statement.answers}
    return [text for text in walk(statement.describe()) if text not in keys]


def _page_one(statement: Statement) -> str:
    return " ".join(
        text for one in statement.answers for text in (one.question, *one.text, *one.points, one.code or "")
    )


def _seen(page: str) -> str:
    """What a reader of the page sees."""
    body = re.sub(r"</?a\b[^>]*>", "", page.split("<body>")[1])  # a link is a word of its sentence
    return html.unescape(re.sub(r"<[^>]*>", "\n", body))


# What is said.


def test_every_question_of_an_officer_is_answered_on_page_one() -> None:
    statement = state(_facts())
    answered = {answer.key: answer for answer in statement.answers}
    assert ASKED.keys() <= answered.keys()
    for key, question in ASKED.items():
        asked, answer = answered[key].question.lower(), answered[key]
        assert asked.rstrip("?").removesuffix(" this").removesuffix(" it") in question.lower()
        assert answer.text or answer.points
    for more in ("what", "deleted", "declared number"):
        assert answered[more].text
    page = statement_markdown(statement)
    assert page.index("### What is not covered?") < page.index("## Technical annex")


def test_every_statement_answers_the_same_questions() -> None:
    """Also where nobody is protected, and where there is no model."""
    asked = [one.key for one in state(_facts()).answers]
    seeded: dict[str, Any] = {"receipt": None, "budget": None, "attackers": None, "spent": None}
    for changes in ({"model": None}, {**seeded, "data_is": "public"}, {**seeded, "data_is": "public", "model": None}):
        found = state(_facts(**changes)).answers
        assert [one.key for one in found] == asked
        assert all(one.text or one.points for one in found)


def test_no_figure_of_a_rehearsal_reads_as_if_it_held() -> None:
    seeded = state(_facts(receipt=None, budget=None, spent=None, data_is="public"))
    held = {"Epsilon, delta", "Lower certificate", "Power of any attack", "Advantage of any attack", "Gaussian reading"}
    rows = {row.name: row.text for row in seeded.figures}
    assert all(rows[name].startswith("in a sealed run: ") for name in held)
    assert not any("in a sealed run: " in row.text for row in state(_facts()).figures)


def test_no_answer_speaks_of_a_model_that_is_not_there() -> None:
    without, whole = state(_facts(model=None)), state(_facts())
    assert "ended without a model" in _page_one(without)
    assert "published with the model" in _page_one(whole)
    for said in ("The model that was trained", "the model shows", "Whether the model", "other models"):
        assert said in _page_one(whole)
        assert said not in _page_one(without)
    assert "released model" not in without.figures[0].text


def test_words_of_the_glossary_are_links_to_it() -> None:
    statement = state(_facts())
    page = statement_html(statement)
    places = re.findall(r'<dt id="(w-[a-z0-9-]+)">', page)
    assert len(places) == len(set(places)) == len(statement.glossary)
    linked = re.findall(r'<a class="term" href="#(w-[a-z0-9-]+)">([^<]+)</a>', page)
    assert {place for place, _ in linked} <= set(places)
    for word in ("epsilon", "delta", "vault", "ledger", "renyi-filter", "head", "power", "blake2b-philox-shake-256"):
        assert f"w-{word}" in {place for place, _ in linked}, word
    (answer,) = re.findall(r'<section aria-labelledby="q-how-strongly">.*?</section>', page)
    assert answer.count('href="#w-epsilon"') == 1  # where it first stands


def test_a_name_that_only_looks_like_a_word_of_the_glossary_stops_no_run() -> None:
    """Case is ignored by other letters too (a long s is an s): the page could not be made, after the charge."""
    statement = state(replace(_facts(), dataset="\u017feal"))
    assert "\u201c\u017feal\u201d" in statement_html(statement)


def test_the_strength_is_what_the_cost_says_and_never_less() -> None:
    facts = _facts()
    statement = state(facts)
    text = next(" ".join(one.text) for one in statement.answers if one.key == "how strongly")
    found = re.search(r"finds at most ([\d.]+) of every 100", text)
    assert found is not None
    power = facts.plan.cost.power(0.01)
    assert power <= float(found[1]) / 100 <= power + 0.001
    right = re.search(r"right at most ([\d.]+) times in 100", text)
    assert right is not None
    true = 1.0 - facts.plan.cost.bayes_risk(0.5)
    assert true <= float(right[1]) / 100 <= true + 0.0011
    assert at_most(facts.plan.price()) in text


@given(st.floats(0.0, 1.0))
def test_counts_out_of_a_hundred_are_rounded_up(probability: float) -> None:
    shown = float(of_a_hundred(probability))
    assert probability <= shown / 100 * (1 + 1e-15)
    assert shown <= 100 * probability + 0.1 + 1e-9


@given(st.floats(0.0, 1e6))
def test_bounds_are_rounded_outward(value: float) -> None:
    assert float(at_least(value)) <= value <= float(at_most(value))
    assert float(at_most(value)) - float(at_least(value)) <= 1e-4 * (1 + 1e-6)


def test_what_does_not_exist_is_not_printed_as_a_number() -> None:
    assert at_most(math.inf) == at_most(None) == at_least(math.nan) == "none can be stated"


@pytest.mark.parametrize("unit", ["patient", "user", "record", "household"])
def test_one_word_for_the_unit(unit: str) -> None:
    said = _page_one(state(_facts(unit=unit)))
    assert f"Every {unit} in the data set" in said
    for other in {"patient", "user", "record", "household", "client", "person"} - {unit}:
        assert f"one {other} " not in said.replace("one record for each", "").replace("for one record,", "")


def test_a_replaced_record_is_spoken_of_as_two_versions() -> None:
    plan = replace(toy_plan(count=3))
    facts = _facts(unit="record")
    cost = replaced(Gaussian(3.0))
    assert cost.neighbours == RECORD_REPLACED

    class Other:
        def __getattr__(self, name: str) -> Any:
            return cost if name == "cost" else getattr(plan, name)

    statement = state(replace(facts, plan=Other()))  # type: ignore[arg-type] # a plan with another cost
    said = _page_one(statement)
    assert "which of two versions of one record" in said
    assert "in the data, or not?" not in said
    for text in _texts(statement):  # the number of records is not protected
        assert not re.search(r"(nearly|as likely) .*without any one|(is|are) (not )?in the data", text)
    assert "one record more or less is not covered" in said
    assert "nearly the same without any one record" in _page_one(state(facts))


def test_the_number_of_records_matters_where_the_account_counts_them() -> None:
    counted = TruncatedDpSgd(1000, 0.1, 120, 1.0)
    assert _counts_records(counted.describe())
    assert not _counts_records(toy_plan(count=1).cost.describe())
    assert "As wrong as you like" in _page_one(state(_facts()))


def test_a_raised_budget_is_said_on_page_one() -> None:
    facts = _facts()
    assert facts.receipt is not None
    raised = state(replace(facts, receipt=replace(facts.receipt, rule="odometer")))
    assert RAISED in _page_one(raised)
    assert RAISED in raised.rests_on
    assert RAISED not in _page_one(state(facts))


def test_what_is_not_there_is_said_first() -> None:
    without = state(_facts(model=None, receipt=None, budget=None, attackers=None, spent=None, data_is="synthetic"))
    assert [warning[:12] for warning in without.warnings] == ["NO MODEL was", "NO GUARANTEE"]
    assert statement_markdown(without).startswith("**NO MODEL was released")
    assert _seen(statement_html(without)).strip().startswith("NO MODEL was released")
    assert "Nobody." in _page_one(without)
    assert "finds at most" not in _page_one(without)


def test_the_glossary_explains_the_words_of_the_annex() -> None:
    statement = state(_facts())
    words = {row.name.lower() for row in statement.glossary}
    technical = ("epsilon", "delta", "vault", "ledger", "renyi filter", "head", "power", "advantage", "trainer", "seal")
    assert set(technical) <= words
    assert [row.name for row in statement.glossary] == sorted(row.name for row in statement.glossary)


def test_the_glossary_promises_no_more_than_the_pages_do() -> None:
    """docs/sharp_edges.md says that Philox is no proven generator for secrets, and a loss may exceed epsilon."""
    meant = {row.name: row.text for row in state(_facts()).glossary}
    assert "is not proven" in meant["BLAKE2b, Philox, SHAKE-256"]
    assert "Epsilon and delta limit it together" in meant["Privacy loss"]


def test_proofs_are_named_as_their_pages_are() -> None:
    for page, title in PROOFS.items():
        assert (ROOT / page).read_text(encoding="utf-8").splitlines()[0] == f"# {title}"


def test_every_method_s_proof_has_a_name() -> None:
    methods = (ROOT / "src" / "dptune" / "methods").rglob("*.py")
    named = {page for path in methods for page in re.findall(r'"(docs/theorems/\w+\.md)"', path.read_text("utf-8"))}
    assert len(named) > 4
    assert named <= set(PROOFS)


# Forms.


def test_all_forms_say_the_same() -> None:
    statement = state(_facts())
    page, text = _seen(statement_html(statement)), statement_markdown(statement)
    plain = re.sub(r"\\([\\`*<\[|_&])", r"\1", text)
    for piece in _texts(statement):
        assert piece in page
        assert piece in plain
    assert statement_from_json(json.loads(json.dumps(statement.describe()))) == statement


@pytest.mark.parametrize("field", ["title", "answers", "glossary"])
def test_a_stored_statement_with_something_missing_is_refused(field: str) -> None:
    values = state(_facts()).describe()
    del values[field]
    with pytest.raises(InvalidInput):
        statement_from_json(values)


def test_names_cannot_become_markup() -> None:
    hostile = "<script>alert(1)</script> | *x* `y` [z](javascript:0) & &lt; _w_"
    statement = state(_facts(dataset=hostile, unit="<b>", params={"<i>`": "</pre><script>"}))
    page, text = statement_html(statement), statement_markdown(statement)
    assert "<script" not in page
    assert "<b>" not in page
    assert hostile in _seen(page)
    rows = [line for line in text.splitlines() if line.startswith("| Data set")]
    assert len(rows) == 1
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 3
    assert not re.search(r"(?<!\\)<script", text.replace(json.dumps(statement.answers[6].code), "").split("```")[0])


def test_the_page_asks_for_nothing() -> None:
    page = statement_html(state(_facts()))
    assert "http" not in page.replace("http-equiv", "")
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "src=" not in page


# In releases.


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def releases(home: Path) -> dict[str, Release]:
    book = Ledger.create(home / "h.ledger")
    book.add("icu", 10.0, 1e-5, "patient")
    book.add("grouped", 30.0, 1e-5, "patient", ADDED_OR_REMOVED)
    plan = toy_plan(count=3)
    options: dict[str, Any] = {"ledger": book, "executor": ONE}
    return {
        "first": run(plan, ToyTrainer(), DATA, dataset="icu", out=home / "first", **options),
        "second": run(toy_plan(count=2), ToyTrainer(), DATA, dataset="icu", out=home / "second", **options),
        "no model": run(toy_plan(count=0), ToyTrainer(), DATA, dataset="grouped", out=home / "none", **options),
        "rehearsal": run(plan, ToyTrainer(), DATA, seed=1, data_is="synthetic", out=home / "seeded", executor=ONE),
    }


def _stored(release: Release) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((release.path / "release.json").read_text(encoding="utf-8"))
    return values


def test_every_release_follows_the_published_schema(releases: dict[str, Release]) -> None:
    schema = release_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for release in releases.values():
        stored = _stored(release)
        jsonschema.validate(stored, schema)
        assert stored.keys() <= schema["properties"].keys()  # a new key is a line in the schema


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", "small"), ("delta", 2.0), ("guarantee", False), ("ledger", None), ("schema", {"version": 2})],
)
def test_the_schema_refuses_what_is_no_release(releases: dict[str, Release], name: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**_stored(releases["first"]), name: value}, release_schema())


def test_a_release_holds_one_statement_in_three_forms(releases: dict[str, Release]) -> None:
    for release in releases.values():
        statement = statement_from_json(_stored(release)["statement"])
        assert (release.path / "statement.md").read_text(encoding="utf-8") == statement_markdown(statement)
        assert (release.path / "statement.html").read_text(encoding="utf-8") == statement_html(statement)
        assert sorted(path.name for path in release.path.iterdir()) == sorted(release.details["files"])


def test_the_readings_are_those_of_the_charged_cost(releases: dict[str, Release]) -> None:
    cost, stored = toy_plan(count=3).cost, _stored(releases["first"])["readings"]
    assert stored["attack"] == {"false_positive_rate": 0.01, "power": cost.power(0.01)}
    assert stored["advantage"] == cost.advantage()
    assert stored["mu"] == {"mu": cost.mu().mu, "slack": 1e-10}


def test_what_was_spent_is_what_the_ledger_says(home: Path, releases: dict[str, Release]) -> None:
    charges = Ledger(home / "h.ledger").charges()
    first, second = (one for one in charges if one.dataset == "icu")
    assert _stored(releases["first"])["dataset_spent"] == first.total
    assert _stored(releases["second"])["dataset_spent"] == second.total
    assert second.total is not None
    assert f"come to {at_most(second.total)}" in releases["second"].statement


def test_an_entry_for_registries(releases: dict[str, Release]) -> None:
    release = releases["first"]
    entry = registry_entry(_stored(release))
    assert {"system", "unit", "epsilon", "delta", "relation", "method"} <= entry.keys()
    assert (entry["system"], entry["unit"], entry["epsilon"]) == ("icu", "patient", release.epsilon)
    assert entry["relation"] == "add or remove one patient"
    with pytest.raises(InvalidInput, match="no guarantee"):
        registry_entry(_stored(releases["rehearsal"]))


def test_a_guarantee_lasts_as_long_as_its_noise_is_secret() -> None:
    """Philox is not made for secrets, so nothing may say that faster computers never matter."""
    said = {}
    for generator in ("philox-4x32-10, compiled, labelled", "shake-256, numpy, labelled", None, "somebody's own"):
        statement = state(_facts(generator=generator))
        (answer,) = [one for one in statement.answers if one.key == "how long"]
        (row,) = [one for one in statement.figures if one.name == "Randomness"]
        said[generator] = " ".join(answer.text), row.text
        assert "become faster" not in said[generator][0]
        assert "while nobody can compute the noise" in said[generator][0]
    fast, secure, own, other = said.values()
    assert own == other
    assert "made for speed and not for secrets" in fast[0]
    assert "ask for a run in secure mode" in fast[0]
    assert "SHAKE-256, which is made for secrets" in secure[0]
    assert "draws of records by Philox" in secure[1]  # also in secure mode
    assert "which dptune did not look at" in own[0]
    assert "whatever their trainer uses" in own[1]


class _Secure(ToyTrainer):
    noise_generator = "shake-256, numpy, labelled"


def test_a_run_states_the_generator_of_its_trainer(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "h.ledger")
    book.add("icu", epsilon=10.0, delta=1e-5, unit="patient")
    made = run(toy_plan(count=2), _Secure(), DATA, dataset="icu", ledger=book, out=tmp_path / "run", executor=ONE)
    assert "SHAKE-256 (secure mode)" in made.details["randomness"]
    assert "SHAKE-256, which is made for secrets" in (made.path / "statement.md").read_text(encoding="utf-8")
