"""Feed-forward networks as frozen descriptions, and what the compiled kernel reads of them (``_kernel_net.h``).

A description is a sequence of layers over one record; shapes are torch's, (features,) or (channels, height, width). No
layer here mixes records or keeps anything between calls. Inside the kernel channels lie side by side, so parameters are
brought into another order; that order exists only inside of a call. What does not fit is an ``InvalidInput``. The file
is long because each kind of layer stands here twice: as a value, and as the numbers that the kernel reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dptune._typing import Indices
from dptune.errors import InvalidInput
from dptune.training._network_rows import pools_first

__all__ = ["Convolution", "Dense", "Drop", "Layer", "Normal", "Pointwise", "Pool", "Program", "Reshape", "program"]

Shape = tuple[int, ...]
Pair = tuple[int, int]

_MOST = 2**31 - 1
_MOST_LAYERS = 256
_ACTS = ("relu", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "elu")
_LINEAR, _CONV, _MAX, _AVERAGE, _ACTIVATION, _NORM, _MASK = range(7)


@dataclass(frozen=True)
class Dense:
    """Every output is a weighted sum of all inputs."""

    inputs: int
    outputs: int
    bias: bool = True


@dataclass(frozen=True)
class Convolution:
    """A convolution of images with zeros around them."""

    inputs: int
    outputs: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    bias: bool = True


@dataclass(frozen=True)
class Pool:
    """The largest or the average value of windows; ``kernel`` is None where ``sides`` says how many windows there are.

    ``margin`` says whether an average counts the zeros around the image.
    """

    kind: str
    kernel: Pair | None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    margin: bool = True
    sides: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class Pointwise:
    """A function of every value: "relu", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh" or "elu".

    For "sigmoid" the constants are scale, temperature and offset, for "elu" its alpha and a factor on everything.
    """

    kind: str
    constants: tuple[float, ...] = ()


@dataclass(frozen=True)
class Normal:
    """Values of each group less their mean, over their deviation.

    ``shape`` is the whole record's for layer normalisation, with weights for every value; None for groups of channels.
    """

    groups: int
    eps: float
    affine: bool = True
    bias: bool = True
    shape: Shape | None = None


@dataclass(frozen=True)
class Drop:
    """Values (or whole channels) set to zero at a rate while training, the rest scaled up; one mask a step."""

    rate: float
    channels: bool = False


@dataclass(frozen=True)
class Reshape:
    """Another shape for the same values in the same order; None for flat."""

    shape: Shape | None = None


Layer = Dense | Convolution | Pool | Pointwise | Normal | Drop | Reshape


@dataclass(frozen=True)
class Mask:
    """Where a mask lies among all masks: ``values`` of them, one draw for each run of channels or for each value."""

    start: int
    places: int
    channels: int
    rate: float
    whole: bool


@dataclass(frozen=True)
class Program:
    """A description that fits the shape of the records, as the kernel reads it.

    Attributes:
        fields: Whole numbers, a row for each layer of the kernel.
        constants: Numbers of its formulas, a row each.
        order: For every parameter in the kernel's order its place in torch's order.
        sizes: How many parameters each layer with weights has, in the kernel's order.
        masks: Dropout's masks.
        features: Values of one record.
        classes: Outputs.
    """

    fields: Indices
    constants: np.ndarray[tuple[int, int], np.dtype[np.float32]]
    order: Indices
    sizes: tuple[int, ...]
    masks: tuple[Mask, ...]
    features: int
    classes: int

    @property
    def mask_values(self) -> int:
        """How many numbers all masks hold."""
        return sum(mask.places * mask.channels for mask in self.masks)


def program(layers: tuple[Layer, ...], shape: Shape) -> Program:
    """The description for records of a shape.

    Args:
        layers: What happens to a record.
        shape: The record's shape, (features,) or (channels, height, width).

    Returns:
        What the kernel reads.

    Raises:
        InvalidInput: If a layer does not fit what comes before it, or something is too large.
    """
    build = _Build(shape)
    for place, layer in enumerate(layers):
        build.add(layer, place)
    return build.finish()


@dataclass
class _Build:
    """A program under way: the shape so far, and which of torch's values stands at each of the kernel's places."""

    shape: Shape
    rows: list[list[int]] = field(default_factory=list)
    constants: list[list[float]] = field(default_factory=list)
    order: list[Indices] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    parameters: int = 0
    features: int = 0

    def __post_init__(self) -> None:
        _small(math.prod(self.shape), "A record")
        self.features = math.prod(self.shape)
        self.standing = _channels_last(self.shape)

    def add(self, layer: Layer, place: int) -> None:
        what = f"Layer {place} ({type(layer).__name__})"
        match layer:
            case Dense():
                self._dense(layer, what)
            case Convolution():
                self._convolution(layer, what)
            case Pool():
                self._pool(layer, what)
            case Pointwise():
                numbers = layer.constants or {"sigmoid": (1.0, 1.0, 0.0), "elu": (1.0, 1.0)}.get(layer.kind, ())
                self._emit(_ACTIVATION, self.shape, act=_ACTS.index(layer.kind), constants=numbers)
            case Normal():
                self._normal(layer, what)
            case Drop():
                self._drop(layer, what)
            case Reshape():
                self._reshape(layer, what)

    def finish(self) -> Program:
        if len(self.shape) != 1 and math.prod(self.shape[1:]) != 1:
            raise InvalidInput(f"The last layer gives outputs of shape {self.shape}; give one score for each class.")
        if not self.rows or not self.parameters:
            raise InvalidInput("The network has no weights to train.")
        if len(self.rows) > _MOST_LAYERS:
            raise InvalidInput(f"The network has {len(self.rows)} layers; the compiled engine takes {_MOST_LAYERS}.")
        pools_first(self.rows, self.constants)
        return Program(
            np.array(self.rows, np.int64),
            np.array(self.constants, np.float32),
            np.concatenate(self.order),
            tuple(map(len, self.order)),
            tuple(self.masks),
            self.features,
            math.prod(self.shape),
        )

    def _emit(
        self, kind: int, after: Shape, *, act: int = 0, window: tuple[Pair, Pair, Pair] | None = None,
        groups: int = 0, flags: int = 0, mask: int = 0, constants: tuple[float, ...] = (),
    ) -> None:  # fmt: skip
        (kh, kw), (sh, sw), (ph, pw) = window or ((0, 0), (0, 0), (0, 0))
        sizes = [*_image(self.shape), *_image(after)]
        _small(math.prod(after), "What a layer gives for one record")
        self.rows.append([kind, act, *sizes, kh, kw, sh, sw, ph, pw, groups, flags, mask])
        self.constants.append([*constants, 0.0, 0.0, 0.0, 0.0][:4])
        if after != self.shape:
            self.shape, self.standing = after, _channels_last(after)

    def _weights(self, *parts: Indices) -> None:
        """The places of a layer's parameters in torch's order, counted from the layer's first."""
        joined = np.concatenate([part.reshape(-1) for part in parts])
        self.order.append(joined + self.parameters)
        self.parameters += len(joined)
        _small(self.parameters, "The vector of parameters")

    def _dense(self, layer: Dense, what: str) -> None:
        if self.shape != (layer.inputs,):
            raise InvalidInput(f"{what} takes {layer.inputs} values, but {_words(self.shape)} come in.")
        size = _small(layer.inputs * layer.outputs, what)
        table = np.arange(size).reshape(layer.outputs, layer.inputs).T[self.standing]
        self._emit(_LINEAR, (layer.outputs,), flags=int(layer.bias))
        self.standing = np.arange(layer.outputs)
        self._weights(table, *([size + np.arange(layer.outputs)] if layer.bias else []))

    def _convolution(self, layer: Convolution, what: str) -> None:
        channels, height, width = self._images(what)
        if channels != layer.inputs:
            raise InvalidInput(
                f"{what} takes {layer.inputs} channels, but {_words(self.shape)} come in; channels are first."
            )
        after = (layer.outputs, *self._windows(layer.kernel, layer.stride, layer.padding, what))
        shape = (layer.outputs, channels, *layer.kernel)
        table = np.arange(_small(math.prod(shape), what)).reshape(shape).transpose(2, 3, 1, 0)
        own = [table, *([table.size + np.arange(layer.outputs)] if layer.bias else [])]
        if layer.kernel == (height, width) and layer.padding == (0, 0):  # one place: a dense layer
            self.shape = (math.prod(self.shape),)
            self._emit(_LINEAR, (layer.outputs,), flags=int(layer.bias))
            self.shape, self.standing = after, np.arange(layer.outputs)
        else:
            self._emit(_CONV, after, window=(layer.kernel, layer.stride, layer.padding), flags=int(layer.bias))
        self._weights(*own)

    def _pool(self, layer: Pool, what: str) -> None:
        channels, height, width = self._images(what)
        kernel, stride = layer.kernel, layer.stride
        if kernel is None:
            sides = [own or side for own, side in zip(layer.sides, (height, width), strict=True)]
            if height % sides[0] or width % sides[1]:
                raise InvalidInput(f"{what} gives {sides} windows of unequal sizes for {_words(self.shape)}.")
            kernel = stride = (height // sides[0], width // sides[1])
        after = (channels, *self._windows(kernel, stride, layer.padding, what))
        kind = _MAX if layer.kind == "max" else _AVERAGE
        if 2 * layer.padding[0] > kernel[0] or 2 * layer.padding[1] > kernel[1]:
            raise InvalidInput(f"{what} has a padding of {layer.padding}, more than half of its window {kernel}.")
        self._emit(kind, after, window=(kernel, stride, layer.padding), constants=(float(layer.margin),))

    def _normal(self, layer: Normal, what: str) -> None:
        if layer.shape is not None and layer.shape != self.shape:
            raise InvalidInput(f"{what} is over {layer.shape}, but {_words(self.shape)} come in.")
        channels = self.shape[0]
        if channels % layer.groups:
            raise InvalidInput(f"{what} has {layer.groups} groups for {channels} channels.")
        each = layer.shape is not None
        bias = layer.affine and layer.bias
        flags = int(bias) + 2 * int(each) + 4 * int(layer.affine)
        standing = self.standing if each or len(self.shape) == 1 else np.arange(channels)
        if not each and len(self.shape) == 1 and not np.array_equal(standing, np.arange(channels)):
            raise InvalidInput(f"{what} is over groups of values that lie apart.")
        self._emit(_NORM, self.shape, groups=layer.groups, flags=flags, constants=(layer.eps,))
        if layer.affine:
            self._weights(standing, *([len(standing) + standing] if bias else []))

    def _drop(self, layer: Drop, what: str) -> None:
        if layer.channels:
            self._images(what)
        channels, places = self.shape[0], math.prod(self.shape[1:])
        mask = Mask(sum(m.places * m.channels for m in self.masks), places, channels, layer.rate, layer.channels)
        self._emit(_MASK, self.shape, mask=mask.start)
        self.masks.append(mask)

    def _reshape(self, layer: Reshape, what: str) -> None:
        after = (math.prod(self.shape),) if layer.shape is None else layer.shape
        if math.prod(after) != math.prod(self.shape):
            raise InvalidInput(f"{what} makes {_words(after)} of {_words(self.shape)}.")
        if not self.rows:
            self.shape, self.standing = after, _channels_last(after)
            return
        if len(after) != 1 and not np.array_equal(self.standing, _channels_last(after)):
            raise InvalidInput(f"{what} makes images of values that lie in another order.")
        self.shape = after

    def _images(self, what: str) -> tuple[int, int, int]:
        if len(self.shape) != 3:
            raise InvalidInput(f"{what} takes images, but {_words(self.shape)} come in. Begin with nn.Unflatten.")
        return self.shape[0], self.shape[1], self.shape[2]

    def _windows(self, kernel: Pair, stride: Pair, padding: Pair, what: str) -> Pair:
        sides = [
            (side + 2 * p - k) // s + 1 for side, k, s, p in zip(self.shape[1:], kernel, stride, padding, strict=True)
        ]
        if min(sides) < 1:
            raise InvalidInput(f"{what} has windows of {kernel}, larger than {_words(self.shape)} with their margin.")
        return sides[0], sides[1]


def _image(shape: Shape) -> Shape:
    return shape if len(shape) == 3 else (shape[0], 1, 1)


def _channels_last(shape: Shape) -> Indices:
    """Torch's places of a record's values in the kernel's order."""
    if len(shape) not in {1, 3} or min(shape) < 1:
        raise InvalidInput(f"Records are of shape {shape}; the compiled engine takes (features,) or (channels, h, w).")
    places = np.arange(math.prod(shape)).reshape(shape)
    return places if len(shape) == 1 else np.ascontiguousarray(places.transpose(1, 2, 0)).reshape(-1)


def _small(size: int, what: str) -> int:
    if size > _MOST:
        raise InvalidInput(f"{what} has {size} values; the compiled engine takes fewer than 2^31. Use engine='torch'.")
    return size


def _words(shape: Shape) -> str:
    return f"{shape[0]} values" if len(shape) == 1 else f"images of shape {shape}"
