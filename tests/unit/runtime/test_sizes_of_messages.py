"""Live messages are as large as simulated ones, and take as long on ways that are emulated."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")  # of the extra `live`
import onnxruntime

from edgewise.config import load_scenario
from edgewise.core.world import World
from edgewise.model.services import services_of
from edgewise.profiling.dags import light_file
from edgewise.runtime.clients.traffic import FREE_SIZE, Zeros
from edgewise.runtime.controller.graphs import FOLDER, cut_graphs
from edgewise.runtime.controller.models import STAND_IN, answering, write_stand_in
from edgewise.runtime.gateway.forwarding import Ways
from edgewise.runtime.protocol.messages import decode_request
from edgewise.runtime.worker.pieces import SUFFIX, read_split

KB = 1000.0
ANSWER_BYTES, SERVICE = 287.3 * KB, "tiny-yolov2-cpu1"


def tensor(*shape, datatype="FP32", name="x"):
    return {"name": name, "datatype": datatype, "shape": list(shape)}


def held(query):
    headers, body = query
    return {name: array.shape for name, array in decode_request(headers, body).inputs.items()}


def test_queries_are_as_large_as_is_said_where_models_take_any_size():
    assert held(Zeros([tensor(-1, -1)]).sized(30 * KB)) == {"x": (1, 7500)}
    assert held(Zeros([tensor(-1, 3, -1, datatype="UINT8")]).sized(30 * KB)) == {"x": (1, 3, 10_000)}
    assert held(Zeros([tensor(-1, -1)]).sized(0.0)) == {"x": (1, FREE_SIZE)}
    assert held(Zeros([tensor(-1, 3, 8, 8)]).sized(30 * KB)) == {"x": (1, 3, 8, 8)}
    assert held(Zeros([tensor(-1, -1, -1)]).sized(30 * KB)) == {"x": (1, FREE_SIZE, FREE_SIZE)}
    both = [tensor(-1, -1), tensor(-1, 2, name="y")]
    assert held(Zeros(both).sized(30 * KB)) == {"x": (1, FREE_SIZE), "y": (1, 2)}


def ran(file, **inputs):
    return onnxruntime.InferenceSession(str(file)).run(None, inputs)


def test_a_stand_in_returns_its_input_or_so_many_bytes_for_each_of_a_batch(tmp_path):
    write_stand_in(echo := tmp_path / "echo.onnx")
    write_stand_in(sized := tmp_path / "sized.onnx", ANSWER_BYTES)
    asked = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (ran(echo, x=asked)[0] == asked).all()
    assert ran(sized, x=asked)[0].nbytes == 2 * round(ANSWER_BYTES)


def test_stand_ins_of_services_whose_answers_have_a_size_answer_as_much(tmp_path):
    services = services_of(load_scenario("campus-small"))
    write_stand_in(tmp_path / STAND_IN)
    kinds = {SERVICE: {"file": str(tmp_path / STAND_IN)}, "other": {"file": "other.onnx"}}
    found = answering(kinds, services, tmp_path)
    assert set(found) == {SERVICE} and found[SERVICE]["file"].endswith(STAND_IN)
    (answer,) = ran(found[SERVICE]["file"], x=np.zeros((1, 5), np.float32))
    assert answer.nbytes == round(ANSWER_BYTES)
    mine = {SERVICE: {"file": str(tmp_path / "mine.onnx")}}
    assert answering(mine, services, tmp_path) == mine


@pytest.mark.parametrize("carried", [False, True])
def test_answers_take_the_time_of_their_size_on_the_way_back(carried):
    scenario = load_scenario("campus-small")
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    ways, site, cluster = Ways(world, seed=3, carried=carried), 0, 0
    empty = np.array(ways.delays_s(site, cluster, (0.0, 0.0), 7, 1))
    sizes = 50 * KB, ANSWER_BYTES
    there_s, back_s = np.array(ways.delays_s(site, cluster, sizes, 7, 1)) - empty
    slower, link = min(world.uplink_bps[site], world.bandwidth_bps[site, cluster]), 1e9
    assert world.bandwidth_bps[site, cluster] == link > slower
    byte_s = 8.0 / slower - (8.0 / link if carried else 0.0)  # what a link takes is real where it carries
    assert (there_s, back_s) == pytest.approx((50 * KB * byte_s, ANSWER_BYTES * byte_s))


def test_networks_without_weights_take_the_time_that_their_operations_take_on_the_nodes(tmp_path):
    settings = cut_graphs(scenario := load_scenario("campus-small"), tmp_path, emulated=True)
    found = read_split(folder := tmp_path / FOLDER / f"inception{SUFFIX}")
    work_ops = sum(task.work_ops for task in found.graph.tasks)
    speed_ops = max(node.speed_ops for node in scenario.topology.nodes)
    assert found.whole_s == pytest.approx(work_ops / speed_ops) and found.whole_s > 0.02
    assert sum(part.emulated_s for part in found.parts) == pytest.approx(found.whole_s)
    assert settings["inception"]["profile"]["fixed_s"] == found.whole_s
    (answer,) = ran(folder / "whole.onnx", data_0=np.ones((1, 3, 224, 224), np.float32))
    assert answer.shape == (1, 1000) and not answer.any()


def test_networks_run_where_nothing_is_emulated_or_they_are_the_users(tmp_path):
    scenario = load_scenario("campus-small")
    assert "profile" not in cut_graphs(scenario, tmp_path / "real", emulated=False)["inception"]
    changed = load_scenario("campus-small", {"graphs.inception.network": str(light_file("inception-v1"))})
    settings = cut_graphs(changed, tmp_path / "mine", emulated=True)
    assert "profile" not in settings["inception"]
    found = read_split(tmp_path / "mine" / FOLDER / f"inception{SUFFIX}")
    assert {part.emulated_s for part in found.parts} == {None}
