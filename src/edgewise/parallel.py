"""The same work on one processor, several, or a cluster: joblib calls a function once for each task.

What comes out depends neither on how many work nor on who is done first. Forbidden here: what is run.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any

from edgewise.errors import EdgewiseError, RunError

# What `on` may begin with, and the module that it needs.
CLUSTERS = {"ray": "ray", "dask": "distributed"}


def processors() -> int:
    """How many of this machine's processors this process, and all that it starts, may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    numbered = [(version("edgewise"), function, number, *task) for number, task in enumerate(tasks)]
    with _cluster(on) as pool:
        yield from pool(jobs, numbered)


def every(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], jobs: int) -> list[Any]:
    """The results of `each`, in the order of the tasks."""
    found = dict(each(function, tasks, jobs))
    return [found[number] for number in range(len(tasks))]


def run_numbered(sent_by: str, function: Callable[..., Any], number: int, *task: Any) -> tuple[int, Any]:
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


# Calls `run_numbered` with each task, by so many processes where it may choose.
Pool = Callable[[int, Sequence[tuple[Any, ...]]], Iterator[tuple[int, Any]]]


def _here(jobs: int, tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
    from joblib import Parallel, delayed

    how = {"n_jobs": jobs, "initializer": _leave_interrupts_to_the_first}
    pool = Parallel(return_as="generator_unordered", batch_size=1, **how)
    yield from pool(delayed(run_numbered)(*task) for task in tasks)


def _on_dask(jobs: int, tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="dask", n_jobs=-1):
        pool = Parallel(return_as="generator_unordered", batch_size=1)
        yield from pool(delayed(run_numbered)(*task) for task in tasks)


def _on_ray(jobs: int, tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
    """By Ray's own pool: joblib's backend for it gives results only when all have ended."""
    pool = import_module("ray.util.multiprocessing").Pool()
    yield from pool.imap_unordered(_unpacked, tasks, chunksize=1)


def _unpacked(task: tuple[Any, ...]) -> tuple[int, Any]:
    return run_numbered(*task)


@contextmanager
def _cluster(on: str) -> Iterator[Pool]:
    """What runs tasks: processes of this machine or, with an address, a cluster that is connected so long.

    Raises:
        EdgewiseError: the address is none, or the cluster's library is missing.
        RunError: the cluster does not answer.
    """
    if not on:
        yield _here
        return
    kind, _, address = on.partition("://")
    if kind not in CLUSTERS or not address:
        raise EdgewiseError(f"--on {on}: names no cluster; write ray://HOST:10001 or dask://HOST:8786")
    try:
        library = import_module(CLUSTERS[kind])
    except ImportError as error:
        raise EdgewiseError(f"--on {on} cannot import {error.name}: pip install 'edgewise[{kind}]'") from None
    try:
        if kind == "ray":
            library.init(address=on)
            end = library.shutdown
        else:
            end = library.Client(f"tcp://{address}", timeout=5).close
    except (OSError, ValueError) as error:
        raise RunError(f"--on {on}: does not answer: {error}; check the address") from error
    try:
        yield _on_ray if kind == "ray" else _on_dask
    finally:
        end()
