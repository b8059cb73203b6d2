"""What a public encoder made of the records, kept in the vault until the release, and what a release says of it.

Encoding may take longer than training, so a run that was cut off must not do it again. The file lies in the vault's
work folder, for the owner alone, is written before the charge, and is removed with the secret at release. Whoever reads
it compares the records with the vault's keyed mark (``_records.py``), as with any records of a resumed run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from dptune._files import storage_errors, sync_folder
from dptune._typing import Floats
from dptune.data import Dataset
from dptune.randomness import Randomness
from dptune.sealed._records import mark_of
from dptune.sealed.vault import Vault

__all__ = ["encoder_facts", "encoder_words", "keep_features", "kept_features", "new_vault"]

_FILE = Path("work") / "features.npy"


def encoder_facts(trainer: object) -> dict[str, Any] | None:
    """The public encoder whose outputs a trainer is given: its name, the hash of its weights, its width.

    Args:
        trainer: any trainer.

    Returns:
        The facts, or None where there is no encoder.
    """
    from dptune.training.dpsgd_trainer import DpSgdTrainer  # noqa: PLC0415 - statements are made without the engines
    from dptune.training.encoders import encoder_of, is_encoder  # noqa: PLC0415

    if not isinstance(trainer, DpSgdTrainer) or not is_encoder(trainer.prepared):
        return None
    return encoder_of(trainer.prepared).describe()


def encoder_words(facts: dict[str, Any]) -> str:
    """The assumption about an encoder, for statements.

    Args:
        facts: what :func:`encoder_facts` found.

    Returns:
        Two sentences.
    """
    return (
        f"Records were encoded by {facts['name']}, which is declared public: it (sha256 of its weights "
        f"{facts['sha256']}) was made without the private records. What it says of one record depends on that record "
        "alone."
    )


def new_vault(path: Path, noted: dict[str, Any], trainer: object, data: object, randomness: Randomness) -> Vault:
    """The vault of a run that begins: it knows its records by a mark, and keeps what an encoder made of them.

    Args:
        path: the run's folder.
        noted: what is fixed when the run begins.
        trainer: the run's trainer.
        data: the records.
        randomness: the run's secret.

    Returns:
        The vault.
    """
    vault = Vault.create(path / "vault", noted | {"records": mark_of(data, randomness)}, randomness)
    keep_features(vault, trainer, data)
    return vault


def keep_features(vault: Vault, trainer: object, data: object) -> None:
    """Keep what an encoder made of the records, durably, for a run that is cut off.

    Args:
        vault: of the run.
        trainer: its trainer.
        data: the encoded records.
    """
    if encoder_facts(trainer) is None or not isinstance(data, Dataset):
        return
    path = vault.inside / _FILE
    part = path.with_name(path.name + ".part")
    with storage_errors("The vault"):
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            np.save(stream, data.x, allow_pickle=False)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
        sync_folder(path.parent)


def kept_features(folder: Path) -> Floats | None:
    """What a run's vault holds of encoded records.

    Args:
        folder: the run's folder.

    Returns:
        The features; None if there are none that can be read, so that they are computed again.
    """
    try:
        found: Floats = np.load(Vault(folder / "vault").inside / _FILE, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found
