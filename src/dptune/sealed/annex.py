"""Page two of a statement: figures for specialists, every assumption, the proofs by name, and the glossary.

The glossary travels with the release: it explains each word that a statement uses and that not everybody knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from dptune._version import __version__
from dptune.accounting.attackers import Attackers
from dptune.documents import document
from dptune.errors import InvalidInput
from dptune.sealed.amounts import at_least, at_most, whole
from dptune.sealed.content import Row
from dptune.sealed.statement import Facts
from dptune.sealed.words import words

__all__ = ["PROOFS", "attacker_rows", "figures", "glossary", "named_proofs", "proofs", "released", "rests_on"]

PROOFS = {
    "docs/theorems/adaptive.md": "Adaptive sampling (DP-HyPO)",
    "docs/theorems/compose.md": "Composition",
    "docs/theorems/disjoint.md": "Tuning on a part, training on the rest",
    "docs/theorems/filter.md": "Budgets over time: the ledger's filter",
    "docs/theorems/line.md": "Candidates under a line",
    "docs/theorems/mixture.md": "Public mixtures",
    "docs/theorems/readings.md": "Readings of a cost: power, advantage, Bayes risk, mu",
    "docs/theorems/relations.md": "Neighbouring relations",
    "docs/theorems/select.md": "Random stopping: the tight bound",
    "docs/theorems/shards.md": "Low-sensitivity utilities over shards",
    "docs/theorems/subsample.md": "Poisson subsampling",
    "docs/theorems/voting.md": "Noisy votes (DP-Hype)",
}
"""The title of each page that a statement may name."""

_RULES = {
    "fixed": "exact composition (privacy loss distributions) of charges fixed before the first release",
    "renyi": "a Renyi filter, which also holds for charges chosen after seeing earlier releases",
    "odometer": "a Renyi odometer: the budget was raised after earlier releases (see below)",
    "none": "none: a rehearsal is not charged",
}
_REPLAYS = {
    "exact": "yes, checked in a rehearsal",
    "inexact": "NO: a rehearsal gave two different results from the same generator, so a trial that was cut off is "
    "trained again with fresh noise. The guarantee then also assumes that interruptions do not depend on the data.",
    "unknown": "not checked. If it does not, a trial that was cut off is trained again with fresh noise, and the "
    "guarantee also assumes that interruptions do not depend on the data.",
}


def figures(facts: Facts) -> tuple[Row, ...]:
    """The technical figures of a run.

    Args:
        facts: all that is public about it.

    Returns:
        One row for each.
    """
    plan, delta = facts.plan, facts.plan.budget.delta
    only = "in a sealed run: " if facts.receipt is None else ""  # no figure may read as if it held here
    noise = "varies" if plan.noise_multiplier is None else f"{plan.noise_multiplier:.4f}"
    rows = [
        Row("Guarantee", _guarantee(facts)),
        Row("Data set", facts.dataset),
        *_predicts(facts),
        *_encoder(facts),
        Row("Unit of privacy", f"one {facts.unit}" if facts.units is None else facts.units.phrase),
        Row("Neighbouring data sets", f"differ by {facts.neighbours.phrase(facts.unit, 'gerund')}"),
        Row("Epsilon, delta", f"{only}{at_most(facts.epsilon)}, {whole(delta)}"),
        Row(
            "Lower certificate",
            f"{only}{at_least(facts.epsilon_lower)} (no account of this plan could come to less: some training that "
            "fits its description really costs that much)",
        ),
        *attacker_rows(facts.attackers, only),
        Row("Method", plan.method),
        Row("Theorem", plan.theorem),
        Row("Noise multiplier of a training", noise),
        *_training(facts),
        Row("Randomness", facts.randomness),
        *_ledger_rows(facts),
        Row("Public time of release", _time_of_release(facts)),
        Row("Program", f"dptune {__version__}"),
    ]
    return tuple(rows)


def _predicts(facts: Facts) -> tuple[Row, ...]:
    """What the model says of a record."""
    target = facts.target
    if target is None:
        return ()
    name = "".join(one if one.isprintable() else " " for one in str(target["column"]))[:200]  # one line, as it reads
    if "range" in target:
        low, high = target["range"]
        return (Row("Predicts", f"the number {name}, within its declared range [{low:g}, {high:g}]"),)
    return (Row("Predicts", f"the class {name}, one of {len(target['classes'])} declared ones"),)


def _training(facts: Facts) -> tuple[Row, ...]:
    """How the trainer says that it trains: one line, as it reads."""
    if facts.training is None:
        return ()
    told = "".join(one if one.isprintable() else " " for one in facts.training)[:500]
    return (Row("Training, where published settings say nothing else", told),)


def _encoder(facts: Facts) -> tuple[Row, ...]:
    """The public encoder that made features of records, where there was one."""
    if facts.public_encoder is None:
        return ()
    name, sha256 = facts.public_encoder["name"], facts.public_encoder["sha256"]
    return (Row("Public encoder", f"{name}, declared public; sha256 of its weights {sha256}"),)


def _guarantee(facts: Facts) -> str:
    delta = facts.plan.budget.delta
    if facts.receipt is None:
        return (
            f"none. A sealed run of the same plan would state epsilon {at_most(facts.epsilon)} at delta {whole(delta)}."
        )
    training = "every training that there was" if facts.model is None else "the training of the released model"
    return (
        f"everything in this release together is ({at_most(facts.epsilon)}, {whole(delta)})-differentially private: "
        f"the tuning, the choice of the configuration and {training}"
    )


def attacker_rows(found: Attackers | None, only: str = "") -> tuple[Row, ...]:
    """What any attacker reaches, as rows of the annex; none where nothing is known.

    Args:
        found: the readings of the cost.
        only: said before each figure: where it would hold, if it does not hold here.

    Returns:
        Three rows.
    """
    if found is None:
        return ()
    rate = f"{found.false_positive_rate:g}"
    return (
        Row("Power of any attack", f"{only}at most {at_most(found.power)} at a false positive rate of {rate}"),
        Row("Advantage of any attack", f"{only}at most {at_most(found.advantage)}"),
        Row("Gaussian reading", f"{only}mu {at_most(found.mu)} up to a slack of {found.slack:g}"),
    )


def _ledger_rows(facts: Facts) -> tuple[Row, ...]:
    receipt = facts.receipt
    rows = [Row("Rule of admission", _RULES["none" if receipt is None else receipt.rule])]
    if facts.budget is not None:
        raised = ", raised after earlier releases" if receipt is not None and receipt.rule == "odometer" else ""
        rows.append(
            Row("Budget of the data set", f"epsilon {whole(facts.budget[0])}, delta {whole(facts.budget[1])}{raised}"),
        )
    if facts.spent is not None:
        rows.append(Row("Spent with this charge", f"epsilon {at_most(facts.spent)} by all charges together"))
    if receipt is not None:
        rows.append(Row("Ledger", f"entry {receipt.number}, head {receipt.head}"))
    return tuple(rows)


def _time_of_release(facts: Facts) -> str:
    """What may be said of the time: that a public one was kept, or that there is none that is covered."""
    if facts.release_at is None:
        if facts.receipt is None:
            return facts.released
        return (
            f"none was fixed: when this release appeared is not covered by the guarantee; its files carry "
            f"{facts.released}, the time of the charge"
        )
    if facts.late:
        return (
            f"LATE: {facts.release_at} was fixed, and this release appeared after it. When it appeared is not covered "
            f"by the guarantee; its files carry {facts.released}"
        )
    return f"{facts.release_at}, fixed before the run began, and kept"


def released(facts: Facts) -> tuple[str, ...]:
    """What was released, for specialists.

    Args:
        facts: all that is public about the run.

    Returns:
        One line for each thing.
    """
    return (
        f"the configuration: {json.dumps(facts.params, sort_keys=True)}",
        _model_line(facts),
        "the plan (plan.json), which was made before any record was read, and this statement",
    )


def _model_line(facts: Facts) -> str:
    if facts.model is None:
        return "no model (there was no training, or all failed)"
    if facts.model.endswith(".pickle"):
        return (
            f"the model trained with it: {facts.model}. This is a PICKLE, which the run was asked for by name: "
            "opening it runs code. Open it only if you trust whoever made this release"
        )
    return f"the model trained with it: {facts.model}, which is data: opening it runs no code"


def rests_on(facts: Facts) -> tuple[str, ...]:
    """Every assumption, in full.

    Args:
        facts: all that is public about the run.

    Returns:
        One sentence for each.
    """
    replay = f"The trainer draws its randomness from the generator it is given alone: {_REPLAYS[facts.replay]}"
    return (*facts.assumptions, replay)


def proofs(facts: Facts) -> tuple[Row, ...]:
    """The proofs that the figures rest on, by name, with their place in the documentation of this version.

    Args:
        facts: all that is public about the run.

    Returns:
        A name and a place for each.
    """
    pages = [facts.plan.theorem, "docs/theorems/readings.md", "docs/theorems/relations.md", "docs/theorems/filter.md"]
    return named_proofs(pages)


def named_proofs(pages: Iterable[str]) -> tuple[Row, ...]:
    """Proofs by name, each with its place in dptune and the digest of its text, which stay whatever becomes of a site.

    Args:
        pages: their places.

    Returns:
        A name and a place for each.

    Example:
        >>> named_proofs(["docs/theorems/voting.md"])[0].name
        'Noisy votes (DP-Hype)'
    """
    return tuple(Row(PROOFS.get(page, page), _address(page)) for page in pages)


def _address(page: str) -> str:
    """Where a proof is found for good. A page of somebody's own method is not in the package."""
    try:
        found = document(page)
        return (
            f"{page} of dptune {__version__}; the command dptune docs {found.name} prints it. The sha256 of this text "
            f"is {found.sha256}"
        )
    except (InvalidInput, OSError):  # nothing may hold back a paid release
        return f"{page}, which dptune {__version__} does not carry: ask whoever wrote the method"


def glossary(facts: Facts) -> tuple[Row, ...]:
    """Every word that a statement uses and that not everybody knows.

    Args:
        facts: all that is public about the run.

    Returns:
        The words in the order of the alphabet.
    """
    found = words(facts.word, replaced=facts.neighbours.change == "replaced")
    return tuple(Row(name, found[name]) for name in sorted(found))
