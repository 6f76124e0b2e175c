"""What other projects need of a cluster: names, webhooks and APIs that are services, pods without root."""

from __future__ import annotations

import base64
import json

import pytest

from beds.kubernetes import Cluster, images
from beds.kubernetes.cluster import is_ready
from beds.kubernetes.control_plane import FRONT_PROXY
from beds.processes import BedError

NAME, POD = "answers", "server"  # two names, as a pod finds its own without being told
GROUP = "bed.example"
# Reviews objects for the API server, and says who asks for anything else.
SERVER = """
import http.server, json, ssl

class Server(http.server.BaseHTTPRequestHandler):
    def say(self, of):
        text = json.dumps(of).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["request"]
        holds = asked["object"]["data"]["wish"] == "modest"
        said = {"uid": asked["uid"], "allowed": holds, "status": {"message": "too much is asked for"}}
        self.say({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": said})

    def do_GET(self):
        shown = self.connection.getpeercert() or {}
        names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
        self.say({"user": self.headers.get("x-remote-user"), "by": names})

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/made/tls.crt", "/made/tls.key")
context.load_verify_locations("/made/front.crt")
context.verify_mode = ssl.CERT_OPTIONAL
server = http.server.ThreadingHTTPServer(("", 8443), Server)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
RESTRICTED = {
    "runAsNonRoot": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"}, "readOnlyRootFilesystem": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def service(cluster: Cluster) -> str:
    """A service on port 443 of a pod that says no more of its user than that it must not be root."""
    python = images.of_python(cluster.work)
    cluster.nodes["n1"].load(images.archive([python], cluster.work / "python.tar"))
    key, certificate = cluster.control.authority.sign(NAME, f"/CN={NAME}", [f"{NAME}.default.svc"])
    made = {
        "tls.key": key.read_text(), "tls.crt": certificate.read_text(), "server.py": SERVER,
        "front.crt": cluster.control.front.certificate.read_text(),
    }  # fmt: skip
    runs = {
        "name": "c", "image": python.name, "imagePullPolicy": "Never", "args": ["/made/server.py"],
        "securityContext": RESTRICTED, "volumeMounts": [{"name": "made", "mountPath": "/made"}],
        "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
    }  # fmt: skip
    named = {"name": NAME, "labels": {"app": NAME}}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": named, "stringData": made},
        {"apiVersion": "v1", "kind": "Service", "metadata": named,
         "spec": {"selector": {"app": NAME}, "ports": [{"port": 443, "targetPort": 8443}]}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**named, "name": POD}, "spec": {
            "nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": [runs],
            "volumes": [{"name": "made", "secret": {"secretName": NAME}}]}},
    )  # fmt: skip
    cluster.wait(lambda: is_ready(cluster.get("pod", POD)), 60, "the service's pod")
    return NAME


def authority(cluster: Cluster) -> str:
    return base64.b64encode(cluster.control.authority.certificate.read_bytes()).decode()


def wish(what: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "data": {"wish": what},
            "metadata": {"name": what, "labels": {"reviewed": "yes"}}}  # fmt: skip


def test_a_webhook_that_is_a_service_is_asked(cluster, service):
    hook = {
        "name": f"wishes.{GROUP}", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail", "timeoutSeconds": 5, "objectSelector": {"matchLabels": {"reviewed": "yes"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                   "operations": ["CREATE"]}],
        "clientConfig": {"service": {"name": service, "namespace": "default"},
                         "caBundle": authority(cluster)},
    }  # fmt: skip
    cluster.apply({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                   "metadata": {"name": "wishes"}, "webhooks": [hook]})  # fmt: skip

    def said() -> str:
        try:
            return cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=wish("immodest"))
        except BedError as error:
            return str(error)

    # The API server asks it from some moment on; then it is the pod that refuses.
    cluster.wait(lambda: "dry run" not in said(), 30, "the webhook to be asked")
    assert "denied the request: too much is asked for" in said()
    cluster.kubectl("create", "-f", "-", stdin=wish("modest"))
    cluster.kubectl("delete", "validatingwebhookconfiguration", "wishes")


def test_an_api_that_is_a_service_is_told_who_asks(cluster, service):
    of = {"group": GROUP, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
          "service": {"name": service, "namespace": "default"}, "caBundle": authority(cluster)}  # fmt: skip
    name = f"v1.{GROUP}"
    cluster.apply({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                   "metadata": {"name": name}, "spec": of})  # fmt: skip
    cluster.kubectl("wait", "--for=condition=Available", f"apiservice/{name}", "--timeout=60s")
    said = json.loads(cluster.kubectl("get", "--raw", f"/apis/{GROUP}/v1/whoever"))
    assert said == {"user": "admin", "by": [FRONT_PROXY]}
    known = cluster.get("configmap", "extension-apiserver-authentication", "kube-system")["data"]
    assert known["requestheader-client-ca-file"] == cluster.control.front.certificate.read_text()
    cluster.kubectl("delete", "apiservice", name)


def resolved(cluster: Cluster, name: str) -> str:
    line = f"import socket; print(socket.gethostbyname({name!r}))"
    return cluster.kubectl("exec", POD, "--", images.PYTHON, "-c", line).strip()


def test_pods_have_names_for_services(cluster, service):
    ours = cluster.get("service", service)["spec"]["clusterIP"]
    for name in (service, f"{service}.default", f"{service}.default.svc.cluster.local"):
        assert resolved(cluster, name) == ours
    assert (
        resolved(cluster, "kubernetes.default.svc")
        == cluster.get("service", "kubernetes")["spec"]["clusterIP"]
    )
    with pytest.raises(BedError, match="gaierror"):
        resolved(cluster, "nobody.default.svc")
    with pytest.raises(BedError, match="gaierror"):
        resolved(cluster, "example.org")


def test_names_outlive_a_node(cluster, service):
    where = ("-n", "kube-system", "-l", "k8s-app=kube-dns")
    nodes = {each["spec"]["nodeName"] for each in cluster.list("pod", *where)}
    assert len(nodes) == 2
    with cluster.lost(max(nodes)):  # never n1, where the pod is that asks
        cluster.wait(lambda: max(nodes) not in cluster.ready(), 60, "the node to be NotReady")

        def resolves() -> bool:
            try:
                return bool(resolved(cluster, "kubernetes.default.svc"))
            except BedError:
                return False

        cluster.wait(resolves, 30, "names without a node")
    cluster.wait(lambda: len(cluster.ready()) == 3, 60, "the node to be Ready")


def test_a_pod_that_may_not_be_root_runs_by_its_image_s_number(cluster, service):
    line = "import os; print(os.getuid())"
    assert int(cluster.kubectl("exec", POD, "--", images.PYTHON, "-c", line)) == images.NOBODY
