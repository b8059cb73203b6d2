"""Compiled code is tested with every instruction set that this machine has, not with the best one alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dptune.training import fused_engine
from dptune.training._compiled import kernel

SETS = ["base", "v3", "v4"]


def _use(name: str) -> None:
    fused_engine._same_in_every_place.cache_clear()
    kernel.instructions(name)


@pytest.fixture(params=SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kernel with one of its instruction sets; skipped where there is none."""
    if kernel is None:
        pytest.skip("the kernel was not compiled")
    names = kernel.instructions()
    if request.param not in names:
        pytest.skip(f"this machine has no {request.param}")
    _use(request.param)
    yield request.param
    _use(names[-1])


@pytest.fixture(params=["numpy", *SETS])
def compiled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether an engine is to be compiled: not, or with one of the kernel's instruction sets."""
    if request.param == "numpy":
        yield False
        return
    if kernel is None:
        pytest.skip("the kernel was not compiled")
    names = kernel.instructions()
    if request.param not in names:
        pytest.skip(f"this machine has no {request.param}")
    _use(request.param)
    yield True
    _use(names[-1])
