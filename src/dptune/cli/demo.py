"""``dptune demo``: tune a private model on scikit-learn's digits, on a part of the records, and show what it cost."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from dptune.cli._job import Job, load_data
from dptune.cli._output import print_json
from dptune.cli.tune import exit_code, run_job, show
from dptune.errors import InvalidInput
from dptune.report import report
from dptune.training import TrainedModel

__all__ = ["demo"]

DEMO: dict[str, dict[str, Any]] = {
    "data": {"name": "digits", "validation": "test", "kind": "public"},
    "model": {"kind": "softmax", "batch_size": 256, "steps": 120, "optimizer": "momentum"},
    "space": {"learning_rate": {"low": 0.01, "high": 10.0, "log": True}, "clip_norm": [0.3, 1.0, 3.0]},
    "method": {"name": "subset", "runs": "geometric:8", "fraction": 0.2, "final": "rest"},
    "budget": {"epsilon": 3.0, "delta": 1e-4},
}


def demo(
    out: Annotated[Path | None, typer.Option(help="The run's folder; none: a new temporary one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> int:
    """Tune a private softmax regression on digits within epsilon 3, tuning included."""
    folder = out if out is not None else Path(tempfile.mkdtemp(prefix="dptune-demo-")) / "run"
    job = Job(DEMO)
    release = run_job(job, folder)
    public = load_data(job).public
    model = release.model
    accuracy = model.accuracy(public) if isinstance(model, TrainedModel) and public is not None else None
    if as_json:
        print_json({**release.details, "folder": str(release.path), "test_accuracy": accuracy})
        return exit_code(release)
    code = show(release, as_json=False)
    if accuracy is not None:
        print(f"accuracy of the released model on the public test records: {accuracy:.3f}")
    print(
        f"the whole cost {release.epsilon:.3f} of epsilon 3: tuning, choice and training. Page one of the statement:\n"
    )
    print(release.statement.partition("## Technical annex")[0].rstrip())
    print(f"\n{_page(folder)}")
    return code


def _page(folder: Path) -> str:
    """Where the page of the run is; without the extra that pages need, where its statement is."""
    try:
        return f"The page of this run: {report(folder)}"
    except InvalidInput as error:
        return f"{error} The statement alone: {folder / 'release' / 'statement.html'}"
