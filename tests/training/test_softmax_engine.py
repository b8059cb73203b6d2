"""Engine E, the one pass over wide records, against formulas in double precision, on every instruction set."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.training.sensitivity import check, records
from tests.training.test_network_rules import by_rule

from dptune import _memory
from dptune._places import part_of
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.randomness import Randomness
from dptune.training import Automatic, DpSgdTrainer, PerLayer, Quantile, Settings, softmax, softmax_engine
from dptune.training._compiled import kernel
from dptune.training._formula import Formula
from dptune.training.clipping import Clipping, Flat
from dptune.training.engines import engine_for
from dptune.training.models import Mlp, Regression
from dptune.training.numpy_engine import NumpyEngine
from dptune.training.ruled_sums import RuledSums
from dptune.training.softmax_engine import SoftmaxEngine
from dptune.units import UnitDataset

pytestmark = pytest.mark.skipif(kernel is None, reason="the kernels are not compiled")
SHAPES = [(1, 2), (15, 3), (16, 4), (17, 5), (511, 2), (513, 6), (1030, 10), (2050, 16)]


def drawn(count: int, features: int, classes: int, seed: int = 0) -> tuple[Dataset, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, features)).astype(np.float32) * rng.choice([0.1, 1.0, 4.0], (count, 1)).astype("f4")
    flat = rng.normal(size=(features + 1) * classes) / np.sqrt(features)
    return Dataset(x, rng.integers(0, classes, count), classes), flat.astype(np.float32)


def gradients(data: Dataset, flat: np.ndarray) -> np.ndarray:
    """Every record's gradient by the textbook, in double precision."""
    inputs = np.column_stack([data.x.astype(np.float64), np.ones(len(data))])
    outputs = inputs @ flat.astype(np.float64).reshape(inputs.shape[1], data.classes)
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(data)), data.y] -= 1.0
    return np.asarray((inputs[:, :, None] * shares[:, None, :]).reshape(len(data), len(flat)))


def summed(engine: Any, data: Dataset, flat: np.ndarray, clip: float, batch: Any = None) -> np.ndarray:
    engine.bind(data)
    known = engine.dressed(flat) if isinstance(engine, RuledSums) else flat
    out = np.empty((1, len(known)), np.float32)
    engine.clipped_sums(known[None], [np.arange(len(data)) if batch is None else batch], np.array([clip]), out)
    return np.asarray(out[0], np.float64)


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("count", [0, 1, 16, 21, 1100])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_equal_the_textbook(shape: tuple[int, int], count: int) -> None:
    data, flat = drawn(count, *shape)
    each = gradients(data, flat)
    for clip in (0.01, 1.0, 1e5):
        factors = np.minimum(1.0, clip / np.maximum(np.linalg.norm(each, axis=1), 1e-300))
        expected = factors @ each if count else np.zeros(len(flat))
        found = summed(SoftmaxEngine(Mlp(*shape)), data, flat, clip)
        lengths = np.sqrt(1.0 + np.square(data.x.astype(np.float64)).sum(axis=1))  # outputs round by what goes in
        assert np.linalg.norm(found - expected) <= 1e-6 * (factors * lengths).sum()


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("rule", [Automatic(), Automatic(0.3), Quantile(), Quantile(0.8, 0.5, 0.3)], ids=repr)
@pytest.mark.parametrize("shape", [(17, 2), (1030, 10)])
def test_rules_equal_the_textbook(shape: tuple[int, int], rule: Clipping) -> None:
    data, flat = drawn(40, *shape)
    each, engine = gradients(data, flat), RuledSums(engine_for(Mlp(*shape), rule=rule), rule)
    assert isinstance(engine.engine, SoftmaxEngine)
    for clip in (0.1, 3.0):
        expected = by_rule(each, [len(flat)], clip, clip, rule)
        np.testing.assert_allclose(summed(engine, data, flat, clip), expected, rtol=1e-4, atol=2e-5 * clip)


@pytest.mark.parametrize("shape", [(700, 3), (1030, 3), (5, 3)])
def test_one_record_moves_a_sum_by_the_clip_norm(shape: tuple[int, int]) -> None:
    check(lambda: SoftmaxEngine(Mlp(*shape)), records(*shape))
    for rule in (Automatic(), Quantile()):
        check(lambda rule=rule: RuledSums(engine_for(Mlp(*shape), rule=rule), rule), records(*shape))  # type: ignore[misc]


def test_one_record_more_does_not_shift_how_a_long_sum_is_rounded() -> None:
    """Records in an order for which every part's sum would round the other way after one that is put before them."""
    fine, parts, width = 2.0**-15, 117, 64
    halves = np.full((parts, 512), 0.5 - 64 * fine)  # sums of 512 of these are exact in single precision
    halves[:, -1] = 0.5 - fine * (300 + 2 * np.arange(parts))  # what a part gains from the one before it
    total = np.float32(0)
    for row in halves:  # every part ends just below half a step of the total
        step = float(np.spacing(np.float32(total + row.sum())))
        left = round((step / 2 - fine - (total + row.sum()) % step) / fine) if step > 4 * fine else 0
        np.add.at(row, 1 + np.arange(abs(left)) % 500, np.sign(left) * fine)
        total = np.float32(total + np.float32(row.sum()))
    x = np.repeat(2 * np.append(halves.ravel(), 0.5).astype(np.float32)[:, None], width, 1)
    data, clip = Dataset(x, np.zeros(len(x), int), 2), float(np.sqrt(0.5 * (1 + width)))
    flat, rest = np.zeros((width + 1) * 2, np.float32), np.arange(len(x) - 1)
    engine = SoftmaxEngine(Mlp(width, 2))
    moved = summed(engine, data, flat, clip, np.insert(rest, 0, len(x) - 1)) - summed(engine, data, flat, clip, rest)
    assert 0.9 < np.linalg.norm(moved) / clip <= 1.0 + 1e-3  # it was 1.27


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize(("together", "parts"), [(512, 64), (16, 512), (4, 2048)])
def test_one_record_more_does_not_turn_how_sums_at_a_power_of_two_are_rounded(together: int, parts: int) -> None:
    """Sums that wait just below a power of two, with one record more above it: there every addition is a tie."""
    width, top = 64, together // 2
    ramp, rest = np.append(np.ones(top - 1), 0.25), together - top
    waiting = np.resize([0.5, -0.5], rest) - 2.0 ** (int(np.log2(top)) - 24)
    waiting[-1] = 1.0
    values = np.append(np.tile(np.append(ramp, waiting), parts), 1.0)
    x = np.repeat((2 * values).astype(np.float32)[:, None], width, 1)
    data, clip = Dataset(x, np.zeros(len(x), int), 2), float(np.sqrt(0.5 * (1 + width * 4.0)))
    flat, others = np.zeros((width + 1) * 2, np.float32), np.arange(len(x) - 1)
    engine = SoftmaxEngine(Mlp(width, 2))
    engine.bind(data)
    rule = Formula(clip, 0.0, clip)
    moved = (
        engine.formula_sum(flat, np.insert(others, 0, len(x) - 1), rule, 0.0)[0]
        - engine.formula_sum(flat, others, rule, 0.0)[0]
    )
    assert 0.9 < np.linalg.norm(moved) / clip <= 1.0 + 1e-3  # sums of 512 in single precision made it 1.25


def test_a_part_of_large_records_is_trained_on_without_the_rest() -> None:
    data, flat = drawn(700, 1030, 3)
    places = np.random.default_rng(5).permutation(700)[:200]
    part, copied = part_of(data, places), data.take(places)
    for batch in (np.arange(200), np.array([3, 150, 7])):
        found = [summed(SoftmaxEngine(Mlp(1030, 3)), one, flat, 1.0, batch) for one in (part, copied)]
        assert np.array_equal(found[0], found[1])
        assert found[0].any()


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf, 1e39, 3e38, 2e19])
def test_a_record_whose_gradient_overflows_adds_nothing(wild: float) -> None:
    data, flat = drawn(40, 100, 4)
    for place, column in ((0, 0), (17, 50), (39, 99)):
        rest, engine = np.delete(np.arange(40), place), SoftmaxEngine(Mlp(100, 4))
        engine.bind(data)
        engine._x = data.x.copy()  # data sets hold finite features; in double precision they may be larger
        with np.errstate(over="ignore"):
            engine._x[place, column] = wild
        found, without = summed(engine, data, flat, 1.0), summed(engine, data, flat, 1.0, rest)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, without, rtol=1e-5, atol=1e-5)
        _, norms = engine.formula_sum(flat, np.arange(40), Formula(1.0, 0.0, 1.0), 0.0)
        assert norms[place] == 0.0
        assert (np.delete(norms, place) > 0.0).all()


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("classes", [2, 10])
def test_no_share_is_longer_than_a_small_clip_norm(classes: int) -> None:
    """A huge input and a derivative whose square vanishes in single precision: their product is no small gradient."""
    worst = 0.0
    for filled in (4, 600):
        for large in (1e12, 1e16, 1.7e19):
            x = np.zeros((1, 600), np.float32)
            x[0, :filled] = large / filled
            data = Dataset(x, np.zeros(1, int), classes, public=True)
            for gap in np.linspace(20.0, 80.0, 61):  # the first class is right, by ever more
                flat = np.zeros((601, classes), np.float32)
                flat[0, 0] = gap / (large / filled)
                for clip in (1e-2, 1e-6):
                    share = summed(SoftmaxEngine(Mlp(600, classes)), data, flat.ravel(), clip)
                    worst = max(worst, float(np.linalg.norm(share)) / clip)
    assert 0.9 < worst <= 1.0 + 1e-6


@pytest.mark.usefixtures("instruction_set")
def test_parameters_that_are_not_finite_give_empty_sums() -> None:
    data, flat = drawn(40, 33, 3)
    for place in (0, 50, len(flat) - 1):
        for bad in (np.inf, np.nan):
            broken = flat.copy()
            broken[place] = bad
            assert not summed(SoftmaxEngine(Mlp(33, 3)), data, broken, 1.0).any()


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_share_has_the_same_bits_in_every_place(shape: tuple[int, int]) -> None:
    assert softmax_engine._steady(softmax_engine._like(shape[0]), shape[1])


def test_the_check_of_a_build_sees_every_loop_of_a_wide_model() -> None:
    assert [softmax_engine._like(width) for width in (5, 1024, 1025, 7776, 8192 + 15)] == [5, 1024, 1025, 1024, 1039]


@pytest.mark.parametrize("place", [0, 15, 16, 32])
def test_the_check_of_a_build_sees_one_place_that_rounds_otherwise(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = SoftmaxEngine._sums

    def uneven(self: SoftmaxEngine, flat: Any, batch: Any, formula: Formula) -> Any:
        total, norms = inner(self, flat, batch, formula)
        if len(norms) > place and len(norms) > 1:
            norms[place] = np.nextafter(norms[place], np.inf)
        return total, norms

    monkeypatch.setattr(SoftmaxEngine, "_sums", uneven)
    assert not softmax_engine._steady.__wrapped__(40, 3)


def test_a_build_that_rounds_by_place_takes_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    data, flat = drawn(40, 33, 3)
    rule, engine = Formula(1.0, 0.5, 0.5), SoftmaxEngine(Mlp(33, 3))
    engine.bind(data)
    together, norms = engine.formula_sum(flat, np.arange(40), rule, 0.0)
    sizes: list[int] = []
    inner = SoftmaxEngine._sums

    def counted(self: SoftmaxEngine, flat: Any, batch: Any, formula: Formula) -> Any:
        sizes.append(len(batch))
        return inner(self, flat, batch, formula)

    monkeypatch.setattr(softmax_engine, "_steady", lambda *_: False)
    monkeypatch.setattr(SoftmaxEngine, "_sums", counted)
    alone, each = engine.formula_sum(flat, np.arange(40), rule, 0.0)
    assert sizes == [1] * 40
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(each, norms)
    empty, none = engine.formula_sum(flat, np.arange(0), rule, 0.0)
    assert not empty.any()
    assert len(none) == 0


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8])
def test_bits_depend_neither_on_threads_nor_on_how_records_lie(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, flat = drawn(1500, 1030, 3)
    x = np.abs(data.x * 20).astype(np.uint8) if kind is np.uint8 else data.x.astype(kind)
    wide = np.repeat(x, 2, axis=1)

    def found(threads: int, rows: Any) -> bytes:
        engine = SoftmaxEngine(Mlp(1030, 3), threads=threads)
        return summed(engine, Dataset(rows, data.y, 3), flat, 0.5, np.arange(0, 1500, 2)).tobytes()

    first = found(1, x)
    monkeypatch.setattr(_memory, "MANY", 1)
    assert {found(threads, rows) for threads in (1, 2, 3) for rows in (x, wide[:, ::2])} == {first}


def test_trainings_have_the_same_bits_with_several_threads() -> None:
    data, _ = drawn(1500, 1030, 3)
    settings = Settings(0.8, 1.0, steps=3, clip_norm=0.7, learning_rate=0.5, batch_size=1200)
    bits = set()
    for clipping in ("flat", "automatic", "quantile"):
        for threads in (1, 2):
            trainer = DpSgdTrainer(softmax(1030, 3), Settings(**{**vars(settings), "clipping": clipping}))
            model = trainer.with_threads(threads).fit({}, data, Randomness.rehearsal(1)).model
            bits.add(model.parameters.tobytes())
    assert len(bits) == 3


def test_it_is_chosen_where_it_is_the_fastest() -> None:
    wide, narrow = softmax(2000, 10), softmax(100, 10)
    assert isinstance(engine_for(wide), SoftmaxEngine)
    assert isinstance(engine_for(narrow), NumpyEngine)
    assert isinstance(engine_for(narrow, rule=Automatic()), SoftmaxEngine)
    assert isinstance(engine_for(narrow, rule=Quantile()), SoftmaxEngine)
    others = (
        engine_for(wide, engine="numpy"),
        engine_for(wide, double=True),
        engine_for(wide, rule=PerLayer()),
        engine_for(wide, rule=Automatic(0.0)),
        engine_for(softmax(2000, 17)),
        engine_for(softmax(70000, 2)),
        engine_for(Mlp(2000, 2, (5,))),
        engine_for(Regression(2000, target_range=(0.0, 1.0)), numbers=True),
    )
    assert all(isinstance(one, NumpyEngine) for one in others)
    for model in (Mlp(2000, 2, (5,)), softmax(2000, 17), softmax(70000, 2)):
        with pytest.raises(InvalidInput, match="engine='numpy'"):
            SoftmaxEngine(model)
    with pytest.raises(InvalidInput, match="neither exact sums"):
        SoftmaxEngine(wide).formula_sum(np.zeros(20010, np.float32), np.arange(0), Formula(1.0, 0.0, 1.0), 1.0)


def test_units_and_secure_noise_are_left_to_numpy() -> None:
    data, _ = drawn(60, 1030, 3)
    settings = Settings(0.5, 1.0, steps=2, clip_norm=0.7, learning_rate=0.5, batch_size=30)
    for clipping in ("flat", "automatic"):
        changed = Settings(**{**vars(settings), "clipping": clipping})
        units = UnitDataset(data, np.arange(60) % 20, 3)
        assert DpSgdTrainer(softmax(1030, 3), changed)._engine(softmax(1030, 3), [changed], units).dtype is np.float64
        secured = Settings(**{**vars(changed), "secure": True})
        model = DpSgdTrainer(softmax(1030, 3), secured).fit({}, data, Randomness.rehearsal(1)).model
        assert np.isfinite(model.parameters).all()


def test_records_of_another_kind_are_refused() -> None:
    data, _ = drawn(20, 1030, 3)
    for model, why in ((softmax(1031, 3), "1031 features"), (softmax(1030, 4), "4 classes")):
        with pytest.raises(InvalidInput, match=why):
            SoftmaxEngine(model).bind(data)


def test_outputs_and_first_parameters_are_those_of_numpy() -> None:
    data, flat = drawn(20, 1030, 3)
    engine, plain = SoftmaxEngine(Mlp(1030, 3)), NumpyEngine(Mlp(1030, 3))
    assert engine.logits(flat, data.x).tobytes() == plain.logits(flat, data.x).tobytes()
    assert not engine.start(Randomness.rehearsal(1)).any()
    assert engine.layer_places[0].tolist() == list(range(engine.dimension))


def test_the_kernel_refuses_what_does_not_fit() -> None:
    x, y, p = np.zeros((4, 5), np.float32), np.zeros(4, np.int64), np.zeros(18, np.float32)
    room, out, norms = np.empty(kernel.softmax_room(5, 3), np.uint8), np.empty(18), np.empty(4)

    def call(**changes: Any) -> None:
        given = {"p": p, "x": x, "y": y, "index": np.arange(4), "features": 5, "classes": 3, "rule": (1.0, 0.0, 1.0)}
        given |= {"room": room, "out": out, "norms": norms}
        kernel.softmax_sum(*(given | changes).values())

    call()
    for bad in (4, -1, 2**40):
        with pytest.raises(IndexError):
            call(index=np.array([0, bad, 0, 0]))
        with pytest.raises(IndexError):
            call(y=np.array([0, bad, 0, 0]))
    for name in ("p", "x", "room", "out", "norms"):
        with pytest.raises(ValueError, match="bytes, needs"):
            call(**{name: {"p": p, "x": x, "room": room, "out": out, "norms": norms}[name].ravel()[:-1].copy()})
    for shape in ((0, 3), (5, 0), (5, 17), (65536, 2), (-1, 2)):
        with pytest.raises(ValueError, match=r"features|regression"):
            kernel.softmax_room(*shape)
        with pytest.raises(ValueError, match="regression"):
            call(features=shape[0], classes=shape[1])
    for rule in ((np.nan, 0.0, 1.0), (np.inf, 0.0, 1.0), (-1.0, 0.0, 1.0), (1.0, -1.0, 1.0), (1.0, 0.0, 0.0)):
        with pytest.raises(ValueError, match="regression"):
            call(rule=rule)


GUARDED = """
import ctypes, mmap, sys
import numpy as np
from dptune.training._compiled import kernel

kernel.instructions(sys.argv[1])
page = mmap.PAGESIZE
for features in (5, 16, 33, 1029):
    for classes in (2, 7, 16):
        arrays = []
        for count in (40 * features, (features + 1) * classes):
            size = -(-4 * count // page) * page
            room = mmap.mmap(-1, size + page)
            begin = ctypes.addressof(ctypes.c_char.from_buffer(room))
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin + size), page, mmap.PROT_READ * 0) == 0
            arrays.append(np.frombuffer(room, np.float32, count, size - 4 * count))
            arrays[-1][:] = 0.5
        x, p = arrays
        x[:features] = np.inf
        room, out = np.empty(kernel.softmax_room(features, classes), np.uint8), np.empty(p.size)
        given = (np.zeros(40, np.int64), np.arange(40), features, classes, (1.0, 0.0, 1.0), room, out, np.empty(40))
        kernel.softmax_sum(p, x, *given)
print("alive")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page by mprotect")
def test_nothing_behind_records_and_parameters_is_read(instruction_set: str) -> None:
    """A page that must not be touched lies behind them: a process that does dies."""
    ended = subprocess.run(
        [sys.executable, "-c", GUARDED, instruction_set], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr


@pytest.mark.usefixtures("instruction_set")
def test_nothing_depends_on_memory_that_was_not_written(poison: str) -> None:
    data, flat = drawn(30, 1030, 3)
    assert 0.0 < float(np.linalg.norm(summed(SoftmaxEngine(Mlp(1030, 3)), data, flat, 1.0))) <= 30.0


def test_flat_is_a_rule_it_knows() -> None:
    assert softmax_engine.suits(softmax(2000, 2), Flat())
    assert not softmax_engine.suits(softmax(1024, 2), Flat())
    assert not softmax_engine.suits("a model", Flat())
