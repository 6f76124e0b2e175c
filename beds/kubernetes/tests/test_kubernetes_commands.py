"""A cluster that stays: a second one is refused, faults and links come by command, and it ends by command."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beds.kubernetes import commands, groups, place
from beds.kubernetes.cluster import is_ready
from beds.kubernetes.images import BUSYBOX
from beds.processes import REPOSITORY, BedError, wait

SERVE = (
    "mkdir /www && hostname > /www/index.html && dd if=/dev/zero of=/www/large bs=1M count=2"
    " && httpd -f -p 8080 -h /www"
)
SPIN = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "beds.kubernetes", *words],
                          cwd=REPOSITORY, capture_output=True, text=True, check=False)  # fmt: skip


def done(*words: str) -> str:
    said = command(*words)
    assert said.returncode == 0, said.stderr
    return said.stdout


def refused(*words: str) -> str:
    said = command(*words)
    assert said.returncode == 1 and "Traceback" not in said.stderr
    return said.stderr


def state() -> dict[str, Any]:
    return json.loads(done("status"))


def kubectl(*words: str, stdin: str | None = None) -> str:
    of = state()
    tool = [f"{of['programs']}/kubectl", f"--kubeconfig={of['kubeconfig']}", *words]
    return subprocess.run(tool, input=stdin, capture_output=True, text=True, check=True, timeout=90).stdout


def ready(kind: str) -> set[str]:
    items = json.loads(kubectl("get", kind, "-o", "json"))["items"]
    return {each["metadata"]["name"] for each in items if is_ready(each)}


def inside(pod: str, line: str, seconds: int = 60) -> str | None:
    """What a shell in a pod says; None where it fails."""
    try:
        return kubectl("exec", pod, "--", "timeout", str(seconds), "sh", "-c", f"({line}) 2>&1")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None


def times_s(pod: str, line: str) -> dict[str, float]:
    """How long it takes there, by the pod's own clock: `real`, and `user` of a processor."""
    said = inside(pod, f"time {line}")
    assert said is not None
    found = re.findall(r"(real|user|sys)\s+(\d+)m ([\d.]+)s", said)
    return {what: 60 * int(minutes) + float(seconds) for what, minutes, seconds in found}


def took_s(pod: str, line: str) -> float:
    return times_s(pod, line)["real"]


@pytest.fixture(scope="module")
def pods(kubernetes: None) -> Iterator[dict[str, str]]:
    """Addresses of two pods on a cluster that a command has started: a at west (n1), b at east (n2)."""
    done("up", "--sites", "west=1,east=1")
    try:
        for name, node in (("a", "n1"), ("b", "n2")):
            inside = {"name": "c", "image": BUSYBOX, "imagePullPolicy": "Never",
                      "command": ["sh", "-c", SERVE],
                      "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}  # fmt: skip
            spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [inside]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        wait("two pods", lambda: ready("pod") == {"a", "b"}, 60)
        found = json.loads(kubectl("get", "pod", "-o", "json"))["items"]
        yield {each["metadata"]["name"]: each["status"]["podIP"] for each in found}
    finally:
        done("down")


def fetch(pods: dict[str, str], of: str, seconds: int = 2) -> bool:
    other = inside("a", f"wget -q -O- http://{pods[of]}:8080/", seconds)
    return other is not None and other.strip() == of


def test_a_second_cluster_is_refused_and_the_first_goes_on(pods):
    first = state()
    said = refused("up", "--nodes", "1")
    assert all(each in said for each in ("n1, n2", str(first["pid"]), first["kubeconfig"], "make bed-down"))
    assert state() == first and ready("node") == {"n1", "n2"}


def test_only_its_owner_may_speak_to_it(pods):
    listening = Path(state()["files"]) / "commands.sock"
    assert listening.is_socket() and listening.stat().st_mode & 0o777 == 0o600


def test_what_is_no_command_is_said_and_harms_nothing(pods):
    assert "did you mean freeze?" in refused("fault", "freese", "n1")
    assert "'n7' is no node and no site" in refused("fault", "kill", "n7")
    assert "one node or site" in refused("fault", "kill")
    assert "what does: nothing" in refused("repair", "kill", "n1")
    assert "--rate 20: a figure above 0 with its unit" in refused("link", "west", "east", "--rate", "20")
    assert "--delay 0ms" in refused("link", "west", "east", "--delay", "0ms")
    assert "--loss 1.5" in refused("link", "west", "east", "--loss", "1.5")
    assert "below 1" in refused("fault", "slow", "n1", "--share", "1")
    where = Path(state()["files"]) / "commands.sock"
    for line in (b"\n", b"[1]\n", b'{"do": "link"}\n', b'{"do": "rm"}\n'):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(where))
            client.sendall(line)
            assert "error" in json.loads(client.recv(65536))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(where))  # and says nothing: who comes next waits for seconds, not for ever
        assert "nothing, all was well" in done("repair")
    assert state()["faults"] == [] and state()["links"] == {} and fetch(pods, "b")


def test_links_are_set_by_command(pods):
    get = f"wget -q -O /dev/null http://{pods['b']}:8080"
    quick_s = took_s("a", f"{get}/index.html")
    done("link", "west", "east", "--delay", "100ms")
    assert 0.35 < took_s("a", f"{get}/index.html") - quick_s < 1.0  # two round trips
    done("link", "west", "east", "--rate", "8mbit")
    assert state()["links"] == {"east west": "rate 8mbit"}
    assert 2 * 2**20 * 8 / 8e6 * 0.9 < took_s("a", f"{get}/large") < 3.5
    done("link", "west", "east", "--loss", "20%")
    said = inside("a", f"ping -q -c 300 -i 0.01 {pods['b']}; true")
    assert said is not None
    answered = int(said.split(" packets received")[0].split()[-1])
    assert 150 < answered < 234  # 192 by the law, 64 % of 300, ± 5 standard deviations
    done("link", "east", "west")
    assert state()["links"] == {} and took_s("a", f"{get}/large") < 0.5
    said = inside("a", f"ping -q -c 50 -i 0.01 {pods['b']}")
    assert said is not None and " 50 packets received" in said


def becomes(pods: dict[str, str], of: str, reached: bool) -> None:
    wait(f"{of} to be {'' if reached else 'un'}reached", lambda: fetch(pods, of, 1) is reached, 60)


@pytest.mark.parametrize(
    "words", [("cut", "west", "east"), ("cut", "n2"), ("freeze", "east")], ids=lambda words: " ".join(words)
)
def test_a_fault_holds_until_it_is_repaired(pods, words):
    assert fetch(pods, "b")
    done("fault", *words)
    assert state()["faults"] == [" ".join(words)]
    assert not fetch(pods, "b") and "holds already" in refused("fault", *words)
    done("repair", *words)
    assert state()["faults"] == []
    becomes(pods, "b", True)


def test_a_node_that_is_cut_off_from_the_control_plane_goes_on(pods):
    done("fault", "cut", "n2", "control")
    with pytest.raises(subprocess.CalledProcessError):
        kubectl("logs", "b", "--request-timeout=3s")  # which the API server asks the kubelet for
    assert fetch(pods, "b")
    done("repair")
    kubectl("logs", "b")


def test_a_killed_node_comes_back_when_it_is_repaired(pods):
    done("fault", "kill", "n2")
    assert not fetch(pods, "b")
    assert "`repair kill n2` comes first" in refused("fault", "freeze", "east")
    done("repair", "kill")
    wait("n2 to be Ready", lambda: ready("node") == {"n1", "n2"}, 60)

    def address() -> str | None:
        found = json.loads(kubectl("get", "pod", "b", "-o", "json"))
        return found["status"].get("podIP") if is_ready(found) else None

    before = pods["b"]
    wait("b to have another address", lambda: address() not in (None, before), 60)
    pods["b"] = str(address())
    becomes(pods, "b", True)


def stands_still(node: str) -> float:
    """Share of half a second for which a node stands still."""
    file = groups.daemons(node).parent / ("cgroup.freeze" if groups.UNIFIED else "freezer.state")
    seen = []
    for _ in range(100):
        seen.append(file.read_text().strip() not in ("0", "THAWED"))
        time.sleep(0.005)
    return sum(seen) / len(seen)


def test_a_slow_node_gets_a_share_of_the_time(pods):
    done("fault", "slow", "n2", "--share", "0.2")
    took = times_s("b", f"sh -c '{SPIN}'")
    assert took["user"] / took["real"] < 0.4 and stands_still("n2") > 0.5 and not stands_still("n1")
    done("repair")
    assert not stands_still("n2") and fetch(pods, "b")


def test_the_api_server_goes_and_comes_back(pods):
    done("fault", "api-server")
    with pytest.raises(subprocess.CalledProcessError):
        kubectl("get", "node", "--request-timeout=2s")
    done("repair", "api-server")
    wait("all nodes to be Ready", lambda: ready("node") == {"n1", "n2"}, 60)


def test_down_ends_a_cluster_whatever_holds_in_it(pods):
    of = state()
    for fault in (("slow", "n1"), ("freeze", "n2"), ("api-server",)):
        done("fault", *fault)
    done("down")
    assert not place.runs(of["pid"]) and not groups.processes()
    assert command("status").returncode == 1 and not Path(of["files"]).exists()


HOLDS = """
import signal, sys, time
from beds.kubernetes import place
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with place.taken():
    print("taken", flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def holding(kubernetes: None) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start a process that has taken the place, and does not end when it is asked to."""
    made = []

    def start() -> subprocess.Popen[str]:
        made.append(
            subprocess.Popen([sys.executable, "-c", HOLDS], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        )
        assert made[-1].stdout is not None and made[-1].stdout.readline() == "taken\n"
        return made[-1]

    yield start
    for each in made:
        each.kill()
        each.wait()


def test_whoever_holds_the_place_is_named_and_down_ends_it(holding, monkeypatch):
    first = holding()
    assert place.holder()["pid"] == first.pid
    with pytest.raises(BedError, match=f"process {first.pid} .*make bed-down"), place.taken():
        pass
    assert "takes no commands" in refused("fault", "kill", "n1")
    monkeypatch.setattr(place, "END_S", 0.5)
    began_s = time.monotonic()
    assert place.end_holder()["pid"] == first.pid  # which ignores SIGTERM
    assert time.monotonic() - began_s >= 0.5 and first.wait() == -signal.SIGKILL
    assert place.holder() == {}
    with place.taken():  # what the killed one wrote is nobody's word
        assert place.holder()["pid"] == os.getpid()
    assert "no cluster runs" in refused("repair")


@pytest.mark.parametrize(
    ("text", "value"), [("", None), ("20mbit", 20e6), ("1.5Gbit", 1.5e9), ("64kbit", 64e3), ("8bit", 8.0)]
)
def test_rates_are_written_as_for_tc(text, value):
    assert commands.quantity("rate", text, commands.RATES_BPS) == value
