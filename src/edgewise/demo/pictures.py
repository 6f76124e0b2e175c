"""What the demo reads: pictures of text drawn here, and a real recognition model's answers.

The model is the text recogniser inside the `rapidocr-onnxruntime` package (PaddleOCR, real
weights); its own code is not imported, only the ONNX file is used.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from edgewise.errors import EdgewiseError

PACKAGES = ("rapidocr_onnxruntime", "rapidocr")
HEIGHT, WIDTH = 48, 320


def model_file() -> Path:
    """The recogniser's ONNX file.

    Raises:
        EdgewiseError: no package that ships it is installed.
    """
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for file in sorted((Path(folder) / "models").glob("*rec*.onnx")):
                return file
    raise EdgewiseError("the demo needs a real model: pip install 'edgewise[demo]'")


@cache
def _font() -> Any:
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), 30)


def picture(text: str) -> NDArray[np.float32]:
    """Draw `text`; (1, 3, 48, 320) in [-1, 1], as the recogniser takes it."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    ImageDraw.Draw(image).text((8, 4), text, font=_font(), fill="black")
    pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1)[None]
    return (pixels / 255.0 - 0.5) / 0.5


@cache
def characters(file: Path) -> tuple[str, ...]:
    """The recogniser's alphabet, kept in the ONNX file itself; position 0 is the CTC blank."""
    import onnxruntime

    meta = onnxruntime.InferenceSession(str(file)).get_modelmeta().custom_metadata_map
    return ("", *meta["character"].splitlines(), " ")


def read(scores: NDArray[np.float32], alphabet: tuple[str, ...]) -> str:
    """Text of one picture from (steps, characters) scores: best path, repeats and blanks removed."""
    best = scores.argmax(axis=-1)
    kept = [k for step, k in enumerate(best) if k and (step == 0 or best[step - 1] != k)]
    return "".join(alphabet[k] for k in kept).strip()
