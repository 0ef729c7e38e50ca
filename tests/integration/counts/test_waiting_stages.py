"""The cost of stages that wait for external work, conditions and child runs: the same for 5 and 500."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import cast

import attrs
import pytest

from holdfast.hosts.execution.bodies import Bodies
from holdfast.hosts.execution.child_results import AT_ONCE
from holdfast.hosts.maintenance.tick import Maintenance
from holdfast.kernel import commands
from holdfast.kernel.authoring.completion_policies import AtLeast
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.external import NotReady as AskAgain
from holdfast.kernel.authoring.external import Suspended as HandedOn
from holdfast.kernel.authoring.external import suspend
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import (
    Attempt,
    Cancelled,
    ChildRunStarted,
    Failed,
    Failure,
    JobSettle,
    MapExpanded,
    PollNotReady,
    RunDeliver,
    StagePollSuspended,
    StageSuspended,
)
from holdfast.ports.json import parse
from holdfast.ports.queries.runs import PendingDeliveries
from holdfast.ports.records.job import JobKind
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements
from tests.integration.counts.test_commands import (
    COMPLETED,
    FATAL,
    FEW,
    HOUR,
    MANY,
    SHORT,
    Worked,
    costs,
    payload,
    two,
)
from tests.sizes import sized


@stage.external
def hand_on(ctx: StageContext[None], x: int) -> HandedOn[int, int]:
    del ctx
    return suspend(x, check_after=timedelta(hours=1))


def is_done(ctx: StageContext[None], state: int) -> int | AskAgain:
    del ctx
    return state


@stage
def after() -> int:
    return 0


def cancel(ctx: StageContext[None], state: int) -> None:
    del ctx, state


pytestmark = pytest.mark.sized

PAGES = sized(2, 5)

ELSEWHERE = Pipeline("elsewhere", input=int).pipe(hand_on.check(is_done))
COSTLY = Pipeline("costly", input=list[int]).pipe(
    each(hand_on.check(is_done).cancel(cancel), limit=1_000, enough=AtLeast(1))
)
DECIDED = Pipeline("decided", input=int).when(lambda x: x > 0, two)
PARENT = Pipeline("parent", input=int).pipe(stage(SHORT)).pipe(after)
FAMILY = Pipeline("family", input=list[int]).pipe(each(stage(SHORT), limit=1_000))
RACE = Pipeline("race", input=list[int]).pipe(each(two, limit=1_000, enough=AtLeast(1)))

SUSPENDED = StageSuspended(state=payload(1), check_after=HOUR, key="work")
DUE = StageSuspended(state=payload(1), check_after=1, key="work")


@pytest.fixture
def worked(open_engine: OpenEngine) -> Iterator[Worked]:
    worked = Worked(open_engine(ELSEWHERE, COSTLY, DECIDED, PARENT, FAMILY, RACE, SHORT))
    # Once, so that plans are known and stored: they are read and written once in a process's life.
    for workflow in ("elsewhere", "costly", "decided", "parent", "family", "race"):
        worked.create(1, workflow)
    while attempts := worked.claim(10):
        Bodies(worked.engine.core).prepare(attempts)
        for attempt in attempts:
            worked.settle([attempt], FATAL if attempt.kind is not JobKind.CHILD else started(attempt))
    worked.engine.client.deliver_child_results()
    yield worked
    while worked.engine.sync.terminate_all().changed:
        pass  # or it is due in the midst of another test: maintenance is of all namespaces of a database


def started(attempt: Attempt) -> ChildRunStarted:
    return ChildRunStarted(run_id=f"of-{attempt.job}", workflow="short", version="1", input=payload(1))


def claimed(worked: Worked, number: int, workflow: str) -> tuple[Attempt, ...]:
    """Start so many runs, and claim their first jobs."""
    worked.create(number, workflow)
    return claim(worked, number)


def claim(worked: Worked, number: int) -> tuple[Attempt, ...]:
    attempts = worked.claim(number)
    assert len(attempts) == number
    return attempts


def suspend_all(worked: Worked, attempts: Sequence[Attempt]) -> None:
    worked.settle(attempts, DUE)
    while worked.kernel.dispatch(StagePollSuspended(namespace=worked.namespace)).woken:
        pass


def start_children(worked: Worked, attempts: Sequence[Attempt]) -> None:
    commands = [
        JobSettle(namespace=worked.namespace, job=attempt.job, epoch=attempt.epoch, outcome=started(attempt))
        for attempt in attempts
    ]
    assert all(getattr(answer, "status", "") == "settled" for answer in worked.kernel.dispatch_many(commands))


# Work done elsewhere --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_suspending_many_stages_costs_no_more_statements_than_suspending_few(
    worked: Worked, statements: Statements
) -> None:
    attempts = iter([claimed(worked, FEW, "elsewhere"), claimed(worked, MANY, "elsewhere")])

    within = costs(statements, lambda _: worked.settle(next(attempts), SUSPENDED))

    # Runs and jobs are locked and read; runs, closed jobs, the checks and history are written.
    assert (within.commits, within.queries) == (1, 6)


@pytest.mark.slow
def test_a_check_that_finds_nothing_done_writes_its_job_and_nothing_of_its_run(
    worked: Worked, statements: Statements
) -> None:
    suspend_all(worked, claimed(worked, FEW + MANY, "elsewhere"))
    checks = iter([claim(worked, FEW), claim(worked, MANY)])

    within = costs(statements, lambda _: worked.settle(next(checks), PollNotReady()))

    assert (within.commits, within.queries) == (1, 3)
    writes = [sql for sql in within.sent if sql.startswith(("INSERT", "UPDATE", "DELETE", "WITH"))]
    assert [sql for sql in writes if "UPDATE holdfast_jobs" in sql]
    for table in ("holdfast_runs", "holdfast_history", "holdfast_attempt_output"):
        assert not [sql for sql in writes if f"UPDATE {table}" in sql or f"INTO {table}" in sql]


@pytest.mark.slow
def test_a_check_that_fails_and_is_made_again_costs_what_one_does_that_finds_nothing(
    worked: Worked, statements: Statements
) -> None:
    suspend_all(worked, claimed(worked, FEW + MANY, "elsewhere"))
    checks = iter([claim(worked, FEW), claim(worked, MANY)])
    failed = Failed(failure=Failure(code="oops", message="no"))

    within = costs(statements, lambda _: worked.settle(next(checks), failed))

    assert (within.commits, within.queries) == (1, 3)


@pytest.mark.slow
def test_checks_that_find_the_work_done_cost_what_bodies_do(worked: Worked, statements: Statements) -> None:
    suspend_all(worked, claimed(worked, FEW + MANY, "elsewhere"))
    checks = iter([claim(worked, FEW), claim(worked, MANY)])

    within = costs(statements, lambda _: worked.settle(next(checks), COMPLETED))

    assert (within.commits, within.queries) == (1, 5)


@pytest.mark.slow
def test_many_checks_that_are_due_are_queued_with_one_write(worked: Worked, statements: Statements) -> None:
    def poll(number: int) -> Statements:
        # What other tests have left in this database is due too: it is asked for in all namespaces.
        while worked.kernel.dispatch(StagePollSuspended(namespace=worked.namespace, limit=MANY)).woken:
            pass
        worked.settle(claimed(worked, number, "elsewhere"), DUE)
        with statements.of() as within:
            woken = worked.kernel.dispatch(StagePollSuspended(namespace=worked.namespace, limit=MANY)).woken
        assert woken == number
        claim(worked, number)
        return within

    few, many = poll(FEW), poll(MANY)

    assert few.sent == many.sent
    assert (many.commits, many.queries) == (1, 2 + worked.looks)


@pytest.mark.slow
def test_what_is_suspended_costs_a_worker_nothing_between_its_checks(
    worked: Worked, statements: Statements
) -> None:
    """Claims pass suspended jobs over, and a maintenance tick writes nothing."""
    found: list[Statements] = []
    for number in (FEW, MANY):
        worked.settle(claimed(worked, number, "elsewhere"), SUSPENDED)
        maintenance = Maintenance(worked.engine.core, lease=30)
        while maintenance.tick().more:
            pass  # what other tests have left behind
        with statements.of() as within:
            assert worked.claim(MANY) == ()
            assert not maintenance.tick().more
        found.append(within)

    few, many = found
    assert few.sent == many.sent
    assert many.written == 0


@pytest.mark.slow
def test_waking_what_waits_for_one_key_costs_the_same_however_much_it_is(
    worked: Worked, statements: Statements
) -> None:
    def wake(number: int) -> Statements:
        key = f"work-{number}"
        worked.settle(claimed(worked, number, "elsewhere"), attrs.evolve(SUSPENDED, key=key))
        with statements.of() as within:
            assert worked.engine.sync.wake(key).woken == number
        claim(worked, number)
        return within

    few, many = wake(FEW), wake(MANY)

    assert few.sent == many.sent
    # Found, locked, written.
    assert (many.commits, many.queries) == (1, 3)


# Tests ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("passed", "queries"),
    [
        # Runs and jobs are locked and read; runs, closed jobs, the next jobs and history are written.
        pytest.param(True, 6, id="passed"),
        # Nothing else is to be done: the runs end.
        pytest.param(False, 5, id="not"),
    ],
)
def test_settling_many_tests_costs_no_more_statements_than_settling_few(
    worked: Worked, statements: Statements, passed: bool, queries: int
) -> None:
    attempts = iter([claimed(worked, FEW, "decided"), claimed(worked, MANY, "decided")])

    within = costs(
        statements, lambda _: worked.settle(next(attempts), commands.ConditionEvaluated(passed=passed))
    )

    assert (within.commits, within.queries) == (1, queries)


# Other runs -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_starting_many_children_costs_no_more_statements_than_starting_few(
    worked: Worked, statements: Statements
) -> None:
    attempts = iter([claimed(worked, FEW, "parent"), claimed(worked, MANY, "parent")])

    within = costs(statements, lambda _: start_children(worked, next(attempts)))

    # Runs and jobs are locked and read, and whether there are such children, which is asked twice over. Written are new
    # runs and the others, new jobs and the others, and history.
    assert (within.commits, within.queries) == (1, 9)


@pytest.mark.slow
def test_telling_many_of_the_ends_of_their_children_costs_no_more_statements_than_telling_few(
    worked: Worked, statements: Statements
) -> None:
    def deliver(number: int) -> Statements:
        start_children(worked, claimed(worked, number, "parent"))
        worked.settle(claim(worked, number), COMPLETED)
        owed = worked.engine.core.stores.persistence.read(PendingDeliveries(2 * MANY))
        assert len(owed) == number
        commands = [
            RunDeliver(
                namespace=worked.namespace,
                job=job.key.text,
                parent=cast("str", parse(job.input)),
                output=payload(1),
            )
            for job in owed
        ]
        with statements.of() as within:
            answers = worked.kernel.dispatch_many(commands)
        assert {getattr(answer, "status", answer) for answer in answers} == {"delivered"}
        claim(worked, number)
        return within

    few, many = deliver(FEW), deliver(MANY)

    assert few.sent == many.sent
    # Runs and jobs are locked and read; runs, closed jobs, the next jobs and history are written.
    assert (many.commits, many.queries) == (1, 6)


@pytest.mark.slow
def test_ends_are_told_by_the_page_with_one_commit_for_each(worked: Worked, statements: Statements) -> None:
    def tell(number: int) -> Statements:
        start_children(worked, claimed(worked, number, "parent"))
        worked.settle(claim(worked, number), COMPLETED)
        with statements.of() as within:
            assert worked.engine.client.deliver_child_results() == number
        claim(worked, number)
        return within

    few, page, pages = tell(FEW), tell(AT_ONCE), tell(PAGES * AT_ONCE)

    assert few.sent == page.sent
    assert (page.commits, pages.commits) == (1, PAGES)
    # What is owed, by whom, and what they gave; it is told; and is there more?
    per_page = 9
    assert (page.queries, pages.queries) == (per_page + 1, PAGES * per_page + 1)


@pytest.mark.slow
def test_a_wide_family_is_closed_by_the_page(worked: Worked, statements: Statements) -> None:
    def close(number: int) -> Statements:
        (run,) = worked.create(1, "family")
        worked.settle(claim(worked, 1), MapExpanded(items=tuple(payload(n) for n in range(number))))
        start_children(worked, claim(worked, number))
        with statements.of() as within:
            worked.engine.sync.handle(FAMILY, run).cancel()
        assert worked.claim(1) == ()
        return within

    few, page, many = close(FEW), close(AT_ONCE), close(MANY)

    assert few.sent == page.sent
    # The parent ends, its children end, nobody is left to tell of its end, and, by the page, of theirs.
    assert (page.commits, many.commits) == (4, 3 + MANY // AT_ONCE)


@pytest.mark.slow
def test_the_children_of_many_parents_are_closed_in_one_commit(
    worked: Worked, statements: Statements
) -> None:
    def end(number: int) -> Statements:
        start_children(worked, claimed(worked, number, "parent"))
        assert len(worked.claim(number)) == number
        with statements.of() as within:
            worked.engine.sync.cancel_all(workflow="parent")
        return within

    few, page = end(FEW), end(AT_ONCE)

    assert few.sent == page.sent
    # The parents end, their children end, nobody is left to tell of their parents' ends, and nobody waits for theirs.
    assert few.commits == page.commits == 4


# Maps that may lose items ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_a_map_goes_on_without_is_closed_with_one_statement_however_much_it_is(
    worked: Worked, statements: Statements
) -> None:
    def win(number: int) -> Statements:
        (run,) = worked.create(1, "race")
        worked.settle(claim(worked, 1), MapExpanded(items=tuple(payload(n) for n in range(number))))
        first, *_ = claim(worked, number)
        with statements.of() as within:
            worked.settle([first], COMPLETED)
        assert worked.row(run).status == "completed"
        return within

    few, many = win(FEW), win(MANY)

    assert few.sent == many.sent
    # Run and job are locked and read; the run, the map's jobs, that one and history are written.
    assert (many.commits, many.queries) == (1, 6)


# Work that nobody waits for any more ------------------------------------------------------------------------------


def costly(worked: Worked, number: int) -> str:
    """Start a run with so many suspended items."""
    (run,) = worked.create(1, "costly")
    worked.settle(claim(worked, 1), MapExpanded(items=tuple(payload(n) for n in range(number))))
    suspend_all(worked, claim(worked, number))
    return run


@pytest.mark.slow
def test_work_of_an_ended_run_is_left_with_one_statement_more_however_much_it_is(
    worked: Worked, statements: Statements
) -> None:
    def end(number: int) -> Statements:
        run = costly(worked, number)
        with statements.of() as within:
            worked.engine.sync.handle(COSTLY, run).cancel()
        attempts = claim(worked, number)
        assert {attempt.kind for attempt in attempts} == {JobKind.CANCEL}
        worked.settle(attempts, Cancelled())
        return within

    few, many = end(FEW), end(MANY)

    assert few.sent == many.sent
    # As where there is nothing to cancel, and what is left.
    assert (many.commits, many.queries) == (1, 7)


@pytest.mark.slow
def test_work_that_a_map_goes_on_without_is_left_with_one_statement_more(
    worked: Worked, statements: Statements
) -> None:
    def win(number: int) -> Statements:
        costly(worked, number)
        first, *_ = claim(worked, number)
        with statements.of() as within:
            worked.settle([first], COMPLETED)
        attempts = claim(worked, number - 1)
        assert {attempt.kind for attempt in attempts} == {JobKind.CANCEL}
        worked.settle(attempts, Cancelled())
        return within

    few, many = win(FEW), win(MANY)

    assert few.sent == many.sent
    # As where there is nothing to cancel, and what is left.
    assert (many.commits, many.queries) == (1, 7)


def test_telling_what_was_cancelled_costs_the_same_however_much_it_is(
    worked: Worked, statements: Statements
) -> None:
    def pay(number: int) -> Statements:
        run = costly(worked, number)
        worked.engine.sync.handle(COSTLY, run).cancel()
        attempts = claim(worked, number)
        with statements.of() as within:
            worked.settle(attempts, Cancelled())
        return within

    few, many = pay(FEW), pay(MANY)

    assert few.sent == many.sent
    assert (many.commits, many.queries) == (1, 5)
