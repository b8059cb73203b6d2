"""The projection to the box: never outside, sums to one, and really the nearest law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from dptune.errors import InvalidInput
from dptune.methods._machinery.projection import project, project_kl

Array = NDArray[np.float64]

laws = st.integers(1, 60).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(0, 1e6), min_size=n, max_size=n).filter(lambda w: sum(w) > 1e-3),
        st.lists(st.floats(1e-3, 1), min_size=n, max_size=n),
    )
)
boxes = st.tuples(st.floats(0.01, 1 - 1e-6), st.floats(1 + 1e-6, 50))


@settings(max_examples=200)
@given(laws, boxes, st.sampled_from([0.0, 1e-3, 1.0, 1e3]))
def test_never_leaves_the_box(law: tuple[list[float], list[float]], box: tuple[float, float], penalty: float) -> None:
    pi, pi0 = np.array(law[0]), np.array(law[1]) / np.sum(law[1])
    found = project_kl(pi, pi0, box, penalty)
    # What is sampled is found / found.sum(): exactly that must be in the box.
    ratio = found / found.sum() / pi0
    assert (ratio >= box[0]).all()
    assert (ratio <= box[1]).all()
    assert found.sum() == pytest.approx(1, abs=1e-9)


def _brute(objective: str, pi: Array, pi0: Array, box: tuple[float, float], penalty: float) -> Array:
    def value(f: Array) -> float:
        squared = float(((f - pi) ** 2).sum())
        return squared if objective == "l2" else squared + penalty * float((pi * np.log(pi / f)).sum())

    bounds = [(box[0] * p, box[1] * p) for p in pi0]
    found = minimize(
        value,
        pi0,
        bounds=bounds,
        constraints={"type": "eq", "fun": lambda f: f.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return np.asarray(found.x)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("penalty", [0.0, 0.05, 1.0])
def test_agrees_with_a_general_solver(seed: int, penalty: float) -> None:
    rng = np.random.default_rng(seed)
    pi, pi0 = rng.dirichlet(np.full(7, 0.5)) + 1e-9, rng.dirichlet(np.full(7, 5.0))
    pi /= pi.sum()
    box = (0.5, 2.5)
    ours = project_kl(pi, pi0, box, penalty)
    theirs = _brute("l2" if penalty == 0 else "kl", pi, pi0, box, penalty)
    assert ours == pytest.approx(theirs, abs=2e-5)


def test_a_law_inside_the_box_stays() -> None:
    law = np.array([0.3, 0.25, 0.25, 0.2])
    assert project(law, np.full(4, 0.25), (0.5, 2)) == pytest.approx(law, abs=1e-12)


@pytest.mark.parametrize("box", [(1, 1), (1, 2), (0.5, 1), (1 - 1e-12, 1 + 1e-12)])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_no_room_means_the_prior(box: tuple[float, float], penalty: float) -> None:
    prior = np.array([0.7, 0.2, 0.1])
    assert project_kl(np.array([0.0, 0.0, 1.0]), prior, box, penalty).tolist() == prior.tolist()


@pytest.mark.parametrize("law", [[1.0, 2.0], [np.nan, 1, 1], [-1.0, 1, 1], [0.0, 0, 0]])
def test_refusals(law: list[float]) -> None:
    with pytest.raises(InvalidInput):
        project(np.array(law), np.full(3, 1 / 3), (0.5, 2))
