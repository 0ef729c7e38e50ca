"""Unreadable values in every column of every table: their runs are blocked, all others end."""

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import attrs
import pytest

from holdfast import (
    Channel,
    Concurrency,
    Engine,
    NotReady,
    Pipeline,
    Rate,
    ServerlessHost,
    StageContext,
    Suspended,
    SyncRunHandle,
    sleep,
    stage,
    step,
    suspend,
    workflow,
)
from holdfast.adapters.sql.schema.tables import metadata
from holdfast.client import RunStatus
from holdfast.hosts.wiring.stores import open_stores
from holdfast.kernel.calendars.specs import Every
from holdfast.kernel.commands import (
    JobClaim,
    Overlap,
    RunCreate,
    ScheduleFire,
    SchedulePolicy,
    SchedulePut,
    SchedulesFired,
    SessionOpen,
)
from holdfast.kernel.schedules.row_data import timing_of
from holdfast.ports.errors import HoldfastError
from holdfast.ports.events import Event
from holdfast.ports.queries.schedules import FindSchedule
from holdfast.ports.records.schedule import ScheduleName
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from holdfast.testing.clock import ManualClock

HURT: Final = ("pipe-hurt", "nap-hurt", "queue-hurt", "lost-hurt")
WELL: Final = ("pipe-well", "nap-well", "queue-well", "lost-well")
SCHEDULES: Final = {"tick-hurt": Overlap.TERMINATE, "tick-well": Overlap.SKIP}
EVIL: Final[tuple[object, ...]] = (
    "newer",
    "",
    "{}",
    "[]",
    "null",
    '"x"',
    "{",
    "[" * 5_000,
    '{"group":99,"input":[],"nodes":{"gone":{"job":true}}}',
    "0x\x01\u202e",
    -1,
    0,
    1,
    2**53,
    2**62,
    2**63 - 1,
    -(2**63),
    1.5,
)
"""What may stand in a column: SQLite takes any of it in any."""
MINUTE: Final = timedelta(minutes=1)
ROUNDS: Final = 14

words = Channel("words", str)


@stage(rate_limit=Rate(1_000, per=MINUTE), max_concurrency=500)
def split(ctx: StageContext, number: int) -> list[int]:
    ctx.annotate(f"part-{number}", "split")
    ctx.artifacts.put("numbers", b"1 2 3")
    ctx.ai.record(topic="t", model="m", prompt="p", response="r")
    ctx.progress(1, 2)
    return [number, number + 1, number + 2]


@stage
def double(number: int) -> int:
    return 2 * number


@stage.external
def hand_on(ctx: StageContext, numbers: list[int]) -> Suspended[int, int]:
    return suspend(sum(numbers), check_after=MINUTE)


@hand_on.check()
def handed_on(ctx: StageContext, total: int) -> int | NotReady:
    return total


@step
def add(number: int) -> int:
    return number + 1


@step(queue="default")
def add_elsewhere(number: int) -> int:
    return number + 10


@workflow
async def nap(number: int) -> int:
    number = await add(number)
    word = await words.receive()
    await sleep(MINUTE)
    return await add(number) + len(word)


@workflow
async def queued(number: int) -> int:
    return await add_elsewhere(await add(number))


pipe = Pipeline("pipe", input=int).pipe(split).map(double).pipe(handed_on)
WORKFLOWS: Final = (pipe, nap, queued)


class Sink:
    """Takes all events."""

    def __init__(self) -> None:
        self.runs: set[str] = set()

    def emit(self, events: Sequence[Event], /) -> None:
        """See `EventSink`."""
        self.runs.update(event.run_id for event in events)


@attrs.frozen
class Site:
    """An engine on a file, with a clock that is moved by hand."""

    opened: Engine
    clock: ManualClock
    sink: Sink = attrs.field(factory=Sink)

    def go_on(self, rounds: int) -> None:
        """Do what there is to do, in a new host each time, as a cloud does; and maintenance, every half a minute."""
        for _ in range(rounds):
            host = ServerlessHost(self.opened, time_limit=20.0, sinks={"audit": self.sink})
            host.process_available_jobs(max_jobs=100)
            host.run_maintenance_tick()
            self.fire()
            self.clock.advance(MINUTE / 2)

    def fire(self) -> SchedulesFired:
        """Start the runs that are due by schedules."""
        core = self.opened.core
        return self.opened.client.dispatch(
            ScheduleFire(namespace=core.namespace, workflows=(queued.name, pipe.name))
        )


def opened(path: Path, clock: ManualClock) -> Site:
    stores = attrs.evolve(open_stores(f"sqlite:///{path}", f"file://{path}.blobs", patience=1.0), clock=clock)
    return Site(Engine.on(stores, workflows=WORKFLOWS), clock)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ManualClock]:
    """A file in which runs are under way: some that are to be hurt, and others like them."""
    path, clock = tmp_path_factory.mktemp("rows") / "template.db", ManualClock()
    site = opened(path, clock)
    with site.opened.sync as engine:
        engine.register_sink("audit")
        for kind in (HURT, WELL):
            engine.start(
                pipe(1),
                id=kind[0],
                idempotency_key=kind[0],
                attributes={"of": kind[0]},
                concurrency=Concurrency("k", limit=10),
            )
            engine.start(nap(1), id=kind[1]).signal(words("hello"))
        host = ServerlessHost(site.opened, time_limit=20.0, sinks={"audit": site.sink})
        for _ in range(2):
            host.process_available_jobs(max_jobs=3)
            host.run_maintenance_tick()
        for kind in (HURT, WELL):
            engine.start(queued(1), id=kind[2])
            engine.start(pipe(1), id=kind[3])
        lose(site.opened, 4)
        schedule(site)
    return path, clock


def schedule(site: Site) -> None:
    """Store schedules that start a run each minute, and start the first ones."""
    namespace = site.opened.core.namespace
    start = RunCreate(namespace=namespace, workflow=queued.name, input=Payload(inline='{"number":1}'))
    for name, overlap in SCHEDULES.items():
        put = SchedulePut(
            namespace=namespace,
            schedule=name,
            start=start,
            timing=timing_of([Every(MINUTE)]),
            policy=SchedulePolicy(overlap=overlap),
        )
        site.opened.client.dispatch(put)
    site.clock.advance(MINUTE)
    assert len(site.fire().runs) == len(SCHEDULES)


def lose(engine: Engine, jobs: int) -> None:
    """Claim jobs, as a worker does that is never heard of again."""
    core = engine.core
    opened = SessionOpen(namespace=core.namespace, host="gone", lease=1_000_000)
    session = engine.client.dispatch(opened).session
    lane = QueueClaim(queue="default", definitions=core.registry.definitions, limit=jobs)
    claimed = engine.client.dispatch(
        JobClaim(namespace=core.namespace, session=session, queue_claims=(lane,), limit=jobs)
    )
    assert len(claimed.attempts) == jobs


COLUMNS: Final = [(table.name, column.name) for table in metadata.sorted_tables for column in table.columns]
DAMAGED: Final = COLUMNS if "HOLDFAST_TESTS" in os.environ else COLUMNS[::3]
"""All columns in `make test-full`, every third one in `make test-slow`: they take seconds each."""


def values_for(place: int) -> Sequence[object]:
    """Return what is put into the column at a place: all there is, or one that differs from column to column."""
    # All of them take half an hour: by hand, with HOLDFAST_TESTS=all.
    count = len(EVIL) if os.environ.get("HOLDFAST_TESTS") == "all" else 1
    return EVIL if count == len(EVIL) else [EVIL[(place * 7 + n * 5) % len(EVIL)] for n in range(count)]


def hurt(path: Path, table: str, column: str, value: object) -> bool:
    """Put a value into a column of the rows of the runs that are to be hurt; return whether there was such a row.

    Where rows are of no run, it is into all of them; where they can't be alike, into one; and of plans into that of
    the pipeline.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM holdfast_runs WHERE id LIKE '%-hurt%'")]
        names = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
        of_run = "key" if table == "holdfast_runs" else "run"
        which, given = "1 = 1", []
        if of_run in names:
            which, given = f"{of_run} IN ({', '.join('?' for _ in keys)})", keys
        elif table == "holdfast_schedules":
            which = "name LIKE '%-hurt'"
        elif table == "holdfast_plans":
            which = "workflow = 'pipe'"
        for limit in (-1, 1):
            found = f"SELECT rowid FROM {table} WHERE {which} LIMIT {limit}"
            with suppress(sqlite3.IntegrityError):
                sql = f"UPDATE {table} SET {column} = ? WHERE rowid IN ({found})"
                return connection.execute(sql, (value, *given)).rowcount > 0
    return False


def ask(run: SyncRunHandle[object]) -> None:
    """Ask all there is to ask of a run that may not be readable: it answers, or says what is wrong."""
    for question in (run.why, run.info, run.history, run.cancel, run.terminate, run.remove):
        with suppress(HoldfastError):
            question()


@pytest.mark.slow
@pytest.mark.parametrize(("table", "column"), DAMAGED, ids=lambda name: str(name).removeprefix("holdfast_"))
def test_what_is_in_a_column_harms_no_other_run(
    table: str, column: str, template: tuple[Path, ManualClock], tmp_path: Path
) -> None:
    harmed: list[str] = []
    for number, value in enumerate(values_for(COLUMNS.index((table, column)))):
        if column == "last_row" and value in (0, 1):
            continue  # a function waits by the machine's clock, then, and the one here stands still
        if column == "expires_at" and value == 2**53:
            continue  # an instant like others: a session may be valid until 2255
        path = tmp_path / f"{number}.db"
        shutil.copyfile(template[0], path)
        if hurt(path, table, column, value):
            problem = what_was_harmed(opened(path, ManualClock(template[1].now())), table)
            harmed += [f"{value!r:.60}: {problem}"] if problem else []

    assert harmed == []


def what_was_harmed(site: Site, table: str) -> str:
    """Go on, and return what has not become of the runs that are well; nothing if all is well."""
    with site.opened.sync as engine:
        engine.start(pipe(2), id="later")
        site.go_on(ROUNDS)
        expected = {"lost-well": 12, "pipe-well": 12, "nap-well": 8, "queue-well": 12, "later": 18}
        if table == "holdfast_plans":
            del expected["pipe-well"], expected["lost-well"], expected["later"]
        for name, result in expected.items():
            run = engine.handle(pipe, name)
            if run.info().status is not RunStatus.COMPLETED:
                return f"{name} is {run.info().status}: {[reason.text for reason in run.why()]}"
            if run.result() != result:
                return f"{name} gave {run.result()}"
            if table != "holdfast_sinks" and name not in site.sink.runs:
                return f"no event of {name} has come"
        if problem := what_is_wrong_with_the_schedule(site):
            return problem
        listed = {run.id for run in engine.runs()}
        if not listed >= expected.keys():
            return f"only {sorted(listed)} are listed"
        engine.count()
        engine.doctor()
        for name in HURT:
            ask(engine.handle(pipe, name))
    return ""


def what_is_wrong_with_the_schedule(site: Site) -> str:
    """Return what is wrong with the schedule that is well; nothing if it has started a run each minute."""
    core = site.opened.core
    row = core.stores.persistence.read(FindSchedule(ScheduleName(core.namespace, "tick-well")))
    assert row is not None
    handled = row.started + row.skipped
    if row.problem is not None or row.started < ROUNDS // 2 - 2 or handled < ROUNDS // 2:
        return f"the schedule has started {row.started} and skipped {row.skipped}: {row.problem}"
    return ""
