"""The conformance suite runs against the extension's reference picker; where that differs is known."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from beds.kubernetes import Cluster
from beds.kubernetes.build import programs
from beds.kubernetes.reference_picker import POOL, reference_picker
from beds.processes import wait

# lwepp v1.6.0 answers bodies without their content, never answers trailers, breaks the stream where
# a status is due, and has no health services of these names. picker-conformance/README.md says more.
MUST_DIFFER = {
    "subset.none-eligible", "subset.empty", "errors.none-ready",
    "bodies.whole", "bodies.single-bytes", "bodies.empty-end", "bodies.order", "bodies.request-trailers",
    "bodies.requests-apart", "bodies.headers-only", "bodies.buffered", "bodies.streamed", "bodies.no-silence",
    "bodies.response-whole", "bodies.response-streams", "bodies.response-trailers", "bodies.responses-apart",
    "health.liveness", "health.readiness", "errors.alive",
}  # fmt: skip
OTHERS_DIFFER = {
    "destination.overwrites", "destination.fall-backs", "subset.malformed", "bodies.answer-size",
    "robustness.empty-message", "robustness.observability",
}  # fmt: skip


def test_the_reference_picker_differs_where_it_is_known_to(cluster: Cluster, tmp_path):
    pytest.importorskip("picker_conformance", reason="pip install ./picker-conformance")
    if cluster.minor < 25:
        pytest.skip(f"Kubernetes {cluster.version} knows no rules in definitions, 1.25 and later do")
    report = tmp_path / "report.json"
    kubectl = f"{programs(cluster.version)}/kubectl --kubeconfig={cluster.kubeconfig}"
    gone = f"{kubectl} scale deploy/{POOL} --replicas=0 && {kubectl} wait --for=delete pod -l app={POOL}"
    back = f"{kubectl} scale deploy/{POOL} --replicas=3 && {kubectl} rollout status deploy/{POOL}"
    states = {"none-ready": gone, "normal": back}
    with reference_picker(cluster) as picker:
        command = [sys.executable, "-m", "picker_conformance", "--target", picker.target, "--patience", "2"]

        def picks() -> bool:
            return not subprocess.run(
                [*command, "--only", "destination.no-body"], capture_output=True
            ).returncode

        wait("the picker to know its pods", picks, 30)
        command += ["--endpoints", ",".join(picker.endpoints), "--json", str(report)]
        command += [f"--enter={name}=sh -c {shlex.quote(line)}" for name, line in states.items()]
        subprocess.run(command, check=False, capture_output=True, timeout=600)
    rows = json.loads(report.read_text())["cases"]
    failed = {row["id"]: row["level"] for row in rows if row["outcome"] == "fail"}
    assert {each for each, level in failed.items() if level == "must"} == MUST_DIFFER
    assert {each for each, level in failed.items() if level != "must"} == OTHERS_DIFFER
    # It never sheds, so that nothing brings it into the state that this case needs.
    assert {row["id"] for row in rows if row["outcome"] == "not run"} == {"errors.shed"}
