"""``dptune tune``: tune inside the seal, release the winner with its statement."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptune._lazy import on_call
from dptune._validate import flag
from dptune.cli._display import clock, heartbeat
from dptune.cli._output import number, print_json, print_rows, tell, to_the_custodian
from dptune.errors import BudgetExceeded, Interrupted, InvalidInput, Stopped

if TYPE_CHECKING:
    from dptune.cli._job import (
        Job,
        Loaded,
        load_data,
        make_budget,
        make_executor,
        read_job,
        stated_records,
        with_schema,
    )
    from dptune.cli._tuning import make_plan, make_trainer
    from dptune.executors import Executor
    from dptune.methods import Plan
    from dptune.sealed import Release, run
    from dptune.sealed.duration import offer
    from dptune.sealed.rehearsal import report
    from dptune.sealed.run import check_new
    from dptune.sealed.statement import no_model
    from dptune.trainer import Trainer
else:  # help must come at once: the same functions, imported when they are called
    load_data, make_budget, make_executor, read_job, stated_records, with_schema = on_call(
        "dptune.cli._job", "load_data", "make_budget", "make_executor", "read_job", "stated_records", "with_schema"
    )
    make_plan, make_trainer = on_call("dptune.cli._tuning", "make_plan", "make_trainer")
    (run,) = on_call("dptune.sealed", "run")
    (offer,) = on_call("dptune.sealed.duration", "offer")
    (report,) = on_call("dptune.sealed.rehearsal", "report")
    (check_new,) = on_call("dptune.sealed.run", "check_new")
    (no_model,) = on_call("dptune.sealed.statement", "no_model")

__all__ = ["exit_code", "run_job", "show", "stoppable", "tune"]

NO_MODEL = 3
METHODS = (
    "adaptive | linear-scaling | naive | noisy-best | non-private-optimum | random-guess | random-stopping | subset | "
    "threshold | vote"
)
"""Those of dptune itself; packages may offer others."""
_SCORES = "accuracy | balanced | auc | absolute | squared"  # those of dptune.scores, whose import takes time


def tune(
    source: Annotated[
        Path | None, typer.Argument(help="A CSV, Parquet or npz file of records; or a job, a TOML file (docs/tune.md).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder: DIR/release, DIR/vault.")] = None,
    schema: Annotated[Path | None, typer.Option(help="What is public about a table: a TOML file.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict, of a public table without schema.")] = None,
    data: Annotated[
        str | None, typer.Option(help="digits | mnist | fashion-mnist | cifar-10 | adult | imdb | FILE")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes of FILE.npz.")] = None,
    target_range: Annotated[
        tuple[float, float] | None, typer.Option(metavar="LOW HIGH", help="Range of a number to predict, of FILE.npz.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="classification | regression, where public targets mislead.")] = None,
    score: Annotated[str | None, typer.Option(help=f"How models are compared: {_SCORES}")] = None,
    shares: Annotated[str | None, typer.Option(help="About the share of each class, for scores: .9,.1")] = None,
    records: Annotated[int | None, typer.Option(help="About how many records there are: a public figure.")] = None,
    unit_rows: Annotated[int | None, typer.Option(help="Most rows of one unit; FILE.npz has an array unit.")] = None,
    unit: Annotated[str | None, typer.Option(help="What a unit of FILE.npz is called: patient, user.")] = None,
    validation: Annotated[str | None, typer.Option(help="test | private | FILE (public records)")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The total budget, tuning included.")] = None,
    delta: Annotated[float | None, typer.Option(help="The delta of the statement, for example 1e-5.")] = None,
    method: Annotated[str | None, typer.Option(help=f"auto | {METHODS} | package.module:Class (your own)")] = None,
    runs: Annotated[str | None, typer.Option(help="geometric:MEAN | poisson:MEAN | tnb:SHAPE,MEAN | ...")] = None,
    fraction: Annotated[float | None, typer.Option(help="Share of the records used for tuning (subset).")] = None,
    ledger: Annotated[Path | None, typer.Option(help="The custodian's ledger; none: your default one.")] = None,
    dataset: Annotated[str | None, typer.Option(help="The data set's name in the ledger; none: its file.")] = None,
    executor: Annotated[str | None, typer.Option(help="processes | ray")] = None,
    workers: Annotated[int | None, typer.Option(help="How many trials run at once.")] = None,
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster; none: a local one.")] = None,
    trusted: Annotated[bool | None, typer.Option("--trusted", help="The Ray cluster may see private data.")] = None,
    seed: Annotated[int | None, typer.Option(help="A rehearsal: repeatable, NO GUARANTEE.")] = None,
    data_is: Annotated[str | None, typer.Option(help="private | public | synthetic")] = None,
    release_at: Annotated[
        str | None, typer.Option(help="A public time before which nothing is released; auto: from the rehearsal.")
    ] = None,
    rehearsal: Annotated[Path | None, typer.Option(help="The folder of an earlier rehearsal of this job.")] = None,
    pickle: Annotated[
        bool | None, typer.Option("--pickle", help="Models that no safe file can hold become pickles, which run code.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> int:
    """Tune on private data within (epsilon, delta) and release the winner, the model and the statement.

    SOURCE is a CSV, Parquet or npz file of records, or a job: a TOML file (docs/tune.md).

    Exit codes: 0 a model was released, 2 refused or stopped, 3 released without a model.
    """
    job = _started(source, data)
    if validation is not None and validation not in ("test", "private"):
        validation = str(Path(validation).absolute())
    job = job.with_fields("data", classes=classes, records=records, unit_rows=unit_rows, unit=unit)
    job = job.with_fields("data", validation=validation, kind=data_is, task=task, score=score)
    job = job.with_fields("data", target_range=target_range and list(target_range), shares=_numbers("shares", shares))
    job = with_schema(job.with_fields("data", schema=None if schema is None else str(schema.absolute())), target)
    job = job.with_fields("budget", epsilon=epsilon, delta=delta)
    job = job.with_fields("method", name=method, runs=runs, fraction=fraction)
    book = None if ledger is None else str(ledger.absolute())
    job = job.with_fields("run", ledger=book, dataset=dataset, executor=executor, workers=workers, address=address)
    job = job.with_fields("run", trusted=trusted, seed=seed, release_at=release_at, pickle=pickle)
    job = job.with_fields("run", rehearsal=None if rehearsal is None else str(rehearsal.absolute()))
    if out is None:
        raise InvalidInput("Say where the run goes: --out DIR.")
    return show(run_job(job, out, quiet=as_json), as_json)


def _started(source: Path | None, data: str | None) -> Job:
    """The job that a command begins with: a file's, or one about the records that are named."""
    is_job = source is None or source.suffix.lower() == ".toml"
    job = read_job(source if is_job else None)
    if not is_job and data is not None:
        raise InvalidInput(f"The records are {source} or {data}? Give one of the two.")
    if not is_job:
        return job.with_fields("data", file=str(source.absolute()) if source is not None else None)
    if data is not None and Path(data).suffix:
        return job.with_fields("data", file=str(Path(data).absolute()))
    return job.with_fields("data", name=data)


def _numbers(name: str, text: str | None) -> list[float] | None:
    """Numbers with commas between them."""
    try:
        return None if text is None else [float(one) for one in text.split(",")]
    except ValueError:
        raise InvalidInput(
            f"'--{name}' must be numbers with commas between them, such as .9,.1; got {text!r}."
        ) from None


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def stoppable(folder: Path) -> Iterator[None]:
    """Ctrl-C, and a polite request to end (SIGTERM), are one line too; what is durable stays for ``dptune resume``."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _interrupt) if main else None
    try:
        yield
    except Interrupted as error:  # it knows what was charged; as a KeyboardInterrupt it would not be one line
        raise Stopped(str(error)) from None
    except KeyboardInterrupt:
        raise Stopped(
            f"Stopped. If {folder} holds a run, what it was charged stays charged: finish it with 'dptune resume "
            f"{folder}'."
        ) from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def run_job(job: Job, out: Path, quiet: bool = False) -> Release:
    """Plan and run a job."""
    check_new(out)
    budget = make_budget(job)
    with stoppable(out):
        with clock("reading the records"):
            loaded = load_data(job)
        with clock("planning: which noise fits the budget"):
            trainer = make_trainer(job, loaded.data, loaded.public, loaded.encoder)
            plan, why = make_plan(job, loaded.data, trainer, budget)
        executor = make_executor(job)
        if why is not None and not quiet:
            print(*(why, *budget.doubts(stated_records(job, loaded.data))), sep="\n")
        if not quiet:
            offer_time(job, plan, executor)
        with _of_benchmarks(job):
            return _run(job, plan, trainer, loaded, out, executor)


@contextlib.contextmanager
def _of_benchmarks(job: Job) -> Iterator[None]:
    """A published benchmark is kept like private records unless it is said to be public: a refusal says so."""
    try:
        yield
    except BudgetExceeded as error:
        name = job.get("data", "name")
        if name is None:
            raise
        raise BudgetExceeded(f"{error} Everybody has {name}: with --data-is public it needs no budget.") from None


def _run(job: Job, plan: Plan, trainer: Trainer[Any, object], loaded: Loaded, out: Path, executor: Executor) -> Release:
    with heartbeat("tuning inside the seal") as beat, to_the_custodian():
        return run(
            plan,
            trainer,
            loaded.data,
            ledger=job.get("run", "ledger"),
            dataset=job.get("run", "dataset") or job.get("data", "name"),
            source=job.get("data", "file"),
            out=out,
            executor=executor,
            seed=job.get("run", "seed"),
            data_is=job.get("data", "kind", "private"),
            release_at=job.get("run", "release_at"),
            rehearsal=job.get("run", "rehearsal"),
            pickle=flag("pickle", job.get("run", "pickle", False)),
            job=job.describe(),
            notes=loaded.notes,
            encoder=loaded.encoder,
            explain=tell,
            beat=beat,
        )


def offer_time(job: Job, plan: Plan, executor: Executor) -> None:
    """Where a rehearsal told the duration, offer a public time of release: computed from public facts alone."""
    rehearsal = job.get("run", "rehearsal")
    if rehearsal is None or job.get("run", "release_at") is not None or job.get("run", "seed") is not None:
        return
    print(offer(plan, Path(rehearsal), executor))


def show(release: Release, as_json: bool) -> int:
    """What was released, for people or machines, and the exit code: never more than the release folder holds.

    A rehearsal has no secrets, so all of it is shown.
    """
    code = exit_code(release)
    if as_json:
        print_json({**release.details, "folder": str(release.path)})
        return code
    if not release.details["guarantee"] and (release.path.parent / "vault").is_dir():
        print(report(release.path.parent), end="\n\n")
    if code:
        print(no_model(release.details.get("chance_of_no_model"), release.details["guarantee"]))
    shown = [
        [name, f"{value:.6g}" if isinstance(value, float) else str(value)] for name, value in release.params.items()
    ]
    rows = [
        *([["", str(release.details["watermark"])]] if release.details["watermark"] else []),
        *shown,
        ["total epsilon", number(release.epsilon)],
        ["delta", f"{release.delta:g}"],
        ["lower certificate", number(release.epsilon_lower)],
        ["statement", str(release.path / "statement.md")],
    ]
    what = "released" if not code else "released WITHOUT A MODEL"
    how = "one untuned training" if release.method == "random-guess" else release.method
    print_rows(f"{what} by {how} on {release.dataset}", ["", ""], rows)
    return code


def exit_code(release: Release) -> int:
    """0 for a release with a model, 3 for one without; decided by ``release.json`` alone."""
    return NO_MODEL if release.outcome == "no model" else 0
