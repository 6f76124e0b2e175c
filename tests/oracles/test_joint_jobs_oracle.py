"""Ends of jobs, and what they do twice, beside a pipeline on a node that fails, by one list of events."""

from collections import Counter
from itertools import product

import pytest

from edgewise.core.defer import EvictJob, ResumeJob, StartJob, SuspendJob
from joint_scenarios import mixed, run_of

FAILS_S, COMES_S = (None, 3.37, 11.19), (0.83, 7.61, 12.43)
WORK_S = 10.0


def ends(log, outage, every_s):
    """When each job ends, and how long it ran in vain, if only these commands and the outage happen to it."""
    events = [(at_s, 1, command) for at_s, command in log]
    events += [(outage[0], 0, "down"), (outage[1], 0, "up")] if outage else []
    runs, done, up, found, now_s, vain = set(), {}, True, {}, 0.0, Counter()

    def fall_back(job):
        kept = 0.0 if every_s is None else every_s * int(done[job] / every_s + 1e-9)
        vain[job] += done[job] - kept
        done[job] = kept

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
                if not up:  # with the node, all jobs there
                    for job in done.keys() - found.keys():
                        fall_back(job)
                    runs.clear()
            case StartJob(job):
                runs.add(job)
                done.setdefault(job, 0.0)
            case ResumeJob(job):
                runs.add(job)
            case SuspendJob(job):
                runs.discard(job)
            case EvictJob(job):
                runs.discard(job)
                fall_back(job)
    return found, vain


@pytest.mark.parametrize("every_s", [None, 2.3])
@pytest.mark.parametrize("how", ["pause", "restart"])
def test_jobs_end_when_a_list_of_events_says(how, every_s):
    moved = failed = ended = redone_s = 0
    for fails_s, comes_s, lag_s, count in product(FAILS_S, COMES_S, (0.0, 1.0), (1, 2, 3)):
        outage = None if fails_s is None else (fails_s, fails_s + 6.53)
        timeline = [] if outage is None else list(zip(outage, (False, True), strict=True))
        jobs = count * [
            {"memory_bytes": "1.3GB", "when_evicted": how, "duration_s": WORK_S, "checkpoint_s": every_s}
        ]
        data = mixed(jobs, nodes=1, timeline=timeline, lag_s=lag_s, pipeline_at_s=comes_s)
        run, found = run_of(data, check=True)
        wanted, vain = ends(run.joint.log, outage, every_s)
        said = {row["job"]: row["ended_s"] for row in found["jobs"] if row["ended_s"] is not None}
        assert said == pytest.approx({n: at_s for n, at_s in wanted.items() if at_s <= 60.0}, rel=0, abs=1e-9)
        again_s = {row["job"]: row["redone_s"] for row in found["jobs"]}
        assert again_s == pytest.approx({n: vain[n] for n in again_s}, rel=0, abs=1e-9)
        assert set(wanted) == {row["job"] for row in found["jobs"] if row["started_s"] is not None}
        redone_s += sum(again_s.values())
        ended += len(wanted)
        moved += sum(isinstance(command, SuspendJob | EvictJob) for _, command in run.joint.log)
        failed += outage is not None
    assert moved > 10 and failed > 10 and ended > 60 and (redone_s > 100.0) == (every_s is None)
