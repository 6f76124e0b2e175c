"""Ends of all kinds of work together equal those of a naive simulator: one list of events, plain Python.

What was decided is read off the run; who holds what, when each unit starts, waits, is cut, begins anew and
ends is worked out twice.
"""

from collections import Counter, defaultdict
from functools import partial

import numpy as np
import pytest
from joint_worlds import drawn
from naive_joint import Clock, Decided, Jobs, Pipelines
from naive_messages import Queries, Streams
from naive_requests import Requests

from edgewise.core.dispatch.events import ReplicaTold, RequestAgain, RequestArrived, RequestReturned, Send
from edgewise.core.holders import TOTAL
from edgewise.core.split import closed
from edgewise.core.split.core import QueryArrived, QueryLost
from edgewise.core.world import World
from edgewise.model.pipelines import network_of
from edgewise.sim.requests.sites import RequestSites
from edgewise.splitting import splitting
from edgewise.workloads.deferrable import jobs_apart, jobs_of
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.services import services_at_sites, simulated_services
from joint_scenarios import joint_run, run_out

CLOSE = {"rel": 0, "abs": 1e-9}


def watched(data, number, policies):
    """A run that has not begun, and where servers of its queries will be noted, as what sites say is."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("edgewise.run.services.RequestSites", partial(RequestSites, notes=1000))
        run, queries, again = joint_run(data, number, True, **policies), [], {}
    if "graphs" in run.parts:
        core = run.parts["graphs"].world.core
        handle = core.handle

        def noted(event):
            commands = handle(event)
            if isinstance(event, QueryArrived):
                queries.append(commands[0].servers.tolist())
            if isinstance(event, QueryLost):
                again.setdefault(event.query, []).append(commands[0].servers.tolist())
            return commands

        core.handle = noted
    return run, (queries, again)


def decisions(run):
    """By request, (time, command, what its site then thinks that it takes at least) of each decision."""
    if "services" not in run.parts:
        return {}
    sites, found, came, sent = run.parts["services"].sites, {}, {}, {}
    usual_s, least_s = (
        [known.tolist() for _ in sites.cores] for known in (sites.services.service_s, sites.services.least_s)
    )
    mine, queued = ([defaultdict(int) for _ in sites.cores] for _ in range(2))
    for d, event, commands in sites.log:
        if isinstance(event, ReplicaTold):
            queued[d][event.name] = max(event.queued, mine[d][event.name])
        if isinstance(event, RequestArrived):
            came[event.request] = event.service
        if isinstance(event, RequestReturned):
            name, alone = sent[event.request]
            mine[d][name] -= 1
            queued[d][name] -= 1
            if event.how == "answered" and alone and event.took_s > 0.0:
                s = came[event.request]
                usual_s[d][s] += 0.2 * (event.took_s - usual_s[d][s])
                step_s = 0.005 * usual_s[d][s]
                if event.took_s < least_s[d][s]:
                    least_s[d][s] = max(least_s[d][s] - 9 * step_s, event.took_s)
                else:
                    least_s[d][s] = min(least_s[d][s] + step_s, event.took_s)
        if isinstance(event, RequestArrived | RequestAgain | RequestReturned) and commands:
            if isinstance(command := commands[0], Send):
                sent[event.request] = command.replica, queued[d][command.replica] == 0
                mine[d][command.replica] += 1
                queued[d][command.replica] += 1
            takes_s = least_s[d][came[event.request]]
            found.setdefault(event.request, []).append((event.time_s, command, takes_s))
    return found


class NaiveJoint:
    """The world of a run that is over, worked out again."""

    def __init__(self, run, queries):
        scenario, seed = run.scenario, run.seed
        self.run, parts = run, run.parts
        streams = parts["streams"].outcome.commands if "streams" in parts else []
        self.clock = clock = Clock(scenario, Decided(list(run.joint.log), streams, decisions(run), *queries))
        self.streams = self.requests = self.pipelines = self.queries = self.jobs = None
        if "streams" in parts:
            simulation = parts["streams"].simulation
            self.streams = Streams(clock, simulation.world, simulation.trace, seed)
        if "services" in parts:
            given = simulated_services(scenario)
            news = scenario.telemetry.period_s, scenario.telemetry.lag_s
            asked = given.draw([seed]), seed, given.horizon_s, news
            self.requests = Requests(clock, services_at_sites(scenario, given), *asked)
        if "pipelines" in parts:
            before = ("pipelines", "jobs", TOTAL)  # the first share what is left, the others go for them
            spans = [each for each in run.holders.spans if each[2].work not in before and each[2].cores > 0.0]
            held = [(start_s, end_s, had.place, had.cores) for start_s, end_s, had in spans]
            network, ways = network_of(scenario), self.ways_of_images(scenario)
            self.pipelines = Pipelines(clock, pipelines_of(scenario, seed), network, held, ways)
        if "graphs" in parts:
            self.queries = self.split(parts["graphs"].world, scenario)
        if "jobs" in parts:
            jobs = jobs_of(scenario)
            pattern = jobs.pattern
            ways = None if run.wires is None or self.requests is None else self.ways(self.requests.services)
            self.jobs = Jobs(clock, jobs_apart(jobs, seed), pattern.slots, pattern.slot_s, ways)
        clock.run()

    def ways(self, services):
        """From nodes to the cloud, and back."""
        cloud, sites = services.clusters[0], services.system.site_of.tolist()
        return {
            node: tuple(self.clock.way(site, cloud, back) for back in (False, True))
            for node, site in zip(services.nodes, sites, strict=True)
        }

    def ways_of_images(self, scenario):
        """By node, links over which images come from the cloud; alone at what rate, and how much later."""
        world, found = World.build(scenario.catalog, scenario.topology, scenario.sharing), {}
        cloud = world.cluster_names.index("cloud")
        for node in scenario.topology.nodes:
            if node.cluster != "cloud":
                c = world.cluster_names.index(node.cluster)
                site = int((world.access_delay_s + world.delay_s[:, c]).argmin())
                chain = self.clock.way(site, cloud, back=True) if self.clock.shared else []
                rate_bps = min(world.uplink_bps[site], world.bandwidth_bps[site, cloud])
                delay_s = world.access_delay_s[site] + world.delay_s[site, cloud]
                found[node.name] = chain, float(rate_bps), float(delay_s)
        return found

    def split(self, world, scenario):
        nodes = [node for node in scenario.topology.nodes if node.speed_ops > 0]
        (link,) = [link for link in scenario.topology.links if link.ends == ("near", "near")]
        if self.clock.shared and link.over:
            chain = self.clock.chain(self.clock.routes.between["near", "near"])
        else:
            chain = self.clock.own_link(link.bandwidth_bps)
        graphs = [closed(job.graph) for job in splitting(scenario).program.classes]
        names, ops = [node.name for node in nodes], [node.speed_ops for node in nodes]
        start_s = scenario.graphs[0].start_s
        sent = world.sent_s.tolist(), world.jobs.tolist()
        return Queries(self.clock, graphs, *sent, names, ops, chain, start_s)


def same(found, wanted, what):
    assert found.keys() == wanted.keys(), what
    assert found == pytest.approx(wanted, **CLOSE), what


def check_streams(naive, rows):
    """Of queries that are sent again at one moment, rounding may say which comes first."""
    naive.streams.finish()
    try:
        compare_streams(naive, rows)
    except AssertionError:
        if not naive.streams.tied:
            raise
        naive.streams.otherwise = True


def compare_streams(naive, rows):
    for row, wanted, delays in zip(rows, naive.streams.outcome, naive.streams.delays, strict=True):
        assert {key: row[key] for key in wanted} == wanted, row
        means = (row["delay_mean_s"] or 0.0, row["delay_max_s"] or 0.0)
        assert means == pytest.approx((np.mean(delays or [0.0]), max(delays, default=0.0)), **CLOSE), row


def check_requests(naive, rows):
    found = naive.requests
    assert [row["request"] for row in rows] == [i for i, s in enumerate(found.state) if s != "unseen"]
    for row in rows:
        i = row["request"]
        outcome = {"sent": "waiting", "worked_on": "waiting"}.get(found.state[i], found.state[i])
        names = ("cloud", *found.services.nodes)
        wanted = outcome, None if found.station[i] is None else names[found.station[i]], found.ended.get(i)
        assert (row["outcome"], row["station"]) == wanted[:2], (row, found.state[i])
        assert row["end_s"] == (wanted[2] and pytest.approx(wanted[2], **CLOSE)), (row, wanted)
    assert all(not left for left in found.decided.values())


def check_queries(naive, rows):
    found = naive.queries
    ended = {row["query"]: row["sent_s"] + row["time_s"] for row in rows if row["time_s"] is not None}
    same(ended, found.ended, "ends of queries")


def check_pipelines(naive, rows):
    found = naive.pipelines
    same({i: r["start_s"] for i, r in enumerate(rows) if r["start_s"] is not None}, found.started, "starts")
    same({i: r["finish_s"] for i, r in enumerate(rows) if r["finish_s"] is not None}, found.finished, "ends")
    assert [row["frames"] for row in rows] == pytest.approx(found.frames, rel=1e-9, abs=1e-9)
    assert [row["migrations"] for row in rows] == found.moves


def check_jobs(naive, part):
    found = naive.jobs
    found.finish()
    same({n: t for n, t in enumerate(part.ended_s.tolist()) if t == t}, found.ended, "ends of jobs")
    same({n: t for n, t in enumerate(part.start_s.tolist()) if t == t}, found.started, "starts of jobs")
    assert part.suspended_s.tolist() == pytest.approx(found.suspended, **CLOSE)
    assert part.redone_s.tolist() == pytest.approx(found.redone, **CLOSE)
    assert part.moves.tolist() == found.moves


def check_links(naive, wires):
    links, clock = wires.net.links, naive.clock
    many = len(clock.capacity)
    assert links.carried_bits.tolist() == pytest.approx(clock.carried[:many], rel=1e-9)
    assert links.dropped.tolist() == clock.dropped[:many]
    assert links.rate_bps.tolist() == pytest.approx([link.rate for link in clock.links[:many]], rel=1e-9)


def compared(number, **given):
    """A run and its naive copy, which agree."""
    data, policies = drawn(number, **given)
    run, queries = watched(data, number, policies)
    rows = run_out(run)
    naive = NaiveJoint(run, queries)
    checks = {"streams": check_streams, "services": check_requests, "pipelines": check_pipelines,
              "graphs": check_queries}  # fmt: skip
    for work in rows:
        if work == "jobs":
            check_jobs(naive, run.parts["jobs"])
        else:
            checks[work](naive, rows[work])
    if run.wires is not None:
        check_links(naive, run.wires)
    return run, rows, naive


def happened(run, rows, naive):
    """How often what is to be tested happens in a world."""
    found = Counter(
        all_kinds=len(rows) == 5,
        failures=any(not change.up for change in run.scenario.timeline),
        reserved=naive.clock.reserves,
        dropped=sum(naive.clock.dropped),
        otherwise=int(naive.streams.otherwise),
        queries_failed=sum(each["failed"] for each in naive.streams.outcome),
        answered=sum(map(len, naive.streams.delays)),
    )
    if naive.requests is not None:
        log = run.parts["services"].sites.log
        found["requests_again"] = sum(
            bool(said) and not isinstance(event, RequestArrived) for _, event, said in log
        )
        found["images"] = naive.requests.pulled
    if naive.pipelines is not None:
        found["pipelines_moved"] = sum(naive.pipelines.moves)
        found["pipelines_stopped"] = len(naive.pipelines.stopped)
        found["pipelines_images"] = naive.pipelines.pulled
    if naive.jobs is not None:
        found["jobs_moved"], found["jobs_ended"] = sum(naive.jobs.moves), len(naive.jobs.ended)
    if naive.queries is not None:
        found["queries_split"], found["tensors_lost"] = len(naive.queries.ended), len(naive.queries.lost)
        found["begun_anew"], found["elsewhere"] = naive.queries.anew, naive.queries.elsewhere
    return found


def test_jobs_whose_checkpoints_go_over_links_end_when_a_list_of_events_says():
    """Also what is reserved of each link, and since when."""
    kept = anew = 0
    for number in range(24):
        data, policies = drawn(number)
        for job in data.get("jobs", {}).get("submitted", ()):
            if job["checkpoint_s"] is not None:
                job["checkpoint_bytes"] = 1e5
        run, queries = watched(data, number, policies)
        rows = run_out(run)
        if "jobs" not in rows:
            continue
        naive = NaiveJoint(run, queries)
        check_jobs(naive, run.parts["jobs"])
        kept, anew = kept + naive.jobs.kept, anew + sum(saved > 0.0 for saved in naive.jobs.saved)
        if run.wires is not None:
            rates = [link.rate for link in naive.clock.links[: len(naive.clock.capacity)]]
            assert run.wires.net.links.rate_bps.tolist() == pytest.approx(rates, rel=1e-9)
    assert kept > 50 and anew > 1  # who began anew from one that had come


@pytest.mark.parametrize("first", range(0, 102, 34))
def test_all_kinds_of_work_end_when_a_list_of_events_says(first):
    seen = sum((happened(*compared(number)) for number in range(first, first + 34)), Counter())
    wanted = Counter(all_kinds=18, failures=24, reserved=80, dropped=10, queries_failed=600, answered=6000,
                     requests_again=200, images=30, pipelines_moved=2, pipelines_stopped=6, jobs_moved=12,
                     jobs_ended=30, queries_split=1600, elsewhere=30, pipelines_images=40)  # fmt: skip
    assert seen >= wanted and seen["otherwise"] < 6, seen
