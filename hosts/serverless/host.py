"""The serverless host: runs jobs in processes that live for seconds and may be frozen between calls. Blocking."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeVar, cast

import attrs

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.events.flusher import LEASE, Flusher
from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.maintenance.retention import checked_retention
from holdfast.hosts.maintenance.tick import Maintenance, Tick
from holdfast.hosts.serverless.attempt_executor import AttemptExecutor
from holdfast.hosts.serverless.job_messages import JobMessage, message_from
from holdfast.hosts.serverless.reminders import Reminders
from holdfast.hosts.wiring.services import CLOCK_AGE_MAX
from holdfast.hosts.wiring.worker_about import worker_about
from holdfast.kernel.commands import (
    JobClaim,
    JobClaimed,
    JobClaimOne,
    JobExecute,
    JobExecuted,
    JobsClaimed,
    SessionOpen,
    SessionRenew,
)
from holdfast.kernel.dispatch.job_execution import BLOCKED_CLAIM, ignored
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE
from holdfast.ports.clock import micros
from holdfast.ports.durations import Duration
from holdfast.ports.errors import HoldfastError, SessionLostError, UnreadableRowError
from holdfast.ports.events import EventSink
from holdfast.ports.process_forks import renew_in_forks
from holdfast.ports.searches import QueueClaim
from holdfast.ports.validation import SINK, Wanted, an, by_name, check, duration, integer

T = TypeVar("T")

MARGIN: Final = 10.0
"""How many seconds a session outlives the longest invocation, so that a body is stopped before its lease expires."""

_REAPED_WITHIN: Final = 120.0
"""Seconds after which an expired session is certainly declared dead: maintenance runs every minute."""

_ENGINE: Final = an("an Engine, as Engine.open(url, workflows=[...]) returns it", Engine)
_MESSAGES: Final = Wanted(
    "a list of JobMessage, a hundred at the most",
    lambda value: (
        isinstance(value, Sequence)
        and len(cast("Sequence[object]", value)) <= 100
        and all(isinstance(one, JobMessage) for one in cast("Sequence[object]", value))
    ),
)


@attrs.frozen(kw_only=True)
class JobOutcome:
    """The outcome of a message, and what to do with it.

    Attributes:
        status: The outcome of the body; `suspended` if its stage now waits for external work or a child run; `fenced`
            if the result came too late and was discarded; `ignored` if the body was not run.
        reason: Why it was ignored: `closed` (the job is done or cancelled), `stale` (a newer message is on its way),
            `leased` (a worker has the job), `not_due`, `waiting` (for a child run), `paused`, `limited` (by a
            concurrency or rate limit), `unknown_code` (this process lacks its code), or `suspect` (the job was lost
            with a worker, and so was another one that runs here).
        acknowledge: Whether to delete the message. If False, return it to the queue.
        retry_after: Seconds after which a returned message should be delivered again; None if it should not.
    """

    status: Literal["completed", "suspended", "failed", "retrying", "fenced", "ignored"]
    reason: str | None = None
    acknowledge: bool = True
    retry_after: float | None = None


@attrs.frozen(kw_only=True)
class ProcessedJobs:
    """The result of `process_available_jobs`."""

    processed: int
    """How many jobs were run; the next three count them by outcome."""
    completed: int
    failed: int
    fenced: int
    more: bool
    """Whether it stopped at its limit, so that there may be more jobs."""


class ServerlessHost:
    """Runs the jobs of an engine's workflows in short-lived functions.

    Create it once, outside the handler. It may be frozen between calls for any time: each call verifies its session.

    Args:
        engine: The engine with the workflows to run.
        time_limit: The longest time that an invocation can last, a timedelta or a number of seconds. A killed function
            is detected after this time, not earlier.
        sinks: The sinks to which `run_maintenance_tick` delivers events, by their registered names.
        retention: How long ended runs of the engine's namespace are kept, at least an hour, before
            `run_maintenance_tick` removes them. None keeps them.
        heartbeat_interval: The time between two heartbeats, which also store the outputs of bodies. Two seconds if
            omitted.
        function_cache: How many waiting durable functions stay in memory for the next invocation in this process, which
            need not replay them then. Zero by default, as the next invocation mostly runs in another process.

    Raises:
        InvalidArgumentError: An argument has the wrong type or is out of bounds.
    """

    def __init__(
        self,
        engine: Engine,
        /,
        *,
        time_limit: Duration = 900.0,
        sinks: Mapping[str, EventSink] | None = None,
        retention: Duration | None = None,
        heartbeat_interval: Duration | None = None,
        function_cache: int = 0,
    ) -> None:
        check("ServerlessHost", _ENGINE, engine=engine)
        check("ServerlessHost", integer(0), function_cache=function_cache)
        limit = duration("ServerlessHost", "time_limit", time_limit).total_seconds()
        taken = by_name("ServerlessHost", "sinks", sinks or {}, "a dict of sinks by name", SINK)
        kept = None if retention is None else checked_retention("ServerlessHost", retention)
        every = None
        if heartbeat_interval is not None:
            every = duration("ServerlessHost", "heartbeat_interval", heartbeat_interval).total_seconds()
        self._core = engine.core
        self._dispatcher = Dispatcher(engine.core)
        self._lease = round((limit + MARGIN) * 1_000_000)
        self._lapses_after = limit + MARGIN + _REAPED_WITHIN
        self._called_at = 0.0
        self._maintenance = Maintenance(engine.core, lease=limit + MARGIN, retention=kept)
        self._reminders = Reminders(engine.core)
        self._flusher = Flusher(engine.core, taken, lease=min(LEASE, limit))
        # Half of the time to drive a function, the other half for the steps that it has started by then.
        self._executor = AttemptExecutor(
            engine.core,
            substitute=engine.substitute,
            heartbeat_interval=every,
            drive_for=limit / 2,
            function_cache=function_cache,
        )
        self._kernel = engine.core.kernel_with(self._executor)
        self._session: str | None = None
        self._lock = threading.Lock()
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset the state in a forked child: the session belongs to its parent."""
        self._session = None
        self._lock = threading.Lock()

    def handle_job(self, message: "JobMessage | Mapping[str, object] | str", /) -> JobOutcome:
        """Run the job that a message names, if it is due, and return what to do with the message.

        A failed body counts as handled, as its next attempt gets a new message. Return the message to the queue only if
        the outcome's `acknowledge` is False, or this raises another error than InvalidMessageError.

        Args:
            message: A JobMessage, or a mapping or JSON text with exactly its two fields.

        Raises:
            InvalidMessageError: The message is malformed. Do not deliver it again.
            UnavailableError: The store can't be reached.
        """
        wanted = message_from(message)
        return _outcome_of(self._with_session(lambda session: self._execute(session, wanted)))

    def handle_jobs(
        self,
        messages: Sequence["JobMessage"],
        /,
        *,
        seconds_left: float | None = None,
        is_fresh: bool = True,
        queues: Collection[str] | None = None,
    ) -> list["JobOutcome | HoldfastError"]:
        """Run the jobs that messages name concurrently, and return what to do with each message.

        The jobs are claimed in one transaction, and each is settled when its body has ended. Duplicate messages do no
        harm.

        Args:
            messages: At most 100 messages.
            seconds_left: The time left in the invocation, less what is needed to store results. Bodies can see it, and
                are stopped then, which counts as a failed attempt. Durable functions are parked before and continue in
                a later invocation.
            is_fresh: Whether the invocation has just begun. If not, jobs whose stages may need more time than is left
                are released, without counting an attempt.
            queues: The queues of jobs to serve; None for all. Jobs of other queues are released.

        Returns:
            The outcome of each message; an error if the outcome could not be stored, so that the message should be
                delivered again.

        Raises:
            UnavailableError: The store can't be reached. No message is handled.
        """
        check("handle_jobs", _MESSAGES, messages=messages)
        ends_at = None
        if seconds_left is not None:
            ends_at = micros(self._core.clock.now()) + max(0, round(seconds_left * 1_000_000))
        wanted = [message_from(message) for message in messages]
        if not wanted:
            return []

        def handle(session: str) -> "list[JobOutcome | HoldfastError]":
            claimed = self._claim_named(session, wanted)
            attempts = [one.attempt for one in claimed if one.attempt is not None]
            became = self._executor.execute_all(attempts, ends_at=ends_at, is_fresh=is_fresh, queues=queues)
            if any(isinstance(one, HoldfastError) for one in became.values()):
                self._forget_session(session)  # it must expire, to free the jobs that could not be settled
            return [
                _outcome(ignored(one) if one.attempt is None else became[one.attempt.job]) for one in claimed
            ]

        return self._with_session(handle)

    def process_available_jobs(
        self, *, max_jobs: int, concurrency: int = 10, keep_on: Callable[[], bool] = lambda: True
    ) -> ProcessedJobs:
        """Claim and run jobs until none is available, or `max_jobs` have been run.

        Args:
            max_jobs: The maximum number of jobs.
            concurrency: The maximum number of concurrent jobs.
            keep_on: Called before each claim; return False near the end of the invocation.
        """
        check("process_available_jobs", integer(1), max_jobs=max_jobs, concurrency=concurrency)
        counts: Counter[str] = Counter()
        while counts.total() < max_jobs and keep_on():
            limit = min(concurrency, max_jobs - counts.total())
            statuses = self._with_session(lambda session: self._process(session, limit))  # noqa: B023
            if not statuses:
                return _processed(counts, more=False)
            counts.update(statuses)
        return _processed(counts, more=True)

    def run_maintenance_tick(self, *, keep_on: Callable[[], bool] = lambda: True) -> Tick:
        """Run maintenance until nothing is left to do or `keep_on` returns False. Return what was done.

        It wakes due jobs, reaps dead sessions, expires deadlines, admits waiting runs, repairs, and removes expired
        runs. Call it from a timer at least once a minute: it recovers the jobs of killed functions and wakes sleeping
        jobs. It also announces again, once and at most 100 at a time, queued jobs of runs without changes for a minute,
        as their messages may be lost. Finally it delivers events to the host's sinks. Extra or concurrent calls do no
        harm.
        """
        self._core.connect()
        reminded = self._reminders.send()  # first, as jobs woken by the tick get messages anyway
        self._maintenance.resume_blocked()
        tick = self._maintenance.tick()
        while tick.more and keep_on():
            tick = tick.followed_by(self._maintenance.tick())
        self._maintenance.prune()
        flushed = self._flusher.flush(keep_on=keep_on)
        return attrs.evolve(tick, reminded=reminded, events=flushed.events)

    def _execute(self, session: str, message: JobMessage) -> JobExecuted:
        return self._kernel.dispatch(
            JobExecute(
                namespace=self._core.namespace,
                session=session,
                job=message.job_id,
                epoch=message.epoch,
                lease=self._lease,
                pass_over=self._executor.pass_over,
            )
        )

    def _claim_named(self, session: str, wanted: Sequence[JobMessage]) -> "list[JobClaimed]":
        renew = SessionRenew(namespace=self._core.namespace, session=session, lease=self._lease)
        claims = [
            JobClaimOne(
                namespace=self._core.namespace,
                session=session,
                job=message.job_id,
                epoch=message.epoch,
                definitions=self._core.registry.definitions,
                pass_over=self._executor.pass_over,
            )
            for message in wanted
        ]
        renewed, *answers = self._kernel.dispatch_many((renew, *claims))
        claimed = [BLOCKED_CLAIM if isinstance(one, UnreadableRowError) else one for one in answers]
        _, *accepted = _accepted((renewed, *claimed))
        self._dispatcher.follow_up(*accepted)
        return [one for one in accepted if isinstance(one, JobClaimed)]

    def _process(self, session: str, limit: int) -> list[str]:
        """Claim jobs and run them. Return the status of each."""
        attempts = self._claim(session, limit).attempts
        became = self._executor.execute_all(attempts, settles_together=True)
        return [executed.status for executed in _accepted(became.values())]

    def _claim(self, session: str, limit: int) -> JobsClaimed:
        definitions = self._core.registry.definitions
        queue_claims = tuple(
            QueueClaim(queue=queue, definitions=definitions, limit=limit)
            for queue in self._core.registry.queues(DEFAULT_QUEUE)
        )
        renew = SessionRenew(namespace=self._core.namespace, session=session, lease=self._lease)
        claim = JobClaim(
            namespace=self._core.namespace,
            session=session,
            queue_claims=queue_claims,
            limit=limit,
            pass_over=self._executor.pass_over,
        )
        _, claimed = _accepted(self._kernel.dispatch_many((renew, claim)))
        assert isinstance(claimed, JobsClaimed)
        self._dispatcher.follow_up(claimed)
        return claimed

    def _with_session(self, call: Callable[[str], T]) -> T:
        """Call with a live session: the current one or, if it was declared dead, a new one.

        A session that was not renewed for long is taken for dead without asking the store.
        """
        self._core.connect()
        self._core.trust_clock(CLOCK_AGE_MAX)  # a process may be frozen for hours between two invocations
        now = self._core.clock.monotonic()
        with self._lock:
            if now - self._called_at > self._lapses_after:
                self._session = None
            self._called_at = now
            session = self._session or self._open()
        try:
            try:
                return call(session)
            except SessionLostError:
                with self._lock:
                    if self._session == session:
                        self._open()
                    session = self._session or session
                return call(session)
        except BaseException:
            # The session may hold a job that no longer runs: do not renew it, so that the job comes free.
            self._forget_session(session)
            raise

    def _forget_session(self, session: str) -> None:
        with self._lock:
            if self._session == session:
                self._session = None

    def _open(self) -> str:
        opened = self._kernel.dispatch(
            SessionOpen(
                namespace=self._core.namespace,
                host=self._core.host,
                lease=self._lease,
                about=worker_about(
                    self._core,
                    None,
                    queues=self._core.registry.queues(DEFAULT_QUEUE),
                    concurrency=1,
                    limits={},
                ),
            )
        )
        self._session = opened.session
        return opened.session


def _accepted(answers: Iterable[T | HoldfastError]) -> list[T]:
    """Return the answers. Raises the first that is an error."""
    accepted: list[T] = []
    for answer in answers:
        if isinstance(answer, HoldfastError):
            raise answer
        accepted.append(answer)
    return accepted


def _outcome(became: JobExecuted | HoldfastError) -> JobOutcome | HoldfastError:
    return became if isinstance(became, HoldfastError) else _outcome_of(became)


def _outcome_of(executed: JobExecuted) -> JobOutcome:
    delay = executed.retry_after
    return JobOutcome(
        status=executed.status,
        reason=executed.reason,
        acknowledge=executed.acknowledge,
        retry_after=None if delay is None else delay / 1_000_000,
    )


def _processed(counts: Counter[str], *, more: bool) -> ProcessedJobs:
    return ProcessedJobs(
        processed=counts.total(),
        completed=counts["completed"] + counts["suspended"],
        failed=counts["failed"] + counts["retrying"],
        fenced=counts["fenced"],
        more=more,
    )
