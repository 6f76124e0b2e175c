"""The backend of a system, by the name that its store has: whoever keeps, changes or ends the system asks it.

A handle means something to the backend that gave it alone. Processes of this machine whatever the backend are
the nursery, which has its lock here, and the controller, which the nursery forks.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgewise.errors import RunError
from edgewise.runtime.backends.contract import ServingBackend
from edgewise.runtime.backends.local import LocalBackend
from edgewise.runtime.backends.taken import TAKEN
from edgewise.runtime.store import Process, Store

BACKEND, THIS_MACHINE = "backend", "local"  # a setting of the store, and what it is where nothing was said
KUBERNETES, CLUSTER = "kubernetes", "kubernetes"  # another; the setting that says where
SUPERSEDED = 75  # exit status of a controller whose system another one has taken over
Fork = Callable[[Process], int]
Make = Callable[[Path, Fork | None], ServingBackend]


def _on_cluster(folder: Path, fork: Fork | None) -> ServingBackend:
    from edgewise.runtime.backends.kubernetes.system import ClusterBackend  # of an extra

    return ClusterBackend(folder, fork)


BACKENDS: dict[str, Make] = {  # of a state's folder and, in its controller, the nursery
    THIS_MACHINE: LocalBackend,
    KUBERNETES: _on_cluster,
}


def maker(store: Store) -> Make:
    """What makes the backend of a system.

    Raises:
        RunError: this version has no such backend.
    """
    name = store.get(BACKEND, THIS_MACHINE)
    if name not in BACKENDS:
        folder = store.file.parent
        raise RunError(
            f"state {folder}: runs on {name!r}, which is unknown here; use the version that began it"
        )
    return BACKENDS[name]


def choose(store: Store, name: str, cluster: Mapping[str, Any] | None = None) -> None:
    """Have a system run on a backend.

    Args:
        cluster: where, on Kubernetes.
    Raises:
        RunError: it runs on another one.
    """
    if not store.ended() and store.get(BACKEND, THIS_MACHINE) != name:
        raise RunError("--on: cannot change while the system runs; edgewise down, then up")
    store.put(BACKEND, name)
    if cluster is not None:
        if not store.ended() and _which(store.get(CLUSTER)) != _which(cluster):
            raise RunError(
                "--on kubernetes: where cannot change while the system runs; edgewise down, then up"
            )
        store.put(CLUSTER, dict(cluster))


def _which(cluster: Mapping[str, Any] | None) -> dict[str, Any]:
    """What of a place cannot change while a system is there; its image may, for instance."""
    return {} if cluster is None else {name: cluster[name] for name in ("namespace", "system", "owner")}


def backend_of(store: Store) -> ServingBackend:
    """The backend of a system, for whoever is not its controller; see `maker`."""
    return maker(store)(store.file.parent, None)


def clear(store: Store) -> None:
    """Remove what a system that has ended left on its cluster, if it ran on one; may wait.

    Raises:
        RunError: something stays.
    """
    if store.get(BACKEND) == KUBERNETES:
        from edgewise.runtime.backends.kubernetes.system import remove  # of an extra

        remove(store.file.parent)


def left_running(store: Store) -> dict[str, str]:
    """Names of our processes that run, by handle; one that gave its place away has its port for a name."""
    backend = backend_of(store)
    handles = {r.handle: r.process.name for r in store.processes() if r.handle}
    handles |= {handle: f"port {port}" for handle, port, _ in store.retired()}
    handles = {handle: name for handle, name in handles.items() if TAKEN not in handle}
    return {handle: name for handle, name in handles.items() if backend.alive(handle)}
