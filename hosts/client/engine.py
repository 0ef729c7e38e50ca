"""The engine, the application's client of a store, for async code."""

from collections.abc import Iterable, Mapping
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import anyio

from holdfast.hosts.client.engine_methods import EngineMethods
from holdfast.hosts.client.keys import Keys
from holdfast.hosts.client.limits import Limits
from holdfast.hosts.client.namespaces import Namespaces
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.client.sync_transactional_engine import SyncTransactionalEngine
from holdfast.hosts.client.transactional_engine import TransactionalEngine
from holdfast.hosts.client.transactions import TransactionCalls
from holdfast.hosts.client.triggers import Triggers
from holdfast.hosts.execution.bodies import Substitute, unchanged
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.wiring.ai_settings import AiSettings
from holdfast.hosts.wiring.interceptors import Interceptor
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import PATIENCE, Stores, open_stores
from holdfast.kernel.authoring.ai import Price, Redact
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.authoring.triggers import Trigger
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.actors import Actor
from holdfast.ports.blobs import BlobStore
from holdfast.ports.durations import Duration
from holdfast.ports.scheduler import Scheduler
from holdfast.ports.transport import JobTransport
from holdfast.ports.validation import FUNCTION, an, by_name, check


class Engine(EngineMethods):
    """The application's client of a store: starts runs, lists them and acts on them.

    It connects at its first use, so it may be a module global. Use it as an async context manager to close its
    connections. `engine.sync` is the same for synchronous code.
    """

    def __init__(
        self,
        core: Core,
        *,
        schedules: Iterable[Schedule[object]] | None = None,
        triggers: Iterable[Trigger[object]] | None = None,
        substitute: Substitute = unchanged,
    ) -> None:
        super().__init__(SyncEngine(core, schedules=schedules, triggers=triggers, substitute=substitute))
        self.core = core
        self.client = self._sync.client
        self.substitute = substitute
        """Replaces bodies in the workers of this engine, for tests."""

    @classmethod
    def open(
        cls,
        url: str,
        /,
        *,
        workflows: Iterable[WorkflowDefinition[object]] = (),
        steps: Iterable[Step[..., Any]] = (),
        schedules: Iterable[Schedule[object]] | None = None,
        triggers: Iterable[Trigger[object]] | None = None,
        blobs: str | BlobStore | None = None,
        transport: str | JobTransport | None = None,
        scheduler: str | Scheduler | None = None,
        namespace: str = "default",
        migrate: bool = True,
        retry: Retry | None = None,
        prices: Mapping[str, Price] | None = None,
        redact: Redact | None = None,
        interceptors: Iterable[Interceptor] = (),
        patience: Duration = PATIENCE,
    ) -> Self:
        """Return an engine for the store at a URL. Nothing is connected to yet.

        Args:
            url: `memory://`, `sqlite:///path/to/file.db` or `postgresql://user@host/database`.
            workflows: The workflows that this engine can start and that its workers run.
            steps: Steps with a queue that a worker of this engine runs, whatever workflows call them. Steps that
                durable functions in `workflows` mention by name are included.
            schedules: The schedules that this code declares. At the first use with `migrate=True` they are created and
                updated, and those that it does not declare any more are removed; an empty list removes all. With
                `migrate=False`, run `holdfast schedule apply`. If omitted, declared schedules stay as they are.
            triggers: The triggers that this code declares, as `schedules`. With `migrate=False`, run
                `holdfast trigger apply`.
            blobs: Where to keep large values: `file:///an/absolute/folder`, `s3://bucket/prefix` or a `BlobStore`. By
                default in `<file>.blobs` beside a SQLite file, and inline in other stores.
            transport: What carries hints, instead of the store's own transport: the URL of an SQS queue,
                `nats://host:4222/stream` or a `JobTransport`.
            scheduler: What wakes sleeping jobs where no worker runs permanently:
                `eventbridge://group?role=arn:aws:iam::...` or a `Scheduler`. Its wake-ups go to the consumers of the
                transport.
            namespace: Runs, keys and jobs of one namespace are invisible in another. 1 to 200 of
                `A-Z a-z 0-9 _ . @ = + -`, the first a letter, a digit or `_`.
            migrate: Create or upgrade the tables at the first use; if False, run `holdfast db upgrade`.
            retry: Policy of stages and steps that have none, of their own or from their pipeline; `Retry()` if
                omitted. A run keeps the policy with which it was started.
            prices: Prices by model name, for model calls that are logged without a cost.
            redact: Removes data from the prompts, responses, errors and metadata of model calls before they are stored.
            interceptors: Wrap dispatches of commands, bodies and durable functions; the first is the outermost.
            patience: How long a call retries while the database is unavailable before it raises UnavailableError, a
                timedelta or a number of seconds; 30 s if omitted.

        Raises:
            InvalidArgumentError: An argument has the wrong type.
            InvalidUrlError: A URL has none of these forms.
            InvalidNamespaceError: The namespace is too long or has other characters.
            DefinitionError: Two workflows have the same name and version, or two steps with a queue, two schedules or
                two triggers the same name.
        """
        engine = cls.on(
            open_stores(url, blobs, transport, patience, scheduler),
            workflows=workflows,
            steps=steps,
            schedules=schedules,
            triggers=triggers,
            namespace=namespace,
            migrate=migrate,
            retry=retry,
            prices=prices,
            redact=redact,
            interceptors=interceptors,
        )
        # The application may use a transport of its own for other engines, too.
        engine.core.close_when_dropped(closes_transport=transport is None or isinstance(transport, str))
        return engine

    @classmethod
    def on(
        cls,
        stores: Stores,
        /,
        *,
        workflows: Iterable[WorkflowDefinition[object]] = (),
        steps: Iterable[Step[..., Any]] = (),
        schedules: Iterable[Schedule[object]] | None = None,
        triggers: Iterable[Trigger[object]] | None = None,
        namespace: str = "default",
        migrate: bool = True,
        retry: Retry | None = None,
        prices: Mapping[str, Price] | None = None,
        redact: Redact | None = None,
        interceptors: Iterable[Interceptor] = (),
    ) -> Self:
        """Return an engine on your own adapters: the `Stores` that `open_stores(url)` returns, or changed ones.

        The other arguments are those of `open`.
        """
        check("Engine", an("stores, as open_stores(url) gives them", Stores), stores=stores)
        check("Engine", FUNCTION.or_none, redact=redact)
        words = "a dict of Price(...) by the names of models"
        known = by_name("Engine", "prices", prices or {}, words, an("a Price(...)", Price))
        ai = AiSettings(prices=known, redact=redact)
        return cls(
            Core(
                stores,
                workflows,
                steps=steps,
                namespace=namespace,
                migrate=migrate,
                retry=retry,
                ai=ai,
                interceptors=interceptors,
            ),
            schedules=schedules,
            triggers=triggers,
        )

    async def __aenter__(self) -> Self:
        """Connect to the store."""
        await in_thread(self.core.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Close all connections, unless the engine was opened more than once or one of its workers still runs."""
        with anyio.CancelScope(shield=True):
            await in_thread(self.core.close)

    if not TYPE_CHECKING:  # to type checkers, `with engine:` is an error of its own

        def __enter__(self) -> NoReturn:
            raise TypeError(
                "an Engine is for async code: write `async with engine:`, or `with engine.sync:` in synchronous code"
            )

        __exit__ = __enter__

    def acting_as(self, actor: Actor, /) -> Self:
        """Return this engine for an actor. See `SyncEngine.acting_as`."""
        engine = copy(self)
        engine._sync = self._sync.acting_as(actor)
        engine.client = engine._sync.client
        return engine

    def in_namespace(self, namespace: str, /) -> Self:
        """Return this engine for another namespace of the store. See `SyncEngine.in_namespace`."""
        engine = copy(self)
        engine._sync = self._sync.in_namespace(namespace)
        engine.core = engine._sync.core
        engine.client = engine._sync.client
        return engine

    def within(self, connection: object, /) -> TransactionalEngine:
        """Return this engine within a transaction that the application has open in the same database.

        What is done through it takes place if, and only if, the transaction commits:
        `await engine.within(session).start(ship(order.id))`.

        Args:
            connection: SQLAlchemy's `AsyncSession` or `AsyncConnection`, with any driver, or psycopg's
                `AsyncConnection`.

        Raises:
            InvalidArgumentError: `connection` is none of these, or no event loop of asyncio is running.
            InvalidTransactionError: The store is in memory.
        """
        calls = TransactionCalls()
        transaction = calls.transaction(self.core, connection)
        return TransactionalEngine(SyncTransactionalEngine(self.client, transaction), calls)

    @property
    def sync(self) -> SyncEngine:
        """The same engine for synchronous code."""
        return self._sync

    @property
    def limits(self) -> Limits:
        """The limits and queues of the namespace, to be read and changed while the system runs."""
        return Limits(self._sync.limits)

    @property
    def triggers(self) -> Triggers:
        """The triggers of the namespace, by which messages of topics start runs."""
        return Triggers(self._sync.triggers)

    @property
    def keys(self) -> Keys:
        """The API keys of the server, which belong to the store."""
        return Keys(self._sync.keys)

    @property
    def namespaces(self) -> Namespaces:
        """The namespaces of the store, to be created, described and deleted."""
        return Namespaces(self._sync.namespaces)

    @property
    def kernel(self) -> Kernel:
        """The kernel, for commands that the engine has no method for. Its methods block: call them in a thread."""
        return self.core.kernel
