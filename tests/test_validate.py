"""Input checks name the parameter, the allowed range and the value that was given."""

from __future__ import annotations

import math

import pytest

from dptune._validate import integer, real
from dptune.errors import InvalidInput


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, "1", None, True])
def test_real_rejects_what_is_outside(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"'rate' must be a number in \(0, 1\]; got"):
        real("rate", value, 0, 1, low_open=True)


@pytest.mark.parametrize("value", [math.nan, 0, 1.5, "3", 11])
def test_integer_rejects_what_is_outside(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"'steps' must be a whole number in \[1, 10\]; got"):
        integer("steps", value, 1, 10)


def test_accepted_values_come_back_as_plain_numbers() -> None:
    assert real("rate", 1, 0, 1) == 1.0
    assert isinstance(real("rate", 1, 0, 1), float)
    assert integer("steps", 3.0, 1) == 3
    assert isinstance(integer("steps", 3.0, 1), int)
