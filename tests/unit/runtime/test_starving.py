"""Whether processes got their processor time: real ones that compete for one, and a loop that is held up."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from edgewise.runtime.watch.metrics import page
from edgewise.runtime.watch.starving import CpuTotals, Lag, look, starved
from waiting import becomes, takes, wait_until

CALM = CpuTotals(0.0, 0.0, 0.0, 0.0)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not count waiting")
def test_processes_that_share_a_processor_are_starved():
    core = min(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    children = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(6)]
    try:
        numbers = [child.pid for child in children]
        before = look(numbers)
        now = wait_until(lambda: (now := look(numbers)).ran_s >= before.ran_s + 0.5 and now)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert "processes waited" in starved(before, now, [])
    assert look(numbers).ran_s == 0.0  # they have ended


@pytest.mark.parametrize(
    ("after", "late_s", "sign"),
    [
        (CpuTotals(1.0, 0.1, 0.0, 100.0), [0.001] * 100, None),
        (CpuTotals(1.0, 4.0, 0.0, 100.0), [0.001] * 100, "waited 80 %"),
        (CpuTotals(1.0, 0.1, 20.0, 100.0), [0.001] * 100, "host took 20 %"),
        (CpuTotals(1.0, 0.1, 0.0, 100.0), [0.001] * 90 + [0.2] * 10, "200 ms late"),
        (CpuTotals(0.0, 0.0, 0.0, 0.0), [], None),  # a system that tells nothing
    ],
)
def test_each_sign_is_said(after, late_s, sign):
    said = starved(CALM, after, late_s)
    assert said is None if sign is None else sign in said


def test_a_loop_that_is_held_up_is_late_and_its_metric_says_so():
    async def run():
        registry = CollectorRegistry()
        lag = Lag("gateway-0", registry, period_s=0.02)
        keeping = asyncio.create_task(lag.keep())
        await asyncio.sleep(0)
        takes(0.3)  # what holds it up
        await becomes(lambda: lag.late_s)
        keeping.cancel()
        assert lag.late_s[0] > 0.2
        text = page(registry).body.decode()
        assert 'edgewise_event_loop_lag_seconds_bucket{le="0.2",process="gateway-0"} 0.0' in text

    asyncio.run(run())
