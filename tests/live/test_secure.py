"""TLS, gRPC, `--host` and tokens from files, from the command line, used by unmodified clients."""

import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from certificates import signed
from live_system import dense_file
from running_system import small_scenario
from test_up import wait_until

from command_line import edgewise
from edgewise import config
from edgewise.errors import EdgewiseError, ScenarioError
from edgewise.runtime.process.serving import Listen

pytestmark = pytest.mark.live
CLIENTS, WORKERS, OPERATOR = "c" * 20, "w" * 20, "o" * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("secure")
    signed(made)
    dense_file(made)
    for name, token in (("clients", CLIENTS), ("workers", WORKERS), ("operator", OPERATOR)):
        (made / name).write_text(token + "\n")
    (made / "small.yaml").write_text(config.dump_scenario(small_scenario(workers=2, capacity_qps=100)))
    return made


def start(folder, *arguments, **environment):
    command = [sys.executable, "-m", "edgewise", *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | environment,
    )  # fmt: skip


def read_until(process, pattern):
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"{pattern} was not said")


def status(folder, url, token=None):
    """What an ordinary client of the standard library is told."""
    shown = {"authorization": f"Bearer {token}"} if token else {}
    trust = ssl.create_default_context(cafile=folder / "ca.pem")
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=shown), context=trust).status
    except urllib.error.HTTPError as error:
        return error.code


def triton_http(port, folder, model, token):
    import tritonclient.http as triton

    client = triton.InferenceServerClient(
        f"localhost:{port}", ssl=True, ssl_context_factory=lambda: ssl.create_default_context(
            cafile=folder / "ca.pem"
        ),
    )  # fmt: skip
    return asked(triton, client, model, token)


def triton_grpc(port, folder, model, token):
    import grpc
    import tritonclient.grpc as triton

    trusted = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
    client = triton.InferenceServerClient(f"localhost:{port}", ssl=True, creds=trusted)
    return asked(triton, client, model, token)


def asked(triton, client, model, token):
    """What an unmodified client gets for a query that states its needs."""
    tensor = triton.InferInput("x", [1, 8], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 8), np.float32))
    needs = {"edgewise-rate-qps": "5", "edgewise-deadline-s": "20"}
    answer = client.infer(model, [tensor], headers={"authorization": f"Bearer {token}", **needs})
    client.close()
    return answer.as_numpy("y").shape


def command_lines():
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_text()
        except OSError:
            continue  # it has ended


def test_up_with_tls_grpc_and_an_address_of_the_network(folder):
    pytest.importorskip("grpc")
    system = start(
        folder, "up", "small.yaml", "--state", "state", "--port", "0", "--host", "0.0.0.0", "--grpc-port",
        "0", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--server-name", "edge.example",
        "--gateways", "1", EDGEWISE_TOKEN=CLIENTS,
    )  # fmt: skip
    try:
        found = read_until(system, r"gateway-0: https://127.0.0.1:(\d+), gRPC at port (\d+)")
        port, grpc_port = map(int, found.groups())
        state = ("--state", "state")
        wait_until(lambda: edgewise("status", *state, folder=folder, code=None))

        def reached():  # the controller asks the gateway over TLS, and it sees its workers up
            return len(re.findall(r"\brunning\b", edgewise("workers", *state, folder=folder))) == 2

        wait_until(reached)
        url = f"https://localhost:{port}"
        assert [status(folder, f"{url}/v1/streams", token) for token in (None, "x", CLIENTS)] == [
            401,
            401,
            200,
        ]
        assert status(folder, f"{url}/v1/admin/workers", CLIENTS) == 401
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(f"{url}/v2/health/live")
        needs = {"edgewise-rate-qps": "5", "edgewise-deadline-s": "2"}
        assert said_by_curl(folder, port, needs).startswith('{"model_name":"echo-cpu"')
        assert live_over_grpc(folder, grpc_port)
        assert not any(CLIENTS in line for line in command_lines())
        assert CLIENTS.encode() not in b"".join(f.read_bytes() for f in (folder / "state/logs").iterdir())
        edgewise("record", "recorded", *state, folder=folder)
        assert "live" in edgewise("replay", "recorded", "--live", *state, folder=folder)
    finally:
        system.terminate()
        system.wait(30)


def said_by_curl(folder, port, needs):
    body = '{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}'
    url = f"https://edge.example:{port}/v2/models/score/infer"
    (folder / "curl").write_text(f'header = "authorization: Bearer {CLIENTS}"\n')
    command = [
        "curl",
        "-s",
        "--cacert",
        "ca.pem",
        "--resolve",
        f"edge.example:{port}:127.0.0.1",
        "-K",
        "curl",
    ]
    for name, value in needs.items():
        command += ["-H", f"{name}: {value}"]
    return subprocess.run([*command, "-d", body, url], cwd=folder, capture_output=True, text=True).stdout


def live_over_grpc(folder, port):
    import grpc
    import tritonclient.grpc as triton

    trusted = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
    client = triton.InferenceServerClient(f"localhost:{port}", ssl=True, creds=trusted)
    shown = {"authorization": f"Bearer {CLIENTS}"}
    with pytest.raises(triton.InferenceServerException, match="bearer token"):
        client.get_model_metadata("score")
    return client.get_model_metadata("score", headers=shown).name == "score"


def test_a_worker_and_a_gateway_by_hand(folder):
    """Both with TLS, each with a token of its own; then the gateway shows the worker another token."""
    pytest.importorskip("grpc")
    tls = ("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--grpc-port", "0")
    worker = start(folder, "worker", "dense.onnx", "--port", "0", "--token-file", "workers", *tls)
    here = Path(folder / "here.yaml")
    here.write_text(HERE)
    gateways = []
    try:
        url, _ = listening(worker)
        of_model = f"dense-cpu@node={url}/v2/models/dense"
        for shown in ("workers", "clients"):
            gateways.append(start(
                folder, "gateway", "here.yaml", "--worker", of_model, "--workers-token-file", shown,
                "--tls-ca", "ca.pem", "--port", "0", "--token-file", "clients", "--operator-token-file",
                "operator", *tls,
            ))  # fmt: skip
        (good, grpc_port), (bad, _) = map(listening, gateways)
        port = good.rpartition(":")[2]
        assert triton_http(port, folder, "score", CLIENTS) == (1, 4)
        assert triton_grpc(grpc_port, folder, "score", CLIENTS) == (1, 4)
        assert [status(folder, f"{good}/v1/admin/workers", t) for t in (CLIENTS, OPERATOR)] == [401, 200]
        lines = [line for line in command_lines() if "dense" in line]
        assert lines and not any(t in line for line in lines for t in (CLIENTS, WORKERS, OPERATOR))
        wait_until(lambda: "refuses_token" in page(folder, bad, "/metrics", "refuses_token{.*} 1.0"))
        assert re.search(r"worker_up{.*} 0.0", page(folder, bad, "/metrics", ""))
        with pytest.raises(Exception, match="every suitable worker is down; refuses our token: https"):
            triton_http(bad.rpartition(":")[2], folder, "score", CLIENTS)
        read_until(gateways[1], "worker refuses our token")
    finally:
        for process in (worker, *gateways):
            process.terminate()
            process.wait(30)


def listening(process):
    """Address and gRPC port, by the log."""
    found = read_until(process, r'"listening".*"url": "(\S+)", "grpc_port": (\d+)')
    return found[1], found[2]


def page(folder, url, path, pattern):
    """A page with what matches a pattern, else nothing."""
    request = urllib.request.Request(url + path, headers={"authorization": f"Bearer {CLIENTS}"})
    trust = ssl.create_default_context(cafile=folder / "ca.pem")
    text = urllib.request.urlopen(request, context=trust).read().decode()
    return text if re.search(pattern, text) else ""


HERE = """
name: here
duration_s: 60
catalog:
  models: [{name: dense, task: score, accuracy: 80}]
  variants:
    - {name: dense-cpu, model: dense, resources: {cpu_cores: 1}, capacity_qps: 45, largest_bytes: 200 kB,
       profile: {fixed_s: 20 ms, source: made up}}
clusters: [{name: edge, tier: 0, nodes: [{name: node, resources: {cpu_cores: 1}}]}]
sites: [{name: site, uplink_bps: 10 Gbps}]
links: [{site: "*", cluster: edge, delay_s: 0.1 ms}]
workers: [{variant: dense-cpu, node: node}]
streams:
  applications:
    - {name: camera, task: score, rate_qps: 5, size_bytes: 180 kB, deadline_s: 200 ms, length_s: 20}
  arrivals: {clients_per_min: 6}
"""


def test_other_machines_need_a_token_unless_everyone_may(tmp_path):
    for host in ("0.0.0.0", "::", "edge.example", "192.0.2.1"):
        with pytest.raises(ScenarioError, match=r"--token-file.* or say .*--open"):
            Listen(host)
        assert "secret" not in repr(Listen(host, token="secret", operators=("secret",)))
        Listen(host, open=True)
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        Listen(host)
    for command in (("up", "tiny"), ("gateway", "tiny", "--worker", "a=b"), ("worker", "x.onnx")):
        assert "No such option" in edgewise(*command, "--token", "x", folder=tmp_path, code=2)
    assert "--open" in edgewise("up", "tiny", "--host", "0.0.0.0", folder=tmp_path, code=2)


@pytest.mark.parametrize(
    ("workers", "why"),
    [
        (["http://127.0.0.1:1"], "not NAME=URL"),
        (["x=http://127.0.0.1:1"], "'x' is not in the scenario"),
        (["a=http://127.0.0.1:1", "a=http://127.0.0.1:1"], "'a' is given twice"),
        (["a=http://127.0.0.1:1"], "none for b"),
        (["a=ftp://127.0.0.1:1", "b=http://127.0.0.1:1"], "--worker a: url"),
        (["a=http://user:secret@127.0.0.1:1", "b=http://127.0.0.1:1"], "--worker a: url"),
    ],
)
def test_workers_are_given_by_name(workers, why):
    from edgewise.runtime.gateway.standalone import gateway

    scenario = small_scenario(workers=2)
    names = dict(zip("ab", ("echo-cpu@near-node", "echo-cpu@far-node"), strict=True))
    given = [re.sub("^[ab]=", lambda m: names[m[0][0]] + "=", text) for text in workers]
    for short, name in names.items():
        why = why.replace(f"'{short}'", f"'{name}'").replace(f"for {short}", f"for {name}")
        why = why.replace(f"worker {short}:", f"worker {name}:")
    with pytest.raises(ScenarioError, match=re.escape(why)):
        gateway(scenario, "closest", given)
    made = gateway(
        scenario, "closest",
        [f"{names['b']}=http://127.0.0.1:2/x/v2/models/a%20b", f"{names['a']}=http://127.0.0.1:1"], "token",
    )  # fmt: skip
    assert [(u.client.url, u.model) for u in made.upstreams] == [
        ("http://127.0.0.1:1", "echo-cpu"), ("http://127.0.0.1:2/x", "a b"),
    ]  # fmt: skip


def test_a_token_file_holds_one_token(tmp_path):
    from edgewise.cli.standalone import read_token

    file = tmp_path / "token"
    for text in ("", "\n", "a b", "a\nb\n"):
        file.write_text(text)
        with pytest.raises(EdgewiseError, match="must hold one token"):
            read_token(file, "--token-file")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(EdgewiseError, match="is no text"):
        read_token(file, "--token-file")
    file.write_text("  abc\n")
    assert read_token(file, "--token-file") == "abc"
