"""A sealed run: charge the ledger, draw, train, score, select, release the winner and nothing else.

The order is write-ahead (``docs/sealed_runs.md``): the run's secret, from which the number of runs and every
candidate follow, is durable in the vault; then the whole cost is committed to the ledger; only then is anything
trained. A run that was cut off is continued by :func:`resume` and pays once. Whatever goes wrong inside is written
to the vault; what is raised says nothing that depends on data.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import secrets
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.errors import Corrupt, DptuneError, InvalidInput, Stopped
from dptune.executors.base import Executor, Session, Work
from dptune.executors.processes import Processes
from dptune.methods.base import Plan, Selection
from dptune.methods.lines import settle_selection
from dptune.sealed._files import remove_tree, storage_errors, write_durable
from dptune.sealed._loop import Beat, Loop
from dptune.sealed._quiet import Quiet, silence
from dptune.sealed._stacks import kinds
from dptune.sealed._terms import Terms, check_run, check_trainer, fingerprint, preflight, terms_of
from dptune.sealed.duration import AUTO, offered_time, workers_of
from dptune.sealed.ledger import Ledger, Receipt
from dptune.sealed.randomness import Randomness
from dptune.sealed.release import Release, load_release, public_time, set_times, write_release
from dptune.sealed.statement import Facts
from dptune.sealed.vault import Vault

__all__ = ["resume", "run"]


def run(
    plan: Plan,
    trainer: Any,
    data: Any,
    *,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    out: str | Path | None = None,
    executor: Executor | None = None,
    seed: int | None = None,
    data_is: str = "private",
    release_at: str | None = None,
    rehearsal: str | Path | None = None,
    charge: str | None = None,
    job: dict[str, Any] | None = None,
    beat: Callable[[Beat], None] | None = None,
) -> Release:
    """Run a plan inside the seal and release its winner.

    ``out`` is the run's folder. Without ``ledger`` the run keeps one of its own, good for this plan's budget alone.
    ``release_at`` is a public time before which nothing is released, or "auto": when the run will most likely be over.
    ``rehearsal`` names the folder of an earlier rehearsal, whose replay check goes into the statement and whose
    durations serve "auto". ``charge`` claims a charge that was committed earlier.
    ``seed`` makes this a rehearsal.
    """
    check_run(plan, trainer, seed, data_is)
    if release_at == AUTO:
        if rehearsal is None:
            raise InvalidInput("release_at = 'auto' needs the folder of a rehearsal, which tells how long a run takes.")
        release_at = offered_time(plan, Path(rehearsal), workers_of(executor)).isoformat()
    if release_at is not None:
        release_at = public_time(release_at).isoformat()
    replay = "unknown" if rehearsal is None else str(load_release(Path(rehearsal)).details.get("replay", "unknown"))
    randomness = Randomness.fresh() if seed is None else Randomness.rehearsal(seed)
    preflight(plan, trainer, data)
    name = dataset or str(getattr(data, "name", "") or "data")
    identity = secrets.token_hex(16)
    folder = Path(out) if out is not None else Path("dptune-runs") / f"{name}-{identity[:8]}"
    created = _make_folder(folder)
    vault: Vault | None = None
    own = ledger is None and seed is None
    try:
        book = _ledger(ledger, folder, plan, name) if seed is None else None
        if book is not None:
            book.terms(name)  # an unknown data set is refused before anything is written
        print_ = None if book is None else fingerprint(data, book.path)
        path = None if book is None else str(book.path.absolute())
        terms = Terms(plan, identity, charge or identity, path, name, data_is, release_at, replay, print_, job)
        noted = {"terms": terms.describe(), "state": "open", "generator": getattr(trainer, "generator", None)}
        vault = Vault.create(folder / "vault", noted, randomness)
        return _Run(folder, vault, terms, trainer, data, executor or Processes(), beat).work()
    except BaseException:
        if vault is not None and not _charged(vault):
            remove_tree(vault.path)
            vault = None
        if vault is None:
            _clean(folder, created, own)
        raise


def resume(
    out: str | Path,
    trainer: Any,
    data: Any,
    *,
    executor: Executor | None = None,
    beat: Callable[[Beat], None] | None = None,
) -> Release:
    """Finish a run that was cut off: same trials, same randomness, no second charge."""
    folder = Path(out)
    vault = Vault.open(folder / "vault")
    terms = terms_of(vault)
    if vault.facts().get("state") == "released":
        return load_release(folder, continued=False)
    check_trainer(trainer)
    _check_generator(vault, trainer)
    return _Run(folder, vault, terms, trainer, data, executor or Processes(), beat).work()


def _check_generator(vault: Vault, trainer: Any) -> None:
    """A trial that was cut off is trained again from its own seed: it must draw the same noise as before."""
    before, now = vault.facts().get("generator"), getattr(trainer, "generator", None)
    if before is not None and now != before:
        raise InvalidInput(
            f"The run in {vault.path.parent} draws its noise by {before}, this install by {now or 'another'}: trials "
            "that were cut off would draw again. Continue it where it began, or with an install like that one."
        )


def job_of(out: str | Path) -> dict[str, Any] | None:
    """How the command line described a run, for :func:`resume`."""
    return terms_of(Vault.open(Path(out) / "vault")).job


def released(out: str | Path) -> bool:
    """Whether a run is finished."""
    return bool(Vault.open(Path(out) / "vault").facts().get("state") == "released")


def _make_folder(folder: Path) -> bool:
    """Make the run's folder; True if it was not there before."""
    if (folder / "vault").exists() or (folder / "release").exists():
        raise InvalidInput(
            f"There is already a run in {folder}. Finish it with 'dptune resume {folder}', or choose another folder."
        )
    with storage_errors(f"The folder {folder}"):
        if folder.exists() and not folder.is_dir():
            raise InvalidInput(f"{folder} is a file; 'out' must be a folder.")
        existed = folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        for unfinished in folder.glob(".vault-*"):  # a run that was cut off before it began: nothing was charged
            remove_tree(unfinished)
    return not existed


def _clean(folder: Path, created: bool, own: bool) -> None:
    """Leave nothing behind of a run that was refused."""
    if own:
        for name in ("run.ledger", "run.ledger-wal", "run.ledger-shm", "run.ledger.key"):
            (folder / name).unlink(missing_ok=True)
    if created:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _ledger(ledger: str | Path | Ledger | None, folder: Path, plan: Plan, dataset: str) -> Ledger:
    if isinstance(ledger, Ledger):
        return ledger
    if ledger is not None:
        return Ledger(ledger)
    own = Ledger.create(folder / "run.ledger")
    if all(one.dataset != dataset for one in own.datasets()):  # it may be there from a start that was cut off
        own.add(dataset, plan.budget.epsilon, plan.budget.delta)
    return own


def _charged(vault: Vault) -> bool:
    """Whether the ledger holds this run's charge; in doubt, yes, so that nothing paid for is thrown away."""
    try:
        terms = terms_of(vault)
        return terms.ledger is None or Ledger(terms.ledger).paid(terms.charge, terms.run)
    except Exception:
        return True


@dataclass(frozen=True)
class _Run:
    """One run under way, new or continued."""

    folder: Path
    vault: Vault
    terms: Terms
    trainer: Any
    data: Any
    executor: Executor
    beat: Callable[[Beat], None] | None

    def work(self) -> Release:
        with self.vault.locked():
            if (self.folder / "release").is_dir():  # cut off between the release and its note
                return self._close(load_release(self.folder))
            self.terms.plan.check()  # what is charged is what the settings cost, whatever was stored
            randomness = self.vault.randomness()
            work = Work(self.trainer, self.data, randomness.secret(), self.vault.path)
            with self._workers(work) as session:
                receipt, budget, unit = self._charge()
                with self._sealed():
                    kind = kinds(self.trainer, self._log)
                    loop = Loop(self.vault, session, self.beat, counts=receipt is None, kind=kind)
                    selection, replay = self._train(loop, randomness)
                    facts = self._facts(selection, receipt, budget, unit, replay)
                    moment = public_time(facts.released)
                    if self.terms.release_at is not None:
                        loop.wait_until(moment.timestamp())
            return self._close(write_release(self.folder, facts, self._model(selection)))

    @property
    def _log(self) -> Path:
        return self.vault.path / "output" / "search.log"

    @contextlib.contextmanager
    def _workers(self, work: Work) -> Iterator[Session]:
        session = self.executor.open(work)
        try:
            yield session
        finally:
            session.close()

    def _charge(self) -> tuple[Receipt | None, tuple[float, float] | None, str]:
        terms = self.terms
        if terms.ledger is None:
            return None, None, "record"
        book = Ledger(terms.ledger)
        if terms.charge == terms.run:
            receipt = book.charge(terms.dataset, terms.plan.cost, terms.charge, terms.fingerprint)
        else:
            receipt = book.claim(terms.charge, terms.run, terms.dataset, terms.plan.cost)
        budget, unit = book.terms(terms.dataset)
        return receipt, budget, unit

    @contextlib.contextmanager
    def _sealed(self) -> Iterator[None]:
        """Errors from here on may depend on data: their details stay in the vault."""
        try:
            yield
        except Exception as error:
            if type(error) in (DptuneError, Corrupt, Stopped):  # ours: about the disk, the workers, the folder
                raise
            with contextlib.suppress(Exception):
                write_durable(self.vault.path / "stopped.txt", traceback.format_exc().encode())
            raise Stopped(
                f"The run in {self.folder} stopped inside the seal; the curator finds details in its vault. It is "
                f"charged; "
                f"continue it with 'dptune resume {self.folder}'."
            ) from None

    def _train(self, loop: Loop, randomness: Randomness) -> tuple[Selection, str]:
        with silence(self._log):
            search = Quiet(self.terms.plan.start(randomness), self._log)
        selection = settle_selection(self.trainer, self.terms.plan, loop.search(search))
        if selection.final is not None:
            loop.final(selection.final)
        replay = self.terms.replay
        if self.terms.ledger is None:
            with silence(self._log):
                first = self.terms.plan.start(randomness).ask()
            replay = "unknown" if not first else "exact" if loop.repeats(first) else "inexact"
        return selection, replay

    def _model(self, selection: Selection) -> bytes | None:
        number = selection.final.index if selection.final is not None else selection.winner
        return None if number is None else self.vault.model(number)

    def _facts(
        self, selection: Selection, receipt: Receipt | None, budget: tuple[float, float] | None, unit: str, replay: str
    ) -> Facts:
        terms, plan = self.terms, self.terms.plan
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return Facts(
            plan=plan,
            params=selection.params,
            dataset=terms.dataset,
            unit=unit,
            epsilon=plan.price(),
            epsilon_lower=_lower(plan),
            receipt=receipt,
            budget=budget,
            model=None,
            released=terms.release_at or (now if receipt is None else receipt.time),
            release_at=terms.release_at,
            replay=replay,
            data_is=terms.data_is,
            seconds=self.vault.seconds() if receipt is None else None,
        )

    def _close(self, release: Release) -> Release:
        """The release is out: destroy the secret, and let no folder tell when that was."""
        self.vault.destroy()
        self.vault.remember(state="released")
        moment = public_time(release.details["released"])
        set_times(moment, self.vault.path, release.path, self.folder)
        return release


def _lower(plan: Plan) -> float | None:
    """The lower certificate; None where there is none."""
    if not plan.guaranteed:
        return None
    try:
        value = plan.cost.epsilon_lower(plan.budget.delta)
    except (ArithmeticError, ValueError, IndexError):
        return None
    return value if 0.0 < value < math.inf else None  # 0 certifies nothing
