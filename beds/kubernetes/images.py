"""Container images without a registry or a builder: folders become an archive that containerd imports."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from beds.kubernetes.build import run
from beds.processes import REPOSITORY

LAYER, CONFIG = "application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PAUSE = "docker.io/edgewise-bed/pause:1"
BUSYBOX = "docker.io/edgewise-bed/busybox:1"
PYTHON = "/opt/python/bin/python3"
NOBODY = 65534


@dataclass(frozen=True)
class Image:
    """A folder as the root of a container.

    Attributes:
        name: with registry and tag; pods use it with `imagePullPolicy: Never`.
        folder: its files.
        command: what runs unless the pod says otherwise.
        user: the number of who it runs as, unless the pod says otherwise; None is root. A number, not a name:
            a kubelet that may start nobody as root (`runAsNonRoot`) has to know who it is.
    """

    name: str
    folder: Path
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: int | None = None


def archive(images: Sequence[Image], target: Path) -> Path:
    """Write images as one OCI archive."""
    blobs: dict[str, bytes] = {}

    def put(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    manifests = []
    for image in images:
        layer = _layer(image.folder)
        environment = {"PATH": "/bin:/usr/bin:/usr/local/bin", **image.environment}
        config = {
            "architecture": "amd64", "os": "linux",
            "config": {
                "Env": [f"{name}={value}" for name, value in environment.items()],
                "Entrypoint": list(image.command),
                **({} if image.user is None else {"User": f"{image.user}:{image.user}"}),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }  # fmt: skip
        manifest = {
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": put(json.dumps(config).encode(), CONFIG), "layers": [put(layer, LAYER)],
        }  # fmt: skip
        entry = put(json.dumps(manifest).encode(), MANIFEST)
        manifests.append(entry | {"annotations": {"io.containerd.image.name": image.name}})
    index = {"schemaVersion": 2, "manifests": manifests}
    files = {f"blobs/sha256/{digest}": data for digest, data in blobs.items()}
    files |= {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    with tarfile.open(target, "w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target


def _layer(folder: Path) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.add(folder, arcname=".")
    return made.getvalue()


def basic(work: Path) -> list[Image]:
    """What pods need (pause), and busybox for tests: a shell, a web server, wget."""
    pause, busybox = work / "pause", work / "busybox"
    program = shutil.which("busybox")
    assert program is not None  # `check_machine` has seen it
    for folder in (pause, busybox):
        (folder / "bin").mkdir(parents=True)
        (folder / "tmp").mkdir()
        shutil.copy(program, folder / "bin/busybox")
    for applet in subprocess.run(
        [program, "--list"], capture_output=True, text=True, check=True
    ).stdout.split():
        if applet != "busybox":
            (busybox / "bin" / applet).symlink_to("busybox")
    return [
        Image(PAUSE, pause, ("/bin/busybox", "sleep", "2147483647")),
        Image(BUSYBOX, busybox, ("/bin/sh",)),
    ]


def of_python(work: Path, name: str = "docker.io/edgewise-bed/python:1") -> Image:
    """An image of this interpreter and its standard library.

    Args:
        work: where it is put together.
    """
    root = work / "python"
    _interpreter(root)
    _libraries(root)
    (root / "tmp").mkdir()
    return Image(name, root, (PYTHON,), {"PYTHONHOME": "/opt/python"}, NOBODY)


def of_edgewise(
    work: Path, name: str = "docker.io/edgewise-bed/edgewise:1", extras: str = "live,place"
) -> Image:
    """An image of edgewise's wheel: this interpreter, what the wheel needs, and compiled kernels.

    The kernels are compiled for a generic processor, so that a pod compiles nothing on whatever node it runs.

    Args:
        work: where it is put together.
        extras: of the wheel.
    """
    root, wheels = work / "edgewise", work / "wheels"
    pip = [sys.executable, "-m", "pip"]
    run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(REPOSITORY)])
    (wheel,) = wheels.glob("edgewise-*.whl")
    packages = _interpreter(root) / "site-packages"
    run([
        *pip, "install", "--quiet", "--target", str(packages),
        "-c", str(REPOSITORY / "constraints.txt"), f"edgewise[{extras}] @ file://{wheel}",
    ])  # fmt: skip
    _libraries(root)
    for each in ("tmp", "dev"):
        (root / each).mkdir()
    os.mknod(
        root / "dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3)
    )  # subprocesses of the next command want it
    kernels = "/opt/kernels"
    environment = {"PYTHONHOME": "/opt/python", "EDGEWISE_KERNELS": kernels, "HOME": "/tmp"}
    compile_for_all = ["chroot", str(root), PYTHON, "-m", "edgewise", "kernels", "--into", kernels]
    run([*compile_for_all, "--cpu", "generic"], env=environment)
    shutil.rmtree(root / "dev")
    return Image(name, root, (PYTHON, "-m", "edgewise"), environment, NOBODY)


def _interpreter(root: Path) -> Path:
    """Copy this interpreter; the folder of its standard library."""
    library = Path(
        sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix})
    )
    target = root / "opt/python"
    copied = target / "lib" / library.name
    shutil.copytree(
        library, copied, symlinks=True,
        ignore=shutil.ignore_patterns("site-packages", "test", "idlelib", "__pycache__", "config-*"),
    )  # fmt: skip
    (target / "bin").mkdir()
    shutil.copy(os.path.realpath(sys.executable), root / PYTHON.lstrip("/"))
    return copied


def _libraries(root: Path) -> None:
    """Copy the shared libraries that programs and modules in a folder need and do not bring."""
    wanted: set[Path] = set()
    for file in root.rglob("*"):
        if file.is_file() and not file.is_symlink() and (file.name == "python3" or ".so" in file.suffixes):
            said = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
            wanted |= {Path(part) for part in said.split() if part.startswith("/")}
    for library in wanted:
        standard = (
            library.is_relative_to("/lib")
            or library.is_relative_to("/lib64")
            or library.is_relative_to("/usr")
        )
        target = root / (str(library).lstrip("/") if standard else f"usr/lib/{library.name}")
        if not library.is_relative_to(root) and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
