"""What a run's terms hold of declarations by trainers and data: all of it public, and quoted by the statement."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dptune.sealed._units import DeclaredUnits
from dptune.sealed.features import encoder_facts
from dptune.tables import Encoder
from dptune.trainer import DeclaresTraining

__all__ = ["declarations"]


def declarations(trainer: object, encoder: Encoder | None, units: DeclaredUnits | None) -> dict[str, Any]:
    """The fields of the terms that say how records became features, what a record is, and how a trainer trains."""
    return {
        "encoder": None if encoder is None else encoder.describe(),
        "units": None if units is None else asdict(units),
        "training": trainer.declared_training if isinstance(trainer, DeclaresTraining) else None,
        "public_encoder": encoder_facts(trainer),
    }
