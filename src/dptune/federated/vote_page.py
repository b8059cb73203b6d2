"""Page one of the statement of a federated vote: the same thirteen questions as for a run, about one client.

Made from a :class:`~dptune.federated.statement.VoteStatement`, which is public, and from the configuration that won.
Figures on page one are those of the budget: they hold with the fewest clients that the plan allows.
"""

from __future__ import annotations

import json
from dataclasses import replace

from dptune.accounting.attackers import attackers
from dptune.federated.statement import VoteStatement
from dptune.federated.vote_plan import Candidate
from dptune.sealed.amounts import at_most, whole
from dptune.sealed.content import Answer
from dptune.sealed.page_one import attack_sentences

__all__ = ["vote_answers"]


def vote_answers(vote: VoteStatement, params: Candidate) -> tuple[Answer, ...]:
    """The questions of page one with their answers.

    Args:
        vote: all that is public about it.
        params: the configuration that won.

    Returns:
        Thirteen of them; those of a simulated vote say that nobody is protected.
    """
    asked = (
        _what(vote),
        _who(),
        _against(vote),
        _strength(vote),
        _how_long(),
        _again(vote),
        _published(params),
        _promises(vote),
        _forged(),
        _verify(),
        _uncovered(),
        _deleted(),
        _declared(vote),
    )
    return tuple(_simulated(vote, one) for one in asked) if vote.simulated else asked


def _what(vote: VoteStatement) -> Answer:
    return Answer(
        "what",
        "What is this?",
        (
            f"{vote.clients} clients were asked to choose one of {vote.candidates} configurations together; "
            f"{vote.contributed} of them are in the result. Each tried every configuration on its own data, voted for "
            f"its {'best one' if vote.votes == 1 else f'{vote.votes} best'} and added noise. Only the sum of all votes "
            "became visible. This page says what the vote can at most reveal about one client. It does not cover a "
            "training that follows.",
            f"The vote is known as {vote.session}. Each client's ledger has it under that name, with its time.",
        ),
    )


def _who() -> Answer:
    return Answer(
        "who",
        "Who is protected?",
        (
            "Every client that took part, as a whole: all its data together. The vote hides the difference that "
            "replacing all data of one client by any other data would make. So it also hides each person whose data "
            "are with one client alone.",
            "Somebody whose data are with several clients is protected less. What counts as one client was decided by "
            "whoever admitted the clients. No program can check that.",
        ),
    )


def _against(vote: VoteStatement) -> Answer:
    keys = (
        "Keys were signed by the members of a roster, so the server could not pretend to be a client."
        if vote.mode == "roster"
        else "Nobody signed the keys: a server that relayed its own, or invented clients, could read single ballots, "
        "which carry the noise of one client alone."
    )
    return Answer(
        "against whom",
        "Against whom?",
        (
            f"Against everybody who sees the outcome, and against a server that is curious but follows the protocol, "
            f"also with up to {vote.colluding} of the clients on its side. {keys}",
            "Not against a server that lies to clients about who fell silent, not against more clients on its side, "
            "and not against people who may read a client's own computer.",
        ),
    )


def _strength(vote: VoteStatement) -> Answer:
    least = vote.plan.sum_plan(bytes(16)).shape.minimum
    more = f" With the {vote.contributed} that are in the result it is epsilon {at_most(vote.epsilon)}."
    measure = (
        f"In the technical measure: epsilon {at_most(vote.stated_epsilon)} at delta {whole(vote.delta)}. The smaller "
        f"both are, the stronger the protection. All of this holds with the fewest clients that were allowed, {least}."
        f"{more if vote.contributed > least else ' No more are in the result.'}"
    )
    return Answer(
        "how strongly",
        "How strongly?",
        (*attack_sentences("client", attackers(vote.plan.cost()), replaced=True), measure),
    )


def _how_long() -> Answer:
    return Answer(
        "how long",
        "For how long?",
        (
            "Against those who see the outcome: without end, while nobody can compute the noise of the clients. Each "
            "drew its own from random numbers that are made for secrets; no way to compute them is known.",
            "Against a server that kept every message: until the encryption of the secure sum is broken. Then it could "
            "read single ballots. Each further vote adds to the total: see the next answer.",
        ),
    )


def _again(vote: VoteStatement) -> Answer:
    return Answer(
        "again",
        "What if somebody runs again?",
        (
            f"Every client keeps a ledger of its own and charges epsilon {whole(vote.stated_epsilon)} at delta "
            f"{whole(vote.delta)} to it before its ballot leaves, also if the vote then fails. It adds up all votes "
            "and refuses one that exceeds its own limit, whatever the server asks for.",
            "How much of that is spent stands in each client's ledger, not on this page. Not counted: votes under "
            "another ledger, and whatever else is published from the same data, such as the training that follows.",
        ),
    )


def _published(params: Candidate) -> Answer:
    return Answer(
        "published",
        "What was published?",
        (),
        (
            "The configuration that won, which stands below, and this statement.",
            "The server also saw the sum of all votes with its noise, and which clients took part and when.",
            "NOT published, and seen by no other than the client itself: its ballot, its losses and scores, its "
            "records and models.",
        ),
        json.dumps(dict(params), sort_keys=True),
    )


def _promises(vote: VoteStatement) -> Answer:
    members = (
        "that every key on the roster belongs to one real client, and that clients got the roster by another way than "
        "the server"
        if vote.mode == "roster"
        else "that every client is real, and that none was invented"
    )
    return Answer(
        "promises",
        "Who promised what?",
        (
            "Nothing here is certain if one of these promises is not kept. This paper names roles, not people: ask who "
            "they are, and who the clients are. The annex lists every promise in full.",
        ),
        (
            f"Whoever admitted the clients: what one client is, {members}.",
            "Whoever runs the server: that it follows the protocol, and tells all clients the same about who fell "
            "silent.",
            f"Whoever runs a client: its own limits and ledger, and that its computer keeps its secrets. At most "
            f"{vote.colluding} of the clients may break this.",
            "The program dptune: everything else. Every client checked the plan and its noise before it took part.",
        ),
    )


def _forged() -> Answer:
    return Answer(
        "forged",
        "Can it be forged?",
        (
            "This paper is written by the server and signed by nobody. Its plan cannot be changed without notice: "
            "every client that took part wrote a digest of it, and the cost, to its own ledger before its ballot left, "
            "and all figures follow from the plan.",
            "What would not show: another winner, or another number of clients in the result. Neither touches the "
            "budget.",
        ),
    )


def _verify() -> Answer:
    return Answer(
        "verify",
        "How do I verify this?",
        (
            "Ask one of the clients for its ledger, or to run the command below beside it, and keep the published "
            "files together. It computes every figure anew, compares the plan with what that client charged, and says "
            "when that was.",
        ),
        code="dptune ledger verify VOTES.LEDGER --statement vote.json",
    )


def _uncovered() -> Answer:
    return Answer(
        "not covered",
        "What is not covered?",
        (),
        (
            "The training that follows with the configuration that won, and any model that comes of it.",
            "What is true of most clients: the outcome is about that. That a client took part, and when.",
            "Whether the winner is a good one. A client that lies can move it: ballots are hidden from every check.",
            "Attacks on the computers themselves, and known gaps, which the command dptune docs federated lists.",
        ),
    )


def _deleted() -> Answer:
    return Answer(
        "deleted",
        "What if somebody asks to be deleted?",
        (
            "The outcome would be nearly the same if all data of one client were others, or none, within the figures "
            "above. So nothing in it has to be taken back to protect one client, or one person of a client. Delete the "
            "records where they are kept: later votes do not see them. What was charged stays charged. Whether the law "
            "asks for more is not for this paper to say.",
        ),
    )


def _declared(vote: VoteStatement) -> Answer:
    least = vote.plan.sum_plan(bytes(16)).shape.minimum
    return Answer(
        "declared number",
        "How wrong may the declared number of clients be?",
        (
            f"If fewer answer, nothing changes: the noise was chosen for as few as {least} of the {vote.clients}, and "
            f"with fewer the vote is given up before anything becomes visible. If clients were invented that add no "
            f"noise, each of them counts as one on the server's side: with more than {vote.colluding} in all the "
            "figures need not hold.",
        ),
    )


def _simulated(vote: VoteStatement, asked: Answer) -> Answer:
    """The same question, answered for a vote that protects nobody."""
    if asked.key == "published":
        return replace(asked, points=(asked.points[0], "Whoever ran the simulation saw everything else."))
    texts = {
        "what": f"A simulation of a vote: {vote.clients} made-up clients choose one of {vote.candidates} "
        f"configurations together, all in one place; {vote.contributed} of them are in the result. It shows "
        "what a vote of real clients would do and cost.",
        "who": "Nobody. This is a simulation in one place.",
        "against whom": "Against nobody. Whoever ran the simulation saw every ballot.",
        "how strongly": "Not at all. A vote of real clients by the same plan would state epsilon "
        f"{at_most(vote.stated_epsilon)} at delta {whole(vote.delta)}.",
        "how long": "Not for any time: there is no protection that could last.",
        "again": "Nothing is lost by it: a simulation takes from no client's budget.",
        "promises": "Nobody promised anything. A vote of real clients has a statement of its own.",
        "forged": "Yes. No ledger knows of it, and nobody signed it.",
        "verify": "Not at all: a simulation is charged to no ledger.",
        "not covered": "Everything. No figure on this page or in its annex protects anybody.",
        "deleted": "If real data were used, this outcome has to be looked at again: nothing hides them.",
        "declared number": "It does not matter here: there is no protection that it could change.",
    }
    return Answer(asked.key, asked.question, (texts[asked.key],))
