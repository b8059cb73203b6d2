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
import re
import secrets
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from dptune._files import plain, private_folder, remove_tree, write_durable
from dptune.data import Named
from dptune.errors import Corrupt, DptuneError, InvalidInput, Stopped
from dptune.executors.base import Executor, Session, Work
from dptune.executors.processes import Processes
from dptune.ledgers.ledger import Ledger, Receipt
from dptune.methods.lines import settle_selection
from dptune.methods.plan import Plan
from dptune.methods.trial import Selection
from dptune.randomness import Randomness
from dptune.sealed._binding import purpose_of, signer_of
from dptune.sealed._clock import Deadline
from dptune.sealed._folder import Folder, new_folder, working_in
from dptune.sealed._quiet import Quiet, silence
from dptune.sealed._records import check_records, mark_of
from dptune.sealed._signature import Signer
from dptune.sealed._stacks import kinds
from dptune.sealed._terms import Terms, check_able, check_name, check_run, fingerprint, preflight, stored_job, terms_of
from dptune.sealed.duration import AUTO, offered_time, workers_of
from dptune.sealed.loop import Beat, Loop
from dptune.sealed.release import (
    Release,
    build_release,
    digest_release,
    load_release,
    public_time,
    publish_release,
    set_times,
)
from dptune.sealed.statement import Facts
from dptune.sealed.vault import Vault
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
    release_at = _release_time(plan, release_at, rehearsal, executor)
    replay = "unknown" if rehearsal is None else str(load_release(Path(rehearsal)).details.get("replay", "unknown"))
    randomness = Randomness.fresh() if seed is None else Randomness.rehearsal(seed)
    preflight(plan, trainer, data)
    name = check_name(dataset or (str(data.name) if isinstance(data, Named) and data.name else "data"))
    identity = secrets.token_hex(16)
    path = Path(out) if out is not None else Path("dptune-runs") / f"{_plain(name)}-{identity[:8]}"
    with new_folder(path) as folder, _refused(folder, charging=seed is None and charge is None):
        book = None
        if seed is None:
            book = folder.own_ledger(plan, name) if ledger is None else _ledger(ledger)
            book.check_relation(name, plan.cost)  # refused before anything is written, as is an unknown data set
        mark = None if book is None else fingerprint(data, book.path)
        where = None if book is None else str(book.path.absolute())
        terms = Terms(plan, identity, charge or identity, where, name, data_is, release_at, replay, mark, job)
        noted = {"terms": terms.describe(), "state": "open", "generator": _generator(trainer)}
        noted["records"] = mark_of(data, randomness)
        if release_at is not None:
            noted["deadline"] = Deadline.of(public_time(release_at)).describe()
        vault = Vault.create(path / "vault", noted, randomness)
        return _Run(path, vault, terms, trainer, data, executor or Processes(), beat).work()


def _release_time(plan: Plan, given: str | None, rehearsal: str | Path | None, executor: Any) -> str | None:
    """The public time of release, which must be ahead: one that has passed hides nothing."""
    if given is None:
        return None
    if given == AUTO:
        if rehearsal is None:
            raise InvalidInput("release_at = 'auto' needs the folder of a rehearsal, which tells how long a run takes.")
        return offered_time(plan, Path(rehearsal), workers_of(executor)).isoformat()
    moment = public_time(given)
    if moment <= datetime.datetime.now(datetime.UTC):
        raise InvalidInput(
            f"'release_at' is a public time before which nothing is released; {given} has passed. Give one by which "
            "the run will be over, or leave it out."
        )
    return moment.isoformat()


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
    """Finish a run that was cut off: same trials, same randomness, no second charge."""
    folder = Path(out)
    if released(folder):
        return load_release(folder, continued=False)
    with working_in(folder):
        vault = Vault.open(folder / "vault")  # looked at again: another process may just have finished it
        terms = terms_of(vault)
        if not (folder / "release").exists():
            check_able(terms.plan, trainer)
            _check_generator(vault, trainer)
            check_records(vault, data)
        return _Run(folder, vault, terms, trainer, data, executor or Processes(), beat).work()


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


def released(out: str | Path) -> bool:
    """Whether a run is finished: its release is out, unchanged, and its secret destroyed."""
    vault = Vault.open(Path(out) / "vault")
    facts = vault.facts()
    if facts.get("state") != "released" or not vault.destroyed():
        return False
    _check_release(Path(out), facts)
    return True


def _plain(name: str) -> str:
    """The name of a data set, if it may name a folder: no way out of the folder that holds it."""
    if not re.fullmatch(r"\w[\w .+-]{0,99}", name):
        raise InvalidInput(
            f"The data set's name {name!r} cannot name a folder: use letters, digits and - _ . + only, or say where "
            "the run goes with 'out'."
        )
    return name


def _check_release(folder: Path, facts: dict[str, Any]) -> None:
    """The release folder must be the one that the run made."""
    if facts.get("release") is None or digest_release(folder / "release") != facts["release"]:
        raise Corrupt(
            f"The folder {folder / 'release'} is not what the run released: it was changed, or put there by somebody "
            "else. Restore it from a copy; if the run was not finished, move that folder away and resume."
        )


def _ledger(ledger: str | Path | Ledger) -> Ledger:
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


def _charged(vault: Vault) -> bool:
    """Whether this run was charged, whatever the ledger says now; in doubt, yes, so that nothing paid for is lost."""
    try:
        if vault.facts().get("receipt") is not None:
            return True
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
    trainer: Trainer[Any, object]
    data: Any
    executor: Executor
    beat: Callable[[Beat], None] | None

    def work(self) -> Release:
        """From wherever the run is to its release; the caller has locked the folder."""
        if (self.folder / "release").exists():  # cut off between the release and its note
            return self._close(load_release(self.folder))
        randomness = self.vault.randomness()
        work = Work(self.trainer, self.data, randomness.secret(), self.vault.inside)
        with self._workers(work) as session:
            signer = None if self.terms.ledger is None else signer_of(randomness, self.terms.run)
            receipt, budget, unit = self._charge(signer)
            with self._sealed():
                kind = kinds(self.trainer, self._log)
                loop = Loop(self.vault, session, self.beat, counts=receipt is None, kind=kind)
                selection, replay = self._train(loop, randomness)
                facts = self._facts(selection, receipt, budget, unit, replay)
                built = self._build(facts, selection, loop, signer)
        self._check_charge(receipt)
        return self._close(publish_release(self.folder, built))

    def _build(self, facts: Facts, selection: Selection, loop: Loop, signer: Signer | None) -> Path:
        """Make the release inside the vault, then wait for its public time.

        Everything that takes longer the more trials there were is done before: after the wait comes nothing but the
        ledger and one rename.
        """
        self.vault.check()
        model, deadline = self._model(selection), self._deadline()
        late = deadline is not None and deadline.left() < 0
        while True:
            built = build_release(self.vault.inside / "release", self._timed(facts, late), model, signer)
            self.vault.remember(release=digest_release(built))
            if deadline is None or late or deadline.left() > 0:
                break
            late = True  # its time passed while it was being written
        if deadline is not None:
            loop.wait_until(deadline)
        return built

    def _timed(self, facts: Facts, late: bool) -> Facts:
        """With the public time that files carry: never one that was not kept."""
        if facts.release_at is None or late:
            return replace(facts, late=late)
        return replace(facts, released=facts.release_at)

    def _deadline(self) -> Deadline | None:
        if self.terms.release_at is None:
            return None
        return Deadline.stored(self.vault.facts().get("deadline"), public_time(self.terms.release_at))

    @property
    def _log(self) -> Path:
        return private_folder(self.vault.inside / "output") / "search.log"

    @contextlib.contextmanager
    def _workers(self, work: Work) -> Iterator[Session]:
        session = self.executor.open(work)
        try:
            yield session
        finally:
            session.close()

    def _charge(self, signer: Signer | None) -> tuple[Receipt | None, tuple[float, float] | None, str]:
        terms = self.terms
        if terms.ledger is None or signer is None:
            return None, None, "record"
        book, known = Ledger(terms.ledger), self.vault.facts().get("receipt")
        purpose = purpose_of(terms.plan, signer)
        if known is not None:  # charged before it was cut off
            receipt = Receipt(**known)
            self._check_charge(receipt)
        elif terms.charge == terms.run:
            receipt = book.charge(terms.dataset, terms.plan.cost, terms.charge, terms.fingerprint, purpose)
        else:
            receipt = book.claim(terms.charge, terms.run, terms.dataset, terms.plan.cost, purpose)
        budget, unit = book.terms(terms.dataset)
        self.vault.remember(receipt=asdict(receipt))
        return receipt, budget, unit

    def _check_charge(self, receipt: Receipt | None) -> None:
        """What is released must still be paid for: the ledger holds the charge, at the place of the receipt."""
        if receipt is None or self.terms.ledger is None:
            return
        book = Ledger(self.terms.ledger)
        if not book.paid(self.terms.charge, self.terms.run) or book.receipt(self.terms.charge) != receipt:
            raise Corrupt(
                f"The ledger {book.path} no longer holds the charge of the run in {self.folder}; nothing was released. "
                "Restore the ledger from its newest backup, then resume the run."
            )

    @contextlib.contextmanager
    def _sealed(self) -> Iterator[None]:
        """Errors from here on may depend on data: their details stay in the vault."""
        try:
            yield
        except Exception as error:
            if type(error) in (DptuneError, Corrupt, Stopped):  # ours: about the disk, the workers, the folder
                raise
            with contextlib.suppress(Exception):
                write_durable(self.vault.inside / "stopped.txt", plain(traceback.format_exc()).encode())
            raise Stopped(
                f"The run in {self.folder} stopped inside the seal; the curator finds details in its vault. It is "
                f"charged; "
                f"continue it with 'dptune resume {self.folder}'."
            ) from None

    def _train(self, loop: Loop, randomness: Randomness) -> tuple[Selection, str]:
        with silence(self._log):
            search = Quiet(self.terms.plan.start(randomness), self._log)
        selection = settle_selection(self.trainer, loop.search(search))
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
            released=now if receipt is None else receipt.time,
            release_at=terms.release_at,
            late=False,
            replay=replay,
            data_is=terms.data_is,
            seconds=self.vault.seconds() if receipt is None else None,
        )

    def _close(self, release: Release) -> Release:
        """The release is out: let no folder tell when that was, then destroy the secret.

        What others can see comes first: destroying takes longer the more models there are.
        """
        facts = self.vault.facts()
        _check_release(self.folder, facts)
        if facts.get("state") != "released":
            set_times(public_time(release.details["released"]), release.path, self.folder)
            self.vault.remember(state="released")
        self.vault.destroy()
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
