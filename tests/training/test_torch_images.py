"""Torch modules on images: the shape is kept, and an image moves a sum by at most the clip norm wherever it stands."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dptune.data import Dataset
from dptune.errors import InvalidInput
from dptune.judging import correct
from dptune.randomness import Randomness
from dptune.trainer import Params
from dptune.training import DpSgdTrainer, Settings
from dptune.training.torch_engine import TorchEngine
from dptune.units import UnitDataset

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 2, 5, 4)).astype(np.float32)
DATA = Dataset(X, np.arange(9) % 3, 3)
CLIP = 0.3


def _sequential() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 3, 2), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(36, 3))


class _Own(nn.Module):
    """A module that must see images."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.last = nn.Conv2d(2, 3, 2), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == (2, 5, 4)
        found: Tensor = self.last(torch.tanh(self.convolution(x)).mean(dim=(2, 3)))
        return found


MODES = [(_sequential, "bookkeeping"), (_sequential, "vmap"), (_Own, "vmap"), (_Own, "alone")]


def _engine(make: type[nn.Module], mode: str, data: Dataset) -> TorchEngine:
    torch.manual_seed(0)
    engine = TorchEngine(make(), mode=mode, double=True)
    engine.bind(data)
    return engine


@pytest.mark.parametrize(("make", "mode"), MODES)
@pytest.mark.parametrize("place", [0, 4, 8])
@pytest.mark.parametrize("size", [1.0, 1e4, np.nan])
def test_one_image_moves_a_sum_by_at_most_the_clip_norm(
    make: type[nn.Module], mode: str, place: int, size: float
) -> None:
    x = X.copy()
    x[place] *= size
    data = Dataset(x, DATA.y, 3)
    engine = _engine(make, mode, data)
    assert engine.mode == mode
    out = np.empty((2, engine.dimension))
    both = np.stack([engine.start(Randomness.rehearsal(0))] * 2)
    rest = np.array([i for i in range(9) if i != place])
    engine.clipped_sums(both, [np.arange(9), rest], np.array([CLIP, CLIP]), out)
    moved = float(np.linalg.norm(out[0] - out[1]))
    assert 0.0 < moved <= CLIP * (1 + 1e-6)


def test_a_sequential_of_convolutions_takes_images_without_unflatten() -> None:
    engine, flat = TorchEngine(_sequential()), TorchEngine(_sequential())
    engine.bind(DATA)
    with pytest.raises(InvalidInput, match="cannot take rows of 40 features"):
        flat.bind(DATA.flat)
    with pytest.raises(InvalidInput, match=r"cannot take records of shape \(5, 4\)"):
        flat.bind(Dataset(X[:, 0], DATA.y, 3))


def test_an_image_without_a_channel_is_never_taken_for_a_batch() -> None:
    """Conv2d reads three dimensions as one image: a batch of images without channels would be mixed."""
    grey = Dataset(X[:, 0], DATA.y, 3)
    module = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten(0), nn.Linear(36, 3), nn.Unflatten(0, (1, 3)))
    with pytest.raises(InvalidInput):
        TorchEngine(module).bind(grey)


def test_images_are_trained_and_judged_as_images() -> None:
    settings = Settings(0.5, 1.0, steps=3, clip_norm=1.0, learning_rate=0.5, batch_size=4)

    def factory(params: Params) -> nn.Module:
        return _Own()

    trainer = DpSgdTrainer(factory, settings, validation=Dataset(X, DATA.y, 3, public=True))
    trainer.check({}, DATA)
    fitted = trainer.fit({}, DATA, Randomness.rehearsal(0))
    assert int(correct(fitted.model, DATA)) == round(9 * fitted.score)


def test_units_of_images_are_clipped_as_a_whole() -> None:
    settings = Settings(1.0, 1e-6, steps=1, clip_norm=CLIP, learning_rate=1.0, batch_size=1.0)
    trainer = DpSgdTrainer(lambda params: _Own(), settings)
    units = UnitDataset(DATA, [0, 0, 0, 1, 1, 1, 2, 2, 2], unit_rows=3)
    trainer.check({}, units)
    key = Randomness.rehearsal(0)
    models = [trainer.fit({}, units.take(np.array(some)), key).model for some in ([0, 1, 2], [0, 2])]
    flat = [torch.cat([p.detach().reshape(-1) for p in model.parameters()]) for model in models]
    assert 0.0 < float((flat[0] - flat[1]).norm()) <= CLIP * (1 + 1e-4)
