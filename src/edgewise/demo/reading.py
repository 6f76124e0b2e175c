"""Read text on frames as a pipeline: detect → classify → recognise, three real networks.

The networks are those inside the `rapidocr-onnxruntime` package (PaddleOCR, real weights); only the ONNX
files are used. Each function is a task of a pipeline: a picture in, lines of text out.
Pictures of single lines, which `edgewise demo` sends as queries, are drawn here, too.
"""

import importlib.util
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from edgewise.arrays import Floats32
from edgewise.errors import EdgewiseError

PACKAGES = ("rapidocr_onnxruntime", "rapidocr")
HEIGHT, SHORT_WIDTH = 48, 96  # of a line to be read
SCENE = (64, 128)  # height and width of a scene with a line somewhere in it
MEAN = np.array([0.485, 0.456, 0.406])  # of the detector's training pictures
DEVIATION = np.array([0.229, 0.224, 0.225])


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
    image = Image.new("RGB", (SHORT_WIDTH, HEIGHT), "white")
    ImageDraw.Draw(image).text((SHORT_WIDTH / 2, HEIGHT / 2), text, "black", _font(24), anchor="mm")
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


Pixels = NDArray[np.uint8]
WIDTH = 320  # of a line to be read
FRAME_WIDTH, FRAME_HEIGHT = 640, 384
TEXT = 0.3  # probability above which a pixel belongs to text
LEAST_PIXELS = 60  # of a line
GROW = (
    0.35,
    0.8,
)  # the detector marks the core of a line: grow by these parts of its height, up and sideways
CLASSIFIED = (48, 192)
UPSIDE_DOWN = 0.9
SIGNS = (
    ("Platform 12", "to Harbour", "delayed 12 min"),
    ("EXIT 24 B", "speed 80", "toll 3.50"),
    ("gate C31", "boarding", "seat 18 F"),
)


@cache
def _session(kind: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model_file(kind)), options, providers=["CPUExecutionProvider"])


def _run(kind: str, batch: Floats32) -> Floats32:
    session = _session(kind)
    (result,) = session.run(None, {session.get_inputs()[0].name: batch})
    found: Floats32 = result
    return found


def detect(input: bytes) -> tuple[bool, dict[str, Pixels]]:
    """Lines of text in a picture, each cut out as (48, 320, 3)."""
    image = np.asarray(Image.open(io.BytesIO(input)).convert("RGB"))
    scaled = (image / 255.0 - MEAN) / DEVIATION
    probability = _run("det", scaled.transpose(2, 0, 1)[None].astype(np.float32))[0, 0]
    labels, _ = ndimage.label(probability > TEXT)
    crops = [
        _line(image, rows, columns)
        for rows, columns in ndimage.find_objects(labels)
        if (rows.stop - rows.start) * (columns.stop - columns.start) >= LEAST_PIXELS
    ]
    return bool(crops), {"lines": np.array(crops, dtype=np.uint8)}


def _line(image: Pixels, rows: slice, columns: slice) -> Pixels:
    up, aside = (int(np.ceil(part * (rows.stop - rows.start))) for part in GROW)
    top, left = max(rows.start - up, 0), max(columns.start - aside, 0)
    cut = Image.fromarray(image[top : rows.stop + up, left : columns.stop + aside])
    width = min(max(round(cut.width * HEIGHT / cut.height), 1), WIDTH)
    out = np.full((HEIGHT, WIDTH, 3), 255, dtype=np.uint8)
    out[:, :width] = np.asarray(cut.resize((width, HEIGHT), Image.Resampling.BILINEAR))
    return out


def classify(input: dict[str, Pixels]) -> tuple[bool, dict[str, Pixels]]:
    """The same lines, those that stand on their head turned."""
    lines = input["lines"]
    small = np.stack(
        [
            np.asarray(Image.fromarray(line).resize(CLASSIFIED[::-1], Image.Resampling.BILINEAR))
            for line in lines
        ]
    )
    turned = _run("cls", _centred(small))[:, 1] > UPSIDE_DOWN
    return True, {"lines": np.where(turned[:, None, None, None], lines[:, ::-1, ::-1], lines)}


def recognise(input: dict[str, Pixels]) -> tuple[bool, list[str]]:
    """The text of each line."""
    scores = _run("rec", _centred(input["lines"]))
    alphabet = characters(model_file())
    return True, [read(line, alphabet) for line in scores]


def _centred(lines: Pixels) -> Floats32:
    found: Floats32 = ((lines / 255.0 - 0.5) / 0.5).transpose(0, 3, 1, 2).astype(np.float32)
    return found


job = [detect, classify, recognise]


def frame(signs: tuple[str, ...]) -> bytes:
    """A drawn picture with these lines of text, uncompressed."""
    image = Image.new("RGB", (FRAME_WIDTH, FRAME_HEIGHT), "#F4F1E8")
    draw = ImageDraw.Draw(image)
    for i, text in enumerate(signs):
        draw.text((40 + 30 * i, 40 + 110 * i), text, font=_font(44), fill="#202020")
    out = io.BytesIO()
    image.save(out, "BMP")
    return out.getvalue()


def scenario(inputs: Sequence[Path]) -> dict[str, Any]:
    """The pipeline as a user would write it: a camera behind two uplinks, a hub and a server.

    The server is this machine, the others are slower.

    Args:
        inputs: pictures that the camera sends.
    """
    names = [function.__name__ for function in job]
    tasks = [
        {"name": name, "downstream": names[i + 1 : i + 2], "memory_bytes": "500MB"}
        for i, name in enumerate(names)
    ]
    nodes = [("camera", 2.5e8, "200MB"), ("street", 2.5e8, "200MB"), ("roof", 2.5e8, "200MB"),
             ("hub", 5e8, "1.2GB"), ("server", 1e9, "700MB")]  # fmt: skip
    links = [("camera", "street", "8Mbps"), ("camera", "roof", "14Mbps"), ("street", "hub", "8Mbps"),
             ("roof", "server", "14Mbps"), ("hub", "server", "10Mbps")]  # fmt: skip
    return {
        "name": "read-text",
        "description": "Text on frames of a camera is read by three networks on five nodes.",
        "duration_s": 60,
        "clusters": [{"name": "town", "tier": 0, "nodes": [
            {"name": name, "speed_ops": speed, "resources": {"cpu_cores": 4, "memory_bytes": memory}}
            for name, speed, memory in nodes
        ]}],
        "links": [
            {"between": [one, other], "bandwidth_bps": rate, "shared": "both"} for one, other, rate in links
        ],
        "pipelines": [{
            "name": "read-text", "source": "camera", "input_bytes": inputs[0].stat().st_size, "length_s": 60,
            "tasks": tasks, "code": str(Path(__file__).resolve()), "inputs": [path.name for path in inputs],
        }],
    }  # fmt: skip
