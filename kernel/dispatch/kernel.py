"""Takes commands, has them decided, and stores what they come to: one transaction for a batch."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from holdfast.kernel.commands import (
    Attempt,
    Command,
    JobClaimed,
    JobClaimOne,
    JobExecute,
    JobExecuted,
    JobRelease,
    JobsAdmitted,
    JobSettle,
    RunRerunFrom,
    RunsAdmitted,
    SessionRenew,
    SinkRegister,
    SinkRemove,
    admissions,
)
from holdfast.kernel.dispatch.command_batches import batches_of
from holdfast.kernel.dispatch.command_bounds import check_texts
from holdfast.kernel.dispatch.decision_recording import Recording, recorded
from holdfast.kernel.dispatch.idempotency import check_key, replayed, reply_of
from holdfast.kernel.dispatch.job_execution import BLOCKED_CLAIM, executed, ignored
from holdfast.kernel.dispatch.loader import load
from holdfast.kernel.dispatch.storage_refusals import without_value
from holdfast.kernel.dispatch.unreadable_runs import (
    BlockedRun,
    block,
    failed_decision,
    failed_decision_of,
    runs_of,
    unreadable_of,
)
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.pipelines.plan_cache import PlanCache
from holdfast.kernel.rules.outbox import stream_advances
from holdfast.kernel.rules.registry import RULES
from holdfast.kernel.runs.rerun_preview import RerunPreview, preview_rerun
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import AppendHistory, Change, StoreReply
from holdfast.ports.clock import Clock, Ids, micros
from holdfast.ports.errors import (
    CommandError,
    ConflictError,
    HoldfastError,
    InvalidCommandError,
    RefusedError,
    StorageRefusedError,
    UnreadableRowError,
)
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.records import Micros, Sink
from holdfast.ports.transport import Hint, JobTransport
from holdfast.ports.unreadable import Unreadable

R = TypeVar("R")

SINKS_KNOWN_FOR: Final = 15.0
"""Seconds after which it is asked again which sinks there are; far less than `KNOWN_EVERYWHERE`."""

Answer: TypeAlias = object | CommandError
Around: TypeAlias = Callable[
    [Sequence[Command[Any]], Callable[[Sequence[Command[Any]]], list[Answer]]], list[Answer]
]
"""Is given commands, and what carries them out outside of its own transactions; returns an answer to each."""


_Done: TypeAlias = tuple[list[Answer], tuple[Hint, ...], frozenset[str], Sequence[Change]]
"""Answers to commands, what to announce, the plans that are stored now, and what has changed."""


class Executor(Protocol):
    """Runs bodies. Given by a host; never called inside a transaction."""

    def definitions(self) -> tuple[str, ...]:
        """Return what code there is, as `<workflow>@<version>`."""
        ...

    def execute(self, attempt: Attempt, /) -> JobSettle | None:
        """Run the body of an attempt and return what settles it; None if this process lacks its code."""
        ...


class Kernel:
    """The engine. Synchronous; safe to use from several threads.

    Args:
        persistence: The store.
        clock: Where `now` comes from.
        ids: Where fresh ids come from.
        transport: Where to announce what can be claimed and what has ended. Without it the store is only polled.
        plans: The pipelines that runs can be created of. The last of a name is used where no version is asked for.
        executor: What runs bodies for `job.execute`.
        recorder: Called with every decision and all that it was made from; for tests and for looking back.
        around: What a host puts around every dispatch.
        after: Told after each commit what it has changed, in order. Never raises.
        blocked: Told of each run that was blocked because a row of it can't be read. Never raises.
    """

    def __init__(
        self,
        *,
        persistence: Persistence,
        clock: Clock,
        ids: Ids,
        transport: JobTransport | None = None,
        plans: Iterable[Plan] = (),
        executor: Executor | None = None,
        recorder: Callable[[Recording], None] | None = None,
        around: Around | None = None,
        after: Callable[[Sequence[Change]], None] | None = None,
        blocked: Callable[[BlockedRun], None] | None = None,
    ) -> None:
        self.persistence = persistence
        self.clock = clock
        self._ids = ids
        self._transport = transport
        self._workflows = _by_version(plans)
        self._executor = executor
        self._recorder = recorder
        self._around = around
        self._after = after
        self._blocked = blocked
        self._known_plans = PlanCache()
        self._stored_plans: frozenset[str] = frozenset()
        self._sinks: tuple[Sink, ...] = ()
        self._sinks_until = -math.inf

    def dispatch(self, command: Command[R], /) -> R:
        """Carry out one command and return its reply. A CommandError says that it was refused and changed nothing."""
        answer = self.dispatch_many((command,))[0]
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def dispatch_many(self, commands: Sequence[Command[R]], /) -> list[R | CommandError]:
        """Carry out commands in order and return their replies in that order.

        They share transactions, each of at most 500 commands and 4 MiB of values. One that is refused changes
        nothing and is answered with its CommandError; the others are not affected.
        """
        around = self._around
        answers = self._dispatch_all(commands) if around is None else around(commands, self._dispatch_all)
        return cast("list[R | CommandError]", answers)

    def dispatch_joined(
        self, command: Command[R], join: Callable[[Callable[[Transaction], Any]], Any], /
    ) -> R:
        """Carry out a command inside a transaction that is open, as its last act; `join` has work done in it.

        Whoever opened it commits it, or not. Nothing is tried again, and no hints are sent: a sweep makes up for them.
        CommandError as `dispatch`; and whatever `join` raises.
        """

        def dispatch(commands: Sequence[Command[Any]]) -> list[Answer]:
            if not commands:
                return []
            try:
                answers, *_ = join(lambda tx: self._carry_out(tx, commands, State(self._workflows)))
            except RefusedError as error:
                return [StorageRefusedError(f"the store refused the command {command.type}: {error}")]
            return cast("list[Answer]", answers)

        around = self._around
        (answer,) = dispatch((command,)) if around is None else around((command,), dispatch)
        if isinstance(answer, CommandError):
            raise answer
        return cast("R", answer)

    def _dispatch_all(self, commands: Sequence[Command[Any]]) -> list[Answer]:
        answers: list[Answer] = []
        for batch in batches_of(commands):
            if isinstance(batch[0], JobExecute):
                answers.append(self._execute(batch[0]))
            else:
                answers.extend(self._dispatch_batch(batch))
        return answers

    def preview(self, command: RunRerunFrom, /) -> RerunPreview:
        """Return what a command would do if nothing happens before it; nothing is changed, and nothing locked.

        CommandError as `dispatch`.
        """
        return preview_rerun(self.persistence, self._workflows, command)

    def admit(self, namespace: str, replies: Iterable[object], /) -> tuple[RunsAdmitted | JobsAdmitted, ...]:
        """Let in what may be let in after these replies; return the replies to that.

        So they need not wait for maintenance, which does the same if this is never called, or fails.
        """
        admitted: list[RunsAdmitted | JobsAdmitted] = []
        commands = admissions(namespace, replies)
        while commands:
            answers = self.dispatch_many(commands)
            admitted += (answer for answer in answers if isinstance(answer, RunsAdmitted | JobsAdmitted))
            commands = admissions(namespace, answers)
        return tuple(admitted)

    def _dispatch_batch(
        self, batch: Sequence[Command[Any]], excluded: frozenset[str] = frozenset()
    ) -> list[Answer]:
        """Carry out commands in one transaction. What searches find of excluded runs is passed over."""
        state = State(self._workflows, excluded)

        def work(tx: Transaction) -> _Done:
            nonlocal state
            state = State(self._workflows, excluded)
            return self._carry_out(tx, batch, state)

        try:
            answers, hints, plans, changes = self.persistence.transact(work)
        except RefusedError as error:
            if (others := self._exclude_unreadable(batch, state, error)) is not None:
                return others
            return self._halved(batch, error, excluded)
        except ConflictError as error:
            # Many who use the same keys in large batches find each time that others were there first. Half as many
            # commands meet half as many of them, and one alone finds what it has met.
            if len(batch) == 1:
                if (others := self._exclude_unreadable(batch, state, error)) is not None:
                    return others
                raise
            return self._in_halves(batch, excluded)
        except Exception as error:
            if isinstance(error, HoldfastError) and not isinstance(error, UnreadableRowError):
                raise
            if (others := self._exclude_unreadable(batch, state, error)) is not None:
                return others
            if len(batch) > 1:
                return self._in_halves(batch, excluded)
            if isinstance(error, UnreadableRowError):
                return [error]
            raise
        if plans:
            # Only those of pipelines: a run may have a plan of its own, and there is no end to these.
            self._stored_plans |= plans & {plan.fingerprint for plan in self._workflows.values()}
        if any(isinstance(command, SinkRegister | SinkRemove) for command in batch):
            self._sinks_until = -math.inf
        if hints and self._transport is not None:
            self._transport.announce(hints)
        if changes and self._after is not None:
            self._after(changes)
        return answers

    def _exclude_unreadable(
        self, batch: Sequence[Command[Any]], state: State, error: Exception
    ) -> list[Answer] | None:
        """Block the runs that keep a batch from being carried out, and carry it out without them.

        None if there is none, or if these were blocked before, and are asked for by their names: then the commands are
        to be carried out one by one, and one that is alone is refused.
        """
        found: Sequence[Unreadable]
        if isinstance(error, UnreadableRowError):
            found = (Unreadable.of(error),)
        else:
            found = unreadable_of(self.persistence, runs_of(state)) or failed_decision_of(state, batch, error)
        wrong = frozenset(one.run for one in found if one.run) - state.excluded
        if not wrong:
            refused = found and state.excluded and len(batch) == 1
            return [found[0].error] if refused else None
        self._block([one for one in found if one.run in wrong])
        return self._dispatch_batch(batch, state.excluded | wrong)

    def block_unreadable(self, run: str, error: Exception | None) -> None:
        """Block a run of which a row, or a value, can't be read, as this error says if no row does. The others go on.

        Jobs of it that workers hold are theirs to give back.
        """
        found = unreadable_of(self.persistence, (run,))
        if not found and error is not None:
            found = (failed_decision(run, error),)
        if found:
            self._block(found)

    def _block(self, found: Sequence[Unreadable]) -> None:
        now = micros(self.clock.now())
        blocked = self.persistence.transact(lambda tx: block(tx, found, now))
        if self._blocked is not None:
            for one in blocked:
                self._blocked(one)

    def _in_halves(self, batch: Sequence[Command[Any]], excluded: frozenset[str]) -> list[Answer]:
        middle = len(batch) // 2
        return [
            *self._dispatch_batch(batch[:middle], excluded),
            *self._dispatch_batch(batch[middle:], excluded),
        ]

    def _halved(
        self, batch: Sequence[Command[Any]], error: RefusedError, excluded: frozenset[str]
    ) -> list[Answer]:
        if len(batch) > 1:
            return self._in_halves(batch, excluded)
        command = batch[0]
        if (other := without_value(command, error)) is not None:
            return self._dispatch_batch((other,), excluded)
        return [StorageRefusedError(f"the store refused the command {command.type}: {error}")]

    def _carry_out(self, tx: Transaction, batch: Sequence[Command[Any]], state: State) -> _Done:
        now = micros(self.clock.now())
        answers: list[Answer] = [None] * len(batch)
        needs: list[Reads] = []
        for index, command in enumerate(batch):
            try:
                check_texts(command)
                needs.append(RULES[type(command)].reads(command))
            except CommandError as error:
                answers[index] = error
        keys = {(command.namespace, command.idempotency_key) for command in batch if command.idempotency_key}
        load(tx, needs, now, state, self._known_plans)
        state.stored_plans = self._stored_plans
        if keys:
            replies = tx.replies(sorted(keys))
            state.tables.replies.update(((reply.namespace, reply.key), reply) for reply in replies)
        changes: list[Change] = []
        hints: dict[Hint, None] = {}
        for index, command in enumerate(batch):
            if answers[index] is None:
                answers[index] = self._answer(state, command, now, changes, hints)
        changes += self._stream_advances(tx, state, changes)
        if changes:
            tx.apply(changes)
        return answers, tuple(hints), frozenset(state.tables.plans), changes

    def _stream_advances(self, tx: Transaction, state: State, changes: Sequence[Change]) -> Sequence[Change]:
        """Return what sinks are to know of the rows that are about to be stored.

        Which sinks there are is asked every few seconds. What is stored before a new one is known is found by
        `outbox.sweep`.
        """
        rows = [change.row for change in changes if isinstance(change, AppendHistory)]
        if not rows:
            return ()
        if self.clock.monotonic() >= self._sinks_until:
            self._sinks = tuple(tx.all_sinks())
            self._sinks_until = self.clock.monotonic() + SINKS_KNOWN_FOR
        return stream_advances(rows, state.tables.runs, self._sinks) if self._sinks else ()

    def _answer(
        self, state: State, command: Command[Any], now: Micros, changes: list[Change], hints: dict[Hint, None]
    ) -> Answer:
        state.current_run = None
        try:
            check_key(command)
            known = replayed(state, command)
            if known is not None:
                return known
            decision = self._decide(state, command, now)
        except UnreadableRowError as error:
            if error.run and error.run not in state.excluded:
                raise
            return error
        except CommandError as error:
            return error
        made = decision.changes
        if command.idempotency_key is not None:
            made = (*made, StoreReply(reply_of(command, decision.reply, now)))
        state.apply(made)
        changes.extend(made)
        hints.update(dict.fromkeys(decision.hints))
        return decision.reply

    def _decide(self, state: State, command: Command[Any], now: Micros) -> Decision[object]:
        decide = RULES[type(command)].decide
        if self._recorder is None:
            return decide(state, command, now, self._ids)
        decision, recording = recorded(decide, state, command, now, self._ids)
        self._recorder(recording)
        return decision

    def _execute(self, command: JobExecute) -> JobExecuted | CommandError:
        """Claim, body, settle: a crash between two of them leaves a leased job, which the reaper frees."""
        executor = self._executor
        if executor is None:
            return InvalidCommandError("this kernel has no executor; job.execute needs one")
        if command.idempotency_key is not None:
            return InvalidCommandError("job.execute takes no idempotency key: its job and epoch are one")
        claim = JobClaimOne(
            namespace=command.namespace,
            session=command.session,
            job=command.job,
            epoch=command.epoch,
            definitions=executor.definitions(),
            pass_over=command.pass_over,
        )
        renew = _renewal(command)
        *renewed, claimed = self.dispatch_many((*renew, claim))
        if isinstance(claimed, UnreadableRowError):
            return ignored(BLOCKED_CLAIM)
        for answer in (*renewed, claimed):
            if isinstance(answer, CommandError):
                return answer
        assert isinstance(claimed, JobClaimed)
        with suppress(HoldfastError):
            self.admit(command.namespace, (claimed,))
        if claimed.attempt is None:
            return ignored(claimed)
        return self._run_body(command, claimed.attempt, executor)

    def _run_body(
        self, command: JobExecute, attempt: Attempt, executor: Executor
    ) -> JobExecuted | CommandError:
        settle = executor.execute(attempt)
        if settle is None:
            back = JobRelease(
                namespace=command.namespace, job=attempt.job, epoch=attempt.epoch, delay=_RETRY_LATER
            )
            self.dispatch_many((back,))
            return JobExecuted(
                status="ignored", reason="unknown_code", acknowledge=False, retry_after=_RETRY_LATER
            )
        settled = self.dispatch_many((settle,))[0]
        if isinstance(settled, UnreadableRowError):
            return JobExecuted(status="fenced")  # its run is blocked
        if isinstance(settled, CommandError):
            return settled
        if settled.status != "fenced":
            with suppress(HoldfastError):  # it is settled, whatever becomes of those that wait
                self.admit(command.namespace, (settled,))
        return executed(settle, settled)


_RETRY_LATER: Final = 5_000_000


def _renewal(command: JobExecute) -> tuple[SessionRenew, ...]:
    """The session is renewed in the claim's transaction, so that a message costs two of them and not three."""
    if command.lease is None:
        return ()
    return (SessionRenew(namespace=command.namespace, session=command.session, lease=command.lease),)


def _by_version(plans: Iterable[Plan]) -> Mapping[tuple[str, str | None], Plan]:
    workflows: dict[tuple[str, str | None], Plan] = {}
    for plan in plans:
        workflows[plan.workflow, plan.version] = plan
        workflows[plan.workflow, None] = plan
    return workflows
