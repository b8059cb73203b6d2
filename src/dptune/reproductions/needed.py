"""The files that an experiment needs, looked for before anything is computed: a missing one is one line at once."""

from __future__ import annotations

import os
from pathlib import Path

from dptune.errors import InvalidInput

__all__ = ["have", "require"]

_IDX = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
FILES = {
    "mnist": _IDX,
    "fashion-mnist": _IDX,
    "cifar-10-batches-bin": (*(f"data_batch_{place}.bin" for place in range(1, 6)), "test_batch.bin"),
    "svhn": ("train_32x32.mat", "test_32x32.mat"),
    "adult": ("adult.data", "adult.names", "adult.test"),
    "imdb": ("imdb_train.tsv.bz2", "imdb_test.tsv.bz2"),
    "papernot-steinke": ("lr_acc.json",),
}
"""By folder of ``DPTUNE_DATA``."""
_FROM = {"lr_acc.json": " (tensorflow/privacy, research/hyperparameters_2022)"}


def _present(root: Path, folder: str, name: str) -> bool:
    places = [root / folder / name]
    if folder == "cifar-10-batches-bin":  # compressed, or the batches for Python, do as well
        places += [root / folder / f"{name}.xz", root / "cifar-10-batches-py" / name.removesuffix(".bin")]
    return any(path.is_file() for path in places)


def have(folder: str) -> bool:
    """Whether all files of a folder of ``DPTUNE_DATA`` are there, for data that an experiment can do without.

    Args:
        folder: Its name.

    Returns:
        False also if ``DPTUNE_DATA`` is not set.

    Example:
        >>> have("svhn") in (True, False)
        True
    """
    root = os.environ.get("DPTUNE_DATA", "")
    return bool(root) and all(_present(Path(root), folder, file) for file in FILES[folder])


def require(needs: str, quick: bool) -> None:
    """Refuse in one line if a file is missing.

    Args:
        needs: Folders as the catalogue names them: "mnist, adult", or "mnist; in full imdb" for what ``--quick`` does
            without.
        quick: Whether the small version is asked for.

    Raises:
        InvalidInput: If ``DPTUNE_DATA`` is not set, or a file is not in it.

    Example:
        >>> require("", quick=True)
    """
    always, _, full = needs.partition("; in full ")
    wanted = [name.strip() for part in (always, "" if quick else full) for name in part.split(",") if name.strip()]
    if not wanted:
        return
    root = os.environ.get("DPTUNE_DATA", "")
    if not root:
        raise InvalidInput(
            f"This needs {', '.join(wanted)}, but the environment variable DPTUNE_DATA is not set. Point it to the "
            "folder that holds them (docs/training.md lists the files)."
        )
    missing = [(folder, file) for folder in wanted for file in FILES[folder] if not _present(Path(root), folder, file)]
    if missing:
        folder, file = missing[0]
        more = f" {len(missing) - 1} more are missing ({_counted(missing[1:])})." if missing[1:] else ""
        raise InvalidInput(
            f"There is no file {Path(root) / folder / file}. Put the original {file}{_FROM.get(file, '')} into the "
            f"folder {folder}/ of DPTUNE_DATA.{more}"
        )


def _counted(missing: list[tuple[str, str]]) -> str:
    folders = [folder for folder, _ in missing]
    return ", ".join(f"{name}/: {folders.count(name)}" for name in dict.fromkeys(folders))
