"""Takes the picture of a release's page (``figures/report.png``), in Chromium: its top, and its figures beside it.

    python docs/screenshot.py PAGE

PAGE is the file that ``make demo`` ends with.
"""

from __future__ import annotations

import base64
import importlib
import io
import sys
from pathlib import Path

from PIL import Image  # comes with matplotlib

_HERE = Path(__file__).parent
_WIDTH, _HEIGHT, _GAP = 620, 1040, 24  # of a column, before it is scaled
_SCALE = 0.79
_PIECES = """["#reach", "#literature", "#plan"].map(name => {
    const head = document.querySelector(name), figure = head.parentElement.querySelector("svg");
    return [head.getBoundingClientRect().top + scrollY, figure.getBoundingClientRect().bottom + scrollY]; })"""


def main(page: Path) -> None:
    """Write the picture."""
    sys.path.append(str(_HERE.parent))
    width, height, gap = (int(_SCALE * length) for length in (_WIDTH, _HEIGHT, _GAP))
    picture = Image.new("RGB", (2 * width + gap, height), "white")
    with importlib.import_module("tests.report.browser").browser() as shown:
        shown.open(page, _WIDTH)
        places, y = [(0, 0, 0, _HEIGHT)], 0
        for top, bottom in shown.value(_PIECES):
            places.append((width + gap, y, top, bottom - top))
            y += int(_SCALE * (bottom - top)) + gap
        for x, y, top, high in places:
            clip = {"x": 0, "y": top, "width": _WIDTH, "height": high, "scale": _SCALE}
            shot = shown.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
            picture.paste(Image.open(io.BytesIO(base64.b64decode(shot["data"]))), (x, y))
    picture.quantize(200, dither=Image.Dither.NONE).save(_HERE / "figures" / "report.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
