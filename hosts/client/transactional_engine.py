# Generated from hosts/client/sync_transactional_engine.py by `python -m tools.async_facade`. Do not edit.
"""The engine within a transaction of the application, for async code."""

from collections.abc import Iterable
from typing import Unpack

from typing_extensions import TypeVar

from holdfast.hosts.client.run_handle import RunHandle
from holdfast.hosts.client.schedule_handle import ScheduleHandle
from holdfast.hosts.client.sync_transactional_engine import SyncTransactionalEngine
from holdfast.hosts.client.transactions import TransactionCalls
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.topics import TopicMessage
from holdfast.kernel.commands import RunSignalled, RunStopped, TopicPublished

R = TypeVar("R")


class TransactionalEngine:
    """The engine within a transaction of the application, for async code. `engine.within(...)` returns it.

    What its methods do takes place if, and only if, the transaction commits. Each takes a savepoint, so that a refused
    command leaves the transaction usable. Handles that it returns work outside the transaction: their methods find the
    run, or the schedule, once it is committed.

    All methods raise these errors, beside those that they name:

    - InvalidTransactionError: No transaction is open, or it has failed, or it is read-only.
    - WrongStoreError: The connection leads to another database than the engine.
    - ConflictError: Another transaction, which this one can't see, has stored the same key. Try the transaction again.
    - UnavailableError: A deadlock, a timeout or a lost connection. Roll back, and try the transaction again.
    """

    def __init__(self, sync: SyncTransactionalEngine, calls: TransactionCalls) -> None:
        self._sync = sync
        self._calls = calls

    async def start(self, call: Call[R], /, **options: Unpack[StartOptions]) -> RunHandle[R]:
        """Start a run and return its handle. The run exists once the transaction is committed.

        A start without `id`, `idempotency_key`, `concurrency` and other limits locks nothing that others wait for. With
        one of these, other starts of the same id or key wait until the transaction ends: do it last.

        Args:
            call: The call of a workflow: `my_workflow(argument)`.
            options: As for `Engine.start`. See `StartOptions`.

        Raises:
            InvalidArgumentError: `call` is not the call of a workflow, or an option has an invalid value.
            InvalidValueError: The input does not have the declared type.
            UnstorableValueError: The input can't be stored as JSON.
            InvalidOverrideError: A stage in `overrides` can't be changed like this.
            SignalRefusedError: A message in `signals` is for a pipeline, or for a channel that the function does not
                have.
            RunExistsError: A run with this id exists.
            ConcurrencyFullError: Too many runs of its concurrency key are open, and its `full` is "refuse".
            RateExceededError: The rate of starts is used up, and its `over` is "refuse".
            QuotaExceededError: The namespace has as many runs as it may have.
            IdempotencyConflictError: The key was used for another command.
            UnknownWorkflowError: The engine does not have this workflow.
        """
        return RunHandle(await self._calls.make(lambda: self._sync.start(call, **options)))

    async def start_all(
        self, calls: Iterable[Call[R]], /, **options: Unpack[StartAllOptions]
    ) -> list[RunHandle[R]]:
        """Start at most 500 runs, all or none, and return their handles in the same order.

        Args:
            calls: The calls, of one workflow or several.
            options: As for `Engine.start_all`.

        Raises:
            InvalidArgumentError: There are more than 500 calls, or one is not the call of a workflow, or an option has
                an invalid value.
            InvalidValueError, UnstorableValueError, IdempotencyConflictError, UnknownWorkflowError: As `start`.
        """
        calls = list(calls)
        return [
            RunHandle(one) for one in await self._calls.make(lambda: self._sync.start_all(calls, **options))
        ]

    async def signal(
        self, run_id: str, signal: Signal, /, *, idempotency_key: str | None = None
    ) -> RunSignalled:
        """Send a message to a run: `within.signal("order-1", approval(decision))`.

        It locks the run until the transaction ends, and so holds up its workers: do it last.

        Args:
            run_id: The id of the run. It may have been started in the same transaction.
            signal: A message with its channel.
            idempotency_key: Sending again with the same key sends nothing and returns the first reply.

        Raises:
            RunNotFoundError, SignalRefusedError, ChannelClosedError, InvalidValueError, IdempotencyConflictError: As
                `RunHandle.signal`.
            InvalidArgumentError: `run_id` is not a string, or `signal` is not a signal.
        """
        return await self._calls.make(
            lambda: self._sync.signal(run_id, signal, idempotency_key=idempotency_key)
        )

    async def cancel(self, run_id: str, /, *, reason: str = "") -> RunStopped:
        """Cancel a run. Does nothing if it has ended. It locks the run until the transaction ends: do it last.

        Args:
            run_id: The id of the run.
            reason: A text for the history.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidArgumentError: `run_id` is not a string.
        """
        return await self._calls.make(lambda: self._sync.cancel(run_id, reason=reason))

    async def publish(self, message: TopicMessage, /, *, id: str | None = None) -> TopicPublished:
        """Publish a message to a topic: `within.publish(orders(order))`. It exists once the transaction is committed.

        It locks nothing, and holds up no other publisher.

        Args:
            message: A message with its topic, as `topic(message)` returns it.
            id: The id of the message in its topic. Publishing again with an id that is stored does nothing.

        Raises:
            InvalidArgumentError: As `Engine.publish`.
        """
        return await self._calls.make(lambda: self._sync.publish(message, id=id))

    async def create_schedule(self, schedule: Schedule[object], /) -> ScheduleHandle:
        """Create a schedule, and return its handle. It exists once the transaction is committed.

        Args:
            schedule: The schedule: `Schedule("digest/7", digest(7), when=Every(timedelta(hours=6)))`.

        Raises:
            InvalidArgumentError, InvalidValueError, UnstorableValueError, ScheduleExistsError, UnknownWorkflowError,
                InvalidCommandError: As `Engine.create_schedule`.
        """
        return ScheduleHandle(await self._calls.make(lambda: self._sync.create_schedule(schedule)))

    async def remove_schedule(self, name: str, /) -> bool:
        """Remove a schedule. Its runs stay. Return whether it existed.

        Args:
            name: The name of the schedule.

        Raises:
            InvalidArgumentError: `name` is not a string.
        """
        return await self._calls.make(lambda: self._sync.remove_schedule(name))
