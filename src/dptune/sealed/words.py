"""The glossary that travels with every statement: what its special words mean, in plain ones.

A word that page one or the annex uses, and that not everybody knows, belongs here; pages link it where it first stands.
"""

from __future__ import annotations

__all__ = ["words"]


def words(unit: str, *, replaced: bool = False) -> dict[str, str]:
    """What the words of statements mean.

    Args:
        unit: what one that is protected is called.
        replaced: whether two versions of one are compared, instead of one that is there or not.

    Returns:
        An explanation for each word.

    Example:
        >>> words("patient")["Unit of privacy"]
        'What is protected as a whole: here one patient.'
    """
    found = _words(unit)
    return found | _versions(unit) if replaced else found


def _versions(unit: str) -> dict[str, str]:
    """What the readings of a cost mean where nobody is added or removed."""
    return {
        "Advantage": f"The largest difference between how often an attack names the second of two versions of one "
        f"{unit} rightly and how often wrongly. 0: it learns nothing; 1: everything.",
        "False positive rate": f"How often an attack names the second of two versions of one {unit} where it was the "
        "first.",
        "Power": f"How often an attack names the second of two versions of one {unit} rightly.",
    }


def _words(unit: str) -> dict[str, str]:
    return {
        "Advantage": "The largest difference between how often an attack is right about those who are in the data and "
        "how often it is wrong about those who are not. 0: it learns nothing; 1: everything.",
        "Budget": "The most that all releases from one data set may cost together. The ledger refuses more.",
        "BLAKE2b, Philox, SHAKE-256": "Published recipes that make numbers out of a secret, which look like chance to "
        "whoever does not have it. BLAKE2b and SHAKE-256 are made for secrets; Philox is made for speed, and that "
        "nobody can tell it from chance is not proven.",
        "Certificate": "A proof that the account is not exaggerated: some training really costs this much.",
        "Charge": "What a run pays to the ledger before it begins. It is not paid back.",
        "Configuration": "The settings of a training that were tuned, such as its learning rate.",
        "Delta": "A small probability that is set aside in the measure epsilon: with a smaller delta, epsilon is "
        "larger. Both belong together.",
        "Differential privacy": "A property of a computation: its result is nearly as likely on either of two "
        "neighbouring data sets. Epsilon and delta say how nearly.",
        "DP-SGD": "Training in small steps. Each step draws some records, limits the effect of each, and adds noise.",
        "Epsilon": f"The measure of what can be learnt about one {unit}. Whatever anybody concludes from the release, "
        "the odds of it change by a factor of at most e to the power of epsilon, up to the probability delta. 0 is "
        "perfect protection.",
        "Exact composition": "Adding up costs by computing the whole distribution of what can be learnt (the privacy "
        "loss distribution), instead of estimates of it.",
        "False positive rate": "How often an attack accuses somebody who is not in the data.",
        "Gaussian reading": "The release protects at least as well as one measurement with normal noise, of which mu "
        "is the ratio of effect to noise, except for the slack, a tiny probability.",
        "Gradient": "In which direction, and how far, one record would move the model in a step.",
        "Head": "A number that stands for the whole ledger up to an entry. If an older entry is changed, it no longer "
        "fits.",
        "Ledger": "The file in which every charge to a data set is written down, in order, before its run begins.",
        "Neighbouring data sets": "The two data sets that are compared: what separates them is what is protected.",
        "Noise multiplier": "How strong the noise is, beside the largest effect of one record on one step.",
        "Optimiser": "The rule by which a training turns gradients into a new model; Adam and Sgd are two of them.",
        "Plan": "What a run will do and cost. It is made before any record is read.",
        "Power": "How often an attack finds somebody who is in the data.",
        "Privacy loss": "By how much what was released shifts the odds between two neighbouring data sets, as a "
        "logarithm. Epsilon and delta limit it together.",
        "Record": "One row of the data, or all rows of one unit where they are put together.",
        "Rehearsal": "A run on public or synthetic data with a fixed seed. It protects nobody.",
        "Renyi filter": "The rule by which the ledger adds up charges, also when a later one was decided after seeing "
        "earlier releases.",
        "Renyi odometer": "The weaker rule that holds after a budget was raised: it says what was spent so far, not "
        "what will be spent at most.",
        "Schedule": "How the size of the steps changes during a training.",
        "Seal": "A sealed run shows nothing but its release; the release carries its signature.",
        "Secure mode": "A slower way to run: noise is made by a recipe for secrets, and sums are exact.",
        "Trainer": "The program part that trains one model. Its cost is declared before the run.",
        "Unit of privacy": f"What is protected as a whole: here one {unit}.",
        "Vault": "The closed folder of a run: scores, logs and failures. It is never published.",
    }
