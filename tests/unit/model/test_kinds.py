"""What the name of a kind of place stands for: the same in workers, sites, links, services, the timeline."""

from copy import deepcopy
from typing import Any

import pytest

from edgewise.config import load_scenario
from edgewise.errors import ScenarioError
from edgewise.model.kinds import kinds, meant, names_of
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Cluster, LinkChange, NodeChange

DATA: dict[str, Any] = {
    "name": "kinds", "duration_s": 10, "window_s": 5, "sharing": "none",
    "catalog": {
        "models": [{"name": "m", "task": "t", "accuracy": 1}],
        "variants": [
            {
                "name": "v", "model": "m", "profile": {"fixed_s": 0.01}, "largest_bytes": 1000,
                "resources": {"cpu_cores": 1, "memory_bytes": "1GB"},
            }
        ],
    },
    "clusters": [
        {
            "name": "box", "count": 3, "tier": 0,
            "nodes": [{"name": "n", "count": 2, "resources": {"cpu_cores": 4, "memory_bytes": "8GB"}}],
        },
        {
            "name": "cloud", "count": 1, "tier": 1,
            "nodes": [{"name": "n", "count": 2, "resources": {"cpu_cores": 4, "memory_bytes": "8GB"}}],
        },
    ],
    "sites": [{"name": "hall", "count": 3, "cluster": "box"}, {"name": "gate"}],
    "links": [
        {"site": "*", "cluster": "*", "delay_s": 0.05},
        {"site": "*", "cluster": "box", "delay_s": 0.04},
        {"site": "hall", "cluster": "box", "delay_s": 0.03},
        {"site": "*", "cluster": "own", "delay_s": 0.02},
        {"site": "hall", "cluster": "own", "delay_s": 0.01},
        {"site": "hall-1", "cluster": "box-2", "delay_s": 0.001},
        {"between": ["box", "cloud"], "delay_s": 0.1}, {"between": ["box", "box"], "delay_s": 0.002},
    ],
    "workers": [{"variant": "v", "cluster": "box"}, {"variant": "v", "cluster": "cloud-0", "count": 2}],
    "streams": {
        "sources": [{"name": "s", "site": "hall", "task": "t", "rate_qps": 1, "size_bytes": 1,
             "deadline_s": 1}]
    },
    "services": {"cloud": "cloud", "offered": [{"variant": "v", "deadline_s": 1}], "gateways": "per_site"},
    "timeline": [
        {"at_s": 1, "cluster": "box", "up": False},
        {"at_s": 2, "link": {"site": "hall", "cluster": "box"}, "delay_s": 0.5},
    ],
}  # fmt: skip


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of the data with a value somewhere else."""
    data = deepcopy(DATA)
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return data


def without_services() -> Scenario:
    """Where services are, workers are in the cloud alone."""
    data = {key: value for key, value in DATA.items() if key != "services"}
    return parse_scenario(data, "kinds")


def test_every_section_reads_the_name_of_a_kind_alike() -> None:
    scenario = without_services()
    topology = scenario.topology
    boxes = ["box-0", "box-1", "box-2"]
    box_nodes = [f"{box}.n-{k}" for box in boxes for k in (0, 1)]
    # Workers: one on each node of the kind; over the nodes of one cluster they are spread, first fit.
    assert [w.node for w in topology.workers] == [*box_nodes, "cloud-0.n-0", "cloud-0.n-0"]
    # Sites: the k-th has the k-th.
    assert [site.cluster for site in topology.sites] == [*boxes, ""]
    # Links: name, own, kind, all.
    delay_s = {(way.site, way.cluster): way.delay_s for way in topology.ways}
    assert delay_s["hall-1", "box-2"] == 0.001 and delay_s["hall-1", "box-1"] == 0.01
    assert delay_s["hall-1", "box-0"] == 0.03 and delay_s["gate", "box-0"] == 0.04
    assert delay_s["hall-0", "cloud-0"] == delay_s["gate", "cloud-0"] == 0.05
    # Between: each of one kind with each of the other; of one kind, the nodes of each.
    assert [link.ends for link in topology.links] == [
        *((box, "cloud-0") for box in boxes), *((box, box) for box in boxes)
    ]  # fmt: skip
    # Sources and the timeline.
    assert [source.sites for source in scenario.streams.sources] == [(0, 1, 2)]
    downs = [change.node for change in scenario.timeline if isinstance(change, NodeChange)]
    assert downs == box_nodes
    links = [(c.site, c.cluster) for c in scenario.timeline if isinstance(c, LinkChange)]
    assert links == [(f"hall-{k}", box) for k in range(3) for box in boxes]


def test_the_cloud_of_services_is_one_cluster() -> None:
    data = changed(("workers",), [{"variant": "v", "cluster": "cloud", "count": 1}])
    scenario = parse_scenario(data, "kinds")
    assert scenario.served.cloud == "cloud-0"
    assert [w.node for w in scenario.topology.workers] == ["cloud-0.n-0", "cloud-0.n-1"]
    with pytest.raises(
        ScenarioError, match=r"services.cloud: 'box' stands for 3 clusters; name one: box-0, box-1"
    ):
        parse_scenario(changed(("services", "cloud"), "box"), "kinds")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("workers", 0, "cluster"), "bx", r"cluster: unknown cluster 'bx'; did you mean 'box'"),
        (("sites", 0, "cluster"), "boxx", r"cluster: unknown cluster 'boxx'; did you mean 'box"),
        (("links", 1, "cluster"), "boks", r"cluster: unknown cluster 'boks'; did you mean 'box'"),
        (("links", 2, "site"), "hal", r"site: unknown site 'hal'; did you mean 'hall'"),
        (("links", 6, "between"), ["box", "clod"], r"between: unknown cluster 'clod'; did you mean 'cloud'"),
        (("timeline", 0, "cluster"), "bax", r"cluster: unknown cluster 'bax'; did you mean 'box'"),
        (("timeline", 1, "link", "site"), "hell", r"link.site: unknown site 'hell'; did you mean 'hall'"),
        (("timeline", 1, "link", "cluster"), "bx", r"link.cluster: unknown cluster 'bx'; did you mean 'box'"),
        (("services", "cloud"), "clowd", r"services.cloud: unknown cluster 'clowd'; did you mean 'cloud'"),
        (("streams", "sources", 0, "site"), "hull", r"site: unknown site 'hull'; did you mean 'hall'"),
        (("sites", 1, "cluster"), "box", r"cluster: 'box' stands for 3 clusters.* name one of them"),
        (("sites", 0, "count"), 4, r"cluster: 'box' stands for 3 clusters.*; give as many"),
    ],
)  # fmt: skip
def test_unknown_names_say_the_nearest_kind_or_place(path: tuple[Any, ...], value: Any, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        parse_scenario(changed(path, value), "kinds")


def test_workers_that_do_not_fit_each_node_name_the_node() -> None:
    data = changed(("workers",), [{"variant": "v", "cluster": "box", "count": 5}])
    del data["services"]
    with pytest.raises(ScenarioError, match=r"4 of 5 workers of 'v' fit node 'box-0.n-0'"):
        parse_scenario(data, "kinds")


def test_a_name_of_its_own_goes_before_a_kind() -> None:
    places = [Cluster(name, 0, ()) for name in ("hall", "hall-0", "hall-1", "box-0", "box-10", "x-y")]
    assert kinds(places)["hall-0"] == "" and kinds(places)["box-10"] == "box"
    assert [p.name for p in meant("hall", places)] == ["hall"]
    assert [p.name for p in meant("box", places)] == ["box-0", "box-10"]
    assert meant("x", places) == () and len(meant("*", places)) == 6
    assert names_of(places)[-1] == "box"


def test_a_kind_and_a_place_of_one_name_are_refused() -> None:
    data = changed(("clusters", 1), DATA["clusters"][1] | {"name": "box", "count": None})
    with pytest.raises(ScenarioError, match="clusters: the name 'box' is given twice"):
        parse_scenario(data, "kinds")


def test_tiers_of_a_generated_topology_are_kinds() -> None:
    timeline = [{"at_s": 1, "cluster": "access", "up": False}]
    scenario = load_scenario("full-edge", {"topology.antennas": 3, "timeline": timeline})
    nodes = [change.node for change in scenario.timeline if isinstance(change, NodeChange)]
    assert nodes == [f"access-{k}-node-0" for k in range(3)]
