"""Carries out jobs where a process lives for seconds and may be frozen between calls. Sync; needs no event loop."""

import threading
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeVar

import attrs

from holdfast.hosts.engine import Engine
from holdfast.hosts.flushing import LEASE, Flusher
from holdfast.hosts.maintenance import Maintenance, Tick
from holdfast.hosts.removing import checked_retention
from holdfast.hosts.serverless.execution import AttemptExecutor
from holdfast.hosts.serverless.reminders import Reminders
from holdfast.kernel.commands import JobClaim, JobExecute, JobExecuted, JobsClaimed, SessionOpen, SessionRenew
from holdfast.kernel.kernel import Kernel
from holdfast.kernel.plan import DEFAULT_QUEUE
from holdfast.ports.arguments import SINK, an, by_name, check, duration, integer
from holdfast.ports.durations import Duration
from holdfast.ports.errors import CommandError, InvalidMessageError, SessionLostError
from holdfast.ports.events import EventSink
from holdfast.ports.json import parse
from holdfast.ports.persistence import Lane
from holdfast.ports.records import job_key

T = TypeVar("T")

MARGIN: Final = 10.0
"""Seconds that a session outlives the longest invocation, so that no body loses its lease before it is stopped."""

_ENGINE: Final = an("an Engine, as Engine.open(url, workflows=[...]) gives it", Engine)
_MESSAGE_FIELDS: Final = {"job_id", "epoch"}


@attrs.frozen(kw_only=True)
class JobMessage:
    """All that a message says: which job, and which epoch it had when the message was sent."""

    job_id: str
    epoch: int


@attrs.frozen(kw_only=True)
class JobOutcome:
    """What became of a message.

    Attributes:
        status: What the body did; `suspended` if its stage now waits for external work or for a child; `fenced` if its
            result came too late to count; `ignored` if it was not run.
        reason: Why it was ignored: `closed` (done or cancelled long since), `stale` (a newer message is on its way),
            `held` (somebody has it), `not_due`, `waiting` (for a child), `paused`, `limited` (others of its stage are
            under way), `unknown_code` (this process lacks its code).
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
        delay = executed.retry_after
        return JobOutcome(
            status=executed.status,
            reason=executed.reason,
            acknowledge=executed.acknowledge,
            retry_after=None if delay is None else delay / 1_000_000,
        )

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
            )
        )

    def _process(self, kernel: Kernel, session: str, limit: int) -> list[str]:
        """Claim jobs and run them; return what became of each."""
        attempts = self._claim(kernel, session, limit).attempts
        return self._executor.execute_many(attempts, kernel) if attempts else []

    def _claim(self, kernel: Kernel, session: str, limit: int) -> JobsClaimed:
        definitions = self._core.registry.definitions
        lanes = tuple(
            Lane(queue=queue, definitions=definitions, limit=limit)
            for queue in self._core.registry.queues(DEFAULT_QUEUE)
        )
        renew = SessionRenew(namespace=self._core.namespace, session=session, lease=self._lease)
        claim = JobClaim(namespace=self._core.namespace, session=session, lanes=lanes, limit=limit)
        renewed, claimed = kernel.dispatch_many((renew, claim))
        for answer in (renewed, claimed):
            if isinstance(answer, CommandError):
                raise answer
        assert isinstance(claimed, JobsClaimed)
        self._core.follow_up(claimed)
        return claimed

    def _with_session(self, call: Callable[[Kernel, str], T]) -> T:
        """Make a call under a session that lives: the one there is or, if that was declared dead, a new one."""
        kernel = self._connected()
        with self._lock:
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
            with self._lock:
                if self._session == session:
                    self._session = None
            raise

    def _open(self, kernel: Kernel) -> str:
        opened = kernel.dispatch(
            SessionOpen(namespace=self._core.namespace, host=self._core.host, lease=self._lease)
        )
        self._session = opened.session
        return opened.session


def message_from(message: "JobMessage | Mapping[str, object] | str") -> JobMessage:
    """Return a message that was checked. InvalidMessageError if it says anything but a job and an epoch."""
    if isinstance(message, JobMessage):
        data: object = {"job_id": message.job_id, "epoch": message.epoch}
    elif isinstance(message, str):
        try:
            data = parse(message)
        except (ValueError, RecursionError):
            raise InvalidMessageError("the message is not JSON") from None
    else:
        data = message
    if not isinstance(data, Mapping) or set(data) != _MESSAGE_FIELDS:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidMessageError("a message is a JSON object with `job_id` and `epoch`, and nothing else")
    job_id, epoch = data["job_id"], data["epoch"]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(job_id, str) or type(epoch) is not int or epoch < 0:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidMessageError(
            "in a message `job_id` is a string and `epoch` an integer that is not negative"
        )
    try:
        job_key(job_id)
    except ValueError as error:
        raise InvalidMessageError(str(error)) from None
    return JobMessage(job_id=job_id, epoch=epoch)


def _processed(processed: int, counts: Mapping[str, int], *, more: bool) -> ProcessedJobs:
    return ProcessedJobs(
        processed=processed,
        completed=counts.get("completed", 0),
        failed=counts.get("failed", 0),
        fenced=counts.get("fenced", 0),
        more=more,
    )
