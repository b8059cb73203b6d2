"""``tune`` with the data first: what is declared is enough, what is not is refused before anything is charged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dptune import tune
from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.methods import Budget
from dptune.planner import default_space, default_trainer
from dptune.planner.incoming import Declared, bring_in
from dptune.sealed.reading import read_vault
from dptune.tables import Number, Schema, Target, read_schema, read_table

ROWS = 1200
SCHEMA = Schema(1000, (Number("a", -3, 3), Number("b", -3, 3), Target("y", ("no", "yes"))))
BUDGET: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-4, "explain": None}


def _records(rows: int = ROWS) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 2))
    return x, np.where(x[:, 0] - x[:, 1] > 0, "yes", "no")


def _csv(path: Path, extra: str = "") -> Path:
    x, y = _records()
    rows = "".join(f"{a:.3f},{b:.3f},{label}\n" for (a, b), label in zip(x, y, strict=True))
    path.write_text("a,b,y\n" + rows + extra)
    return path


def test_a_csv_and_a_schema_are_enough(tmp_path: Path) -> None:
    path = _csv(tmp_path / "toy.csv", "broken\n9,0,maybe\n")
    (tmp_path / "toy.toml").write_text(
        'version = 1\nrecords = 1000\n[columns.a]\nkind = "number"\nrange = [-3, 3]\n'
        '[columns.b]\nkind = "number"\nrange = [-3, 3]\n[columns.y]\nkind = "target"\nclasses = ["no", "yes"]\n'
    )
    assert read_schema(tmp_path / "toy.toml") == SCHEMA
    release = tune(path, schema=tmp_path / "toy.toml", dataset="toy-2026", out=tmp_path / "run", **BUDGET)
    assert release.dataset == "toy-2026"
    assert release.epsilon is not None
    assert release.epsilon <= 3
    assert release.model.accuracy(read_table(path, SCHEMA).data) > 0.8
    told = json.dumps(release.details) + release.statement
    assert "maybe" not in told
    assert "broken" not in told
    assert "repairs" not in told
    repairs = read_vault(tmp_path / "run", "a test").notes["repairs"]  # in the vault alone
    assert (repairs["malformed rows"], repairs["a"], repairs["y"]) == (1, 3, 2)


def test_every_kind_of_data_is_brought_in(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = _records()
    frame = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y})
    np.savez(tmp_path / "toy.npz", x=x, y=(y == "yes").astype(int))
    arrays = {"records": 1000, "classes": ["no", "yes"]}
    given: list[tuple[Any, dict[str, Any]]] = [
        (frame, {"schema": SCHEMA}),
        ((frame[["a", "b"]], frame["y"]), {"schema": SCHEMA}),
        ((x, y), arrays),
        ((sparse.csr_matrix(x), y), arrays),
        ((x, (y == "yes").astype(int)), {"records": 1000, "classes": 2}),
        (tmp_path / "toy.npz", {"records": 1000, "classes": 2}),
        (Dataset(x, (y == "yes").astype(int), 2), {"records": 1000}),
    ]
    for data, said in given:
        brought = bring_in(data, Declared(**said), None)
        assert brought.records == 1000
        assert (brought.data.x.shape, brought.data.classes, brought.data.public) == ((ROWS, 2), 2, False)
        assert brought.data.y.tolist() == (y == "yes").astype(int).tolist()


@pytest.mark.parametrize("case", range(11))
def test_private_data_without_declared_figures_is_refused(case: int, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = _records(20)
    frame = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y})
    path = _csv(tmp_path / "toy.csv")
    np.savez(tmp_path / "toy.npz", x=x, y=np.zeros(20))
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (path, {}, "dptune schema draft"),
        (frame, {}, "dptune.tables.draft"),
        (frame, {"target": "y"}, "dptune.tables.draft"),
        ((x, y), {"records": 20}, "needs 'classes'"),
        ((x, y), {"classes": 2}, "needs 'records'"),
        (tmp_path / "toy.npz", {"records": 20}, "needs 'classes'"),
        (Dataset(x, np.zeros(20, int), 2), {}, "needs 'records'"),
        (path, {"schema": SCHEMA, "records": 20}, "in the schema already"),
        (path, {"schema": SCHEMA, "classes": 2}, "the schema's target"),
        ([1, 2, 3], {"records": 3}, "or a dptune Dataset; got list"),
        (path, {"data_is": "public"}, "needs its 'target'"),
    ]
    data, said, line = cases[case]
    with pytest.raises(InvalidInput) as error:
        tune(data, out=tmp_path / "run", **said, **BUDGET)
    assert line in str(error.value)
    assert not (tmp_path / "run").exists()


def test_tensors_are_taken_with_the_shape_that_they_have() -> None:
    torch = pytest.importorskip("torch")
    x, y = _records()
    data = torch.utils.data.TensorDataset(torch.tensor(x).reshape(-1, 1, 2), torch.tensor(y == "yes"))
    brought = bring_in(data, Declared(records=1000, classes=2), None).data
    assert brought.shape == (1, 2)
    assert brought.flat.x.tolist() == x.tolist()
    assert brought.y.tolist() == (y == "yes").astype(int).tolist()


def test_public_data_may_be_inferred(tmp_path: Path) -> None:
    for data, target in ((_csv(tmp_path / "toy.csv"), "y"), (_records(), None)):
        brought = bring_in(data, Declared(target=target, public=True), None)
        assert (brought.records, brought.data.classes) == (ROWS, 2)
    release = tune(_records(), out=tmp_path / "arrays", seed=1, data_is="public", **BUDGET)
    assert release.model.predict(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)).tolist() == [1, 0]


def test_a_trainer_needs_a_space_and_gets_what_it_takes() -> None:
    trainer = default_trainer(2, 2, 1000)
    with pytest.raises(InvalidInput, match="needs a 'space'"):
        tune(_records(), records=1000, classes=["no", "yes"], trainer=trainer, **BUDGET)
    brought = bring_in(_records(), Declared(classes=["no", "yes"]), trainer)
    assert isinstance(brought.data, Dataset)
    assert brought.records is None  # the trainer says it
    own = bring_in([1, 2, 3], Declared(), object())
    assert own.data == [1, 2, 3]
    declared = bring_in(_records(), Declared(classes=["no", "yes"], records=1000), object())
    assert isinstance(declared.data, Dataset)
    assert declared.records == 1000
    pair = _records()
    assert bring_in(pair, Declared(records=1000), object()).data is pair


def test_defaults_follow_from_public_figures_alone() -> None:
    for records, batch in ((100, 25), (1000, 250), (5000, 256), (32_000, 1000), (10**6, 31_250)):
        settings = default_trainer(5, 3, records).settings
        assert settings.batch_size == batch
        assert settings.sampling_rate == batch / records
    assert default_space().names == ("learning_rate",)


def test_arrays_with_units_are_tuned_by_unit(tmp_path: Path) -> None:
    x, y = _records()
    units = np.arange(ROWS) % 400
    given: dict[str, Any] = {
        "units": units,
        "unit_rows": 3,
        "unit": "patient",
        "records": 400,
        "classes": ["no", "yes"],
    }
    release = tune((x, y), dataset="icu", out=tmp_path / "run", **given, **BUDGET)
    assert "one patient: all rows under the same key, of which at most 3 take part" in release.statement
    assert release.details["neighbours"] == "add or remove one patient"
    assert np.mean(release.model.predict(x) == (y == "yes")) > 0.8


def test_public_units_are_counted(tmp_path: Path) -> None:
    brought = bring_in(_records(), Declared(public=True, units=[1, 2, 3, None] * 300, unit_rows=5), None)
    assert (len(brought.data), brought.records, len(brought.data.rows)) == (3, 3, 15)


@pytest.mark.parametrize(
    ("declared", "data", "said"),
    [
        (Declared(records=9, classes=["no", "yes"], units=[1] * ROWS), _records(), "need 'unit_rows'"),
        (Declared(records=9, classes=["no", "yes"], units=[1], unit_rows=2), _records(), "one key for each row"),
        (
            Declared(records=9, classes=["no", "yes"], units=7, unit_rows=2),
            _records(),
            "'units' must be a list or an array",
        ),
        (Declared(records=9, classes=["no", "yes"], unit_rows=2), _records(), "give both"),
        (Declared(schema=SCHEMA, units=[1] * ROWS, unit_rows=2), _records(), "name the column in the schema"),
        (Declared(records=9, units=[1], unit_rows=2), Dataset(np.zeros((1, 2)), np.array([0]), 2), "UnitDataset"),
    ],
)
def test_units_that_are_not_declared_well_are_one_line(declared: Declared, data: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        bring_in(data, declared, None)


def test_a_weak_budget_is_said_to_be_one(tmp_path: Path) -> None:
    for budget, word in (((3.0, 0.01), "Delta 0.01 is a weak promise for about 1200"), ((50.0, 1e-5), "Epsilon 50")):
        told: list[str] = []
        given: dict[str, Any] = {"epsilon": budget[0], "delta": budget[1], "explain": told.append}
        tune(_records(), out=tmp_path / word[:5], seed=1, data_is="public", **given)
        assert any(line.startswith(word) for line in told)
    assert Budget(3.0, 1e-5).doubts(1200) == ()
