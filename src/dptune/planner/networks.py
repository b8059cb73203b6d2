"""Models of the user's own: a function of the parameters that makes a torch module, trained by DP-SGD.

Which shapes a function makes follows from public parameters alone, so it is tried here, before anything is planned or
charged: at the corners of the space, on blank records, and whether a file can hold what it makes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from dptune._global_state import kept, plain_torch
from dptune.errors import InvalidInput
from dptune.executors.models import pack_model
from dptune.planner.defaults import default_trainer
from dptune.planner.regression import default_regression
from dptune.scores import AbsoluteError
from dptune.spaces import Choice, Domain, Float, Space
from dptune.trainer import Params
from dptune.training import Cnn, DpSgdTrainer, Mlp, Regression

__all__ = ["Model", "corners", "network_space", "network_trainer", "regression_network", "try_network"]

Model = Mlp | Cnn | Callable[[Params], Any]

_MOST = 24  # configurations that are tried


def network_trainer(model: Model, features: int, classes: int, records: int) -> DpSgdTrainer:
    """DP-SGD on a model of the user's own, with the batches, steps and clip norm of the default trainer.

    Args:
        model: A function of the parameters that makes a torch module, for every run a new one; or a description.
        features: How many values a record has.
        classes: How many classes there are.
        records: About how many records there are, a public figure.

    Returns:
        The trainer; its noise is set by a plan. Parameters that DP-SGD has (``learning_rate``, ``clip_norm``,
        ``batch_size``, ``steps``) are its own; the function sees all of them.

    Raises:
        InvalidInput: If ``model`` is neither, or a figure is out of range.

    Example:
        >>> from torch import nn
        >>> from dptune.planner import network_trainer
        >>> def model(p):
        ...     return nn.Sequential(nn.Linear(64, p["hidden"]), nn.ReLU(), nn.Linear(p["hidden"], 10))
        >>> network_trainer(model, 64, 10, 1400).settings.steps
        300
    """
    return dataclasses.replace(default_trainer(features, classes, records), model=model)


def regression_network(model: Model, features: int, ends: tuple[float, float], records: int) -> DpSgdTrainer:
    """DP-SGD on a regression that the user describes, with the batches, steps and clip norm of the default one.

    Args:
        model: A :class:`~dptune.training.Regression`, or a function of the parameters that makes a torch module with
            one output, the number as a share of its range.
        features: How many values a record has.
        ends: The declared range of the target.
        records: About how many records there are, a public figure.

    Returns:
        The trainer; its noise is set by a plan.

    Raises:
        InvalidInput: If ``model`` is a description of a classifier.

    Example:
        >>> from dptune.training import Regression, softmax
        >>> regression_network(Regression(3, (16,), target_range=(0, 50)), 3, (0.0, 50.0), 4000).settings.clip_norm
        0.1
        >>> regression_network(softmax(3, 2), 3, (0.0, 50.0), 4000)
        Traceback (most recent call last):
        dptune.errors.InvalidInput: A Mlp is trained on classes, and these targets are numbers. Leave it out ...
    """
    if isinstance(model, Mlp | Cnn) and not isinstance(model, Regression):
        raise InvalidInput(
            f"A {type(model).__name__} is trained on classes, and these targets are numbers. Leave it out for a linear "
            f"regression, or give a network: model=Regression({features}, (16,), target_range=({ends[0]:g}, "
            f"{ends[1]:g})) of dptune.training."
        )
    return dataclasses.replace(default_regression(features, ends, records), model=model, score=AbsoluteError())


def network_space() -> Space:
    """The learning rates that are tried where a model is given and no space: those of Adam for networks.

    Returns:
        A space with one parameter, log-uniform from .003 to .1.

    Example:
        >>> from dptune.planner import network_space
        >>> network_space().names
        ('learning_rate',)
    """
    return Space(learning_rate=Float(0.003, 0.1, log=True))


def try_network(trainer: DpSgdTrainer, space: Domain, data: object, *, pickle: bool = False) -> None:
    """Make, train for a step and store the model at the corners of the space; no record is looked at.

    Args:
        trainer: What trains the model.
        space: What may be tried.
        data: The records, of which shape and classes are public.
        pickle: Whether models may be stored as pickles.

    Raises:
        InvalidInput: If the model fails at a corner, or no safe file can hold it: so would runs of the search.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from dptune import Dataset, Int, Space
        >>> from dptune.planner import network_trainer, try_network
        >>> data = Dataset(np.zeros((100, 4)), np.zeros(100, int), classes=2)
        >>> trainer = network_trainer(lambda p: nn.Sequential(nn.Linear(4, p["units"])), 4, 2, 100)
        >>> try_network(trainer, Space(units=Int(2, 3)), data)
        Traceback (most recent call last):
        dptune.errors.InvalidInput: The model fails with {'units': 3}: The module gives 3 outputs for 2 classes. ...
    """
    factory = trainer.module_factory
    for params in corners(space):
        try:
            trainer.check(params, data)
            if factory is not None:
                with plain_torch(), kept():
                    pack_model(factory(dict(params)), pickle=pickle, factory=factory, params=params)
        except Exception as error:  # public: it follows from the function and its parameters
            said = " ".join(str(error).split())
            said = said if isinstance(error, InvalidInput) else f"{type(error).__name__}: {said}"
            raise InvalidInput(f"The model fails with {params}: {said:.600}") from None


def corners(space: Domain) -> Iterator[Params]:
    """The default, all smallest values, all largest, and each value at an end beside otherwise default ones.

    Of a list, its items; of a choice, all values. At most 24 configurations.

    Args:
        space: What may be tried.

    Returns:
        Different configurations.

    Example:
        >>> from dptune import Choice, Int, Space
        >>> from dptune.planner.networks import corners
        >>> [one["hidden"] for one in corners(Space(hidden=Int(4, 64)))]
        [34, 4, 64]
    """
    seen: list[Params] = []
    for params in _listed(space):
        if params not in seen and len(seen) < _MOST:
            seen.append(params)
            yield params


def _listed(space: Domain) -> Iterator[Params]:
    if not isinstance(space, Space):
        yield from (dict(item) for item in space.items)
        return
    ends = {
        name: [value for value, _ in one.points(None)] if isinstance(one, Choice) else [one.low, one.high]
        for name, one in space.dimensions
    }
    yield space.default
    yield {name: values[0] for name, values in ends.items()}
    yield {name: values[-1] for name, values in ends.items()}
    for name, values in ends.items():
        yield from ({**space.default, name: value} for value in values)
