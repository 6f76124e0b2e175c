"""Which of the bed's own tests have passed as things are now: CI runs the others alone.

The tests are in parts, and each part has a digest of everything that its tests are about. What all of them
run on is in every digest.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from beds.kubernetes.build import RELEASE, VERSION
from beds.processes import REPOSITORY

HERE = Path("beds/kubernetes")
FILE = HERE / "tested.txt"


@dataclass(frozen=True)
class Part:
    """Tests that are run together.

    Attributes:
        tests: their files.
        about: files, or patterns of them, that these tests alone are about.
    """

    tests: tuple[str, ...]
    about: tuple[str, ...]

    def files(self) -> list[str]:
        """The tests, as paths in the repository."""
        return [str(HERE / "tests" / each) for each in self.tests]


POD = (  # what a pod is and runs
    "beds/kubernetes/tests/conftest.py", "src/edgewise/precompile.py", "src/edgewise/kernels/compiled.py",
    "src/edgewise/runtime/backends/**/*.py", "src/edgewise/runtime/process/pod.py",
    "src/edgewise/runtime/process/working.py",
)  # fmt: skip
CHART = (
    "charts/edgewise/*.*", "charts/edgewise/templates/**/*.*", "beds/kubernetes/tests/released.py",
    "beds/kubernetes/tests/test_edgewise_up.py",
)  # fmt: skip
SIMULATED, DELAYED = "beds/kubernetes/kwok.py", "beds/kubernetes/relay.py"
PARTS = {
    "cluster": Part(
        ("test_groups.py", "test_kubernetes_bed.py", "test_kubernetes_services.py"), (SIMULATED, DELAYED)
    ),
    "commands": Part(
        ("test_kubernetes_commands.py", "test_kubernetes_ends.py"),
        ("beds/kubernetes/__main__.py", "beds/kubernetes/commands.py", SIMULATED, DELAYED),
    ),
    # The backend, and what decides how the image is made; that the wheel's commands work it tests itself.
    "image": Part(("test_edgewise_backend.py",), ("pyproject.toml", "constraints.txt", *POD)),
    "up": Part(("test_edgewise_up.py",), POD),
    "jobs": Part(
        ("test_edgewise_jobs.py",),
        (*POD, "beds/kubernetes/tests/test_edgewise_up.py", "src/edgewise/runtime/controller/jobs.py"),
    ),
    "kinds": Part(
        ("test_edgewise_kinds.py",),
        (*POD, "beds/kubernetes/tests/test_edgewise_up.py", "src/edgewise/runtime/pipelines/*.py"),
    ),
    "chart": Part(
        ("test_edgewise_chart.py",),
        (
            *CHART, "deploy/rights.txt", "src/edgewise/runtime/clients/one_query.py", *POD,
        ),
    ),
    "faults": Part(
        ("test_edgewise_faults.py",),
        (
            "beds/kubernetes/tests/test_edgewise_jobs.py", *CHART, *POD,
        ),
    ),
    "orchestrate": Part(
        ("test_edgewise_orchestrate.py",),
        (
            *POD, "beds/kubernetes/tests/test_edgewise_up.py", "src/edgewise/runtime/controller/replicas.py",
            "src/edgewise/runtime/controller/planned_replicas.py",
        ),
    ),
    # What a pod is, others try; these two are about what is watched, and about Jobs.
    "scale": Part(
        ("test_edgewise_scale.py",),
        (
            SIMULATED, "beds/kubernetes/tests/test_edgewise_up.py",
            *(f"src/edgewise/runtime/backends/kubernetes/{name}.py" for name in ("nodes", "seen", "system")),
        ),
    ),
    "kueue": Part(
        ("test_edgewise_kueue.py",),
        (
            "beds/kubernetes/tests/test_edgewise_jobs.py", "src/edgewise/runtime/backends/kubernetes/job*.py",
            "src/edgewise/runtime/controller/jobs.py",
        ),
    ),
    # Servers of others are no pods of ours: of the backend only what finds them.
    "foreign": Part(
        ("test_edgewise_foreign.py",),
        (
            "beds/kubernetes/tests/test_edgewise_up.py", "src/edgewise/runtime/backends/taken.py",
            "src/edgewise/runtime/backends/kubernetes/taken.py", "src/edgewise/runtime/controller/taken.py",
            "src/edgewise/runtime/gateway/granting.py", "tests/open_inference_server.py",
        ),
    ),
    "probes": Part(
        ("test_edgewise_probes.py",),
        (
            "beds/kubernetes/tests/released.py", "charts/edgewise/templates/probes.yaml",
            "src/edgewise/runtime/process/probing.py", "src/edgewise/runtime/watch/probe.py",
        ),
    ),
    "tutorial": Part(
        ("test_edgewise_tutorial.py",), ("docs/tutorials/kubernetes.md", *CHART, *POD),
    ),
    "picker": Part(
        ("test_reference_picker.py",),
        (
            "beds/kubernetes/reference_picker.py", "picker-conformance/pyproject.toml",
            "picker-conformance/src/**/*.py",
        ),
    ),
}  # fmt: skip
COMMON = ("beds/processes.py", "beds/go.py", "beds/conftest.py", "beds/kubernetes/*.py")
WITHIN, BEGAN_S = "EDGEWISE_BED_WITHIN_S", time.monotonic()
NOWHERE = {str(HERE / "stamp.py")}  # decides what is run, not how it goes


def sources(name: str, root: Path = REPOSITORY) -> list[str]:
    """Files that the tests of a part are about: its own, and what all of them run on."""
    of_others = {each for other, part in PARTS.items() if other != name for each in _found(part.about, root)}
    common = set(_found(COMMON, root)) - of_others - NOWHERE
    return sorted(common | set(_found(PARTS[name].about, root)) | set(PARTS[name].files()))


def _found(patterns: Sequence[str], root: Path) -> list[str]:
    return [file.relative_to(root).as_posix() for pattern in patterns for file in root.glob(pattern)]


def digest(name: str, root: Path = REPOSITORY) -> str:
    """Of everything that the tests of a part are about."""
    made = hashlib.sha256()
    for file in sources(name, root):
        made.update(file.encode() + b"\0" + hashlib.sha256((root / file).read_bytes()).digest())
    return made.hexdigest()


def passed(root: Path = REPOSITORY) -> dict[str, str]:
    """The digest of each part as its tests last passed."""
    lines = (root / FILE).read_text().splitlines() if (root / FILE).exists() else []
    return {name: hashed for hashed, _, name in (line.partition("  ") for line in lines)}


def stale(root: Path = REPOSITORY) -> list[str]:
    """Parts whose tests have not passed as things are now."""
    noted = passed(root)
    return [name for name in PARTS if noted.get(name) != digest(name, root)]


def note(name: str, root: Path = REPOSITORY) -> None:
    """Note that the tests of a part have passed as things are now."""
    noted = {**passed(root), name: digest(name, root)}
    lines = [f"{noted[each]}  {each}" for each in PARTS if each in noted]
    (root / FILE).write_text("\n".join(lines) + "\n")


def run(name: str) -> bool:
    """Run the tests of a part and note it if every one has passed; False where one fails.

    With `EDGEWISE_BED_WITHIN_S` no part begins later than so many seconds after this program did: it is left
    out, which is said.
    """
    if time.monotonic() - BEGAN_S > float(os.environ.get(WITHIN, "inf")):
        print(
            f"{name}: left out, {WITHIN}={os.environ[WITHIN]} is over; make test-bed PARTS={name}", flush=True
        )
        return True
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *PARTS[name].files()]
        status = subprocess.run(command, cwd=REPOSITORY, check=False).returncode
        skipped = _skipped(report) if status == 0 else 0
    if status:
        return False
    if skipped or VERSION != RELEASE:
        why = f"{skipped} skipped" if skipped else f"of Kubernetes {VERSION}"
        print(f"{name}: passed, and not noted in {FILE}: {why}", flush=True)
    else:
        note(name)
    return True


def _skipped(report: Path) -> int:
    return sum(int(each.get("skipped", "0")) for each in ElementTree.parse(report).iter("testsuite"))
