"""Asking the controller of a live system, whose folder says where it is and who may ask."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.errors import RunError, UnansweredError

Folder = Annotated[
    Path, typer.Option("--state", help="Folder of the live system's state.", callback=Path.absolute)
]
DEFAULT = Path("runs/live")


def call(folder: Path, method: str, path: str, body: Any = None, patience_s: float = 10.0) -> Any:
    """JSON of the controller's answer, which is waited for so long; shows the folder's operator token.

    Raises:
        RunError: there is no controller, or it refuses.
        UnansweredError: it does not answer.
    """
    from edgewise.runtime import reaching

    store = reaching.store_of(folder)
    client = reaching.operator(store)
    store.close()
    data = b"" if body is None else json.dumps(body).encode()

    async def send() -> Any:
        try:
            return await reaching.ask(client, method, path, body=data, patience_s=patience_s)
        finally:
            client.close()

    try:
        answer = asyncio.run(send())
    except ConnectionError:
        why = "its controller cannot be reached; is edgewise up running?"
        raise UnansweredError(f"state {folder}: {why}") from None
    except TimeoutError:
        why = f"its controller runs, but did not answer within {patience_s:g} s; try again"
        raise UnansweredError(f"state {folder}: {why}") from None
    found = json.loads(answer.body)
    if answer.status not in (200, 202):
        raise RunError(found.get("error", f"status {answer.status}"))
    return found
