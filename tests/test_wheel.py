"""A wheel carries the compiled kernels: it installs and trains where there is no compiler.

The source distribution is made from a copy of the tree, wheels are made from that, once with a compiler and once
without one; each is unpacked into a folder of its own, in front of everything else that Python finds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_BUILD = "import sys, setuptools.build_meta as build; print(getattr(build, sys.argv[1])(sys.argv[2]))"

_USE = """
import sys
import numpy as np
import dptune
assert dptune.__file__.startswith(sys.argv[1]), dptune.__file__
from dptune.randomness import Randomness
from dptune.training import Dataset, Settings, descend, softmax, engine_for
from dptune.training._compiled import kernel
from dptune.training._network import Dense, Pointwise, program
from dptune.training._network_pass import Pass
assert (kernel is not None) == (sys.argv[2] == "compiled"), kernel
if kernel is not None:
    assert kernel.__file__.startswith(sys.argv[1]), kernel.__file__
    made = program((Dense(4, 3), Pointwise("relu"), Dense(3, 2)), (4,))
    out = np.zeros((5, 2), np.float32)
    Pass(made).outputs(np.ones(23, np.float32), np.ones((5, 4), np.float32), out)
    assert (out == 16.0).all(), out
data = Dataset(np.repeat([[1.0], [-1.0]], 50, axis=0), np.repeat([1, 0], 50), classes=2)
settings = Settings(0.2, 1.0, steps=30, clip_norm=1.0, learning_rate=1.0, batch_size=20)
(flat,) = descend(engine_for(softmax(1, 2)), data, [settings], [Randomness.rehearsal(0)])
assert flat[1] > flat[0]
from dptune.documents import document, documents
assert len(documents()) > 40
assert document("select").text.startswith("# Random stopping")
print("trained")
"""


def _python(*given: str, cwd: Path, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "CC", "CFLAGS"}}
    done = subprocess.run(
        [sys.executable, *given], cwd=cwd, env=kept | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("source")
    unwanted = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__", "build", ".git", ".venv", "dist", ".*")
    shutil.copytree(_ROOT, folder / "tree", ignore=unwanted)
    made = _python("-c", _BUILD, "build_sdist", str(folder), cwd=folder / "tree").splitlines()[-1]
    with tarfile.open(folder / made) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    return next((folder / "unpacked").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [True, False])
def test_a_wheel_trains_where_there_is_no_compiler(source: Path, tmp_path: Path, compiler: bool) -> None:
    if compiler and shutil.which("cc") is None:
        pytest.skip("there is no compiler here to build the wheel with")
    tree = shutil.copytree(source, tmp_path / "tree")
    variables = {} if compiler else {"CC": "false"}
    made = _python("-c", _BUILD, "build_wheel", str(tmp_path), cwd=tree, **variables).splitlines()[-1]
    with zipfile.ZipFile(tmp_path / made) as packed:
        packed.extractall(tmp_path / "installed")
    given = ["-c", _USE, str(tmp_path / "installed"), "compiled" if compiler else "plain"]
    used = _python(*given, cwd=tmp_path, PYTHONPATH=str(tmp_path / "installed"), CC="false", PATH="/nonexistent")
    assert used == "trained"
