"""The dispatcher: turns commands into decisions, and each batch of decisions into one transaction.

Theory of operation
===================

A host calls `Kernel.dispatch_many(commands)`. `batches_of` splits the commands into batches, and each batch is one
transaction. Inside it (`_carry_out`):

1. Every command is checked, and its rule says which rows it needs (`Rule.reads`).
2. `load` reads and locks the rows of all commands together, in one order: runs, jobs, other rows, concurrency limits,
   rate limits; keys ascending. So batches rarely deadlock; if they do, `transact` runs the work again.
3. Stored replies are read for the commands with an idempotency key.
4. The commands are decided one after the other (`Rule.decide`). The changes of each are applied to the `State` in
   memory, where the next command sees them. Nothing has been written yet.
5. `tx.apply` writes all changes.

After the commit, hints are sent and `after` is called. A hint sent earlier would make a worker look for a job that is
not there yet. A lost hint costs only time, because workers also poll.

The batch is the unit because round trips and commits dominate the cost of a command (docs/decisions/0010), and a batch
needs no more of them than a single command. The price: the store accepts or refuses a batch as a whole, so this module
has to find the command or run to blame.

- A rule raises a `CommandError`: that command is refused and has changed nothing. The others are not affected.
- The store refuses a value (`RefusedError`): the batch is split in halves, down to the single command. That one is
  replaced by a command that records the refusal, if there is one (`without_value`).
- The store reports a conflict after its own retries (`ConflictError`): the batch is split, because smaller batches meet
  fewer conflicts.
- A row can't be read, or a rule fails on it: its run is blocked in a separate transaction that does not read the run,
  and the batch is repeated with this run excluded from searches (docs/decisions/0062). If no run is to blame, the batch
  is split.

Guaranteed here:

- A batch is stored completely or not at all. `transact` may run the work several times; each time starts with a new
  `State`.
- All commands of a batch are decided at one instant, read inside the transaction.
- A reply is returned after its commit. The exception is `dispatch_joined`, whose caller commits.
- A reply with an idempotency key is stored with its effect, and a repeated command gets the stored reply.
- No user code runs inside a transaction. `job.execute` is a claim, a body and a settle: a crash in between leaves a
  leased job, which maintenance gives to another worker once the lease has expired.

Not pretty, and why it stays:

- The commands of a batch share one `State`, so a rule can see rows that were read for another command. With a state for
  each command, their changes would have to be merged.
- Caches of plans and sinks outlive the transaction. Plans never change; sinks do (`kernel/dispatch/stream_heads.py`).
- Decisions are recorded inside the transaction, so a transaction that is repeated is recorded several times.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from holdfast.kernel.commands import (
    Attempt,
    Command,
    FollowUp,
    JobClaimed,
    JobClaimOne,
    JobExecute,
    JobExecuted,
    JobsAdmitted,
    RunCreate,
    RunsAdmitted,
    SessionRenew,
    admissions,
    follow_up_of,
)
from holdfast.kernel.dispatch.command_batches import batches_of
from holdfast.kernel.dispatch.command_bounds import check_texts
from holdfast.kernel.dispatch.features import StreamHeads, audit_entries, feature_reads, reads_of_gathered
from holdfast.kernel.dispatch.idempotency import check_key, reply_of, stored_reply
from holdfast.kernel.dispatch.job_execution import BLOCKED_CLAIM, ignored
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
from holdfast.kernel.rules.registry import RULES
from holdfast.kernel.rules.run_creation import store_plan
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Insert
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
from holdfast.ports.records.values import Micros
from holdfast.ports.tables import REPLIES
from holdfast.ports.transport import Hint, JobTransport
from holdfast.ports.unreadable import Unreadable
from holdfast.ports.zones import ZoneTables

R = TypeVar("R")

Answer: TypeAlias = object | CommandError
DispatchWrapper: TypeAlias = Callable[
    [Sequence[Command[Any]], Callable[[Sequence[Command[Any]]], list[Answer]]], list[Answer]
]
"""A wrapper of dispatches: gets commands and a function that carries them out, and returns the replies."""


_Done: TypeAlias = tuple[list[Answer], tuple[Hint, ...], frozenset[str], Sequence[Change]]
"""The replies, the hints to send, the fingerprints of the plans that are now stored, and the changes."""


Decider: TypeAlias = Callable[
    [Callable[[State, Any, Micros, Ids], Decision[Any]], State, Command[Any], Micros, Ids], Decision[Any]
]
"""Makes a decision: calls a rule with its arguments."""


class Executor(Protocol):
    """Runs bodies of stages and steps, provided by a host. Never called inside a transaction."""

    def definitions(self) -> tuple[str, ...]:
        """Return the workflows whose code this process has, as `<workflow>@<version>`."""
        ...

    def execute(self, attempt: Attempt, /) -> JobExecuted:
        """Run the body of an attempt and settle it; release it if this process lacks the code. HoldfastError."""
        ...


class Kernel:
    """The pure engine behind a store. Synchronous; safe to use from several threads.

    Args:
        persistence: The store.
        clock: The source of the current time.
        ids: The source of new ids.
        transport: Receives hints about queued jobs and ended runs. Without it, workers only poll.
        plans: The plans of the workflows that can be started. The last one of a name is the default version.
        executor: Runs the bodies for `job.execute`.
        zones: The time zones. Without them, schedules in other zones than UTC can't fire.
        decide: Makes each decision; for tests and debugging, which record them.
        around: Wraps every dispatch: the interceptors of a host.
        before_hints: Called after each commit with its changes, in order, before its hints are sent. Must not raise.
        after: The same, after its hints were sent.
        blocked: Called with each run that was blocked because a row of it can't be read. Must not raise.
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
        zones: ZoneTables | None = None,
        decide: Decider | None = None,
        around: DispatchWrapper | None = None,
        before_hints: Callable[[Sequence[Change]], None] | None = None,
        after: Callable[[Sequence[Change]], None] | None = None,
        blocked: Callable[[BlockedRun], None] | None = None,
    ) -> None:
        self.persistence = persistence
        self.clock = clock
        self._ids = ids
        self._transport = transport
        self.workflows = _by_version(plans)
        """The plans of the workflows that can be started, by name and version; with version None, the default one."""
        self._gathers = any(plan.gather is not None for plan in self.workflows.values())
        self.zones = zones
        self._executor = executor
        self._decide = decide
        self._around = around
        self._before_hints = before_hints
        self._after = after
        self._blocked = blocked
        self._known_plans = PlanCache()
        self._stored_plans: frozenset[str] = frozenset()
        self._streams = StreamHeads(clock)
        self._features = feature_reads(clock)

    def dispatch(self, command: Command[R], /) -> R:
        """Carry out one command and return its reply. CommandError if it is refused; then it has changed nothing."""
        answer = self.dispatch_many((command,))[0]
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def dispatch_many(self, commands: Sequence[Command[R]], /) -> list[R | CommandError]:
        """Carry out commands in order and return their replies in the same order.

        They share transactions of at most 500 commands and 4 MiB of values each. A refused command changes nothing, and
        its CommandError takes the place of its reply; the other commands are not affected.
        """
        around = self._around
        answers = self._dispatch_all(commands) if around is None else around(commands, self._dispatch_all)
        return cast("list[R | CommandError]", answers)

    def dispatch_together(self, commands: Sequence[Command[R]], /) -> list[R]:
        """Carry out at most 500 commands in one transaction, all or none, and return their replies in the same order.

        CommandError: the first refusal. Then none of the commands has changed anything.
        """
        replies, committed = self.dispatch_joined(commands, self.persistence.transact)
        committed()
        return replies

    def dispatch_joined(
        self, commands: Sequence[Command[R]], join: Callable[[Callable[[Transaction], Any]], Any], /
    ) -> tuple[list[R], Callable[[], None]]:
        """Carry out at most 500 commands, all or none, in a transaction that the caller commits or rolls back.

        `join` runs a function with that transaction; if it raises, what it wrote is not committed. Returns the replies,
        and a function to call after the commit, which sends the hints. Without it, workers find the work by polling.
        CommandError: the first refusal. Errors of `join` propagate.
        """
        done: list[tuple[Sequence[Command[Any]], _Done]] = []

        def dispatch(batch: Sequence[Command[Any]]) -> list[Answer]:
            def work(tx: Transaction) -> _Done:
                carried_out = self._carry_out(tx, batch, self._state())
                _raise_refusal(carried_out[0])
                return carried_out

            try:
                done.append((batch, join(work)))
            except RefusedError as error:
                raise StorageRefusedError(f"the store refused one of the commands: {error}") from None
            return done[-1][1][0]

        def committed() -> None:
            for batch, carried_out in done:
                self._committed(batch, carried_out)

        around = self._around
        answers = dispatch(commands) if around is None else around(commands, dispatch)
        _raise_refusal(answers)  # an interceptor may have made it
        return cast("list[R]", answers), committed

    def store_plan_of(self, command: RunCreate, /) -> None:
        """Store the plan of a workflow, so that no start has to, unless it is known to be stored."""
        plan = self.workflows.get((command.workflow, command.version))
        if plan is not None and plan.fingerprint not in self._stored_plans:
            self.persistence.transact(lambda tx: tx.apply(store_plan(self._state(), plan)))
            self._stored_plans |= {plan.fingerprint}

    def _dispatch_all(self, commands: Sequence[Command[Any]]) -> list[Answer]:
        answers: list[Answer] = []
        for batch in batches_of(commands):
            if isinstance(batch[0], JobExecute):
                answers.append(self._execute(batch[0]))
            else:
                answers.extend(self._dispatch_batch(batch))
        return answers

    def admit(self, namespace: str, follow_up: FollowUp, /) -> tuple[int, tuple[Micros, ...]]:
        """Admit the runs and jobs of a follow-up, and those that can start then.

        This only saves the wait for the next maintenance tick, which admits the same runs and jobs. Returns how many
        were admitted, and the times at which rate limits allow the next start.
        """
        admitted = 0
        wakes_at: list[Micros] = []
        while commands := admissions(namespace, follow_up):
            answers = self.dispatch_many(commands)
            for answer in answers:
                admitted += answer.admitted if isinstance(answer, RunsAdmitted | JobsAdmitted) else 0
                wakes_at += answer.wakes_at if isinstance(answer, RunsAdmitted | JobsAdmitted) else ()
            follow_up = follow_up_of(answers)
        return admitted, tuple(wakes_at)

    def _dispatch_batch(
        self, batch: Sequence[Command[Any]], excluded: frozenset[str] = frozenset()
    ) -> list[Answer]:
        """Carry out a batch in one transaction. Excluded runs are left out of what searches find."""
        state = self._state(excluded)

        def work(tx: Transaction) -> _Done:
            nonlocal state
            state = self._state(excluded)
            return self._carry_out(tx, batch, state)

        try:
            done = self.persistence.transact(work)
        except RefusedError as error:
            if (others := self._exclude_unreadable(batch, state, error)) is not None:
                return others
            return self._halved(batch, error, excluded)
        except ConflictError as error:
            # Large batches of several processes that use the same keys conflict again and again. Half a batch meets
            # half as many conflicts, and a single command reads the row that it conflicts with.
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
        return self._committed(batch, done)

    def _committed(self, batch: Sequence[Command[Any]], done: _Done) -> list[Answer]:
        """Carry out what follows a commit, and return the answers."""
        answers, hints, plans, changes = done
        if plans:
            # Only plans of known workflows: plans with overrides belong to single runs and would fill the memory.
            self._stored_plans |= plans & {plan.fingerprint for plan in self.workflows.values()}
        self._streams.note_commit(batch)
        if changes and self._before_hints is not None:
            self._before_hints(changes)
        if hints and self._transport is not None:
            self._transport.announce(hints)
        if changes and self._after is not None:
            self._after(changes)
        return answers

    def _state(self, excluded: frozenset[str] = frozenset()) -> State:
        return State(self.workflows, excluded, self.zones)

    def _exclude_unreadable(
        self, batch: Sequence[Command[Any]], state: State, error: Exception
    ) -> list[Answer] | None:
        """Block the runs with unreadable data that made a batch fail, and carry out the batch without them.

        None if there are no such runs, or all of them are excluded already and the batch has several commands: then the
        caller splits the batch. A single command is answered with the error.
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
        """Block a run that a host could not read. Without an unreadable row, `error` is the reason.

        The other runs continue. Jobs of the run that a worker has leased stay leased until the worker releases them.
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
        if self._gathers:
            needs += reads_of_gathered(self.workflows, batch)
        keys = {(command.namespace, command.idempotency_key) for command in batch if command.idempotency_key}
        state.commands = batch
        load(tx, needs, now, state, self._known_plans, self._features)
        state.stored_plans = self._stored_plans
        if keys:
            replies = tx.get(REPLIES, sorted(keys))
            state.tables.replies.update(((reply.namespace, reply.key), reply) for reply in replies)
        changes: list[Change] = []
        hints: dict[Hint, None] = {}
        for index, command in enumerate(batch):
            if answers[index] is None:
                answers[index] = self._answer(state, command, now, changes, hints)
        changes += self._streams.advances(tx, state, changes)
        if changes:
            tx.apply(changes)
        return answers, tuple(hints), frozenset(state.tables.plans), changes

    def _answer(
        self, state: State, command: Command[Any], now: Micros, changes: list[Change], hints: dict[Hint, None]
    ) -> Answer:
        state.current_run = None
        rule = RULES[type(command)].decide
        decide = self._decide
        try:
            if command.idempotency_key is not None:
                check_key(command)
                known = stored_reply(state, command)
                if known is not None:
                    return known
            decision: Decision[object]
            if decide is None:
                decision = rule(state, command, now, self._ids)
            else:
                decision = decide(rule, state, command, now, self._ids)
        except UnreadableRowError as error:
            if error.run and error.run not in state.excluded:
                raise
            return error
        except CommandError as error:
            return error
        made = decision.changes
        if entries := audit_entries(command, made, now, self._ids):
            made = (*made, *entries)
        if command.idempotency_key is not None:
            made = (*made, Insert(reply_of(command, decision.reply, now)))
        state.apply(made)
        changes.extend(made)
        for hint in decision.hints:
            hints[hint] = None
        return decision.reply

    def _execute(self, command: JobExecute) -> JobExecuted | CommandError:
        """Claim a job, run its body and settle it. After a crash in between, maintenance recovers the leased job."""
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
            self.admit(command.namespace, claimed.follow_up)
        if claimed.attempt is None:
            return ignored(claimed)
        try:
            return executor.execute(claimed.attempt)
        except CommandError as error:
            return error


def _raise_refusal(answers: Iterable[Answer]) -> None:
    for answer in answers:
        if isinstance(answer, CommandError):
            raise answer


def _renewal(command: JobExecute) -> tuple[SessionRenew, ...]:
    """Return the renewal of the session. It shares the transaction of the claim: two commits a message, not three."""
    if command.lease is None:
        return ()
    return (SessionRenew(namespace=command.namespace, session=command.session, lease=command.lease),)


def _by_version(plans: Iterable[Plan]) -> Mapping[tuple[str, str | None], Plan]:
    workflows: dict[tuple[str, str | None], Plan] = {}
    for plan in plans:
        workflows[plan.workflow, plan.version] = plan
        workflows[plan.workflow, None] = plan
    return workflows
