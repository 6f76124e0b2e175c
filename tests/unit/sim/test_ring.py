"""Two tiers of cloud over a ring: ways take its cables from either end."""

from __future__ import annotations

from typing import Any

import pytest

import edgewise as ew
from edgewise.errors import ScenarioError
from edgewise.model.parsing import parse_scenario
from edgewise.model.ways import levels, routes_of
from edgewise.sim.links.wires import Wires

NODE = {"cpu_cores": 8, "memory_bytes": "16GB"}
# North, south and the regional cloud are on the ring, clockwise; the central cloud is behind the regional.
VARIANT = {"name": "detector", "model": "small", "profile": {"fixed_s": "20ms"}, "largest_bytes": "50kB"}
CATALOG = {"models": [{"name": "small", "task": "detection", "accuracy": 30}], "variants": [VARIANT]}
OVER = {
    ("north", "own"): ["lan-{site}"],
    ("south", "own"): ["lan-{site}"],
    ("north", "south"): ["north-south"],
    ("south", "north"): ["-north-south"],
    ("north", "regional"): ["-regional-north"],
    ("south", "regional"): ["south-regional"],
    ("north", "central"): ["-regional-north", "wan"],
    ("south", "central"): ["south-regional", "wan"],
}


def ring(over: dict[tuple[str, str], list[str]] = OVER, **more: Any) -> dict[str, Any]:
    """The scenario, whose detectors are in both clouds only."""
    cables = [{"name": name, "bandwidth_bps": "1Gbps", "delay_s": "2ms"} for name in
              ("north-south", "south-regional", "regional-north", "lan-{site}")]  # fmt: skip
    clusters = [
        {"name": name, "tier": tier, "nodes": [{"name": f"{name}-0", "resources": NODE}]}
        for name, tier in (("north", 0), ("south", 0), ("regional", 1), ("central", 2))
    ]
    ways = [{"site": f"at-{site}", "cluster": to, "over": names} for (site, to), names in over.items()]
    return {
        "name": "ring", "duration_s": 30, "sharing": "fifo", "catalog": CATALOG,
        "clusters": clusters,
        "sites": [{"name": f"at-{name}", "cluster": name, "uplink_bps": "10Gbps"}
                  for name in ("north", "south")],
        "links": [*cables, {"name": "wan", "bandwidth_bps": "500Mbps", "delay_s": "20ms"}, *ways],
        "workers": [{"variant": "detector", "cluster": name, "count": 4}
                    for name in ("regional", "central")],
        "streams": {
            "applications": [{"name": "visitors", "task": "detection", "rate_qps": 5, "size_bytes": "30kB",
                              "deadline_s": "150ms", "length_s": [5, 10], "min_accuracy": 20}],
            "arrivals": {"clients_per_min": 12},
        },
    } | more  # fmt: skip


def names(topology: Any, site: str, cluster: str, back: bool = False) -> list[str]:
    """The links of a way."""
    routes, wires = routes_of(topology), Wires("fifo", topology)
    sites, clusters = ([each.name for each in some] for some in (topology.sites, topology.clusters))
    row = routes.link[wires.way(sites.index(site), clusters.index(cluster), back)]
    return [routes.names[k] for k in row if k >= 0]


def test_ways_round_a_ring_take_each_cable_in_the_direction_they_go() -> None:
    topology = parse_scenario(ring(), "ring").topology
    assert names(topology, "at-north", "south") == ["north-south:up"]
    assert names(topology, "at-north", "south", back=True) == ["north-south:down"]
    assert names(topology, "at-south", "north") == ["north-south:down"]
    assert names(topology, "at-south", "north", back=True) == ["north-south:up"]
    assert names(topology, "at-north", "central") == ["regional-north:down", "wan:up"]
    assert names(topology, "at-north", "central", back=True) == ["wan:down", "regional-north:up"]
    assert names(topology, "at-south", "central") == ["south-regional:up", "wan:up"]
    (way,) = (way for way in topology.ways if (way.site, way.cluster) == ("at-north", "central"))
    assert way.delay_s == pytest.approx(0.022) and way.bandwidth_bps == 5e8


def test_links_of_a_cable_taken_from_both_ends_are_nobodys_way_back_alone() -> None:
    routes = routes_of(parse_scenario(ring(), "ring").topology)
    back = {name for name, alone in zip(routes.names, routes.back.tolist(), strict=True) if alone}
    assert back == {"wan:down", "south-regional:down", "lan-at-north:down", "lan-at-south:down"}
    level, loop = levels(len(routes.names), routes.link)
    assert not loop.any() and level[routes.names.index("wan:up")] > 0


def test_a_link_between_clouds_takes_cables_from_either_end() -> None:
    data = ring()
    data["links"].append({"between": ["central", "north"], "over": ["-wan", "regional-north"]})
    routes = routes_of(parse_scenario(data, "ring").topology)

    def links(one: str, other: str) -> list[str]:
        return [routes.names[k] for k in routes.link[routes.between[one, other]] if k >= 0]

    assert links("central", "north") == ["wan:down", "regional-north:up"]
    assert links("north", "central") == ["regional-north:down", "wan:up"]


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_links_carry_what_goes_their_way(sharing: str) -> None:
    """Answers weigh nothing, so links carry payloads alone."""
    result = ew.simulate(parse_scenario(ring(sharing=sharing), "ring"), "closest", seeds=(0,))
    rows = result.items.to_pylist()
    sent = {
        site: sum(r["queries"] - r["rejected"] for r in rows if r["site"] == site)
        for site in ("at-north", "at-south")
    }
    carried: dict[str, float] = {}
    for row in result.use["links"].to_pylist():
        carried[row["link"]] = carried.get(row["link"], 0.0) + row["sent_bits"]
    assert min(sent.values()) > 50
    assert carried["regional-north:down"] == pytest.approx(8 * 30e3 * sent["at-north"], rel=0.02)
    assert carried["south-regional:up"] == pytest.approx(8 * 30e3 * sent["at-south"], rel=0.02)
    assert carried["regional-north:up"] == carried["south-regional:down"] == carried["north-south:up"] == 0.0


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (["-ring"], "links[6].over: unknown cable 'ring'"),
        (["north-south", "-north-south"], "'north-south' twice; a way runs over a cable once"),
    ],
)
def test_what_is_wrong_with_cables_is_said_by_their_names(over: list[str], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(ring(OVER | {("south", "own"): over}), "ring")
    assert message in str(caught.value)
