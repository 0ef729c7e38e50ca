"""The cost of commands: one commit for a batch, and as many statements for five jobs as for 500."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import attrs
import pytest

from holdfast.hosts.client.bulk_actions import RERUNS_AT_ONCE, BulkResult
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.events.flusher import Flusher
from holdfast.hosts.execution.bodies import Bodies
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Rate, Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import (
    FLUSH_LIMIT,
    AiCallOutput,
    AnnotationOutput,
    ArtifactOutput,
    Attempt,
    AttemptOutput,
    AttemptReport,
    Completed,
    Failed,
    Failure,
    JobAdmit,
    JobClaim,
    JobHeartbeat,
    JobReapUnresponsive,
    JobRelease,
    JobSettle,
    MapExpanded,
    Outcome,
    RunCreate,
    RunRemove,
    RunRerunFrom,
    SessionOpen,
    SessionRenew,
    UnresponsiveReaped,
)
from holdfast.kernel.commands.codec import to_data
from holdfast.kernel.commands.jobs import OutputKind
from holdfast.kernel.runs.rerun_preview import preview_rerun
from holdfast.ports.errors import CommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.queries.runs import FindRun, RunsByKey
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from holdfast.testing.sink import MemorySink
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements
from tests.sizes import sized

pytestmark = pytest.mark.sized

HOUR = 3_600_000_000
FEW, MANY = 5, sized(200, 500)
MOST = (pytest.param(sized(400, 1_000)), pytest.param(10_000, marks=pytest.mark.slow))


@stage(retry=Retry(attempts=9, wait=timedelta(hours=1)))
def one(x: int) -> int:
    return x


@stage
def two(x: int) -> int:
    return x


@stage
def last(x: list[int]) -> int:
    return len(x)


@stage
def nothing() -> int:
    return 0


@stage
def up_to(x: int) -> list[int]:
    return list(range(x))


LONG = Pipeline("long", input=int).pipe(one).pipe(two)
SHORT = Pipeline("short", input=int).pipe(two)
# Silent as soon as it is claimed.
WATCHED = Pipeline("watched", input=int).pipe(
    attrs.evolve(one, name="watched", heartbeat_timeout=timedelta(microseconds=1))
)
WIDE = Pipeline("wide", input=list[int]).map(two, limit=100)
BROAD = Pipeline("broad", input=list[int]).map(two, limit=10_000).pipe(last)


def payload(value: object) -> Payload:
    return Payload(inline=canonical(value))


COMPLETED = Completed(output=payload(1))
FAILED = Failed(failure=Failure(code="oops", message="no"))
FATAL = Failed(failure=Failure(code="oops", message="no", retryable=False))


class Worked:
    """An engine and a session that do a worker's work one command at a time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.kernel = engine.kernel
        self.namespace = engine.core.namespace
        # SQLite looks for what is to be locked before it begins, and keeps others from writing.
        self.looks = 1 if engine.core.stores.file else 0
        self.session = self.kernel.dispatch(
            SessionOpen(namespace=self.namespace, host="h", lease=HOUR)
        ).session

    def create(self, number: int, workflow: str, value: object = 1) -> list[str]:
        command = RunCreate(namespace=self.namespace, workflow=workflow, input=payload(value))
        answers = self.kernel.dispatch_many([command] * number)
        return [answer.run_id for answer in answers if not isinstance(answer, CommandError)]

    def claim(self, number: int) -> tuple[Attempt, ...]:
        lane = QueueClaim(queue="default", definitions=self.engine.core.registry.definitions, limit=number)
        command = JobClaim(namespace=self.namespace, session=self.session, queue_claims=(lane,), limit=number)
        return self.kernel.dispatch(command).attempts

    def settle(
        self,
        attempts: Sequence[Attempt],
        outcome: Outcome,
        *,
        said: tuple[AttemptOutput, ...] = (),
        take_next: str | None = None,
    ) -> list[Attempt]:
        """Settle attempts, and return those that the settles claimed."""
        commands = [
            JobSettle(
                namespace=self.namespace,
                job=attempt.job,
                epoch=attempt.epoch,
                outcome=outcome,
                outputs=said,
                take_next=take_next,
            )
            for attempt in attempts
        ]
        answers = self.kernel.dispatch_many(commands)
        assert all(not isinstance(answer, CommandError) and answer.status == "settled" for answer in answers)
        return [answer.next for answer in answers if not isinstance(answer, CommandError) and answer.next]

    def row(self, id: str) -> Run:
        run = self.engine.core.stores.persistence.read(FindRun(RunName(self.namespace, id)))
        assert run is not None
        return run


@pytest.fixture
def worked(open_engine: OpenEngine) -> Worked:
    worked = Worked(open_engine(LONG, SHORT, WATCHED, WIDE, BROAD))
    # Once, so that plans are known and stored: they are read and written once in a process's life.
    texts = (("long", "1"), ("short", "1"), ("watched", "1"), ("wide", "[]"), ("broad", "[]"))
    for workflow, text in texts:
        worked.create(1, workflow, parse(text))
    while attempts := worked.claim(10):
        Bodies(worked.engine.core).prepare(attempts)
        for attempt in attempts:
            worked.settle([attempt], COMPLETED if attempt.kind is JobKind.STAGE else MapExpanded(items=()))
    return worked


def costs(statements: Statements, do: Callable[[int], object]) -> Statements:
    """Return the cost of an operation on few, and check that it is the same for many."""
    found: list[Statements] = []
    for number in (FEW, MANY):
        with statements.of() as within:
            do(number)
        found.append(within)
    few, many = found
    assert few.sent == many.sent
    return many


# Runs -----------------------------------------------------------------------------------------------------------


def test_creating_a_run_is_one_commit(worked: Worked, statements: Statements) -> None:
    with statements.of() as within:
        worked.engine.sync.start(SHORT(1))

    assert within.commits == 1
    # The run, its job, its history. Nobody can have a run of an id that was drawn just now, so nothing is read.
    assert within.queries == 3


def test_creating_a_run_of_a_given_id_and_key_is_one_commit(worked: Worked, statements: Statements) -> None:
    with statements.of() as within:
        worked.engine.sync.start(SHORT(1), id="x", idempotency_key="k")

    assert within.commits == 1
    # Beside those: is there such a run, which is asked twice over, or such a key? And the reply.
    assert within.queries == 7


def test_creating_many_runs_costs_no_more_statements_than_creating_few(
    worked: Worked, statements: Statements
) -> None:
    within = costs(statements, lambda number: worked.create(number, "short"))

    assert (within.commits, within.queries) == (1, 3)


@pytest.mark.slow
def test_attributes_of_runs_cost_one_statement_more_however_many_they_are(
    worked: Worked, statements: Statements
) -> None:
    def create(number: int) -> None:
        attributes = canonical({f"name-{n}": "text" for n in range(min(number, 20))})
        command = RunCreate(
            namespace=worked.namespace, workflow="short", input=payload(1), attributes=attributes
        )
        worked.kernel.dispatch_many([command] * number)

    within = costs(statements, create)

    assert (within.commits, within.queries) == (1, 4)


def test_runs_are_listed_and_counted_with_one_statement(worked: Worked, statements: Statements) -> None:
    worked.create(MANY, "short")
    with statements.of() as listed:
        asked = worked.engine.sync.runs(workflow="short", status=["running", "failed"], limit=50)
        assert len(list(asked)) == 50
    with statements.of() as counted:
        assert worked.engine.sync.count(workflow="short", status="running") == {"running": MANY}

    assert (listed.queries, listed.commits) == (counted.queries, counted.commits) == (1, 0)


# Jobs -----------------------------------------------------------------------------------------------------------


def test_claiming_many_jobs_costs_no_more_statements_than_claiming_few(
    worked: Worked, statements: Statements
) -> None:
    worked.create(FEW + MANY, "short")
    claimed: list[int] = []

    within = costs(statements, lambda number: claimed.append(len(worked.claim(number))))

    assert claimed == [FEW, MANY]
    assert within.commits == 1
    # The jobs with their session; one write.
    assert within.queries == 2 + worked.looks


def test_reading_what_many_jobs_need_costs_no_more_statements_than_for_few(
    worked: Worked, statements: Statements
) -> None:
    worked.create(FEW + MANY, "short")
    attempts = iter([worked.claim(FEW), worked.claim(MANY)])

    within = costs(statements, lambda _: Bodies(worked.engine.core).prepare(next(attempts)))

    assert (within.commits, within.queries) == (0, 2)


@pytest.mark.parametrize(
    ("workflow", "outcome", "queries"),
    [
        # Runs and jobs are locked and read; runs, closed jobs and history are written.
        pytest.param("short", COMPLETED, 5, id="runs end"),
        # Beside those: the next jobs.
        pytest.param("long", COMPLETED, 6, id="runs go on"),
        # Jobs are updated, and not closed.
        pytest.param("long", FAILED, 5, id="bodies are tried again"),
    ],
)
def test_settling_many_jobs_is_one_commit_and_costs_no_more_statements_than_settling_few(
    worked: Worked, statements: Statements, workflow: str, outcome: Outcome, queries: int
) -> None:
    worked.create(FEW + MANY, workflow)
    attempts = iter([worked.claim(FEW), worked.claim(MANY)])

    within = costs(statements, lambda _: worked.settle(next(attempts), outcome))

    assert (within.commits, within.queries) == (1, queries)


@pytest.mark.slow
def test_settles_that_take_the_next_jobs_are_one_commit_and_cost_one_statement_more(
    worked: Worked, statements: Statements
) -> None:
    """The extra statement reads the session. In return there is no separate claim."""
    worked.create(FEW + MANY, "long")
    attempts = iter([worked.claim(FEW), worked.claim(MANY)])
    taken: list[int] = []

    def settle(_: int) -> None:
        taken.append(len(worked.settle(next(attempts), COMPLETED, take_next=worked.session)))

    within = costs(statements, settle)

    assert taken == [FEW, MANY]
    assert (within.commits, within.queries) == (1, 7)


@pytest.mark.slow
def test_output_of_bodies_costs_one_or_two_statements_more_however_much_it_is(
    worked: Worked, statements: Statements, url: str
) -> None:
    """One adds the lines, and where there are several writers one locks the logs before, as lines are numbered.

    Both are sent with the others.
    """
    worked.create(FEW + MANY, "short")
    said = tuple(AttemptOutput(kind="log", at=1, data=canonical({"message": str(n)})) for n in range(3))
    attempts = iter([worked.claim(FEW), worked.claim(MANY)])

    within = costs(statements, lambda _: worked.settle(next(attempts), COMPLETED, said=said))

    assert (within.commits, within.queries) == (1, 6 if url.startswith("sqlite") else 7)


def test_a_heartbeat_for_many_costs_no_more_statements_than_for_few(
    worked: Worked, statements: Statements
) -> None:
    worked.create(MANY, "short")
    attempts = worked.claim(MANY)

    def beat(number: int) -> None:
        held = tuple(AttemptReport(job=attempt.job, epoch=attempt.epoch) for attempt in attempts[:number])
        assert worked.kernel.dispatch(JobHeartbeat(namespace=worked.namespace, attempts=held)).lost == ()

    within = costs(statements, beat)

    assert within.queries == 1
    # It keeps nobody from writing; on SQLite that would be everybody.
    assert not within.texts_with("BEGIN IMMEDIATE")
    assert not within.texts_with("FOR UPDATE")
    assert not within.texts_with("INSERT")
    assert not within.texts_with("UPDATE holdfast")


def test_heartbeats_of_many_bodies_cost_two_writes_however_many_they_are(
    worked: Worked, statements: Statements
) -> None:
    worked.create(MANY, "watched")
    attempts = worked.claim(MANY)
    said = (AttemptOutput(kind="heartbeat", at=1, data='{"page":1}'),)

    def beat(number: int) -> None:
        held = tuple(
            AttemptReport(job=attempt.job, epoch=attempt.epoch, outputs=said) for attempt in attempts[:number]
        )
        assert worked.kernel.dispatch(JobHeartbeat(namespace=worked.namespace, attempts=held)).lost == ()

    within = costs(statements, beat)

    assert within.queries == 3  # the jobs, which are locked, and the two writes
    assert len(within.texts_with("UPDATE holdfast_jobs")) == 1
    assert len(within.texts_with("INSERT INTO holdfast_attempt_output")) == 1


@pytest.mark.slow
def test_taking_many_silent_jobs_costs_no_more_statements_than_taking_few(
    worked: Worked, statements: Statements
) -> None:
    def reap(number: int) -> None:
        worked.create(number, "watched")
        assert len(worked.claim(number)) == number
        with statements.of() as within:
            reaped = worked.kernel.dispatch(JobReapUnresponsive(namespace=worked.namespace))
        assert reaped == UnresponsiveReaped(freed=number, dead=0)
        found.append(within)

    while worked.kernel.dispatch(JobReapUnresponsive(namespace=worked.namespace)).freed:
        pass  # what other tests have left behind
    found: list[Statements] = []
    reap(FEW)
    reap(MANY)

    few, many = found
    assert few.sent == many.sent
    # The search; runs, jobs; and the writes of runs, jobs and history.
    assert many.queries == 6


def test_giving_many_jobs_back_costs_no_more_statements_than_giving_few(
    worked: Worked, statements: Statements
) -> None:
    worked.create(FEW + MANY, "short")
    attempts = iter([worked.claim(FEW), worked.claim(MANY)])

    def release(_: int) -> None:
        worked.kernel.dispatch_many(
            [
                JobRelease(namespace=worked.namespace, job=attempt.job, epoch=attempt.epoch)
                for attempt in next(attempts)
            ]
        )

    assert costs(statements, release).commits == 1


def test_renewing_a_session_writes_one_row_whatever_it_holds(worked: Worked, statements: Statements) -> None:
    worked.create(MANY, "short")
    worked.claim(MANY)
    with statements.of() as within:
        worked.kernel.dispatch(SessionRenew(namespace=worked.namespace, session=worked.session, lease=HOUR))

    assert (within.commits, within.queries) == (1, 2)
    assert not within.texts_with("holdfast_jobs")


def test_a_claim_that_finds_nothing_is_one_query(worked: Worked, statements: Statements) -> None:
    """Not even the session is read; and on SQLite it blocks no writer."""
    with statements.of() as within:
        assert worked.claim(100) == ()

    assert within.queries == 1
    assert not within.texts_with("BEGIN IMMEDIATE")


# Maps -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_settling_items_costs_the_same_however_wide_their_map_is(
    worked: Worked, statements: Statements
) -> None:
    """The run's row, which every settle writes, holds counters only."""
    found: list[tuple[Statements, int]] = []
    for width in (200, 10_000):
        (run,) = worked.create(1, "wide")
        (expansion,) = worked.claim(1)
        worked.settle([expansion], MapExpanded(items=tuple(payload(n) for n in range(width))))
        attempts = worked.claim(50)
        assert len(attempts) == 50
        with statements.of() as within:
            worked.settle(attempts, COMPLETED)
        found.append((within, len(worked.row(run).progress)))
        worked.engine.sync.handle(WIDE, run).cancel()

    (narrow, small), (wide, large) = found
    assert narrow.sent == wide.sent
    assert narrow.written == wide.written
    assert (wide.commits, wide.queries) == (1, 6)
    # The run; for each item its job, the next one's, and its row in the history.
    assert wide.written == 1 + 3 * 50
    assert large - small <= 4, "the digits of its counters"


@pytest.mark.slow
def test_items_cost_the_same_from_the_first_to_the_last_however_many_there_are(
    worked: Worked, statements: Statements
) -> None:
    found: dict[int, list[Statements]] = {}
    for width in (300, many := sized(1_000, 3_000)):
        (run,) = worked.create(1, "wide")
        (expansion,) = worked.claim(1)
        worked.settle([expansion], MapExpanded(items=tuple(payload(n) for n in range(width))))
        found[width] = []
        for _ in range(width // 50):
            with statements.of() as within:
                attempts = worked.claim(50)
                Bodies(worked.engine.core).prepare(attempts)
                worked.settle(attempts, COMPLETED)
            found[width].append(within)
        assert worked.row(run).status == "completed"

    # The last hundred open no others: `limit` is 100.
    first, *others = [*found[300][:-2], *found[many][:-2]]
    assert len(others) == 4 + many // 50 - 2 - 1
    for other in others:
        assert (other.sent, other.written) == (first.sent, first.written)


def test_expanding_a_wide_map_costs_no_more_statements_than_expanding_a_narrow_one(
    worked: Worked, statements: Statements
) -> None:
    worked.create(2, "wide")
    found: list[Statements] = []
    for expansion, width in zip(worked.claim(2), (10, 5_000), strict=True):
        assert expansion.kind is JobKind.EXPAND_MAP
        with statements.of() as within:
            worked.settle([expansion], MapExpanded(items=tuple(payload(n) for n in range(width))))
        found.append(within)

    assert found[0].sent == found[1].sent
    # Beside what settling costs: the pages of items.
    assert (found[1].commits, found[1].queries) == (1, 7)


def test_the_items_of_one_page_are_read_once_for_all_of_them(worked: Worked, statements: Statements) -> None:
    worked.create(1, "wide")
    (expansion,) = worked.claim(1)
    worked.settle([expansion], MapExpanded(items=tuple(payload(n) for n in range(1_000))))
    attempts = worked.claim(50)
    with statements.of() as within:
        bodies, _ = Bodies(worked.engine.core).prepare(attempts)

    assert sorted(body.arguments() for body in bodies) == [(n,) for n in range(50)]
    assert within.queries == 2


# Events ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sinks_cost_a_transaction_one_statement_however_many_commands_and_sinks_there_are(
    worked: Worked, statements: Statements
) -> None:
    for name in ("audit", "search"):
        worked.engine.sync.register_sink(name)
    worked.create(1, "short")  # which sinks there are is asked every few seconds
    (attempt,) = worked.claim(10)
    worked.settle([attempt], COMPLETED)

    within = costs(statements, lambda number: worked.create(number, "short"))
    assert (within.commits, within.queries) == (1, 4)
    attempts = iter([worked.claim(FEW), worked.claim(MANY)])
    within = costs(statements, lambda _: worked.settle(next(attempts), COMPLETED))
    assert (within.commits, within.queries) == (1, 6)


def test_which_sinks_there_are_costs_one_statement_and_no_claim(
    worked: Worked, statements: Statements
) -> None:
    with statements.of() as within:
        worked.engine.sync.start(SHORT(1))
        worked.claim(10)
    assert not within.texts_with("holdfast_sinks")
    fresh = Engine.on(worked.engine.core.stores, workflows=[SHORT], namespace=worked.namespace)
    with statements.of() as within:
        fresh.sync.start(SHORT(1))
        fresh.sync.start(SHORT(1))

    assert sum(times for sql, times in within.sent.items() if "holdfast_sinks" in sql) == 1


@pytest.mark.slow
def test_a_flush_costs_no_more_statements_for_many_runs_than_for_few(
    worked: Worked, statements: Statements
) -> None:
    sink = MemorySink()
    worked.engine.sync.register_sink("audit")
    flusher = Flusher(worked.engine.core, {"audit": sink})
    flusher.flush()
    found: list[Statements] = []
    for number in (2, FLUSH_LIMIT):
        worked.create(number, "short")
        with statements.of() as within:
            assert flusher.flush_once("audit").events == number
        found.append(within)
    few, many = found

    # That a sink takes events is noted once a second at most.
    seldom = {*few.texts_with("UPDATE holdfast_sinks"), *many.texts_with("UPDATE holdfast_sinks")}
    some, more = ({sql: times for sql, times in one.sent.items() if sql not in seldom} for one in (few, many))
    assert some == more
    # Two transactions: streams are found and leased, then their cursors are moved; between them rows and runs are read.
    assert many.commits == 2
    with statements.of() as within:
        assert flusher.find_due_sinks() == ()
    assert (within.queries, within.commits) == (1, 0)


# Again ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize("done", [False, True])
def test_running_again_costs_no_more_statements_for_a_run_of_many_items_than_for_one_of_ten(
    worked: Worked, statements: Statements, *, done: bool, most: int
) -> None:
    """Open items are closed and completed ones kept without reading them."""
    found: list[Statements] = []
    for width in (10, most):
        worked.create(1, "broad")
        (expansion,) = worked.claim(1)
        run = worked.engine.core.stores.persistence.read(RunsByKey((expansion.run,)))[0]
        worked.settle([expansion], MapExpanded(items=tuple(payload(n) for n in range(width))))
        assert worked.row(run.id).open_jobs == width
        if done:
            while attempts := [one for one in worked.claim(500) if one.item is not None]:
                worked.settle(attempts, COMPLETED)
            assert worked.row(run.id).open_jobs == 1
        command = RunRerunFrom(namespace=worked.namespace, run_id=run.id, stage="last" if done else None)
        with statements.of() as preview:
            preview_rerun(worked.kernel.persistence, worked.kernel.workflows, command)
        with statements.of() as within:
            answer = worked.kernel.dispatch(command)
        assert (answer.terminated, answer.keeps) == (True, ("two",) if done else ())
        # The run, its plan, and what its history has of its nodes.
        assert (preview.commits, preview.queries) == (0, 3)
        found.append(within)
        worked.engine.sync.handle(WIDE, run.id).cancel()

    narrow, wide = found
    assert narrow.sent == wide.sent
    # Read: the run, which is asked twice over, what its history has of its nodes, and what it was given. Written: the
    # new run and the old one, the old one's jobs closed, the new one's job, and the histories.
    assert (wide.commits, wide.queries) == (1, 9)


@pytest.mark.parametrize(
    ("how", "queries", "most"),
    [
        # The run, which is asked for twice over, with its driver; the run, its jobs and its history are written. No job
        # of a stage is looked at but the one that could be the driver.
        *(pytest.param("cancel", 6, *most.values, marks=most.marks) for most in MOST),
        *(pytest.param("terminate", 5, *most.values, marks=most.marks) for most in MOST),
        # Jobs are read before they are held, and each is written anew: not 10,000 of them on a busy machine.
        ("pause", 6, sized(400, 1_000)),
        ("resume", 6, sized(400, 1_000)),
    ],
)
def test_acting_on_a_run_of_many_open_items_costs_the_statements_of_one_with_ten(
    worked: Worked, statements: Statements, how: str, queries: int, most: int
) -> None:
    found: list[Statements] = []
    for width in (10, most):
        (run,) = worked.create(1, "broad")
        (expansion,) = worked.claim(1)
        worked.settle([expansion], MapExpanded(items=tuple(payload(n) for n in range(width))))
        handle = worked.engine.sync.handle(BROAD, run)
        if how == "resume":
            handle.pause()
        with statements.of() as within:
            getattr(handle, how)()
        found.append(within)
        if how in {"pause", "resume"}:
            handle.terminate()
        assert worked.row(run).open_jobs == 0

    narrow, wide = found
    assert narrow.sent == wide.sent
    assert (wide.commits, wide.queries) == (1, queries)
    assert wide.written - narrow.written == most - 10


@pytest.mark.slow
def test_running_many_runs_again_costs_no_more_statements_than_running_few(
    worked: Worked, statements: Statements
) -> None:
    ids = worked.create(MANY, "long")

    def again(number: int) -> None:
        commands = [RunRerunFrom(namespace=worked.namespace, run_id=one) for one in ids[:number]]
        assert not [one for one in worked.kernel.dispatch_many(commands) if isinstance(one, CommandError)]

    within = costs(statements, again)
    assert (within.commits, within.queries) == (1, 9)


def test_removing_many_runs_costs_no_more_statements_than_removing_few(
    worked: Worked, statements: Statements
) -> None:
    def remove(number: int) -> Statements:
        runs = worked.create(number, "short")
        attempts = worked.claim(number)
        worked.settle(attempts, COMPLETED)
        commands = [RunRemove(namespace=worked.namespace, run_id=run) for run in runs]
        with statements.of() as within:
            answers = worked.kernel.dispatch_many(commands)
        assert all(getattr(answer, "removed", False) for answer in answers)
        return within

    few, many = remove(FEW), remove(MANY)

    assert few.sent == many.sent
    # The newest generations are locked, what all of them leave is read, and there is one statement for each table.
    assert (many.commits, many.queries) == (1, 14)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cancel", "terminate", "pause", "resume", "rerun"])
def test_acting_on_many_runs_costs_a_page_what_it_costs_few_of_them(
    worked: Worked, statements: Statements, how: str
) -> None:
    engine = worked.engine.sync
    act = getattr(engine, f"{how}_all")
    found: list[Statements] = []
    for number in (FEW, RERUNS_AT_ONCE):
        worked.create(number, "long")
        if how == "resume":
            engine.pause_all()
        elif how == "rerun":
            worked.settle(worked.claim(number), FATAL)
        with statements.of() as within:
            assert act() == BulkResult(changed=number)
        found.append(within)
        engine.cancel_all()

    few, many = found
    # Of the larger number one more page is looked for where that was a whole page, and nothing is done to it.
    assert few.commits == many.commits == 1
    assert many.queries - few.queries == (1 if how == "rerun" else 0)


# What is said ---------------------------------------------------------------------------------------------------


def of_kind(kind: OutputKind, data: object, number: int) -> tuple[AttemptOutput, ...]:
    return tuple(AttemptOutput(kind=kind, at=at, data=canonical(to_data(data))) for at in range(number))


CALL = of_kind("ai_call", AiCallOutput(topic="t", model="m"), 3)
OBJECT = of_kind("annotation", AnnotationOutput(name="n", value='{"a":1}'), 3)
NUMBER = of_kind("annotation", AnnotationOutput(name="n", value="1"), 3)
TEXT = of_kind("annotation", AnnotationOutput(name="n", value='"t"'), 3)
KEYED = of_kind("annotation", AnnotationOutput(name="n", value='{"a":1}', key="k"), 3)
ARTIFACT = of_kind("artifact", ArtifactOutput(name="a", content_type="a/b", size=1, sha256="a", blob="b"), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "more"),
    [
        pytest.param((), 0, id="nothing"),
        pytest.param(CALL, 1, id="calls of models"),
        pytest.param(OBJECT, 1, id="annotations"),
        # Beside the annotations: the index by which runs are found.
        pytest.param(TEXT, 2, id="texts"),
        pytest.param((*TEXT, *NUMBER), 2, id="texts and numbers"),
        # Beside the annotations: is there one under the key?
        pytest.param(KEYED, 2, id="under a key"),
        pytest.param(ARTIFACT, 1, id="artifacts"),
        pytest.param((*CALL, *OBJECT, *ARTIFACT), 3, id="all of it"),
    ],
)
def test_each_kind_of_what_is_said_costs_one_statement_however_much_it_is(
    worked: Worked, statements: Statements, said: tuple[AttemptOutput, ...], more: int
) -> None:
    worked.create(FEW + MANY, "short")
    attempts = iter([worked.claim(FEW), worked.claim(MANY)])

    within = costs(statements, lambda _: worked.settle(next(attempts), COMPLETED, said=said))

    assert (within.commits, within.queries) == (1, 5 + more)


def test_a_run_is_annotated_in_one_commit(worked: Worked, statements: Statements) -> None:
    run = worked.engine.sync.start(SHORT(1))
    with statements.of() as within:
        run.annotate({str(number): number for number in range(100)})

    assert within.commits == 1
    # The run, which is asked for twice over; the annotations; the values by which the run is found.
    assert within.queries == 4


def test_what_was_said_is_read_with_few_statements(worked: Worked, statements: Statements) -> None:
    run = worked.engine.sync.start(SHORT(1))
    run.annotate({"a": 1, "b": "c"})
    with statements.of() as within:
        assert len(list(run.annotations())) == 2
        assert not list(run.logs())
        assert not run.progress()
    with statements.of() as found:
        assert len(list(worked.engine.sync.runs(annotations={"b": "c"}))) == 1

    # Each of them asks which run it is, and then what there is.
    assert (within.queries, within.commits) == (6, 0)
    assert found.queries == 1


# Rate limits ----------------------------------------------------------------------------------------------------


@stage(rate_limit=Rate(3, per=timedelta(hours=1)))
def rated(x: int) -> int:
    return x


RATED = Pipeline("rated", input=int).pipe(rated)


@pytest.mark.parametrize("pipeline", [SHORT, RATED], ids=["free", "rated"])
def test_a_rate_limit_costs_only_those_who_have_one(
    open_engine: OpenEngine, statements: Statements, pipeline: Pipeline[int, int]
) -> None:
    """Stages without a rate limit send no statement about rates."""
    engine = open_engine(pipeline)
    for number in range(5):
        engine.sync.start(pipeline(number))
    worked = Worked(engine)
    (first, *_) = worked.claim(5)
    worked.kernel.dispatch(JobRelease(namespace=worked.namespace, job=first.job, epoch=first.epoch))
    ServerlessHost(engine).run_maintenance_tick()
    ServerlessHost(engine).process_available_jobs(max_jobs=5)

    asked = [
        sql
        for part in ("holdfast_rate_limits", "j.rate_limit IS NOT NULL")
        for sql in statements.texts_with(part)
    ]
    # What is pruned, and the maintenance of the tables, knows of all tables; a tick looks once for rates that are due.
    asked = [sql for sql in asked if not sql.startswith(("DELETE", "CREATE", "ALTER"))]
    asked = [sql for sql in asked if "w.admits_at <= " not in sql]
    # If it finds some, in the namespaces of other tests, it reads their windows, without a lock.
    asked = [sql for sql in asked if "AS t WHERE t.namespace" not in sql or "FOR UPDATE" in sql]
    assert bool(asked) == (pipeline is RATED)


@pytest.mark.parametrize("waiting", [FEW, MANY])
def test_what_a_rate_limit_costs_does_not_depend_on_how_many_wait(
    open_engine: OpenEngine, statements: Statements, waiting: int
) -> None:
    engine = open_engine(RATED)
    kernel, namespace = engine.kernel, engine.core.namespace
    kernel.dispatch_many(
        [RunCreate(namespace=namespace, workflow="rated", input=payload(1)) for _ in range(waiting)]
    )
    with statements.of() as admitted:
        assert kernel.dispatch(JobAdmit(namespace=namespace, keys=("rated/rated",))).admitted == 3
    worked = Worked(engine)
    with statements.of() as claimed:
        assert len(worked.claim(9)) == 3
    with statements.of() as put_to_sleep:
        kernel.dispatch(JobAdmit(namespace=namespace, keys=("rated/rated",)))
    with statements.of() as idle:
        assert kernel.dispatch(JobAdmit(namespace=namespace, keys=("rated/rated",))).admitted == 0

    # Who waits, counted starts twice, the queued twice, the first of them, their rows; then jobs are written.
    assert admitted.queries - worked.looks <= 8
    assert (admitted.written, put_to_sleep.written) == (3, 2)
    # The jobs, the session, the starts; then both are written.
    assert claimed.queries - worked.looks <= 6
    assert claimed.written == 4
    assert (idle.queries, idle.written) == (3, 0)
