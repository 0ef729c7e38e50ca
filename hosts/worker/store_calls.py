"""The calls of a worker to the store. Synchronous and made in threads; each returns an input for the worker machine."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import attrs

from holdfast.hosts.events.flusher import Flusher
from holdfast.hosts.execution.attempt_log import log_settled
from holdfast.hosts.execution.attempt_runner import AttemptRunner
from holdfast.hosts.execution.attempt_runtime import AttemptRuntime
from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.execution.function_cache import FunctionCache
from holdfast.hosts.execution.trigger_firer import TriggerFirer
from holdfast.hosts.maintenance.tick import Maintenance
from holdfast.hosts.text import counted
from holdfast.hosts.wiring.input_loader import NOTHING_PRELOADED, Preloaded
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.worker import machine_protocol as p
from holdfast.kernel.commands import (
    Attempt,
    AttemptReport,
    Completed,
    Failed,
    FollowUp,
    JobClaim,
    JobHeartbeat,
    JobRelease,
    JobsClaimed,
    JobSettle,
    JobSettled,
    JobsWoken,
    JobWakeDue,
    QueuedStepFailed,
    RunClaimPending,
    RunsAdmitted,
    SessionClose,
    SessionOpen,
    WorkerAbout,
    follow_up_of,
)
from holdfast.kernel.dispatch.job_execution import UNKNOWN_CODE_DELAY
from holdfast.ports.clock import micros
from holdfast.ports.errors import STORE_ERRORS, CommandError, HoldfastError, SessionLostError
from holdfast.ports.events import EventSink
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.references import Reference
from holdfast.ports.structs import evolve

T = TypeVar("T")

REFUSED_DELAY: Final[Micros] = 30_000_000
"""Microseconds until a job whose settle was refused can be claimed again."""
_WAKE_LIMIT: Final = 500

_log = logging.getLogger("holdfast.worker")


@attrs.define
class Counts:
    """Counters of a worker since its start."""

    claimed: int = 0
    started: int = 0
    settled: int = 0
    failed: int = 0
    fenced: int = 0
    released: int = 0
    sessions_lost: int = 0
    store_errors: int = 0
    commits: int = 0
    events: int = 0
    dead_lettered: int = 0


class StoreCalls:
    """The calls of one worker to the store, under its session.

    If the answer to a claim, a settle that leases a job, or a release was lost, the session may hold jobs that
    nothing runs. Then the next claim opens another session. The former one is renewed while bodies run under it, and
    then closed, which frees the jobs that it still holds (docs/decisions/0003).
    """

    def __init__(
        self,
        core: Core,
        attempts: AttemptRunner,
        *,
        lease: float,
        sinks: Mapping[str, EventSink],
        retention: timedelta | None = None,
        cache: FunctionCache,
        wake_every: float,
        about: Callable[[], WorkerAbout],
    ) -> None:
        """See `Worker`. A claim also wakes due sleeping jobs if none of the calls did so for `wake_every` seconds."""
        self._core = core
        self._attempts = attempts
        self._dispatcher = Dispatcher(core)
        self._wake_every = wake_every
        self._wake_at = core.clock.monotonic() + wake_every
        self._cache = cache
        self._flusher = Flusher(core, sinks)
        self._flushes = threading.Event()
        self._flushes.set()
        self._lease = round(lease * 1_000_000)
        self._about = about
        self._maintenance = Maintenance(core, lease=lease, retention=retention)
        self.session: str | None = None
        self.counts = Counts()
        self.runtimes: dict[Attempt, AttemptRuntime] = {}
        self._is_in_doubt = False
        self._has_held_up = any(
            plan.gather is not None or plan.rate is not None for plan in core.registry.plans
        )
        self._former: dict[str, frozenset[Attempt]] = {}

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions to renew, the current one first."""
        return () if self.session is None else (self.session, *self._former)

    def open_session(self) -> p.Input:
        """Open a session."""
        return self._guarded(p.OpenSession(), self._open)

    def leave(self, settles: tuple[JobSettle, ...], attempts: tuple[Attempt, ...]) -> None:
        """Settle and release what the session holds, and close it, so that its jobs need not wait for it to expire."""
        if self.session is None:
            return
        if settles:
            settled, _ = self.settle(p.Settle(settles, (False,) * len(settles)), {})
            if isinstance(settled, p.Settled):
                self.follow_up(evolve(settled.follow_up, deliveries=False, topics=()))
        if attempts:
            self.release(attempts)
        self._resign(self.session)
        for session in self.sessions:
            self._close(session)

    def claim(self, action: p.Claim) -> tuple[p.Input, list[Body]]:
        """Claim jobs and prepare their bodies."""
        bodies: list[Body] = []

        def claim() -> p.Input:
            if self._is_in_doubt:
                self._open_another()
            command = JobClaim(
                namespace=self._core.namespace,
                session=self.session or "",
                queue_claims=action.queue_claims,
                limit=action.limit,
                pass_over=action.pass_over,
            )
            try:
                claimed = self._claimed(command)
            except STORE_ERRORS:
                self._is_in_doubt = True
                raise
            attempts = claimed.attempts
            if not attempts:
                return p.Claimed((), action.limit, claimed.follow_up)
            self.counts.claimed += len(attempts)
            self.counts.commits += 1
            known, unknown = self._prepared(attempts, NOTHING_PRELOADED)
            bodies.extend(known)
            # A claim that was filled partly with jobs without code does not indicate a backlog.
            ready = tuple(body.attempt for body in known)
            return p.Claimed(ready, action.limit + bool(unknown), claimed.follow_up)

        return self._guarded(action, claim), bodies

    def settle(self, action: p.Settle, settled: Mapping[tuple[str, int], Body]) -> tuple[p.Input, list[Body]]:
        """Store results, and lease and prepare next jobs. `settled` has the bodies, by job and epoch."""
        bodies: list[Body] = []

        def settle() -> p.Input:
            # A session in doubt is to be closed, with all that it holds: it must not lease more jobs.
            session = None if self._is_in_doubt else self.session
            commands = [
                evolve(command, take_next=session) if takes and session else command
                for command, takes in zip(action.settles, action.lease_next, strict=True)
            ]
            try:
                answers = self._settle_all(commands)
            except STORE_ERRORS:
                self._is_in_doubt = self._is_in_doubt or any(action.lease_next)
                raise
            self.counts.commits += 1
            retries, opened = self._settled(action.settles, answers, settled)
            taken = tuple(None if isinstance(answer, CommandError) else answer.next for answer in answers)
            if any(taken):
                bodies.extend(self._prepare_next(action.settles, answers, settled))
                ready = {body.attempt for body in bodies}
                taken = tuple(attempt if attempt in ready else None for attempt in taken)
            return p.Settled(
                opened, self._seconds_until(retries), taken if bodies else (), follow_up_of(answers)
            )

        return self._guarded(action, settle), bodies

    def _settled(
        self,
        settles: Sequence[JobSettle],
        answers: Sequence[JobSettled | CommandError],
        settled: Mapping[tuple[str, int], Body],
    ) -> tuple[list[Micros], bool]:
        """Count and log the answers. Return when retries are due, and whether the queues may have new work."""
        opened = False
        retries: list[Micros] = []
        for command, answer in zip(settles, answers, strict=True):
            if isinstance(answer, CommandError):
                self._cache.forget(command.job, command.epoch)
                self._refused(command, answer)
            elif answer.status == "fenced":
                self._cache.forget(command.job, command.epoch)
                self.counts.fenced += 1
                _log.warning(
                    "the result of job %s (epoch %s) came too late and is discarded: the run has ended, or another"
                    " worker has the job",
                    command.job,
                    command.epoch,
                )
            else:
                self.counts.settled += 1
                self.counts.failed += isinstance(command.outcome, Failed | QueuedStepFailed)
                opened = opened or (answer.run_status == "running" and (answer.next is None or answer.more))
                if answer.retry_at is not None:
                    retries.append(answer.retry_at)
                if (body := settled.get((command.job, command.epoch))) is not None:
                    log_settled(body, command, answer)
        return retries, opened

    def _prepare_next(
        self,
        settles: Sequence[JobSettle],
        answers: Sequence[JobSettled | CommandError],
        settled: Mapping[tuple[str, int], Body],
    ) -> list[Body]:
        """Return the bodies of the next jobs that settles have leased.

        The run and the stored output are passed on, as the output of a stage is usually the input of the next.
        """
        attempts: list[Attempt] = []
        runs: dict[str, Run] = {}
        values: dict[tuple[str, Reference], tuple[Payload, ...]] = {}
        for command, answer in zip(settles, answers, strict=True):
            if isinstance(answer, CommandError) or answer.next is None:
                continue
            attempts.append(answer.next)
            if body := settled.get((command.job, command.epoch)):
                runs[answer.next.run] = body.work.run
            if answer.row is not None and isinstance(command.outcome, Completed):
                values[answer.next.run, answer.row] = (command.outcome.output,)
        self.counts.claimed += len(attempts)
        return self._prepared(attempts, Preloaded(runs, values))[0]

    def _prepared(self, attempts: Sequence[Attempt], known: Preloaded) -> tuple[list[Body], list[Attempt]]:
        """Return the bodies of attempts, and the attempts without code, which are released."""
        try:
            bodies, unknown = self._attempts.prepare(attempts, known)
        except Exception:
            self.release(attempts)
            raise
        if unknown:
            _log.warning(
                "this worker lacks the code of stage %r of %s: the job is given back",
                unknown[0].node,
                unknown[0].definition,
            )
            self.release(unknown, delay=UNKNOWN_CODE_DELAY)
        return bodies, unknown

    def heartbeat(self, action: p.Action, attempts: tuple[Attempt, ...]) -> p.Input:
        """Store the output of attempts, and check which of them still hold their lease."""

        def heartbeat() -> p.Input:
            held = tuple(self._held(attempt) for attempt in attempts)
            command = JobHeartbeat(namespace=self._core.namespace, attempts=held)
            try:
                answer = self._core.kernel.dispatch(command)
            except HoldfastError:
                for attempt, held_attempt in zip(attempts, held, strict=True):
                    if runtime := self.runtimes.get(attempt):
                        runtime.put_back(held_attempt.outputs)
                raise
            lost = set(answer.lost)
            return p.HeartbeatAnswered(tuple(attempt for attempt in attempts if attempt.job in lost))

        return self._guarded(action, heartbeat)

    def sweep(self, action: p.Action) -> p.Input:
        """Run a maintenance tick, if this session has the leader lease."""

        def sweep() -> p.Input:
            self._close_former()
            more, wakes_at = self._maintenance.sweep(self.session or "")
            return p.SweepDone(more, self._seconds_until(wakes_at))

        return self._guarded(action, sweep)

    def look(self, action: p.Action) -> p.Input:
        """Look up which sinks have events to receive."""
        return self._guarded(action, lambda: p.EventsFound(self._flusher.find_due_sinks()))

    def flush(self, action: p.Flush) -> p.Input:
        """Deliver events to a sink, for as long as the sink takes."""

        def flush() -> p.Input:
            flushed = self._flusher.flush_once(action.sink, self._flushes.is_set)
            self.counts.events += flushed.events
            self.counts.dead_lettered += flushed.dead_lettered
            return p.SinkFlushed(action.sink, flushed.more)

        return self._guarded(action, flush)

    def stop_flushing(self) -> None:
        """Start no more calls of sinks."""
        self._flushes.clear()

    def wake_due(self, action: p.Action) -> p.Input:
        """Queue the sleeping jobs that are due."""

        def wake() -> p.Input:
            schedules = self._maintenance.schedules
            begins = self._begin_commands()
            commands = (self._wake_command(), *begins, *schedules.due_commands)
            reply, *others = self._core.kernel.dispatch_many(commands)
            begun, fired = others[: len(begins)], others[len(begins) :]
            for answer in (reply, *begun):
                if isinstance(answer, CommandError):
                    raise answer
            assert isinstance(reply, JobsWoken)
            _, wakes_at, more = schedules.note(fired)
            followed = self._dispatcher.follow_up(reply, *begun, *fired)
            TriggerFirer(self._core).try_to_fire()
            next_at = (at for one in begun if isinstance(one, RunsAdmitted) for at in one.wakes_at)
            return p.WokeDue(
                more or reply.woken >= _WAKE_LIMIT,
                self._seconds_until((*followed.wakes_at, *wakes_at, *next_at)),
            )

        return self._guarded(action, wake)

    def _wake_command(self) -> JobWakeDue:
        """Return the command that queues due sleeping jobs, after checking the clock."""
        self._wake_at = self._core.clock.monotonic() + self._wake_every
        self._core.trust_clock(self._lease / 3_000_000)
        return JobWakeDue(limit=_WAKE_LIMIT)

    def _begin_commands(self) -> tuple[RunClaimPending, ...]:
        """Return the command that begins due runs, if workflows of this process or rates in the store hold some up."""
        if not (self._has_held_up or self._maintenance.has_rate_lines):
            return ()
        return (RunClaimPending(namespace=self._core.namespace, due=True),)

    def _claimed(self, claim: JobClaim) -> JobsClaimed:
        """Claim jobs; if no due jobs were woken lately, wake them in the same transaction.

        A process with workflows that gather starts, or whose starts have a rate, also begins due runs in it, and does
        not leave them to maintenance: a batch of every second would begin some seconds late.

        The worker that was to wake them may be gone. Jobs that were woken are claimed at once.
        """
        if self._core.clock.monotonic() < self._wake_at:
            return self._core.kernel.dispatch(claim)
        commands: tuple[JobWakeDue | RunClaimPending | JobClaim, ...]
        commands = (self._wake_command(), *self._begin_commands(), claim)
        answers = self._core.kernel.dispatch_many(commands)
        for answer in answers:
            if isinstance(answer, CommandError):
                raise answer
        woken, *begun, claimed = answers
        assert isinstance(woken, JobsWoken)
        assert isinstance(claimed, JobsClaimed)
        self._dispatcher.follow_up(woken, *begun)
        is_more = woken.woken or any(isinstance(one, RunsAdmitted) and one.admitted for one in begun)
        return self._core.kernel.dispatch(claim) if is_more and not claimed.attempts else claimed

    def follow_up(self, action: FollowUp) -> p.Input:
        """Admit runs and jobs, and deliver results of ended runs to the runs that wait for them."""

        def carry_out() -> p.Input:
            done = self._dispatcher.carry_out(action)
            opened = action.delivers or done.admitted > 0
            return p.FollowedUp(action, opened, self._seconds_until(done.wakes_at))

        return self._guarded(action, carry_out)

    def release(self, attempts: Sequence[Attempt], *, delay: Micros = 0) -> None:
        """Release attempts. If that fails, their jobs are freed when the session is closed or reaped."""
        try:
            answers = self._attempts.release(attempts, delay)
        except HoldfastError as error:
            self._is_in_doubt = True
            _log.warning(
                "could not give back %s; other workers take over when the session expires: %s",
                counted(len(attempts), "job"),
                error,
            )
        else:
            self.counts.released += sum(
                not isinstance(answer, CommandError) and answer.status == "released" for answer in answers
            )

    def _seconds_until(self, instants: Iterable[Micros]) -> tuple[float, ...]:
        now = micros(self._core.clock.now())
        return tuple(max(0.0, (at - now) / 1_000_000) for at in instants)

    def _open(self) -> p.Input:
        if self.session is not None:
            self.counts.sessions_lost += 1
        self.session = self._opened()
        self._is_in_doubt = False
        return p.SessionReady()

    def _opened(self) -> str:
        command = SessionOpen(
            namespace=self._core.namespace, host=self._core.host, lease=self._lease, about=self._about()
        )
        return self._core.kernel.dispatch(command).session

    def _open_another(self) -> None:
        former, self.session = self.session, self._opened()
        self._is_in_doubt = False
        if former is not None:
            self._former[former] = frozenset(self.runtimes)

    def _close_former(self) -> None:
        """Close former sessions once all bodies that ran under them have ended."""
        for session, ran in list(self._former.items()):
            if ran:
                self._former[session] = ran & frozenset(self.runtimes)
            elif self._close(session):
                del self._former[session]

    def _close(self, session: str) -> bool:
        """Close a session; return whether it is closed now or has been before."""
        try:
            self._core.kernel.dispatch(SessionClose(namespace=self._core.namespace, session=session))
        except STORE_ERRORS as error:
            _log.info("could not close the session, it will expire: %s", error)
            return False
        except HoldfastError as error:
            _log.info("could not close the session: %s", error)
        return True

    def _resign(self, session: str) -> None:
        try:
            self._maintenance.resign(session)
        except HoldfastError as error:
            _log.info("could not release the leader lease, it expires instead: %s", error)

    def _held(self, attempt: Attempt) -> AttemptReport:
        runtime = self.runtimes.get(attempt)
        return AttemptReport(
            job=attempt.job, epoch=attempt.epoch, outputs=runtime.take_outputs() if runtime else ()
        )

    def _settle_all(self, settles: Sequence[JobSettle]) -> list[JobSettled | CommandError]:
        try:
            return self._core.kernel.dispatch_many(settles)
        except STORE_ERRORS:
            raise
        except Exception:
            if len(settles) == 1:
                raise
            # One bad settle must not block the others.
            _log.exception("settling %s jobs together failed; settling them one by one", len(settles))
            return [self._settle_one(command) for command in settles]

    def _settle_one(self, command: JobSettle) -> JobSettled | CommandError:
        try:
            return self._core.kernel.dispatch_many((command,))[0]
        except STORE_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001  # the error of this command alone
            return CommandError(f"{type(error).__name__}: {error}")

    def _refused(self, command: JobSettle, error: CommandError) -> None:
        _log.error("job %s, epoch %s could not be settled: %s", command.job, command.epoch, error)
        back = JobRelease(
            namespace=self._core.namespace, job=command.job, epoch=command.epoch, delay=REFUSED_DELAY
        )
        self._core.kernel.dispatch_many((back,))

    def _guarded(self, action: p.Action, call: Callable[[], p.Input]) -> p.Input:
        """Make a call; turn its errors into inputs that make the machine repeat it."""
        try:
            return call()
        except SessionLostError as error:
            # The loss of a former session does not concern the machine.
            return p.SessionLost(action) if error.session == self.session else p.CallFailed(action)
        except HoldfastError as error:
            _log.warning("%s: %s", type(action).__name__, error)
        except Exception:  # noqa: BLE001  # a bug must not end the worker: log it and repeat the call
            _log.exception("%s failed", type(action).__name__)
        self.counts.store_errors += 1
        return p.CallFailed(action)
