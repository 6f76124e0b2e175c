"""Sweeps on a real cluster of this machine: Dask's; Ray's are among the test beds."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

from edgewise import parallel
from edgewise.errors import RunError
from in_process import edgewise

SWEEP = ("sweep", "tiny", "--vary", "streams.arrivals.clients_per_min=30,90,210,300", "--seeds", "0:3")


@contextmanager
def running(*command, until):
    """A program, from the line on its output that holds `until`, which is given."""
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        try:
            yield next(line for line in program.stdout if until in line)
        finally:
            program.terminate()


def same_as_here(folder, address):
    """The files of a sweep on a cluster are those of one in this process."""
    for out, where in (("here", ()), ("there", ("--on", address))):
        done = edgewise(*SWEEP, *where, "--out", out, cwd=folder)
        assert done.returncode == 0, done.stderr
    for name in ("points.parquet", "points.csv", "figure.png"):
        assert (folder / "here" / name).read_bytes() == (folder / "there" / name).read_bytes(), name


def test_a_sweep_on_dask_gives_the_same_bytes(tmp_path):
    scheduler = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with running(*scheduler, until="Scheduler at:") as line:
        address = line.split("tcp://")[1].strip()
        single = ("--nthreads", "1", "--no-dashboard", "--no-nanny", "--local-directory", str(tmp_path))
        worker = ("distributed.cli.dask_worker", f"tcp://{address}", *single)
        with running(*worker, until="Registered to"):
            same_as_here(tmp_path, f"dask://{address}")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("spark://here", "write ray://HOST:10001 or dask://HOST:8786"),
        ("ray", "write ray://HOST:10001 or dask://HOST:8786"),
        ("dask://127.0.0.1:1", "does not answer"),
    ],
)
def test_what_is_no_cluster_is_said(tmp_path, address, message, monkeypatch):
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "200ms"}):
        done = edgewise(*SWEEP, "--on", address, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_a_worker_of_another_version_is_said():
    with pytest.raises(RunError, match=r"this is 0\.0\.0; install the same"):
        parallel.run_numbered("0.0.0", print, 0)
