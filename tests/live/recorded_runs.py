"""Runs that remember what they were given, for tests of the worker's queue."""

import threading

import numpy as np

from edgewise.runtime.protocol.messages import InferRequest, InferResponse
from waiting import becomes, takes


class Recorder:
    """Runs batches and remembers them; with `held` the first one runs until it is let go."""

    def __init__(self, held=False):
        self.batches, self.go = [], threading.Event()
        if not held:
            self.go.set()

    async def begun(self):
        await becomes(lambda: self.batches)

    def __call__(self, requests):
        self.batches.append([int(request.id) for request in requests])
        assert self.go.wait(20)
        return [InferResponse("m", dict(request.inputs), request.id) for request in requests]


def item(number, n=1, width=8):
    return InferRequest({"x": np.full((n, width), number, np.float32)}, id=str(number))


class Where:
    """Runs queries and remembers whether that was in the event loop's thread."""

    def __init__(self, takes_s=0.0):
        self.in_place, self.takes_s = [], takes_s

    def __call__(self, requests):
        self.in_place.append(threading.current_thread() is threading.main_thread())
        takes(self.takes_s)
        return [InferResponse("m", dict(request.inputs), request.id) for request in requests]
