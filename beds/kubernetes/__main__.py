"""python -m beds.kubernetes up | down | fault | repair | link …: a cluster that stays until told to end."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beds.kubernetes import cleanup, commands, dns, place, stamp
from beds.kubernetes.build import VERSION, check_machine, programs
from beds.kubernetes.cluster import Cluster
from beds.processes import REPOSITORY, BedError, end_by_signals

EXAMPLES = """examples:
  python -m beds.kubernetes up --nodes 3
  python -m beds.kubernetes up --sites west=2,east=1 --simulated 200
  KUBERNETES_VERSION=v1.34.4 python -m beds.kubernetes up
  python -m beds.kubernetes link west east --rate 20mbit --delay 20ms --loss 1%
  python -m beds.kubernetes fault cut west east
  python -m beds.kubernetes fault kill n2
  python -m beds.kubernetes repair
  python -m beds.kubernetes down"""
SOCKET = "commands.sock"
FAULTS = """faults, each until it is repaired:
  cut A [B]     no packet passes between two nodes or sites; B may be `control`; without B, A is cut off
  kill A        everything on it is killed and its link is dead, as if its power went
  freeze A      everything on it stands still, keeps what it has, and answers nothing
  slow A        everything on it gets a share of the time (--share 0.2)
  api-server    the API server is killed"""


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
    _steering(verbs)
    verbs.add_parser("down", help="end whatever cluster runs here, and remove what a killed one has left")
    verbs.add_parser("status", help="say what runs, where its kubeconfig is, and what is wrong with it")
    verbs.add_parser("build", help="build what clusters are made of, where it is not there yet")
    verbs.add_parser("tested", help="say which parts of the bed's tests have not passed as things are now")
    test = verbs.add_parser("test", help="run its tests, and note which parts of them have passed")
    test.add_argument("part", nargs="*", metavar="PART", help=", ".join(stamp.PARTS))
    test.add_argument("--changed", action="store_true", help="those parts alone that `tested` names")
    said = parser.parse_args()
    try:
        sys.exit(_do(said))
    except BedError as error:
        sys.exit(f"error: {error}")


def _steering(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    fault = verbs.add_parser(
        "fault", help="let something go wrong in the cluster that is up", epilog=FAULTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    fault.add_argument("kind", help=", ".join(commands.PLACES))
    fault.add_argument("places", nargs="*", metavar="PLACE", help="a node or a site")
    fault.add_argument("--share", type=float, default=0.2, help="of the time that a slow node gets")
    repair = verbs.add_parser("repair", help="end faults: those that begin with these words, or all")
    repair.add_argument("words", nargs="*", metavar="WORD")
    link = verbs.add_parser(
        "link", help="what passes between two nodes or sites; what is not given is taken away"
    )
    link.add_argument("a", metavar="A")
    link.add_argument("b", metavar="B")
    for what, of in (("rate", "20mbit"), ("delay", "20ms"), ("loss", "1%%")):
        link.add_argument(f"--{what}", default="", help=f"each way, as {of}")


def _do(said: argparse.Namespace) -> int:
    match said.verb:
        case "up":
            return _up(sys.argv[2:])
        case "serve":
            return _serve(said)
        case "fault" | "repair" | "link":
            print(commands.ask(Path(_running()["files"]) / SOCKET, _command(said)))
            return 0
        case "down":
            return _down()
        case "status":
            check_machine()
            found = place.holder()
            print(json.dumps(found, indent=1) if found else "no cluster runs")
            return 0 if found else 1
        case "build":
            check_machine()
            print(programs(), dns.program(), sep="\n")
            return 0
        case "tested":
            print(*stamp.stale(), sep="\n")
            return 1 if stamp.stale() else 0
    return _test(said.part, said.changed)


def _test(named: Sequence[str], changed: bool) -> int:
    if wrong := set(named) - set(stamp.PARTS):
        raise BedError(f"test {min(wrong)}: there is {', '.join(stamp.PARTS)}")
    stale = stamp.stale()
    chosen = [part for part in named or stamp.PARTS if not changed or part in stale]
    if left_out := [part for part in named or stamp.PARTS if part not in chosen]:
        print(f"skipped, unchanged since they passed: {', '.join(left_out)}", flush=True)
    return 0 if all([stamp.run(part) for part in chosen]) else 1


def _command(said: argparse.Namespace) -> dict[str, Any]:
    words = {key: value for key, value in vars(said).items() if key != "verb"}
    return {"do": said.verb, **words}


def _running() -> dict[str, Any]:
    """What the cluster that is up says of itself."""
    check_machine()
    found = place.holder()
    if not found:
        raise BedError("no cluster runs; start one by `make bed`")
    if "kubeconfig" not in found:
        raise BedError(f"{place.told(found)}: it is a test's, or not up yet, and takes no commands")
    return found


def _up(arguments: list[str]) -> int:
    check_machine()
    if found := place.holder():
        raise BedError(place.told(found))
    programs()  # its building is seen
    with tempfile.TemporaryFile() as log:
        made = subprocess.Popen(
            [sys.executable, "-m", "beds.kubernetes", "serve", *arguments], cwd=REPOSITORY,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        began_s = time.monotonic()
        while made.poll() is None and not _is_up(made.pid):
            time.sleep(0.1)
        if made.poll() is not None:
            log.seek(0)
            raise BedError(log.read().decode().strip().removeprefix("error: ") or "it ended at once")
    found = place.holder()
    print(f"{found['nodes']} Ready after {time.monotonic() - began_s:.0f} s; Kubernetes {found['version']}")
    print(
        f"export KUBECONFIG={found['kubeconfig']} PATH={found['programs']}:$PATH \\\n"
        f"       KUBECACHEDIR={found['files']}/kubectl    # make bed-down ends it"
    )
    return 0


def _is_up(pid: int) -> bool:
    found = place.holder()
    return found.get("pid") == pid and "kubeconfig" in found


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
                "version": VERSION, "nodes": sorted(cluster.nodes), "users": configs,
                "kubeconfig": str(cluster.kubeconfig), "programs": str(programs()),
                "files": str(cluster.work),
            }  # fmt: skip

            def tell(holding: Mapping[str, Any]) -> None:
                cluster.place.say({**state, **holding})

            commands.serve(cluster, cluster.work / SOCKET, tell)
    except KeyboardInterrupt:
        return 0
    return 0


def _down() -> int:
    check_machine()
    found = place.end_holder()
    with place.taken():
        cleanup.clean()
    print(
        f"process {found['pid']} ended" if found else "no cluster runs; what a killed one had left is removed"
    )
    return 0


if __name__ == "__main__":
    main()
