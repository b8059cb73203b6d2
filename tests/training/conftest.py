"""Compiled code is tested with every instruction set that this machine has, not with the best one alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dptune.training import fused_engine, softmax_engine
from dptune.training._compiled import kernel

SETS = ["base", "v3", "v4"]


@contextmanager
def _using(name: str) -> Iterator[None]:
    """The kernel with one of its instruction sets; the test is skipped where there is none."""
    names: tuple[str, ...] = () if kernel is None else kernel.instructions()
    if name not in names:
        pytest.skip(f"this machine has no {name}" if names else "the kernel was not compiled")
    _use(name)
    try:
        yield
    finally:
        _use(names[-1])


def _use(name: str) -> None:
    fused_engine._same_in_every_place.cache_clear()
    softmax_engine._steady.cache_clear()
    kernel.instructions(name)


@pytest.fixture(params=SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the instruction set that the kernel uses."""
    with _using(request.param):
        yield request.param


@pytest.fixture(params=["numpy", *SETS])
def compiled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether an engine is to be compiled: not, or with one of the kernel's instruction sets."""
    if request.param == "numpy":
        yield False
        return
    with _using(request.param):
        yield True
