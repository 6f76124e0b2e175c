import numpy as np
import pytest

from edgewise.runtime.testbeds import LocalTestbed, netns
from edgewise.testing import check_testbed

WHY_NOT = netns.unavailable()


@pytest.mark.live
def test_the_local_test_bed_keeps_the_contract():
    check_testbed(LocalTestbed)


@pytest.mark.live
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_the_netns_test_bed_keeps_the_contract():
    check_testbed(netns.NetnsTestbed)


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
        return np.zeros(len(self.network.bandwidth_bps), dtype=np.int64)


@pytest.mark.live
@pytest.mark.parametrize(
    ("broken", "why"),
    [(Forgetful, "the same flows again"), (Lost, "not 100000 bytes from"), (Flat, "link_bytes")],
)
def test_a_test_bed_that_breaks_the_contract_is_found_out(broken, why):
    with pytest.raises(AssertionError, match=why):
        check_testbed(broken)
