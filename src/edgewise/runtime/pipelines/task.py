"""One task as a process: frames in, the user's function, frames out.

A thread reads each input and a thread writes each output, each with room for one frame, so that transfer and
computation overlap and a full flow stops the task. Standard input brings a line with the `TaskSetting`, then
"go", then new rates; its end ends the process. Standard output takes a line of JSON about every
quarter of a second: frames, time of the function, bytes of each flow.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from edgewise.runtime.pipelines.wire import Meter, TokenBucket, accept, connect, listen, receive, send
from edgewise.workloads.task_code import NOTHING, decode, encode

PERIOD_S = 0.25
CATCH_UP_S = 0.05  # by which a task may make up for a processor that was not free at once
LOST = "lost its neighbour"  # what those say whose neighbour failed


class FlowTarget(TypedDict):
    """Where an output goes; `rate_bps` is None where the backend shapes."""

    address: str
    port: int
    rate_bps: float | None


class TaskSetting(TypedDict):
    """What a task process must know.

    Attributes:
        code, function: the user's file and function; both None for the source.
        frames: of the source: files that it sends in turn, again and again.
        address: of this node.
        inputs: ports to listen on, in the order of the predecessors.
        outputs: flows out.
        least_s: a frame takes at least so long here, which makes a fast machine act as a slow node.
        secret: that senders of frames show first; tasks of one session know it, and nobody else.
    """

    code: str | None
    function: str | None
    frames: list[str]
    address: str
    inputs: list[int]
    outputs: list[FlowTarget]
    least_s: float
    secret: str


class TaskProcess:
    """The process of one task; `run` never returns."""

    def __init__(self, setting: TaskSetting) -> None:
        self.setting = setting
        self.done, self.busy_s = 0, 0.0
        self.into = [queue.Queue[bytes](1) for _ in setting["inputs"]]
        self.out = [queue.Queue[bytes](1) for _ in setting["outputs"]]
        self.received = [Meter() for _ in setting["inputs"]]
        self.sent = [Meter() for _ in setting["outputs"]]
        self.buckets = [
            None if out["rate_bps"] is None else TokenBucket(out["rate_bps"]) for out in setting["outputs"]
        ]

    def run(self) -> None:
        """Listen, say so, wait for "go", connect, and work."""
        listeners = [listen(self.setting["address"], port) for port in self.setting["inputs"]]
        function = None if self.setting["function"] is None else _load(self.setting)
        self._say({"ready": True})
        if sys.stdin.readline().strip() != "go":
            return
        for i, listener in enumerate(listeners):
            _thread(self._read, i, listener)
        for i in range(len(self.out)):
            _thread(self._write, i)
        _thread(self._obey)
        _thread(self._report)
        self._work(function)

    def _work(self, function: Callable[[Any], Any] | None) -> None:
        frames = self._source() if function is None else None
        least_s, finish_s = self.setting["least_s"], 0.0
        while True:
            given = [q.get() for q in self.into]
            began_s = time.monotonic()
            if frames is not None:
                output = next(frames)
            elif function is not None and NOTHING not in given:
                output = _call(function, [decode(data) for data in given])
            else:
                output = NOTHING
            now_s = time.monotonic()
            self.busy_s += max(now_s - began_s, least_s)
            finish_s = max(finish_s, began_s - CATCH_UP_S) + least_s  # on the node that this one stands for
            if now_s < finish_s:
                time.sleep(finish_s - now_s)
            self.done += 1
            for q in self.out:
                q.put(output)

    def _source(self) -> Iterator[bytes]:
        return itertools.cycle([b"b" + Path(name).read_bytes() for name in self.setting["frames"]])

    def _read(self, i: int, listener: Any) -> None:
        sock = accept(listener, self.setting["secret"].encode())
        while (data := receive(sock, self.received[i])) is not None:
            self.into[i].put(data)

    def _write(self, i: int) -> None:
        to = self.setting["outputs"][i]
        sock = connect(self.setting["address"], to["address"], to["port"])
        sock.sendall(self.setting["secret"].encode())
        while True:
            send(sock, self.out[i].get(), self.sent[i], self.buckets[i])

    def _obey(self) -> None:
        """New rates by port, one mapping a line, until the manager is gone."""
        for line in sys.stdin:
            rates = json.loads(line)
            for out, bucket in zip(self.setting["outputs"], self.buckets, strict=True):
                if bucket is not None and str(out["port"]) in rates:
                    bucket.set_rate(float(rates[str(out["port"])]))
        os._exit(0)

    def _report(self) -> None:
        while True:
            time.sleep(PERIOD_S)
            ins = zip(self.setting["inputs"], self.received, strict=True)
            outs = zip(self.setting["outputs"], self.sent, strict=True)
            self._say(
                {
                    "at_s": time.monotonic(),
                    "frames": self.done,
                    "busy_s": self.busy_s,
                    "bytes": {port: meter.count_bytes for port, meter in ins},
                    "held_s": {out["port"]: meter.held_s for out, meter in outs},
                }
            )

    @staticmethod
    def _say(what: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def _thread(run: Callable[..., None], *args: Any) -> None:
    def guarded() -> None:
        try:
            run(*args)
        except (ConnectionError, TimeoutError) as error:
            _fail(f"{LOST}: {error}")
        except Exception as error:
            _fail(f"{type(error).__name__}: {error}")

    threading.Thread(target=guarded, daemon=True).start()


def _load(setting: TaskSetting) -> Callable[[Any], Any]:
    assert setting["code"] is not None and setting["function"] is not None
    spec = importlib.util.spec_from_file_location("edgewise_user_pipeline", setting["code"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded: Callable[[Any], Any] = getattr(module, setting["function"])
    return loaded


def _call(function: Callable[[Any], Any], inputs: Sequence[Any]) -> bytes:
    result = function(inputs[0] if len(inputs) == 1 else inputs)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], bool)):
        raise TypeError(f"returned {str(result)[:60]!r}; a task returns True, output (False drops the frame)")
    return encode(result[1]) if result[0] else NOTHING


def _fail(text: str) -> None:
    sys.stdout.write(json.dumps({"error": text}) + "\n")
    sys.stdout.flush()
    os._exit(1)


def main() -> None:
    """The process: one line of setting, then the work."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        TaskProcess(json.loads(sys.stdin.readline())).run()
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
