"""What edgewise reads of a `batch/v1` Job, and what it makes of a submission, without a cluster."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("lightkube", reason="needs the extra kubernetes")

from lightkube.resources.batch_v1 import Job

from edgewise.errors import ScenarioError
from edgewise.runtime.backends.kubernetes import Pods
from edgewise.runtime.backends.kubernetes.job_manifest import job_of, stopped
from edgewise.runtime.backends.kubernetes.job_seen import (
    EARLIEST,
    EVERY,
    LASTS,
    LATEST,
    PRIORITY,
    QUEUE,
    RUN,
    STOPPED,
    job_seen,
    name_in,
    wish_of,
)
from edgewise.runtime.store.jobs import RESTART, Wish

MADE = "2026-11-27T20:00:00Z"
MADE_S = datetime(2026, 11, 27, 20, tzinfo=UTC).timestamp()
PODS = Pods("site", "image:1", "http://models:9000")


def written(notes, spec=None, status=None, **meta):
    """A Job as an API server would give it."""
    inside = {
        "name": "c",
        "image": "trainer:1",
        "args": ["train"],
        "resources": {"requests": {"cpu": "500m"}},
    }
    whole = {"suspend": True, "template": {"spec": {"containers": [inside]}}} | (spec or {})
    named = {"name": "night", "uid": "u1", "resourceVersion": "7", "creationTimestamp": MADE}
    return Job.from_dict(
        {"metadata": named | {"annotations": notes} | meta, "spec": whole, "status": status or {}}
    )


def test_a_window_is_a_time_or_how_long_after_it_was_made():
    wish = wish_of(written({LATEST: "8h", LASTS: "30m", PRIORITY: "-3", EVERY: "90s"}, {"parallelism": 2}))
    assert wish == Wish(
        key="job/night/u1", command=("train",), folder="", cores=1.0, memory_bytes=0.0, duration_s=1800.0,
        earliest_s=MADE_S, latest_s=MADE_S + 8 * 3600, priority=-3, when_evicted=RESTART, checkpoint_s=90.0,
    )  # fmt: skip
    assert name_in(wish.key) == "night" and name_in("0a1b") == ""
    at = wish_of(
        written({EARLIEST: "2026-11-28T01:00:00+01:00", LATEST: "5h"}, {"activeDeadlineSeconds": 60})
    )
    assert (at.earliest_s, at.latest_s, at.duration_s) == (MADE_S + 4 * 3600, MADE_S + 5 * 3600, 60.0)


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ({LASTS: "1h"}, f"{LATEST}: is missing; write a time"),
        ({LATEST: "8h"}, f"{LASTS}: is missing, as is activeDeadlineSeconds"),
        ({LATEST: "soon", LASTS: "1h"}, f"{LATEST}: 'soon' is no time; write 2026-12-24T08:00:00Z"),
        ({LATEST: "2026-11-28T01:00:00", LASTS: "1h"}, "is no time"),  # of which zone
        ({LATEST: "1h", EARLIEST: "2h", LASTS: "1h"}, f"{LATEST}: '1h' is before it may start"),
        ({LATEST: "1h", LASTS: "long"}, f"{LASTS}: 'long' is no duration"),
        ({LATEST: "1h", LASTS: "1h", PRIORITY: "high"}, f"{PRIORITY}: 'high' is no whole number between"),
    ],
)  # fmt: skip
def test_what_cannot_be_names_the_annotation_its_value_and_the_fix(notes, words):
    with pytest.raises(ScenarioError, match="edgewise/") as said:
        wish_of(written(notes))
    assert words in str(said.value)
    seen = job_seen(written(notes))
    assert seen.wish is None and seen.fault == str(said.value)


def test_a_job_that_asks_for_no_cores_is_told_to():
    bare = {"template": {"spec": {"containers": [{"name": "c", "image": "trainer:1"}]}}}
    with pytest.raises(ScenarioError, match="write what they need"):
        wish_of(written({LATEST: "8h", LASTS: "1h"}, bare))


def test_what_is_submitted_is_a_job_that_says_the_same():
    wish = Wish(
        key="0a1b", command=("python", "train.py"), folder="/somewhere", cores=1.5, memory_bytes=2e9,
        duration_s=600.0, earliest_s=MADE_S + 60, latest_s=MADE_S + 3600.5, priority=4, when_evicted=RESTART,
        checkpoint_s=30.0,
    )  # fmt: skip
    made = job_of(wish, PODS)
    made["metadata"] |= {"creationTimestamp": MADE, "uid": "u2"}
    read = wish_of(Job.from_dict(made))
    assert read.key == f"job/{made['metadata']['name']}/u2" and read.folder == ""
    for name in ("command", "cores", "memory_bytes", "duration_s", "earliest_s", "latest_s", "priority"):
        assert getattr(read, name) == getattr(wish, name), name
    assert job_of(wish, PODS)["metadata"]["name"] == made["metadata"]["name"], "a repeated one is the same"
    pod = made["spec"]["template"]["spec"]
    assert made["spec"]["suspend"] and pod["securityContext"]["runAsNonRoot"]


def test_a_suspended_job_stands_still_once_no_pod_of_it_is_left():
    stands = {"conditions": [{"type": "Suspended", "status": "True"}]}
    notes = {RUN: "site/1", STOPPED: "site/1"}
    assert job_seen(written(notes, status=stands)).settled
    assert not job_seen(written(notes, status=stands | {"terminating": 1})).settled
    assert not job_seen(written(notes, status={"active": 1})).settled
    assert stopped("site/1") == {"metadata": {"annotations": {STOPPED: "site/1"}}, "spec": {"suspend": True}}


def test_how_a_job_ended_is_its_condition():
    ended = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    seen = job_seen(written({}, status={"conditions": [ended]}))
    assert (seen.finished, seen.why) == ("Failed", "BackoffLimitExceeded: too often")
    assert job_seen(written({})).finished is None
    assert job_seen(written({}, labels={QUEUE: "night"})).kueue
