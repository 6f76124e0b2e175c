import numpy as np
import pytest

from edgewise.model.parsing import parse_scenario
from edgewise.runtime.backends.conformance import LINKS, NAMES, WIDTH_BPS
from edgewise.runtime.testbeds import LocalTestbed, kernel
from edgewise.runtime.testbeds.spaces import Spaces, SpaceTestbed
from edgewise.testing import check_testbed

WHY_NOT = kernel.unavailable()


@pytest.mark.live
def test_the_local_test_bed_keeps_the_contract():
    check_testbed(LocalTestbed)


@pytest.mark.live
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_the_namespaces_of_a_system_keep_the_contract(tmp_path):
    spaces = Spaces(tmp_path)
    nodes = [{"name": name, "speed_ops": 1e9, "resources": {"memory_bytes": 1e9}} for name in NAMES]
    links = [
        {"between": [NAMES[one], NAMES[other]], "bandwidth_bps": WIDTH_BPS, "shared": "both"}
        for one, other in LINKS
    ]
    tasks = [{"name": "only", "memory_bytes": 1, "work_ops": 1, "output_bytes": 1}]
    data = {
        "name": "row", "duration_s": 1, "clusters": [{"name": "row", "tier": 0, "nodes": nodes}],
        "links": links, "reservations": {"cores": "none"},
        "pipelines": [{"name": "one", "source": NAMES[0], "input_bytes": 1, "length_s": 1, "tasks": tasks}],
    }  # fmt: skip
    topology = parse_scenario(data, "row").topology
    try:
        places = spaces.make(topology, {})
        check_testbed(lambda network: SpaceTestbed(network, topology, places))
    finally:
        spaces.remove()


class Forgetful(LocalTestbed):
    def apply(self, flows):
        self.flows = {}
        return super().apply(flows)


class Lost(LocalTestbed):
    def address(self, node):
        return f"127.0.0.{node + 1}"

    def command(self, node, argv):
        return super().command(node, [*argv[:3], "127.0.0.9", *argv[4:]] if node == 0 else argv)


class Flat(LocalTestbed):
    def link_bytes(self):
        return np.zeros((len(self.network.bandwidth_bps), 2), dtype=np.int64)


@pytest.mark.live
@pytest.mark.parametrize(
    ("broken", "why"),
    [(Forgetful, "the same flows again"), (Lost, "not 100000 bytes from"), (Flat, "link_bytes")],
)
def test_a_test_bed_that_breaks_the_contract_is_found_out(broken, why):
    with pytest.raises(AssertionError, match=why):
        check_testbed(broken)
