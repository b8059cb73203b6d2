"""Page one of a statement: the officer's questions, each answered in plain words.

For somebody who has never heard of epsilon. Every sentence follows from the public facts of the run; who is protected
is called by one word throughout, the custodian's. ``docs/statement.md`` explains the questions.
"""

from __future__ import annotations

import json
from typing import Any

from dptune.accounting.attackers import Attackers, of_a_hundred
from dptune.sealed.amounts import at_most, whole
from dptune.sealed.content import Answer
from dptune.sealed.lasting import how_long
from dptune.sealed.rehearsal_answers import rehearsal_answers
from dptune.sealed.statement import RAISED, Facts

__all__ = ["answers", "attack_sentences"]

_LARGE_DELTA = 1e-3  # beyond what any usual number of records allows
_NOT_RELEASED = "NOT published: scores, the number of trainings, failures, timings, other models."
_NOTHING_ELSE = "NOT published: scores, the number of trainings, failures, timings, any model."


def answers(facts: Facts) -> tuple[Answer, ...]:
    """The questions of page one with their answers.

    Args:
        facts: all that is public about the run.

    Returns:
        Thirteen of them; those of a rehearsal say that nobody is protected.
    """
    if facts.receipt is None:
        return rehearsal_answers(facts, _published(facts))
    return (
        _computed(facts),
        _who(facts),
        _against(facts),
        _strength(facts),
        how_long(facts.word, facts.generator),
        _again(facts),
        _published(facts),
        _promises(facts),
        _forged(),
        _verify(),
        _uncovered(facts),
        _deleted(facts),
        _declared(facts),
    )


def _computed(facts: Facts) -> Answer:
    data = f"by the program dptune on the data set “{facts.dataset}” ({facts.data_is} data)"
    if facts.model is None:
        done = (
            f"A tuning {data}, which ended without a model. One configuration was published, without a model that was "
            "trained with it."
        )
    else:
        done = (
            f"A model that was tuned and trained {data}. One configuration was chosen, by the method that the annex "
            "names, and published with the model."
        )
    charged = "" if facts.receipt is None else f" It was charged to the data set's budget on {facts.receipt.time[:10]}."
    return Answer(
        "what",
        "What is this?",
        (
            f"{done} This page says what the publication can at most reveal about one {facts.word}. It covers "
            f"everything together: the tuning, the choice and the training.{charged}",
        ),
    )


def _who(facts: Facts) -> Answer:
    word = facts.word
    unit = "" if facts.units is None else f" Here that is {facts.units.phrase}."
    text = [
        f"Every {word} in the data set “{facts.dataset}”, each one alone.{unit} The publication hides the "
        f"difference that {facts.neighbours.phrase(facts.unit, 'gerund')} would make.",
        f"What one {word} is was declared by whoever opened the data set in the ledger. No program can check that.",
    ]
    assumed = facts.neighbours.unit_assumption(facts.unit) if facts.units is None else facts.units.assumption
    if assumed is not None:
        text.append(assumed)
    elif facts.units is None and word == "record":
        text.append("A record is one row. A person with several rows is not protected as a whole, only row by row.")
    return Answer("who", "Who is protected?", tuple(text))


def _against(facts: Facts) -> Answer:
    return Answer(
        "against whom",
        "Against whom?",
        (
            f"Against anybody who sees the publication: also somebody who knows everything about every other "
            f"{facts.word}, has the fastest computers of today, and learns more later.",
            "Not against people who may read the records, the closed folder of the run (the vault), or the memory of "
            "the computer that it ran on.",
        ),
    )


def _strength(facts: Facts) -> Answer:
    delta = whole(facts.plan.budget.delta)
    measure = (
        f"In the technical measure: epsilon {at_most(facts.epsilon)} at delta {delta}. The smaller "
        "both are, the stronger the protection."
    )
    if facts.plan.budget.delta >= _LARGE_DELTA:
        measure += " This delta is large: up to this probability the protection may fail altogether."
    found = facts.attackers
    replaced = facts.neighbours.change == "replaced"
    text = (measure,) if found is None else (*attack_sentences(facts.word, found, replaced=replaced), measure)
    return Answer("how strongly", "How strongly?", text)


def attack_sentences(word: str, found: Attackers, *, replaced: bool) -> tuple[str, str]:
    """What an attacker reaches, in counts out of a hundred.

    Args:
        word: what one that is protected is called.
        found: the readings of the cost.
        replaced: whether two versions of one are compared, instead of one that is there or not.

    Returns:
        Two paragraphs of page one.

    Example:
        >>> from dptune.accounting import Gaussian
        >>> from dptune.accounting.attackers import attackers
        >>> attack_sentences("patient", attackers(Gaussian(2.0)), replaced=False)[1]
        'If it begins from an even guess (right 50 times in 100), it is right at most 59.9 times in 100.'
    """
    caught, alarm = of_a_hundred(found.power), f"{100 * found.false_positive_rate:g} in 100"
    if replaced:
        first = (
            f"Think of an attacker who knows everything else and must say which of two versions of one {word} was in "
            f"the data. While it wrongly names the second in at most {alarm} cases, it rightly names it in at most "
            f"{caught} of 100. Guessing gets {100 * found.false_positive_rate:g}."
        )
    else:
        first = (
            f"Think of an attacker who knows everything else and asks of one {word} after another: in the data, or "
            f"not? While it wrongly accuses at most {alarm} who are not in the data, it finds at most {caught} of "
            f"every 100 who are. Guessing finds {100 * found.false_positive_rate:g}; without protection it could be "
            "100."
        )
    even = of_a_hundred(found.even_guess)
    return (first, f"If it begins from an even guess (right 50 times in 100), it is right at most {even} times in 100.")


def _again(facts: Facts) -> Answer:
    receipt = facts.receipt
    assert receipt is not None  # a rehearsal does not come here
    assert facts.budget is not None
    epsilon, delta = facts.budget
    spent = "" if facts.spent is None else f" All charges up to this one together come to {at_most(facts.spent)}."
    text = [
        f"Every run on this data set is charged to the same ledger before it begins. The budget for all of them "
        f"together is epsilon {whole(epsilon)} at delta {whole(delta)}.{spent} A run that does not fit is refused."
    ]
    if receipt.rule == "odometer":
        text.append(RAISED)
    text.append(
        f"Not counted: runs that were charged to another ledger or to none, and other data sets with the same "
        f"{facts.word}."
    )
    return Answer("again", "What if somebody runs again?", tuple(text))


def _published(facts: Facts) -> Answer:
    points = ["The configuration, which stands below."]
    if facts.model is not None:
        points.append(f"The model that was trained with it: {facts.model}.")
    points.append("The plan (plan.json), made before any record was read; this statement; release.json.")
    points.append(_NOT_RELEASED if facts.model is not None else _NOTHING_ELSE)
    if facts.receipt is None:
        points.append("Whoever ran the rehearsal saw all of that too.")
    params = json.dumps(facts.params, sort_keys=True)
    return Answer("published", "What was published?", (), tuple(points), params)


def _promises(facts: Facts) -> Answer:
    word = facts.word
    points = (
        f"Whoever opened the data set in the ledger: what one {word} is, and the budget.",
        "Whoever started the run: that each training costs what was declared for it, whatever the records are; that "
        "declared figures (number of records, classes, ranges) were not read off the records.",
        "Whoever keeps the computer: that nothing but the published files leaves; above all not the vault.",
        "The program dptune: everything else; its proofs are named in the annex.",
    )
    text = (
        "Nothing here is certain if one of these promises is not kept. This paper names roles, not people: ask who "
        "they are. The annex lists every promise in full.",
    )
    return Answer("promises", "Who promised what?", text, points)


def _forged() -> Answer:
    return Answer(
        "forged",
        "Can it be forged?",
        (
            "The charge was written to the ledger before the training began, with a public key. The run signed this "
            "release once, and its secret key was destroyed. A changed word, figure or file shows when it is verified.",
            "What would not show: a ledger that its owner wrote anew from the beginning. Keep this statement; it names "
            "the ledger's state at the time.",
        ),
    )


def _verify() -> Answer:
    return Answer(
        "verify",
        "How do I verify this?",
        (
            "Ask for the ledger or a copy, keep the published files together, and run the command below. It lists what "
            "agrees, or says what does not.",
        ),
        code="dptune ledger verify LEDGER --statement release.json",
    )


def _uncovered(facts: Facts) -> Answer:
    word = facts.word
    what = "configuration" if facts.model is None else "model"
    points = [
        f"What is true of many. If the {what} shows that smoking makes people ill, that says something about every "
        "smoker, in the data or not.",
        f"Several that belong together, such as a family: each {word} is protected alone, all of them together less.",
        "What is computed later: predictions for private rows, or a comparison with other publications.",
        f"Whether the {what} is right, fair or lawful.",
        "Attacks on the computer itself, and known gaps, which the command dptune docs sharp_edges lists.",
    ]
    if facts.release_at is None or facts.late:
        points.append("When this release appeared: no public time was fixed and kept.")
    return Answer("not covered", "What is not covered?", (), tuple(points))


def _deleted(facts: Facts) -> Answer:
    if facts.neighbours.change == "replaced":  # how many there are may be told exactly
        same = (
            f"The publication would be nearly the same if any one {facts.word} were another, within the figures above; "
            f"that there is one {facts.word} more or less is not covered. So"
        )
    else:
        same = f"The publication would be nearly the same without any one {facts.word}, within the figures above, so"
    return Answer(
        "deleted",
        "What if somebody asks to be deleted?",
        (
            f"{same} nothing in it has to be taken back to protect one. Delete the records where they are kept: later "
            "runs do not see them. The vault keeps scores and logs, but no models; delete it when it is no longer "
            "needed. What was spent of the budget stays spent. Whether the law asks for more is not for this paper to "
            "say.",
        ),
    )


def _counts_records(value: Any) -> bool:
    """Whether a cost, as plain values, was computed for a number of records."""
    if isinstance(value, list):
        return any(_counts_records(one) for one in value)
    return isinstance(value, dict) and ("records" in value or any(_counts_records(one) for one in value.values()))


def _declared(facts: Facts) -> Answer:
    question = "How wrong may the declared number of records be?"
    if _counts_records(facts.plan.cost.describe()):
        text = (
            "Not at all: the account of this run was computed for the declared number of records, which stands in the "
            "plan. If there are others, the figures on this page need not hold."
        )
        return Answer("declared number", question, (text,))
    return Answer(
        "declared number",
        question,
        (
            "As wrong as you like: the figures on this page stay the same. The declared number sets how often a record "
            "is drawn; the draws follow the declared number and not the true one. A wrong one makes the model worse, "
            "not the protection. A trainer of somebody's own must keep to this too; that is part of its promise.",
        ),
    )
