"""Exact sums of softmax regressions and MLPs: what docs/theorems/exact_sums.md claims of them.

Norms are compared as whole numbers, so no test has a tolerance; the reference computes one record with Python's own
numbers, one operation at a time.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import Settings, descend
from dptune.training._fixed_point import FixedPoint, _public
from dptune.training._tables import exponentials, softmax_minus_label
from dptune.training.benchmark_data import Dataset
from dptune.training.models import Activation, Mlp, softmax
from dptune.training.noise import SecureNoise
from dptune.training.numpy_engine import NumpyEngine

MODELS = [
    softmax(5, 3),
    Mlp(5, 3, (4,), "tanh"),
    Mlp(7, 2, (9, 3), "relu"),
    Mlp(5, 4, (6,), Activation("tempered_sigmoid", 1.58, 3.0, 0.71)),
    Mlp(784, 10, (33, 17), "relu"),
]
WILD = [0.0, 1.0, -1.0, 1e-300, 1e-20, 2.0**-64, 2.0**-21, 3.0, 1e9, -1e18, 2.0**63, -(2.0**64), 1e200, -1e308]


def records(count: int, model: Mlp, seed: int = 0) -> Dataset:
    """Ordinary records among wild ones: all zero, huge, tiny, or of very different parts."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, model.features))
    x[::5] *= 10.0 ** rng.integers(-30, 30, size=(len(x[::5]), 1))
    x[::7] *= 10.0 ** rng.integers(-9, 9, size=x[::7].shape)
    x[::11] = 0.0
    x[::13] = 1e300
    return Dataset(x, rng.integers(0, model.classes, count), model.classes, public=True)


def alone(
    engine: NumpyEngine, parameters: np.ndarray, index: np.ndarray, clip: float, lattice: float = 0.0
) -> np.ndarray:
    shares = np.empty((len(index), engine.dimension))
    for row, record in enumerate(index):
        engine.lattice_sums(parameters, [np.array([record])], np.array([clip]), [lattice], shares[row : row + 1])
    return shares


def in_steps(share: np.ndarray, clip: float) -> list[int]:
    """A share as whole numbers of its documented unit."""
    steps = np.ldexp(share, 41 - math.frexp(clip)[1])
    assert np.array_equal(steps, np.rint(steps))
    return [int(value) for value in steps]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scale", [0.3, 30.0, 1e16])
@pytest.mark.parametrize("clip", [1e-3, 1.0, 37.0])
def test_a_share_is_the_same_in_every_place_and_shares_add_up_exactly(model: Mlp, scale: float, clip: float) -> None:
    data = records(61, model)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    rng = np.random.default_rng(1)
    parameters = scale / np.sqrt(model.features) * rng.normal(size=(1, engine.dimension))
    shares = alone(engine, parameters, np.arange(61), clip)
    out, last = np.empty((1, engine.dimension)), np.empty((1, engine.dimension))
    for size in (1, 2, 3, 7, 8, 9, 16, 31, 61):
        batch = rng.permutation(61)[:size]
        engine.lattice_sums(parameters, [batch], np.array([clip]), [0.0], out)
        assert np.array_equal(out[0], shares[batch].sum(axis=0))
        engine.lattice_sums(parameters, [batch[:-1]], np.array([clip]), [0.0], last)
        assert np.array_equal(out[0] - last[0], shares[batch[-1]])  # what one record moves, in any company
    most = max(sum(step * step for step in in_steps(share, clip)) for share in shares)
    assert Fraction(most) <= (Fraction(clip) * Fraction(2) ** (41 - math.frexp(clip)[1])) ** 2


@pytest.mark.parametrize("model", MODELS)
def test_a_stack_equals_its_members_bit_for_bit(model: Mlp) -> None:
    data = records(300, model)
    rng = np.random.default_rng(2)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    batches = [rng.choice(300, size, replace=False) for size in (0, 1, 17, 61, 300)]
    parameters = rng.normal(size=(5, engine.dimension))
    parameters[3] *= 1e5
    clips = np.array([0.1, 0.5, 1.0, 2.0, 0.3])
    together, apart = np.empty_like(parameters), np.empty((1, engine.dimension))
    engine.lattice_sums(parameters, batches, clips, [0.0] * 5, together)
    for row, batch in enumerate(batches):
        one = slice(row, row + 1)
        engine.lattice_sums(parameters[one], [batch], clips[one], [0.0], apart)
        assert np.array_equal(together[row], apart[0])
    assert not together[0].any()


@pytest.mark.parametrize("model", [*MODELS, softmax(20_000, 2)])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e18, 1e60])
def test_no_product_or_sum_leaves_the_exact_whole_numbers(model: Mlp, scale: float) -> None:
    """What the proof needs of every value: whole, and so small that sums of products stay below 2^53."""
    fixed = FixedPoint(model)
    fixed.bind(records(61, model))
    bits, weight_bits, width = fixed._bits, fixed._weight_bits, max(model.widths) + 1
    assert max(2**bits * 2**weight_bits, 2 ** (2 * bits)) * width <= 2**53
    parameters = scale * np.random.default_rng(10).normal(size=(1, model.dimension))
    weights = [_public(layer, weight_bits) for layer in fixed._layers(parameters)]
    inputs, _, last = fixed._forward(weights, np.arange(61)[None])
    deltas = fixed._backward(weights, inputs, last)
    for most, block in [*((weight_bits, w) for w in weights), *((bits, b) for b in (*inputs, *deltas))]:
        assert np.array_equal(block.values, np.rint(block.values))
        assert np.abs(block.values).max() <= 2.0**most
        assert np.abs(block.unit).max() < 130
    assert all(np.abs(block.values).max(axis=1).min() >= 2.0 ** (bits - 1) for block in inputs)


@pytest.mark.parametrize("classes", [2, 10, 300, 20_000, 200_000])
def test_probabilities_depend_on_nothing_but_their_record(classes: int) -> None:
    """Before they are rounded: a difference in the last bit would rarely show afterwards, but it could."""
    rng, bits, count = np.random.default_rng(9), FixedPoint(softmax(2, classes))._exp_bits, 61 if classes < 1000 else 7
    logits, labels = rng.normal(size=(2, classes, count)) * 5, rng.integers(0, classes, (2, count))
    together = logits.copy()
    softmax_minus_label(together, labels, bits)
    for record in range(count):
        one = logits[1:, :, record : record + 1].copy()
        softmax_minus_label(one, labels[1:, record : record + 1], bits)
        assert np.array_equal(one[0, :, 0], together[1, :, record])
    exact = np.exp(logits - logits.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    np.put_along_axis(exact, labels[:, None], np.take_along_axis(exact, labels[:, None], 1) - 1.0, 1)
    assert np.abs(together - exact).max() < 2e-7


def reference(model: Mlp, flat: list[float], x: list[float], label: int, clip: float) -> list[int]:
    """The share of one record in steps, for relu networks: docs/theorems/exact_sums.md in Python's whole numbers."""
    widths = model.widths
    width = max(widths).bit_length()
    bits = min(20, (53 - width) // 2)
    layers, start = [], 0
    for rows, columns in itertools.pairwise(widths):
        values = flat[start : start + (rows + 1) * columns]
        start += (rows + 1) * columns
        exponent = math.frexp(max(abs(v) for v in values))[1]
        unit = exponent - (53 - width - bits)
        whole = [round(math.ldexp(v, -unit)) for v in values]
        layers.append(([whole[i * columns : (i + 1) * columns] for i in range(rows + 1)], unit))
    inputs = []
    values, unit = [*x, 1.0], 0
    for weight, weight_unit in layers:
        own = math.frexp(max(1.0, math.ldexp(max(abs(v) for v in values), unit)))[1] - bits
        whole = [round(math.ldexp(v, unit - own)) for v in values[:-1]] + [round(math.ldexp(1.0, -own))]
        inputs.append((whole, own))
        values = [sum(a * row[j] for a, row in zip(whole, weight, strict=True)) for j in range(len(weight[0]))]
        unit = own + weight_unit
        if len(inputs) < len(layers):
            values = [max(v, 0) for v in values] + [0]
    logits = [math.ldexp(v, unit) for v in values]
    table, rises = exponentials(40)
    powers = []
    for logit in logits:
        place = max(0.0, (logit - max(logits)) * 1024 + 32 * 1024)
        cell = math.floor(place)
        powers.append(round((place - cell) * float(rises[cell]) + float(table[cell])))
    delta = [power / sum(powers) - (j == label) for j, power in enumerate(powers)]
    unit = 0
    deltas: list[tuple[list[int], int]] = []
    for place in range(len(layers) - 1, -1, -1):
        top = max(abs(v) for v in delta)
        own = (max(math.frexp(top)[1] + unit, -64) if top > 0 else 0) - bits
        whole = [round(math.ldexp(v, unit - own)) for v in delta]
        deltas.insert(0, (whole, own))
        weight, weight_unit = layers[place]
        delta = [
            sum(w * d for w, d in zip(row, whole, strict=True)) * (a > 0)
            for row, a in zip(weight[:-1], inputs[place][0][:-1], strict=True)
        ]
        unit = own + weight_unit
    norm = 0.0
    for (a, a_unit), (d, d_unit) in zip(inputs, deltas, strict=True):
        norm += math.ldexp(float(sum(v * v for v in a) * sum(v * v for v in d)), 2 * (a_unit + d_unit))
    factor = (1.0 - 2.0**-40) * (clip / max(math.sqrt(norm), clip))
    step = math.frexp(clip)[1] - 41
    share = []
    for (a, a_unit), (d, d_unit) in zip(inputs, deltas, strict=True):
        scaled = [math.trunc(v * math.ldexp(factor, a_unit + d_unit - step)) for v in d]
        share += [u * v for u in a for v in scaled]
    return share


@pytest.mark.parametrize("model", [softmax(5, 3), Mlp(6, 3, (5,), "relu"), Mlp(300, 4, (40, 7), "relu")])
@pytest.mark.parametrize("clip", [0.01, 1.0, 20.0])
def test_sums_equal_the_reference_in_whole_numbers(model: Mlp, clip: float) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(12, model.features)) * 10.0 ** rng.integers(-3, 3, size=(12, 1))
    data = Dataset(x, rng.integers(0, model.classes, 12), model.classes, public=True)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    parameters = rng.normal(size=(1, engine.dimension))
    out = np.empty((1, engine.dimension))
    engine.lattice_sums(parameters, [np.arange(12)], np.array([clip]), [0.0], out)
    shares = [reference(model, parameters[0].tolist(), x[i].tolist(), int(data.y[i]), clip) for i in range(12)]
    assert in_steps(out[0], clip) == [sum(column) for column in zip(*shares, strict=True)]


@given(st.data())
@settings(max_examples=150)
def test_no_share_is_longer_than_the_clip_norm(draw: st.DataObject) -> None:
    """Whatever the record and the parameters: huge, tiny, equal, or mixed."""
    model = draw.draw(st.sampled_from(MODELS[:4]))
    number = st.one_of(st.sampled_from(WILD), st.floats(-4.0, 4.0), st.floats(allow_nan=False, allow_infinity=False))
    equal = draw.draw(st.booleans())
    dimension = model.dimension
    x = draw.draw(st.lists(number, min_size=1 if equal else model.features, max_size=1 if equal else model.features))
    p = draw.draw(st.lists(number, min_size=1 if equal else dimension, max_size=1 if equal else dimension))
    clip = draw.draw(st.sampled_from([2.0**-40, 1e-6, 0.1, 1.0, math.nextafter(1.0, 0.0), 123.0, 2.0**40]))
    data = Dataset(np.resize(x, (1, model.features)), np.array([1]), model.classes, public=True)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    share = alone(engine, np.resize(p, (1, dimension)), np.array([0]), clip)[0]
    square = sum(step * step for step in in_steps(share, clip))
    assert Fraction(square) <= (Fraction(clip) * Fraction(2) ** (41 - math.frexp(clip)[1])) ** 2


def test_clipping_keeps_nearly_the_whole_norm() -> None:
    """The bound is not bought by shrinking: records that are clipped keep all but a few millionths."""
    model = Mlp(784, 10, (33, 17), "relu")
    data = Dataset(np.random.default_rng(4).random((40, 784)), np.arange(40) % 10, 10)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    parameters = engine.start(Randomness.rehearsal(1))[None]
    norms = np.linalg.norm(alone(engine, parameters, np.arange(40), 0.5), axis=1)
    assert norms.min() > 0.5 * (1 - 1e-4)


@pytest.mark.parametrize("size", [4096, 4097, 10_000])
def test_large_batches_are_exact_and_rounded_once(size: int) -> None:
    model = softmax(3, 2)
    rng = np.random.default_rng(5)
    data = Dataset(rng.normal(size=(10_000, 3)), rng.integers(0, 2, 10_000), 2)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    parameters, out = rng.normal(size=(1, engine.dimension)), np.empty((1, engine.dimension))
    total = [Fraction(0)] * engine.dimension
    for part in np.array_split(np.arange(size), 7):
        engine.lattice_sums(parameters, [part], np.array([0.7]), [0.0], out)
        total = [old + Fraction(float(new)) for old, new in zip(total, out[0], strict=True)]
    lattice = 2.0**-20
    order = rng.permutation(size)
    engine.lattice_sums(parameters, [order], np.array([0.7]), [0.0], out)
    assert out[0].tolist() == [float(value) for value in total]
    engine.lattice_sums(parameters, [order], np.array([0.7]), [lattice], out)
    if size <= 4096:
        assert [Fraction(float(value)) for value in out[0]] == total
    else:
        assert np.array_equal(out / lattice, np.rint(out / lattice))
        assert all(abs(Fraction(float(a)) - b) <= Fraction(lattice) / 2 for a, b in zip(out[0], total, strict=True))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [0.05, 0.7, 100.0])
def test_sums_are_those_of_plain_arithmetic_up_to_rounding(model: Mlp, clip: float) -> None:
    rng = np.random.default_rng(6)
    data = Dataset(rng.normal(size=(50, model.features)), rng.integers(0, model.classes, 50), model.classes)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    parameters = rng.normal(size=(1, engine.dimension)) / np.sqrt(model.features)
    plain, exact = np.empty_like(parameters), np.empty_like(parameters)
    engine.clipped_sums(parameters, [np.arange(50)], np.array([clip]), plain)
    engine.lattice_sums(parameters, [np.arange(50)], np.array([clip]), [0.0], exact)
    resolution = 2.0**-26 * clip * np.sqrt(engine.dimension)  # of a share; noise is at least 2^-10 of clip * the root
    assert np.linalg.norm(plain - exact) < 2e-4 * np.linalg.norm(plain) + 50 * resolution


def test_a_secure_step_with_and_without_a_record_differs_by_at_most_the_clip_norm() -> None:
    """The whole step, rounding to the lattice included, with noise as coarse as the margin allows."""
    model, clip = Mlp(20, 4, (16, 8), "relu"), 0.8
    data = records(200, model)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    rng = np.random.default_rng(7)
    scale = 2.0**12 * clip
    noise = SecureNoise(Randomness.rehearsal(1), engine.dimension)
    limit = np.array([clip - noise.margin(engine.dimension, scale, clip)])
    assert 0 < limit[0] < 0.95 * clip
    lattice = SecureNoise.lattice(scale)
    parameters = rng.normal(size=(1, engine.dimension))
    ends = []
    for batch in (np.arange(200), *(np.delete(np.arange(200), record) for record in range(0, 200, 3))):
        out = np.empty_like(parameters)
        engine.lattice_sums(parameters, [batch], limit, [lattice], out)
        noise.add(out[0], scale, 0)
        ends.append(out[0])
    moves = np.linalg.norm(np.stack(ends[1:]) - ends[0], axis=1)
    assert 0 < moves.max() <= clip


def test_a_unit_at_its_kink_does_not_see_who_else_is_in_the_batch() -> None:
    """In double precision a peer can flip the sign of a unit's last bit, and with it another record's gradient.

    Such units are looked for and their biases put on the kink; then one record more may move the sum by more than the
    clip norm in plain arithmetic (1.73 times where this was written), but not in whole numbers.
    """
    model, rng = Mlp(784, 2, (8,), "relu"), np.random.default_rng(0)
    data = Dataset(rng.normal(size=(61, 784)), rng.integers(0, 2, 61), 2)
    engine = NumpyEngine(model, double=True)
    engine.bind(data)
    parameters = 0.3 * rng.normal(size=(1, engine.dimension))
    rows, weight = data.x[None].transpose(0, 2, 1), parameters[:, : 784 * 8].reshape(1, 784, 8).transpose(0, 2, 1)
    found = 0
    for size in (1, 2, 5, 11, 40):
        few, more = (np.matmul(weight, np.ascontiguousarray(rows[:, :, :n]))[0] for n in (size, size + 1))
        for unit in np.flatnonzero((few != more[:, :size]).any(axis=1)):
            record = np.flatnonzero(few[unit] != more[unit, :size])[0]
            kink = parameters.copy()
            kink[0, 784 * 8 : 785 * 8] = -1e3
            kink[0, 784 * 8 + unit] = -min(few[unit, record], more[unit, record])
            kink[0, 785 * 8 : 785 * 8 + 16] *= 30.0
            found += 1
            out = np.empty((2, engine.dimension))
            for row, batch in enumerate((np.arange(size), np.arange(size + 1))):
                engine.lattice_sums(kink, [batch], np.ones(1), [0.0], out[row : row + 1])
            assert np.linalg.norm(out[1] - out[0]) <= 1.0
    if not found:
        pytest.skip("this matrix library gives a record the same bits in every batch tried")


SCRIPT = """
import hashlib, numpy as np
from dptune.training.benchmark_data import Dataset
from dptune.training.models import Mlp
from dptune.training.numpy_engine import NumpyEngine
rng = np.random.default_rng(0)
for activation in ("relu", "tanh"):
    engine = NumpyEngine(Mlp(784, 10, (33, 17), activation), double=True)
    engine.bind(Dataset(rng.integers(-999, 999, (301, 784)) / 512, rng.integers(0, 10, 301), 10))
    out, parameters = np.empty((2, 1, engine.dimension)), rng.integers(-999, 999, (1, engine.dimension)) / 4096
    engine.lattice_sums(parameters, [np.arange(301)], np.ones(1), [0.0], out[0])
    print(hashlib.sha256(out[0].tobytes()).hexdigest())
"""


def test_other_matrix_kernels_give_the_same_bits() -> None:
    """OpenBLAS adds in another order on an old processor; elsewhere the variable has no effect."""
    answers = set()
    for kind in (None, "Prescott"):
        environment = dict(os.environ) if kind is None else {**os.environ, "OPENBLAS_CORETYPE": kind}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        answers.add(done.stdout)
    assert len(answers) == 1


@pytest.mark.parametrize("noise", [0.0, 2.0**-10])
def test_secure_runs_follow_the_plain_ones(noise: float) -> None:
    model = Mlp(20, 3, (16,), "tanh")
    rng = np.random.default_rng(8)
    data = Dataset(rng.normal(size=(400, 20)), rng.integers(0, 3, 400), 3)
    plain = Settings(0.1, 0.0, 60, 0.5, 0.5, 40.0)
    secure = dataclasses.replace(plain, noise_multiplier=noise, secure=True)
    key = Randomness.rehearsal(2)
    engine = NumpyEngine(model, double=True)
    one = descend(engine, data, [secure], [key])[0]
    two = descend(NumpyEngine(model, double=True), data, [plain], [key])[0]
    assert 0 < np.linalg.norm(one - two) < 0.01 * np.linalg.norm(two - engine.start(key))


def test_diverged_parameters_give_empty_sums_of_finite_numbers() -> None:
    model = MODELS[2]
    engine = NumpyEngine(model, double=True)
    engine.bind(records(20, model))
    for bad in (np.nan, np.inf, -np.inf):
        parameters, out = np.ones((2, engine.dimension)), np.full((2, engine.dimension), np.nan)
        parameters[0, 3] = bad
        engine.lattice_sums(parameters, [np.arange(20)] * 2, np.array([1.0, 1.0]), [0.0] * 2, out)
        assert np.isfinite(out).all()
        alone_out = np.empty((1, engine.dimension))
        engine.lattice_sums(parameters[1:], [np.arange(20)], np.array([1.0]), [0.0], alone_out)
        assert np.array_equal(out[1], alone_out[0])


def test_what_does_not_fit_the_bits_is_refused() -> None:
    with pytest.raises(InvalidInput, match="narrower than 262144"):
        FixedPoint(softmax(2**18, 2))
    FixedPoint(softmax(2**18 - 1, 2))
    with pytest.raises(InvalidInput, match="scale and temperature between"):
        FixedPoint(Mlp(3, 2, (2,), Activation("tempered_sigmoid", 1e9, 1.0, 0.0)))
    far = Activation("tempered_sigmoid", 1.0, 1.0, -(2.0**19))
    FixedPoint(Mlp(3, 2, (2,), far))
    with pytest.raises(InvalidInput, match=r"activations of at most 2\^19; this one reaches 2\^20"):
        FixedPoint(Mlp(2**14, 2, (2,), far))  # wide layers leave fewer bits


def test_the_number_of_records_is_no_reason_to_fail() -> None:
    """It is private. A sum that leaves the bits is taken modulo 2^53 lattice steps."""
    model = softmax(1, 2)
    engine = NumpyEngine(model, double=True)
    engine.bind(Dataset(np.ones((2, 1)), np.array([0, 1]), 2))
    parameters, lattice = np.zeros((1, 4)), 2.0**-31
    share, out = np.empty((1, 4)), np.empty((1, 4))
    engine.lattice_sums(parameters, [np.zeros(1, np.int64)], np.ones(1), [0.0], share)
    for size in (2**21, 2**21 + 5, 5 * 2**21):
        engine.lattice_sums(parameters, [np.zeros(size, np.int64)], np.ones(1), [lattice], out)
        steps = [Fraction(float(one)) * size * 2**40 for one in share[0]]  # in units of 2^-40
        rounded = [(int(one) + 2**8) // 2**9 for one in steps]
        assert out[0].tolist() == [((one + 2**52) % 2**53 - 2**52) * lattice for one in rounded]


def test_a_short_batch_is_treated_beside_a_long_one_as_it_is_alone() -> None:
    model, rng = softmax(3, 2), np.random.default_rng(12)
    engine = NumpyEngine(model, double=True)
    engine.bind(Dataset(rng.normal(size=(6000, 3)), rng.integers(0, 2, 6000), 2))
    parameters, short = rng.normal(size=(2, engine.dimension)), np.arange(100)
    together, apart = np.empty_like(parameters), np.empty((1, engine.dimension))
    engine.lattice_sums(parameters, [short, np.arange(5000)], np.ones(2), [2.0**-20] * 2, together)
    engine.lattice_sums(parameters[:1], [short], np.ones(1), [2.0**-20], apart)
    assert np.array_equal(together[0], apart[0])
