"""The schema of ``release.json``, published with the package, and the form in which registries of epsilons take it.

A release names the schema's version. Keys may be added within a version; a key that changes its meaning, or goes, makes
a new one. Nothing here computes: an export repeats what the release states.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from dptune.errors import InvalidInput

__all__ = ["registry_entry", "release_schema"]


def release_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) that every ``release.json`` of this version follows.

    Returns:
        Plain JSON values.

    Example:
        >>> release_schema()["title"]
        'dptune release, version 1'
    """
    text = resources.files("dptune.sealed").joinpath("schemas/release-1.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def registry_entry(details: Mapping[str, Any]) -> dict[str, Any]:
    """A release in the form of the public registries of epsilons: one entry, figures as the release states them.

    Args:
        details: the content of a ``release.json``.

    Returns:
        System, unit, epsilon, delta, relation and method, and what else registries ask for.

    Raises:
        InvalidInput: the release has no guarantee, so there is no epsilon to register.

    Example:
        >>> registry_entry({"guarantee": False})
        Traceback (most recent call last):
        ...
        dptune.errors.InvalidInput: A rehearsal has no guarantee, so there is no epsilon to register. Give a sealed run.
    """
    if not details.get("guarantee") or details.get("epsilon") is None:
        raise InvalidInput(
            "A rehearsal has no guarantee, so there is no epsilon to register. Give a sealed run."
            if not details.get("guarantee")
            else "The release states no finite epsilon, so there is none to register."
        )
    budget = details["dataset_budget"]
    return {
        "system": details["dataset"],
        "data_product": "machine learning model" if details["model"] is not None else "hyperparameters",
        "unit": details["unit"],
        "epsilon": details["epsilon"],
        "delta": details["delta"],
        "relation": details["neighbours"],
        "method": details["method"],
        "definition": "(epsilon, delta)-differential privacy",
        "model": "central",
        "covers": "hyperparameter tuning, the choice and the final training, together",
        "lifetime_budget": None if budget is None else {"epsilon": budget["epsilon"], "delta": budget["delta"]},
        "date": details["released"],
        "software": f"dptune {details['dptune']}",
        "verification": {"ledger_entry": details["ledger"]["entry"], "ledger_head": details["ledger"]["head"]},
    }
