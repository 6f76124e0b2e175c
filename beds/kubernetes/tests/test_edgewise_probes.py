"""The chart's DaemonSet measures ways between nodes: what the bed made of a link is what probes see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from beds.go import built
from beds.kubernetes import Cluster
from beds.kubernetes.build import VERSION, run
from beds.kubernetes.images import PYTHON, Image
from beds.kubernetes.tests.released import CHART, SPACE, image, space  # noqa: F401
from beds.processes import BedError

RATE_BPS, DELAY_S = 20e6, 0.02
PROBES = "app.kubernetes.io/component=probe"
READ = """
import urllib.request
shown = {"authorization": "Bearer " + open("/token/token").read().strip()}
request = urllib.request.Request("http://127.0.0.1:8090/v1/measured", headers=shown)
print(urllib.request.urlopen(request, timeout=10).read().decode())
"""


@pytest.fixture
def probes(cluster: Cluster, image: Image, space: None) -> Iterator[None]:  # noqa: F811
    """The DaemonSet alone, as the chart renders it; between two nodes the link is slow and far."""
    cluster.link("n1", "n2", RATE_BPS, DELAY_S)
    program = built("helm.sh/helm/v3", "v3.22.0", "cmd/helm")
    given = f"image={image.name},pullPolicy=Never,scenario=x,token.existingSecret=clients,probes.create=true"
    only = ["--show-only", "templates/probes.yaml", "--kube-version", VERSION, "--set", given]
    manifests = run([str(program), "template", "edgewise", str(CHART), "-n", SPACE, *only])
    cluster.kubectl("apply", "-n", SPACE, "-f", "-", stdin=manifests)
    yield
    cluster.kubectl("delete", "-n", SPACE, "-f", "-", stdin=manifests)


def measured(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What each probe has measured, by node; of those that answer."""
    found = {}
    for pod in cluster.list("pod", "-n", SPACE, "-l", PROBES):
        try:
            said = cluster.kubectl("exec", "-n", SPACE, pod["metadata"]["name"], "--", PYTHON, "-c", READ)
        except BedError:
            continue
        one = json.loads(said)
        found[one["node"]] = one | {"others": {each["node"]: each for each in one["others"]}}
    return found


def test_every_probe_sees_all_others_as_the_links_are(cluster: Cluster, probes: None) -> None:
    names = {node["metadata"]["name"] for node in cluster.list("node")}

    def complete() -> bool:
        found = measured(cluster)
        return found.keys() == names and all(len(each["others"]) == len(names) - 1 for each in found.values())

    cluster.wait(complete, 180, "every probe to see all others")
    found = measured(cluster)
    for node, each in found.items():
        assert each["cores"] > 0.0 and each["memory_bytes"] > 0.0
        for other, way in each["others"].items():
            print(
                f"{other} to {node}: {1e3 * way['round_trip_s']:.2f} ms, {way['rate_bps'] / 1e6:.1f} Mbit/s"
            )
            if {node, other} == {"n1", "n2"}:
                assert 2 * DELAY_S <= way["round_trip_s"] < 4 * DELAY_S
                assert 0.3 * RATE_BPS < way["rate_bps"] < 1.1 * RATE_BPS
            else:
                assert way["round_trip_s"] < DELAY_S and way["rate_bps"] > 1.1 * RATE_BPS
