"""Where a gateway notes its open streams and moved workers: in memory, or in a store that survives it."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any, NamedTuple

from edgewise.errors import ProtocolError
from edgewise.runtime.sqlite import StoreError
from edgewise.runtime.store import Store
from edgewise.runtime.traffic_store import OpenStream

Key = tuple[str | None, ...]


class Move(NamedTuple):
    """Where a worker is now, its model's name there, and the token that it wants to see."""

    url: str
    model: str
    token: str | None = None


class Book:
    """Numbers streams and keeps them, and where workers moved.

    Args:
        store: that all gateways share; numbers are unique over all of them. None keeps nothing, and numbers
            streams from 0.
        gateway: whose streams these are.
    """

    def __init__(self, store: Store | None = None, gateway: str = "") -> None:
        self._store, self._gateway, self._numbers = store, gateway, itertools.count()

    def opened(self, stated: dict[str, Any], key: Key | None) -> int:
        """A new stream's number; once this returns the stream is kept.

        Raises:
            ProtocolError: it cannot be kept; status 503.
        """
        if self._store is None:
            return next(self._numbers)
        try:
            return self._store.open_stream(self._gateway, stated, key)
        except StoreError as error:
            raise ProtocolError(f"no stream can be kept: {error}", status=503) from error

    def closed(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        """A stream ended."""
        if self._store is not None:
            self._store.close_stream(stream_id, worker, outcome)

    def kept(self) -> list[OpenStream]:
        """Streams that are open, of this gateway's earlier life."""
        return [] if self._store is None else self._store.open_streams(self._gateway)

    def policy(self, decision: str, what: str) -> str:
        """The policy that the store names, see `Store.policy`; "" where there is no store."""
        return "" if self._store is None else self._store.policy(decision, what)

    def moved(self, worker: str, where: Move) -> None:
        """A worker is at another address."""
        if self._store is not None:
            self._store.put(f"moved {self._gateway}", self.moves() | {worker: where})

    def moves(self) -> dict[str, Move]:
        """Where each worker is that moved in this gateway's earlier life."""
        found = {} if self._store is None else self._store.moved(self._gateway)
        return {name: Move(*where) for name, where in found.items()}


def known_as(name: str, names: Collection[str]) -> str | None:
    """A worker's name among others: variant@node is variant@node#0 where there are several, and back."""
    return next((each for each in (name, f"{name}#0", name.removesuffix("#0")) if each in names), None)
