"""Where a gateway notes its open streams and moved workers: in memory, or in a store that survives it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from edgewise.errors import ProtocolError
from edgewise.runtime.sqlite import StoreError
from edgewise.runtime.store import OpenStream, Store

Key = tuple[str | None, ...]


class Move(NamedTuple):
    """Where a worker is now, its model's name there, and the token that it wants to see."""

    url: str
    model: str
    token: str | None = None


class Book(Protocol):
    """Numbers streams and keeps them, and where workers moved."""

    def opened(self, stated: dict[str, Any], key: Key | None) -> int:
        """A new stream's number; once this returns the stream is kept."""

    def closed(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        """A stream ended."""

    def kept(self) -> list[OpenStream]:
        """Streams that are open, of this gateway's earlier life."""

    def moved(self, worker: str, url: str, model: str, token: str | None) -> None:
        """A worker is at another address."""

    def moves(self) -> dict[str, Move]:
        """Where each worker is that moved in this gateway's earlier life."""


class Counting:
    """Numbers from 0, kept nowhere."""

    def __init__(self) -> None:
        self._next = -1

    def opened(self, stated: dict[str, Any], key: Key | None) -> int:
        """See `Book`."""
        self._next += 1
        return self._next

    def closed(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        """See `Book`."""

    def kept(self) -> list[OpenStream]:
        """See `Book`."""
        return []

    def moved(self, worker: str, url: str, model: str, token: str | None) -> None:
        """See `Book`."""

    def moves(self) -> dict[str, Move]:
        """See `Book`."""
        return {}


class Stored:
    """Streams in the store that all gateways share; their numbers are unique over all of them.

    Args:
        store: open in this process.
        gateway: whose streams these are.
    """

    def __init__(self, store: Store, gateway: str) -> None:
        self._store, self._gateway = store, gateway

    def opened(self, stated: dict[str, Any], key: Key | None) -> int:
        """See `Book`."""
        try:
            return self._store.open_stream(self._gateway, stated, key)
        except StoreError as error:
            raise ProtocolError(f"no stream can be kept: {error}", status=503) from error

    def closed(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        """See `Book`."""
        self._store.close_stream(stream_id, worker, outcome)

    def kept(self) -> list[OpenStream]:
        """See `Book`."""
        return self._store.open_streams(self._gateway)

    def moved(self, worker: str, url: str, model: str, token: str | None) -> None:
        """See `Book`."""
        self._store.put(f"moved {self._gateway}", self.moves() | {worker: Move(url, model, token)})

    def moves(self) -> dict[str, Move]:
        """See `Book`."""
        return {name: Move(*where) for name, where in self._store.get(f"moved {self._gateway}", {}).items()}


def known_as(name: str, names: Collection[str]) -> str | None:
    """A worker's name among others: variant@node is variant@node#0 where there are several, and back."""
    return next((each for each in (name, f"{name}#0", name.removesuffix("#0")) if each in names), None)
