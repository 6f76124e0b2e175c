"""What a gateway writes, and how often."""

from types import SimpleNamespace

from virtual import played

from edgewise.runtime import clock
from edgewise.runtime.gateway.tally import StreamTally
from edgewise.runtime.gateway.writing import COUNTS_S, OUTCOMES_AT_ONCE, Writing

STREAMS = 3 * OUTCOMES_AT_ONCE + 1


class Session:
    """With streams that had queries, and one worker."""

    def __init__(self):
        self.left = dict.fromkeys(range(STREAMS))
        self.tally = StreamTally(10.0)
        self.world = SimpleNamespace(worker_names=["w"])
        self.core = SimpleNamespace(bindings={}, policy=SimpleNamespace(name="closest"))
        self.faults = SimpleNamespace(drain=list)

    def outcomes(self, most):
        return dict.fromkeys(list(self.left)[:most])

    def noted(self, streams):
        for each in streams:
            del self.left[each]


class Records:
    """Notes what is written."""

    def __init__(self):
        self.bound, self.streams, self.windows = [], [], []
        self.bind, self.note_outcomes = self.bound.append, self.streams.append
        self.note_windows = self.windows.append


def writing():
    session, records = Session(), Records()
    gateway = SimpleNamespace(session=session, splits=[], services=None, site="here", name="gateway-0")
    faults = SimpleNamespace(note=lambda rows: None)
    store = SimpleNamespace(records=records, faults=faults, get=lambda name, otherwise: otherwise)
    return Writing(gateway, store), session, records


def test_counts_are_written_once_a_second_and_where_streams_are_each_time():
    async def run():
        made, session, records = writing()
        for k in range(8):
            session.tally.query(0.0, "detection", "ok")
            session.core.bindings = {k: 0}
            made.step()
            await clock.sleep(COUNTS_S / 4)
        return records

    records = played(run())
    assert len(records.bound) == 8
    assert len(records.windows) == len(records.streams) == 2
    assert [len(each) for each in records.streams] == [OUTCOMES_AT_ONCE] * 2


def test_the_last_time_all_that_is_left_is_written():
    made, session, records = writing()
    made.step()
    session.tally.query(0.0, "detection", "ok")
    made.step(last=True)
    assert not session.left and sum(map(len, records.streams)) == STREAMS
    assert [row.counts["detection"] for row in records.windows[-1]]
