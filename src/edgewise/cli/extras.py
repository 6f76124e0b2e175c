"""What is said when a package of an extra is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgewise.errors import EdgewiseError


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around imports that `what` needs the extra `name` for.

    Raises:
        EdgewiseError: one of them is missing; says what to install.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("edgewise"):
            raise  # a fault of ours, which no installing mends
        raise EdgewiseError(f"{what} cannot import {error.name}: pip install 'edgewise[{name}]'") from error
