"""A sweep on a real Ray cluster of one machine leaves the files of a sweep without one."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: 240 MB, the extra `ray`")

SWEEP = ("sweep", "tiny", "--vary", "streams.arrivals.clients_per_min=30,90,210,300", "--seeds", "0:3")
QUIET = os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as sought:
        sought.bind(("127.0.0.1", 0))
        return int(sought.getsockname()[1])


@pytest.fixture
def ray() -> Iterator[str]:
    """Address of a cluster; it ends with its first process."""
    port, client = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # its sockets need a short path
        head = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}",
                f"--ray-client-server-port={client}", "--num-cpus=1", "--include-dashboard=false",
                f"--temp-dir={folder}"]  # fmt: skip
        with subprocess.Popen(
            head, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=QUIET
        ) as program:
            assert program.stdout is not None
            said = []
            for line in program.stdout:
                said.append(line)
                if "--block" in line:
                    break
            assert program.poll() is None, "".join(said)
            yield f"ray://127.0.0.1:{client}"
            program.terminate()


def test_a_sweep_on_ray_gives_the_same_bytes(ray: str, tmp_path: Path) -> None:
    """As it says."""
    for out, where in (("here", ()), ("there", ("--on", ray))):
        line = [sys.executable, "-m", "edgewise", *SWEEP, *where, "--out", out]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=QUIET)
        assert done.returncode == 0, done.stderr
    for name in ("points.parquet", "points.csv", "figure.png"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes(), name
