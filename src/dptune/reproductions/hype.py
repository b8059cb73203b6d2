"""The DP-Hype paper's Figures 2 and 4, with the noise that is really needed.

Figure 2 is simulated as in the paper. Figure 4 is scaled down for two cores: linear models instead of small networks,
fewer repetitions; ``hype_fig4`` says what in its notes. Nothing here touches data that must stay private: the data sets
are public benchmarks, which is why accuracies may be printed. Both figures stay in one file: they share the votes.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from dptune import _validate
from dptune._typing import Array, Floats, Indices
from dptune.accounting.voting import votes_sigma
from dptune.federated.errors import MissingExtra
from dptune.federated.local import dirichlet_partition, iid_partition, paper_candidates
from dptune.reproductions import _hype_baselines as baselines
from dptune.reproductions._hype_linear import LinearBank
from dptune.reproductions.kept import Kept
from dptune.reproductions.progress import Progress, silent
from dptune.reproductions.table import Plot, Table, Verdict, verdict

__all__ = ["hype_fig2", "hype_fig4"]


def hype_fig2(
    *,
    clients: int = 250,
    candidates: int = 100,
    good: int = 5,
    deviation: float = 0.2,
    votes: Sequence[int] = (1, 5, 10, 25, 100),
    epsilons: Sequence[float] = (0.25, 1.0),
    delta: float = 1e-5,
    repetitions: int = 5000,
    seed: int = 0,
) -> Table:
    """How often the vote finds a good candidate, for simulated losses; exact noise instead of the paper's."""
    _validate.integer("repetitions", repetitions, 1)
    _validate.integer("good", good, 1, candidates)
    rng = np.random.default_rng(seed)
    sigmas = {(k, e): _fig2_sigma(k, e, delta, candidates) for k in votes for e in epsilons}
    hits = dict.fromkeys(sigmas, 0)
    centre = np.ones(candidates, dtype=np.float32)
    centre[:good] = 0.0
    for tallies in _tallies(rng, centre, deviation, clients=clients, votes=votes, repetitions=repetitions):
        for (k, e), sigma in sigmas.items():
            total = tallies[k] + sigma * rng.standard_normal(tallies[k].shape)
            hits[k, e] += int((total.argmax(axis=1) < good).sum())
    rows = [(k, e, sigmas[k, e], hits[k, e] / repetitions) for k in votes for e in epsilons]
    title = f"Figure 2: {clients} clients, {candidates} candidates, {good} good, loss sd {deviation:g}"
    notes = (f"{repetitions} repetitions; with k = p every ballot is equal and the outcome is noise alone.",)
    judged = (_fig2_verdict(rows, good / candidates, repetitions),) if len(votes) > 1 else ()
    drawn = {
        f"epsilon {e:g}": ([float(r[0]) for r in rows if r[1] == e], [r[3] for r in rows if r[1] == e])
        for e in epsilons
    }
    return Table(
        title,
        ("votes", "epsilon", "sigma", "success"),
        list(rows),
        notes,
        judged,
        Plot("votes", "success", drawn, True),
    )


def _fig2_verdict(rows: Sequence[tuple[int, float, float, float]], blind: float, repetitions: int) -> Verdict:
    """Small k finds a good candidate; k = p is a guess (IV-B)."""
    error = 3.0 * math.sqrt(blind * (1.0 - blind) / repetitions)
    most = max(row[0] for row in rows)
    small, all_of_them = ([row[3] for row in rows if (row[0] == most) == last] for last in (False, True))
    return verdict(
        "as long as k is small the vote finds a good candidate with high probability; with the largest k it guesses "
        "(IV-B, Figure 2)",
        min(small) > 0.75 and max(all_of_them) < blind + error,
        f"success {min(small):.3f} to {max(small):.3f} for smaller k (high is read as .75), {min(all_of_them):.3f} to "
        f"{max(all_of_them):.3f} for k = {most}; a blind guess has {blind:.3f}",
    )


def _fig2_sigma(votes: int, epsilon: float, delta: float, candidates: int) -> float:
    exactly = votes < candidates
    return votes_sigma(epsilon, delta, candidates=candidates, votes=votes, exactly=exactly)


def _tallies(
    rng: np.random.Generator,
    centre: Floats,
    deviation: float,
    *,
    clients: int,
    votes: Sequence[int],
    repetitions: int,
) -> Iterator[dict[int, Array]]:
    """Draw the losses of a few repetitions at a time; count votes by comparing with each client's k-th smallest."""
    left = repetitions
    while left:
        batch = min(left, 100)
        losses = rng.standard_normal((batch, clients, len(centre)), dtype=np.float32)
        losses *= np.float32(deviation)
        losses += centre
        ranked = np.sort(losses, axis=2)
        yield {k: (losses <= ranked[:, :, k - 1 : k]).sum(axis=1).astype(np.float64) for k in votes}
        left -= batch


# -- Figure 4


@dataclass(frozen=True)
class _Task:
    """A public benchmark, ready for linear models."""

    x: Floats
    y: Indices
    x_test: Floats
    y_test: Indices
    classes: int


def hype_fig4(
    *,
    datasets: Sequence[str] = ("mnist", "adult"),
    clients: Sequence[int] = (50, 100),
    partitions: Sequence[str] = ("iid", "dirichlet 0.5"),
    epsilons: Sequence[float] = (0.1, 0.25, 0.5, 1.0, 3.0),
    delta: float = 1e-5,
    votes: int = 5,
    repetitions: int = 20,
    epochs: int = 5,
    rivals_at: float = 1.0,
    seed: int = 0,
    progress: Callable[[str], None] = silent,
    folder: Path | None = None,
) -> Table:
    """Test accuracy of what the vote, Opt, RandGuess and the paper's rivals choose among its 100 candidates."""
    columns = ("data", "partition", "clients", "opt", "guess", *(f"eps {e:g}" for e in epsilons), "eps inf")
    columns += ("raw", "subsets", "feathers")
    rows: list[tuple[str | int | float, ...]] = []
    kept = Kept("hype-linear", folder)
    told = Progress(len(datasets) * len(partitions) * len(clients), progress)
    for name, partition, n in itertools.product(datasets, partitions, clients):
        key = {"data": name, "partition": partition, "clients": n, "epsilons": list(epsilons), "delta": delta,
               "votes": votes, "repetitions": repetitions, "epochs": epochs, "at": rivals_at, "seed": seed}  # fmt: skip

        def reached(name: str = name, partition: str = partition, n: int = n) -> list[str | float]:
            rng = np.random.default_rng(seed)
            local, final = _linear(name, partition, n, epochs, rng)
            return list(_reached(local, final, (*epsilons, np.inf), rivals_at, votes, delta, repetitions, rng))

        known = key in kept
        rows.append((name, partition, n, *kept.get(key, reached)))
        told.known() if known else told.done(f"{name}, {partition}, {n} clients")
    notes = _fig4_notes(repetitions, epochs, rivals_at)
    judged = _fig4_verdicts([dict(zip(columns, row, strict=True)) for row in rows], epsilons, rivals_at)
    drawn = {f"{r[0]}, {r[1]}, {r[2]}": (list(epsilons), [float(c) for c in r[5 : 5 + len(epsilons)]]) for r in rows}
    plot = Plot("epsilon", "accuracy", drawn, log_x=True)
    return Table("Figure 4: accuracy after federated averaging", columns, rows, notes, judged, plot)


def _linear(name: str, partition: str, n: int, epochs: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Every client's validation accuracies and the federated test accuracies, of linear models."""
    task = _task(name)
    bank = LinearBank(paper_candidates(), task.x.shape[1] - 1, task.classes)
    parts = _parts(task, partition, n, rng)
    with threadpool_limits(limits=1):  # small products: more threads wait for one another
        local = np.array([_local(bank, task, part, epochs, rng) for part in parts])
        final = _federated(bank, task, parts, epochs, rng)
    return local, final


def _fig4_verdicts(
    rows: Sequence[dict[str, str | int | float]], epsilons: Sequence[float], rivals_at: float
) -> tuple[Verdict, ...]:
    top = max(epsilons)
    short = [float(row["opt"]) - float(row[f"eps {top:g}"]) for row in rows]
    guessed = [float(row["opt"]) - float(row["guess"]) for row in rows]
    column = f"eps {rivals_at:g}"
    weak = {
        name: [float(row[column]) - float(row[name]) for row in rows if row[name] != "-"]
        if rivals_at in epsilons
        else []
        for name in ("subsets", "feathers")
    }
    said = ", ".join(f"{name} {min(gaps):+.3f} to {max(gaps):+.3f}" for name, gaps in weak.items() if gaps)
    return (
        verdict(
            "DP-Hype is close to Opt and RandGuess is far (Figure 4)",
            max(short) < 0.02 and min(guessed) > 0.05,
            f"the vote at epsilon {top:g} is {min(short):.3f} to {max(short):.3f} below Opt, RandGuess "
            f"{min(guessed):.3f} to {max(guessed):.3f} (close is read as .02, far as .05); linear models",
        ),
        verdict(
            f"DP-Hype is better than Subsets and Feathers, at epsilon {rivals_at:g} (appendices G and H)",
            min((gap for gaps in weak.values() for gap in gaps), default=0.0) > 0.0 if said else None,
            f"the vote minus the rival: {said}" if said else "the vote was not run at the rivals' epsilon",
        ),
    )  # fmt: skip


def _reached(
    local: Array,
    final: Array,
    epsilons: Sequence[float],
    rivals_at: float,
    votes: int,
    delta: float,
    repetitions: int,
    rng: np.random.Generator,
) -> tuple[str | float, ...]:
    """Opt, RandGuess, the vote at each epsilon, and the rivals: mean final accuracy of what each chooses."""

    def mean(choose: Callable[[], int]) -> float:
        return float(np.mean([final[choose()] for _ in range(repetitions)]))

    vote = partial(baselines.binary_vote, local, votes=votes, delta=delta, rng=rng)
    raw = partial(baselines.raw_vote, local, votes=votes, epsilon=rivals_at, delta=delta, rng=rng)
    subsets = partial(baselines.subsets_vote, local, epsilon=rivals_at, delta=delta, rng=rng)
    feathers = partial(baselines.feathers, local, epsilon=rivals_at, delta=delta, rng=rng)
    covered = len(local) >= len(final)  # subsets deal one candidate to each client
    return (
        float(final[baselines.optimum(final)]),
        baselines.random_guess(final),
        *(mean(partial(vote, epsilon=e)) for e in epsilons),
        mean(raw),
        mean(subsets) if covered else "-",
        mean(feathers),
    )


def _fig4_notes(repetitions: int, epochs: int, rivals_at: float) -> tuple[str, ...]:
    return (
        f"raw, subsets, feathers: the paper's rivals at epsilon {rivals_at:g}, soundly accounted; subsets needs "
        "a client per candidate.",
        "Scaled down: linear models instead of a small convolutional network (MNIST, images averaged to 14 x 14) and a "
        "two-layer network (Adult);",
        f"one federated training per candidate of {epochs} rounds of one local epoch; the vote repeated {repetitions} "
        "times on one partition and one local training;",
        "no CIFAR-10, no n = 250. A decay multiplies the learning rate after each epoch. A fifth of each client's "
        "records validates; noise is exact, not the paper's.",
    )


def _task(name: str) -> _Task:
    try:
        source = importlib.import_module("dptune.training.benchmark_data")
    except ImportError as missing:
        raise MissingExtra("dptune.training", "torch") from missing
    train, test = source.load(name)

    def shrink(x: npt.ArrayLike) -> Floats:
        rows = np.asarray(x, dtype=np.float32)
        if name == "cifar-10":
            rows = rows.reshape(-1, 3, 8, 4, 8, 4).mean(axis=(3, 5)).reshape(len(rows), -1)
        elif name != "adult":
            rows = rows.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(rows), -1)
        return LinearBank.inputs(rows)

    return _Task(shrink(train.x), train.y, shrink(test.x), test.y, train.classes)


def _parts(task: _Task, partition: str, clients: int, rng: np.random.Generator) -> list[Indices]:
    kind, _, value = partition.partition(" ")
    if kind == "iid":
        return iid_partition(len(task.y), clients, rng)
    return dirichlet_partition(task.y, clients, float(value), rng, least=10)


class Bank(Protocol):
    """Models for all candidates, trained side by side; their weights are one array."""

    def start(self) -> Floats:
        """The weights that every training starts from."""
        ...

    def train(
        self, weights: Floats, x: Floats, y: Indices, *, epochs: Sequence[int], batch: int, rng: np.random.Generator
    ) -> Floats:
        """The weights after these epochs."""
        ...

    def accuracy(self, weights: Floats, x: Floats, y: Indices) -> Array:
        """One accuracy for each candidate."""
        ...


def _local(bank: Bank, task: _Task, part: Indices, epochs: int, rng: np.random.Generator) -> Array:
    """One client's validation accuracies, one per candidate."""
    order = rng.permutation(part)
    held, kept = order[: max(1, len(order) // 5)], order[max(1, len(order) // 5) :]
    weights = bank.train(bank.start(), task.x[kept], task.y[kept], epochs=range(epochs), batch=64, rng=rng)
    return bank.accuracy(weights, task.x[held], task.y[held])


def _federated(
    bank: Bank, task: _Task, parts: Sequence[Indices], rounds: int, rng: np.random.Generator, *, local: int = 1
) -> Array:
    """Test accuracy of federated averaging, one per candidate."""
    weights = bank.start()
    records = sum(len(part) for part in parts)
    for number in range(rounds):
        total = np.zeros_like(weights)
        for part in parts:
            moved = bank.train(weights, task.x[part], task.y[part], epochs=[number] * local, batch=64, rng=rng)
            total += moved * np.float32(len(part) / records)
        weights = total
    return bank.accuracy(weights, task.x_test, task.y_test)
