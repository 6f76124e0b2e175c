"""All kinds of work on the same nodes and links, naively: one list of events, plain Python, no cleverness.

What was decided is given (`Decided`); how long everything takes, what it waits for and what a dead node takes
with it is worked out. Jobs and pipelines are here, other work in `naive_messages` and `naive_requests`.
"""

import heapq
import math
from dataclasses import dataclass
from typing import Any

from naive_links import CALL, COMES, Link, Message, NaiveLinks

from edgewise.model.ways import routes_of

NODE, COMMAND = -2, -1  # before all else at one time
RIDER = (1,)  # of what comes at one time: behind all streams
ROUNDING_S = 1e-11  # between two ways to reckon one moment
KEPT, TOLERANCE = 0.1, 1e-6  # of a link for messages; relative, of a link that is full


@dataclass
class Decided:
    """What a run decided.

    Attributes:
        plane: (time, command) of replicas, pipelines and jobs.
        streams: (time, command) of `Bind`, `Release` and `Refuse`.
        requests: by number, [(time, command, time that its site thinks that it takes at least)].
        queries: by number, servers of the tasks.
        again: by number, the same of a query that servers lost, each time.
    """

    plane: list[Any]
    streams: list[Any]
    requests: dict[int, Any]
    queries: list[Any]
    again: dict[int, Any]


class Clock(NaiveLinks):
    """Events in order, and links on which messages, flows and pulls are.

    Attributes:
        dead: names of nodes.
        parts: told what happens to nodes, and commands.
    """

    def __init__(self, scenario, decided):
        self.scenario, self.decided, self.sharing = scenario, decided, scenario.sharing
        self.routes = routes_of(scenario.topology)
        shared = list(zip(self.routes.rate_bps, 8.0 * self.routes.buffer_bytes, strict=True))
        super().__init__(shared, "ps" if scenario.sharing == "ps" else "fifo")
        self.capacity = [link.rate for link in self.links]
        self.flows, self.reserved, self.pulls = [0.0] * len(shared), [0.0] * len(shared), []
        self.carried, self.dropped = [0.0] * len(shared), [0] * len(shared)
        self.shared, self.reserves = scenario.sharing != "none", 0
        self.changes, self.private, self.turn, self.number = [], {}, {}, 0
        self.dead, self.parts, self.now_s = set(), [], 0.0

    def own_link(self, bps):
        """A link that only one kind of work uses."""
        self.links.append(Link(bps))
        self.carried.append(0.0)
        self.dropped.append(0)
        return [(len(self.links) - 1, 0.0)]

    def chain(self, row):
        pairs = zip(self.routes.link[row], self.routes.before[row], strict=True)
        return [(int(j), float(share)) for j, share in pairs if j >= 0]

    def way(self, site, cluster, back=False):
        clusters = len(self.scenario.topology.clusters)
        return self.chain((site + back * len(self.scenario.topology.sites)) * clusters + cluster)

    def add(self, at_s, kind, what):
        heapq.heappush(self.events, (at_s, kind, RIDER, next(self.order), what))

    def at(self, at_s, what, *given):
        self.add(at_s, CALL, lambda now_s: what(now_s, *given))

    def post(self, chain, leaves_s, there_s, bits, private_bps, then, at_least_s=0.0, turn=RIDER):
        """Send a message now; `then(at_s, lost)` is called when it is there.

        Args:
            at_least_s: when it is there at the soonest; delay on the way makes up for it.
            turn: of two that are there at one time, to fifteen digits, who goes first.
        """
        number, self.number = self.number, self.number + 1
        self.turn[number] = turn
        rates = [self.links[j].rate for j, _ in chain]
        tx_s = bits / min([private_bps, *(rate for rate in rates if rate > 0)])
        due_s = max(at_least_s, leaves_s + there_s + tx_s)
        self.private[number], self.then[number] = private_bps, then
        message = Message(number, chain, leaves_s, max(due_s - leaves_s - tx_s, 0.0), bits)
        self.leave(message)
        return message

    def finish(self, m, links):
        m.done += links
        if m.done >= len(m.route):
            own_s = m.most_s if self.sharing == "fifo" else m.tx_s
            at_s = max(m.leaves_s + m.there_s + own_s + m.wait_s, self.now_s)
            what = lambda now_s: self.then.pop(m.number)(now_s, m.lost)  # noqa: E731
            heapq.heappush(self.events, (round(at_s, 13), CALL, self.turn[m.number], next(self.order), what))

    def come(self, now_s, m, j):
        before = len(self.links[j].line)
        super().come(now_s, m, j)
        dropped = len(self.links[j].line) == before
        self.dropped[j] += dropped
        self.carried[j] += 0.0 if dropped else m.bits

    # rates

    def pull(self, now_s, chain, bits, done):
        pull = {"links": [j for j, _ in chain], "left": bits, "rate": 0.0, "since": now_s, "done": done}
        self.pulls.append(pull)
        self.refill(now_s)
        return pull

    def cancel(self, now_s, pull):
        if pull in self.pulls:
            self.pulls.remove(pull)
            self.refill(now_s)

    def set_flows(self, now_s, flows):
        flows = [c if c - f < TOLERANCE * c else f for c, f in zip(self.capacity, flows, strict=True)]
        if flows != self.flows:
            self.flows = flows
            self.refill(now_s)

    def refill(self, now_s):
        """Pulls share what flows leave of nine tenths, all alike up to where that is full."""
        for pull in self.pulls:
            pull["left"] -= pull["rate"] * (now_s - pull["since"])
            pull["since"], pull["rate"] = now_s, 0.0
        free = [max(c * (1.0 - KEPT) - f, 0.0) for c, f in zip(self.capacity, self.flows, strict=True)]
        growing = list(self.pulls)
        while growing:
            count = [sum(j in pull["links"] for pull in growing) for j in range(len(free))]
            step, full = min((free[j] / n, j) for j, n in enumerate(count) if n)
            for pull in growing:
                pull["rate"] += step
            free = [left - step * n for left, n in zip(free, count, strict=True)]
            growing = [pull for pull in growing if full not in pull["links"]]
        reserved = list(self.flows)
        for pull in self.pulls:
            for j in pull["links"]:
                reserved[j] += pull["rate"]
            if pull["rate"] > 0.0:
                end_s = now_s + max(pull["left"], 0.0) / pull["rate"]
                self.add(
                    end_s, CALL, lambda at_s, p=pull, s=now_s, r=pull["rate"]: self.pulled(at_s, p, s, r)
                )
        self.reserved = reserved

    def settle(self, now_s):
        """All that happens at one time has happened: links have other rates from now on."""
        changed = []
        for j, (capacity, taken) in enumerate(zip(self.capacity, self.reserved, strict=True)):
            if (rate := max(capacity - taken, 0.0)) != self.links[j].rate:
                self.reserves += 1
                self.count_down(j, now_s)
                self.links[j].rate = rate
                changed.append(j)
        for j in changed:
            self.announce(j, now_s)

    def pulled(self, now_s, pull, since_s, rate):
        if any(pull is each for each in self.pulls) and (pull["since"], pull["rate"]) == (since_s, rate):
            self.pulls = [each for each in self.pulls if each is not pull]
            self.refill(now_s)
            pull["done"](now_s)

    # what happens

    def run(self):
        for change in self.scenario.timeline:
            self.add(change.at_s, NODE, change)
        for at_s, command in self.decided.plane + self.decided.streams:
            self.add(at_s, COMMAND, command)
        while True:
            if not self.events or self.events[0][0] > self.now_s + ROUNDING_S:
                self.settle(self.now_s)
            if not self.events:
                return
            self.now_s, kind, *_, what = heapq.heappop(self.events)
            if kind == CALL:
                what(self.now_s)
            elif kind == COMES:
                self.come(self.now_s, *what)
            elif kind == NODE:
                (self.dead.discard if what.up else self.dead.add)(what.node)
                for part in self.parts:
                    (part.repaired if what.up else part.failed)(self.now_s, what.node)
            elif kind == COMMAND:
                for part in self.parts:
                    part.told(self.now_s, what)
            elif what[1] == self.links[what[0]].stamp:
                self.passed(what[0], self.now_s)


class Part:
    """A kind of work to which nothing happens."""

    def __init__(self, clock):
        self.clock = clock
        clock.parts.append(self)

    def failed(self, now_s, node):
        """A node has died."""

    def repaired(self, now_s, node):
        """It is back."""

    def told(self, now_s, command):
        """A command of a core."""


class Jobs(Part):
    """Of each job when it ended, started last, how long it was suspended and how long it ran in vain.

    Nothing is noted once the last slot is over. `ways`: links from each node to where checkpoints are kept,
    and back, of nodes that are elsewhere; None: checkpoints weigh nothing.
    """

    def __init__(self, clock, jobs, slots, slot_s, ways=None):
        super().__init__(clock)
        self.ways, self.arrived, self.sending, self.pulling, self.fetching = ways, {}, {}, {}, set()
        self.kept = 0
        self.jobs, self.end_s = jobs, slots * slot_s
        self.length_s = [job.in_slots(slot_s)[3] * slot_s for job in jobs]
        self.node, self.left, self.since = {}, {}, {}  # since: of those that make progress
        self.paused, self.suspended = {}, [0.0] * len(jobs)
        self.ended, self.started, self.moves = {}, {}, [0] * len(jobs)
        self.redone, self.saved = [0.0] * len(jobs), [0.0] * len(jobs)
        self.fallen = set()  # with their node, and nobody said yet that they begin anew

    def told(self, now_s, command):
        kind, job = type(command).__name__, getattr(command, "job", None)
        if kind not in ("StartJob", "SuspendJob", "ResumeJob", "EvictJob"):
            return
        if job in self.ended or now_s > self.end_s:
            return
        if kind == "StartJob":
            self.node[job] = command.node
            self.started.setdefault(job, now_s)
            self.left[job] = self.length_s[job] - self.saved[job]
            (self.fetching.add if self.weighs(job) and self.saved[job] else self.fetching.discard)(job)
            self.go_on(now_s, job)
        elif kind == "ResumeJob":
            self.suspended[job] += now_s - self.paused.pop(job)
            self.go_on(now_s, job)
        else:
            self.stop(now_s, job)
            self.moves[job] += 1
            if kind == "SuspendJob":
                self.paused[job] = now_s
            else:
                self.fall_back(job)
                self.fallen.discard(job)
                if job in self.paused:
                    self.suspended[job] += now_s - self.paused.pop(job)
                del self.node[job], self.left[job]

    def weighs(self, job):
        return self.ways is not None and self.jobs[job].checkpoint_s and self.jobs[job].checkpoint_bytes

    def stop(self, now_s, job):
        if job in self.pulling and now_s <= self.end_s:
            self.clock.cancel(now_s, self.pulling.pop(job))
        if job in self.since:
            self.left[job] -= now_s - self.since.pop(job)

    def go_on(self, now_s, job):
        if self.node[job] in self.clock.dead:
            return
        if job in self.fetching:
            return self.pull(now_s, job, 1, self.fetched)
        self.since[job] = now_s
        self.clock.at(now_s + self.left[job], self.end, job, now_s)
        if self.weighs(job):
            done, mark = self.length_s[job] - self.left[job], self.jobs[job].checkpoint_s
            while mark <= done * (1 + 1e-12):
                mark += self.jobs[job].checkpoint_s
            self.clock.at(now_s + mark - done, self.write, job, now_s, mark)
            if job in self.sending:
                self.pull(now_s, job, 0, self.there)

    def write(self, now_s, job, since_s, mark):
        if self.since.get(job) != since_s or mark >= self.length_s[job] * (1 - 1e-9) or now_s > self.end_s:
            return
        if job not in self.sending:
            self.sending[job] = mark
            self.pull(now_s, job, 0, self.there)
        every_s = self.jobs[job].checkpoint_s
        self.clock.at(now_s + every_s, self.write, job, since_s, mark + every_s)

    def pull(self, now_s, job, back, then):
        """At once on a node where they are kept."""
        if self.node[job] not in self.ways:
            return then(now_s, job)
        chain, bits = self.ways[self.node[job]][back], 8.0 * self.jobs[job].checkpoint_bytes
        self.pulling[job] = self.clock.pull(now_s, chain, bits, lambda at_s: then(at_s, job))

    def there(self, now_s, job):
        self.pulling.pop(job, None)
        self.arrived[job], self.kept = self.sending.pop(job), self.kept + 1

    def fetched(self, now_s, job):
        self.pulling.pop(job, None)
        self.fetching.discard(job)
        self.go_on(now_s, job)

    def end(self, now_s, job, since_s):
        if self.since.get(job) == since_s and job not in self.ended and now_s <= self.end_s:
            self.ended[job] = now_s
            self.stop(now_s, job)

    def failed(self, now_s, node):
        for job in [job for job, where in self.node.items() if where == node and job not in self.ended]:
            self.stop(now_s, job)
            if now_s <= self.end_s:
                self.fall_back(job)
                self.fallen.add(job)

    def fall_back(self, job):
        """To the last of its checkpoints, counted one by one."""
        done, every = self.length_s[job] - self.left[job], self.jobs[job].checkpoint_s
        self.saved[job] = 0.0
        self.sending.pop(job, None)
        if self.weighs(job):
            self.saved[job], every = self.arrived.get(job, 0.0), None
        while every is not None and self.saved[job] + every <= done * (1 + 1e-12):
            self.saved[job] += every
        self.redone[job] += done - self.saved[job]
        self.left[job] = self.length_s[job] - self.saved[job]

    def repaired(self, now_s, node):
        for job, where in self.node.items():
            if where == node and job not in self.since | self.paused | self.ended and job not in self.fallen:
                self.go_on(now_s, job)

    def finish(self):
        for job, since_s in self.paused.items():
            self.suspended[job] += max(self.end_s - since_s, 0.0)


class Pipelines(Part):
    """Frames at constant rates between two changes; flows on links; tasks share the cores that others leave.

    `held`: (start, end, node, cores) of work that neither is a task nor goes for one. `ways`: by node, the
    links over which images come to it, and how long they are on their way; nodes without have them all.
    """

    def __init__(self, clock, pipelines, network, held, ways, migration_s=2.0):
        super().__init__(clock)
        self.held, self.ways, self.there, self.pulling = held, ways, {}, {}
        self.begins, self.waits, self.pulled = {}, {}, 0  # by pipeline: what it lacks, (starts, stands) then
        for at_s in {at_s for start_s, end_s, *_ in held for at_s in (start_s, end_s) if at_s > 0.0}:
            clock.at(at_s, self.changed)
        self.pipelines, self.network, self.migration_s = pipelines, network, migration_s
        self.running, self.starts, self.resume, self.stopped, self.fps = {}, {}, {}, {}, {}
        self.frames, self.since = [0.0] * len(pipelines), {}
        self.started, self.finished, self.moves = {}, {}, [0] * len(pipelines)
        # how long those that last some time were stopped, or stood at a dead node; who stands there
        self.late, self.stuck, self.stamp = [0.0] * len(pipelines), set(), 0

    def told(self, now_s, command):
        kind = type(command).__name__
        if kind not in ("StartPipeline", "MovePipeline", "ReroutePipeline", "StopPipeline"):
            return
        self.progress(now_s)
        if kind == "StopPipeline":
            self.stopped[command.pipeline] = now_s
            del self.running[command.pipeline], self.waits[command.pipeline]
        else:
            placed = command.placement
            i = placed.pipeline.id
            self.running[i] = placed
            if kind == "MovePipeline":
                self.moves[i] += 1
                self.begin(now_s, placed, (0.0, self.migration_s))
            elif kind == "StartPipeline" and i in self.started:
                self.late[i] += now_s - self.stopped[i]
            elif kind == "StartPipeline":
                self.started[i] = now_s
            if kind == "StartPipeline":
                self.begin(now_s, placed, (self.pipelines[i].start_s, 0.0))
        self.look(now_s)

    def begin(self, now_s, placed, then):
        """Each node of a task has, gets or is getting the image; what is known of that is looked at anew."""
        i = placed.pipeline.id
        pipeline, names = self.pipelines[i], {self.network.names[n] for n in placed.node.tolist()}
        keys = {(pipeline.image, name) for name in names if name in self.ways}
        for image, name in sorted(keys - self.there.keys()) if pipeline.image_bytes else []:
            (chain, rate_bps, late_s), bits = self.ways[name], 8.0 * pipeline.image_bytes
            self.pulled += 1
            if self.clock.shared:
                self.there[image, name] = math.inf
                come = lambda at_s, key=(image, name), late_s=late_s: self.came(at_s, key, late_s)  # noqa: E731
                self.pulling[image, name] = self.clock.pull(now_s, chain, bits, come)
            else:
                self.there[image, name] = now_s + bits / rate_bps + late_s
        self.waits[i], self.begins[i] = (keys if pipeline.image_bytes else set()), then
        self.go_on(now_s, i)

    def came(self, now_s, key, late_s):
        self.progress(now_s)
        self.there[key] = now_s + late_s
        for i in [i for i, keys in self.waits.items() if key in keys]:
            self.go_on(now_s, i)
        self.look(now_s)

    def go_on(self, now_s, i):
        there_s, (starts_s, stands_s) = (
            max([self.there.get(key, math.inf) for key in self.waits[i]] or [now_s]),
            self.begins[i],
        )
        if there_s < math.inf:
            self.starts[i] = max(there_s, now_s) + starts_s
            self.resume[i] = max(self.resume.get(i, 0.0), self.starts[i] + stands_s)

    def changed(self, now_s):
        self.progress(now_s)
        self.look(now_s)

    def failed(self, now_s, node):
        self.progress(now_s)
        for key in [key for key, there_s in self.there.items() if key[1] == node and there_s > now_s]:
            del self.there[key]
            if key in self.pulling:
                self.clock.cancel(now_s, self.pulling.pop(key))
        self.look(now_s)

    def repaired(self, now_s, node):
        self.progress(now_s)
        for i, placed in self.running.items():
            if self.network.names.index(node) in placed.node.tolist():
                self.begin(now_s, placed, (self.pipelines[i].start_s, 0.0))
        self.look(now_s)

    def stands(self, placed):
        if any(self.there.get(key, math.inf) == math.inf for key in self.waits[placed.pipeline.id]):
            return True
        met = {placed.pipeline.source, *placed.node.tolist()}
        met |= {n for link in placed.links.tolist() for n in self.network.ends[link].tolist()}
        return any(self.network.names[n] in self.clock.dead for n in met)

    def rates(self, now_s):
        """All rise alike, each to what it has alone or until a node of it is full."""
        left = {node.name: node.resources.cpu_cores for node in self.clock.scenario.topology.nodes}
        for start_s, end_s, node, cores in self.held:
            left[node] -= cores if start_s <= now_s < end_s else 0.0
        most = {i: self.alone(placed) for i, placed in self.running.items()}
        uses = {i: self.cores_per_frame(placed) for i, placed in self.running.items()}
        found, rising = dict.fromkeys(self.running, 0.0), set(self.running)
        while rising:
            asked = {n: sum(uses[i].get(n, 0.0) for i in rising) for n in left}
            full = {n: max(left[n], 0.0) / each for n, each in asked.items() if each > 0.0}
            step = min([*full.values(), *(most[i] - found[i] for i in rising)])
            for i in rising:
                found[i] += step
            left = {n: left[n] - step * asked[n] for n in left}
            ends = {n for n, each in full.items() if each <= step * (1 + 1e-12)}
            rising = {i for i in rising if found[i] < most[i] * (1 - 1e-12) and not ends & uses[i].keys()}
        return {i: 0.0 if self.stands(placed) else found[i] for i, placed in self.running.items()}

    def cores_per_frame(self, placed):
        """Core-seconds of a frame on each node."""
        found, network = {}, self.network
        for work, n in zip(placed.pipeline.work_ops.tolist(), placed.node.tolist(), strict=True):
            took = work / network.speed_ops[n] * network.task_cores[n]
            found[network.names[n]] = found.get(network.names[n], 0.0) + took
        return {name: took for name, took in found.items() if took > 0.0}

    def alone(self, placed):
        pairs = zip(placed.pipeline.work_ops, placed.node, strict=True)
        takes = [work / self.network.speed_ops[n] for work, n in pairs]
        sizes = zip(placed.pipeline.volume_bits, placed.bandwidth_bps, strict=True)
        takes += [math.inf if bps == 0 else bits / bps for bits, bps in sizes if bits > 0]
        return 1.0 / max(takes)

    def progress(self, now_s):
        for i in self.running:
            begin_s = max(self.since.get(i, now_s), self.resume.get(i, 0.0))
            self.frames[i] += self.fps.get(i, 0.0) * max(now_s - begin_s, 0.0)
            if i in self.since:
                starts_s = max(min(self.starts.get(i, 0.0), now_s) - self.since[i], 0.0)
                self.late[i] += now_s - self.since[i] if i in self.stuck else starts_s

    def look(self, now_s):
        """From now on: when each ends, and what flows have of links."""
        self.stamp += 1
        flows = [0.0] * len(self.clock.capacity)
        self.stuck = {i for i, placed in self.running.items() if self.stands(placed)}
        rates = self.rates(now_s)
        for i, placed in self.running.items():
            self.since[i] = now_s
            pipeline, rate = self.pipelines[i], rates[i]
            self.fps[i] = rate
            end_s = math.inf
            if i in self.stuck:
                pass
            elif pipeline.duration_s is not None:
                end_s = self.started[i] + self.late[i] + pipeline.duration_s
                end_s += max(self.starts.get(i, 0.0) - now_s, 0.0)
            elif rate > 0.0:
                left = max(pipeline.frames - self.frames[i], 0.0)
                end_s = max(now_s, self.resume.get(i, 0.0)) + left / rate
            if end_s < math.inf:
                self.clock.at(end_s, self.end, i, self.stamp)
            for edge, at in enumerate(placed.tail_node.tolist()):
                for link in placed.path(edge).tolist():
                    one, other = self.network.ends[link].tolist()
                    there = other if at == one else one
                    pair = self.network.names[at], self.network.names[there]
                    if self.clock.shared and pair in self.clock.routes.between:
                        for j, _ in self.clock.chain(self.clock.routes.between[pair]):
                            flows[j] += float(placed.bandwidth_bps[edge])
                    at = there
        if self.clock.shared:
            self.clock.set_flows(now_s, flows)

    def end(self, now_s, i, stamp):
        if stamp == self.stamp:
            self.progress(now_s)
            self.finished[i] = now_s
            del self.running[i], self.waits[i]
            self.look(now_s)
