"""Rows of the compiled kernel's description, put into an order that needs less work for the same values.

Every row is what ``_network.py`` makes of one layer. Nothing here looks at records or parameters.
"""

from __future__ import annotations

__all__ = ["pools_first"]

_MAX, _ACTIVATION = 2, 4  # kinds of rows
_RELU, _TANH, _SIGMOID, _ELU = 0, 1, 2, 6  # activations that never fall
_INPUTS, _OUTPUTS = slice(2, 5), slice(5, 8)  # sizes of what comes in and what goes out


def pools_first(rows: list[list[int]], constants: list[list[float]]) -> None:
    """Let activations that never fall come after the maximum of windows instead of before it, in place.

    The largest of activated values is the activation of the largest value, which is also where derivatives go. There
    are fewer values to activate afterwards.
    """
    for place in range(len(rows) - 1):
        own, pool = rows[place], rows[place + 1]
        if own[0] != _ACTIVATION or pool[0] != _MAX or not _rises(own[1], constants[place]):
            continue
        own[_INPUTS] = own[_OUTPUTS] = pool[_OUTPUTS]
        rows[place], rows[place + 1] = pool, own
        constants[place], constants[place + 1] = constants[place + 1], constants[place]


def _rises(act: int, constants: list[float]) -> bool:
    """Whether an activation of a larger value is never smaller."""
    if act == _SIGMOID:  # scale and temperature
        return constants[0] > 0.0 and constants[1] > 0.0
    if act == _ELU:
        return constants[0] >= 0.0 and constants[1] > 0.0
    return act in {_RELU, _TANH}
