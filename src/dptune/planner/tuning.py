"""Tuning in one call: the planner picks the method and says why, the sealed runner releases the winner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dptune.accounting import ADDED_OR_REMOVED, Neighbours, Runs
from dptune.errors import InvalidInput
from dptune.methods import Budget, Method
from dptune.planner.asked import asked_for, evenly, tried_space
from dptune.planner.encoded import bring_in_with, features_name
from dptune.planner.incoming import Declared, Incoming
from dptune.planner.kinds import KINDS, kind_with
from dptune.planner.networks import Model, network_space, network_trainer, regression_network, try_network
from dptune.planner.regression import default_regression, named_score, regression_space, with_score
from dptune.planner.stopping import finish, stops_in_one_line
from dptune.regression import range_of
from dptune.scores import Score
from dptune.sealed.duration import offer
from dptune.sealed.interrupt import interruptible
from dptune.sealed.rehearsal import report
from dptune.sealed.release import Release
from dptune.sealed.run import check_new, run
from dptune.sealed.statement import no_model
from dptune.spaces import Dimension, Domain, Space
from dptune.tables import Schema
from dptune.trainer import Trainer
from dptune.training import DpSgdTrainer, PublicEncoder

__all__ = ["tune"]


@stops_in_one_line
def tune(
    data: Any,
    *,
    epsilon: float,
    delta: float,
    schema: Schema | str | Path | None = None,
    target: str | None = None,
    records: int | None = None,
    classes: int | Sequence[object] | None = None,
    target_range: tuple[float, float] | None = None,
    task: str | None = None,
    score: str | Score | None = None,
    shares: Sequence[float] | None = None,
    units: Any = None,
    unit_rows: int | None = None,
    unit: str = "unit",
    shape: Any = None,
    features: str | PublicEncoder = "none",
    model: Model | None = None,
    trainer: Trainer[Any, object] | None = None,
    space: Domain | Mapping[str, Dimension] | None = None,
    method: str | Method | None = None,
    runs: Runs | None = None,
    neighbours: Neighbours = ADDED_OR_REMOVED,
    data_is: str = "private",
    resume: str | Path | None = None,
    explain: Callable[[str], None] | None = print,
    **options: Any,
) -> Release:
    """Tune in one call: the planner picks the method, says why, and the sealed runner releases the winner.

    Figures about private data are declared, by a schema or by ``records`` and ``classes`` (or ``target_range``, to
    predict a number); nothing is counted or inferred. Public data (``data_is="public"``) may be inferred.

    Args:
        data: the records: the path of a CSV, Parquet or npz file, a DataFrame, an Arrow table, a Hugging Face data set,
            a pair (X, y), a torch data set of pairs (x, y) by place, a ``Dataset``, or whatever a trainer of your own
            takes. Images keep their shape, channels first (``docs/torch.md``).
        epsilon: the total budget, tuning included.
        delta: the delta at which epsilon is stated.
        schema: what is public about a table, or the TOML file that says it (``docs/tables.md``).
        target: the column to predict, for public tables without a schema.
        records: about how many records there are, where no schema says it; a DP-SGD trainer implies it.
        classes: for arrays, how many classes there are, or a list of them.
        target_range: for arrays whose targets are numbers, the smallest and the largest one.
        task: "classification" or "regression", where public targets mislead; the schema, ``classes`` and
            ``target_range`` say it otherwise.
        score: how models are compared: "accuracy", "balanced" or "auc" for classes, "absolute" or "squared" for
            numbers, or a score of :mod:`dptune.scores`; by default accuracy, or the absolute error.
        shares: for "balanced" and "auc", about which part of the records each class has, a public figure; by default
            the schema's.
        units: for arrays, whom each row belongs to, where somebody may have several: all rows of one are one record,
            and ``records`` counts units. For tables the schema says it.
        unit_rows: the most rows of one unit that take part; a public figure, the rest is left out.
        unit: what the statement and the ledger call a unit: patient, user.
        shape: for torch data sets, the shape of one record, or a public example; a record of another shape becomes
            the missing one.
        features: public features that records become before training: "two-scale-gradients", "scattering" or
            "levelled-scattering" (photographs) for images, or a public encoder (``docs/features.md``); the released
            model takes records as they were.
        model: a function of the parameters that makes a torch module; DP-SGD trains it. It must be a ``Sequential`` of
            common layers, or the function one that can be imported (``docs/torch.md``).
        trainer: trains one configuration and declares what that costs; by default a private softmax regression,
            for numbers a linear one.
        space: what may be tried, a space or a dictionary of its dimensions; by default the learning rate.
        method: a method by its name ("random-stopping", "subset", ...), or one with its own space
            (``Subset(RandomStopping(space, Geometric(5)), 0.2)``); by default the planner chooses one.
        runs: the law of the number of runs; by default one that the planner chooses.
        neighbours: what the guarantee hides; for patients with at most 5 records ``ADDED_OR_REMOVED.group(5)``.
        data_is: "private", "public" or "synthetic".
        resume: the folder of a run that was cut off; with the other arguments as they were, it is finished at no
            further charge.
        explain: is given the explanation before training, what opens a budget, and with a ``rehearsal`` a time of
            release too; after a rehearsal, everything that it found; and that no model was released, if none was.
        options: for the runner: ``ledger``, ``dataset``, ``out``, ... (:func:`dptune.run`). Private records without a
            ``ledger`` are charged to the user's default one, as ``dataset``, or as the file that they are in.

    Returns:
        The release: the winner's parameters, its model and the statement.

    Raises:
        BudgetExceeded: no method fits the budget, or the ledger has less left.
        InvalidInput: something public is wrong or not declared; nothing was charged.
        Interrupted: Ctrl-C; one line says what was charged and how to go on.

    Example:
        >>> from dptune.training import load
        >>> digits = load("digits").train
        >>> release = tune(digits, records=1400, epsilon=3, delta=1e-4, seed=1, data_is="public", explain=None, out="d")
        >>> sorted(release.params)
        ['learning_rate', 'noise_multiplier']
    """
    check_new(options.get("out") if resume is None else None)
    budget = Budget(epsilon, delta, neighbours)
    if explain is not None and not callable(explain):
        raise InvalidInput(f"'explain' must be a function of texts, such as print, or None; got {explain!r:.60}.")
    space = tried_space(space, method)
    _check_given(trainer, model, space, features)
    declared = Declared(
        schema, target, records, classes, data_is == "public", units, unit_rows, unit, target_range, task, shape
    )
    prepared = features_name(features)
    brought = bring_in_with(data, declared, trainer, prepared)
    wanted = named_score(score, shares, brought.data, brought.encoder, public=declared.public)
    own = None if trainer is None or space is None else (trainer, space)
    usual = own or _default(brought, model, prepared, epsilon)
    made, tried = with_score(usual[0], wanted), usual[1] if space is None else space
    if space is None and wanted is not None and isinstance(tried, Space):
        tried = evenly(tried)
    if model is not None and isinstance(made, DpSgdTrainer):
        try_network(made, tried, brought.data, pickle=bool(options.get("pickle")))
    if resume is not None:
        return finish(resume, made, brought.data, budget, options)
    advice = asked_for(method, made, tried, budget, records=brought.records, runs=runs)
    if explain is not None:
        for said in (advice.explanation, *budget.doubts(brought.records)):
            explain(said)
        rehearsal, hidden = options.get("rehearsal"), options.get("release_at") is not None
        if rehearsal is not None and not hidden and options.get("seed") is None:
            explain(offer(advice.plan, Path(rehearsal), options.get("executor")))
    told: dict[str, Any] = {"data_is": data_is, "explain": explain, **_of_records(data, brought), **options}
    return _told(run(advice.plan, made, brought.data, **told), explain)


def _check_given(trainer: object, model: object, space: object, features: object) -> None:
    """Refuse what does not go together."""
    if trainer is not None and model is not None:
        raise InvalidInput("Give either a 'model', which DP-SGD trains, or a 'trainer', which has a model of its own.")
    if model is not None and features != "none":
        raise InvalidInput("A 'model' of your own takes no 'features': put them into the data or into the model.")
    if trainer is not None and space is None:
        raise InvalidInput("A trainer of your own needs a 'space': what may be tried with it.")


def _of_records(data: Any, brought: Incoming) -> dict[str, Any]:
    """What a run is told of where its records come from."""
    noted = {"repairs": dict(brought.repairs)} if brought.repairs else None
    source = data if isinstance(data, str | Path) else None
    return {"source": source, "notes": noted, "encoder": brought.encoder}


def _told(release: Release, explain: Callable[[str], None] | None) -> Release:
    """A release, after what is to be said of it."""
    with interruptible(release.path.parent):  # it is out, whatever Ctrl-C stops here
        if explain is not None and not release.details["guarantee"]:
            explain(report(release.path.parent))
        if explain is not None and release.outcome == "no model":
            explain(no_model(release.details["chance_of_no_model"], release.details["guarantee"]))
    return release


def _default(
    brought: Incoming, model: Model | None, features: str, epsilon: float
) -> tuple[Trainer[Any, object], Domain]:
    """What is trained and tried where nobody said, by the kind of the data."""
    records, ends, width = brought.records or 0, range_of(brought.data), brought.data.features
    if model is not None and ends is not None:
        return regression_network(model, width, ends, records), regression_space()
    if model is not None:
        return network_trainer(model, width, brought.data.classes, records), network_space()
    if ends is not None:
        made = default_regression(width, ends, records, epsilon=epsilon)
        return replace(made, prepared=features), regression_space()
    kind = KINDS["table"] if features == "none" else kind_with(features)
    made = kind.trainer(width, brought.data.classes, records, epsilon=epsilon)
    return made, kind.space(width, records, epsilon=epsilon)
