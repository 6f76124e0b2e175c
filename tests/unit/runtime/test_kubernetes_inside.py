"""What edgewise needs to run inside the cluster, as far as no cluster is needed to see it."""

import os
import stat
import urllib.request
from contextlib import closing
from dataclasses import asdict
from hashlib import sha256

import pytest
import yaml

pytest.importorskip("lightkube", reason="needs the extra kubernetes")

from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment

from edgewise.errors import RunError
from edgewise.model.parsing import parse_scenario
from edgewise.runtime import disk
from edgewise.runtime.backends.kubernetes import PodPlace, Pods, seen, system
from edgewise.runtime.backends.kubernetes.manifest import deployment
from edgewise.runtime.backends.system import KUBERNETES, choose, clear
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.process import pod
from edgewise.runtime.store import DATABASE, Process, Store

CAMERAS = """
name: cameras
duration_s: 60
catalog:
  models: [{name: echo, task: score, accuracy: 50}]
  variants:
    - name: echo-cpu
      model: echo
      resources: {cpu_cores: 0.1, memory_bytes: 256MB}
      profile: {fixed_s: 3ms, source: "made up for this test"}
      capacity_qps: 100
      largest_bytes: 1000
clusters:
  - name: west
    tier: 0
    nodes:
      - {name: gate, resources: {cpu_cores: 1, memory_bytes: 1GB}}
      - {name: n2, resources: {cpu_cores: 1, memory_bytes: 1GB}}
  - {name: east, tier: 1, nodes: [{name: n3, resources: {cpu_cores: 1, memory_bytes: 1GB}}]}
sites: [{name: gate, cluster: west}]
links: [{site: gate, cluster: "*", delay_s: 1ms}]
workers: [{variant: echo-cpu, node: gate}, {variant: echo-cpu, node: n3}]
streams:
  applications: [{name: any, task: score, rate_qps: 10, size_bytes: 100, deadline_s: 1, length_s: 60}]
  arrivals: {clients_per_min: 6}
"""
SETTINGS = {"file": "/here/only.onnx"}
OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "edgewise", "uid": "0-1"}
KUBECONFIG = """
apiVersion: v1
clusters: [{name: c, cluster: {server: "https://192.0.2.9:6443"}}]
contexts: [{name: c, context: {cluster: c, namespace: there}}]
current-context: c
"""


@pytest.fixture
def account(tmp_path, monkeypatch):
    """The folder of a service account, as the kubelet makes it."""
    for name, text in {"token": "t1", "namespace": "cameras", "ca.crt": ""}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(seen, "ACCOUNT", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(seen.CALLS, "client", lambda config, namespace: (config, namespace))
    return tmp_path


def test_in_a_pod_the_cluster_is_its_own_with_a_token_that_is_renewed(account):
    config, namespace = seen.client_of(None, "cameras")
    assert config.cluster.server == "https://192.0.2.1:443" and namespace == "cameras"
    assert config.cluster.certificate_auth == str(account / "ca.crt")
    assert config.user.token_file == str(account / "token")


def test_a_file_that_is_named_comes_before_the_pods_own_cluster(account, tmp_path, monkeypatch):
    (file := tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(file))
    for named in (None, file):
        config, _ = seen.client_of(named)
        assert config.cluster.server == "https://192.0.2.9:6443"


def test_an_account_without_an_address_of_the_api_server_is_said(account, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(RunError, match="no KUBERNETES_SERVICE_HOST"):
        seen.client_of(None)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("10.0.0.1", "10.0.0.1", None), ("models.cameras.svc:9000", "models.cameras.svc", 9000),
     ("fd00::1", "fd00::1", None)],
)  # fmt: skip
def test_an_address_may_have_a_port(text, host, port):
    assert system.address_of(text) == (host, port)


@pytest.mark.parametrize("text", ["host:", "host:0", "host:65536", "host:http"])
def test_what_is_no_port_is_said(text):
    with pytest.raises(RunError, match="is no port; write HOST or HOST:PORT"):
        system.address_of(text)


def test_models_stay_where_they_were_unless_a_port_is_said(tmp_path):
    before = system.OnCluster(None, "cameras", "image:1", "models", system="s", port=1234)
    with closing(Store(tmp_path / DATABASE)) as store:
        store.put(system.CLUSTER, system.settings_of(before, tmp_path))
    wanted = system.OnCluster(None, "cameras", "image:2", "models")
    found = system.settings_of(wanted, tmp_path)
    assert (found["system"], found["port"], found["image"]) == ("s", 1234, "image:2")
    assert system.settings_of(wanted, tmp_path, 9000)["port"] == 9000


class OneObject:
    """A client that knows one Deployment, and nothing of pods."""

    def get(self, kind, name):
        if (kind, name) != (Deployment, "edgewise"):
            raise OSError("not found")
        spec = DeploymentSpec(selector=LabelSelector(), template=PodTemplateSpec())
        return Deployment(metadata=ObjectMeta(name=name, uid="0-1"), spec=spec)


def test_an_owner_is_found_by_its_name():
    assert system.owner_of(OneObject(), "deployment/edgewise") == OWNER


@pytest.mark.parametrize(
    ("name", "words"),
    [("edgewise", "write deployment/NAME"), ("job/edgewise", "write deployment/NAME"),
     ("deployment/", "write deployment/NAME"), ("deployment/other", "deployment/other: not found")],
)  # fmt: skip
def test_an_owner_that_cannot_be_found_is_said(name, words):
    with pytest.raises(RunError, match=words):
        system.owner_of(OneObject(), name)


@pytest.mark.parametrize(("owner", "said"), [(None, None), (OWNER, [OWNER])])
def test_what_is_made_goes_with_its_owner(owner, said):
    pods = Pods("site", "image:1", "http://models:9000", owner=owner)
    made = deployment(Process("w", "worker", 8123, SETTINGS), "0a1b", pods, PodPlace("n1", 1, 1e9))
    assert made["metadata"].get("ownerReferences") == said


class Leftovers:
    """A client of a cluster where a killed system has left the pod of a task."""

    def __init__(self):
        self.deleted, self.asked = [], []

    def list(self, kind, labels):
        self.asked.append((kind, labels))
        spec = DeploymentSpec(selector=LabelSelector(), template=PodTemplateSpec())
        return [Deployment(metadata=ObjectMeta(name="pipeline-1-source-0a"), spec=spec)]

    def delete(self, kind, name):
        self.deleted.append((kind, name))


def test_what_a_killed_system_has_left_is_removed_and_tasks_wait_for_nobody(tmp_path, monkeypatch):
    where = system.OnCluster(None, "space", "image:1", "10.0.0.1", system="ab")
    store = Store(tmp_path / DATABASE)
    choose(store, KUBERNETES, asdict(where))
    client = Leftovers()
    monkeypatch.setattr(system.OnCluster, "client", lambda _: client)
    clear(store)
    assert client.asked == [(Deployment, {"edgewise/system": "ab", "app.kubernetes.io/component": "task"})]
    assert [name for _, name in client.deleted] == ["pipeline-1-source-0a", *where.budgets, where.secret]
    store.close()


def test_a_folder_in_a_volume_that_everybody_may_write_is_its_owners_alone(tmp_path):
    tmp_path.chmod(0o777)
    folder = tmp_path / "state"
    with pytest.raises(RunError, match="others may write to"):
        disk.check_folder(folder, DATABASE)
    for _ in range(2):  # a pod that starts anew has it
        pod.make_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"--make-folder .*Not a directory"):
        pod.make_folder(tmp_path / "file" / "state")
    if os.geteuid() == 0:
        (tmp_path / "others").mkdir()
        os.chown(tmp_path / "others", 1234, -1)
        with pytest.raises(RunError, match="belongs to user 1234"):
            pod.make_folder(tmp_path / "others")


class Applied:
    """A client that takes whatever it is told to keep."""

    def apply(self, what, force):
        return what


def test_a_controller_that_begins_gives_models_of_what_its_predecessor_started(tmp_path, monkeypatch):
    (model := tmp_path / "model.onnx").write_bytes(b"a network")
    where = system.OnCluster(None, "space", "image:1", "127.0.0.1", system="ab")
    with closing(Store(tmp_path / DATABASE)) as store:
        choose(store, KUBERNETES, asdict(where))
        token = store.secret("parts")
        for name, file in (("w", model), ("gone", tmp_path / "gone.onnx")):
            store.add(Process(name, "worker", 8123, {"file": str(file), "split": None}))
    monkeypatch.setattr(system.OnCluster, "client", lambda _: Applied())
    for watching in ("ClusterNodes", "KubernetesBackend"):
        monkeypatch.setattr(system, watching, lambda *_, **__: None)
    backend = system.ClusterBackend(tmp_path, fork=lambda *_: 0)
    try:
        url = f"http://127.0.0.1:{backend.models.port}/{sha256(b'a network').hexdigest()}"
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            assert answer.read() == b"a network"
    finally:
        backend.models.close()


def test_a_gateway_is_told_the_nodes_of_its_site_and_nobody_else_is(tmp_path):
    """The node `gate` has the name of the site: its worker is told nothing."""
    there = KUBERNETES, {"image": "image:1", "owner": OWNER}
    scenario = parse_scenario(yaml.safe_load(CAMERAS), "cameras")
    with closing(prepare(tmp_path, scenario, backend=there)) as store:
        near = {row.process.name: row.process.settings.get("near") for row in store.processes()}
    of_gateways = [nodes for name, nodes in near.items() if name.startswith("gateway")]
    assert of_gateways == [["gate", "n2"]]
    assert len(near) == 3 and [nodes for nodes in near.values() if nodes] == of_gateways
