"""The cost of durable functions: one commit for each step of a chain, one for many runs at once."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.hosts.execution.child_results import AT_ONCE
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.authoring.workflow_context import workflow_context
from holdfast.kernel.commands import (
    Attempt,
    ChannelMessage,
    EventAppend,
    FunctionWaiting,
    JobClaim,
    JobRecord,
    JobSettle,
    RunCreate,
    RunSignal,
    SessionOpen,
    SignalSend,
    UpdateSend,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.history import events
from holdfast.ports.errors import CommandError
from holdfast.ports.json import canonical
from holdfast.ports.queries.history import HistoriesOf, HistoryOf
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements
from tests.sizes import sized

pytestmark = pytest.mark.sized

HOUR = 3_600_000_000
FEW, MANY = 5, sized(200, 500)
STEPS_MANY = sized(60, 200)
WOKEN = 16

go = Channel("go", int)


@step
async def add(number: int) -> int:
    return number + 1


@workflow
async def chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add(number)
    return number


@workflow
async def chatty_chain(steps: int) -> int:
    ctx, number = workflow_context(), 0
    for turn in range(steps):
        for line in range(1_000 // steps):
            ctx.log("line", turn=turn, line=line)
        number = await add(number)
    return number


@workflow
async def chain_and_wait(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add(number)
    return number + await go.receive()


@workflow
async def nap() -> None:
    await sleep(timedelta(days=90))


def reads_of_history(counted: Statements) -> list[str]:
    """Return the statements that read the histories of runs."""
    return [
        sql
        for sql in counted.sent.elements()
        if sql.startswith("SELECT") and "holdfast_history" in sql and "number > " in sql
    ]


@pytest.mark.slow
def test_a_thousand_log_lines_of_a_function_cost_no_commit(
    open_engine: OpenEngine, statements: Statements
) -> None:
    engine, commits, stored = open_engine(chain, chatty_chain), list[int](), list[str]()
    for call in (chain(FEW), chain(FEW), chatty_chain(FEW)):
        engine.sync.start(call)
        host = ServerlessHost(engine)
        with statements.of() as counted:
            assert host.process_available_jobs(max_jobs=1, concurrency=1).completed == 1
        commits.append(counted.commits)
        stored = [sql for sql in counted.sent.elements() if "INSERT INTO holdfast_attempt_output" in sql]
    assert commits[1] == commits[2]
    assert len(stored) <= FEW + 1
    (run,) = engine.sync.runs(workflow="chatty_chain")
    assert len(list(engine.sync.handle(chatty_chain, run.id).logs())) == 1_000


@pytest.mark.parametrize("steps", [FEW, sized(20, 50)])
def test_a_chain_of_steps_is_a_commit_for_each_and_two_more(
    open_engine: OpenEngine, statements: Statements, steps: int
) -> None:
    engine = open_engine(chain)
    engine.sync.start(chain(steps), id="x")
    host = ServerlessHost(engine)
    with statements.of() as counted:
        assert host.process_available_jobs(max_jobs=1, concurrency=1).completed == 1
    recorded = [sql for sql in counted.sent.elements() if "INSERT INTO holdfast_history" in sql]
    assert len(recorded) == steps + 1
    # The session is opened and closed around it, and the next claim finds nothing.
    assert steps + 2 <= counted.commits <= steps + 4


@pytest.mark.parametrize("steps", [1, 5])
def test_the_last_step_and_the_end_share_a_commit_once_earlier_runs_have_shown_it(
    open_engine: OpenEngine, statements: Statements, steps: int
) -> None:
    engine = open_engine(chain)
    host, commits = ServerlessHost(engine), list[int]()
    for _ in range(3):
        engine.sync.start(chain(steps))
        with statements.of() as counted:
            assert host.process_available_jobs(max_jobs=1, concurrency=1).completed == 1
        commits.append(counted.commits)
    # The claim, and one for each step. The first time also the session that is opened, and the end.
    assert commits == [steps + 3, steps + 1, steps + 1]


@step(retry=Retry(attempts=2, wait=timedelta(milliseconds=50), jitter=0))
async def add_at_last(number: int) -> int:
    if step_context().attempt == 1:
        raise ConnectionError("not yet")
    return number + 1


@workflow
async def retried() -> int:
    return await add_at_last(1)


def test_a_retry_that_waits_costs_two_transactions_one_of_which_writes_no_row(
    open_engine: OpenEngine, statements: Statements
) -> None:
    """The failure is recorded, and the lease is confirmed when the retry has become due (decision 141)."""
    engine, costs = open_engine(chain, retried), list[tuple[int, int]]()
    for call in (chain(1), retried(), chain(1), retried()):
        engine.sync.start(call)
        host = ServerlessHost(engine)
        with statements.of() as counted:
            assert host.process_available_jobs(max_jobs=1, concurrency=1).completed == 1
        recorded = sum("INSERT INTO holdfast_history" in sql for sql in counted.sent.elements())
        costs.append((counted.commits, recorded))
    (commits, rows), (with_retry, rows_with_retry) = costs[-2:]
    assert (with_retry - commits, rows_with_retry - rows) == (2, 1)


@step(queue="gpu")
async def add_elsewhere(number: int) -> int:
    return number + 1


@workflow
async def chain_elsewhere(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_elsewhere(number)
    return number


@pytest.mark.slow
@pytest.mark.parametrize("steps", [FEW, sized(20, 50)])
def test_a_step_of_a_queue_is_two_rows_and_six_commits(
    open_engine: OpenEngine, statements: Statements, steps: int
) -> None:
    """Recorded and parked, claimed and settled, and its function claimed again; plus opening the session."""
    engine = open_engine(chain_elsewhere)
    engine.sync.start(chain_elsewhere(steps), id="x")
    host = ServerlessHost(engine)
    with statements.of() as counted:
        assert host.process_available_jobs(max_jobs=10 * steps, concurrency=1).completed == 2 * steps + 1
    recorded = [sql for sql in counted.sent.elements() if "INSERT INTO holdfast_history" in sql]
    assert len(recorded) == 2 * steps + 1
    assert counted.commits <= 6 * steps + 6, counted.commits / steps


@pytest.mark.slow
def test_steps_of_many_runs_share_commits(open_engine: OpenEngine, statements: Statements) -> None:
    steps, runs = 10, 50
    engine = open_engine(chain)
    for number in range(runs):
        engine.sync.start(chain(steps), id=str(number))
    host = ServerlessHost(engine)
    with statements.of() as counted:
        assert host.process_available_jobs(max_jobs=runs, concurrency=runs).completed == runs
    assert counted.commits < steps * runs / 2


class Driven:
    """Runs of a function that are driven one command at a time."""

    def __init__(self, kernel: Kernel, namespace: str, runs: int) -> None:
        self.kernel, self.namespace = kernel, namespace
        create = RunCreate(
            namespace=namespace, workflow="nap", input=Payload(inline=canonical(dict[str, object]()))
        )
        kernel.dispatch_many([create] * runs)
        session = kernel.dispatch(SessionOpen(namespace=namespace, host="h", lease=HOUR)).session
        lane = QueueClaim(queue="default", definitions=("nap@1",), limit=runs)
        claim = JobClaim(namespace=namespace, session=session, queue_claims=(lane,), limit=runs)
        self.attempts: tuple[Attempt, ...] = kernel.dispatch(claim).attempts
        assert len(self.attempts) == runs

    def record(self, call: str) -> None:
        row = EventAppend(
            event=events.StepCompleted(call=call, step="add", attempt=1), payload=Payload(inline="1")
        )
        commands = [
            JobRecord(namespace=self.namespace, job=one.job, epoch=one.epoch, seen=int(call), records=(row,))
            for one in self.attempts
        ]
        answers = self.kernel.dispatch_many(commands)
        assert all(not isinstance(one, CommandError) and one.status == "recorded" for one in answers)

    def look(self) -> None:
        self.kernel.dispatch_many(
            [
                JobRecord(namespace=self.namespace, job=one.job, epoch=one.epoch, seen=1)
                for one in self.attempts
            ]
        )

    def signal(self) -> None:
        """Let each run send a message to the next one."""
        signal = ChannelMessage(channel="go", payload=Payload(inline="1"))
        following = (*self.attempts[1:], self.attempts[0])
        commands = [
            JobRecord(
                namespace=self.namespace,
                job=one.job,
                epoch=one.epoch,
                seen=1,
                records=(SignalSend(call="1", run_id=other.run, signal=signal),),
            )
            for one, other in zip(self.attempts, following, strict=True)
        ]
        answers = self.kernel.dispatch_many(commands)
        assert all(not isinstance(one, CommandError) and one.status == "recorded" for one in answers)

    def update(self) -> None:
        """Let each run update the next one."""
        following = (*self.attempts[1:], self.attempts[0])
        commands = [
            JobRecord(
                namespace=self.namespace,
                job=one.job,
                epoch=one.epoch,
                seen=1,
                records=(
                    UpdateSend(call="1", run_id=other.run, update="A.b", arguments=Payload(inline="{}")),
                ),
            )
            for one, other in zip(self.attempts, following, strict=True)
        ]
        answers = self.kernel.dispatch_many(commands)
        assert all(not isinstance(one, CommandError) and one.status == "recorded" for one in answers)

    def answer(self) -> None:
        """Let each run answer the update of the other one."""
        answer = EventAppend(event=events.UpdateCompleted(call="update2"), payload=Payload(inline="1"))
        later = EventAppend(event=events.UpdateCompleted(call="update3"), payload=Payload(inline="1"))
        commands = [
            JobRecord(namespace=self.namespace, job=one.job, epoch=one.epoch, seen=3, records=(answer, later))
            for one in self.attempts
        ]
        answers = self.kernel.dispatch_many(commands)
        assert all(not isinstance(one, CommandError) and one.status == "recorded" for one in answers)

    def park(self) -> None:
        commands = [
            JobSettle(namespace=self.namespace, job=one.job, epoch=one.epoch, outcome=FunctionWaiting(seen=1))
            for one in self.attempts
        ]
        answers = self.kernel.dispatch_many(commands)
        assert all(not isinstance(one, CommandError) and one.status == "settled" for one in answers)


def costs(open_engine: OpenEngine, statements: Statements, what: str, runs: int) -> tuple[int, int]:
    """Return the statements and commits of an operation on so many runs."""
    engine = open_engine(nap)
    driven = Driven(engine.kernel, engine.core.namespace, runs)
    if what == "record again":
        driven.record("1")
    if what in {"answer", "deliver"}:
        engine.client.deliver_child_results()  # those of other tests
        driven.update()
    if what == "deliver":
        driven.answer()
    with statements.of() as counted:
        match what:
            case "record":
                driven.record("1")
            case "record again":
                driven.record("2")
            case "look":
                driven.look()
            case "signal":
                driven.signal()
            case "update":
                driven.update()
            case "answer":
                driven.answer()
            case "deliver":
                assert engine.client.deliver_child_results() == runs
            case _:
                driven.park()
    return counted.queries, counted.commits


@pytest.mark.parametrize("what", ["record", "record again", "look", "park", "signal", "update", "answer"])
def test_many_cost_as_many_statements_as_few(
    open_engine: OpenEngine, statements: Statements, what: str
) -> None:
    few, commits = costs(open_engine, statements, what, FEW)
    many, more_commits = costs(open_engine, statements, what, MANY)
    assert few == many
    assert commits == more_commits == 1
    most = {"record": 7, "record again": 7, "look": 4, "park": 6, "signal": 6, "update": 6, "answer": 6}
    assert many <= most[what]


def test_a_hundred_replies_cost_as_much_as_a_few(open_engine: OpenEngine, statements: Statements) -> None:
    few, commits = costs(open_engine, statements, "deliver", FEW)
    many, more_commits = costs(open_engine, statements, "deliver", AT_ONCE)
    assert (few, commits) == (many, more_commits)
    assert commits == 1
    assert many <= 12


@pytest.mark.parametrize("steps", [FEW, STEPS_MANY])
def test_what_a_message_costs_does_not_depend_on_the_history(
    open_engine: OpenEngine, statements: Statements, steps: int
) -> None:
    engine = open_engine(chain_and_wait)
    engine.sync.start(chain_and_wait(steps), id="x")
    host = ServerlessHost(engine)
    host.process_available_jobs(max_jobs=1)
    signal = ChannelMessage(channel="go", payload=Payload(inline="1"))
    with statements.of() as counted:
        engine.kernel.dispatch(RunSignal(namespace=engine.core.namespace, run_id="x", signal=signal))
    assert counted.commits == 1
    assert counted.queries <= 7


@pytest.mark.parametrize("steps", [FEW, STEPS_MANY])
def test_a_wake_up_reads_the_history_once_and_records_nothing_anew(
    open_engine: OpenEngine, statements: Statements, steps: int
) -> None:
    engine = open_engine(chain_and_wait)
    run = engine.sync.start(chain_and_wait(steps), id="x")
    ServerlessHost(engine).process_available_jobs(max_jobs=1)
    run.signal(go(1))
    woken = open_engine(chain_and_wait)
    host = ServerlessHost(woken)
    with statements.of() as counted:
        assert host.process_available_jobs(max_jobs=1).completed == 1
    assert run.result() == steps + 1
    assert len(reads_of_history(counted)) == 1
    assert counted.written <= 12


@pytest.mark.parametrize("steps", [FEW, STEPS_MANY])
def test_a_wake_up_of_a_function_in_memory_reads_what_is_new_and_replays_nothing(
    open_engine: OpenEngine, statements: Statements, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(chain_and_wait)
    run = engine.sync.start(chain_and_wait(steps), id="x")
    host = ServerlessHost(engine, function_cache=1)
    host.process_available_jobs(max_jobs=1)
    run.signal(go(1))
    read: list[int] = []
    persistence = engine.core.stores.persistence
    reads: Any = persistence.read

    def counted(query: object) -> Any:
        answer = reads(query)
        if isinstance(query, HistoryOf | HistoriesOf):
            read.append(len(answer))
        return answer

    monkeypatch.setattr(persistence, "read", counted)
    with statements.of() as counting:
        assert host.process_available_jobs(max_jobs=1).completed == 1
    assert run.result() == steps + 1
    assert read == [1]
    assert len(reads_of_history(counting)) == 1


def test_many_functions_that_are_woken_together_share_a_read_of_their_histories(
    open_engine: OpenEngine, statements: Statements
) -> None:
    engine = open_engine(chain_and_wait)
    runs = [engine.sync.start(chain_and_wait(FEW)) for _ in range(WOKEN)]
    ServerlessHost(engine).process_available_jobs(max_jobs=WOKEN)
    for run in runs:
        run.signal(go(1))
    host = ServerlessHost(open_engine(chain_and_wait))
    with statements.of() as counted:
        assert host.process_available_jobs(max_jobs=WOKEN).completed == WOKEN
    assert [run.result() for run in runs] == [FEW + 1] * WOKEN
    assert len(reads_of_history(counted)) <= WOKEN // 4


# Reruns -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_to_run_a_function_again_costs_as_much_however_long_its_history_is(
    open_engine: OpenEngine, statements: Statements
) -> None:
    engine = open_engine(chain_and_wait)
    host = ServerlessHost(engine)
    costs: list[tuple[int, int, int, int]] = []
    for length in (FEW, STEPS_MANY):
        run = engine.sync.start(chain_and_wait(length), id=f"x-{length}")
        host.process_available_jobs(max_jobs=1)
        assert run.row().last_row == length + 1
        with statements.of() as previewed:
            run.preview_rerun(row=length)
        assert (previewed.commits, previewed.written) == (0, 0)
        with statements.of() as within:
            run.rerun_from(row=length)
        assert within.commits == 1
        assert len(within.texts_with("INSERT INTO holdfast_history")) == 1
        with statements.of() as driven:
            host.process_available_jobs(max_jobs=1)
        assert run.row().last_row == length + 2  # two steps were done again
        reads = [
            sql for sql in driven.sent.elements() if "FROM holdfast_history" in sql and "number >" in sql
        ]
        costs.append((previewed.queries, within.queries, within.written, len(reads)))
    assert costs[0] == costs[1]
    assert costs[0][3] == 2  # what is kept, and what is its own
