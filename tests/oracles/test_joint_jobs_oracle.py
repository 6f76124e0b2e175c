"""Ends of jobs beside a pipeline on a node that fails, by what was decided and one list of events."""

from itertools import product

import pytest

from edgewise.core.defer import EvictJob, ResumeJob, StartJob, SuspendJob
from joint_scenarios import mixed, run_of

FAILS_S, COMES_S = (None, 3.37, 11.19), (0.83, 7.61, 12.43)
WORK_S = 10.0


def ends(log, outage, restarts):
    """When each job ends, if nothing but these commands and the outage happens to it."""
    events = [(at_s, 1, command) for at_s, command in log]
    events += [(outage[0], 0, "down"), (outage[1], 0, "up")] if outage else []
    runs, done, up, found, now_s = set(), {}, True, {}, 0.0
    for at_s, _, what in [*sorted(events, key=lambda e: e[:2]), (float("inf"), 2, None)]:
        for job in sorted(runs) if up else ():
            if now_s + WORK_S - done[job] <= at_s + 1e-9:
                found[job] = now_s + WORK_S - done[job]
                runs.discard(job)
            else:
                done[job] += at_s - now_s
        now_s = at_s
        match what:
            case "down" | "up":
                up = what == "up"
                done = dict.fromkeys(done, 0.0) if restarts and not up else done
            case StartJob(job):
                runs.add(job)
                done[job] = 0.0
            case ResumeJob(job):
                runs.add(job)
            case SuspendJob(job) | EvictJob(job):
                runs.discard(job)
    return found


@pytest.mark.parametrize("how", ["pause", "restart"])
def test_jobs_end_when_a_list_of_events_says(how):
    moved = failed = ended = 0
    for fails_s, comes_s, lag_s, count in product(FAILS_S, COMES_S, (0.0, 1.0), (1, 2, 3)):
        outage = None if fails_s is None else (fails_s, fails_s + 6.53)
        timeline = [] if outage is None else list(zip(outage, (False, True), strict=True))
        jobs = [{"memory_bytes": "1.3GB", "when_evicted": how, "duration_s": WORK_S}] * count
        data = mixed(jobs, nodes=1, timeline=timeline, lag_s=lag_s, pipeline_at_s=comes_s)
        run, found = run_of(data, check=True)
        part, wanted = run.parts["jobs"], ends(run.joint.log, outage, how == "restart")
        assert {n: part.ended_s[n] for n in wanted} == pytest.approx(wanted, rel=0, abs=1e-9)
        assert set(wanted) == {row["job"] for row in found["jobs"] if row["started_s"] is not None}
        ended += len(wanted)
        moved += sum(isinstance(command, SuspendJob | EvictJob) for _, command in run.joint.log)
        failed += outage is not None
    assert moved > 10 and failed > 10 and ended > 60
