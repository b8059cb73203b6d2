"""Film reviews as hashed bags of words: a public hash decides the column, so no vocabulary is learnt.

Each review is treated on its own: words are lower-cased, hashed to a signed bucket, damped by a square root
and scaled to unit length. A line without the four fields of a review is not a record; no line is refused or quoted.
"""

from __future__ import annotations

import bz2
import functools
import re
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

from dptune import _validate
from dptune._typing import Floats, Indices

__all__ = ["hashed_words", "reviews"]


_WORD = re.compile(r"[a-z']+")


@functools.lru_cache(maxsize=2**18)
def _code(word: str) -> int:
    return zlib.crc32(word.encode())


def hashed_words(text: str, buckets: int) -> Floats:
    """The features of one text."""
    counts = Counter(_WORD.findall(text.lower()))
    codes = np.array([_code(word) for word in counts], np.int64)
    roots = np.sqrt(np.array(list(counts.values()), np.float64))
    # Whole squares of counts are rare, so the order of the words shows in the last bits: in the order of their codes.
    order = np.argsort(codes, kind="stable")
    codes, roots = codes[order], roots[order]
    vector: Floats = np.bincount((codes >> 1) % buckets, np.where(codes & 1, roots, -roots), buckets).astype(np.float32)
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length > 0 else vector


def reviews(path: Path, buckets: int) -> tuple[Floats, Indices]:
    """Features and labels (1 for a positive review) of one of the two IMDB files."""
    _validate.integer("buckets", buckets, 2)
    texts, labels = [], []
    with bz2.open(path, "rt", encoding="utf-8", errors="replace", newline="\n") as stream:
        for line in stream:
            fields = line.rstrip("\n").split("\t", 3)
            if len(fields) != 4:
                continue
            texts.append(fields[3])
            labels.append(_label(fields[0]))
    features = np.empty((len(texts), buckets), np.float32)  # at once: rows are wide, and a copy would be another 800 MB
    for place, text in enumerate(texts):
        features[place] = hashed_words(text, buckets)
    return features, np.array(labels, dtype=np.int64)


def _label(text: str) -> int:
    return int(text in {"1", "pos", "positive"})
