"""Sources live: `edgewise load` plays them, who is refused asks again, and a recording knows them."""

import csv
import json
import re
import signal
import subprocess
import sys

import pytest
from running_system import small_scenario

import edgewise as ew
from command_line import edgewise
from edgewise.config import dump_scenario
from edgewise.model.parsing import parse_scenario
from waiting import wait_until

pytestmark = pytest.mark.live
SECONDS, HALF_S = 6.0, 3.0
EARLY = {"name": "early", "count": 2, "rate_qps": 16, "priority": 1, "hours": [0, HALF_S / 3600.0]}
LATE = {"name": "late", "count": 2, "rate_qps": 10}


def two_workers_and_four_cameras():
    """Each worker has room for an early camera, or for two late ones."""
    needs = {"task": "score", "size_bytes": 100, "deadline_s": 2.0}
    data = small_scenario(workers=2, capacity_qps=20).spec.model_dump(mode="json", exclude_none=True)
    streams = {"sources": [each | needs for each in (LATE, EARLY)], "gateways": "per_site"}
    return parse_scenario(data | {"duration_s": SECONDS, "window_s": 0.5, "streams": streams}, "cameras")


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    (folder / "cameras.yaml").write_text(dump_scenario(two_workers_and_four_cameras()))
    command = [sys.executable, "-m", "edgewise", "up", "cameras.yaml", "--port", "0"]
    system = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)

    def both_run():
        assert system.poll() is None
        return len(re.findall(r"\brunning\b", edgewise("workers", folder=folder, code=None))) >= 2

    wait_until(both_run)
    yield folder
    system.send_signal(signal.SIGINT)
    system.wait(30)


def test_they_are_played_recorded_and_replayed(up):
    figures = edgewise("load", folder=up)
    came, ok, failed, refused = map(
        int, re.search(r"streams\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", figures).groups()
    )
    sent = 2 * (EARLY["rate_qps"] * HALF_S + LATE["rate_qps"] * SECONDS)
    assert came == ok + failed + refused == pytest.approx(sent, abs=4)
    # The late ones are refused until the early ones have gone, and ask again at every window.
    least = 2 * LATE["rate_qps"] * HALF_S
    assert least - 4 <= refused <= least + 2 * LATE["rate_qps"] * 1.5
    assert ok > 0.8 * (came - refused)
    by_source = {
        name: int(re.search(rf"{name}\s+\d+\s+\d+\s+\d+\s+(\d+)", figures).group(1))
        for name in ("early", "late")
    }
    assert by_source["early"] <= 2 and sum(by_source.values()) == refused

    edgewise("record", "recorded", folder=up)
    with (up / "recorded/streams.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["source"] for row in rows) == ["early-0", "early-1", "late-0", "late-1"]
    assert {row["application"] for row in rows} == {"early", "late"}
    replayed = ew.replay(up / "recorded", ["least-impedance"])
    found = {row["source"]: row for row in replayed.sources()}
    assert {name: row["sources"] for name, row in found.items()} == {"early": 2, "late": 2}
    assert found["early"]["refused"] < 0.05 and 0.35 < found["late"]["refused"] < 0.65
    simulated = {row["source"]: row for row in ew.simulate(two_workers_and_four_cameras()).sources()}
    assert simulated["early"]["refused"] < 0.05 and 0.4 < simulated["late"]["refused"] < 0.65
    assert json.loads((up / "recorded/brought.json").read_text())["figures"]["streams"]["refused"] == refused
