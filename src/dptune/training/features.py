"""Public features of records by name: gradients of images, scattering, and encoders that a process has imported.

Nothing is fitted: all of them are functions of one record, so applying them to private records costs no privacy.
Gradients (:mod:`dptune.training.gradients`) are the default of images; scattering (:mod:`dptune.training.scattering`)
has more numbers, and is the default of photographs where it is levelled (:mod:`dptune.training.levelled`).
:func:`named_features` finds them by the name that a job, a trainer and a released model carry.
"""

from __future__ import annotations

from collections.abc import Callable

from dptune._typing import Floats
from dptune.errors import InvalidInput
from dptune.training.encoders import encoder_of, is_encoder
from dptune.training.gradients import (
    centred_gradients,
    gradients_and_brightness,
    side_and_colours,
    two_scale_gradients,
)
from dptune.training.levelled import levelled_scattering
from dptune.training.scattering import mirrored_scattering, scattering

__all__ = ["FEATURES", "check_features", "named_features"]

FEATURES: dict[str, Callable[[Floats], Floats]] = {
    "none": lambda x: x,
    "oriented-gradients": centred_gradients,
    "gradients-and-brightness": gradients_and_brightness,
    "two-scale-gradients": two_scale_gradients,
    "scattering": lambda x: scattering(x, *side_and_colours(x)),
    "mirrored-scattering": lambda x: mirrored_scattering(x, *side_and_colours(x)),
    "levelled-scattering": lambda x: levelled_scattering(x, *side_and_colours(x)),
}


def check_features(name: object) -> None:
    """Refuse a name that no features can have; an encoder's name is not looked up, so nothing is imported.

    Args:
        name: What a job, a trainer or a released model says.

    Raises:
        InvalidInput: If there are no features of this name.

    Example:
        >>> from dptune.training.features import check_features
        >>> check_features("scattering")
    """
    if not isinstance(name, str) or (name not in FEATURES and not is_encoder(name)):
        raise InvalidInput(
            f"There are no features called {name!r:.200}. Choose one of {', '.join(FEATURES)}, or a public encoder."
        )


def named_features(name: object) -> Callable[[Floats], Floats]:
    """The public features of a name: a function of rows that treats every record on its own.

    Args:
        name: "none", "oriented-gradients", "gradients-and-brightness", "two-scale-gradients", "scattering",
            "mirrored-scattering", "levelled-scattering", or the key of a public encoder
            (:mod:`dptune.training.encoders`) that this process has imported.

    Returns:
        The function.

    Raises:
        InvalidInput: If there are no features of this name, or the encoder was not imported.

    Example:
        >>> import numpy as np
        >>> from dptune.training.features import named_features
        >>> named_features("oriented-gradients")(np.zeros((1, 64), np.float32)).shape
        (1, 144)
    """
    check_features(name)
    if is_encoder(name):
        return encoder_of(str(name)).encode
    return FEATURES[str(name)]
