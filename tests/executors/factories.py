"""Functions that make torch modules, where other processes can import them."""

from __future__ import annotations

from typing import Any

from torch import nn


class Own(nn.Module):
    """A module that no file can describe."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(3, width)
        self.outer = nn.Linear(width, 2)

    def forward(self, x: Any) -> Any:
        return self.outer(self.inner(x).relu())


def make_own(params: dict[str, Any]) -> nn.Module:
    return Own(params["width"])
