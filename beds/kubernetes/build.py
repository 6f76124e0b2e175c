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

RELEASE = "v1.36.3"
VERSION = os.environ.get("KUBERNETES_VERSION", RELEASE)
FROM_DEBIAN = "v1.20.2"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
PACKAGES = {
    "etcd": "etcd-server", "containerd": "containerd", "runc": "runc", "ip": "iproute2", "tc": "iproute2",
    "iptables": "iptables", "conntrack": "conntrack", "openssl": "openssl", "busybox": "busybox-static",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}  # fmt: skip
DEBIAN_PACKAGES = ("golang-1.19-go", "golang-github-modern-go-reflect2-dev", "dpkg-dev")
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
    if shutil.which("go") is None and version != FROM_DEBIAN:
        raise BedError(f"Kubernetes {version} is built from Go modules, and there is no Go")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"building Kubernetes {version} once, into {folder}: about ten minutes on two cores", flush=True)
    (_build_debian if version == FROM_DEBIAN else _build)(version, folder)
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
    stamp = _stamp(version)
    for each in PROGRAMS:  # one after another: linking several at once needs more memory than two cores have
        _go(module, "-ldflags", stamp, "-o", str(folder / each), f"k8s.io/kubernetes/cmd/{each}")


def _stamp(version: str, below: str = "") -> str:
    """What makes programs say which release they are; `below` is where the staging modules lie."""
    base, client = f"{below}k8s.io/component-base/version", f"{below}k8s.io/client-go/pkg/version"
    fields = {"gitVersion": version, "gitMajor": "1", "gitMinor": version.split(".")[1]}
    return " ".join(
        ["-s -w", *(f"-X {of}.{name}={v}" for of in (base, client) for name, v in fields.items())]
    )


def _build_debian(version: str, folder: Path) -> None:
    """1.20 from Debian's own source package, for machines that reach no Go modules."""
    work = folder / "source"
    shutil.rmtree(work, ignore_errors=True)  # of a build that was interrupted
    tree = _debian_source(work)
    go = "/usr/lib/go-1.19/bin"
    settings = {"GO111MODULE": "off", "GOPATH": str(work / "go"), "GOFLAGS": "", "CGO_ENABLED": "0"}
    settings["PATH"] = f"{go}:{os.environ['PATH']}"  # the generator asks `go` for packages
    ours = "k8s.io/kubernetes"
    # Of what is generated, the package lacks the API's description alone; its own rules would make all anew.
    generator = f"{ours}/vendor/k8s.io/kube-openapi/cmd/openapi-gen"
    run([f"{go}/go", "build", "-o", str(work / "openapi-gen"), generator], cwd=tree, env=settings)
    found = run(["grep", "-rl", "--include=*.go", "+k8s:openapi-gen=", "pkg", "staging/src"], cwd=tree)
    files = [Path(line.replace("staging/src", "vendor")) for line in found.splitlines()]
    of_others = ("vendor/k8s.io/code-generator", "vendor/k8s.io/sample-apiserver")
    packages = {f"{ours}/{file.parent}" for file in files if not str(file).startswith(of_others)}
    run([
        str(work / "openapi-gen"), "-i", ",".join(sorted(packages)), "-p", f"{ours}/pkg/generated/openapi",
        "-O", "zz_generated.openapi", "-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
        "-r", "/dev/null",
    ], cwd=tree, env=settings)  # fmt: skip
    stamp = _stamp(version, f"{ours}/vendor/")
    for each in PROGRAMS:
        command = ["go", "build", "-trimpath", "-ldflags", stamp, "-o", str(folder / each)]
        run([*command, f"{ours}/cmd/{each}"], cwd=tree, env=settings)
    shutil.rmtree(work)


def _debian_source(work: Path) -> Path:
    """Debian's source of Kubernetes, unpacked where Go finds it without modules."""
    options = _sources(work / "apt")
    run(["apt-get", "install", "-y", "-q", *DEBIAN_PACKAGES])
    run(["apt-get", *options, "update", "-q"])
    run(["apt-get", *options, "source", "--download-only", "kubernetes"], cwd=work)
    descriptions = list(work.glob("kubernetes_1.20*.dsc"))
    if not descriptions:
        raise BedError("Debian's source of Kubernetes here is not that of 1.20")
    tree = work / "go/src/k8s.io/kubernetes"
    tree.parent.mkdir(parents=True)
    run(["dpkg-source", "--no-check", "-x", descriptions[0].name, str(tree)], cwd=work)
    reflect = "github.com/modern-go/reflect2"  # the release's own does not build with this Go
    shutil.rmtree(tree / "vendor" / reflect)
    shutil.copytree(Path("/usr/share/gocode/src") / reflect, tree / "vendor" / reflect)
    return tree


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
        BedError: it fails, with what it said; or it is not there.
    """
    environment = os.environ | options.pop("env", {})
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, **options
        )
    except FileNotFoundError as error:
        raise BedError(f"there is no {error.filename}") from None
    if done.returncode:
        raise BedError(f"{' '.join(map(str, command[:6]))} …: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout
