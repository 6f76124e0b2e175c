"""What clients of Triton ask for beyond the protocol, with its own client and its own load generator."""

import gzip
import http.client
import json
import os
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from live_system import client_of

from edgewise.runtime.http.messages import MAX_BODY_BYTES
from edgewise.runtime.protocol import grpc_server
from edgewise.runtime.protocol.triton import Statistics, together

pytest.importorskip("grpc")
http_client = pytest.importorskip("tritonclient.http")
grpc_client = pytest.importorskip("tritonclient.grpc")
model_config_pb2 = pytest.importorskip("tritonclient.grpc.model_config_pb2")

pytestmark = pytest.mark.live
NEEDS = {"edgewise-rate-qps": "90", "edgewise-deadline-s": "10"}
WHEELS = ("tritonclient==2.48.0", "nvidia-cuda-runtime-cu12==12.9.79")
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "edgewise-tests" / "perf-analyzer-2.48"
)


def ask(client, model, rows=2, **more):
    library = http_client if isinstance(client, http_client.InferenceServerClient) else grpc_client
    given = library.InferInput("x", [rows, 8], "FP32")
    given.set_data_from_numpy(np.ones((rows, 8), np.float32))
    return client.infer(model, [given], headers=dict(NEEDS), **more).as_numpy("y")


@pytest.mark.parametrize("kind", ["http", "grpc"])
@pytest.mark.parametrize("model", ["dense", "score"])
def test_configuration_statistics_and_index(running, kind, model):
    (_, client), form = client_of(kind, running, model), {} if kind == "http" else {"as_json": True}
    config = client.get_model_config(model, **form)
    config = config if kind == "http" else config["config"]
    assert (config["name"], config["max_batch_size"]) == (model, 8)
    (given,), (found,) = config["input"], config["output"]
    assert (given["name"], given["data_type"], [int(n) for n in given["dims"]]) == ("x", "TYPE_FP32", [8])
    assert (found["name"], [int(n) for n in found["dims"]]) == ("y", [4])
    before = client.get_inference_statistics(model, **form)["model_stats"][0]
    ask(client, model)
    ask(client, model)
    after = client.get_inference_statistics(**form)["model_stats"][0]
    assert after["name"] == model
    assert int(after["inference_count"]) - int(before.get("inference_count", 0)) == 2
    spent = after["inference_stats"]
    assert 0 < int(spent["compute_infer"]["ns"]) < int(spent["success"]["ns"])
    assert sum(int(b["batch_size"]) * int(b["compute_infer"]["count"]) for b in after["batch_stats"]) == int(
        after["inference_count"]
    )
    listed = client.get_model_repository_index(**form)
    entry = (listed if kind == "http" else listed["models"])[0]
    assert (entry["name"], entry["state"]) == (model, "READY")
    client.close()


def test_shapes_are_without_the_batch_axis_and_data_types_have_triton_s_numbers(running):
    _, client = client_of("http", running, "echo")
    config = client.get_model_config("echo", model_version="1")
    assert config["max_batch_size"] == 1 and [t["dims"] for t in config["input"]] == [[]] * len(
        config["input"]
    )
    ours = grpc_server.MESSAGES["ModelInput"].DESCRIPTOR.fields_by_name["data_type"].enum_type.values
    assert [(each.name, each.number) for each in ours] == model_config_pb2.DataType.items()
    client.close()


def raw(port, method, path, headers=None, body=b""):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("model", ["dense", "score"])
@pytest.mark.parametrize(("there", "back"), [("gzip", "deflate"), ("deflate", "gzip"), (None, "gzip")])
def test_compressed_requests_and_answers(running, model, there, back):
    _, client = client_of("http", running, model)
    form = {"request_compression_algorithm": there, "response_compression_algorithm": back}
    np.testing.assert_array_equal(ask(client, model, 500, **form), ask(client, model, 500))
    client.close()
    query = {"inputs": [{"name": "x", "shape": [500, 8], "datatype": "FP32", "data": [0.5] * 4000}]}
    path, sent = f"/v2/models/{model}/infer", json.dumps(query).encode()
    plain = raw(running.http[model], "POST", path, NEEDS, sent)
    small = raw(running.http[model], "POST", path, {**NEEDS, "Accept-Encoding": f"br, {back}"}, sent)
    assert plain[0] == small[0] == 200 and small[1]["content-encoding"] == back
    unpacked = zlib.decompress(small[2], 31 if back == "gzip" else 15)
    assert json.loads(unpacked)["outputs"] == json.loads(plain[2])["outputs"] and len(small[2]) < len(
        unpacked
    )
    refused = raw(running.http[model], "POST", path, {**NEEDS, "Accept-Encoding": f"{back};q=0"}, sent)
    assert "content-encoding" not in refused[1]


@pytest.mark.parametrize("model", ["dense", "score", "controller"])
def test_bombs_and_broken_codings_are_refused(running, model):
    path = "/v1/policies/dispatch" if model == "controller" else f"/v2/models/{model}/infer"
    method, whole = "PUT" if model == "controller" else "POST", gzip.compress(b"{}")
    bomb = gzip.compress(bytes(MAX_BODY_BYTES + 1))
    assert len(bomb) < 100_000
    for status, coding, body in (
        (413, "gzip", bomb), (400, "gzip", whole[:-3]), (400, "gzip", b"{}"), (400, "gzip", whole + whole),
        (400, "deflate", whole), (415, "br", b"{}"), (415, "gzip, gzip", whole),
    ):  # fmt: skip
        found = raw(running.http[model], method, path, {**NEEDS, "Content-Encoding": coding}, body)
        assert found[0] == status, (status, coding, found)
        assert "error" in json.loads(found[2])


def test_statistics_of_several_workers_are_added():
    one, two = Statistics(), Statistics()
    one.ran(0.5, [0.1, 0.3])
    one.answered(True, 0.6)
    two.ran(0.25, [0.0])
    two.answered(False, 0.1)
    found = together("task", [one.report("a"), two.report("b")])
    assert (found["inference_count"], found["execution_count"]) == (3, 2)
    stats = {kind: (each["count"], each["ns"]) for kind, each in found["inference_stats"].items()}
    assert stats["success"] == (1, 600_000_000) and stats["fail"] == (1, 100_000_000)
    assert stats["queue"] == (3, 400_000_000) and stats["compute_infer"] == (3, 1_250_000_000)
    assert [batch["batch_size"] for batch in found["batch_stats"]] == [1, 2]


@pytest.fixture(scope="module")
def perf_analyzer():
    """The program of the wheel 2.48.0, with the two libraries that it wants; kept for later runs."""
    program = CACHE / "tritonclient-2.48.0.data" / "data" / "bin" / "perf_analyzer"
    libraries = [CACHE / "nvidia" / "cuda_runtime" / "lib", *CACHE.glob("usr/lib/*")]
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        get = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary",
            ":all:",
            "-d",
            CACHE,
        ]
        for command in ([*get, *WHEELS], ["apt-get", "download", "libb64-0d"]):
            try:
                subprocess.run(command, cwd=CACHE, check=True, capture_output=True, timeout=120)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"perf_analyzer 2.48.0 cannot be had here: {error}")
        for package in CACHE.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, CACHE], check=True)
        for wheel in sorted(CACHE.glob("*.whl")):
            zipfile.ZipFile(wheel).extractall(CACHE)
        program.chmod(0o755)
        libraries = [CACHE / "nvidia" / "cuda_runtime" / "lib", *CACHE.glob("usr/lib/*")]
    around = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    if "not found" in subprocess.run(["ldd", program], env=around, capture_output=True, text=True).stdout:
        pytest.skip("perf_analyzer 2.48.0 lacks a library here")
    return lambda *arguments: subprocess.run(
        [program, *arguments], env=around, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("kind", ["http", "grpc"])
@pytest.mark.parametrize("model", ["dense", "score"])
def test_perf_analyzer_works_unmodified(running, perf_analyzer, kind, model):
    port = running.http[model] if kind == "http" else running.grpc[model]
    headers = [part for name, value in NEEDS.items() for part in ("-H", f"{name}:{value}")]
    done = perf_analyzer(
        "-m", model, "-i", kind, "-u", f"127.0.0.1:{port}", "-b", "2", *headers, "-s", "999", "-p", "100",
        "-r", "3", "--measurement-mode", "count_windows", "--measurement-request-count", "20",
        "--request-rate-range", "40",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Inferences/Second" in done.stdout and "compute infer" in done.stdout
