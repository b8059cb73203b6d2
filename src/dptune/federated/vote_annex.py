"""The statement of a federated vote as a whole: page one, the annex with its figures, every assumption, the glossary.

Everything here is public: it follows from the :class:`~dptune.federated.statement.VoteStatement` and the winner.
"""

from __future__ import annotations

import json

from dptune._version import __version__
from dptune.accounting.attackers import attackers
from dptune.accounting.neighbours import neighbours_from_text
from dptune.federated.statement import VoteStatement
from dptune.federated.vote_page import vote_answers
from dptune.federated.vote_plan import Candidate
from dptune.sealed.amounts import at_least, at_most, whole
from dptune.sealed.annex import attacker_rows, named_proofs
from dptune.sealed.content import Row, Statement
from dptune.sealed.statement import WATERMARK
from dptune.sealed.words import words

__all__ = ["state_vote"]

_PROOFS = ("docs/theorems/voting.md", "docs/theorems/readings.md", "docs/theorems/relations.md")
_SHARED_WORDS = (
    "Advantage",
    "Budget",
    "Configuration",
    "Delta",
    "Differential privacy",
    "Epsilon",
    "False positive rate",
    "Gaussian reading",
    "Neighbouring data sets",
    "Power",
    "Unit of privacy",
)
_OWN_WORDS = {
    "Ballot": "What one client sends: a mark for each of its best configurations, with noise, behind masks.",
    "Certificate": "A proof that the account is not exaggerated without measure: some ballots really cost this much.",
    "Candidate": "One of the configurations that are voted on.",
    "Charge": "What a client writes to its own ledger before its ballot leaves. It is not paid back.",
    "Client": "One member of the federation, with all its data: a hospital, a branch, a telephone.",
    "Collude": "A client colludes with the server if it tells it what it knows, its own noise and masks for example.",
    "Digest": "A short number that stands for a text: another text has another one.",
    "Discrete Gaussian": "Noise in whole numbers whose frequencies follow the bell curve.",
    "Mask": "A random number that two clients agree on: one adds it to its ballot and the other subtracts it, so that "
    "it hides both ballots and vanishes from their sum.",
    "Split view": "A server that tells different clients different things about who fell silent. Safe: it cannot "
    "open a ballot in that way.",
    "X25519, HKDF-SHA256, ChaCha20-Poly1305 and Ed25519": "Published and widely used recipes: to agree on a secret, to "
    "derive keys from it, to encrypt, and to sign.",
    "Ledger": "The file on a client's own disk in which it writes every vote before it takes part.",
    "Plan": "What a vote will do and cost. Every client checks it before it looks at its data.",
    "Roster": "The list of the public keys of all clients. With one, nobody can pretend to be a client.",
    "Secure sum": "A way to add up ballots so that the server sees their sum and no single one: masks cancel in it.",
    "Server": "The computer that asks the clients and adds up what they send.",
}


def state_vote(vote: VoteStatement, params: Candidate) -> Statement:
    """The statement of a vote.

    Args:
        vote: all that is public about it.
        params: the configuration that won.

    Returns:
        What is said; a simulated vote says first that it protects nobody.

    Example:
        >>> from dptune.federated import federate
        >>> found = federate([[0.0, 1.0]] * 20, [{"lr": 0.1}, {"lr": 1.0}], votes=1, epsilon=8.0)
        >>> state_vote(found.statement, found.params).answers[1].question
        'Who is protected?'
    """
    replaced = neighbours_from_text(vote.neighbours).change == "replaced"
    explained = words("client", replaced=replaced) | _OWN_WORDS
    return Statement(
        title="Privacy statement: a federated vote",
        warnings=_warnings(vote),
        notes=(
            "Page one answers the questions of whoever must approve this publication, in plain words. The technical "
            "annex has the figures for specialists. The glossary at the end explains every special word.",
        ),
        answers=vote_answers(vote, params),
        figures=_figures(vote),
        released=(
            f"the configuration: {json.dumps(dict(params), sort_keys=True)}",
            "this statement (statement.md, statement.html, vote.json)",
        ),
        rests_on=_rests_on(vote),
        proofs=named_proofs(_PROOFS),
        glossary=tuple(Row(name, explained[name]) for name in sorted((*_SHARED_WORDS, *_OWN_WORDS))),
    )


def _warnings(vote: VoteStatement) -> tuple[str, ...]:
    if vote.simulated:
        return (
            f"{WATERMARK}. This vote was simulated: all clients ran in one place, which saw every ballot; nothing "
            "below protects anybody.",
        )
    if vote.mode == "open":
        return (
            "OPEN MODE: nobody signed the keys of the clients. The figures hold if the server relayed them faithfully "
            "and invented no client.",
        )
    return ()


def _figures(vote: VoteStatement) -> tuple[Row, ...]:
    plan = vote.plan
    cost = plan.cost()
    relation = neighbours_from_text(vote.neighbours)
    only = "with real clients: " if vote.simulated else ""  # no figure may read as if it held here
    guarantee = (
        "none. A vote of real clients by the same plan would state the figures below"
        if vote.simulated
        else f"what the server sees of the vote is ({at_most(vote.stated_epsilon)}, {whole(vote.delta)})-"
        "differentially private"
    )
    return (
        Row("Guarantee", guarantee),
        Row("Unit of privacy", "one client, with all its data"),
        Row("Neighbouring data sets", f"differ by {relation.phrase(verb='gerund')}"),
        Row(
            "Epsilon, delta", f"{only}{at_most(vote.stated_epsilon)}, {whole(vote.delta)}: what every client is charged"
        ),
        Row("Epsilon of the plan", f"{only}{at_most(plan.spent())} with the fewest clients allowed"),
        Row("Epsilon of what happened", f"{only}{at_most(vote.epsilon)} with the {vote.contributed} that contributed"),
        Row(
            "Lower certificate",
            f"{only}{at_least(cost.epsilon_lower(vote.delta))} with the fewest clients allowed (no account could come "
            "to less: some ballots really cost that much)",
        ),
        *attacker_rows(attackers(cost), only),
        Row("Method", "vote (DP-Hype)"),
        Row(
            "Clients",
            f"{vote.clients} planned; a share of {whole(vote.dropout)} may fall silent, {vote.colluding} may collude",
        ),
        Row("Candidates, votes", f"{vote.candidates}, exactly {vote.votes} for each client"),
        Row(
            "Noise of a client",
            f"discrete Gaussian, sigma {vote.sigma:.4f} on votes times {vote.scale}, drawn exactly",
        ),
        Row("Keys", "signed, with a roster" if vote.mode == "roster" else "OPEN: relayed by the server, not signed"),
        Row(
            "Graph of masks",
            "complete: every two clients share one"
            if vote.complete_graph
            else "sparse: each shares masks with some others",
        ),
        Row("Split view", "safe" if vote.split_view_safe else "NOT safe: see docs/federated.md"),
        Row("Plan", f"digest {plan.subject.hex()}; list of candidates {vote.digest}"),
        Row("Session", vote.session),
        Row("Program", f"dptune {__version__}"),
    )


def _rests_on(vote: VoteStatement) -> tuple[str, ...]:
    keys = (
        "The server relayed the clients' keys faithfully and invented no client."
        if vote.mode == "open"
        else "The roster lists real and distinct clients, and reached them by another way than the server."
    )
    split = () if vote.split_view_safe else ("The server tells all clients the same about who is still there.",)
    return (
        "The server follows the protocol: it adds what it receives and lies to nobody about who fell silent.",
        f"At most {vote.colluding} of the clients work together with the server.",
        keys,
        *split,
        "Who falls silent does not depend on who shares a mask with whom.",
        "X25519, HKDF-SHA256, ChaCha20-Poly1305 and Ed25519 are not broken.",
        "Each client's computer keeps its secrets, and its ledger is not replaced by an older copy.",
        "Nothing else leaves a client: its own evaluation sends and logs nothing to others.",
    )
