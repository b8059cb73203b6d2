"""Records that become what a public encoder makes of them, before anything is planned.

A pair (X, y) is encoded as it comes, so that X may be texts; other records are brought in first and then encoded. What
is refused is refused by public facts alone; a record that cannot be encoded becomes zeros.
"""

from __future__ import annotations

from typing import Any

from dptune.errors import InvalidInput
from dptune.planner.incoming import Declared, Incoming, bring_in
from dptune.planner.kinds import check_trainer_free, with_features
from dptune.tables.sources import tensor_pair
from dptune.training.encoders import PublicEncoder, encoder_of, importable, is_encoder, named_encoder

__all__ = ["bring_in_with", "features_name"]


def features_name(features: object) -> str:
    """The name of features as trainers and models carry it; of an encoder, its importable name with its hash.

    Args:
        features: a name, "package.module:attribute" of an encoder, or the encoder itself.

    Returns:
        The name.

    Raises:
        InvalidInput: the encoder cannot be imported by its name.

    Example:
        >>> features_name("scattering")
        'scattering'
    """
    if isinstance(features, PublicEncoder):
        return importable(features).key
    if isinstance(features, str) and ":" in features and not is_encoder(features):
        return named_encoder(features).key
    return str(features)


def bring_in_with(data: Any, declared: Declared, trainer: object | None, features: str) -> Incoming:
    """The records in the form that the trainer takes, with public features.

    Args:
        data: what the user brought.
        declared: what is public about it.
        trainer: a trainer of the caller's own, or None.
        features: the name of features, as :func:`features_name` returns it.

    Returns:
        The records.

    Raises:
        InvalidInput: something public does not fit.

    Example:
        >>> import numpy as np
        >>> images = (np.zeros((3, 64)), np.zeros(3))
        >>> bring_in_with(images, Declared(records=3, classes=2), None, "oriented-gradients").data.features
        144
    """
    pair = tensor_pair(data) or data
    if not is_encoder(features) or not (isinstance(pair, tuple) and len(pair) == 2):
        return with_features(bring_in(data, declared, trainer), features, trainer)
    check_trainer_free(trainer)
    if len(pair[0]) != len(pair[1]):
        raise InvalidInput("'data' is a pair (X, y) of equal length: one label for each record.")
    return bring_in((encoder_of(features).encode(pair[0]), pair[1]), declared, trainer)
