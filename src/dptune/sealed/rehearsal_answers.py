"""Page one of a rehearsal's statement: the officer's questions, of which every answer is that nobody is protected.

The questions and their order are those of :mod:`dptune.sealed.page_one`, so that nobody takes the shorter page of a
rehearsal for an oversight.
"""

from __future__ import annotations

from dptune.sealed.amounts import at_most, whole
from dptune.sealed.content import Answer
from dptune.sealed.statement import Facts

__all__ = ["rehearsal_answers"]


def rehearsal_answers(facts: Facts, published: Answer) -> tuple[Answer, ...]:
    """The questions of page one, answered for a run that protects nobody.

    Args:
        facts: all that is public about the rehearsal.
        published: the answer to what was published, which is that of any run.

    Returns:
        All thirteen, in the order of page one.
    """
    delta = facts.plan.budget.delta
    return (
        _what(facts),
        Answer("who", "Who is protected?", (f"Nobody. This is a rehearsal on {facts.data_is} data.",)),
        Answer(
            "against whom",
            "Against whom?",
            ("Against nobody. Whoever repeats the rehearsal with its seed knows all noise, and can take it away.",),
        ),
        Answer(
            "how strongly",
            "How strongly?",
            (
                "Not at all: a fixed seed decides everything, and anybody can repeat it. A sealed run of the same plan "
                f"would state epsilon {at_most(facts.epsilon)} at delta {whole(delta)}.",
            ),
        ),
        Answer("how long", "For how long?", ("Not for any time: there is no protection that could last.",)),
        Answer(
            "again",
            "What if somebody runs again?",
            (
                "Nothing is lost by it: a rehearsal takes from no budget. A sealed run on private records is charged "
                "to a ledger before it begins, and has a statement of its own.",
            ),
        ),
        published,
        *_trust(facts),
        *_consequences(facts),
    )


def _what(facts: Facts) -> Answer:
    came = "No model came out" if facts.model is None else "A model was tuned and trained"
    text = (
        f"A rehearsal by the program dptune on the data set “{facts.dataset}” ({facts.data_is} data), to see what a "
        f"sealed run would do. {came}, and one configuration was chosen, by the method that the annex names."
    )
    return Answer("what", "What is this?", (text,))


def _trust(facts: Facts) -> tuple[Answer, ...]:
    return (
        Answer(
            "promises",
            "Who promised what?",
            (
                f"Whoever started the rehearsal said that the data are {facts.data_is}. No program can check that. "
                "Nobody promised anything else.",
            ),
        ),
        Answer("forged", "Can it be forged?", ("Yes. No ledger knows of it, and nobody signed it.",)),
        Answer(
            "verify",
            "How do I verify this?",
            (
                "Not at all: a rehearsal is charged to no ledger. Whoever has the data, the plan and the seed can run "
                "it again and compare.",
            ),
        ),
    )


def _consequences(facts: Facts) -> tuple[Answer, ...]:
    return (
        Answer(
            "not covered",
            "What is not covered?",
            ("Everything. No figure on this page or in its annex protects anybody.",),
        ),
        Answer(
            "deleted",
            "What if somebody asks to be deleted?",
            (
                f"Then this publication has to be looked at again: it may tell everything about one {facts.word}. Take "
                "the model back, or train it anew without these records.",
            ),
        ),
        Answer(
            "declared number",
            "How wrong may the declared number of records be?",
            ("It does not matter here: there is no protection that it could change.",),
        ),
    )
