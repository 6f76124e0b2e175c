"""How often an API server is called, and how many bytes it answers; watches are counted apart."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import httpx2
from lightkube import Client
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import SingleConfig

from edgewise.runtime.backends.contract import Counted

WATCH = "watch"


class Calls:
    """What was counted, of all clients that were made with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.many: Counter[str] = Counter()  # by verb: GET, POST, PATCH, DELETE, watch
        self.answered_bytes: Counter[str] = Counter()
        self.guard: Callable[[httpx2.Request], None] = lambda request: (
            None
        )  # raises where it may not be asked

    def client(self, config: SingleConfig | None, namespace: str | None) -> Client:
        """A client whose calls are counted.

        Raises:
            ValueError: the configuration names no cluster, or nobody who speaks to it.
        """
        if config is None or config.user is None:
            raise ValueError("no cluster, or no user")
        verify = verify_cluster(config.cluster, config.user, config.abs_file)
        transport = CountedTransport(httpx2.HTTPTransport(verify=verify), self)
        return Client(config=config, namespace=namespace, field_manager="edgewise", transport=transport)

    def counted(self) -> tuple[Counted, ...]:
        """For who watches the system."""
        with self._lock:
            calls, answered = dict(self.many), dict(self.answered_bytes)
        return (
            Counted("edgewise_kubernetes_calls", "Calls of the API server.", "verb", calls),
            Counted("edgewise_kubernetes_answered_bytes", "What it answered, in bytes.", "verb", answered),
        )

    def note(self, verb: str, calls: int = 0, answered_bytes: int = 0) -> None:
        """Count a call, or a part of its answer."""
        with self._lock:
            self.many[verb] += calls
            self.answered_bytes[verb] += answered_bytes


CALLS = Calls()  # of this process


class CountedTransport(httpx2.BaseTransport):
    """Passes requests on, and counts them and what is answered."""

    def __init__(self, inner: httpx2.BaseTransport, calls: Calls) -> None:
        self._inner, self._calls = inner, calls

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `BaseTransport`."""
        self._calls.guard(request)
        verb = WATCH if request.url.params.get("watch") == "true" else request.method
        self._calls.note(verb, calls=1)
        response = self._inner.handle_request(request)
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _CountedStream(response.stream, verb, self._calls)
        return response

    def close(self) -> None:
        """See `BaseTransport`."""
        self._inner.close()


class _CountedStream(httpx2.SyncByteStream):
    def __init__(self, inner: httpx2.SyncByteStream, verb: str, calls: Calls) -> None:
        self._inner, self._verb, self._calls = inner, verb, calls

    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            self._calls.note(self._verb, answered_bytes=len(part))
            yield part

    def close(self) -> None:
        self._inner.close()
