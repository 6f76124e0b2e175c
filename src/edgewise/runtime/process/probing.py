"""A probe of a node as a process, see `watch.probe`; in a cluster a DaemonSet runs one on each node."""

import os
import socket
from collections.abc import Mapping

from edgewise.errors import RunError
from edgewise.runtime import http
from edgewise.runtime.process.serving import Listen, run, run_probe
from edgewise.runtime.watch.logs import log_json
from edgewise.runtime.watch.probe import Probe, found_at

NODE = "EDGEWISE_NODE"  # of the environment: name of the node; the machine's own where it is not set


def be_probe(
    probes: str, tokens: str | None, anyone: bool, environment: Mapping[str, str] = os.environ
) -> None:
    """Be a probe until told to end.

    Args:
        probes: HOST:PORT, a name that stands for all of them, and the port at which each answers.
        tokens: lines as `Listen` has them; the first is shown to the others.
        anyone: other machines may ask without one.
    Raises:
        RunError: `probes` is no such thing.
        ScenarioError: the port is taken, or others could ask without a token.
    """
    host, _, port = probes.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise RunError(f"--probe {probes}: must be HOST:PORT, as edgewise-probes.default.svc:8090")
    log_json()
    where = Listen("0.0.0.0", int(port), token=tokens, open=anyone)
    node = environment.get(NODE) or socket.gethostname()
    run(run_probe(Probe(node, found_at(host, int(port)), http.one_token(tokens)), where))
