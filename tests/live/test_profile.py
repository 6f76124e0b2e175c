"""`edgewise profile` on real files: what it prints, writes, and how it fails."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from in_process import edgewise

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

from edgewise import config  # noqa: E402
from edgewise.errors import ProfileError  # noqa: E402
from edgewise.profiling import network as memory  # noqa: E402
from edgewise.profiling.entries import variant_entry  # noqa: E402
from edgewise.profiling.measure import measure, source  # noqa: E402
from edgewise.profiling.network import OnnxNetwork  # noqa: E402

pytestmark = pytest.mark.live


def save(file, batch="n", height=8, opset=17, kind="Conv", shape=None, fixed_reshape=False):
    """A small network of one layer; `shape` replaces the shape of the input."""
    rng = np.random.default_rng(0)
    weights = [onnx.numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "w")]
    nodes = [helper.make_node(kind, ["x", "w"], ["c"])]
    if fixed_reshape:  # works for one picture only, though the batch axis is free
        weights.append(onnx.numpy_helper.from_array(np.array([1, 4 * 6 * 6], np.int64), "s"))
        nodes.append(helper.make_node("Reshape", ["c", "s"], ["y"]))
    else:
        nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape or [batch, 3, height, height])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=9,
    )
    onnx.save(model, file)
    return file


def process(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "edgewise", "profile", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_profile_measures_fits_and_writes_a_catalog(tmp_path):
    save(tmp_path / "small net.onnx", height="side")
    done = process(
        "small net.onnx", "--batches", "1,4", "--sizes", "16,64", "--seconds", "2", "--out", "my/c.yaml",
        "--accuracy", "12", "--task", "toy", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "fitted" in done.stdout and "queries/s" in done.stdout
    catalog = config.load_catalog(tmp_path / "my/c.yaml")
    (model,), (variant,) = catalog.models, catalog.variants
    assert (model.name, model.task, model.accuracy) == ("small-net", "toy", 12.0)
    assert (variant.name, variant.max_batch) == ("small-net-cpu1", 4)
    seen_from_its_catalog = (tmp_path / "small net.onnx").resolve()
    assert Path(variant.file).resolve() == seen_from_its_catalog
    assert variant.largest_bytes == 3 * 64 * 64 * 4
    assert (
        variant.profile.source.startswith("measured on ")
        and "1 thread, onnxruntime" in variant.profile.source
    )
    assert variant.profile.fixed_s > 0 and variant.capacity_qps > 0
    assert variant.resources.cpu_cores == 1 and variant.resources.memory_bytes >= 1e6


def test_a_busy_machine_is_said_loudly_and_written_down(tmp_path):
    spin = [sys.executable, "-c", "import time\nend = time.time() + 60\nwhile time.time() < end: pass"]
    busy = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        file = save(tmp_path / "m.onnx")
        done = process(file, "--batches", "2", "--seconds", "1", "--out", "c.yaml", cwd=tmp_path)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert done.returncode == 0 and "busy machine: other processes used " in done.stderr, done.stderr
    assert "repeat on an idle machine" in done.stderr.splitlines()[-1]
    (variant,) = config.load_catalog(tmp_path / "c.yaml").variants
    assert ", on a busy machine: other processes used " in variant.profile.source
    assert "measured, busy" in edgewise("catalog", "c.yaml", cwd=tmp_path).stdout


def test_profile_as_json(tmp_path):
    done = process(save(tmp_path / "m.onnx"), "--batches", "2", "--seconds", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [(p["size_bytes"], p["batch"]) for p in answer["points"]] == [(768, 1), (768, 2)]
    assert all(p["low_s"] <= p["median_s"] <= p["high_s"] for p in answer["points"])
    assert answer["variant"]["profile"]["per_byte_s"] == 0
    assert any("per_byte_s is 0" in note for note in answer["notes"])


def test_what_was_measured_is_the_provider_that_is_there(tmp_path):
    file = save(tmp_path / "m.onnx")
    wanted = ("RknpuExecutionProvider", "CPUExecutionProvider")
    done = measure(file, batches=(1,), seconds=0.4, providers=wanted)
    assert done.providers == ("CPUExecutionProvider",) and "with" not in done.fit.profile.source
    assert "RknpuExecutionProvider is not there; CPUExecutionProvider was measured" in done.notes
    assert "providers" not in variant_entry("v", "m", done, file)
    with pytest.raises(ProfileError, match="none of RknpuExecutionProvider is there"):
        measure(file, batches=(1,), seconds=0.4, providers=wanted[:1])
    there = replace(done, providers=("CUDAExecutionProvider", "CPUExecutionProvider"))
    assert variant_entry("v", "m", there, file)["providers"] == list(there.providers)
    assert " with CUDAExecutionProvider, " in source(1, there.providers)


def test_fixed_batch_is_measured_alone_and_said(tmp_path):
    done = measure(save(tmp_path / "m.onnx", batch=1), batches=(1, 2, 4), seconds=0.4)
    assert [(p.batch, p.runs > 0) for p in done.points] == [(1, True)]
    assert done.max_batch == 1 and done.fit.profile.batch_slope == 1.0
    assert any("fixed by the model" in note for note in done.notes)


def test_batch_that_fails_is_left_out_and_said(tmp_path):
    done = measure(save(tmp_path / "m.onnx", fixed_reshape=True), batches=(1, 2, 4), seconds=0.4)
    assert [p.batch for p in done.points] == [1]
    assert any("batches above 1 do not run" in note for note in done.notes)


def test_memory_counts_the_weights(tmp_path):
    size = 4_000_000
    weights = onnx.numpy_helper.from_array(np.ones(size, np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    file = tmp_path / "big.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)
    peak = memory.peak_bytes(file, 1, 1, None, [], {})
    assert 2 * 4 * size < peak < 20 * 4 * size  # the weights and the result at least


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.onnx"], "no such file"),
        (["text.onnx"], "no ONNX model"),
        (["m.onnx", "--batches", "0"], "--batches '0'"),
        (["m.onnx", "--axis", "h"], "--axis 'h'"),
        (["m.onnx", "--sizes", "4"], "[n, 3, 8, 8]"),
        (["m.onnx", "--name", "a b"], "--name 'a b'"),
        (["free.onnx"], "--axis length=N"),
        (["m.onnx", "--out", "text.onnx"], "text.onnx: "),
    ],
)
def test_wrong_input_is_one_message_and_exit_2(tmp_path, arguments, message):
    save(tmp_path / "m.onnx")
    save(tmp_path / "free.onnx", kind="Add", shape=["n", "length", 3])
    (tmp_path / "text.onnx").write_text("this is no network\n")
    done = edgewise("profile", *arguments, "--seconds", "1", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr and "Traceback" not in done.stderr


def test_missing_weights_unknown_operator_and_new_opset_are_named(tmp_path):
    model = onnx.load(save(tmp_path / "m.onnx"))
    onnx.save(model, tmp_path / "e.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ProfileError, match="weights stored in another file"):
        OnnxNetwork(tmp_path / "e.onnx")
    with pytest.raises(ProfileError, match=r"onnxruntime .*Convolve"):
        OnnxNetwork(save(tmp_path / "o.onnx", kind="Convolve"))
    with pytest.raises(ProfileError, match="too new for onnxruntime"):
        OnnxNetwork(save(tmp_path / "v.onnx", opset=99))


def test_extra_not_installed_says_how(tmp_path):
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "sys.argv = ['edgewise', 'profile', 'x.onnx']\n"
        "from edgewise.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 2 and "pip install 'edgewise[live]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_catalog_command_lists_origin(tmp_path):
    done = edgewise("catalog", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for variant in config.load_catalog("detection").variants:
        assert variant.name in done.stdout
        assert " ".join(variant.profile.source.split()) in done.stdout
    assert "measured" in done.stdout and "scaled" in done.stdout
