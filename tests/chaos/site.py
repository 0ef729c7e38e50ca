"""A test site: a database, the processes that work on it, and the checks of both at the end."""

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import attrs
import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.wiring.stores import open_stores
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.commands import RunRepair
from holdfast.kernel.invariants import Snapshot, check
from holdfast.ports.clock import micros
from holdfast.ports.json import parse
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.queries.store import CountAll
from holdfast.ports.records.history import STAGE_COMPLETED, HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.chaos.disks import NoDiskError, SmallDisk
from tests.chaos.execution_log import Book, Entry, effect_name, keep_book
from tests.chaos.execution_tables import Ledger
from tests.chaos.faults import Fault
from tests.chaos.figures import pick
from tests.chaos.fork_server import ForkServer, Process, plan_of
from tests.chaos.programs import CHAIN, FUNCTIONS, WORKFLOWS, gate_of
from tests.postgres import PrivatePostgres

POLL_SECONDS = 0.01


@attrs.frozen(kw_only=True)
class Audit:
    """The result of the final checks.

    `starts` counts started bodies, `repeats` those that were not the first of their work, and `lost` the attempts that
    were lost with their worker.
    """

    runs: int
    starts: int
    repeats: int
    lost: int


@attrs.define
class Site:
    """A database for one test, an engine on it in the test's process, and other processes."""

    url: str
    folder: Path
    fork_server: ForkServer
    engine: SyncEngine
    book: Book
    processes: list[Process] = attrs.field(factory=list[Process])
    engines: list[SyncEngine] = attrs.field(factory=list[SyncEngine])

    def open_here(self, *, work_seconds: float = 0.0) -> SyncEngine:
        """Return another engine with its own connections, whose bodies run in the test's process."""
        keep_book(self.book, work_seconds=work_seconds)
        engine = Engine.open(self.url, workflows=list(WORKFLOWS.values())).sync
        self.engines.append(engine)
        return engine

    def client(self, *, deadline: float) -> SyncEngine:
        """Return an engine for starting runs whose calls give up on the database after so many seconds."""
        stores = open_stores(self.url)
        stores = attrs.evolve(stores, persistence=SqlPersistence(self.url, deadline=deadline))
        engine = Engine.on(stores, workflows=list(WORKFLOWS.values())).sync
        engine.core.connect()
        self.engines.append(engine)
        return engine

    # Processes --------------------------------------------------------------------------------------------------

    def worker(
        self,
        name: str,
        *workflows: str,
        faults: Sequence[Fault] = (),
        work_seconds: float = 0.0,
        url: str | None = None,
        **options: object,
    ) -> Process:
        """Start a worker process for these workflows (`<name>@<version>`), or for all."""
        options = {"lease": 1.0, "poll_interval": 0.1, **options}
        return self.process(
            "worker", name, *workflows, faults=faults, work_seconds=work_seconds, url=url, **options
        )

    def process(
        self,
        kind: str,
        name: str,
        *workflows: str,
        faults: Sequence[Fault] = (),
        work_seconds: float = 0.0,
        url: str | None = None,
        **options: object,
    ) -> Process:
        """Start a process with one of the roles in `process_roles`."""
        plan = plan_of(
            kind=kind,
            name=name,
            url=url or self.url,
            folder=self.folder,
            ledger=self.book.url if isinstance(self.book, Ledger) else None,
            workflows=workflows or tuple(WORKFLOWS),
            faults=faults,
            work_seconds=work_seconds,
            options=options,
        )
        process = Process(self.fork_server, self.fork_server.fork(plan), name, self.folder)
        self.processes.append(process)
        return process

    def open_gate(self, run: str = "all") -> None:
        """Open the gate for the bodies of one run, or of all."""
        gate_of(self.folder, run).touch()

    # Runs -------------------------------------------------------------------------------------------------------

    def start(self, call: Call[Any], /, **options: Any) -> str:
        """Start a run, and return its id."""
        return self.engine.start(call, **options).id

    def run(self, id: str) -> Run:
        """Return a run's row."""
        found = self.engine.core.stores.persistence.read(FindRun(RunName("default", id)))
        assert found is not None, f"run {id} is gone"
        return found

    def jobs(self, id: str) -> tuple[Job, ...]:
        """Return a run's jobs."""
        return self.engine.core.stores.persistence.read(JobsOfRun(self.run(id).key))

    def job(self, id: str) -> Job:
        """Return the one job of a run."""
        (job,) = self.jobs(id)
        return job

    def history(self, id: str) -> list[HistoryRow]:
        """Return all of a run's history."""
        return list(self.engine.core.stores.persistence.read(HistoryOf(self.run(id).key)))

    def active(self) -> int:
        """Return how many runs have not ended."""
        counts = self.engine.core.stores.persistence.read(CountAll("default")).runs
        return sum(count for status, count in counts.items() if RunStatus(status) not in TERMINAL)

    def result(self, id: str) -> object:
        """Return the result of an ended run, or raise its failure."""
        row = self.run(id)
        assert row.status in TERMINAL, f"run {id} is {row.status}"
        return self.engine.handle(WORKFLOWS[f"{row.workflow}@{row.version}"], id).output(row)

    @contextlib.contextmanager
    def busy(self, active_min: int, of: Callable[[int], Call[Any]] = CHAIN) -> Generator[dict[str, int]]:
        """Keep starting runs within the block, so that there is always work: as many as end, and at least these.

        Yields their inputs by run id.
        """
        runs: dict[str, int] = {}
        done = threading.Event()

        def feed() -> None:
            while not done.is_set():
                for number in range(max(0, active_min - self.active())):
                    runs[self.start(of(number))] = number
                done.wait(0.05)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            yield runs
        finally:
            done.set()
            feeder.join()

    # Waiting ----------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
        """Wait until a condition holds. Raises AssertionError with the logs of the processes if it does not in time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= end:
                pytest.fail(f"waited {seconds} s for: {what}\n{self._logs()}")
            time.sleep(POLL_SECONDS)

    def until_done(self, seconds: float = 30.0) -> None:
        """Wait until all runs have ended."""
        try:
            self.until(lambda: self.active() == 0, "all runs have ended", seconds)
        except pytest.fail.Exception as error:
            pytest.fail(f"{error}\n{self._left()}")

    def _left(self) -> str:
        """Describe the runs that have not ended and the live processes."""
        snapshot = self.snapshot()
        now = datetime.now(UTC)
        left = [f"{key}: {run.status}" for key, run in snapshot.runs.items() if run.status not in TERMINAL]
        jobs = [
            f"job {job.key.text}: {job.state}, epoch {job.epoch}, of {job.session}, wakes at {job.wake_at}"
            for of_run in snapshot.jobs.values()
            for job in of_run.values()
        ]
        sessions = [
            f"session {one.id} of {one.host}: {one.state} until {one.expires_at}"
            for one in snapshot.sessions.values()
        ]
        return "\n".join((f"it is {micros(now)}", *left, *jobs, *sessions))

    def until_started(self, starts: int, run: str | None = None, seconds: float = 20.0) -> list[Entry]:
        """Wait until so many bodies have started, and return their entries."""
        self.until(
            lambda: len(self.book.entries(run=run)) >= starts, f"{starts} bodies were started", seconds
        )
        return self.book.entries(run=run)

    # In the end -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return a snapshot of all rows."""
        return snapshot_of(self.engine.core.stores.persistence)

    def audit(self) -> Audit:
        """Check the state after any fault, and return the counts.

        The invariants hold; no body was started twice under one lease; a completed job was started under the lease that
        completed it and not later; each unit of work had one effect; there is nothing to repair and nothing was.
        """
        snapshot = self.snapshot()
        assert check(snapshot) == []
        starts = self.book.entries()
        doubled = [
            lease
            for lease, count in Counter((*start.work, start.epoch) for start in starts).items()
            if count > 1
        ]
        assert doubled == [], "a body was started twice under one lease"
        names = {key: run.id for key, run in snapshot.runs.items()}
        rows = [(names[key], row) for key, history in snapshot.history.items() for row in history]
        _check_completed(rows, starts)
        self._check_effects(snapshot, starts)
        assert [row.type for _, row in rows if row.type == "run.repaired"] == []
        assert self.repair() == ()
        return Audit(
            runs=len(snapshot.runs),
            starts=len(starts),
            repeats=len(starts) - len({start.work for start in starts}),
            lost=sum(row.type == "stage.lost" for _, row in rows),
        )

    def repair(self) -> tuple[str, ...]:
        """Apply `run.repair` to all runs, and return the ids of the repaired ones."""
        mended: list[str] = []
        after: str | None = ""
        while after is not None:
            repaired = self.engine.kernel.dispatch(RunRepair(after=after))
            mended += repaired.repaired
            after = repaired.next
        return tuple(mended)

    def _check_effects(self, snapshot: Snapshot, starts: Sequence[Entry]) -> None:
        """Check that each unit of work has one key in all attempts, and each key one effect."""
        keys = {start.work: start.key for start in starts}
        assert all(keys[start.work] == start.key for start in starts), "a key is not that of earlier attempts"
        assert len(set(keys.values())) == len(keys), "two pieces of work have one key"
        firsts = Counter(start.key for start in starts if start.is_first)
        assert set(firsts.values()) <= {1}
        assert self.book.effects() == {effect_name(key) for key in keys.values()}
        assert all(key.split("/")[0] in snapshot.runs for key in keys.values())

    def _logs(self) -> str:
        logs = [f"--- {process.name}:\n{_tail(process)}" for process in self.processes[-4:]]
        return "\n".join(logs)


def _check_completed(rows: Sequence[tuple[str, HistoryRow]], starts: Sequence[Entry]) -> None:
    epochs = {(start.run, start.stage, start.item, start.epoch) for start in starts}
    last: dict[tuple[str, str, int | None], int] = {}
    for start in starts:
        last[start.work] = max(start.epoch, last.get(start.work, 0))
    for run, row in rows:
        if row.type == STAGE_COMPLETED and row.node not in FUNCTIONS:
            assert row.node is not None
            assert row.epoch is not None
            work, epoch = (run, row.node, row.item), row.epoch
        elif row.type == "step.completed":
            facts = parse(row.data or "{}")
            work, epoch = (run, f"{row.node}/{facts['call']}", None), facts["attempt"]
        else:
            continue
        assert (*work, epoch) in epochs, f"{work} was completed, and its body never started"
        assert last[work] == epoch, f"{work} was completed under {epoch} and started under {last[work]}"


def _tail(process: Process) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(process.log.splitlines()[-25:])
    return "(no log)"


# Fixtures -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """The fork server."""
    with ForkServer() as fork_server:
        yield fork_server


class OpenSite(Protocol):
    """Opens a site on a database, with a log of its own unless one is passed."""

    def __call__(self, url: str, book: Book | None = None, /) -> Site:
        """Return the site. Its processes are killed at the end of the test."""
        ...


@pytest.fixture
def open_site(fork_server: ForkServer, tmp_path: Path) -> Iterator[OpenSite]:
    """Opens sites, and kills all their processes at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda url, book=None: stack.enter_context(_site(url, book or Book(tmp_path), fork_server))


@pytest.fixture
def server() -> Iterator[PrivatePostgres]:
    """A PostgreSQL server for one test, which may crash it."""
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    """A small disk. The test is skipped where it cannot be mounted."""
    try:
        with SmallDisk(pick(short=256, full=1024)) as disk:
            yield disk
    except NoDiskError as error:
        pytest.skip(str(error))


@pytest.fixture
def sqlite_site(open_site: OpenSite, tmp_path: Path) -> Site:
    """A site on a SQLite file."""
    return open_site(f"sqlite:///{tmp_path}/holdfast.db")


@pytest.fixture
def postgres_site(open_site: OpenSite, postgres_database: str) -> Site:
    """A site on a PostgreSQL database."""
    return open_site(postgres_database)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def site(request: pytest.FixtureRequest) -> Site:
    """A site on each kind of database."""
    found: Site = request.getfixturevalue(f"{request.param}_site")
    return found


@contextlib.contextmanager
def _site(url: str, book: Book, fork_server: ForkServer) -> Generator[Site]:
    with Engine.open(url, workflows=list(WORKFLOWS.values())).sync as engine:
        site = Site(url=url, folder=book.folder, fork_server=fork_server, engine=engine, book=book)
        try:
            yield site
        finally:
            for process in site.processes:
                process.signal(signal.SIGKILL)
            for process in site.processes:
                process.wait()
            for opened in site.engines:
                opened.core.close()
