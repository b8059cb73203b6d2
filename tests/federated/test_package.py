"""The package's names load on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dptune import federated


def test_every_public_name_loads() -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    assert all(getattr(federated, name).__name__ == name for name in federated.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = federated.Nothing


@pytest.mark.parametrize(("blocked", "name"), [("cryptography", "Policy"), ("flwr", "DpHype"), ("flwr", "ballot")])
def test_a_missing_extra_is_named(blocked: str, name: str) -> None:
    code = f"import sys; sys.modules[{blocked!r}] = None; import dptune.federated as f; f.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"This needs '{blocked}'" in done.stderr
    assert "pip install 'dptune[flower]'" in done.stderr
