"""Every command with what users get wrong: one message before any work, and nothing is left behind."""

import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from edgewise import api, policies
from edgewise.cli import app
from edgewise.errors import EdgewiseError, PolicyError
from edgewise.policies.cards import SHIPPED

MISTAKES = [
    ("simulate nope", "no such file"),
    ("simulate tiny --policy nope", "no dispatch policy 'nope'. Have"),
    ("simulate tiny --policy aset", "no dispatch policy 'aset'; it is called 'chooser' now. Have: bandit, "),
    ("simulate tiny --policy aset-any", "no dispatch policy 'aset-any'; it is called 'chooser-any' now."),
    ("simulate tiny --policy aset-nope", "no dispatch policy 'aset-nope'. Have"),
    (
        "simulate tiny --policy fifo",
        "no dispatch policy 'fifo'; it decides defer: write defer=fifo. Have: bandit, ",
    ),
    (
        "simulate campus-small --policy greedy",
        "no dispatch policy 'greedy'; it decides requests: write requests=greedy. Have: ",
    ),
    ("simulate tiny --set duration_s=1e30", "duration_s: '1e30' is too large; use at most 1e+09"),
    ("simulate tiny --set duration_s=1e9", "windows in duration_s: about 2e+08; 10,000,000 can be"),
    (
        "simulate tiny --set streams.applications.quick.deadline_s=1e30",
        "streams.applications[0].deadline_s: '1e30' is too large; use at most 1e+09",
    ),
    (
        "simulate kais-demo --set services.requests.service_s=[1,1e30]",
        "services.requests.service_s: [1, '1e30'] is too large; use at most 1e+09",
    ),
    (
        "simulate kais-demo --set services.requests.slack=1e30",
        "slack: '1e30' is too large; use at most 1e+06",
    ),
    ("simulate tiny --set streams.applications.quick.size_bytes=1e30", "too large; use at most 1e+18"),
    ("simulate campus-small --set links.2.over=wann", "unknown cable 'wann'; did you mean 'wan'?"),
    ("simulate tiny --set telemetry.period_s=1e-9", "periods in duration_s: about 2e+10; 100,000,000 can be"),
    (
        "simulate tiny --set streams.arrivals.clients_per_min=1e30",
        "streams.arrivals.clients_per_min[0].rate: '1e30' is too large; use at most 1e+09",
    ),
    (
        "simulate tiny --set streams.applications.quick.rate_qps=1e30",
        "streams.applications[0].rate_qps: '1e30' is too large; use at most 1e+09",
    ),
    (
        "simulate tiny --set sites.0.uplink_bps=1e30",
        "sites[0].uplink_bps: '1e30' is too large; use at most 1e+18",
    ),
    (
        "simulate campus-small --set clusters.hall.nodes.hall.resources.cpu_cores=1e30",
        "resources.cpu_cores: '1e30' is too large; use at most 1e+09",
    ),
    (
        "simulate campus-small --set clusters.hall.nodes.hall.speed_ops=1e30",
        "speed_ops: '1e30' is too large; use at most 1e+24",
    ),
    (
        "simulate campus-small --set clusters.hall.nodes.hall.cost=1e30",
        "cost: '1e30' is too large; use at most 1e+15",
    ),
    ("benchmark --policy requests=nope", "nope"),
    ("simulate tiny --set streams.arrivals.clients_per_min=1e9", "clients in duration_s: about 3.33e+08"),
    (
        "simulate tiny --set streams.arrivals.clients_per_min=1e5 --set streams.applications.quick.rate_qps=1e8",  # noqa: E501
        "queries of all clients: about",
    ),
    (
        "simulate kais-demo --set services.requests.rate_qps=1e8",
        "services.requests: requests in duration_s:",
    ),
    ("simulate kais-demo --set services.slot_s=1e-9", "slots in duration_s: about"),
    ("simulate deferrable --set jobs.slot_s=1e-6", "slots in duration_s: about"),
    ("simulate deferrable --set jobs.drawn.per_slot=1e9", "jobs in duration_s: about 1.28e+11; 10,000,000"),
    ("simulate split-inception --set graphs.0.rate_qps=1e9", "queries in duration_s: about 6e+10"),
    ("simulate campus-small --set clusters.hall.nodes.hall.count=9999999", "too large; use at most 1000000"),
    (
        "simulate campus-small --set timeline.0.node=x",
        "unknown node 'x'; use one of: hall-0, hall-1, hall-2, ",
    ),
    (
        "simulate campus-small --set services.offered=[{}]",
        "services.offered[0].name: is missing; add it (Unique among the services; ",
    ),
    ("simulate kais-live --set services.offered.0.initial=9999999", "too large; use at most 1000000"),
    ("init --deadline soon", "deadline_s"),
    ("init --read-text --boxes 2", "--boxes: is of a site with cameras; leave it out with --read-text"),
    ("check nope", "no such file"),
    ("check tiny --policy nope=x", "unknown decision 'nope'"),
    ("policies nope", "unknown decision 'nope'"),
    ("simulate tiny --seeds 1000000", "are for testing"),
    ("simulate tiny --seeds 3:1", "A:B"),
    ("simulate tiny --set nope=1", "nope"),
    ("simulate tiny --out taken", "taken"),
    ("compare tiny --policies closest,closest", "'closest' is given twice"),
    ("compare campus-small --policies defer=fifo,split=nona", "hold others with --policy split=nona"),
    ("compare tiny --policies closest,least-impedance --rival nope", "rival: 'nope'"),
    ("compare tiny --out taken", "taken"),
    ("report nope", "nope"),
    ("load --site nope", "--site: is of the requests of one service; name it, as `edgewise load SERVICE`"),
    ("load --seconds 20", "--seconds: is of the requests of one service"),
    ("record here --as a=b", "--as: is of another system's traffic; say where that is, --from FILE"),
    ("record here --from taken --state taken", "--state: is of the live system's own traffic; leave it out"),
    ("replay taken --state taken", "--state: is of a live system; add --live"),
    ("replay taken --live --out here", "--out: is of a simulation; leave it out with --live"),
    ("sweep tiny --vary nope=1..2", "unknown key 'nope'"),
    ("sweep tiny --vary streams.arrivals.clients_per_min=20:x", "=20:x: is no range; write A..B (both ends)"),
    (
        "sweep tiny --vary streams.arrivals.clients_per_min=20..40 --on nope://x",
        "write ray://HOST:10001 or dask",
    ),
    ("sweep tiny --vary streams.arrivals.clients_per_min=20..40 --out taken", "--out taken"),
    ("size tiny --vary streams.arrivals.clients_per_min=1..3", "--target: none given"),
    (
        "size tiny --vary duration_s=1..3 --target streams.ok=lots",
        "--target streams.ok=lots: lots is not a number",
    ),
    ("schema nope", "extra argument"),
    ("catalog nope", "no such file"),
    ("profile nope.onnx", "no such file"),
    ("profile tiny-yolov2-416 --out taken/x.yaml", "taken"),
    ("simulate kais-demo --policy requests=nope", "no requests policy 'nope'"),
    (
        "simulate kais-demo --policy orchestrate=missing.json",
        "policy card missing.json: there is no such file",
    ),
    ("simulate kais-demo --out taken", "taken"),
    ("simulate split-inception --policy split=nope", "nope"),
    ("compare deferrable --policies defer=fifo,nope", "nope"),
    ("compare deferrable --policies dispatch=closest,farthest", "has no streams"),
    ("simulate kais-demo --policy dispatch=greedy", "has no streams"),
    (
        "simulate campus-small --policy services.dispatch=greedy",
        "unknown decision 'services.dispatch'; did you mean 'requests'?",
    ),
    (
        "compare campus-small --policies streams.dispatch=closest",
        "'streams.dispatch'; did you mean 'dispatch'?",
    ),
    ("compare tiny --policies ''", "--policies '': names no policy; write [DECISION=]NAME,NAME,…"),
    ("compare deferrable --policies defer=", "--policies defer=: names no policy"),
    ("compare tiny --policies ,", "--policies ,: names no policy"),
    ("compare deferrable --policies defer=fifo,sjf --policy defer=tetris", "defer is both compared and held"),
    ("sweep tiny --vary duration_s=10,20 --policies ''", "--policies '': names no policy"),
    ("replay nope --policies ''", "--policies '': names no policy"),
    ("simulate tiny --policy ''", "--policy '': names no policy; write [DECISION=]NAME"),
    ("simulate deferrable --policy defer=", "--policy defer=: names no policy"),
    ("up tiny --policy ''", "--policy '': names no policy"),
    ("policies request", "unknown decision 'request'; did you mean 'requests'?"),
    ("train chooser --out taken", "--out taken"),
    ("train aset --out taken", "--out taken"),
    ("train aset --state pooled", "--state"),
    ("train defer osdec --out taken", "--out taken"),
    ("train kais --out taken", "--out taken"),
    ("reproduce nope", "no such name"),
    ("reproduce queues --seeds x", "A:B"),
    ("reproduce queues --out taken", "--out taken"),
    ("reproduce queues --json taken/claims.json", "taken"),
    ("reproduce queues --json .", "is a folder"),
    ("dev freeze nope", "no such file"),
    ("up nope", "no such file"),
    ("up tiny --policy nope", "no dispatch policy 'nope'"),
    ("up tiny --models nope", "no such folder"),
    ("up recognition --set pipelines.0.count=0", "use an integer >= 1"),
    ("up split-inception", "has no jobs or pipelines, which edgewise up runs; it has graphs"),
    ("replay nope", "no recording"),
    ("replay nope --policies defer=fifo", "no recording"),
    ("dev kernels --into taken", "taken"),
    ("demo --out taken", "--out taken"),
    ("simulate tiny --policy place=tp", "has no pipelines, which edgewise simulate --policy place runs"),
    ("simulate recognition --policy nope", "no place policy 'nope'"),
    ("simulate recognition --set duration_s=1us", "no pipelines that come before its end"),
    ("worker nope.onnx --port 0", "nope.onnx"),
    ("gateway nope --worker x", "no such file"),
    ("pod", "EDGEWISE_PROCESS and EDGEWISE_MODELS not set"),
    ("dev openapi nope", "nope"),
    ("load camera", "no live system"),
    ("submit --duration soon -- true", "'soon' is no duration;"),
    ("submit --duration 5m --memory lots -- true", "no size"),
    ("submit --duration 5m --latest never -- true", "no time"),
    ("submit --duration 5m -- true", "no live system"),
    ("jobs", "no live system"),
    ("token", "no live system"),
    ("job output 1", "no live system"),
    ("job cancel 1", "no live system"),
    ("policy set defer=fifo", "no live system"),
    ("policy set closest", "no live system"),
    ("policy progress", "no live system"),
    ("shadow show", "no live system"),
    ("drain w", "no live system"),
    ("nodes", "no live system"),
    ("pipelines", "no live system"),
    ("pipelines 1", "no live system"),
    ("fail hall-1", "no live system"),
    ("fail hall-1 hall-2", "no live system"),
    ("repair hall-1", "no live system"),
    ("resume w", "no live system"),
    ("status", "no live system"),
    ("streams", "no live system"),
    ("workers", "no live system"),
    ("down", "no live system"),
    ("record target", "no live system"),
    ("record system", "TARGET system: is the folder of a live system, which stays as it is; name another"),
    ("record system --from taken --scenario tiny", "TARGET system: is the folder of a live system"),
    ("up tiny --state recorded", "recorded: is the folder of a recording, which stays as it is"),
    ("simulate tiny --out recorded", "recorded: is the folder of a recording"),
    ("compare tiny --out recorded", "recorded: is the folder of a recording"),
    ("replay nope --out system", "system: is the folder of a live system"),
    (
        "sweep tiny --vary streams.arrivals.clients_per_min=20..40 --out recorded",
        "is the folder of a recording",
    ),
    ("demo --out recorded", "--out recorded: is the folder of a recording"),
    ("train chooser --out recorded", "--out recorded: is the folder of a recording"),
    ("reproduce queues --out recorded", "--out recorded: is the folder of a recording"),
    ("dev kernels --into system", "--into system: is the folder of a live system"),
]
if find_spec("torch") is None:
    MISTAKES += [
        (line, "pip install 'edgewise[learn]'")
        for line in ("train chooser", "train aset", "train defer osdec", "train kais")
    ]


@pytest.mark.parametrize(("line", "message"), MISTAKES)
def test_a_mistake_is_one_message_before_any_work(tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file")
    Path("system").mkdir()
    Path("system/state.sqlite").touch()
    Path("recorded").mkdir()
    Path("recorded/scenario.yaml").write_text("name: recorded")
    found = CliRunner().invoke(app, shlex.split(line))
    said = str(found.exception) + found.output
    assert isinstance(found.exception, (EdgewiseError, OSError)) or found.exit_code == 2, said
    assert message in said
    left = [path for path in Path().rglob("*") if path.is_file()]
    assert sorted(map(str, left)) == ["recorded/scenario.yaml", "system/state.sqlite", "taken"]
    assert Path("recorded/scenario.yaml").read_text() == "name: recorded"


def test_every_command_has_a_mistake_here():
    def leaves(command, name=""):
        if not hasattr(command, "list_commands"):
            yield name.strip()
            return
        for each in command.list_commands(None):
            yield from leaves(command.get_command(None, each), f"{name} {each}")

    harmless = {"scenarios", "policies", "dev looks", "clean", "shadow set", "policy show"}
    tried = [line for line, _ in MISTAKES]
    missing = [n for n in leaves(get_command(app)) if not any(t.startswith(n) for t in tried)]
    assert set(missing) <= harmless, missing


def test_names_and_rival_are_checked_before_the_first_run():
    runs = []
    for chosen, rival, message in (
        (["closest", "closest"], None, "given twice"),
        (["closest", "least-impedance"], "nope", "rival: 'nope' is not among closest, least-impedance"),
    ):
        with pytest.raises(PolicyError, match=message):
            api.compare("tiny", chosen, range(1), rival=rival, progress=lambda: runs.append(1))
    assert runs == []


def test_the_recipe_for_an_own_network_has_a_name_of_its_own(tmp_path):
    file = tmp_path / "mine.py"
    card = SHIPPED / "chooser-any.json"
    file.write_text(
        "from edgewise.policies.dispatch.chooser import Chooser\n\n\n"
        f'class Mine(Chooser):\n    """My own network."""\n\n    card = "{card}"\n'
    )
    assert policies.load("dispatch", f"{file}:Mine").name == "Mine"
    found = api.compare("tiny", ["chooser", f"{file}:Mine"], range(1)).result
    assert found.policies == ("chooser", "Mine")
