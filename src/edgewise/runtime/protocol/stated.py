"""What clients state in JSON, checked: every error names the field, what it holds and what it should."""

from __future__ import annotations

import json
from typing import Any

from edgewise.errors import ProtocolError

MOST = 1e15


def stated_in(body: bytes, what: str) -> dict[str, Any]:
    """The JSON object that a body holds.

    Args:
        what: it should have, for the message.
    Raises:
        ProtocolError: it holds none.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProtocolError(f"body: a JSON object with {what} is needed")
    return found


def number(value: Any, name: str, least: float = 0.0, most: float = MOST) -> float:
    """A finite number.

    Raises:
        ProtocolError: it is none from `least` to `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ProtocolError(f"{name}: {str(value)[:80]!r} is not a number from {least:g} to {most:g}")
    return float(value)


def text(value: Any, name: str, least: int = 1, most: int = 1_000_000) -> str:
    """A text that everyone can write down; JSON may hold halves of characters, and zeros that end a path.

    Raises:
        ProtocolError: it is none, or of fewer than `least` or more than `most` characters.
    """
    if (
        isinstance(value, str)
        and least <= len(value) <= most
        and not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value)
    ):
        return value
    raise ProtocolError(f"{name}: {str(value)[:80]!r}; a text of {least} to {most} characters is needed")


def flag(value: Any, name: str) -> bool:
    """True or false.

    Raises:
        ProtocolError: it is neither.
    """
    if not isinstance(value, bool):
        raise ProtocolError(f"{name}: {str(value)[:80]!r}; true or false is needed")
    return value
