"""One record moves a clipped sum of a torch module by at most the clip norm: every known layer, in every mode.

Layers that book-keeping knows come from its own registry, so that a new one is tested as soon as it exists; the rest
are modules that only ``vmap`` or single records can take. Dropout went wrong once: with a mask for every place of a
batch, a record that is inserted moves all that come after it.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
from tests.training.sensitivity import CLASSES, check, fast, records, secure

from dptune.errors import InvalidInput
from dptune.training.models import Cnn, Conv, GlobalMean, MaxPool

torch = pytest.importorskip("torch", reason="engine B needs torch")
from torch import nn  # noqa: E402 - after the check that torch exists

from dptune.training import _bookkeeping  # noqa: E402 - as above
from dptune.training.torch_engine import TorchEngine  # noqa: E402 - as above
from dptune.training.torch_models import build  # noqa: E402 - as above

IMAGE = (2, 4, 4)
FEATURES = 32
ARGUMENTS: dict[Any, tuple[Any, ...]] = {
    nn.MaxPool2d: (2, 1),
    nn.AvgPool2d: (2, 1),
    nn.AdaptiveAvgPool2d: (2,),
    nn.AdaptiveMaxPool2d: (2,),
    _bookkeeping.TemperedSigmoid: (1.58, 3.0, 0.71),
}


def dense(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 12), *layers, nn.Linear(12, CLASSES))


def image(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, IMAGE),
        nn.Conv2d(2, 3, 3, padding=1),
        *layers,
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(12, CLASSES),
    )


def in_places(*layers: nn.Module) -> nn.Module:
    """Layers over (record, channel, place)."""
    return nn.Sequential(
        nn.Linear(FEATURES, 12), nn.Unflatten(1, (3, 4)), *layers, nn.Flatten(), nn.Linear(12, CLASSES)
    )


class Drawing(nn.Module):
    """Draws inside of its forward pass, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first, self.last, self.way = nn.Linear(FEATURES, 12), nn.Linear(12, CLASSES), way

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        if self.way == "functional":
            x = nn.functional.dropout(x, 0.5, self.training)
        elif self.way == "turned":  # the records are not in front
            x = nn.functional.dropout(x.t(), 0.5, self.training).t()
        elif self.way == "rand" and self.training:
            x = x * torch.rand(x.shape)
        elif self.way == "untraceable":
            x = nn.functional.dropout(x, 0.5, self.training and float(x.detach().sum()) > -1e9)
        return self.last(x)


class Sequence(nn.Module):
    """Rows as eight places of four features, through a layer with dropout between places."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.last = layer, nn.Linear(4, CLASSES)

    def forward(self, x: Any) -> Any:
        x = x.reshape(-1, 8, 4)
        attends = isinstance(self.layer, nn.MultiheadAttention)
        x = self.layer(x, x, x) if attends else self.layer(x)
        return self.last((x[0] if isinstance(x, tuple) else x).mean(1))


class Tokens(nn.Module):
    """Whole numbers as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(50, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.last(self.table(x.abs().clamp(max=49.0).long()).mean(1))


@functools.cache
def supported() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    known = [*_bookkeeping._PLAIN, *_bookkeeping._MASKS]
    layers = {kind.__name__: kind(*ARGUMENTS.get(kind, ())) for kind in known}
    nested = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Tanh(), nn.Dropout(0.3)))
    return {
        **{f"{name} on images": image(layer) for name, layer in layers.items() if name != "Dropout1d"},
        **{name: dense(layer) for name, layer in layers.items() if "Pool" not in name and name[-1] != "d"},
        **{f"{name} on places": in_places(layer) for name, layer in layers.items() if name in {"Dropout1d", "Dropout"}},
        "nested": dense(nested),
        "first": nn.Sequential(nn.Dropout(0.5), nn.Linear(FEATURES, CLASSES)),
        "in place": dense(nn.Dropout(0.5, inplace=True)),
        "alpha": dense(nn.SELU(), nn.AlphaDropout(0.5)),
        "feature alpha": image(nn.FeatureAlphaDropout(0.5)),
        "three dimensions": nn.Sequential(
            nn.Unflatten(1, (2, 2, 2, 4)), nn.Conv3d(2, 3, 1), nn.Dropout3d(0.5), nn.Flatten(), nn.Linear(48, CLASSES)
        ),
        "group norm": image(nn.GroupNorm(1, 3), nn.Dropout2d(0.5)),
        "layer norm": dense(nn.LayerNorm(12), nn.Dropout(0.5)),
        "places": in_places(nn.Conv1d(3, 3, 1), nn.Dropout1d(0.5)),
        **{way: Drawing(way) for way in ("functional", "turned", "rand", "untraceable")},
        "attention": Sequence(nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)),
        "transformer": Sequence(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True)),
        "lstm": Sequence(nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True)),
        "gru": Sequence(nn.GRU(4, 4, num_layers=2, dropout=0.5, batch_first=True)),
        "tokens": Tokens(),
        "description": build(Cnn((2, 4, 4), CLASSES, (Conv(3, 2), MaxPool(2, 1), GlobalMean()), dense=(5,))),
    }


@pytest.mark.parametrize("name", list(supported()))
@pytest.mark.parametrize("mode", ["auto", "vmap", "alone", "secure"])
@pytest.mark.filterwarnings("ignore:.*enable_nested_tensor:UserWarning")
def test_engine_b(name: str, mode: str) -> None:
    module, sums = copy.deepcopy(supported()[name]), secure if mode == "secure" else fast
    chosen, data = "auto" if mode == "secure" else mode, records(FEATURES, CLASSES)
    if mode == "vmap" and name in {"untraceable", "gru"}:
        with pytest.raises(InvalidInput, match="No way of computing gradients"):
            TorchEngine(module, mode="vmap").bind(data)
        return
    check(lambda: TorchEngine(module, mode=chosen, double=mode == "secure"), data, sums, [0.1, 1.0])
