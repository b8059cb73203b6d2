"""Models to be judged on private validation records: well-behaved ones, and ones that stumble over marked records.

A record is marked by :data:`MARK` in its first feature. None of these models is wrong by itself: users' models are what
they are, and judging must hold whatever they do with one record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dptune._typing import AnyArray
from dptune.training import softmax
from dptune.training.models import Regression
from dptune.training.trained_regression import trained

__all__ = ["JUDGED", "MARK"]


MARK = 1000.0


def _marked(x: AnyArray) -> bool:
    return bool(np.any(np.asarray(x)[:, 0] == MARK))


class Plain:
    """Predicts by the sign of the first feature."""

    def predict(self, x: AnyArray) -> AnyArray:
        return np.asarray((np.asarray(x)[:, 0] > 0).astype(np.int64))


class Raising(Plain):
    """Raises at the sight of a marked record."""

    def __init__(self, error: type[BaseException] = ValueError) -> None:
        self.error = error

    def predict(self, x: AnyArray) -> AnyArray:
        if _marked(x):
            raise self.error("a marked record")
        return super().predict(x)


class Short(Plain):
    """Answers once for all at the sight of a marked record."""

    def predict(self, x: AnyArray) -> AnyArray:
        return super().predict(x)[: 1 if _marked(x) else None]


class Empty(Plain):
    """Answers nothing at the sight of a marked record."""

    def predict(self, x: AnyArray) -> AnyArray:
        return super().predict(x)[: 0 if _marked(x) else None]


class Words(Plain):
    """Answers with words at the sight of a marked record."""

    def predict(self, x: AnyArray) -> AnyArray:
        found = super().predict(x)
        return found.astype(str) if _marked(x) else found


class Wide(Plain):
    """Answers with a column."""

    def predict(self, x: AnyArray) -> AnyArray:
        return super().predict(x)[:, None]


class Peers(Plain):
    """Centres its input first."""

    def predict(self, x: AnyArray) -> AnyArray:
        return super().predict(x - np.asarray(x).mean(axis=0))


class Counting(Plain):
    """Gives another answer after it has seen a marked record."""

    def __init__(self) -> None:
        self.turned = 0

    def predict(self, x: AnyArray) -> AnyArray:
        self.turned += int(_marked(x))
        return (super().predict(x) + self.turned) % 3


class Judge:
    """Judges records itself, by a value for each; marked ones by ``value``."""

    def __init__(self, value: float) -> None:
        self.value = value

    def correct(self, data: Any) -> AnyArray:
        x = np.asarray(data[0] if isinstance(data, tuple) else data.x)
        return np.where(x[:, 0] == MARK, self.value, 0.75)


class Refusing(Judge):
    """Raises on marked records."""

    def correct(self, data: Any) -> AnyArray:
        if _marked(data[0] if isinstance(data, tuple) else data.x):
            raise KeyError("a marked record")
        return super().correct(data)


class Echo:
    """Answers with what a record itself says, in its first features: a number, a class, a rank. Keeps its promise."""

    judges_each_record_alone = True

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def predict(self, x: AnyArray) -> AnyArray:
        said = np.asarray(x, np.float64)
        return said[:, 0] if self.classes == 1 else said[:, 1].clip(-1.0, self.classes).astype(np.int64)

    def predict_proba(self, x: AnyArray) -> AnyArray:
        rank = np.asarray(x, np.float64)[:, 2].clip(0.0, 1.0)
        return np.stack([1.0 - rank, rank], axis=1)


def _trained(features: int, classes: int) -> Any:
    one = Regression(features, (3,), target_range=(0.0, 1.0))
    model = one if classes == 1 else softmax(features, classes)
    return trained(model, np.random.default_rng(1).normal(size=model.dimension).astype(np.float32))


@functools.cache
def _regression(features: int, classes: int) -> Any:
    """scikit-learn's, which refuses a whole batch for one NaN or infinity."""
    from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: PLC0415 - slow import

    rng = np.random.default_rng(2)
    if classes == 1:
        return LinearRegression().fit(rng.normal(size=(9, features)), np.arange(9) / 8.0)
    return LogisticRegression().fit(rng.normal(size=(9 * classes, features)), np.arange(9 * classes) % classes)


def _made(maker: Callable[[], Any]) -> Callable[[int, int], Any]:
    return lambda features, classes: maker()


JUDGED: dict[str, Callable[[int, int], Any]] = {
    "built-in": _trained,
    "echo": lambda features, classes: Echo(classes),
    "scikit-learn": _regression,
    "plain": _made(Plain),
    "raising": _made(Raising),
    "exiting": _made(lambda: Raising(SystemExit)),
    "out of memory": _made(lambda: Raising(MemoryError)),
    "short": _made(Short),
    "empty": _made(Empty),
    "words": _made(Words),
    "wide": _made(Wide),
    "peers": _made(Peers),
    "counting": _made(Counting),
    "judge": _made(lambda: Judge(0.25)),
    "judge, no number": _made(lambda: Judge(float("nan"))),
    "judge, infinite": _made(lambda: Judge(float("inf"))),
    "judge, negative": _made(lambda: Judge(-1e9)),
    "refusing": _made(lambda: Refusing(1.0)),
}
