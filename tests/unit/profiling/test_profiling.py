"""Graphs, operator costs, the delay fit, queues and catalog entries."""

import math
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from waiting import wait_until

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

from edgewise import config  # noqa: E402
from edgewise.cli.profile import origin  # noqa: E402
from edgewise.errors import ProfileError, ScenarioError  # noqa: E402
from edgewise.model.topology import Profile  # noqa: E402
from edgewise.profiling import (  # noqa: E402
    entries,
    graphs,
    law,
    network as inputs,
    operators,
    quiet,
)
from edgewise.profiling.law import MeasuredPoint, fit_profile  # noqa: E402
from edgewise.profiling.measure import LoadTest, Measurement  # noqa: E402


@pytest.fixture(scope="module", params=list(graphs.BUILDERS))
def network(request):
    """(name, graph, costs at the published size); built once."""
    model = graphs.BUILDERS[request.param](np.random.default_rng(0))
    side = graphs.PUBLISHED[request.param].side
    return request.param, model, operators.costs(model, {"picture": (1, 3, side, side)})


def test_graphs_have_the_published_size(network):
    name, _, costs = network
    published = graphs.PUBLISHED[name]
    assert costs.parameters == pytest.approx(published.parameters, rel=0.1)
    assert costs.macs / 1e9 == pytest.approx(published.gmacs, rel=0.1)
    assert costs.unknown == ()
    assert 2 * costs.macs < costs.flops < 2.1 * costs.macs


def test_costs_grow_with_batch_and_area(network):
    name, model, costs = network
    side = graphs.PUBLISHED[name].side // 32 * 32
    small = operators.costs(model, {"picture": (1, 3, side, side)}).macs
    assert operators.costs(model, {"picture": (3, 3, side, side)}).macs == pytest.approx(3 * small)
    twice = operators.costs(model, {"picture": (1, 3, 2 * side, 2 * side)}).macs
    assert twice == pytest.approx(4 * small, rel=0.05)
    assert costs.tensor_bytes["picture"] == 3 * graphs.PUBLISHED[name].side ** 2 * 4


def test_seed_decides_the_weights():
    builder = graphs.BUILDERS["tiny-yolov2-416"]
    first, again, other = (builder(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.graph.initializer[0] == again.graph.initializer[0]
    assert first.graph.initializer[0] != other.graph.initializer[0]


def graph_of(nodes, given, outputs, weights=()):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in given.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in weights]
    return helper.make_model(
        helper.make_graph(nodes, "g", values, results, tensors),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )


@pytest.mark.parametrize(
    ("kind", "given", "weights", "attributes", "macs", "flops"),
    [
        ("Conv", {"x": (2, 4, 8, 8)}, [("w", (6, 2, 3, 3)), ("b", (6,))], {"group": 2}, 2 * 6 * 36 * 18,
         2 * 2 * 6 * 36 * 18 + 2 * 6 * 36),
        ("ConvTranspose", {"x": (1, 4, 5, 5)}, [("w", (4, 3, 2, 2))], {"strides": [2, 2]}, 1200, 2400),
        ("Gemm", {"x": (5, 7)}, [("w", (3, 7)), ("b", (3,))], {"transB": 1}, 105, 225),
        ("MatMul", {"x": (2, 3, 4, 5), "w": (5, 6)}, [], {}, 2 * 3 * 4 * 6 * 5, 2 * 2 * 3 * 4 * 6 * 5),
        ("MaxPool", {"x": (1, 3, 6, 6)}, [], {"kernel_shape": [2, 3], "strides": [2, 3]}, 0, 3 * 3 * 2 * 6),
        ("GlobalAveragePool", {"x": (1, 3, 6, 6)}, [], {}, 0, 108),
        ("Relu", {"x": (2, 9)}, [], {}, 0, 18),
        ("Softmax", {"x": (2, 9)}, [], {}, 0, 90),
        ("Transpose", {"x": (2, 9)}, [], {}, 0, 0),
        ("LSTM", {"x": (5, 2, 3)}, [("w", (1, 16, 3)), ("r", (1, 16, 4))], {"hidden_size": 4}, 1120, 2240),
    ],
)  # fmt: skip
def test_operators_are_counted_by_hand(kind, given, weights, attributes, macs, flops):
    node = helper.make_node(kind, [*given, *(name for name, _ in weights)], ["y"], **attributes)
    costs = operators.costs(graph_of([node], given, ["y"], weights))
    (operator,) = costs.operators
    assert (operator.macs, operator.flops, operator.known) == (macs, flops, True)
    assert operator.input_bytes == sum(4 * math.prod(shape) for shape in given.values())
    assert operator.output_bytes == 4 * math.prod(costs.shapes["y"])
    assert operator.parameter_bytes == sum(4 * math.prod(shape) for _, shape in weights)


def test_shape_that_is_computed_and_operator_that_is_not_known():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Reshape", ["flat", "s"], ["y"]),
        helper.make_node("NonZero", ["y"], ["where"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    costs = operators.costs(graph_of(nodes, {"x": (3, 4), "flat": (12,)}, ["z", "where"]))
    assert costs.shapes["y"] == (3, 4)
    assert set(costs.unknown) <= {"where"}
    assert costs.operators[-1].flops == 12


def test_free_axes_must_be_given():
    model = graph_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 4]}, ["y"])
    with pytest.raises(ProfileError, match="'x' has free axes"):
        operators.costs(model)
    with pytest.raises(ProfileError, match="does not fit"):
        operators.costs(model, {"x": (1, 5)})
    with pytest.raises(ProfileError, match="no input is called 'z'"):
        operators.costs(model, {"x": (1, 4), "z": (1,)})


def points(fixed, per_byte, slope, sizes, batches, noise=0.0):
    rng = np.random.default_rng(0)
    law = Profile(fixed, per_byte, slope)
    for size in sizes:
        for batch in batches:
            delay = law.delay_s(size, batch) * (1 + noise * rng.standard_normal())
            yield MeasuredPoint(size, batch, 9, delay, 0.96 * delay, 1.06 * delay, 1.1 * delay)


@pytest.mark.parametrize(
    ("fixed", "per_byte", "slope"), [(0.01, 2e-8, 0.4), (5e-5, 1e-9, 0.0), (2.0, 0.0, 1.0), (1e-3, 5e-7, 0.9)]
)
def test_fit_finds_the_law_again(fixed, per_byte, slope):
    exact = fit_profile(list(points(fixed, per_byte, slope, (1e5, 1e6, 4e6), (1, 2, 8))))
    law = exact.profile
    assert law.fixed_s == pytest.approx(fixed, rel=1e-4)
    assert law.per_byte_s == pytest.approx(per_byte, rel=1e-4, abs=1e-13)
    assert law.batch_slope == pytest.approx(slope, rel=1e-4, abs=1e-6)
    assert law.deviation == pytest.approx(0.05)
    assert exact.holds and exact.max_error < 1e-4
    noisy = fit_profile(list(points(fixed, per_byte, slope, (1e5, 1e6, 4e6), (1, 2, 8), noise=0.03)))
    assert noisy.profile.delay_s(4e6, 8) == pytest.approx(law.delay_s(4e6, 8), rel=0.1)


def test_fit_of_few_points_promises_nothing():
    law = fit_profile(list(points(0.02, 0.0, 0.3, (1e6,), (1,)))).profile
    assert (law.per_byte_s, law.batch_slope) == (0.0, 1.0)
    assert law.fixed_s == pytest.approx(0.02)


def test_fit_never_goes_negative_and_says_when_the_law_fails():
    falling = [
        MeasuredPoint(size, 1, 9, delay, delay, delay, delay) for size, delay in ((1e5, 0.03), (1e6, 0.01))
    ]
    fit = fit_profile(falling)
    assert fit.profile.fixed_s > 0 and fit.profile.per_byte_s == pytest.approx(0.0, abs=1e-15)
    assert not fit.holds
    with pytest.raises(ValueError, match="points"):
        fit_profile([])


def test_queue_by_hand():
    arrivals = np.array([0.0, 0.1, 0.2, 5.0])
    clock = law.ProfileClock(Profile(1.0, batch_slope=0.5), 1.0)
    np.testing.assert_allclose(law.sojourns(arrivals, 2, clock), [1.0, 2.4, 2.3, 1.0])
    one = law.sojourns(arrivals, 1, law.ProfileClock(Profile(1.0), 1.0))
    np.testing.assert_allclose(one, [1.0, 1.9, 2.8, 1.0])


def test_hopeless_rates_stop_early():
    arrivals = law.poisson_arrivals(10.0, 100.0, seed=0)
    stayed = law.sojourns(arrivals, 1, law.ProfileClock(Profile(1.0), 1.0), hopeless_s=5.0)
    assert np.isinf(stayed[-1]) and np.isfinite(stayed[0])


def test_mean_sojourn_is_that_of_m_d_1():
    """Pollaczek and Khinchine: D + rho D / (2 (1 - rho))."""
    arrivals = law.poisson_arrivals(0.6, 100_000.0, seed=1)
    stayed = law.sojourns(arrivals, 1, law.ProfileClock(Profile(1.0), 1.0))
    assert arrivals.size == pytest.approx(60_000, rel=0.02)
    assert stayed.mean() == pytest.approx(1 + 0.6 / (2 * 0.4), rel=0.03)


def test_predicted_rate_lies_below_saturation_and_grows_with_batching():
    single = law.predicted_rate_qps(Profile(0.01), 1.0, 1, queries=5000)
    batched = law.predicted_rate_qps(Profile(0.01, batch_slope=0.2), 1.0, 8, queries=5000)
    assert 0.5 * 100 < single < 0.9 * 100
    assert 2 * single < batched < law.saturation_qps(Profile(0.01, batch_slope=0.2), 1.0, 8)


def test_capacity_is_lowered_by_what_the_trial_fell_short():
    assert LoadTest(10.0, 20.0, 16.0, 1.0, 9).capacity_qps == 8.0
    assert LoadTest(30.0, 20.0, 16.0, 1.0, 9).capacity_qps == 16.0
    assert LoadTest(0.0, 20.0, 16.0, 1.0, 0).capacity_qps == 16.0  # too short to say anything


def test_axes_of_a_picture():
    found = inputs.resolve([inputs.Input("x", "tensor(float)", ("n", 3, "h", "w"))], [64, 32])
    assert found.batch == "n" and found.sides == (64, 32)
    assert found.shapes(4, 64) == {"x": (4, 3, 64, 64)}
    assert found.payload_bytes(64) == 3 * 64 * 64 * 4
    guessed = inputs.resolve([inputs.Input("x", "tensor(uint8)", (None, "h", "w", 3))])
    assert guessed.shapes(2, guessed.sides[0]) == {"x": (2, 224, 224, 3)}
    assert any("224" in note for note in guessed.notes)


def test_axes_of_tokens_need_a_flag():
    tokens = [inputs.Input(name, "tensor(int64)", ("batch", "sequence")) for name in ("ids", "mask")]
    with pytest.raises(ProfileError, match=r"'ids' has shape \[batch, sequence\].*--axis sequence=N"):
        inputs.resolve(tokens)
    found = inputs.resolve(tokens, axes={"sequence": 16})
    assert found.batched == {"ids", "mask"}
    arrays = found.arrays(3, None, np.random.default_rng(0))
    assert {a.shape for a in arrays.values()} == {(3, 16)} and arrays["ids"].max() <= 1


def test_axes_without_names_and_fixed_batches():
    found = inputs.resolve(
        [inputs.Input("a", "tensor(float)", (None, 2)), inputs.Input("b", "tensor(string)", (None, 1))]
    )
    assert found.shapes(5, None) == {"a": (5, 2), "b": (5, 1)}
    assert found.batched == {"a", "b"}
    assert found.payload_bytes(None) == 8 + 5
    fixed = inputs.resolve([inputs.Input("a", "tensor(float)", (1, 2))])
    assert fixed.batch is None and "fixed" in fixed.notes[0]
    with pytest.raises(ProfileError, match=r"--sizes.*a \[1, 2\]"):
        inputs.resolve(fixed.inputs, [4])
    with pytest.raises(ProfileError, match="--axis q"):
        inputs.resolve(fixed.inputs, axes={"q": 4})
    with pytest.raises(ProfileError, match="cannot be made up"):
        inputs.resolve([inputs.Input("a", "seq(tensor(float))", ())])


def measurement(fixed=0.0123456):
    fit = fit_profile([MeasuredPoint(100.0, 1, 9, fixed, fixed, fixed, fixed)], "measured on this, today")
    load = LoadTest(measured_qps=50.0, predicted_qps=50.0, long_run_qps=40.0, bound_s=0.06, queries=100)
    return Measurement((), fit, load, 2, 100, 1, 12.4e6, ())


CATALOG = """\
# mine
models:  # all of them
  - {name: other, task: t, accuracy: 1}   # stays
variants:
  - name: other-cpu
    model: other
    profile: {fixed_s: 1ms, source: measured on that}
    largest_bytes: 1kB  # stays too
# the end
"""


def test_catalog_file_keeps_what_it_has(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(CATALOG)
    model = entries.model_entry("mine", "t", 3.0)
    assert entries.write(file, model, entries.variant_entry("mine-cpu", "mine", measurement(), None))
    text = file.read_text()
    assert all(line in text for line in CATALOG.splitlines())
    first = config.load_catalog(file)
    assert [m.name for m in first.models] == ["other", "mine"]
    assert first.variant("mine-cpu").profile.fixed_s == pytest.approx(0.0123)
    assert first.variant("mine-cpu").capacity_qps == 40.0
    assert entries.write(file, model, entries.variant_entry("mine-cpu", "mine", measurement(0.02), None))
    second = config.load_catalog(file)
    assert second.variant("mine-cpu").profile.fixed_s == 0.02
    assert second.variant("other-cpu") == first.variant("other-cpu") and len(second.variants) == 2
    assert all(line in file.read_text() for line in CATALOG.splitlines())


def test_catalog_in_another_style_is_written_anew(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("{models: [{name: o, task: t, accuracy: 1}], variants: [{name: v, model: o, "
                    "profile: {fixed_s: 1}, largest_bytes: 1}]}\n")  # fmt: skip
    entry = entries.variant_entry("mine-cpu", "mine", measurement(), None)
    assert not entries.write(file, entries.model_entry("mine", "t", 3.0), entry)
    assert [v.name for v in config.load_catalog(file).variants] == ["v", "mine-cpu"]


def test_wrong_catalog_is_not_touched(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("models: 3\n")
    with pytest.raises(ScenarioError, match="models"):
        entries.write(
            file, entries.model_entry("m", "t", 1.0), entries.variant_entry("v", "m", measurement(), None)
        )
    assert file.read_text() == "models: 3\n"
    with pytest.raises(ScenarioError, match="detection"):
        config.load_catalog("detectoin")


def test_shipped_catalog_says_where_its_figures_are_from():
    catalog = config.load_catalog("detection")
    assert {origin(v.profile.source) for v in catalog.variants} == {"measured", "scaled"}
    for variant in catalog.variants:
        assert origin(variant.profile.source) != "measured" or variant.resources.cpu_cores <= 2
        most = law.saturation_qps(variant.profile, variant.largest_bytes, variant.max_batch)
        assert 0.4 * most < variant.capacity_qps < most
    for name, published in graphs.PUBLISHED.items():
        assert catalog.model(name.rpartition("-")[0]).accuracy == published.ap50
        assert 3 * 4 * published.side**2 in {int(v.largest_bytes) for v in catalog.variants}
    assert max(m.accuracy for m in catalog.models) > 50  # an application asks for 50


@pytest.mark.parametrize("model", ["mobilenet-ssd", "tiny-yolov2", "yolov3"])
def test_more_cores_follow_amdahl(model):
    catalog = config.load_catalog("detection")
    delays = {
        int(v.resources.cpu_cores): v.profile.fixed_s
        for v in catalog.variants
        if v.name.startswith(f"{model}-cpu")
    }
    parallel = min(2 * (1 - delays[2] / delays[1]), 1.0)
    for cores in set(delays) - {1, 2}:
        assert delays[cores] == pytest.approx(delays[1] * (1 - parallel + parallel / cores), rel=0.05)


def test_other_processes_are_noticed():
    stop = [sys.executable, "-c", "import time\nend = time.time() + 30\nwhile time.time() < end: pass"]
    if not quiet.STAT.exists():
        pytest.skip("only Linux says what other processes use")
    watch = quiet.Watch()
    with subprocess.Popen(stop) as busy:  # not waited for yet, so it counts as another's
        wait_until(lambda: watch.cores() > 0.1, limit_s=20.0)
        busy.kill()


@pytest.mark.parametrize(
    ("cores", "stolen", "waited", "spread", "slope", "said"),
    [
        (0.05, 0.01, 0.02, 0.1, 1.4, []),
        (1.34, 0.0, 0.0, 0.1, 0.5, ["other processes used 1.3 cores"]),
        (0.0, 0.12, 0.0, 0.1, 0.5, ["its host took 12% of its cores' time"]),
        (0.0, 0.0, 0.3, 0.1, 0.5, ["the measurement waited for a core 30% of the time"]),
        (0.0, 0.0, 0.0, 0.4, 0.5, ["delays of a batch of 4 differ by ±40% between runs"]),
        (1.0, 0.0, 0.0, 0.1, 1.2, ["other processes used 1.0 cores",
                                   "a batch of 4 seems to take no less time than 4 queries one by one"]),
    ],
)  # fmt: skip
def test_what_disturbs_a_measurement_is_said(cores, stolen, waited, spread, slope, said):
    watch = SimpleNamespace(cores=lambda: cores, stolen=lambda: stolen, waited=lambda: waited)
    ends = [(1.0 - 0.01, 1.0 + 0.01), (1.0 - spread, 1.0 + spread)]
    points = [MeasuredPoint(1.0, n, 9, 1.0, *end, 2.0) for n, end in zip((1, 4), ends, strict=True)]
    assert list(quiet.disturbances(watch, points, slope)) == said


def test_a_thread_that_waits_for_its_core_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(quiet, "WAITED", tmp_path / "schedstat")
    quiet.WAITED.write_text("100 0 5\n")
    watch = quiet.Watch()
    quiet.WAITED.write_text("100 3600000000000 9\n")
    assert watch.waited() > 1.0  # an hour of waiting
    quiet.WAITED.unlink()
    assert quiet.Watch().waited() == 0.0


def test_a_loaded_machine_is_said_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (3.24, 0.0, 0.0))
    assert quiet.expected(2) == "3.2 processes want its 2 cores" and quiet.expected(8) == ""
