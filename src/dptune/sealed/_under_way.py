"""One run under way, new or continued: from wherever it is to its release.

Charge, train, select, build the release inside the vault, wait for its public time, publish, destroy the secret. The
caller (``run.py``) has locked the folder and made the vault. Whatever goes wrong after the charge is written to the
vault; what is raised says nothing that depends on data.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dptune._codec import from_json, to_values
from dptune._files import plain, private_folder, write_durable
from dptune.accounting.attackers import Attackers, attackers
from dptune.errors import Corrupt, DptuneError, InvalidInput, Stopped
from dptune.executors.base import Executor, Session, Task, TriesTrials, Work
from dptune.ledgers import Ledger, Receipt
from dptune.methods.lines import settle_selection
from dptune.methods.plan import Plan
from dptune.methods.trial import Selection
from dptune.randomness import Randomness
from dptune.sealed._binding import purpose_of, signer_of
from dptune.sealed._clock import Deadline
from dptune.sealed._quiet import Quiet, silence
from dptune.sealed._signature import Signer
from dptune.sealed._stacks import kinds
from dptune.sealed._terms import Terms, public_trials
from dptune.sealed._units import RECORD
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
from dptune.trainer import Trainer

__all__ = ["UnderWay", "check_release"]


def check_release(folder: Path, facts: dict[str, Any]) -> None:
    """The release folder must be the one that the run made."""
    if facts.get("release") is None or digest_release(folder / "release") != facts["release"]:
        raise Corrupt(
            f"The folder {folder / 'release'} is not what the run released: it was changed, or put there by somebody "
            "else. Restore it from a copy; if the run was not finished, move that folder away and resume."
        )


@dataclass(frozen=True)
class UnderWay:
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
        work = Work(self.trainer, self.data, randomness.secret(), self.vault.inside, self.terms.pickle, self._steps)
        with self._workers(work) as session:
            self._try(session)
            signer = None if self.terms.ledger is None else signer_of(randomness, self.terms.run)
            receipt, budget, unit = self._charge(signer)
            with self._sealed():
                kind = kinds(self.trainer, self._log)
                loop = Loop(self.vault, session, self.beat, receipt is None, kind, self.terms.pickle, work.steps)
                selection, replay = self._train(loop, randomness)
                facts = self._facts(selection, receipt, budget, unit, replay)
                built = self._build(facts, selection, loop, signer)
        self._check_charge(receipt)
        return self._close(publish_release(self.folder, built))

    def _try(self, session: Session) -> None:
        """Train once on blank records before the charge: what fails there would fail, unseen, in every training.

        Trials come from public randomness, and nothing but types, shapes and declared facts of the records is used, so
        whether a run is refused is public. A rehearsal goes on, and its report says what would have been refused.
        """
        if not isinstance(session, TriesTrials) or self.vault.facts().get("receipt") is not None:
            return
        with silence(self._log):
            trials = public_trials(self.terms.plan)
        reason = None
        for trial in trials:
            result = session.attempt(Task(trial.index, trial.to_json(), blank=True))
            if result.error is None:
                return
            reason = reason or ("the worker process died" if result.died else plain(result.error))
        if reason is None:
            return
        if self.terms.ledger is None:
            self.vault.remember(refusal=reason)
            return
        said = f"{reason:.500}".rstrip(". ")
        raise InvalidInput(
            f"A training on blank records of this type failed, and so would every training of this run: {said}. "
            "Rehearse it on public or synthetic data to see more."
        )

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
    def _unit(self) -> str:
        """What the ledger protects each of."""
        return RECORD if self.terms.units is None else self.terms.units.unit

    @property
    def _steps(self) -> Path | None:
        """Where trainings say how far they are: in a watched rehearsal; a sealed run has no such place."""
        return self.vault.inside / "steps" if self.terms.ledger is None and self.beat is not None else None

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
            return None, None, self._unit
        book, known = Ledger(terms.ledger), self.vault.facts().get("receipt")
        purpose = purpose_of(terms.plan, signer)
        if known is not None:  # charged before it was cut off
            receipt = from_json(known, Receipt, "a receipt")
            self._check_charge(receipt)
        elif terms.charge == terms.run:
            receipt = book.charge(terms.dataset, terms.plan.cost, terms.charge, purpose, terms.opening, self._unit)
        else:
            receipt = book.claim(terms.charge, terms.run, terms.dataset, terms.plan.cost, purpose)
        budget, unit = book.terms(terms.dataset, receipt.number)
        self.vault.remember(receipt=to_values(receipt))
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
                f"charged; continue it with 'dptune resume {self.folder}'."
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
            encoder=terms.encoder,
            public_encoder=terms.public_encoder,
            units=terms.units,
            attackers=_attackers(plan),
            spent=self._spent(receipt),
            training=terms.training,
            generator=self.vault.facts().get("generator"),
        )

    def _spent(self, receipt: Receipt | None) -> float | None:
        """What the ledger says of all charges up to this one; the same whenever the run is continued."""
        if receipt is None or self.terms.ledger is None:
            return None
        return Ledger(self.terms.ledger).spent_with(receipt.charge)

    def _close(self, release: Release) -> Release:
        """The release is out: let no folder tell when that was, then destroy the secret.

        What others can see comes first: destroying takes longer the more models there are.
        """
        facts = self.vault.facts()
        check_release(self.folder, facts)
        if facts.get("state") != "released":
            set_times(public_time(release.details["released"]), release.path, self.folder)
            self.vault.remember(state="released")
        self.vault.destroy()
        return release


def _attackers(plan: Plan) -> Attackers | None:
    """What anybody can learn, from the plan alone; None where nothing is known. It must not stop a charged run."""
    if not plan.guaranteed:
        return None
    try:
        return attackers(plan.cost)
    except Exception:  # a function of the plan: raised again at every resume, it would hold back a paid release
        return None


def _lower(plan: Plan) -> float | None:
    """The lower certificate; None where there is none."""
    if not plan.guaranteed:
        return None
    try:
        value = plan.cost.epsilon_lower(plan.budget.delta)
    except (ArithmeticError, ValueError, IndexError):
        return None
    return value if 0.0 < value < math.inf else None  # 0 certifies nothing
