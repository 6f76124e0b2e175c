"""Options that say where a server listens and who may ask; secrets come from files or the environment.

Everybody on a machine may read the command lines of its processes, so no secret is an option.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from edgewise.errors import EdgewiseError

VARIABLE = "EDGEWISE_TOKEN"
Host = Annotated[
    str, typer.Option(help="Address to listen on; others than this machine's own need a token, or --open.")
]
GrpcPort = Annotated[int | None, typer.Option(help="Also serve gRPC; 0 takes a free port.", min=0, max=65535)]
TokenFile = Annotated[
    Path | None,
    typer.Option(help=f"File with the bearer token that clients must show; or set {VARIABLE}."),
]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate chain, PEM: clients are served with TLS.")]
TlsKey = Annotated[Path | None, typer.Option(help="Its private key, PEM.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--server-name",
        help="Name that clients call this machine by, besides localhost and addresses; repeatable.",
    ),
]
Open = Annotated[bool, typer.Option("--open", help="Other machines may ask without a token.")]


def client_token(file: Path | None) -> str | None:
    """The token of a file, else of the environment, which is then forgotten: processes to come see it not.

    Raises:
        EdgewiseError: the file cannot be read, or holds no token.
    """
    found = os.environ.pop(VARIABLE, None)
    return found if file is None else read_token(file, "--token-file")


def read_token(file: Path, option: str) -> str:
    """The token that a file holds, on one line.

    Raises:
        EdgewiseError: it cannot be read, or holds none.
    """
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise EdgewiseError(f"{option} {file}: cannot be read: {why}; check the path") from None
    if not token or len(token.split()) != 1:
        raise EdgewiseError(f"{option} {file}: must hold one token and nothing else")
    return token
