"""The commands of an application: starts, messages, updates. Shared by all run handles of one engine."""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Self, TypeVar, cast

from typing_extensions import override

from holdfast.hosts.client.follow_ups import FOLLOW_UPS
from holdfast.hosts.client.replay_cache import ReplayCache
from holdfast.hosts.client.start_batcher import GroupCommit
from holdfast.hosts.client.start_commands import StartCommandBuilder, check_call
from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.execution.threads import starts
from holdfast.hosts.execution.topic_delivery import SharedDeliveries
from holdfast.hosts.execution.trigger_firer import TriggerFirer
from holdfast.hosts.functions.completions import CompletionToken
from holdfast.hosts.wiring.interceptors import around_dispatch
from holdfast.hosts.wiring.payloads import BlobOwner
from holdfast.hosts.wiring.services import CLOCK_AGE_MAX, Core
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions, check_options
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.commands import ChannelMessage, Command, OperatorCommand, RunCreate
from holdfast.kernel.commands.codec import command_json
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.actors import ACTOR, Actor
from holdfast.ports.application_transactions import ApplicationTransaction
from holdfast.ports.errors import CommandError, RunNotFoundError
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.run import TERMINAL, RunName
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import LatestRuns
from holdfast.ports.structs import evolve
from holdfast.ports.validation import check

R = TypeVar("R")

_log = logging.getLogger("holdfast.engine")


class Client(Dispatcher):
    """Makes the commands of an application, and dispatches them. Starts of several threads share transactions."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self.replays = core.own(ReplayCache())
        """Replayed functions that answer queries and check updates."""
        self._starting = StartCommandBuilder(core.namespace, core.registry, self.stored, core.interceptors)
        self._batcher = core.own(GroupCommit(self._dispatch_many))
        self._deliveries = core.own(SharedDeliveries())
        self._has_around = around_dispatch(core.interceptors) is not None
        self._actor: Actor | None = None
        self._request_id: str | None = None
        self._transaction: ApplicationTransaction | None = None

    def acting_as(self, actor: Actor | None, /) -> Self:
        """Return this client for commands of an actor; unchanged for None. InvalidArgumentError."""
        check("acting_as", ACTOR.or_none, actor=actor)
        if actor is None:
            return self
        client = copy(self)
        client._actor = actor
        return client

    def in_request(self, request_id: str, /) -> Self:
        """Return this client for the commands of a request, whose audit entries have its id."""
        client = copy(self)
        client._request_id = request_id
        return client

    def in_namespace(self, namespace: str, /) -> Self:
        """Return this client for another namespace of the store. InvalidNamespaceError."""
        core = self.core.in_namespace(namespace)
        if core is self.core:
            return self
        client = copy(self)
        client.core = core
        client._starting = StartCommandBuilder(namespace, core.registry, client.stored, core.interceptors)
        return client

    def within(self, transaction: ApplicationTransaction, /) -> Self:
        """Return this client for commands in a transaction of the application."""
        client = copy(self)
        client._transaction = transaction
        return client

    @override
    def dispatch(self, command: Command[R]) -> R:
        if self._transaction is not None:
            return self._join(self._transaction, (command,))[0]
        return super().dispatch(self._signed(command))

    @override
    def dispatch_all(self, commands: Sequence[Command[R]]) -> list[R]:
        if self._transaction is not None:
            return self._join(self._transaction, commands) if commands else []
        return super().dispatch_all(commands)

    def _join(self, transaction: ApplicationTransaction, commands: Sequence[Command[R]]) -> list[R]:
        """Carry out commands in a transaction, all or none. What follows from them is done after its commit."""
        self.core.trust_clock(CLOCK_AGE_MAX)
        kernel = self.core.kernel
        if not transaction.excludes_writers:
            # Else the first starts of a workflow would all wait for the end of the transaction that stores its plan.
            for command in commands:
                if isinstance(command, RunCreate):
                    kernel.store_plan_of(command)
        signed = [self._signed(command) for command in commands]
        replies, committed = kernel.dispatch_joined(signed, transaction.join)

        def follow_up() -> None:
            committed()
            self.follow_up(*replies)

        transaction.after_commit(lambda: FOLLOW_UPS.add(follow_up))
        return replies

    @override
    def dispatch_many(self, commands: Sequence[Command[R]]) -> list[R | CommandError]:
        return super().dispatch_many([self._signed(command) for command in commands])

    @override
    def dispatch_together(self, commands: Sequence[Command[R]]) -> list[R]:
        return super().dispatch_together([self._signed(command) for command in commands])

    def _signed(self, command: Command[R]) -> Command[R]:
        """Return an operator's command with its actor and its request: this client's, if it has none."""
        if not isinstance(command, OperatorCommand):
            return command
        actor = self._actor if command.actor is None else command.actor
        request_id = self._request_id if command.request_id is None else command.request_id
        signed: OperatorCommand[R] = command
        if (actor, request_id) != (command.actor, command.request_id):
            signed = evolve(command, actor=actor, request_id=request_id)
        if signed.actor is not None and not signed.is_kept:
            _log.info("%s by %s: %s", signed.type, signed.actor.text, command_json(signed))
        return signed

    def _dispatch_many(self, commands: Sequence[Command[Any]]) -> Sequence[object]:
        return self.core.kernel.dispatch_many(commands)

    @override
    def _send(self, command: Command[R]) -> R:
        # An interceptor, of tracing say, must see each command in the context of its caller: no sharing then.
        if _is_start(command) and not self._has_around and starts.get() is None:
            return self._batcher.dispatch(command)
        return super()._send(command)

    @override
    def _deliver_topic(self, topic: str) -> None:
        self._deliveries.deliver(
            self.core.namespace, topic, lambda: super(Client, self)._deliver_topic(topic)
        )

    def fire_triggers(self) -> None:
        """Start the runs of messages that triggers have not handled. One of them was just stored or resumed."""
        firer = TriggerFirer(self.core)
        firer.forget()
        firer.try_to_fire()

    def create(self, call: Call[object], options: StartOptions) -> RunCreate:
        """Return the command that starts a call. Invalid options and values are refused here."""
        check_call(call)
        check_options(cast("dict[str, object]", options), StartOptions, "start")
        (command,) = self._starting.commands(((call, options.get("idempotency_key")),), options)
        return command

    def create_of_plan(self, plan: Plan, text: str, options: StartOptions) -> RunCreate:
        """Return the command that starts a plan, whose code this process lacks, with an input as JSON text.

        A client `with_plans` carries it out. Invalid options are refused here, and the input is not checked.
        """
        check_options(cast("dict[str, object]", options), StartOptions, "start")
        return self._starting.command_of(plan, text, options)

    def with_plans(self, plans: Iterable[Plan]) -> Self:
        """Return this client for starts of these plans, and of no others."""
        client = copy(self)
        client.core = self.core.with_plans(plans)
        client._has_around = True  # it shares no transaction with starts by other kernels
        return client

    def create_all(self, calls: Iterable[Call[object]], options: StartAllOptions) -> list[RunCreate]:
        """Return the commands that start calls, as `create` does, with options that were checked.

        With an idempotency key, the n-th command has that key and `/n`.
        """
        return self.create_numbered(enumerate(calls), options)

    def create_numbered(
        self, calls: Iterable[tuple[int, Call[object]]], options: StartAllOptions
    ) -> list[RunCreate]:
        """Return the commands of calls that have numbers, as `create_all` does of those that are counted from 0."""
        key = options.get("idempotency_key")
        keyed = ((call, key_of_start(key, number)) for number, call in calls)
        return self._starting.commands(keyed, cast("StartOptions", options))

    def sent(self, signal: Signal, idempotency_key: str | None, run_id: str) -> ChannelMessage:
        """Return a message to a run as it is stored. It is checked if the registry has the code of the run.

        Raises SignalRefusedError, InvalidValueError or RunNotFoundError.
        """
        return self._starting.channel_message(signal, idempotency_key, run_id, lambda: self._code_of(run_id))

    def check_update(self, call: UpdateCall[object], workflow: Workflow[..., object]) -> None:
        """Check the types of an update's arguments, if inspection finds it. Raises InvalidValueError."""
        self._starting.check_update(call, workflow)

    def completed(self, token: CompletionToken, outcome: str) -> ChannelMessage:
        """Return the message with the outcome of a completion, which its function checks."""
        key = token.key_of(outcome)
        payload = self.stored(outcome, "signal", key)
        return ChannelMessage(channel=token.channel, payload=payload, checked=False, given=None)

    def _code_of(self, run_id: str) -> WorkflowDefinition[object] | None:
        core = self.core
        core.connect()
        name = RunName(core.namespace, run_id)
        if self._transaction is None:
            run = core.stores.persistence.read(FindRun(name))
        else:
            run = next(iter(self._transaction.join(lambda tx: tx.find(LatestRuns((name,))))), None)
        if run is None:
            raise RunNotFoundError(run_id)
        return None if run.status in TERMINAL else core.registry.find_workflow(run.workflow, run.version)

    def stored(self, text: str, what: str, idempotency_key: str | None) -> Payload:
        """Return the payload of a text that is given to a run. `what` names its kind, in a word."""
        core = self.core
        if core.payloads.stay_inline(text):
            return Payload(inline=text)
        # The same start, or message, sent again with its key must be the same command, blob included.
        run = _digest(idempotency_key) if idempotency_key else core.stores.ids.new()
        return core.payloads.put(text, BlobOwner(namespace=core.namespace, run=run, stage=what, epoch=0))


def key_of_start(key: str | None, number: int) -> str | None:
    """Return the idempotency key of one of several starts, counted from 0; None if they have none."""
    return None if key is None else f"{key}/{number}"


def _is_start(command: object) -> bool:
    return isinstance(command, RunCreate)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
