"""DP-HyPO on CIFAR-10 (Figure 1, middle): landscapes of 50 x 50 cells from a few real trainings and a Gaussian process.

At each of the paper's two noise levels a number of learning rates and clip norms is trained (Setting E.2), a Gaussian
process of scikit-learn (the paper: BoTorch) says mean and standard error of every cell, and scores are drawn from them.
CIFAR-10 is public, so nothing here is sealed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import qmc

from dptune._typing import Array
from dptune.randomness import Randomness
from dptune.reproductions._hypo_search import Landscape, adaptive_plan, gaps, searched, shown, uniform
from dptune.reproductions.kept import Kept
from dptune.reproductions.progress import Progress, silent
from dptune.reproductions.table import Cell, Plot, Table, Verdict, verdict
from dptune.spaces import Float, Space

if TYPE_CHECKING:
    from dptune.training.benchmark_data import Split

__all__ = ["FULL", "SMALL", "Scale", "fig1_cifar", "fitted"]

NOISE = {"GP": 0.65, "uniform": 0.6}  # appendix E.2
_RECORDS, _BATCH, _SIDE = 50_000, 256, 50
GRID = Space(lr=Float(1e-5, 1, log=True), clip=Float(2, 100)).grid(lr=_SIDE, clip=_SIDE)


@dataclass(frozen=True)
class Scale:
    """How much is computed: trainings for each landscape, their epochs, searches, and the largest T."""

    trainings: int = 50
    epochs: float = 1.0  # cut from two, and searches from 400, for time, before any full run
    searches: int = 200
    most: int = 50

    @property
    def steps(self) -> int:
        """Steps of one training."""
        return round(self.epochs * _RECORDS / _BATCH)


FULL, SMALL = Scale(), Scale(16, 0.6, 40, 30)


@lru_cache(maxsize=1)
def _cifar() -> Split:
    from dptune.training import load  # noqa: PLC0415 - slow imports

    return load("cifar-10")


def trained(noise: float, lr: float, clip: float, steps: int, seed: int) -> float:
    """The test accuracy of one private training: the network of the MNIST experiment with three colours."""
    from dptune.training import Cnn, DpSgdTrainer, Settings  # noqa: PLC0415 - slow imports
    from dptune.training.models import dp_hypo_cnn  # noqa: PLC0415 - the same

    split = _cifar()
    settings = Settings.from_batch(
        _BATCH, _RECORDS, noise_multiplier=noise, steps=steps, clip_norm=clip, learning_rate=lr
    )
    network = Cnn((3, 32, 32), 10, dp_hypo_cnn().layers, dense=(32,))
    trainer = DpSgdTrainer(network, settings, validation=split.test)
    return float(trainer.fit({}, split.train, Randomness.rehearsal(seed)).score)


def places(count: int) -> list[tuple[float, float]]:
    """Where to train: points that fill the square evenly (Sobol), the same for both noise levels."""
    unit = qmc.Sobol(2, scramble=True, seed=0).random_base2(max(0, int(np.ceil(np.log2(count)))))[:count]
    return [(float(10 ** (5 * u - 5)), float(2 + 98 * v)) for u, v in unit]


def fitted(points: Array, scores: Array, cells: Array) -> tuple[Array, Array]:
    """Mean and standard error of every cell by a Gaussian process with noise, coordinates in [0, 1]."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - slow imports
    from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415 - slow imports
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel  # noqa: PLC0415 - the same

    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern((0.3, 0.3), (0.05, 5.0), nu=2.5) + WhiteKernel(0.01, (1e-4, 1.0))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound says that one axis hardly matters
        model.fit(points, scores)
    mean, error = model.predict(cells, return_std=True)
    return np.clip(np.asarray(mean, dtype=float), 0.0, 1.0), np.asarray(error, dtype=float)


def landscapes(scale: Scale, say: Callable[[str], None], folder: Path | None) -> dict[str, Landscape]:
    """Both landscapes of 2,500 cells."""
    kept, where = Kept("hypo-cifar", folder), places(scale.trainings)
    progress = Progress(len(NOISE) * len(where), say)
    cells = GRID.encode(GRID.items)
    points = GRID.encode([{"lr": lr, "clip": clip} for lr, clip in where])
    found = {}
    for name, noise in NOISE.items():
        scores = []
        for i, (lr, clip) in enumerate(where):
            key = {"noise": noise, "lr": lr, "clip": clip, "steps": scale.steps}
            known = key in kept
            scores.append(kept.get(key, lambda lr=lr, clip=clip, i=i, noise=noise: trained(  # type: ignore[misc]
                noise, lr, clip, scale.steps, i)))  # fmt: skip
            said = f"noise {noise:g}, learning rate {lr:.2g}, clip {clip:.2g}: {scores[-1]:.3f}"
            progress.known() if known else progress.done(said)
        found[name] = Landscape(GRID, *fitted(np.asarray(points), np.array(scores), np.asarray(cells)))
    return found


def fig1_cifar(say: Callable[[str], None] = silent, *, scale: Scale = FULL, folder: Path | None = None) -> Table:
    """Accuracy of the released cell over a fixed number of runs, GP against uniform."""
    lands = landscapes(scale, say, folder)
    plan = adaptive_plan(GRID, scale.most)
    adaptive = searched(lands["GP"], plan, scale.most, scale.searches, say, Kept("hypo-cifar", folder))
    plain = uniform(lands["uniform"], scale.most, 10_000, np.random.default_rng(0))
    gap, error = gaps(adaptive, plain)
    rows: list[tuple[Cell, ...]] = [
        (t, float(plain[:, t - 1].mean()), float(adaptive[:, t - 1].mean()), float(gap[t - 1]), float(error[t - 1]))
        for t in shown(scale.most)
    ]
    x = [float(t) for t in range(1, scale.most + 1)]
    drawn = {"uniform": (x, plain.mean(axis=0).tolist()), "GP": (x, adaptive.mean(axis=0).tolist())}
    return Table(
        "DP-HyPO, Figure 1 (middle): accuracy of the released cell over fixed T, CIFAR-10",
        ("T", "uniform", "GP", "GP gain", "error"),
        rows,
        _notes(scale, lands),
        (*_verdicts(gap, error), _alike(lands)),
        Plot("T", "accuracy", drawn),
    )


def _notes(scale: Scale, lands: dict[str, Landscape]) -> tuple[str, ...]:
    worth = "; ".join(
        f"noise {NOISE[name]:g} ({name}): best cell {land.actual.max():.3f}, median {np.median(land.actual):.3f}, "
        f"standard errors {land.spread.min():.3f} to {land.spread.max():.3f}"
        for name, land in lands.items()
    )
    return (
        f"Landscapes of 50 x 50 cells: {worth}.",
        f"Cut: {scale.trainings} trainings a landscape (paper: 50) of {scale.epochs:g} epochs (paper: 10), "
        f"{scale.searches} adaptive searches (paper: 400) and 10,000 uniform ones; a Matern process of scikit-learn "
        "(paper: BoTorch). Learning rates run from 1e-5 to 1 as in the paper's Figure 2 (its Setting E.2 says 1e-4, "
        "which has no 50 values), clip norms from 2, for 0 trains nothing.",
    )


def _alike(lands: dict[str, Landscape]) -> Verdict:
    """Both landscapes: how they go together over the cells, and which is higher."""
    less, more = lands["GP"].actual, lands["uniform"].actual
    together, higher = float(np.corrcoef(less, more)[0, 1]), float((more - less).mean())
    return verdict(
        "the landscape for noise .6 is similar to that for .65, with a better accuracy (Figure 2)",
        together > 0.9 and higher > 0.0,
        f"their correlation over the cells is {together:.3f} (similar is read as .9), the mean difference "
        f"{higher:+.4f}, best cells {more.max():.3f} and {less.max():.3f}",
    )


def _verdicts(gap: Array, error: Array) -> tuple[Verdict, ...]:
    lost, won = int((gap < -2 * error).sum()), int((gap > 2 * error).sum())
    top = int(gap.argmax()) + 1
    near = gap[4:20].max() if len(gap) >= 5 else gap.max()
    best = bool(gap.max() - near <= 2 * error[top - 1])
    spans = f"{float(gap.min()):+.4f} to {float(gap.max()):+.4f}"
    return (
        verdict(
            "GP consistently outperforms uniform (4.2.2)",
            False if lost else True if bool((gap > 0).all()) else None,
            f"differences {spans}; above by two standard errors at {won} and below at {lost} of {len(gap)} values of T",
        ),
        verdict(
            "the largest gap is at about 10 runs (4.2.2)",
            None if not won else best,
            f"the largest mean difference is at T = {top}; the largest of T = 5 to 20 is {float(near):+.4f}"
            + ("" if won else "; no difference is above two standard errors"),
        ),
    )
