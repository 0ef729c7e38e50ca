"""A kernel on an in-memory store with a manual clock; invariants are checked after every command."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, TypeVar, cast

import attrs

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.adapters.system.zones import TzdataZones
from holdfast.kernel.commands import (
    Attempt,
    ChildRunStarted,
    Command,
    Completed,
    Failed,
    Failure,
    JobClaim,
    JobRelease,
    JobReleased,
    JobSettle,
    JobSettled,
    JobWakeDue,
    LeaseReapStale,
    LeasesReaped,
    MapExpanded,
    Outcome,
    RunCreate,
    RunCreated,
    RunDeliver,
    RunDelivered,
    RunRemove,
    RunRerun,
    RunRerunFrom,
    SessionOpen,
    SessionReap,
    StageSuspended,
    UpdateDeliver,
)
from holdfast.kernel.dispatch.decision_records import Recording, recording_decisions
from holdfast.kernel.dispatch.kernel import Executor, Kernel
from holdfast.kernel.invariants import check, check_step
from holdfast.kernel.pipelines.plan import (
    CancelPlan,
    CheckPlan,
    ChildPlan,
    Enough,
    Group,
    MapPlan,
    NodePlan,
    Plan,
    RetryPolicy,
    StagePlan,
)
from holdfast.kernel.runs.reply_deliveries import ReplyDelivery, reply_delivery_of
from holdfast.ports.changes import Change
from holdfast.ports.clock import micros
from holdfast.ports.errors import CommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.runs import FindRun, PendingDeliveries
from holdfast.ports.queries.values import LoadValues
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.run import ClosePolicy, Run, RunName
from holdfast.ports.records.values import Payload
from holdfast.ports.references import Reference, is_map, is_partial, parts_of, reference_from
from holdfast.ports.searches import QueueClaim
from holdfast.ports.transport import Hint, JobTransport
from holdfast.ports.working_set import Tables
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds

R = TypeVar("R")

SECOND: Final = 1_000_000
LEASE: Final = 30 * SECOND
NO_WAIT: Final = RetryPolicy(attempts=3, wait_us=0, jitter=0.0)


def stage(
    name: str,
    *,
    attempts: int = 3,
    wait_us: int = 0,
    queue: str | None = None,
    priority: int | None = None,
) -> StagePlan:
    """A stage that is retried at once, or after so long."""
    return StagePlan(
        name=name,
        queue=queue,
        priority=priority,
        retry=attrs.evolve(NO_WAIT, attempts=attempts, wait_us=wait_us),
    )


def each(
    name: str,
    *,
    over: str | None = None,
    limit: int = 1_000,
    attempts: int = 3,
    enough: Enough | None = None,
) -> MapPlan:
    """A map whose bodies are retried at once."""
    return MapPlan(stage=stage(name, attempts=attempts), over=over, limit=limit, enough=enough)


def each_of(node: StagePlan, *, limit: int = 1_000, enough: Enough | None = None) -> MapPlan:
    """A map of a stage of a special kind."""
    return MapPlan(stage=node, limit=limit, enough=enough)


def external(
    name: str, *, attempts: int = 3, checks: int = 3, cancels: int = 0, wait_us: int = 0
) -> StagePlan:
    """An external stage whose check is retried at once, or after so long.

    `cancels` sets the attempts and the retry delay of its cancel function.
    """
    retry = attrs.evolve(NO_WAIT, attempts=checks, wait_us=wait_us)
    cancel = CancelPlan(retry=attrs.evolve(retry, attempts=cancels)) if cancels else None
    return attrs.evolve(stage(name, attempts=attempts), check=CheckPlan(retry=retry), cancel=cancel)


def child(
    name: str, *, workflow: str = "c", close_policy: ClosePolicy = ClosePolicy.CANCEL, attempts: int = 3
) -> StagePlan:
    """A stage that is a child run."""
    plan = ChildPlan(workflow=workflow, version="1", close_policy=close_policy)
    return attrs.evolve(stage(name, attempts=attempts), child=plan)


def when(node: NodePlan, otherwise: NodePlan | None = None) -> Group:
    """A conditional group."""
    return Group(nodes=(node,) if otherwise is None else (node, otherwise), test="test")


def pipeline(
    *groups: NodePlan | tuple[NodePlan, ...] | Group, workflow: str = "w", version: str = "1"
) -> Plan:
    """A plan; a tuple of nodes is a parallel group."""
    return Plan(
        workflow=workflow,
        version=version,
        groups=tuple(
            group
            if isinstance(group, Group)
            else Group(nodes=group, parallel=True)
            if isinstance(group, tuple)
            else Group(nodes=(group,))
            for group in groups
        ),
    )


def payload(value: object) -> Payload:
    """A value as it is stored."""
    return Payload(inline=canonical(value))


@attrs.define
class Heard:
    """A JobTransport that only records the announced hints."""

    hints: list[Hint] = attrs.field(factory=list[Hint])

    def announce(self, hints: Sequence[Hint], /) -> None:
        self.hints.extend(hints)

    def receive(self, limit: int, wait: float, /) -> Sequence[object]:
        raise NotImplementedError

    def ack(self, receipt: str, /) -> None:
        raise NotImplementedError

    def retry(self, receipt: str, delay: float, /) -> None:
        raise NotImplementedError

    def extend(self, receipt: str, by: float, /) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class World:
    """A kernel, its store, and helpers. Rows that are put past the kernel are not checked."""

    def __init__(
        self,
        *plans: Plan,
        wrap: Callable[[MemoryPersistence], Persistence] | None = None,
        executor: Executor | None = None,
        recorder: Callable[[Recording], None] | None = None,
    ) -> None:
        """Create a world; `wrap` wraps the store, for example with faults."""
        self.clock = ManualClock()
        self.store = MemoryPersistence()
        self.heard = Heard()
        self.plans = plans
        self.kernel = Kernel(
            persistence=wrap(self.store) if wrap else self.store,
            clock=self.clock,
            ids=SeededIds(clock=self.clock),
            transport=cast("JobTransport", self.heard),
            plans=plans,
            zones=TzdataZones(),
            executor=executor,
            decide=None if recorder is None else recording_decisions(recorder),
        )

    # What there is.

    @property
    def now(self) -> int:
        return micros(self.clock.now())

    def tables(self) -> Tables:
        return self.store.dump()

    def run(self, id: str = "x", namespace: str = "default", *, generation: int | None = None) -> Run:
        run = self.store.read(FindRun(RunName(namespace, id), generation))
        assert run is not None
        return run

    def jobs(self, id: str = "x") -> list[Job]:
        return list(self.tables().jobs.get(self.run(id).key, {}).values())

    def job(self, attempt: Attempt) -> Job:
        run, _, number = attempt.job.rpartition(".")
        job = self.tables().job(JobKey(run, int(number)))
        assert job is not None
        return job

    def history(self, id: str = "x", *, generation: int | None = None) -> list[HistoryRow]:
        return self.tables().history[self.run(id, generation=generation).key]

    def events(self, id: str = "x") -> list[str]:
        """Return the types of a run's history rows."""
        return [row.type for row in self.history(id)]

    def value(self, run: str, reference: str) -> object:
        """Return the value of a stored reference."""
        return self._resolved(run, reference_from(reference))

    def result(self, id: str = "x") -> object:
        run = self.run(id)
        assert run.result is not None
        return self.value(run.key, run.result)

    def _resolved(self, run: str, reference: Reference) -> object:
        if isinstance(reference, tuple) and reference[0] == "list":
            return [self._resolved(run, cast("Reference", part)) for part in reference[1:]]
        if is_partial(reference):
            results, failures = (self._resolved(run, part) for part in parts_of(reference))
            return {"results": results, "failures": failures}
        (stored,) = self.store.read(LoadValues(((run, reference),)))
        values = [parse(one.inline or "") for one in stored.payloads]
        return values if is_map(reference) else values[0]

    @contextmanager
    def unchanged(self) -> Generator[None]:
        """Assert that the block changes no row."""
        before = self.tables()
        yield
        assert self.tables() == before

    # What is done.

    def put(self, *changes: Change) -> None:
        """Change rows past the kernel, as only a fault can."""
        self.store.transact(lambda tx: tx.apply(changes))

    def send(self, *commands: Command[R]) -> list[R | CommandError]:
        """Dispatch commands in one batch."""
        before = self.tables()
        answers = self.kernel.dispatch_many(commands)
        after = self.tables()
        removals = any(isinstance(command, RunRemove) for command in commands)
        found = [*check(after), *check_step(before, after, commands=len(commands), removals=removals)]
        assert not found, "\n".join(map(str, found))
        return answers

    def do(self, command: Command[R]) -> R:
        """Dispatch one command; raise if it is refused."""
        (answer,) = self.send(command)
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def create(self, id: str | None = "x", input: object = 0, *, workflow: str = "w") -> RunCreated:
        return self.do(RunCreate(workflow=workflow, id=id, input=payload(input)))

    def open(self, *, lease: int = LEASE, host: str = "host") -> str:
        return self.do(SessionOpen(host=host, lease=lease)).session

    def lanes(self, *, queue: str = "default", limit: int = 1_000) -> tuple[QueueClaim, ...]:
        definitions = tuple(sorted({plan.definition for plan in self.plans}))
        return (QueueClaim(queue=queue, definitions=definitions, limit=limit),)

    def claim(self, session: str, *, limit: int = 1_000) -> tuple[Attempt, ...]:
        return self.do(JobClaim(session=session, queue_claims=self.lanes(), limit=limit)).attempts

    def claim_one(self, session: str) -> Attempt:
        """Claim the only available job."""
        (attempt,) = self.claim(session)
        return attempt

    def settle(self, attempt: Attempt, outcome: Outcome) -> JobSettled:
        return self.do(settling(attempt, outcome))

    def complete(self, attempt: Attempt, output: object = None) -> JobSettled:
        return self.do(completing(attempt, output))

    def expand(self, attempt: Attempt, items: Iterable[object]) -> JobSettled:
        return self.settle(attempt, MapExpanded(items=tuple(map(payload, items))))

    def suspend(
        self,
        attempt: Attempt,
        state: object = "elsewhere",
        *,
        after: float = 60,
        give_up_in: float | None = None,
        key: str = "key",
    ) -> JobSettled:
        """Suspend an attempt; times in seconds from now."""
        give_up_at = None if give_up_in is None else self.now + round(give_up_in * SECOND)
        outcome = StageSuspended(
            state=payload(state), check_after=round(after * SECOND), give_up_at=give_up_at, key=key
        )
        return self.settle(attempt, outcome)

    def start_child(self, attempt: Attempt, id: str, input: object = 0, *, workflow: str = "c") -> JobSettled:
        """Create the child run of a stage."""
        started = ChildRunStarted(run_id=id, workflow=workflow, version="1", input=payload(input))
        return self.settle(attempt, started)

    def deliver(self) -> list[RunDelivered]:
        """Deliver ended runs to their parents until nothing is pending, without closing children of ended runs."""
        delivered: list[RunDelivered] = []
        while owed := self.store.read(PendingDeliveries()):
            for job in owed:
                run = self.tables().runs[job.run]
                reply = reply_delivery_of(job)
                if reply is not None:
                    delivered.append(self.do(self._delivered_reply(job, run, reply)))
                    continue
                parent = cast("str | None", parse(job.input))
                gave = parent is not None and run.result is not None
                output = payload(self.value(run.key, run.result or "")) if gave else None
                delivered.append(self.do(RunDeliver(job=job.key.text, parent=parent, output=output)))
        return delivered

    def _delivered_reply(self, job: Job, run: Run, reply: ReplyDelivery) -> UpdateDeliver:
        rows = (row for row in self.tables().history[run.key] if row.number == reply.row)
        row = next(rows, None)
        output = None if row is None else row.payload
        return UpdateDeliver(job=job.key.text, run_id=reply.address.sender, output=output)

    def fail(self, attempt: Attempt, *, retryable: bool = True, code: str = "oops") -> JobSettled:
        return self.settle(attempt, failed(retryable=retryable, code=code))

    def release(self, attempt: Attempt, *, delay: int = 0) -> JobReleased:
        return self.do(JobRelease(job=attempt.job, epoch=attempt.epoch, delay=delay))

    def wake_due(self) -> int:
        return self.do(JobWakeDue()).woken

    def lose(self) -> LeasesReaped:
        """Expire all sessions, and release their jobs."""
        self.wait(3_600)
        self.do(SessionReap(grace=0))
        return self.do(LeaseReapStale())

    def rerun(
        self, stage: str | None = None, *, id: str = "x", reason: str = "", generation: int | None = None
    ) -> RunRerun:
        return self.do(RunRerunFrom(run_id=id, stage=stage, reason=reason, generation=generation))

    def drain(self, give: Callable[[Attempt], Outcome], *, limit: int = 1_000) -> None:
        """Work like one healthy worker until there is nothing to claim or to wait for."""
        session = self.open(lease=365 * 24 * 3_600 * SECOND)
        while True:
            attempts = self.claim(session, limit=limit)
            for start in range(0, len(attempts), 500):
                self.send(*(settling(attempt, give(attempt)) for attempt in attempts[start : start + 500]))
            if attempts:
                continue
            sleepers = [job.wake_at for job in self.tables().all_jobs() if job.wake_at is not None]
            if not sleepers:
                return
            self.wait(max(0, min(sleepers) - self.now) / SECOND)
            self.wake_due()


def settling(attempt: Attempt, outcome: Outcome) -> JobSettle:
    """Return the command that settles an attempt."""
    return JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=outcome)


def completing(attempt: Attempt, output: object = None) -> JobSettle:
    """Return the command that completes an attempt; the default value names its stage and item."""
    if output is None:
        output = attempt.node if attempt.item is None else [attempt.node, attempt.item]
    return settling(attempt, Completed(output=payload(output)))


def failed(*, retryable: bool = True, code: str = "oops") -> Failed:
    """Return a body's failure."""
    return Failed(failure=Failure(code=code, message="it broke", retryable=retryable))


def field(answer: object, name: str) -> object:
    """Return one field of a reply of any type: the replies of a mixed batch have no common type."""
    return getattr(answer, name)
