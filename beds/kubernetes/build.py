"""Kubernetes' programs, built from its published Go modules and kept by version; what else must be installed.

k8s.io/kubernetes replaces its staging modules by folders that its own module does not hold. Here they are
replaced by the modules of the same release, in a module of our own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from beds.go import go_module, module_file
from beds.processes import BedError, cache

VERSION = os.environ.get("KUBERNETES_VERSION", "v1.36.3")
FROM_DEBIAN = "v1.20"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
PACKAGES = {
    "etcd": "etcd-server", "containerd": "containerd", "runc": "runc", "ip": "iproute2", "tc": "iproute2",
    "iptables": "iptables", "conntrack": "conntrack", "openssl": "openssl", "busybox": "busybox-static",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}  # fmt: skip
KWOK = ("sigs.k8s.io/kwok", "v0.8.0")
PICKER = ("sigs.k8s.io/gateway-api-inference-extension", "v1.6.0")


def check_machine() -> None:
    """Say what this machine lacks for a cluster.

    Raises:
        BedError: rights or packages are missing.
    """
    if os.geteuid() != 0:
        raise BedError("a cluster makes network namespaces, mounts and control groups: it needs root")
    missing = sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})
    if missing:
        raise BedError(f"packages are missing: apt-get install {' '.join(missing)}")


def programs(version: str = VERSION) -> Path:
    """The folder of Kubernetes' programs, built when there is none yet (about ten minutes on two cores).

    Raises:
        BedError: they cannot be built here.
    """
    folder = cache() / "kubernetes" / version
    if all((folder / program).exists() for program in PROGRAMS):
        return folder
    if not re.fullmatch(r"v1\.\d+(\.\d+)?", version):
        raise BedError(f"KUBERNETES_VERSION={version}: a release as v1.36.3 is needed")
    if shutil.which("go") is None and not version.startswith(FROM_DEBIAN):
        raise BedError(f"Kubernetes {version} is built from Go modules, and there is no Go")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"building Kubernetes {version} once, into {folder}: about ten minutes on two cores", flush=True)
    (_build_debian if version.startswith(FROM_DEBIAN) else _build)(version, folder)
    return folder


def _build(version: str, folder: Path) -> None:
    published = go_module("k8s.io/kubernetes", version)
    text = Path(published["GoMod"]).read_text()
    go = re.search(r"^go (\S+)", text, re.MULTILINE)
    staging = re.findall(r"^\s+(\S+) => \./staging/", text, re.MULTILINE)
    release = version.replace("v1.", "v0.", 1)
    lines = [
        f"module bed\n\ngo {go[1] if go else '1.24'}\n\nrequire k8s.io/kubernetes {version}\n\nreplace ("
    ]
    lines += [f"\t{each} => {each} {release}" for each in staging]
    module = module_file(folder / "module", "\n".join([*lines, ")\n"]))
    base, client = "k8s.io/component-base/version", "k8s.io/client-go/pkg/version"
    minor = version.split(".")[1]
    stamp = (
        f"-s -w -X {base}.gitVersion={version} -X {base}.gitMajor=1 -X {base}.gitMinor={minor}"
        f" -X {client}.gitVersion={version}"
    )
    for (
        program
    ) in PROGRAMS:  # one after another: linking several at once needs more memory than two cores have
        _go(module, "-ldflags", stamp, "-o", str(folder / program), f"k8s.io/kubernetes/cmd/{program}")


def _build_debian(version: str, folder: Path) -> None:
    """1.20 from Debian's own source package, for machines that reach no Go modules."""
    work = folder / "source"
    work.mkdir(exist_ok=True)
    run(
        [
            "apt-get",
            "install",
            "-y",
            "-q",
            "golang-1.19-go",
            "golang-github-modern-go-reflect2-dev",
            "dpkg-dev",
        ]
    )
    options = _sources(work / "apt")
    run(["apt-get", *options, "update", "-q"])
    run(["apt-get", *options, "source", "--download-only", "kubernetes"], cwd=work)
    (description,) = work.glob("kubernetes_1.20*.dsc")
    run(["dpkg-source", "--no-check", "-x", description.name, "tree"], cwd=work)
    inside = work / "go/src/k8s.io"
    inside.mkdir(parents=True, exist_ok=True)
    tree = inside / "kubernetes"
    (work / "tree").rename(tree)
    reflect = tree / "vendor/github.com/modern-go/reflect2"
    shutil.rmtree(reflect)
    shutil.copytree("/usr/share/gocode/src/github.com/modern-go/reflect2", reflect)
    go = "/usr/lib/go-1.19/bin/go"
    environment = {"GO111MODULE": "off", "GOPATH": str(work / "go"), "CGO_ENABLED": "0", "GOFLAGS": ""}
    run(
        ["make", "generated_files"],
        cwd=tree,
        env={**environment, "PATH": f"/usr/lib/go-1.19/bin:{os.environ['PATH']}"},
    )
    for program in PROGRAMS:
        run(
            [go, "build", "-o", str(folder / program), f"k8s.io/kubernetes/cmd/{program}"],
            cwd=tree,
            env=environment,
        )


def _sources(folder: Path) -> list[str]:
    """Options with which apt knows the sources of packages, too; its own settings stay as they are."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
    for file in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        if file.exists() and "/debian" in (text := file.read_text()):
            both = re.sub(r"^Types:.*$", "Types: deb-src", text, flags=re.MULTILINE)
            both = re.sub(r"^deb ", "deb-src ", both, flags=re.MULTILINE)
            (folder / "parts" / (file.name + ("" if file.suffix else ".list"))).write_text(both)
    settings = {
        "Etc::sourcelist": "/dev/null",
        "Etc::sourceparts": folder / "parts",
        "State::lists": folder / "lists",
    }
    return [f"-oDir::{name}={value}" for name, value in settings.items()]


def _go(module: Path, *arguments: str) -> None:
    run(["go", "build", "-trimpath", *arguments], cwd=module, env={"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"})


def run(command: list[str], **options: Any) -> str:
    """Run a program to its end.

    Raises:
        BedError: it fails; with what it said.
    """
    environment = os.environ | options.pop("env", {})
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)
    if done.returncode:
        raise BedError(f"{' '.join(map(str, command[:6]))} …: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout
