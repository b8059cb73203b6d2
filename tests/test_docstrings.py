"""What the public names say of themselves: a sentence that stands alone, Args, Returns, and an example that runs.

A name is public if a room's ``__init__`` or a module of the ground floor exports it. The examples of all modules run
here, so that none goes stale.
"""

from __future__ import annotations

import doctest
import enum
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any, is_typeddict

import pytest

import dptune

ROOMS = [
    "accounting",
    "audit",
    "data",
    "errors",
    "executors",
    "federated",
    "integrations.opacus",
    "integrations.optuna",
    "judging",
    "ledgers",
    "methods",
    "planner",
    "randomness",
    "sealed",
    "spaces",
    "tables",
    "testing.searches",
    "testing.trainers",
    "trainer",
    "training",
    "units",
]


def _public() -> Iterator[tuple[str, Any]]:
    """Every exported class and function, once, by the name of its home."""
    seen: set[int] = set()
    for room in ("", *(f".{room}" for room in ROOMS)):
        module = importlib.import_module(f"dptune{room}")
        for name in module.__all__:
            value = getattr(module, name)
            ours = str(getattr(value, "__module__", "")).startswith("dptune")
            if ours and (inspect.isclass(value) or inspect.isfunction(value)) and id(value) not in seen:
                seen.add(id(value))
                yield f"{value.__module__}.{value.__qualname__}", value


PUBLIC = dict(_public())


def _methods() -> Iterator[tuple[str, Any]]:
    for home, value in PUBLIC.items():
        if inspect.isclass(value):
            for name, member in vars(value).items():
                held = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                if not name.startswith("_") and (inspect.isfunction(held) or isinstance(held, property)):
                    yield f"{home}.{name}", held


METHODS = dict(_methods())


def _parameters(value: Any) -> list[str]:
    try:
        found = list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return []
    return [name for name in found if name not in ("self", "cls")]


def _returns(value: Any) -> bool:
    return inspect.isfunction(value) and value.__annotations__.get("return") not in ("None", None, "NoReturn")


def _said(value: Any) -> str:
    """The docstring of the thing itself; a dataclass' generated one, and a base's, do not count."""
    own = value.__doc__ if not inspect.isclass(value) else vars(value).get("__doc__")
    text = inspect.cleandoc(own or "")
    return "" if inspect.isclass(value) and text.startswith(f"{value.__name__}(") else text


@pytest.mark.parametrize("home", PUBLIC)
def test_a_public_name_explains_itself(home: str) -> None:
    value = PUBLIC[home]
    text = _said(value)
    first = text.split("\n\n")[0].strip()
    assert len(first) > 15, f"{home} needs a sentence that stands alone"
    assert first.endswith((".", ":", "?")), f"{home}: the first paragraph is not a sentence"
    if inspect.isclass(value) and (issubclass(value, Exception | enum.Enum) or is_typeddict(value)):
        return
    if _parameters(value) and not getattr(value, "_is_protocol", False):
        assert "Args:" in text, f"{home} takes {_parameters(value)} and says nothing of them"
    if _returns(value):
        assert "Returns:" in text, f"{home} does not say what it returns"
    if not getattr(value, "_is_protocol", False):
        assert ">>> " in text, f"{home} has no example"


@pytest.mark.parametrize("home", METHODS)
def test_a_public_method_explains_itself(home: str) -> None:
    value = METHODS[home]
    text = inspect.cleandoc(value.__doc__ or "")
    assert len(text) > 10, f"{home} needs a docstring"
    names = _parameters(value) if inspect.isfunction(value) else []
    assert len(names) < 2 or "Args:" in text, f"{home} takes {names} and says nothing of them"


def _modules() -> list[str]:
    return [found.name for found in pkgutil.walk_packages(dptune.__path__, "dptune.") if "__main__" not in found.name]


@pytest.mark.parametrize("name", _modules())
def test_examples_run(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example is run alone in an empty folder."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} needs an extra: {error}")
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0
