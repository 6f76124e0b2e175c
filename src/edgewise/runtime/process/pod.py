"""A process in a pod: what it is to be stands in its environment, its files are fetched by SHA-256.

A gateway has a copy of what the controller keeps, see `handing`.
"""

import hashlib
import json
import logging
import os
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgewise.errors import RunError
from edgewise.runtime import clock, disk
from edgewise.runtime.store.processes import Process, from_fields
from edgewise.runtime.watch.logs import log_json

PROCESS, MODELS_URL = "EDGEWISE_PROCESS", "EDGEWISE_MODELS"  # of the environment
TOKENS, MODELS_FOLDER = "/etc/edgewise/tokens", "/var/lib/edgewise/models"
TASK = "task"  # the kind of a process that is a task of a pipeline; others are gateways, workers and replicas
STATE_FOLDER = "/state"  # of a gateway
PAUSE_S, PATIENCE_S = 0.5, 240.0  # who has the models may come later
ASK_S, CHUNK_BYTES = 60.0, 2**20

log = logging.getLogger("edgewise.pod")


def main(
    environment: Mapping[str, str] = os.environ,
    tokens: Path = Path(TOKENS),
    models: Path = Path(MODELS_FOLDER),
    state: Path = Path(STATE_FOLDER),
) -> None:
    """Be the process that the environment names, until told to end.

    Raises:
        RunError: the environment names none, or a file of it cannot be had.
    """
    process, url = _told(environment)
    parts = _token(tokens, "parts")
    log_json()
    if process.kind == "gateway":
        return _be_gateway(process, url, parts, state)
    process = replace(process, settings=process.settings | brought(process.settings, url, models, parts))
    if process.kind == TASK:
        from edgewise.runtime.pipelines.task import in_pod

        return in_pod(process.port, parts)
    from edgewise.runtime.process.serving import Listen, run, run_worker
    from edgewise.runtime.process.working import worker_of

    where = Listen("0.0.0.0", process.port, token=parts, operators=(_token(tokens, "operator"),))
    run(run_worker(worker_of(process), where))


def _token(tokens: Path, name: str) -> str:
    return (tokens / name).read_text(encoding="utf-8").strip()


def _be_gateway(process: Process, url: str, token: str, state: Path) -> None:
    from edgewise.runtime.process.entry import be_gateway
    from edgewise.runtime.process.handing import Handing
    from edgewise.runtime.store.handed import CopiedStore

    handing = Handing(url, token, process.name, state)
    handing.begin(PATIENCE_S)
    handing.keep()
    cut = enumerate(process.settings["splits"].items())
    splits = {name: str(_cut(files, url, state / f"split-{k}", token)) for k, (name, files) in cut}
    process = replace(process, settings=process.settings | {"splits": splits})
    be_gateway(state, process, CopiedStore)
    handing.close()


def make_folder(folder: Path) -> None:
    """Make a folder that its owner alone may enter in a volume, which is root's and everybody's to write.

    A live system keeps its state in no folder that others could replace. Mounted by itself (`subPath`), this
    one is below folders of root alone.

    Raises:
        RunError: it cannot be made, or is somebody else's.
    """
    try:
        disk.make_inside(folder)
    except OSError as error:
        raise RunError(f"--make-folder {folder}: {error.strerror}") from error
    if folder.stat().st_uid != os.geteuid():
        raise RunError(f"--make-folder {folder}: belongs to user {folder.stat().st_uid}")


def _told(environment: Mapping[str, str]) -> tuple[Process, str]:
    missing = [name for name in (PROCESS, MODELS_URL) if not environment.get(name)]
    if missing:
        raise RunError(f"edgewise pod: {' and '.join(missing)} not set; the controller sets it in pods")
    return from_fields(json.loads(environment[PROCESS])), environment[MODELS_URL]


def brought(settings: Mapping[str, Any], url: str, models: Path, token: str) -> dict[str, str]:
    """Where the files of a worker are, once all are there: those of a network that is cut are in one folder.

    Args:
        settings: files by SHA-256, those of a network that is cut, and of a task, by name.
        models: a folder of this pod.
    Raises:
        RunError: one of them cannot be had.
    """
    if "file" not in settings:
        for name, sha256 in settings["files"].items():
            fetched(url, sha256, models / name, token)
        return {}
    if not settings["split"]:
        sha256 = settings["file"]
        return {"file": str(fetched(url, sha256, models / f"{sha256}.onnx", token))}
    folder = _cut(settings["split"], url, models / "split", token)
    return {"file": str(folder / settings["file"]), "split": str(folder)}


def _cut(files: Mapping[str, str], url: str, folder: Path, token: str) -> Path:
    """The folder of a network that is cut, with its files, which are given by SHA-256."""
    disk.make_inside(folder)
    for name, sha256 in files.items():
        fetched(url, sha256, folder / name, token)
    return folder


def fetched(url: str, sha256: str, file: Path, token: str, patience_s: float = PATIENCE_S) -> Path:
    """A model by its SHA-256, from whoever has it; it is asked again while it does not answer.

    Raises:
        RunError: there is none of that digest, or what comes is another one.
    """
    until_s = clock.monotonic_s() + patience_s
    while True:
        try:
            found = _taken(
                urllib.request.Request(f"{url}/{sha256}", headers={"Authorization": f"Bearer {token}"}), file
            )
            break
        except OSError as error:  # of the network, and what HTTP says
            if clock.monotonic_s() > until_s:
                raise RunError(f"model {sha256}: {url}: {error}") from error
            log.warning("no model yet", extra={"sha256": sha256, "url": url, "why": str(error)})
            time.sleep(PAUSE_S)
    if found != sha256:
        disk.remove(file)
        raise RunError(f"model {sha256}: {url} gives another one, {found}")
    return file


def _taken(request: urllib.request.Request, file: Path) -> str:
    """Write what comes to a file, whole; its SHA-256."""
    digest, part = hashlib.sha256(), file.with_name(f"{file.name}.part")
    with urllib.request.urlopen(request, timeout=ASK_S) as answer, disk.open_file(part, "wb") as written:
        while content := answer.read(CHUNK_BYTES):
            digest.update(content)
            written.write(content)
    disk.move(part, file)
    return digest.hexdigest()
