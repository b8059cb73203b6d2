"""What mkdocs calls while it builds the site: the search index also becomes a script, which opens without a server."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any


def on_post_build(config: Any, **rest: Any) -> None:
    """Write ``search/index.js`` from the index that the search plugin made."""
    folder = Path(config["site_dir"]) / "search"
    entries = json.loads((folder / "search_index.json").read_text(encoding="utf-8"))["docs"]
    plain = [
        {"location": one["location"], "title": _plain(one["title"]), "text": _plain(one["text"])} for one in entries
    ]
    (folder / "index.js").write_text(f"window.dptuneIndex = {json.dumps(plain)};\n", encoding="utf-8")


def _plain(text: str) -> str:
    """Words without marks."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())
