"""Which kind of data a job is about, and the public features that its records get.

A job gets the defaults of its kind (:mod:`dptune.planner.kinds`), with the settings that its [model] changes; one that
says what model is trained, or loads its records itself, gets what it says. Decided by the job alone, never by records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.planner.encoded import features_name
from dptune.planner.kinds import KINDS, Kind, kind_of_benchmark, kind_with
from dptune.sealed.features import kept_features
from dptune.training.features import check_features, named_features

if TYPE_CHECKING:
    from dptune.cli._job import Loaded

__all__ = ["SETTINGS", "features_of", "kind_of", "with_features"]

_FEATURE_RANGE = (-1.0, 1.0)
SETTINGS = frozenset(
    ("optimizer", "schedule", "clipping", "whitening", "batch_size", "steps", "clip_norm", "learning_rate")
)
"""Fields of [model] that change a setting of the defaults; with any other one the job says itself what is trained."""

_ADAM = ("adam", "adambc")
Sections = Mapping[str, Mapping[str, Any]]  # of a job


def kind_of(sections: Sections) -> Kind | None:
    """The kind whose defaults the job gets; None if it says itself what is trained."""
    data, model = sections.get("data", {}), sections.get("model", {})
    if data.get("loader") is not None or not SETTINGS.issuperset(model):
        return None
    if data.get("schema") is not None or kind_of_benchmark(data.get("name")) is KINDS["table"]:
        return KINDS["table"] if model.get("optimizer", "adam") in _ADAM else None  # its rule is about Adam
    named = data.get("features")
    if named not in (None, "none"):
        return kind_with(features_name(named))
    usual = kind_of_benchmark(data.get("name"))
    return usual if usual is None or named is None else replace(usual, features="none")


def features_of(sections: Sections) -> str:
    """The name of the public features that the job's records become."""
    kind = kind_of(sections)
    data = sections.get("data", {})
    name = features_name(data.get("features", "none" if kind is None else kind.features))
    check_features(name)
    if name != "none" and data.get("schema") is not None:
        raise InvalidInput(f"'features' is for images as rows of an array; leave {name!r} out for a table.")
    return name


def with_features(sections: Sections, loaded: Loaded, kept: Path | None = None) -> Loaded:
    """The records, and the public ones for scores, with the job's features; computed record by record.

    Args:
        sections: of the job.
        loaded: the records as they were read.
        kept: the folder of a run that was cut off, whose vault may hold what an encoder made of them.

    Returns:
        The records with features.
    """
    name = features_of(sections)
    if name == "none":
        return loaded
    if not isinstance(loaded.data, Dataset):
        raise InvalidInput(f"'features' of [data] is for images as rows of an array; leave {name!r} out here.")
    make = named_features(name)
    public = None if loaded.public is None else loaded.public.map(make, _FEATURE_RANGE)
    found = None if kept is None else kept_features(kept)
    private = make if found is None or len(found) != len(loaded.data) else lambda _: found
    return loaded._replace(data=loaded.data.map(private, _FEATURE_RANGE), public=public)
