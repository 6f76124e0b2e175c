"""Who serves a worker, where that is somebody else. Forbidden here: I/O."""

from typing import NamedTuple


class ServedBy(NamedTuple):
    """Servers of the Open Inference Protocol that somebody else runs, for live workers.

    Attributes:
        labels: names and values that pods of a cluster have, in order; none where `url` says where it is.
        namespace: of these pods; None: that of the live system.
        port: at which they answer.
        url: of one server.
        model: name of the model there; None: that of the variant.
    """

    labels: tuple[tuple[str, str], ...] = ()
    namespace: str | None = None
    port: int = 8080
    url: str | None = None
    model: str | None = None
