"""Descriptions of the models that dptune trains: frozen values without weights, data or torch.

Engines read them: the numpy engine takes :class:`Mlp` (softmax regression is an MLP without hidden layers),
the torch engine takes all of them, the fused engine takes :func:`dp_hypo_cnn`. No layer here mixes records:
batch normalisation is left out because one record's gradient would then depend on its peers, so clipping it
would bound nothing; dropout is left out because it only adds variance to gradients that are noised already.
The file is long because each description carries its contract.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from dptune import _validate
from dptune.errors import InvalidInput
from dptune.regression import check_range

__all__ = [
    "Activation",
    "Cnn",
    "Conv",
    "GlobalMean",
    "MaxPool",
    "Mlp",
    "Model",
    "Regression",
    "adult_mlp",
    "dp_hype_cifar_cnn",
    "dp_hype_cnn",
    "dp_hypo_cnn",
    "linear",
    "softmax",
]


@dataclass(frozen=True)
class Activation:
    """What a layer does to its sums: relu, tanh, or a tempered sigmoid.

    A tempered sigmoid is ``scale * sigmoid(temperature * x) - offset``; tanh is the one of 2, 2, 1.

    Args:
        kind: "relu", "tanh" or "tempered_sigmoid".
        scale: How wide its values spread; for a tempered sigmoid.
        temperature: How steep it is; for a tempered sigmoid.
        offset: What is taken off; for a tempered sigmoid.

    Raises:
        InvalidInput: If the kind is unknown, or a figure is out of range.

    Example:
        >>> from dptune.training import Activation, Mlp
        >>> Mlp(10, 2, (16,), Activation("tempered_sigmoid", scale=1.5, temperature=3.0, offset=0.7)).dimension
        210
    """

    kind: str
    scale: float = 2.0
    temperature: float = 2.0
    offset: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("relu", "tanh", "tempered_sigmoid"):
            raise InvalidInput(
                f"'activation' must be 'relu', 'tanh' or 'tempered_sigmoid'; got {self.kind!r}. "
                "Bring a torch module for anything else."
            )
        _validate.real("scale", self.scale, 0.0, low_open=True)
        _validate.real("temperature", self.temperature, 0.0, low_open=True)
        _validate.real("offset", self.offset)


def _activation(value: str | Activation) -> Activation:
    return value if isinstance(value, Activation) else Activation(value)


def _widths(name: str, given: object) -> tuple[int, ...]:
    """The widths of dense layers."""
    if not isinstance(given, tuple | list):
        raise InvalidInput(f"'{name}' must be the widths of layers, such as (64,); got {given!r:.80}.")
    return tuple(_validate.integer(name, width, 1) for width in given)


@dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron with a softmax cross-entropy loss.

    Args:
        features: How many features a record has.
        classes: How many classes there are, at least 2.
        hidden: The widths of the hidden layers; none for softmax regression.
        activation: "relu", "tanh", or an :class:`Activation`.

    Raises:
        InvalidInput: If a width is not a positive whole number.

    Example:
        >>> from dptune.training import Mlp
        >>> Mlp(784, 10, (64, 32)).dimension
        52650
    """

    features: int
    classes: int
    hidden: tuple[int, ...] = ()
    activation: str | Activation = "tanh"

    def __post_init__(self) -> None:
        _validate.integer("features", self.features, 1)
        _validate.integer("classes", self.classes, 2, hint="For two outcomes use two classes.")
        object.__setattr__(self, "hidden", _widths("hidden", self.hidden))
        object.__setattr__(self, "activation", _activation(self.activation))

    @property
    def nonlinearity(self) -> Activation:
        """The activation as a value."""
        return _activation(self.activation)

    @property
    def widths(self) -> tuple[int, ...]:
        """Features, hidden widths, classes."""
        return (self.features, *self.hidden, self.classes)

    @property
    def dimension(self) -> int:
        """Number of trainable parameters."""
        w = self.widths
        return sum((a + 1) * b for a, b in itertools.pairwise(w))


@dataclass(frozen=True)
class Regression(Mlp):
    """A multi-layer perceptron with one output, which is a real number in a public range.

    It is trained on targets as shares of the range, by half the squared error, which goes on in a straight line beyond
    an error of the whole range: so the derivative by the output is the error, never more than 1. What it predicts is
    clipped to the range.

    Args:
        features: How many features a record has.
        hidden: The widths of the hidden layers; none for linear regression.
        activation: "relu", "tanh", or an :class:`Activation`.
        target_range: The smallest and the largest target; that of the records, declared.

    Raises:
        InvalidInput: If a width is not a positive whole number, or the range is empty.

    Example:
        >>> from dptune.training import Regression
        >>> Regression(13, (16,), target_range=(0, 50)).dimension
        241
    """

    classes: int = field(default=1, init=False, repr=False)  # outputs
    target_range: tuple[float, float] = field(kw_only=True)

    def __post_init__(self) -> None:
        _validate.integer("features", self.features, 1)
        object.__setattr__(self, "hidden", tuple(_validate.integer("hidden", w, 1) for w in self.hidden))
        object.__setattr__(self, "activation", _activation(self.activation))
        object.__setattr__(self, "target_range", check_range("target_range", self.target_range))


@dataclass(frozen=True)
class Conv:
    """A convolution followed by the network's activation."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        _validate.integer("channels", self.channels, 1)
        _validate.integer("kernel", self.kernel, 1)
        _validate.integer("stride", self.stride, 1)
        _validate.integer("padding", self.padding, 0)


@dataclass(frozen=True)
class MaxPool:
    """Maximum over windows."""

    size: int
    stride: int

    def __post_init__(self) -> None:
        _validate.integer("size", self.size, 1)
        _validate.integer("stride", self.stride, 1)


@dataclass(frozen=True)
class GlobalMean:
    """Mean over all places of each channel."""


@dataclass(frozen=True)
class Cnn:
    """A convolutional network: image layers, then dense layers, then a softmax.

    Args:
        image: Channels, height and width of a record.
        classes: How many classes there are, at least 2.
        layers: Convolutions, poolings, and perhaps a mean over all places.
        dense: The widths of the dense layers after them.
        activation: "relu", "tanh", or an :class:`Activation`, after every layer with weights but the last.

    Raises:
        InvalidInput: If the image is too small for its layers.

    Example:
        >>> from dptune.training import Cnn
        >>> from dptune.training.models import Conv, MaxPool
        >>> Cnn((1, 28, 28), 10, (Conv(16, 5), MaxPool(2, 2)), dense=(32,)).flat
        2304
    """

    image: tuple[int, int, int]
    classes: int
    layers: tuple[Conv | MaxPool | GlobalMean, ...]
    dense: tuple[int, ...] = ()
    activation: str | Activation = "relu"
    flat: int = field(init=False)

    def __post_init__(self) -> None:
        _validate.integer("classes", self.classes, 2)
        if not isinstance(self.image, tuple | list) or len(self.image) != 3:
            raise InvalidInput(f"'image' must be (channels, height, width); got {self.image!r}.")
        object.__setattr__(self, "activation", _activation(self.activation))
        channels, height, width = (_validate.integer("image", side, 1) for side in self.image)
        object.__setattr__(self, "dense", _widths("dense", self.dense))
        if not isinstance(self.layers, tuple | list):
            raise InvalidInput(f"'layers' must be (Conv(...), MaxPool(...), ...); got {self.layers!r:.80}.")
        for layer in self.layers:
            if not isinstance(layer, Conv | MaxPool | GlobalMean):
                raise InvalidInput(f"A layer must be Conv, MaxPool or GlobalMean; got {layer!r:.80}.")
            if isinstance(layer, GlobalMean):
                height = width = 1
                continue
            kernel = layer.kernel if isinstance(layer, Conv) else layer.size
            padding = layer.padding if isinstance(layer, Conv) else 0
            height = (height + 2 * padding - kernel) // layer.stride + 1
            width = (width + 2 * padding - kernel) // layer.stride + 1
            channels = layer.channels if isinstance(layer, Conv) else channels
            if height < 1 or width < 1:
                raise InvalidInput(f"The image {self.image} is too small for {layer}. Use fewer or smaller layers.")
        object.__setattr__(self, "flat", math.prod((channels, height, width)))

    @property
    def nonlinearity(self) -> Activation:
        """The activation as a value."""
        return _activation(self.activation)

    @property
    def features(self) -> int:
        """Number of pixels times channels."""
        return math.prod(self.image)

    @property
    def dimension(self) -> int:
        """Number of trainable parameters."""
        channels, total = self.image[0], 0
        for layer in self.layers:
            if isinstance(layer, Conv):
                total += (channels * layer.kernel**2 + 1) * layer.channels
                channels = layer.channels
        return total + sum((a + 1) * b for a, b in itertools.pairwise((self.flat, *self.dense, self.classes)))


Model = Mlp | Cnn


def softmax(features: int, classes: int) -> Mlp:
    """Softmax regression; with two classes this is logistic regression.

    Args:
        features: How many features a record has.
        classes: How many classes there are, at least 2.

    Returns:
        The model's description.

    Example:
        >>> from dptune.training import softmax
        >>> softmax(441, 10).dimension
        4420
    """
    return Mlp(features, classes)


def linear(features: int, target_range: tuple[float, float]) -> Regression:
    """Linear regression on targets in a public range.

    Args:
        features: How many features a record has.
        target_range: The smallest and the largest target, declared.

    Returns:
        The model's description.

    Example:
        >>> from dptune.training import linear
        >>> linear(10, (0, 350)).dimension
        11
    """
    return Regression(features, target_range=target_range)


def dp_hypo_cnn() -> Cnn:
    """The MNIST network of DP-HyPO, appendix E.1 (the standard one of Opacus and TensorFlow Privacy)."""
    layers = (Conv(16, 8, 2, 3), MaxPool(2, 1), Conv(32, 4, 2), MaxPool(2, 1))
    return Cnn((1, 28, 28), 10, layers, dense=(32,))


def dp_hype_cnn() -> Cnn:
    """The MNIST network of DP-Hype, appendix B, without its dropout (see the top of this file)."""
    return Cnn((1, 28, 28), 10, (Conv(32, 3), Conv(64, 3), MaxPool(2, 2)), dense=(128,))


def dp_hype_cifar_cnn() -> Cnn:
    """The CIFAR-10 network of DP-Hype, appendix B, without dropout and batch normalisation."""
    first = (Conv(32, 3, 1, 1), Conv(32, 3, 1, 1), MaxPool(2, 2))
    second = (Conv(64, 3, 1, 1), Conv(128, 3, 1, 1), MaxPool(2, 2))
    return Cnn((3, 32, 32), 10, (*first, *second, GlobalMean()))


def adult_mlp(features: int) -> Mlp:
    """The Adult network of DP-Hype, appendix B, without dropout and with two outputs instead of one."""
    return Mlp(features, 2, (64, 64), "relu")
