"""python -m beds.kubernetes up | down | status | tested: a cluster that stays until it is told to end."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from beds.kubernetes import cleanup, stamp
from beds.kubernetes.build import VERSION, check_machine, programs
from beds.kubernetes.cluster import Cluster
from beds.processes import REPOSITORY, BedError, end_by_signals, root_folder

EXAMPLES = """examples:
  python -m beds.kubernetes up --nodes 3
  python -m beds.kubernetes up --sites west=2,east=1 --simulated 200
  KUBERNETES_VERSION=v1.34.4 python -m beds.kubernetes up
  python -m beds.kubernetes down"""


def main() -> None:
    """Start a cluster in the background, end it, or say what runs."""
    parser = argparse.ArgumentParser(
        prog="python -m beds.kubernetes", description="A real Kubernetes on this machine.", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, told in (("up", "start one and return"), ("serve", "start one and stay")):
        one = verbs.add_parser(name, help=told, epilog=EXAMPLES)
        one.add_argument("--nodes", type=int, default=3)
        one.add_argument("--sites", default="", help="as west=2,east=1, in place of --nodes")
        one.add_argument("--simulated", type=int, default=0, help="nodes that kwok simulates")
        one.add_argument("--user", action="append", default=[], help="a further user; repeatable")
    verbs.add_parser("down", help="end it, and remove what a killed one has left")
    verbs.add_parser("status", help="say what runs, and where its kubeconfig is")
    verbs.add_parser("build", help="build Kubernetes' programs, where they are not there yet")
    tested = verbs.add_parser("tested", help="whether the bed's tests have passed as its folder is now")
    tested.add_argument("--write", action="store_true", help="note that they have passed")
    said = parser.parse_args()
    try:
        sys.exit(_do(said))
    except BedError as error:
        sys.exit(f"error: {error}")


def _do(said: argparse.Namespace) -> int:
    match said.verb:
        case "up":
            return _up(sys.argv[2:])
        case "serve":
            return _serve(said)
        case "down":
            return _down()
        case "status":
            found = _state()
            print(json.dumps(found, indent=1) if found else "no cluster runs")
            return 0 if found else 1
        case "build":
            check_machine()
            print(programs())
            return 0
    if said.write:
        stamp.write()
    return 0 if stamp.holds() else 1


def _file() -> Path:
    return root_folder("kubernetes").parent / "kubernetes.json"


def _state() -> dict[str, object]:
    """What the running cluster has said of itself; empty where none runs."""
    with suppress(OSError, ValueError):
        found: dict[str, object] = json.loads(_file().read_text())
        if Path(f"/proc/{found['pid']}/cmdline").read_bytes().find(b"beds.kubernetes") > 0:
            return found
    return {}


def _up(arguments: list[str]) -> int:
    check_machine()
    programs()  # its building is seen
    log = root_folder("kubernetes").parent / "kubernetes.log"
    with log.open("wb") as to:
        made = subprocess.Popen(
            [sys.executable, "-m", "beds.kubernetes", "serve", *arguments], cwd=REPOSITORY,
            stdin=subprocess.DEVNULL, stdout=to, stderr=to, start_new_session=True,
        )  # fmt: skip
    began_s = time.monotonic()
    while made.poll() is None and _state().get("pid") != made.pid:
        time.sleep(0.1)
    if made.poll() is not None:
        raise BedError(log.read_text().strip().removeprefix("error: ") or "it ended at once")
    found = _state()
    print(f"{found['nodes']} Ready after {time.monotonic() - began_s:.0f} s; Kubernetes {found['version']}")
    print(
        f"export KUBECONFIG={found['kubeconfig']} PATH={found['programs']}:$PATH \\\n"
        f"       KUBECACHEDIR={found['files']}/kubectl    # make bed-down ends it"
    )
    return 0


def _serve(said: argparse.Namespace) -> int:
    end_by_signals()
    sites = {
        site: int(count) for site, _, count in (each.partition("=") for each in said.sites.split(",") if each)
    }
    try:
        with Cluster(said.nodes, sites or None, users={user: [] for user in said.user}) as cluster:
            if said.simulated:
                cluster.simulate(said.simulated)
            configs = {user: str(cluster.kubeconfig_of(user)) for user in said.user}
            state = {
                "pid": os.getpid(), "version": VERSION, "nodes": sorted(cluster.nodes), "users": configs,
                "kubeconfig": str(cluster.kubeconfig), "programs": str(programs()),
                "files": str(cluster.work),
            }  # fmt: skip
            _file().write_text(json.dumps(state))
            signal.pause()
    except KeyboardInterrupt:
        return 0
    finally:
        _file().unlink(missing_ok=True)
    return 0


def _down() -> int:
    found = _state()
    if not found:
        check_machine()
        cleanup.clean()
        print("no cluster runs; what a killed one had left is removed")
        return 0
    pid = int(str(found["pid"]))
    os.kill(pid, signal.SIGTERM)
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        time.sleep(0.1)
    print("ended")
    return 0


if __name__ == "__main__":
    main()
