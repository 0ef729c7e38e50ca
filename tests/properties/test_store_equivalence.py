"""K1: memory, SQLite and PostgreSQL give the same trace.

A player makes the same drawn moves on each kind of store, with the same clock and ids. A player knows only the replies
that it got, so equal replies lead to equal commands; at the first difference the traces part and the test fails there.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg import sql

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.kernel.commands import (
    AiCallOutput,
    AnnotationOutput,
    ArtifactOutput,
    Attempt,
    AttemptOutput,
    AttemptReport,
    Cancelled,
    ChildRunStarted,
    Command,
    Completed,
    Failed,
    Failure,
    JobClaim,
    JobClaimed,
    JobClaimOne,
    JobHeartbeat,
    JobRelease,
    JobReleased,
    JobsClaimed,
    JobSettle,
    JobSettled,
    JobWakeDue,
    LeaderAcquire,
    LeaseReapStale,
    MapExpanded,
    NewAnnotation,
    Outcome,
    PollNotReady,
    RunAnnotate,
    RunCancel,
    RunCreate,
    RunCreated,
    RunDeliver,
    RunPause,
    RunRepair,
    RunRerun,
    RunRerunFrom,
    RunResume,
    RunTerminate,
    RunTransition,
    SessionClose,
    SessionOpen,
    SessionOpened,
    SessionReap,
    SessionRenew,
    StagePollSuspended,
    StageSuspended,
    StageWake,
)
from holdfast.kernel.commands import (
    ConditionEvaluated as Answer,
)
from holdfast.kernel.commands.codec import reply_json, to_data
from holdfast.kernel.commands.jobs import OutputKind
from holdfast.kernel.dispatch.decision_records import Recording, recording_decisions
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.invariants import Snapshot, check
from holdfast.kernel.pipelines.plan import Plan, stage_of
from holdfast.ports.changes import Delete
from holdfast.ports.clock import micros
from holdfast.ports.errors import CommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.persistence import Persistence, Query
from holdfast.ports.queries.history import NotesOf
from holdfast.ports.queries.run_output import AiCallsOf, AiTotalsOf, AnnotationsOf, ArtifactsOf
from holdfast.ports.queries.runs import ListRuns, OrphanedChildren, PendingDeliveries, RunFilter, RunsByKey
from holdfast.ports.queries.values import LoadValues, StoredValue
from holdfast.ports.records.history import OutputRow
from holdfast.ports.records.job import JobKind, PassOver, job_key
from holdfast.ports.records.run import ClosePolicy, RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.references import Reference, leaves, reference_from
from holdfast.ports.search_values import ValueMatch, ValueSource, span_of
from holdfast.ports.searches import QueueClaim
from holdfast.ports.tables import JOBS
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from holdfast.testing.snapshots import snapshot_of
from tests.properties.plans import pipelines
from tests.sizes import sized
from tests.unit.kernel.world import each, pipeline, stage

SECOND: Final = 1_000_000
NAMESPACES: Final = ("default", "other")
Move: TypeAlias = tuple[str, int, int]

_VERBS: Final = (
    *["create"] * 3,
    *["claim"] * 6,
    "claim_one",
    *["settle"] * 18,
    *["fail"] * 3,
    "fatal",
    "odd",
    "release",
    "sleep",
    "heartbeat",
    "open",
    "renew",
    "close",
    "reap",
    "reap_stale",
    "wake_due",
    "wake_due",
    "pause",
    "pause",
    "annotate",
    "annotate",
    "resume",
    "resume",
    "cancel",
    "rerun",
    "rerun",
    "rerun",
    "terminate",
    "transition",
    "repair",
    "duty",
    "bad",
    *["deliver"] * 4,
    *["wake"] * 2,
    "poll",
)
MOVES: Final = st.tuples(st.sampled_from(_VERBS), st.integers(0, 7), st.integers(0, 7))
_MOVE: Final = MOVES.map(lambda move: [move])
_BATCH: Final = st.lists(MOVES, min_size=2, max_size=5)
_REST: Final = st.sampled_from([0, 1, 45, 400, "crash", "work", "work", "work", "lose a job"])
TURNS: Final = st.lists(st.one_of(_MOVE, _MOVE, _BATCH, _BATCH, _REST), min_size=12, max_size=30)
Turn: TypeAlias = "list[Move] | int | str"

_CRASH: Final[list[Move]] = [("reap", 7, 0), ("reap_stale", 7, 0), ("wake_due", 7, 0), ("open", 5, 0)]


@attrs.frozen
class Trace:
    """All that can be seen of a story: the replies and decisions of each turn, and what is stored in the end."""

    turns: Sequence[tuple[Sequence[str], Sequence[str], Sequence[tuple[str, ...]]]]
    snapshot: Snapshot
    values: Sequence[StoredValue]
    notes: Sequence[OutputRow]
    told: Sequence[object]


class Player:
    """Makes moves. What it knows comes from replies only."""

    def __init__(self, store: Persistence, plans: Sequence[Plan]) -> None:
        self.clock = ManualClock()
        self.recordings: list[Recording] = []
        self.store = store
        self.plans = plans
        self.kernel = Kernel(
            persistence=store,
            clock=self.clock,
            ids=SeededIds(clock=self.clock),
            plans=plans,
            decide=recording_decisions(self.recordings.append),
        )
        self.sessions: list[str] = ["unknown"]
        self.attempts: list[Attempt] = []
        self.believed: list[Attempt] = []
        self.said: set[str] = set()
        self.runs: dict[str, str] = {}
        self.serial = count(1)
        self.picks = count()

    def play(self, turns: Sequence[Turn]) -> Trace:
        """Take the turns, and then finish whatever can be finished."""
        opening: list[list[Move]] = [[("open", 0, 0)], [("create", 1, 1), ("create", 2, 2)]]
        seen = [self._turn(moves) for moves in opening]
        for turn in turns:
            if isinstance(turn, int):
                self.clock.advance(timedelta(seconds=turn))
            elif turn == "lose a job":
                self._lose_a_job()
            elif turn == "crash":
                self.clock.advance(timedelta(hours=1))
                seen += [self._turn([move]) for move in _CRASH]
            elif turn == "work":
                seen += [self._turn(moves) for _ in range(3) for moves in self._work()]
            else:
                assert not isinstance(turn, str)
                seen.append(self._turn(turn))
        ending: list[list[Move]] = [[("repair", 0, 0)], [("open", 0, 0)], [("claim", 0, 7)]]
        seen += [self._turn(moves) for moves in ending]
        return Trace(seen, snapshot_of(self.store, NAMESPACES), self._values(), self._notes(), self._told())

    def _work(self) -> Iterator[list[Move]]:
        """What a worker does on a good day, so that runs get far enough for bad days to matter."""
        yield [("claim", 0, 7)]
        yield [("settle", place, next(self.picks) % 5) for place in range(3)]
        yield [("settle", place, next(self.picks) % 5) for place in range(3)]
        yield [("deliver", 0, 0), ("wake", next(self.picks), 1), ("wake_due", 7, 0)]

    def _turn(self, moves: Sequence[Move]) -> tuple[list[str], list[str], list[tuple[str, ...]]]:
        self.recordings.clear()
        self.said.clear()
        commands = [command for move in moves for command in self._commands(*move)]
        answers = self.kernel.dispatch_many(commands)
        for command, answer in zip(commands, answers, strict=True):
            self._learn(command, answer)
        return (
            [_told(answer) for answer in answers],
            [recording.decision for recording in self.recordings],
            [recording.ids for recording in self.recordings],
        )

    def _learn(self, command: Command[Any], answer: object) -> None:
        match answer:
            case SessionOpened(session=session):
                self.sessions.append(session)
            case RunCreated(run=run) | RunRerun(run=run):
                self.runs[run] = command.namespace
            case JobsClaimed(attempts=attempts):
                self._takes(attempts, command.namespace)
            case JobClaimed(attempt=Attempt() as attempt):
                self._takes((attempt,), command.namespace)
            case JobSettled() | JobReleased():
                assert isinstance(command, JobSettle | JobRelease)
                self.believed = [one for one in self.believed if one.job != command.job]
                if isinstance(answer, JobSettled) and answer.next is not None:
                    self._takes((answer.next,), command.namespace)
            case _:
                pass

    def _takes(self, attempts: Sequence[Attempt], namespace: str) -> None:
        self.attempts.extend(attempts)
        self.believed.extend(attempts)
        self.runs.update((attempt.run, namespace) for attempt in attempts)  # children, too

    def _commands(self, verb: str, one: int, two: int) -> Iterator[Command[Any]]:
        if verb == "settle" and not self._unsaid() and one < 6:
            verb = "claim"
        session = self.sessions[-1] if one < 6 else self.sessions[two % len(self.sessions)]
        namespace = NAMESPACES[two == 7]
        run = f"r{one % 4}"
        match verb:
            case "create":
                yield RunCreate(
                    namespace=namespace,
                    workflow=self.plans[two % 2].workflow,
                    input=_payload(next(self.serial)),
                    id=run if one else None,
                    if_exists="return" if two % 3 == 0 else "error",
                    priority=two % 3 - 1,
                    queue="other" if one == 5 else None,
                    attributes='{"a":"b"}' if one == 6 else None,
                    idempotency_key=f"k{two}" if one == 3 else None,
                )
            case "claim":
                definitions = tuple(plan.definition for plan in self.plans)
                lanes = tuple(
                    QueueClaim(queue=queue, definitions=definitions, limit=5)
                    for queue in ("other", "default")
                )
                limit = (0, 1, 2, 3, 5, 8, 500, 500)[two]
                pass_over = tuple(PassOver)[max(one - 3, 0) % 3]
                yield JobClaim(session=session, queue_claims=lanes, limit=limit, pass_over=pass_over)
                if two == 7:
                    yield JobClaim(session=session, queue_claims=lanes, limit=limit, namespace="other")
            case "open":
                yield SessionOpen(host=f"h{one}", lease=(1 + one) * 10 * SECOND)
            case "renew":
                yield SessionRenew(session=session, lease=30 * SECOND)
            case "close":
                yield SessionClose(session=session)
            case "reap":
                yield SessionReap(grace=two * SECOND, limit=1 + one)
            case "reap_stale":
                yield LeaseReapStale(limit=1 + one)
            case "wake_due":
                yield JobWakeDue(limit=1 + one)
            case "pause":
                yield RunPause(run_id=run, namespace=namespace, reason="why")
            case "annotate":
                value = NewAnnotation(name=f"n{two % 3}", value=canonical(f"\N{SNOWMAN} {one}"))
                key = f"k{two}" if two % 2 else None
                yield RunAnnotate(run_id=run, namespace=namespace, annotations=(value,), key=key)
            case "resume":
                yield RunResume(run_id=run, namespace=namespace)
            case "cancel":
                yield RunCancel(run_id=run, namespace=namespace, reason="why")
            case "terminate":
                yield RunTerminate(run_id=run, namespace=namespace)
            case "rerun":
                named = (None, None, *self.plans[one % 2].nodes, "nothing")
                yield RunRerunFrom(
                    run_id=run,
                    namespace=namespace,
                    stage=named[two % len(named)],
                    generation=1 if one == 6 else None,
                    reason="why" if one == 5 else "",
                )
            case "transition":
                yield RunTransition(run_id=run, namespace=namespace)
            case "repair":
                yield RunRepair(limit=1 + one)
            case "duty":
                yield LeaderAcquire(name=f"d{two % 2}", session=session, lease=10 * SECOND)
            case "bad":
                yield _bad(one)
            case "deliver":
                yield from self._told_of_ends()
            case "wake" if two % 2:
                yield StageWake(namespace=namespace, key=f"key{one % 3}")
            case "wake":
                stages = tuple(self.plans[one % 2].nodes)
                stage, item = stages[two % len(stages)], one - 4 if one > 4 else None
                yield StageWake(namespace=namespace, run_id=run, stage=stage, item=item)
            case "poll":
                yield StagePollSuspended(limit=1 + one)
            case _:
                yield from self._about_attempts(verb, one, two, session)

    def _told_of_ends(self) -> Iterator[Command[Any]]:
        """What a host does for runs that owe others their end, or have left children behind."""
        for job in self.store.read(PendingDeliveries(5)):
            (run,) = self.store.read(RunsByKey((job.run,)))
            parent: str | None = parse(job.input)
            if parent is None:
                for child in self.store.read(OrphanedChildren((run.key,), 5)):
                    ends = RunTerminate if child.close_policy is ClosePolicy.TERMINATE else RunCancel
                    yield ends(run_id=child.id, namespace=child.namespace, generation=child.generation)
            gave = parent is not None and run.status is RunStatus.COMPLETED
            output = _payload(next(self.serial)) if gave else None
            yield RunDeliver(job=job.key.text, parent=parent, output=output, namespace=job.namespace)

    def _about_attempts(self, verb: str, one: int, two: int, session: str) -> Iterator[Command[Any]]:
        if not self.attempts:
            return
        unsaid = self._unsaid()
        among = unsaid if unsaid and one < 6 else self.attempts
        attempt = among[(one + next(self.picks)) % len(among)]
        self.said.add(attempt.job)
        namespace = self.runs[attempt.run]
        said = _said(one) if two == 6 else ()
        match verb:
            case "claim_one":
                epoch = attempt.epoch - (two == 5)
                definitions = (attempt.definition,) if two else ()
                yield JobClaimOne(
                    session=session,
                    job=attempt.job,
                    epoch=epoch,
                    definitions=definitions,
                    namespace=namespace,
                )
            case "release" | "sleep":
                delay = (1 + two) * SECOND if verb == "sleep" else 0
                yield JobRelease(job=attempt.job, epoch=attempt.epoch, delay=delay, namespace=namespace)
            case "heartbeat":
                asked = tuple(
                    AttemptReport(job=held.job, epoch=held.epoch, outputs=said)
                    for held in self.attempts[-1 - one :]
                )
                yield JobHeartbeat(attempts=asked, namespace=namespace)
            case _:
                yield JobSettle(
                    job=attempt.job,
                    epoch=attempt.epoch,
                    outcome=self._outcome(verb, attempt, two),
                    outputs=said,
                    host="here" if two == 5 else "",
                    take_next=session if two in {1, 6} else None,
                    started_at=one or None,
                    namespace=namespace,
                    idempotency_key=f"s{attempt.job}.{attempt.epoch}" if two == 4 else None,
                )

    def _unsaid(self) -> list[Attempt]:
        """The attempts that it believes to hold, and of which it has said nothing in this turn."""
        return [attempt for attempt in self.believed if attempt.job not in self.said]

    def _outcome(self, verb: str, attempt: Attempt, size: int) -> Outcome:
        if verb in {"fail", "fatal"}:
            return Failed(failure=Failure(code="c", message="m \N{SNOWMAN}", retryable=verb == "fail"))
        if verb == "settle" and (waits := self._waiting(attempt, size)) is not None:
            return waits
        if (attempt.kind is JobKind.EXPAND_MAP) == (verb == "settle"):
            items = (
                (_payload("x" * 20_000), *map(_payload, range(size - 1)))
                if size == 6
                else map(_payload, range(size))
            )
            return MapExpanded(items=tuple(items))
        if size == 5:
            return Completed(output=Payload(blob=f"blob/{attempt.job}"))
        return Completed(output=_payload([attempt.node, attempt.item, next(self.serial)]))

    def _waiting(self, attempt: Attempt, size: int) -> Outcome | None:
        """How attempts end that do not simply give something."""
        plan = next(plan for plan in self.plans if plan.definition == attempt.definition)
        planned = stage_of(plan.node(attempt.node))
        match attempt.kind:
            case JobKind.CONDITION:
                return Answer(passed=size % 2 == 0)
            case JobKind.CHILD:
                assert planned.child is not None
                return ChildRunStarted(
                    run_id=f"{attempt.run}/{attempt.node}/{attempt.item}",
                    workflow="c",
                    version="1",
                    input=_payload(next(self.serial)),
                    close_policy=planned.child.close_policy,
                )
            case JobKind.CANCEL:
                return Cancelled()
            case JobKind.POLL if size < 3:
                return PollNotReady(check_after=size * 20 * SECOND or None)
            case JobKind.STAGE if size < 4 and (planned.check is not None or size == 3):
                return StageSuspended(  # a stage without a check is refused
                    state=_payload(next(self.serial)),
                    check_after=20 * SECOND,
                    give_up_at=micros(self.clock.now()) + 60 * SECOND if size == 2 else None,
                    key=f"key{size % 3}",
                )
            case _:
                return None

    def _lose_a_job(self) -> None:
        """A fault: of the jobs that were claimed, the newest that is still there vanishes, for repair to find."""
        for attempt in reversed(self.attempts):
            key = job_key(attempt.job)

            def remove(tx: Any, key: Any = key) -> bool:
                if not tx.lock(JOBS, [key]):
                    return False
                tx.apply([Delete(JOBS, key)])
                return True

            if self.store.transact(remove):
                return

    def _values(self) -> list[StoredValue]:
        """Everything that a reference stands for which is stored anywhere."""
        snapshot = snapshot_of(self.store, NAMESPACES)
        wanted: list[tuple[str, Reference]] = []
        for key, run in sorted(snapshot.runs.items()):
            jobs = snapshot.jobs.get(key, {}).values()
            texts = [job.input for job in jobs if job.kind is not JobKind.DELIVER]
            texts += [run.result] if run.result else []
            wanted += [(key, leaf) for text in texts for leaf in leaves(reference_from(text))]
        return list(self.store.read(LoadValues(tuple(wanted))))

    def _notes(self) -> list[OutputRow]:
        return [note for run in sorted(self.runs) for note in self.store.read(NotesOf(run))]

    def _told(self) -> list[object]:
        """What runs say of themselves, and which of them are found by it."""
        questions: list[Query[Any]] = []
        for run in sorted(self.runs):
            questions += [AnnotationsOf(run), ArtifactsOf(run), AiCallsOf(run), AiTotalsOf(run)]
        for one in range(8):
            said = (f"n{one % 3}", f"\N{SNOWMAN} {one}")
            questions.append(ListRuns(RunFilter(namespace=NAMESPACES[0], annotations=(said,))))
            for name, span in (
                (said[0], span_of(said[1], None)),
                (f"number{one % 3}", span_of(one - 2, one + 1)),
            ):
                match = ValueMatch(source=ValueSource.ANNOTATION, name=name, span=span)
                questions.append(ListRuns(RunFilter(namespace=NAMESPACES[0], values=(match,))))
        return [self.store.read(question) for question in questions]


def _said(one: int) -> tuple[AttemptOutput, ...]:
    """Something of each kind, part of which may have been said before."""
    annotation = AnnotationOutput(
        name=f"n{one % 3}", value=canonical(f"\N{SNOWMAN} {one}"), key=f"k{one}" if one % 2 else None
    )
    artifact = ArtifactOutput(name="a", content_type="a/b", size=one, sha256="0", blob="b")
    call = AiCallOutput(topic="t", model=f"m{one}", cost=one, batch="b", batch_index=one)
    number = AnnotationOutput(name=f"number{one % 3}", value=canonical(one - 0.5 if one % 2 else one))
    told: tuple[tuple[OutputKind, object], ...] = (
        ("log", f"said \N{SNOWMAN} {one}"),
        ("annotation", to_data(annotation)),
        ("annotation", to_data(number)),
        ("artifact", to_data(artifact)),
        ("ai_call", to_data(call)),
    )
    return tuple(AttemptOutput(kind=kind, at=one, data=canonical(data)) for kind, data in told)


def _bad(number: int) -> Command[Any]:
    """A command that must be refused, in the same way, by every store."""
    odd = "a\x00b" if number % 2 else "\ud800"
    commands: list[Command[Any]] = [
        RunCancel(run_id="nobody"),
        RunCancel(run_id=odd),
        RunCreate(workflow="none", input=_payload(0)),
        JobRelease(job="none", epoch=1),
        JobRelease(job=f"{odd}.1", epoch=1),
        JobSettle(job="none.9999999999", epoch=2**40, outcome=Completed(output=_payload(0))),
        SessionRenew(session=odd, lease=1),
        JobWakeDue(limit=-1),
    ]
    return commands[number]


def _payload(value: object) -> Payload:
    return Payload(inline=canonical(value))


def _told(answer: object) -> str:
    return f"{type(answer).__name__}: {answer}" if isinstance(answer, CommandError) else reply_json(answer)


# The stores -------------------------------------------------------------------------------------------------------


Factory: TypeAlias = Callable[[], Persistence]
"""Gives a store without a row, for one example."""


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Factory]:
    """Each example has a file of its own: a copy, because making the tables takes longer than the example."""
    empty = tmp_path / "empty.db"
    template = SqlPersistence(f"sqlite:///{empty}")
    template.setup()
    template.close()
    numbers = count()
    opened: list[SqlPersistence] = []

    def fresh() -> Persistence:
        while opened:
            opened.pop().close()
        path = tmp_path / f"{next(numbers)}.db"
        shutil.copyfile(empty, path)
        opened.append(SqlPersistence(f"sqlite:///{path}"))
        return opened[-1]

    yield fresh
    for store in opened:
        store.close()


@pytest.fixture
def postgres(postgres_with_tables: str) -> Iterator[Factory]:
    """All examples have one database, whose rows are removed before each."""
    with ExitStack() as stack:
        store = SqlPersistence(postgres_with_tables)
        stack.callback(store.close)
        connection = stack.enter_context(psycopg.connect(postgres_with_tables, autocommit=True))
        found = connection.execute(
            "select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
            " and relname not like '%version%'"
        )
        tables = [name for (name,) in found.fetchall()]

        def fresh() -> Persistence:
            for table in tables:
                connection.execute(sql.SQL("delete from {}").format(sql.Identifier(table)))
            return store

        yield fresh


Story: TypeAlias = tuple[Plan, Plan, Plan, list[Turn]]
STORY: Final = st.tuples(
    pipelines(workflow="w0", may_leave_out=True, may_wait=True, may_cancel=True, child="c"),
    pipelines(workflow="w1"),
    pipelines(workflow="c", groups_max=2, may_wait=True, may_cancel=True),
    TURNS,
)


def _compare(factories: Sequence[Factory], story: Story) -> None:
    *plans, turns = story
    expected: Trace | None = None
    for fresh in (MemoryPersistence, *factories):
        trace = Player(fresh(), plans).play(turns)
        if expected is None:
            expected = trace
            # Jobs vanish here, those that cancel work among them.
            assert not [found for found in check(trace.snapshot) if found.invariant not in {"S7", "C2"}]
            continue
        for number, (wanted, given_) in enumerate(zip(expected.turns, trace.turns, strict=True)):
            assert given_ == wanted, f"turn {number}"
        assert trace.values == expected.values
        assert trace.notes == expected.notes
        assert trace.told == expected.told
        assert trace.snapshot.runs == expected.snapshot.runs
        assert trace.snapshot.jobs == {
            key: expected.snapshot.jobs.get(key, {}) for key in trace.snapshot.jobs
        }
        assert trace.snapshot.history == expected.snapshot.history
        assert trace.snapshot.plans == expected.snapshot.plans
        holders = trace.snapshot.sessions
        assert holders == {holder: expected.snapshot.sessions[holder] for holder in holders}


_FEW: Final = settings(
    max_examples=sized(5, 8),
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


@pytest.mark.slow
@pytest.mark.sized
@_FEW
@given(story=STORY)
def test_sqlite_gives_the_trace_that_memory_gives(sqlite: Factory, story: Story) -> None:
    _compare([sqlite], story)


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.sized
@_FEW
@given(story=STORY)
def test_postgres_gives_the_trace_that_memory_gives(postgres: Factory, story: Story) -> None:
    _compare([postgres], story)


@pytest.mark.slow
@pytest.mark.service
@settings(_FEW, max_examples=sized(20, 80))
@given(story=STORY)
def test_all_stores_give_the_same_trace_for_long(sqlite: Factory, postgres: Factory, story: Story) -> None:
    _compare([sqlite, postgres], story)


def test_the_player_is_the_same_each_time() -> None:
    """So that a difference is the store's."""
    plans = (pipeline(stage("a"), each("m"), workflow="w0"), pipeline(each("m"), workflow="w1"))
    turns: list[Turn] = [[("claim", 0, 7), ("settle", 0, 3), ("settle", 0, 4)], 45, [("reap", 1, 0)]] * 5
    first, second = (Player(MemoryPersistence(), plans).play(turns) for _ in range(2))

    assert first == second
    assert json.loads(first.turns[0][0][0])["session"]
