"""The session that learned policies run their networks in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgewise.errors import PolicyError


def open_session(path: Path) -> Any:
    """An ONNX Runtime session on one thread: networks this small gain nothing from more.

    Raises:
        PolicyError: onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise PolicyError(f"{path}: needs onnxruntime; pip install 'edgewise[live]'") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
