"""What is wanted, what runs, and which streams are open: one SQLite file in WAL mode.

The controller and every gateway open the same file. What was committed survives the death of any
process, so whoever starts again reads here what it was doing.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from edgewise.runtime import clock
from edgewise.runtime.store.copies import open_copy
from edgewise.runtime.store.database import Database, StoreError, StorePart
from edgewise.runtime.store.faults import FaultTable
from edgewise.runtime.store.processes import Process, Running, from_fields, process_of
from edgewise.runtime.store.records import HELD_NOW, RecordTable
from edgewise.runtime.store.submitted import JobSchema, PipelineSchema

if TYPE_CHECKING:
    from edgewise.runtime.store.jobs import JobTable
    from edgewise.runtime.store.pipelines import PipelineTable

DATABASE, SCENARIO = "state.sqlite", "scenario.yaml"  # in the folder of a live system
MOST_CHANGES = 1000  # of nodes, that are kept
# Settings. By decision the name of who decides, and of who watches; switches of them that are under way.
POLICIES, SHADOWS, OPERATIONS = "policies", "shadows", "operations"
ENDED = "ended"  # whether the system has come to its end; false from its controller's start on
RUN = "run"  # when the latest began and ended
LATEST_CHANGE = "change"  # the latest of what is wanted, see `controller.rolling`


class _Wanted(StorePart):
    """Settings, and processes that are wanted: what `Store` itself reads and writes."""

    SCHEMA = """
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS process (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, port INTEGER NOT NULL, cores TEXT NOT NULL,
    settings TEXT NOT NULL, wanted INTEGER NOT NULL DEFAULT 1,
    handle TEXT, started_s REAL NOT NULL DEFAULT 0, restarts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS address (handle TEXT PRIMARY KEY, url TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS successor (name TEXT PRIMARY KEY, process TEXT NOT NULL, handle TEXT);
CREATE TABLE IF NOT EXISTS retired (handle TEXT PRIMARY KEY, port INTEGER NOT NULL, since_s REAL);
"""


class Store(Database):
    """The state of one live system, see `Database`.

    Attributes:
        faults: what policies failed at.
        records: what came and what became of it.
    """

    TABLES: ClassVar[tuple[type[StorePart], ...]] = (
        _Wanted, FaultTable, RecordTable, JobSchema, PipelineSchema,
    )  # fmt: skip

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._open_tables()
        if self.exposed:
            self.put("exposed", True)  # until `replace_exposed`

    def _open_tables(self) -> None:
        self.faults, self.records = FaultTable(self), RecordTable(self)

    @cached_property
    def jobs(self) -> "JobTable":
        """Jobs that were submitted, and how far they are."""
        from edgewise.runtime.store.jobs import JobTable  # slow to import

        return JobTable(self)

    @cached_property
    def pipelines(self) -> "PipelineTable":
        """Pipelines likewise."""
        from edgewise.runtime.store.pipelines import PipelineTable  # slow to import

        return PipelineTable(self)

    @classmethod
    def readable(cls, file: Path) -> "Store":
        """The store; where its file is damaged its last good copy, to find what runs and end it.

        Raises:
            StoreError: neither can be read.
        """
        try:
            store = cls(file)
            store.get("controller"), store.processes()
        except StoreError as error:
            if not error.damaged:
                raise
            store = cls.__new__(cls)
            store.file, store._db, store._held = file.absolute(), open_copy(file), None
            store._open_tables()
        return store

    # settings

    def get(self, name: str, default: Any = None) -> Any:
        """A setting's JSON value."""
        found = self.rows("SELECT value FROM setting WHERE name = ?", (name,))
        return json.loads(found[0][0]) if found else default

    def put(self, name: str, value: Any) -> None:
        """Set a setting."""
        self.later(("put", name), lambda: self._put(name, value))

    def _put(self, name: str, value: Any) -> None:
        self.run("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, json.dumps(value)))

    # who decides

    def policy(self, decision: str, what: str = POLICIES) -> str:
        """The policy of a decision, of `policies.DECISIONS`; "" where none is named.

        Args:
            what: `POLICIES` in use, or `SHADOWS`, which only watch.
        """
        return str(self.get(what, {}).get(decision, ""))

    def set_policy(self, decision: str, name: str, what: str = POLICIES) -> None:
        """Name the policy of a decision, for every process that starts or asks from now on; "": none."""
        self.put(what, self.get(what, {}) | {decision: name})
        self.put(f"{what} since", self.get(f"{what} since", {}) | {decision: clock.unix_s()})

    def name_policies(self, names: Mapping[str, str]) -> None:
        """Name the policies of all decisions when a system starts; one that goes on decides since it did."""
        before = {} if self.ended() else self.get(POLICIES, {})
        since_s, now_s = self.get(f"{POLICIES} since", {}), clock.unix_s()
        same = {decision for decision, name in names.items() if before.get(decision) == name}
        self.put(POLICIES, dict(names))
        begun = {decision: since_s.get(decision, now_s) if decision in same else now_s for decision in names}
        self.put(f"{POLICIES} since", begun)

    def ended(self) -> bool:
        """Whether the system came to its end, or was never started: nothing that it decided goes on."""
        return bool(self.get(ENDED, True))

    def begin_run(self) -> None:
        """Its controller starts: where the system had come to its end, or never began, a new run begins."""
        if self.ended():
            self.put(RUN, {"began_s": clock.unix_s(), "ended_s": None})
            self.put(HELD_NOW, [])
        self.put(ENDED, False)

    def run_times_s(self) -> tuple[float, float | None]:
        """When the latest run began, and when it ended, if it has; Unix time."""
        found = self.get(RUN) or {"began_s": self.get("began_s", 0.0), "ended_s": None}
        return float(found["began_s"]), found["ended_s"]

    def end(self) -> None:
        """The system has come to its end."""
        if not self.ended():
            self.put(RUN, {"began_s": self.run_times_s()[0], "ended_s": clock.unix_s()})
        self.put(OPERATIONS, [])
        self.put(ENDED, True)

    def faults_since_switch(self, decision: str) -> dict[str, Any] | None:
        """How often the policy in use has failed since it decides, and the last of it; None: it has not."""
        name, since_s = self.policy(decision), self.get(f"{POLICIES} since", {}).get(decision, 0.0)
        rows = [row for row in self.faults.since(since_s) if row.decision == decision and not row.shadow]
        # A gateway that is yet to be told asks the former one; where none is named each split has its own.
        found = [row for row in rows if name in ("", row.policy)]
        if not found:
            return None
        last = {name: getattr(found[-1], name) for name in ("at_s", "process", "kind", "why", "instead")}
        return {"times": sum(row.times for row in found), **last}

    # secrets

    def secret(self, whose: str) -> str:
        """A token of this system, made when first asked for: of its "operator", or between its "parts"."""
        name = f"secret of {whose}"
        if self.get(name) is None:
            made = json.dumps(secrets.token_urlsafe(24))
            self.run("INSERT OR IGNORE INTO setting VALUES (?, ?)", (name, made))
        return str(self.get(name))

    def replace_exposed(self) -> bool:
        """Forget the secrets of a system that is down, if others could read them; True if so."""
        exposed = bool(self.get("exposed", False))
        if exposed:
            self.run("DELETE FROM setting WHERE name LIKE 'secret of %' OR name = 'exposed'")
        return exposed

    # processes

    def want(self, processes: Sequence[Process], renamed: Mapping[str, str] | None = None) -> None:
        """Make these the processes that are wanted; what is known of those that stay is kept.

        One that runs with other settings goes on as it is, and gets a successor.

        Args:
            renamed: former name → name of processes that are called otherwise now.
        """
        with self.at_once():
            for pair in (renamed or {}).items():
                self.run("UPDATE process SET name = ?2 WHERE name = ?1", pair)
            self.drop_successors()
            have = {running.process.name: running for running in self.processes()}
            names = [process.name for process in processes]
            marks = ",".join("?" * len(names))
            self.run(f"DELETE FROM process WHERE handle IS NULL AND name NOT IN ({marks})", names)
            self.run(f"UPDATE process SET wanted = 0 WHERE name NOT IN ({marks})", names)
            for process in processes:
                old = have.get(process.name)
                if old is None or old.handle is None or old.process.digest == process.digest:
                    self._write(process)
                    continue
                self.run("UPDATE process SET wanted = ? WHERE name = ?", (process.wanted, process.name))
                self.run(
                    "INSERT INTO successor (name, process) VALUES (?, ?)",
                    (process.name, json.dumps(asdict(process))),
                )

    def _write(self, p: Process) -> None:
        self.run(
            "INSERT INTO process (name, kind, port, cores, settings, wanted) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, port = excluded.port, failures = 0,"
            " cores = excluded.cores, settings = excluded.settings, wanted = excluded.wanted",
            (p.name, p.kind, p.port, json.dumps(p.cores), json.dumps(p.settings), p.wanted),
        )

    def move_paths(self, folder: Path, to: Path) -> None:
        """Write of a folder as of another one wherever processes and the change name it."""
        old, new = (json.dumps(str(each))[1:-1] for each in (folder, to))
        for table, column in (("process", "settings"), ("successor", "process"), ("setting", "value")):
            self.run(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (old + "/", new + "/"))

    def add(self, process: Process) -> None:
        """Want one more process."""
        self._write(process)

    def forget(self, name: str) -> None:
        """Forget a process that is not wanted and has ended, and that another was to take its place."""
        with self.at_once():
            gone = self.run("DELETE FROM process WHERE name = ? AND wanted = 0 AND handle IS NULL", (name,))
            if gone.rowcount:  # else one that is called so later would be taken for outdated
                self.drop_successors(name)

    def set_wanted(self, name: str, wanted: bool) -> None:
        """Say whether a process should run."""
        self.run("UPDATE process SET wanted = ?, failures = 0 WHERE name = ?", (wanted, name))

    def processes(self, kind: str | None = None) -> list[Running]:
        """All processes, or those of a kind, in order of their names' creation."""
        rows = self.rows(
            "SELECT name, kind, port, settings, cores, wanted,"
            " (SELECT url FROM address WHERE address.handle = process.handle),"
            " handle, started_s, restarts, failures,"
            " EXISTS (SELECT 1 FROM successor WHERE successor.name = process.name)"
            " FROM process WHERE ?1 IS NULL OR kind = ?1 ORDER BY rowid",
            (kind,),
        )
        return [
            Running(process_of(*process), handle, started_s, restarts, failures, bool(old))
            for *process, handle, started_s, restarts, failures, old in rows
        ]

    def process(self, name: str) -> Running | None:
        """The process of a name."""
        return next((running for running in self.processes() if running.process.name == name), None)

    def started(self, name: str, handle: str | None, failures: int) -> None:
        """A process was started (`handle`), or has ended (None)."""
        self.later(("started", name), lambda: self._started(name, handle, failures))

    def _started(self, name: str, handle: str | None, failures: int) -> None:
        self.run("DELETE FROM address WHERE handle = (SELECT handle FROM process WHERE name = ?)", (name,))
        self.run(
            "UPDATE process SET restarts = restarts + (?1 IS NOT NULL AND started_s > 0), failures = ?2,"
            " started_s = CASE WHEN ?1 IS NULL THEN started_s ELSE ?3 END, handle = ?1 WHERE name = ?4",
            (handle, failures, clock.unix_s(), name),
        )

    def answers_at(self, handle: str, url: str) -> None:
        """The backend of a process says where it answers; gateways and others go there from now on."""
        self.later(("answers at", handle), lambda: self.write_answers_at(handle, url))

    def write_answers_at(self, handle: str, url: str) -> None:
        """Write down at once where it answers."""
        self.run("INSERT OR REPLACE INTO address VALUES (?, ?)", (handle, url))

    def moved(self, gateway: str) -> dict[str, Any]:
        """Workers that an operator gave another address in a gateway, and where they are for it."""
        found: dict[str, Any] = self.get(f"moved {gateway}", {})
        return found

    # nodes

    def nodes_down(self) -> list[str]:
        """Nodes that an operator has failed: nothing runs there."""
        found: list[str] = self.get("nodes down", [])
        return found

    def node_changes(self) -> list[tuple[float, str, bool]]:
        """Failures and repairs of nodes so far: when, which, and whether it is up from then on."""
        return [(at_s, node, up) for at_s, node, up in self.get("node changes", [])]

    def change_node(self, node: str, up: bool) -> None:
        """A node fails, or is back."""
        down = [each for each in self.nodes_down() if each != node]
        with self.at_once():
            self.put("nodes down", down if up else [*down, node])
            self.put("node changes", [*self.node_changes(), (clock.unix_s(), node, up)][-MOST_CHANGES:])

    def links_down(self) -> list[list[str]]:
        """Links between two nodes that an operator has cut: both ends of each."""
        found: list[list[str]] = self.get("links down", [])
        return found

    def change_link(self, ends: Sequence[str], up: bool) -> None:
        """The link between two nodes fails, or is back."""
        down = [each for each in self.links_down() if set(each) != set(ends)]
        self.put("links down", down if up else [*down, list(ends)])

    def handles(self) -> set[str]:
        """Of all that was started and has not been seen to end."""
        read = (
            "SELECT handle FROM process UNION SELECT handle FROM successor UNION SELECT handle FROM retired"
        )
        return {handle for (handle,) in self.rows(read) if handle is not None}

    # successors: beside a process with other settings until they serve

    def successor(self, name: str) -> tuple[Process, str | None] | None:
        """What shall take a process's place, and its handle once it was started."""
        found = self.rows("SELECT process, handle FROM successor WHERE name = ?", (name,))
        return (from_fields(json.loads(found[0][0])), found[0][1]) if found else None

    def successor_started(self, name: str, handle: str | None) -> None:
        """A successor was started, or has ended."""
        self.run("UPDATE successor SET handle = ? WHERE name = ?", (handle, name))

    def succeed(self, name: str) -> None:
        """A successor takes its place: the former process is retired, or, where it was not started, stays
        until it is told to end. Whether it is wanted has been said of the former one, maybe meanwhile."""
        with self.at_once():
            found, former = self.successor(name), self.process(name)
            if found is None or former is None:
                return
            process, handle = replace(found[0], wanted=former.process.wanted), found[1]
            if handle is not None:
                self.run(
                    "INSERT INTO retired SELECT handle, port, NULL FROM process"
                    " WHERE name = ? AND handle IS NOT NULL",
                    (name,),
                )
                self.started(name, handle, 0)
            self._write(process)
            self.run("DELETE FROM successor WHERE name = ?", (name,))

    def drop_successors(self, name: str | None = None) -> None:
        """No process, or none of this name, gets another in its place; those that were started are to end."""
        self.run(
            "INSERT INTO retired SELECT handle, json_extract(process, '$.port'), 0 FROM successor"
            " WHERE handle IS NOT NULL AND (?1 IS NULL OR name = ?1)",
            (name,),
        )
        self.run("DELETE FROM successor WHERE ?1 IS NULL OR name = ?1", (name,))

    def retired(self) -> list[tuple[str, int, float | None]]:
        """Handle and port of processes that gave their place away, and since when nobody uses them."""
        return self.read_or(lambda: self.rows("SELECT handle, port, since_s FROM retired"), [])

    def release_retired(self) -> None:
        """Nobody uses the retired processes any more."""
        self.run("UPDATE retired SET since_s = ? WHERE since_s IS NULL", (clock.unix_s(),))

    def forget_retired(self, handle: str) -> None:
        """A retired process has ended."""
        self.run("DELETE FROM retired WHERE handle = ?", (handle,))


def tls_files(folder: Path, digest: str) -> tuple[Path, Path]:
    """Certificate and key of gateways, named by what they hold: what was there before can be gone back to."""
    return folder / f"tls-{digest}.pem", folder / f"tls-{digest}.key"
