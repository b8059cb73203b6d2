"""A sealed run: charge the ledger, draw, train, score, select, release the winner and nothing else.

The order is write-ahead (``docs/sealed_runs.md``): the run's secret, from which the number of runs and every
candidate follow, is durable in the vault; then the whole cost is committed to the ledger; only then is anything
trained. A run that was cut off is continued by :func:`resume` and pays once. Whatever goes wrong inside is written
to the vault; what is raised says nothing that depends on data.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from dptune._codec import to_values
from dptune._files import remove_tree
from dptune.errors import DptuneError, InvalidInput
from dptune.executors.base import Executor
from dptune.executors.processes import Processes
from dptune.ledgers import Ledger
from dptune.methods.plan import Plan
from dptune.randomness import Randomness
from dptune.sealed._clock import Deadline
from dptune.sealed._declarations import check_declarations, declarations
from dptune.sealed._folder import Folder, check_unused, new_folder, working_in
from dptune.sealed._records import check_records
from dptune.sealed._shared import known_ledger, name_of, notice, shared_ledger
from dptune.sealed._terms import Terms, check_able, check_name, check_run, preflight, stored_job, terms_of
from dptune.sealed._under_way import UnderWay, check_release
from dptune.sealed._units import RECORD, check_relation_of_units, declared_units
from dptune.sealed.duration import release_time
from dptune.sealed.features import new_vault
from dptune.sealed.interrupt import interruptible
from dptune.sealed.loop import Beat
from dptune.sealed.release import (
    Release,
    load_release,
    public_time,
)
from dptune.sealed.vault import Vault
from dptune.tables import Encoder
from dptune.trainer import DeclaresGenerator, Trainer

__all__ = ["resume", "run"]

DataT = TypeVar("DataT")

_UNCHARGED = "nothing was charged"


def run(
    plan: Plan,
    trainer: Trainer[DataT, object],
    data: DataT,
    *,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    source: str | Path | None = None,
    out: str | Path | None = None,
    executor: Executor | None = None,
    seed: int | None = None,
    data_is: str = "private",
    release_at: str | None = None,
    rehearsal: str | Path | None = None,
    charge: str | None = None,
    pickle: bool = False,
    job: dict[str, Any] | None = None,
    notes: dict[str, Any] | None = None,
    encoder: Encoder | None = None,
    explain: Callable[[str], None] | None = print,
    beat: Callable[[Beat], None] | None = None,
) -> Release:
    """Run a plan inside the seal and release its winner.

    Args:
        plan: what to run; it knows its cost.
        trainer: trains one configuration.
        data: the private records, as the trainer takes them.
        ledger: the budget ledger or its file. Without one, private records are charged to the user's default ledger
            (:func:`dptune.ledgers.default_ledger`), which the first run on them opens with its own budget; a run on
            public or synthetic records keeps one of its own.
        dataset: the name under which the records are in the ledger. In the default ledger records without a name are
            known by their ``source``, and those without either are refused.
        source: the file that the records are in.
        out: the run's folder; a new one by default.
        executor: where trials run; by default processes of this machine.
        seed: makes this a rehearsal, whose release has no guarantee.
        data_is: "private", or "public" or "synthetic" for a rehearsal.
        release_at: a public time before which nothing is released, or "auto": when the run will most likely be over.
        rehearsal: the folder of an earlier rehearsal, whose replay check goes into the statement and whose durations
            serve "auto".
        charge: claims a charge that was committed earlier.
        pickle: lets models that no safe file can hold become pickles, which run code when they are opened; the
            statement says so.
        job: how the command line described the run, for ``dptune resume``.
        notes: what the curator may want to know of the records, such as how many were repaired; for the vault alone.
        encoder: how the rows of a table became features; it follows from a public schema and goes into the release.
        explain: is told when a run opens a data set's budget.
        beat: is called with signs of life.

    Returns:
        The release.

    Raises:
        InvalidInput: something public is wrong; nothing was charged.
        BudgetExceeded: the ledger has less left; nothing was charged.
        Stopped: the run stopped inside the seal; it is charged, and :func:`resume` continues it.
        Interrupted: Ctrl-C; one line says what was charged and how to go on. It is a ``KeyboardInterrupt`` too.

    Example:
        >>> from dptune import Budget, Float, Geometric, PureDp, RandomStopping, Space, trainer
        >>> @trainer(cost=PureDp(0.1))
        ... def guess(params, data, rng):
        ...     return {"rate": params["lr"]}, -abs(params["lr"] - 1)
        >>> plan = RandomStopping(Space(lr=Float(0.1, 10, log=True)), Geometric(3)).plan(Budget(1, 1e-5), guess)
        >>> release = run(plan, guess, [1, 2, 3], seed=1, data_is="synthetic", out="first")
        >>> sorted(release.params)
        ['lr']
    """
    check_run(plan, trainer, seed, data_is)
    check_relation_of_units(data, plan.budget.neighbours)
    release_at = release_time(plan, release_at, rehearsal, executor)
    randomness = Randomness.fresh() if seed is None else Randomness.rehearsal(seed)
    preflight(plan, trainer, data)
    units = declared_units(data, trainer)
    shared = seed is None and ledger is None and data_is == "private"  # charged to the default ledger
    name = check_name(name_of(dataset, source, data, shared=shared))
    identity = secrets.token_hex(16)
    path = Path(out) if out is not None else _usual_path(name if dataset or source is None else Path(source), identity)
    with interruptible(path, charge), new_folder(path) as folder, _refused(folder, seed is None and charge is None):
        book, opening = None, None
        if shared:
            book, opening = shared_ledger(plan, data, name, explain)
        elif seed is None:
            own = folder.own_ledger(plan, name, RECORD if units is None else units.unit) if ledger is None else ledger
            book = known_ledger(own, plan, data, name)
        noticed = [] if book is None or data_is != "private" else notice(data, name, book, source, encoder)
        terms = Terms(
            plan=plan,
            run=identity,
            charge=charge or identity,
            ledger=None if book is None else str(book.path.absolute()),
            dataset=name,
            data_is=data_is,
            release_at=release_at,
            replay=_replay_of(rehearsal),
            job=job,
            pickle=pickle,
            opening=opening,
            **declarations(trainer, encoder, units),
        )
        vault = new_vault(path, _first_notes(terms, trainer, notes, noticed), trainer, data, randomness)
        return UnderWay(path, vault, terms, trainer, data, executor or Processes(), beat).work()


def _usual_path(named: str | Path, identity: str) -> Path:
    """Where a run goes if nobody said: named after its data set or file, and after itself."""
    return Path("dptune-runs") / f"{_plain(named if isinstance(named, str) else named.stem)}-{identity[:8]}"


def _replay_of(rehearsal: str | Path | None) -> str:
    """What an earlier rehearsal found about replays."""
    return "unknown" if rehearsal is None else str(load_release(Path(rehearsal)).details.get("replay", "unknown"))


def _first_notes(terms: Terms, trainer: object, notes: dict[str, Any] | None, noticed: list[str]) -> dict[str, Any]:
    """What the vault is told when a run begins."""
    noted = {"terms": terms.describe(), "state": "open", "generator": _generator(trainer)}
    if notes is not None or noticed:
        noted["notes"] = {**(notes or {}), **({"overlaps": noticed} if noticed else {})}
    if terms.release_at is not None:
        noted["deadline"] = to_values(Deadline.of(public_time(terms.release_at)))
    return noted


@contextlib.contextmanager
def _refused(folder: Folder, charging: bool) -> Iterator[None]:
    """Take everything back if a run ends before its charge, and say that nothing was charged only then.

    A charge that was committed earlier, for this run to claim, stands whatever becomes of the run.
    """
    try:
        yield
    except BaseException as error:
        vault = Vault(folder.path / "vault")
        if not vault.path.exists() or not _charged(vault):
            remove_tree(vault.path)
            folder.clean()
            if charging and isinstance(error, DptuneError) and _UNCHARGED not in str(error).lower():
                error.args = (f"{error} {_UNCHARGED.capitalize()}.",)
        raise


def resume(
    out: str | Path,
    trainer: Trainer[DataT, object],
    data: DataT,
    *,
    executor: Executor | None = None,
    beat: Callable[[Beat], None] | None = None,
) -> Release:
    """Finish a run that was cut off: same trials, same randomness, no second charge.

    Args:
        out: the run's folder.
        trainer: the same as before.
        data: the same records as before; others are refused.
        executor: where trials run; it may be another one.
        beat: is called with signs of life.

    Returns:
        The release; the one that is there if the run was finished.

    Raises:
        InvalidInput: there is no run in this folder, or it cannot go on with this trainer or these records.
        Corrupt: the run's folder or its ledger was damaged; nothing is released.

    Example:
        >>> from dptune import Budget, Float, Geometric, PureDp, RandomStopping, Space, trainer
        >>> @trainer(cost=PureDp(0.1))
        ... def guess(params, data, rng):
        ...     return {"rate": params["lr"]}, -abs(params["lr"] - 1)
        >>> plan = RandomStopping(Space(lr=Float(0.1, 10, log=True)), Geometric(3)).plan(Budget(1, 1e-5), guess)
        >>> release = run(plan, guess, [1, 2, 3], seed=1, data_is="synthetic", out="rehearsal")
        >>> resume("rehearsal", guess, [1, 2, 3]).params == release.params
        True
    """
    folder = Path(out)
    if released(folder):
        return load_release(folder, continued=False)
    with interruptible(folder), working_in(folder):
        vault = Vault.open(folder / "vault")  # looked at again: another process may just have finished it
        terms = terms_of(vault)
        if not (folder / "release").exists():
            check_able(terms.plan, trainer)
            _check_generator(vault, trainer)
            check_records(vault, data)
            check_declarations(folder, terms, trainer, data)
        return UnderWay(folder, vault, terms, trainer, data, executor or Processes(), beat).work()


def _generator(trainer: object) -> str | None:
    """The name of the generator that draws the trainer's noise, if it says so."""
    return trainer.noise_generator if isinstance(trainer, DeclaresGenerator) else None


def _check_generator(vault: Vault, trainer: object) -> None:
    """A trial that was cut off is trained again from its own seed: it must draw the same noise as before."""
    before, now = vault.facts().get("generator"), _generator(trainer)
    if before is not None and now != before:
        raise InvalidInput(
            f"The run in {vault.path.parent} draws its noise by {before}, this install by {now or 'another'}: trials "
            "that were cut off would draw again. Continue it where it began, or with an install like that one."
        )


def job_of(out: str | Path) -> dict[str, Any] | None:
    """How the command line described a run, for :func:`resume`; its plan may need a module that the job names."""
    return stored_job(Vault.open(Path(out) / "vault"))


def check_new(out: str | Path | None) -> None:
    """Refuse a folder that holds a run already: said at once, not after minutes of planning."""
    if out is not None:
        check_unused(Path(out))


def released(out: str | Path) -> bool:
    """Whether a run is finished: its release is out, unchanged, and its secret destroyed."""
    vault = Vault.open(Path(out) / "vault")
    facts = vault.facts()
    if facts.get("state") != "released" or not vault.destroyed():
        return False
    check_release(Path(out), facts)
    return True


def _plain(name: str) -> str:
    """The name of a data set, if it may name a folder: no way out of the folder that holds it."""
    if not re.fullmatch(r"\w[\w .+-]{0,99}", name):
        raise InvalidInput(
            f"The data set's name {name!r} cannot name a folder: use letters, digits and - _ . + only, or say where "
            "the run goes with 'out'."
        )
    return name


def _charged(vault: Vault) -> bool:
    """Whether this run was charged, whatever the ledger says now; in doubt, yes, so that nothing paid for is lost."""
    try:
        if vault.facts().get("receipt") is not None:
            return True
        terms = terms_of(vault)
        return terms.ledger is None or Ledger(terms.ledger).paid(terms.charge, terms.run)
    except Exception:
        return True
