"""What a run's terms hold of declarations by trainers and data: all of it public, and quoted by the statement.

A run goes on only with a trainer that declares the same: the statement would be false of another one, and trainings at
another cost than the plan's fail, each of them, after which "no model" would be all that a paid run releases.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

from dptune.errors import DptuneError, InvalidInput
from dptune.sealed._terms import Terms, preflight
from dptune.sealed._units import DeclaredUnits
from dptune.sealed.features import encoder_facts
from dptune.tables import Encoder
from dptune.trainer import DeclaresTraining, Trainer

__all__ = ["check_declarations", "declarations"]

DataT = TypeVar("DataT")


def declarations(trainer: object, encoder: Encoder | None, units: DeclaredUnits | None) -> dict[str, Any]:
    """The fields of the terms that say how records became features, what a record is, and how a trainer trains."""
    return {
        "encoder": None if encoder is None else encoder.describe(),
        "units": units,
        "training": trainer.declared_training if isinstance(trainer, DeclaresTraining) else None,
        "public_encoder": encoder_facts(trainer),
    }


def check_declarations(folder: Path, terms: Terms, trainer: Trainer[DataT, object], data: DataT) -> None:
    """Refuse to go on with a trainer that declares something else than the run's; nothing is lost by a refusal."""
    now, encoder = declarations(trainer, None, None), terms.public_encoder
    if encoder != now["public_encoder"]:
        raise _other(folder, f"it began with {_encoder(encoder)}, this is {_encoder(now['public_encoder'])}")
    if terms.training is not None and _lasting(terms.training) != _lasting(now["training"] or ""):
        raise _other(folder, f"it began with '{terms.training}', this is '{now['training'] or 'not declared'}'")
    try:
        preflight(terms.plan, trainer, data)
    except DptuneError as error:  # its advice is for a run that has not begun
        raise _other(folder, str(error).removesuffix("; plan again with this trainer.").rstrip(".")) from None


def _encoder(facts: dict[str, Any] | None) -> str:
    return "no encoder" if facts is None else f"the encoder {facts['name']} of weights {str(facts['sha256'])[:12]}"


def _lasting(text: str) -> str:
    """Without addresses in memory, which an object without a text of its own has in every process anew."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _other(folder: Path, said: str) -> InvalidInput:
    return InvalidInput(
        f"The run in {folder} cannot go on with this trainer: {said}. Continue it with the arguments that it began "
        "with."
    )
