"""Users' own networks for the benchmark of training: what papers and tutorials train, as plain ``nn.Sequential``.

Batch normalisation, which no private training can have, is replaced by group normalisation, as Opacus does.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

__all__ = ["NETWORKS"]


def opacus_mnist() -> nn.Sequential:
    """The network of Opacus' MNIST example."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def hype_mnist() -> nn.Sequential:
    """DP-Hype's network for MNIST (appendix B)."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )


def _block(inputs: int, *outputs: int) -> list[nn.Module]:
    """Convolutions, each with group normalisation and relu; pooling and dropout at the end."""
    layers: list[nn.Module] = []
    for width in outputs:
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
        inputs = width
    return [*layers, nn.MaxPool2d(2), nn.Dropout(0.25)]


def hype_cifar() -> nn.Sequential:
    """DP-Hype's network for CIFAR-10 (appendix B)."""
    return nn.Sequential(
        nn.Unflatten(1, (3, 32, 32)),
        *_block(3, 32, 32),
        *_block(32, 64, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def handcrafted_cifar() -> nn.Sequential:
    """The end-to-end network for CIFAR-10 that Handcrafted-DP compares with: six convolutions with tanh."""
    layers: list[nn.Module] = [nn.Unflatten(1, (3, 32, 32))]
    inputs = 3
    for width in (32, 64, 128):
        for channels in (inputs, width):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.Tanh()]
        layers.append(nn.MaxPool2d(2))
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 10))


def group_norm() -> nn.Sequential:
    """About a hundred thousand weights with group normalisation."""
    layers: list[nn.Module] = [nn.Unflatten(1, (3, 32, 32))]
    for inputs, width in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


NETWORKS: dict[str, Callable[[], nn.Sequential]] = {
    "opacus-mnist": opacus_mnist,
    "hype-mnist": hype_mnist,
    "hype-cifar": hype_cifar,
    "handcrafted-cifar": handcrafted_cifar,
    "group-norm": group_norm,
}
