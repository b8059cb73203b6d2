"""The compiled kernels under AddressSanitizer: nothing behind, before or after the end of an array is touched.

Both modules are compiled once more, with the sanitizer, into a folder of the test's own, and put in the place of the
installed ones in a process of their own. A short walk through every entry point, with sizes that fit no vector, is part
of the default suite; all tests of the kernels run the same way in ``make test-all``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_SOURCES = {
    "dptune.training._kernel": _ROOT / "src/dptune/training/_kernel.c",
    "dptune.accounting._programme": _ROOT / "src/dptune/accounting/_programme.c",
}

# Imported first: `import dptune` then finds these modules.
_REPLACE = """
import importlib.util, os, sys
from pathlib import Path
for name in ("dptune.training._kernel", "dptune.accounting._programme"):
    path = Path(os.environ["SANITIZED"]) / (name.rsplit(".")[-1] + ".so")
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
"""

_WALK = """
import replaced, sys
import numpy as np
from dptune.accounting import _programme
from dptune.training import _kernel as kernel
from dptune.training.benchmark_data import Dataset
from dptune.training.fused_engine import FusedEngine
from dptune.training.models import Mlp, dp_hypo_cnn, softmax
from dptune.training.noise import SecureNoise
from dptune.randomness import Randomness
from dptune.regression import RegressionDataset
from dptune.training._formula import Formula
from dptune.training.network_engine import NetworkEngine
from dptune.training import _network as described
from dptune.training.numpy_engine import NumpyEngine
from dptune.training.softmax_engine import SoftmaxEngine

class Drawn:
    def __init__(self, layers, shape):
        self.size = len(described.program(layers, shape).order)
    def start(self, key):
        return chance.normal(size=self.size).astype(np.float32)

NETWORKS = [
    ((1, 7, 5), (described.Convolution(1, 32, (2, 2)), described.Pointwise("relu"), described.Reshape(),
                 described.Dense(768, 96), described.Pointwise("tanh"), described.Drop(0.5), described.Dense(96, 720),
                 described.Dense(720, 3))),
    ((2, 7, 5), (described.Convolution(2, 3, (3, 2), (2, 1), (2, 1)), described.Normal(3, 1e-5),
                 described.Pointwise("gelu"), described.Pool("max", (3, 3), (2, 1), (1, 1)),
                 described.Drop(0.5, True), described.Convolution(3, 17, (2, 2), bias=False),
                 described.Pointwise("relu"), described.Pool("average", (2, 1), (1, 1), (1, 0), False),
                 described.Reshape(), described.Dense(255, 3))),
    ((1, 12, 12), (described.Convolution(1, 40, (5, 5)), described.Pointwise("elu"),
                   described.Pool("max", (2, 2), (2, 2)),
                   described.Convolution(40, 33, (3, 3), padding=(1, 1)), described.Pointwise("tanh"),
                   described.Pool("average", None, sides=(1, 1)), described.Reshape(), described.Dense(33, 3))),
    ((1, 9, 8), (described.Convolution(1, 16, (3, 3)), described.Pointwise("tanh"),
                 described.Convolution(16, 32, (3, 3), padding=(1, 0)), described.Pointwise("relu"),
                 described.Convolution(32, 16, (3, 3), padding=(2, 2), bias=False), described.Reshape(),
                 described.Dense(16 * 9 * 6, 3))),
    ((1, 18, 14), (described.Convolution(1, 32, (3, 3), padding=(1, 1)), described.Normal(4, 1e-5),
                   described.Pointwise("relu"), described.Pool("max", (2, 2), (2, 2)),  # a norm with its pooling
                   described.Convolution(32, 16, (3, 3), padding=(2, 1)), described.Pointwise("relu"),  # large tiles
                   described.Convolution(16, 16, (3, 3), bias=False), described.Reshape(),
                   described.Dense(16 * 9 * 5, 3))),
    ((5,), (described.Dense(5, 18, False), described.Normal(1, 1e-5, shape=(18,)), described.Pointwise("silu"),
            described.Dense(18, 3))),
]

called, chance = set(), np.random.default_rng(1)

def counted(module):
    for name in [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]:
        def call(*given, inner=getattr(module, name), name=name):
            called.add(name)
            return inner(*given)
        setattr(module, name, call)
        every.add(name)

every = set()
counted(kernel), counted(_programme)

def sums(engine, data):
    engine.bind(data)
    parameters = chance.normal(size=(1, engine.dimension)).astype(np.float32)
    engine.logits(parameters[0], data.x[:3])
    for batch in ([0], [len(data) - 1], np.arange(len(data)), []):
        engine.clipped_sums(parameters, [np.array(batch, np.int64)], np.ones(1), np.zeros_like(parameters))

for instructions in kernel.instructions():
    kernel.instructions(instructions)
    for width in (1, 3, 17, 37):
        for zeros in (0.0, 0.9):
            x = chance.normal(size=(9, width)) * (chance.random((9, width)) >= zeros)
            for model in (softmax(width, 3), Mlp(width, 2, (5,), "tanh"), Mlp(width, 3, (49, 33), "relu")):
                engine = NumpyEngine(model, compiled=True)
                sums(engine, Dataset(x, chance.integers(0, model.classes, 9), model.classes))
    for width, classes in ((1, 2), (5, 3), (16, 16), (33, 11), (1029, 4)):
        x, y = chance.normal(size=(37, width)).astype(np.float32), chance.integers(0, classes, 37)
        sums(SoftmaxEngine(softmax(width, classes)), Dataset(x, y, classes))
    images = Dataset(chance.random((5, 784)).astype(np.float32), chance.integers(0, 10, 5), 10)
    network = FusedEngine(dp_hypo_cnn())
    sums(network, images)
    for shape, layers in NETWORKS:
        features = int(np.prod(shape))
        first = () if len(shape) == 1 else (described.Reshape(shape),)
        engine = NetworkEngine(first + layers, Drawn(first + layers, (features,)), (features,), double=True)
        data = Dataset(chance.normal(size=(37, features)), chance.integers(0, 3, 37), 3)
        sums(engine, data)
        exact = np.zeros((1, engine.dimension))
        for lattice in (2.0**-20, 2.0**-40):  # sums of 32 bits, and of 52
            engine.lattice_sums(engine.start(None)[None], [np.arange(37)], np.ones(1), [lattice], exact)
        for by_layer in (False, True):
            engine.formula_sum(engine.start(None), np.arange(37), Formula(0.5, 0.1, 0.3, by_layer), 2.0**20)
        last = (*first, *layers[:-1], described.Dense(layers[-1].inputs, 1))
        engine = NetworkEngine(last, Drawn(last, (features,)), (features,))
        sums(engine, RegressionDataset(data.x, chance.random(37), target_range=(0, 1)))
    for size in (1, 7, 16, 31, 1000, 4099):
        total, key = np.zeros(size, np.float32), bytes(range(32))
        kernel.normals(key, 3, total)
        kernel.add_normals(key, 3, 1.5, 1.0, total)
        kernel.descend(total.copy(), total, 0.5)
        for scale in (1.0, 1e-9):
            kernel.add_secure(chance.bytes(16 * ((size + 1) // 2)), 3e5, 1 / scale, scale, chance.normal(size=size))
    kernel.words(bytes(32), 1, 2)
for rows, columns in ((1, 1), (3, 5), (9, 2), (40, 40)):
    for step, planes in ((_programme.upper, 9), (_programme.lower, 2)):
        gains, losses = chance.random((planes, rows, columns)), chance.random(2 * _programme.LANES)
        step(rows, columns, gains, losses, np.zeros((2, columns + 1, _programme.LANES)))
_programme.smooth(0.25, chance.random(13))
assert called == every, every - called
print("walked through", len(every))
"""


def _compile(source: Path, target: Path) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    flags = [
        "-O0",
        "-g1",
        "-fsanitize=address",
        "-fno-math-errno",
        "-ffp-contract=off",
        "-Wno-psabi",
        "-shared",
        "-fPIC",
    ]
    includes = [f"-I{sysconfig.get_paths()['include']}", f"-I{source.parent}"]
    subprocess.run([compiler, *flags, *includes, str(source), "-o", str(target)], check=True, capture_output=True)


def _runtime() -> str:
    """The sanitizer's library, which must be the first that a process loads."""
    asked = ["gcc", "-print-file-name=libasan.so"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs gcc")
    if not Path(found).is_absolute():
        pytest.skip("needs gcc's libasan")
    return found


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has the sanitized modules."""
    folder = tmp_path_factory.mktemp("sanitized")
    runtime = _runtime()
    for name, source in _SOURCES.items():
        _compile(source, folder / f"{name.rsplit('.', maxsplit=1)[-1]}.so")
    (folder / "replaced.py").write_text(_REPLACE)
    return {
        **os.environ,
        "SANITIZED": str(folder),
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]]),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves much to the end of the process
        "PYTHONMALLOC": "malloc",
    }


def _walk(surroundings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _WALK], env=surroundings, capture_output=True, text=True, check=False)


def test_no_entry_point_touches_foreign_memory(surroundings: dict[str, str]) -> None:
    done = _walk(surroundings)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "walked through" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [("gains + i * cells + j;", "gains + i * cells + j + 1;"), ("+ LANES * j;", "+ LANES * (j + 2);")],
    ids=["read", "write"],
)
def test_a_step_too_far_is_found(surroundings: dict[str, str], tmp_path: Path, before: str, after: str) -> None:
    """The control: the test above can fail."""
    text = _SOURCES["dptune.accounting._programme"].read_text()
    assert before in text
    (tmp_path / "_programme.c").write_text(text.replace(before, after))
    _compile(tmp_path / "_programme.c", tmp_path / "_programme.so")
    (tmp_path / "_kernel.so").symlink_to(Path(surroundings["SANITIZED"]) / "_kernel.so")
    done = _walk({**surroundings, "SANITIZED": str(tmp_path)})
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        "training/test_fused_engine.py",
        "training/test_network_numbers.py",
        "training/test_network_rules.py",
        "training/test_numpy_engine.py",
        "training/test_noise.py",
        "training/test_fixed_point.py",
        "training/test_optimizers.py",
        "accounting/test_recursion.py",
    ],
)
def test_the_tests_of_the_kernels_touch_no_foreign_memory(surroundings: dict[str, str], path: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "replaced", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(_ROOT / "tests" / path)], env=surroundings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
