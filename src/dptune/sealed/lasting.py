"""What statements say of the noise: which recipe made it, and how long a guarantee that rests on it lasts.

A proof of differential privacy is about true chance and asks nothing of an attacker's computers. Numbers made out of a
secret by a recipe are as good only while nobody can compute them; ``docs/sharp_edges.md`` says so too.
"""

from __future__ import annotations

from dptune.sealed.content import Answer

__all__ = ["how_long", "randomness"]

_NOISE = {
    "shake-256": "noise of trainings by SHAKE-256 (secure mode), draws of records by Philox, 10 rounds, under at least "
    "128 secret bits",
    "philox": "noise of trainings and draws of records by Philox, 10 rounds, under at least 128 secret bits",
    "": "noise of trainings by whatever their trainer uses; it is given Philox, 10 rounds, under at least 128 secret "
    "bits, to draw from",
}
_MADE_BY = {
    "shake-256": "by the recipe SHAKE-256, which is made for secrets (secure mode): no way to compute it is known",
    "philox": "by the recipe Philox, which is made for speed and not for secrets: no way to compute it is known to us, "
    "none is ruled out. If that is not enough, ask for a run in secure mode",
    "": "by a recipe of the trainer's own, which dptune did not look at: ask whoever started the run",
}


def _recipe(generator: object) -> str:
    """The recipe behind a generator's name, of those that are known here; empty: the trainer's own."""
    return next((known for known in ("shake-256", "philox") if str(generator).startswith(known)), "")


def randomness(generator: object) -> str:
    """Where the noise and the choices of a sealed run come from.

    Args:
        generator: the name of what draws the noise of trainings, where their trainer says so.

    Returns:
        One line of the annex.

    Example:
        >>> "SHAKE-256 (secure mode)" in randomness("shake-256, compiled, labelled")
        True
    """
    return (
        "32 bytes from the operating system, expanded by keyed BLAKE2b (one independent stream for each purpose; "
        f"{_NOISE[_recipe(generator)]}). The bytes are destroyed at release."
    )


def how_long(word: str, generator: object) -> Answer:
    """For how long a sealed run's guarantee holds.

    Args:
        word: what one that is protected is called.
        generator: the name of what draws the noise of trainings, where their trainer says so.

    Returns:
        The question with its answer.

    Example:
        >>> how_long("patient", None).text[0][:55]
        'Without end, while nobody can compute the noise that hi'
    """
    return Answer(
        "how long",
        "For how long?",
        (
            f"Without end, while nobody can compute the noise that hides each {word}; also when more becomes known "
            "later. The noise was made out of a secret, which is destroyed at release, "
            f"{_MADE_BY[_recipe(generator)]}.",
        ),
    )
