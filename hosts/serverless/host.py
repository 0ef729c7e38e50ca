"""Carries out jobs where a process lives for seconds and may be frozen between calls. Sync; needs no event loop."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Literal, TypeVar, cast

import attrs

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.events.flusher import LEASE, Flusher
from holdfast.hosts.maintenance.retention import checked_retention
from holdfast.hosts.maintenance.tick import Maintenance, Tick
from holdfast.hosts.serverless.attempt_executor import AttemptExecutor
from holdfast.hosts.serverless.job_messages import JobMessage, message_from
from holdfast.hosts.serverless.reminders import Reminders
from holdfast.hosts.wiring.services import CLOCK_AGE_MAX
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
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE
from holdfast.ports.clock import micros
from holdfast.ports.durations import Duration
from holdfast.ports.errors import CommandError, HoldfastError, SessionLostError, UnreadableRowError
from holdfast.ports.events import EventSink
from holdfast.ports.persistence import Lane
from holdfast.ports.process_forks import renew_in_forks
from holdfast.ports.validation import SINK, Wanted, an, by_name, check, duration, integer

T = TypeVar("T")

MARGIN: Final = 10.0
"""Seconds that a session outlives the longest invocation, so that no body loses its lease before it is stopped."""

_REAPED_WITHIN: Final = 120.0
"""Seconds after its lease within which a session has surely been declared dead: maintenance runs every minute."""

_ENGINE: Final = an("an Engine, as Engine.open(url, workflows=[...]) gives it", Engine)
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
    """What became of a message.

    Attributes:
        status: What the body did; `suspended` if its stage now waits for external work or for a child; `fenced` if its
            result came too late to count; `ignored` if it was not run.
        reason: Why it was ignored: `closed` (done or cancelled long since), `stale` (a newer message is on its way),
            `leased` (a worker has it), `not_due`, `waiting` (for a child), `paused`, `limited` (others of its stage are
            under way), `unknown_code` (this process lacks its code), `suspect` (it was lost with a worker before, as
            another was that runs here).
        acknowledge: Whether the message is dealt with. If not, give it back to the queue.
        retry_after: Seconds after which a message that is given back should come again; None if it should not.
    """

    status: Literal["completed", "suspended", "failed", "retrying", "fenced", "ignored"]
    reason: str | None = None
    acknowledge: bool = True
    retry_after: float | None = None


@attrs.frozen(kw_only=True)
class ProcessedJobs:
    """What `process_available_jobs` did. `more` says whether it stopped at its limit, so that there may be more."""

    processed: int
    completed: int
    failed: int
    fenced: int
    more: bool


class ServerlessHost:
    """Runs jobs of an engine's workflows inside short-lived functions.

    Build it once, outside the handler: it may be reused after having been frozen for any time, since it asks the
    store at every call whether its session still lives.

    Args:
        engine: Whose workflows to run.
        time_limit: How long an invocation can last at the most: a timedelta, or a number of seconds, as all lengths of
            time here. A function that is killed is noticed after
            that, and not before.
        sinks: What takes events, by the names under which sinks are registered. `run_maintenance_tick` calls them.
        retention: How long runs of the engine's namespace are kept that have ended, at least an hour; then
            `run_maintenance_tick` removes them. None: until somebody does.
        heartbeat_interval: How long it is between two times that what bodies say is stored, and that it is asked
            whether they still hold their jobs. Two seconds if left out.
        function_cache: How many durable functions that wait stay in memory for the next invocation in this process,
            which need not replay them then. None unless it is said: memory is paid for, and mostly another process is
            called.

    Raises:
        InvalidArgumentError: One of these can't be.
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
        taken = by_name("ServerlessHost", "sinks", sinks or {}, "a dict of sinks by their names", SINK)
        kept = None if retention is None else checked_retention("ServerlessHost", retention)
        every = None
        if heartbeat_interval is not None:
            every = duration("ServerlessHost", "heartbeat_interval", heartbeat_interval).total_seconds()
        self._core = engine.core
        self._lease = round((limit + MARGIN) * 1_000_000)
        self._lapses_after = limit + MARGIN + _REAPED_WITHIN
        self._called_at = 0.0
        self._maintenance = Maintenance(engine.core, lease=limit + MARGIN, retention=kept)
        self._reminders = Reminders(engine.core)
        self._flusher = Flusher(engine.core, taken, lease=min(LEASE, limit))
        # The steps that a function has begun by then have as much time again.
        self._executor = AttemptExecutor(
            engine.core, heartbeat_interval=every, drive_for=limit / 2, function_cache=function_cache
        )
        self._kernel: Kernel | None = None
        self._session: str | None = None
        self._lock = threading.Lock()
        renew_in_forks(self)

    def renew(self) -> None:
        """Begin anew. In a forked child: the session is its parent's."""
        self._session = None
        self._lock = threading.Lock()

    def handle_job(self, message: "JobMessage | Mapping[str, object] | str", /) -> JobOutcome:
        """Run the job that a message names, if it is to be run, and say what to do with the message.

        A body that failed is a message dealt with: its next attempt gets a message of its own. Only an error that
        this raises is worth delivering the message again.

        Args:
            message: A JobMessage, or a mapping or JSON text with just its two fields.

        Raises:
            InvalidMessageError: It is no such thing; it will never be, so put it aside.
            UnavailableError: The store did not answer in time.
        """
        wanted = message_from(message)
        executed = self._with_session(lambda kernel, session: self._execute(kernel, session, wanted))
        self._core.follow_up(executed)
        return _outcome_of(executed)

    def handle_jobs(
        self,
        messages: Sequence["JobMessage"],
        /,
        *,
        seconds_left: float | None = None,
        is_fresh: bool = True,
        queues: Collection[str] | None = None,
    ) -> list["JobOutcome | HoldfastError"]:
        """Run the jobs that messages name, all at once, and say of each what to do with its message.

        They are claimed in one transaction, and each is settled as soon as its body has ended. Two messages of one job
        are one of them too many, and do no harm.

        Args:
            messages: What queues have brought, a hundred at the most.
            seconds_left: How long the invocation lasts yet, less what it takes to store what bodies give. Bodies are
                told, and stopped then: that is a failed attempt. Functions rest before that, and go on in the next.
            is_fresh: Whether the invocation has just begun. Where it has not, jobs are given back, with their attempts
                not counted, whose stages may need more time than is left.
            queues: Which queues of jobs are served; None for all. Jobs of others are given back in the same way.

        Returns:
            For each message what became of it; an error where the store did not say, so that it is worth delivering
            again.

        Raises:
            UnavailableError: The store did not answer in time. No message is dealt with.
        """
        check("handle_jobs", _MESSAGES, messages=messages)
        ends_at = None
        if seconds_left is not None:
            ends_at = micros(self._core.clock.now()) + max(0, round(seconds_left * 1_000_000))
        wanted = [message_from(message) for message in messages]
        if not wanted:
            return []

        def handle(kernel: Kernel, session: str) -> "list[JobOutcome | HoldfastError]":
            claimed = self._claim_named(kernel, session, wanted)
            attempts = [one.attempt for one in claimed if one.attempt is not None]
            with self._executor.holding(attempts):
                became = self._executor.execute_each(
                    attempts, kernel, ends_at=ends_at, is_fresh=is_fresh, queues=queues
                )
            if any(isinstance(one, HoldfastError) for one in became.values()):
                self._forget_session(session)  # it holds what could not be settled, which is to come free
            return [
                _outcome(ignored(one) if one.attempt is None else became[one.attempt.job]) for one in claimed
            ]

        return self._with_session(handle)

    def process_available_jobs(
        self, *, max_jobs: int, concurrency: int = 10, keep_on: Callable[[], bool] = lambda: True
    ) -> ProcessedJobs:
        """Claim and run jobs until there are none, or `max_jobs` have been run.

        Args:
            max_jobs: How many at most.
            concurrency: How many at once.
            keep_on: Asked before each claim; return False near the end of the invocation.
        """
        check("process_available_jobs", integer(1), max_jobs=max_jobs, concurrency=concurrency)
        counts: dict[str, int] = {}
        processed = 0
        while processed < max_jobs and keep_on():
            limit = min(concurrency, max_jobs - processed)
            statuses = self._with_session(lambda kernel, session: self._process(kernel, session, limit))  # noqa: B023
            if not statuses:
                return _processed(processed, counts, more=False)
            for status in statuses:
                counts[status] = counts.get(status, 0) + 1
            processed += len(statuses)
        return _processed(processed, counts, more=True)

    def run_maintenance_tick(self, *, keep_on: Callable[[], bool] = lambda: True) -> Tick:
        """Wake what is due, reap dead sessions, repair; until nothing is left, or `keep_on` says False.

        Run it from a timer, at least once a minute: it is what brings back jobs whose function was killed, and those
        that sleep. It also announces again, once and at most 100 of them, queued jobs of runs to which nothing has
        happened for a minute: their messages may have been lost. Last, it brings events to the sinks that the host was
        given, until they have them all or `keep_on` says no. Running it more often, or twice at once, does no harm.
        """
        self._core.connect()
        reminded = self._reminders.send()  # first, for what is woken now has a message of its own
        self._maintenance.resume_blocked()
        tick = self._maintenance.tick()
        while tick.more and keep_on():
            following = self._maintenance.tick()
            tick = Tick(
                woken=tick.woken + following.woken,
                sessions=tick.sessions + following.sessions,
                freed=tick.freed + following.freed,
                dead=tick.dead + following.dead,
                silent=tick.silent + following.silent,
                expired=tick.expired + following.expired,
                admitted=tick.admitted + following.admitted,
                queued=tick.queued + following.queued,
                repaired=tick.repaired + following.repaired,
                told=tick.told + following.told,
                more=following.more,
            )
        self._maintenance.prune()
        flushed = self._flusher.flush(keep_on=keep_on)
        return attrs.evolve(tick, reminded=reminded, events=flushed.events)

    def _connected(self) -> Kernel:
        if self._kernel is None:
            self._core.connect()
            self._kernel = self._core.kernel_with(self._executor)
        return self._kernel

    def _execute(self, kernel: Kernel, session: str, message: JobMessage) -> JobExecuted:
        return kernel.dispatch(
            JobExecute(
                namespace=self._core.namespace,
                session=session,
                job=message.job_id,
                epoch=message.epoch,
                lease=self._lease,
                pass_over=self._executor.pass_over,
            )
        )

    def _claim_named(self, kernel: Kernel, session: str, wanted: Sequence[JobMessage]) -> "list[JobClaimed]":
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
        renewed, *answers = kernel.dispatch_many((renew, *claims))
        claimed = [BLOCKED_CLAIM if isinstance(one, UnreadableRowError) else one for one in answers]
        _accepted((renewed, *claimed))
        self._core.follow_up(*claimed)
        return [one for one in claimed if isinstance(one, JobClaimed)]

    def _process(self, kernel: Kernel, session: str, limit: int) -> list[str]:
        """Claim jobs and run them; return what became of each."""
        attempts = self._claim(kernel, session, limit).attempts
        with self._executor.holding(attempts):
            return self._executor.execute_many(attempts, kernel) if attempts else []

    def _claim(self, kernel: Kernel, session: str, limit: int) -> JobsClaimed:
        definitions = self._core.registry.definitions
        lanes = tuple(
            Lane(queue=queue, definitions=definitions, limit=limit)
            for queue in self._core.registry.queues(DEFAULT_QUEUE)
        )
        renew = SessionRenew(namespace=self._core.namespace, session=session, lease=self._lease)
        claim = JobClaim(
            namespace=self._core.namespace,
            session=session,
            lanes=lanes,
            limit=limit,
            pass_over=self._executor.pass_over,
        )
        _, claimed = _accepted(kernel.dispatch_many((renew, claim)))
        assert isinstance(claimed, JobsClaimed)
        self._core.follow_up(claimed)
        return claimed

    def _with_session(self, call: Callable[[Kernel, str], T]) -> T:
        """Make a call under a session that lives: the one there is or, if that was declared dead, a new one.

        One that nobody has renewed for so long is taken for dead, and the store is not asked first.
        """
        kernel = self._connected()
        self._core.trust_clock(CLOCK_AGE_MAX)  # between two invocations a process may stand still for hours
        now = self._core.clock.monotonic()
        with self._lock:
            if now - self._called_at > self._lapses_after:
                self._session = None
            self._called_at = now
            session = self._session or self._open(kernel)
        try:
            try:
                return call(kernel, session)
            except SessionLostError:
                with self._lock:
                    if self._session == session:
                        self._open(kernel)
                    session = self._session or session
                return call(kernel, session)
        except BaseException:
            # It may hold a job that nobody runs or has settled: not to be renewed, so that the job comes free.
            self._forget_session(session)
            raise

    def _forget_session(self, session: str) -> None:
        with self._lock:
            if self._session == session:
                self._session = None

    def _open(self, kernel: Kernel) -> str:
        opened = kernel.dispatch(
            SessionOpen(namespace=self._core.namespace, host=self._core.host, lease=self._lease)
        )
        self._session = opened.session
        return opened.session


def _accepted(answers: Sequence[object]) -> Sequence[object]:
    for answer in answers:
        if isinstance(answer, CommandError):
            raise answer
    return answers


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


def _processed(processed: int, counts: Mapping[str, int], *, more: bool) -> ProcessedJobs:
    return ProcessedJobs(
        processed=processed,
        completed=counts.get("completed", 0),
        failed=counts.get("failed", 0),
        fenced=counts.get("fenced", 0),
        more=more,
    )
