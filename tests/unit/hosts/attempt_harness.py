"""An in-memory engine with helpers that claim its jobs and prepare their bodies one at a time."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar, cast

import anyio
from anyio import CapacityLimiter
from typing_extensions import override

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.execution.attempt_runner import AttemptRunner
from holdfast.hosts.execution.bodies import Bodies, Body
from holdfast.hosts.functions.function_runners import FUNCTION_RUNNERS
from holdfast.hosts.wiring.stores import Stores
from holdfast.kernel.authoring.ai import Price, Redact
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.commands import (
    Attempt,
    Completed,
    Failed,
    Failure,
    JobClaim,
    JobSettled,
    MapExpanded,
    Outcome,
    SessionOpen,
)
from holdfast.ports.blobs import BlobStore
from holdfast.ports.clock import Clock, micros
from holdfast.ports.errors import CommandError
from holdfast.ports.json import parse
from holdfast.ports.persistence import Persistence, Query
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.queries.store import StoreTime
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.searches import QueueClaim
from holdfast.ports.transport import JobTransport
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from holdfast.testing.transport import memory_transport

R = TypeVar("R")

HOUR: Final = 3_600_000_000


class CountingPersistence(MemoryPersistence):
    """An in-memory store that records its queries."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[object] = []

    @override
    def read(self, query: Query[R], /) -> R:
        self.asked.append(query)
        return super().read(query)


class StoreWithClock(CountingPersistence):
    """A store that has a clock of its own."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    @override
    def read(self, query: Query[R], /) -> R:
        if isinstance(query, StoreTime):
            self.asked.append(query)
            return cast("R", micros(self._clock.now()))
        return super().read(query)


class Bench:
    """An engine and a session, with helpers."""

    def __init__(
        self,
        *workflows: WorkflowDefinition[object],
        blobs: BlobStore | None = None,
        clock: Clock | None = None,
        persistence: Persistence | None = None,
        transport: JobTransport | None = None,
        namespace: str = "default",
        prices: Mapping[str, Price] | None = None,
        redact: Redact | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.store = CountingPersistence()
        self.engine = Engine.on(
            Stores(
                persistence=persistence or self.store,
                transport=transport or memory_transport(self.clock),
                blobs=blobs,
                clock=clock or self.clock,
                ids=SeededIds(),
            ),
            workflows=workflows,
            namespace=namespace,
            prices=prices,
            redact=redact,
        )
        self.core = self.engine.core
        self.client = self.engine.client
        self.bodies = Bodies(self.core)
        self.runner = AttemptRunner(self.core, FUNCTION_RUNNERS)
        self.session = self.engine.kernel.dispatch(
            SessionOpen(namespace=namespace, host="bench", lease=HOUR)
        ).session
        self.threads: CapacityLimiter | None = None

    def start(self, call: Call[object], id: str = "x") -> str:
        """Start a run; return its id."""
        return self.engine.sync.start(call, id=id).id

    def claim(self, limit: int = 1_000) -> tuple[Attempt, ...]:
        registry = self.core.registry
        lanes = tuple(
            QueueClaim(queue=queue, definitions=registry.definitions, limit=limit)
            for queue in registry.queues("default")
        )
        command = JobClaim(
            namespace=self.core.namespace, session=self.session, queue_claims=lanes, limit=limit
        )
        return self.engine.kernel.dispatch(command).attempts

    def prepare(self, attempts: Sequence[Attempt] | None = None) -> list[Body]:
        """The bodies of these attempts, or of all that can be claimed."""
        bodies, unknown = self.bodies.prepare(self.claim() if attempts is None else attempts)
        assert not unknown
        return bodies

    def body(self) -> Body:
        """Prepare the only job that can be claimed."""
        (body,) = self.prepare()
        return body

    async def run(self, body: Body) -> Outcome:
        with anyio.fail_after(60):
            return await self.runner.outcome(body, CapacityLimiter(10))

    async def outcome_of(self, call: Call[object]) -> Outcome:
        """Start a run, and return the outcome of its only job."""
        self.start(call)
        return await self.run(self.body())

    async def failure_of(self, call: Call[object]) -> Failure:
        outcome = await self.outcome_of(call)
        assert isinstance(outcome, Failed), outcome
        return outcome.failure

    def settle(self, body: Body, outcome: Outcome) -> JobSettled:
        answer = self.engine.kernel.dispatch_many((body.settle(outcome),))[0]
        assert not isinstance(answer, CommandError), answer
        return answer

    async def drain(self) -> None:
        """Run jobs until none is left."""
        while bodies := self.prepare():
            for body in bodies:
                self.settle(body, await self.run(body))

    def row(self, id: str = "x") -> Run:
        run = self.core.stores.persistence.read(FindRun(RunName(self.core.namespace, id)))
        assert run is not None
        return run


def value(outcome: Outcome) -> object:
    """Return the result of a body."""
    assert isinstance(outcome, Completed), outcome
    return parse(outcome.output.inline or "")


def items(outcome: Outcome) -> list[object]:
    """Return the items of a map."""
    assert isinstance(outcome, MapExpanded), outcome
    return [parse(item.inline or "") for item in outcome.items]
