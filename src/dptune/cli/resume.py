"""``dptune resume``: finish a run that was cut off, from the job that its vault remembers.

A job's own loader and trainer are imported again from the job's folder, so resuming runs code that the job names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli._display import heartbeat
from dptune.cli._job import Job, load_data, make_executor
from dptune.cli._output import print_json
from dptune.cli._tuning import find_method, make_trainer
from dptune.cli.tune import exit_code, show, stoppable
from dptune.errors import DptuneError, InvalidInput
from dptune.sealed import load_release
from dptune.sealed.run import job_of, released
from dptune.sealed.run import resume as resume_run

__all__ = ["resume"]


def resume(
    folder: Annotated[Path, typer.Argument(help="The run's folder (the --out of dptune tune).")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> int:
    """Finish a run that was cut off: same trials, same randomness, no second charge.

    This runs code: the loader and the trainer that the run's job names are imported from the job's folder. Resume only
    runs whose folder and job you trust.
    """
    if released(folder):
        release = load_release(folder)
        if as_json:
            print_json({**release.details, "folder": str(release.path), "resumed": False})
        else:
            print(f"Nothing to do: the run in {folder} is finished; see {release.path / 'statement.md'}.")
        return exit_code(release)
    sections = job_of(folder)
    if sections is None:
        raise InvalidInput(
            f"The run in {folder} was started from Python; continue it there: dptune.tune(...) as it was called, with "
            f"resume={str(folder)!r}, or dptune.resume({str(folder)!r}, trainer, data)."
        )
    with _unfinished(folder), stoppable(folder):
        job = Job.from_stored(sections)
        if ":" in (method := str(job.get("method", "name", ""))):
            find_method(job, method)  # imported, so that its plan can be read
        loaded = load_data(job, folder)
        trainer = make_trainer(job, loaded.data, loaded.public, loaded.encoder)
        with heartbeat("finishing inside the seal") as beat:
            release = resume_run(folder, trainer, loaded.data, executor=make_executor(job), beat=beat)
    return show(release, as_json)


@contextlib.contextmanager
def _unfinished(folder: Path) -> Iterator[None]:
    """Whatever stops a resumed run: its charge stands, and it can be resumed again."""
    try:
        yield
    except DptuneError as error:
        if "dptune resume" in str(error):
            raise
        raise type(error)(
            f"{error} The run in {folder} is not finished and what it was charged stays charged: mend this, then "
            f"'dptune resume {folder}' again."
        ) from None
