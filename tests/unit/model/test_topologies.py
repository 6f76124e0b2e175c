import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
import yaml

from edgewise.config import Files, dump_scenario, load_scenario
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.world import World
from edgewise.errors import ScenarioError
from edgewise.model.deploy import fill
from edgewise.model.grammar.scenario import Backbone
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Node, Resources, Way, WayTable

KINDS = ("dc-cloud", "co-dc-cloud", "full-edge", "isp")
LINE = Backbone(("A", "B", "C", "D"), ((0, 1, 100.0), (1, 2, 200.0), (1, 3, 300.0)))


class Line(Files):
    """Shipped files, and one small graph: a star around B."""

    def graph(self, name: str) -> Backbone:
        return LINE


def scenario(**topology: Any) -> Scenario:
    data = {
        "name": "test",
        "duration_s": 60,
        "catalog": {"use": "detection"},
        "topology": topology,
        "streams": {"applications": {"use": "reference"}, "arrivals": {"clients_per_min": 60}},
    }
    return parse_scenario(data, "test", Line())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("antennas", [1, 2, 10, 100])
def test_workers_fit_and_nothing_more_does(kind: str, antennas: int) -> None:
    built = scenario(kind=kind, antennas=antennas)
    topology, catalog = built.topology, built.catalog
    ledger = NodeLedger(topology.nodes)
    need = {variant.name: variant.resources for variant in catalog.variants}
    for worker in topology.workers:
        assert not ledger.reserve(Reservation(worker.name, worker.node, need[worker.variant]))
    ledger.validate()
    assert built.spec.topology is not None
    tiers = [getattr(built.spec.topology, t) for t in ("access", "central_office", "data_centre", "cloud")]
    for cluster in topology.clusters:
        for node in cluster.nodes:
            assert not any(ledger.fits(node.name, need[name]) for name in tiers[cluster.tier].mix)
    assert len(topology.sites) == antennas
    assert len({worker.name for worker in topology.workers}) == len(topology.workers)


@pytest.mark.parametrize(
    ("kind", "tiers"), list(zip(KINDS, ({2, 3}, {1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}), strict=True))
)
def test_kinds_have_their_tiers_and_finite_delays(kind: str, tiers: set[int]) -> None:
    built = scenario(kind=kind, antennas=10)
    assert {cluster.tier for cluster in built.topology.clusters} == tiers
    world = World.build(built.catalog, built.topology)
    assert np.isfinite(world.delay_s).all() and (world.delay_s > 0).all() and (world.deviation_s > 0).all()
    assert set(np.unique(world.cluster)) == set(
        range(len(built.topology.clusters))
    )  # every cluster has workers


def test_servers_scale_with_the_antennas() -> None:
    def servers(antennas: int) -> dict[str, int]:
        topology = scenario(kind="full-edge", antennas=antennas, data_centre={"servers": 250}).topology
        return {cluster.name: len(cluster.nodes) for cluster in topology.clusters if cluster.tier}

    assert servers(1) == {"office-0": 1, "data-centre": 1, "cloud": 1}
    assert servers(7) == {"office-0": 5, "office-1": 2, "data-centre": 2, "cloud": 4}
    large = servers(100)
    assert (large["data-centre"], large["cloud"], len(large)) == (25, 50, 22)


def test_delays_in_a_tree() -> None:
    topology = scenario(kind="full-edge", antennas=7).topology
    links = {(link.site, link.cluster): link for link in topology.ways}

    def way(site: int, cluster: str) -> tuple[float, float]:
        link = links[f"antenna-{site}", cluster]
        return link.delay_s, link.deviation_s

    assert way(0, "access-0") == pytest.approx((0.3e-3, 0.05e-3))
    assert way(0, "access-4") == pytest.approx((4e-3, 0.3e-3 * 2**0.5))  # up to the office and down
    assert way(0, "access-5") == pytest.approx((10e-3, 0.4e-3 * 2**0.5))  # through the data centre
    assert way(6, "office-1") == pytest.approx((2e-3, 0.3e-3))
    assert way(6, "office-0") == pytest.approx((8e-3, (2 * 0.4e-3**2 - 0.3e-3**2) ** 0.5))
    assert way(3, "data-centre") == pytest.approx((5e-3, 0.4e-3))
    assert way(3, "cloud") == pytest.approx((15e-3, 2e-3))


def test_delays_on_a_graph() -> None:
    tiers = {"central_office": {"delay_s": "1ms", "antennas": 2}, "data_centre": {"delay_s": "2ms"}}
    topology = scenario(kind="isp", cloud={"delay_s": "10ms"}, **tiers).topology
    assert [site.name for site in topology.sites] == ["A", "B", "C", "D"]
    # The first office is at the best connected node, the second at the node furthest from it.
    assert [c.name for c in topology.clusters if c.tier == 1] == ["office-B", "office-D"]
    delay = {(link.site, link.cluster): link.delay_s for link in topology.ways}
    assert delay["A", "access-A"] == pytest.approx(0.3e-3)
    assert delay["A", "access-D"] == pytest.approx(2e-3 + 400 * 5e-6)
    assert delay["C", "office-D"] == pytest.approx(1e-3 + 500 * 5e-6)
    assert delay["C", "data-centre"] == pytest.approx(2e-3 + 200 * 5e-6)  # at B, the mean way is shortest
    assert delay["D", "cloud"] == pytest.approx(10e-3 + 300 * 5e-6)
    assert [site.name for site in scenario(kind="isp", antennas=6).topology.sites][4:] == ["A-1", "B-1"]


def test_a_mix_keeps_its_shares_and_fills_up() -> None:
    catalog = scenario(kind="dc-cloud").catalog
    nodes = [Node(f"n{k}", "c", Resources(64, 256e9, 64e9)) for k in range(6)]
    mix = {"yolov3-t4-b1": 1.0, "yolov3-t4-b4": 3.0, "mobilenet-ssd-cpu8": 2.0, "tiny-yolov2-cpu4": 1.0}
    placed = fill(nodes, mix, catalog)
    count = Counter(variant for variant, _ in placed)
    assert (count["yolov3-t4-b1"], count["yolov3-t4-b4"]) == (6, 18)  # all 24 GPUs, one to three
    assert count["mobilenet-ssd-cpu8"] == pytest.approx(2 * count["tiny-yolov2-cpu4"], abs=len(nodes))
    assert fill(nodes, mix, catalog) == placed


def test_a_topology_comes_back_equal_and_differs_when_a_delay_does() -> None:
    built = scenario(kind="isp", antennas=5)
    again = parse_scenario(yaml.safe_load(dump_scenario(built)), "test", Line())
    assert again == built and hash(again.topology.ways) == hash(built.topology.ways)
    assert scenario(kind="isp", antennas=5, cloud={"delay_s": 0.02}) != built


def test_a_thousand_antennas() -> None:
    built = scenario(kind="full-edge", antennas=1000)
    world = World.build(built.catalog, built.topology)
    assert world.delay_s.shape == (1000, 1000 + 200 + 2)
    assert 10_000 < world.workers < 30_000
    assert len(built.topology.ways) == world.delay_s.size


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (
            {"kind": "full"},
            "topology.kind: 'full' is not allowed; use 'dc-cloud', 'co-dc-cloud', 'full-edge', ",
        ),
        ({}, "topology.kind: is missing; add it"),
        (
            {"kind": "full-edge", "antenas": 3},
            "topology.antenas: unknown key 'antenas'; did you mean 'antennas'?",
        ),
        ({"kind": "full-edge", "antennas": 0}, "topology.antennas: 0 is not allowed; use an integer >= 1"),
        ({"kind": "full-edge", "antennas": 1001}, "antennas: 1001 is too large; use at most 1000"),
        (
            {"kind": "dc-cloud", "access": {}},
            "topology: kind 'dc-cloud' has no 'access'; remove it or choose",
        ),
        (
            {"kind": "dc-cloud", "graph": "x"},
            "topology: kind 'dc-cloud' has no 'graph'; remove it or choose kind",
        ),
        (
            {"kind": "dc-cloud", "cloud": {"server": 1}},
            "topology.cloud.server: unknown key 'server'; did you mean",
        ),
        (
            {"kind": "dc-cloud", "cloud": {"mix": {"yolov3-v100": 1}}},
            "cloud.mix: unknown variant 'yolov3-v100'; did",
        ),
        (
            {"kind": "dc-cloud", "cloud": {"mix": {"yolov3-cpu8": -1}}},
            "topology.cloud.mix.yolov3-cpu8: -1 is too small",
        ),
        (
            {"kind": "full-edge", "access": {"mix": {"yolov3-t4-b1": 1}}},
            "topology.access.mix: no variant fits a server; change mix or shapes",
        ),
        (
            {"kind": "dc-cloud", "data_centre": {"shapes": []}},
            "data_centre.shapes: [] is not a list with at least",
        ),
    ],
)  # fmt: skip
def test_errors_name_the_key_and_the_fix(topology: dict[str, Any], expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(**topology)
    assert expected in str(caught.value)


def test_real_graphs() -> None:
    pytest.importorskip("topohub")
    built = load_scenario("isp")
    names = [site.name for site in built.topology.sites]
    assert len(names) == 17 and "Frankfurt" in names
    world = World.build(built.catalog, built.topology)
    assert 1e-3 < world.delay_s[:, :17].max() < 20e-3  # across Germany
    with pytest.raises(ScenarioError, match="topohub has no such graph; use for example sndlib"):
        load_scenario("isp", {"topology.graph": "sndlib/atlantis"})
    assert len(load_scenario("isp", {"topology.graph": "topozoo/Abilene"}).topology.sites) == 11


def test_graphs_need_topohub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "topohub", None)
    with pytest.raises(ScenarioError, match=r"topology.graph: .*pip install 'edgewise\[place\]'"):
        load_scenario("isp")


def test_a_graph_in_pieces_is_refused() -> None:
    class Pieces(Files):
        def graph(self, name: str) -> Backbone:
            return Backbone(("A", "B", "C"), ((0, 1, 10.0),))

    data = yaml.safe_load(dump_scenario(scenario(kind="isp")))
    with pytest.raises(ScenarioError, match="the graph is in several pieces"):
        parse_scenario(data, "test", Pieces())


def test_link_tables_read_as_links() -> None:
    delay = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    table = WayTable(("s", "t"), ("a", "b", "c"), delay, delay / 10, delay * 10)
    assert table[1] == Way("s", "b", 2.0, 0.2, 20.0)
    assert table[-1] == list(table)[5] == Way("t", "c", 6.0, pytest.approx(0.6), 60.0)
    assert table[2:4] == (table[2], table[3]) and len(table) == 6
    assert table != "links" and table == WayTable(("s", "t"), ("a", "b", "c"), *map(np.copy, table.arrays))
    with pytest.raises(ValueError, match="read-only"):
        table.delay_s[0, 0] = 0.0
    with pytest.raises(ValueError, match=r"need shape \(1, 3\)"):
        WayTable(("s",), ("a", "b", "c"), delay, delay, delay)
