"""The controller asks the nursery for forks: one that has no time is not gone."""

import json
import socket
import threading
import time

import pytest

from edgewise.runtime.controller.nursery import Asking
from edgewise.runtime.store import Process

WANTED = Process("worker", "worker", 1)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(pair):
    ours, theirs = pair
    asking = Asking(ours, 0.05)
    with pytest.raises(TimeoutError):
        asking(WANTED)
    with pytest.raises(BlockingIOError):  # nobody waits again while it has no time
        asking(WANTED)
    until_s, fields = json.loads(theirs.recv(65536))
    assert until_s < time.monotonic() and fields["name"] == "worker"  # so it knows that it is late
    theirs.send(b"null")

    def answer():
        theirs.recv(65536)
        theirs.send(b"4711")

    asking.patience_s = 30.0
    answering = threading.Thread(target=answer)
    answering.start()
    assert asking(WANTED) == 4711
    answering.join()


def test_a_nursery_that_is_gone_or_cannot_fork_is_said(pair):
    ours, theirs = pair
    asking = Asking(ours, 30.0)
    theirs.send(b"null")
    with pytest.raises(ChildProcessError, match="cannot fork"):
        asking(WANTED)
    theirs.close()
    with pytest.raises(OSError):
        asking(WANTED)
