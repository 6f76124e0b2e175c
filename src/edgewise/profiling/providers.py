"""Execution providers of ONNX Runtime: those that a variant wants, as far as they are there.

ONNX Runtime gives each part of a network to the first provider that can run it. What it was not built with,
or cannot start on this machine, is left out: that is said once in a process, and is an error where nothing is
left.
"""

import logging
from collections.abc import Sequence
from functools import cache

import onnxruntime

from edgewise.errors import ProfileError
from edgewise.model.topology import CPU

log = logging.getLogger("edgewise.providers")


def session_on(
    wanted: Sequence[str], content: str | bytes, options: onnxruntime.SessionOptions
) -> tuple[onnxruntime.InferenceSession, tuple[str, ...]]:
    """A session, and the providers of those wanted that it has.

    Args:
        wanted: the first that can run a part of the network does.
        content: of an ONNX file, or its path.
    Raises:
        ProfileError: none of them is there.
        Exception: ONNX Runtime cannot load the network; its errors have no common base.
    """
    there = onnxruntime.get_available_providers()
    if not (usable := [name for name in wanted if name in there]):
        raise _none_left(wanted, there)
    session = onnxruntime.InferenceSession(content, options, providers=usable)
    has = session.get_providers()  # without those whose device or library is missing
    if not (used := tuple(name for name in usable if name in has)):
        raise _none_left(wanted, has)
    for name in wanted:
        if name not in used:
            _leave_out(name, used)
    return session, used


def _none_left(wanted: Sequence[str], there: Sequence[str]) -> ProfileError:
    return ProfileError(
        f"providers: none of {', '.join(wanted)} is there; onnxruntime {onnxruntime.__version__} has "
        f"{', '.join(there)} here; name one of these as well, as {CPU}, or install one that has it"
    )


@cache
def _leave_out(name: str, used: tuple[str, ...]) -> None:
    log.warning("execution provider is not there", extra={"provider": name, "used": ", ".join(used)})
