"""What public features of images cost: processor time and memory, by kind, on random pixels.

    python benchmarks/features.py [--images 200] [--rounds 3]

Nothing here depends on what an image shows, so random pixels take as long as digits. Times are the least of the rounds,
for as many images as MNIST (60,000) or CIFAR-10 (50,000) has; memory is that of their features in single precision.
"""

from __future__ import annotations

import argparse
import os
import platform
import time

import numpy as np

from dptune.training.features import FEATURES, named_features

SETS = {"grey 28x28": (60_000, (28, 28)), "colour 32x32": (50_000, (3, 32, 32))}


def main() -> None:
    """Print one line for each kind of features and of images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{platform.machine()}, load {os.getloadavg()[0]:.1f}: {options.images} images, least of {options.rounds}")
    for label, (count, shape) in SETS.items():
        images = np.random.default_rng(0).random((options.images, int(np.prod(shape))), np.float32)
        for kind in [name for name in FEATURES if name != "none"]:
            took = []
            for _ in range(options.rounds):
                start = time.process_time()
                found = named_features(kind)(images)
                took.append(time.process_time() - start)
            whole = min(took) / options.images * count
            size = found.shape[1] * 4 * count / 1e9
            print(f"{label:13s} {kind:24s} {found.shape[1]:6d} features, {whole:6.1f} s and {size:.2f} GB for {count}")


if __name__ == "__main__":
    main()
