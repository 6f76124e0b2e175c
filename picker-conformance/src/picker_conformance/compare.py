"""Whether a body that came back is the one that was sent. A picker may write another model into it."""

from __future__ import annotations

import json
from typing import Any

from picker_conformance.messages import as_object

MAY_CHANGE = "model"  # one name stands for several models, or for an adapter


def changed(sent: bytes, came: bytes | bytearray | None) -> str | None:
    """What is wrong with a body that came back; None where nothing is.

    The same bytes, or JSON that says the same: of an object each entry but the model's, beside which a picker
    may add others.
    """
    if came == sent:
        return None
    if came is None:
        return "nothing of it came back"
    wanted, got = as_object(sent), as_object(came)
    if wanted is None or got is None:
        at = next(
            (n for n, (a, b) in enumerate(zip(sent, came, strict=False)) if a != b), min(len(sent), len(came))
        )
        return f"{len(came)} bytes came back of {len(sent)}, the first other one at {at}"
    wrong = [name for name in wanted if name != MAY_CHANGE and got.get(name, ...) != wanted[name]]
    return f"other than sent is {', '.join(map(repr, wrong))}" if wrong else None


def token(text: str) -> bytes:
    """A token of a streamed completion: a server-sent event."""
    content = {"model": "m", "choices": [{"index": 0, "text": text}]}
    return f"data: {json.dumps(content)}\n\n".encode()


def tokens(stream: bytes | bytearray) -> list[Any]:
    """What the server-sent events of a stream say: the text of tokens, or the event as it is.

    An event ends with an empty line; what follows the last one is no event.
    """
    return [_said(event) for event in bytes(stream).replace(b"\r\n", b"\n").split(b"\n\n") if event.strip()]


def _said(event: bytes) -> Any:
    lines = [line.removeprefix(b"data:").strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    content = as_object(b"\n".join(lines)) or {}
    try:
        return content["choices"][0]["text"]
    except (KeyError, IndexError, TypeError):
        return event
