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
from PIL import Image, ImageDraw, ImageFont

from edgewise.arrays import Floats32
from edgewise.errors import EdgewiseError

PACKAGES = ("rapidocr_onnxruntime", "rapidocr")
HEIGHT, WIDTH = 48, 96  # of a line to be read
SCENE = (64, 128)  # height and width of a scene with a line somewhere in it
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])  # of the detector's input


def model_file(kind: str = "rec") -> Path:
    """The ONNX file of the recogniser ("rec") or the detector ("det").

    Raises:
        EdgewiseError: no package that ships it is installed.
    """
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for file in sorted((Path(folder) / "models").glob(f"*{kind}*.onnx")):
                return file
    raise EdgewiseError("the demo needs a real model: pip install 'edgewise[demo]'")


@cache
def _font(size: int) -> Any:
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), size)


def picture(text: str) -> Floats32:
    """Draw a line of text; (1, 3, 48, 96) in [-1, 1], as the recogniser takes it."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    ImageDraw.Draw(image).text((WIDTH / 2, HEIGHT / 2), text, "black", _font(24), anchor="mm")
    pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1)[None]
    return (pixels / 255.0 - 0.5) / 0.5


def scene(text: str, x: int, y: int) -> Floats32:
    """Draw text at (x, y) of a grey scene; (1, 3, 64, 128), normalised as the detector takes it."""
    height, width = SCENE
    image = Image.new("RGB", (width, height), (150, 160, 170))
    ImageDraw.Draw(image).text((x, y), text, "black", _font(18))
    pixels = (np.asarray(image) / 255.0 - MEAN) / DEVIATION
    return np.asarray(pixels.transpose(2, 0, 1)[None], dtype=np.float32)


def found(heat: Floats32) -> tuple[int, int, int, int] | None:
    """Box (left, top, right, bottom) around what the detector's heat map takes for text, if anything."""
    rows, columns = np.nonzero(heat.reshape(heat.shape[-2:]) > 0.3)
    if rows.size == 0:
        return None
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


@cache
def characters(file: Path) -> tuple[str, ...]:
    """The recogniser's alphabet, kept in the ONNX file itself; position 0 is the CTC blank."""
    import onnxruntime

    meta = onnxruntime.InferenceSession(str(file)).get_modelmeta().custom_metadata_map
    return ("", *meta["character"].splitlines(), " ")


def read(scores: Floats32, alphabet: tuple[str, ...]) -> str:
    """Text of one picture from (steps, characters) scores: best path, repeats and blanks removed."""
    best = scores.argmax(axis=-1)
    kept = [k for step, k in enumerate(best) if k and (step == 0 or best[step - 1] != k)]
    return "".join(alphabet[k] for k in kept).strip()
