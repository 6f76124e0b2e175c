"""The same work on one processor, several, or a cluster: joblib calls a function once for each task.

What comes out depends neither on how many work nor on who is done first. Forbidden here: what is run.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any

from edgewise.errors import EdgewiseError, RunError

CLUSTERS = {"ray": "ray", "dask": "distributed"}
"""What `on` may begin with, and the module that it needs."""


def each(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], jobs: int = 1, on: str = ""
) -> Iterator[tuple[int, Any]]:
    """Call a function with the arguments of each task.

    Args:
        function: is sent to other processes, as its arguments and results are.
        jobs: so many processes; with 1 all is done in this one, in order.
        on: instead, a cluster: "ray://host:10001" or "dask://host:8786".
    Yields:
        Number and result of each task, as they are done.
    Raises:
        EdgewiseError: the cluster's library is missing, or the function raised it.
        RunError: the cluster does not answer.
    """
    if not on and jobs == 1:  # without joblib, whose import takes a while
        yield from ((number, function(*task)) for number, task in enumerate(tasks))
        return
    from joblib import Parallel, delayed

    call = delayed(_numbered)
    how = {"n_jobs": -1} if on else {"n_jobs": jobs, "initializer": _leave_interrupts_to_the_first}
    with _cluster(on):
        pool = Parallel(return_as="generator_unordered", batch_size=1, **how)
        yield from pool(call(version("edgewise"), function, k, *task) for k, task in enumerate(tasks))


def _numbered(sent_by: str, function: Callable[..., Any], number: int, *task: Any) -> tuple[int, Any]:
    """Result of a task with its number, since they come back in any order.

    Raises:
        RunError: this process, of a cluster, has another version.
    """
    if (mine := version("edgewise")) != sent_by:
        raise RunError(f"a worker of the cluster has edgewise {mine}, this is {sent_by}; install the same")
    return number, function(*task)


def _leave_interrupts_to_the_first() -> None:
    """Ctrl-C reaches every process of a terminal; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _cluster(on: str) -> Iterator[None]:
    """Have joblib send work to a cluster; without an address to processes of this machine."""
    if not on:
        yield
        return
    kind, _, address = on.partition("://")
    if kind not in CLUSTERS or not address:
        raise EdgewiseError(f"--on {on}: names no cluster; write ray://HOST:10001 or dask://HOST:8786")
    try:
        library = import_module(CLUSTERS[kind])
    except ImportError as error:
        raise EdgewiseError(f"--on {on} cannot import {error.name}: pip install 'edgewise[{kind}]'") from None
    from joblib import parallel_config

    try:
        end = _ray(library, on) if kind == "ray" else library.Client(f"tcp://{address}", timeout=5).close
    except (OSError, ValueError) as error:
        raise RunError(f"--on {on}: does not answer: {error}; check the address") from error
    try:
        with parallel_config(backend=kind):
            yield
    finally:
        end()


def _ray(ray: Any, address: str) -> Callable[[], None]:
    """Connect to a Ray cluster; returns what ends that."""
    ray.init(address=address, log_to_driver=False)
    import_module("ray.util.joblib").register_ray()
    end: Callable[[], None] = ray.shutdown
    return end
