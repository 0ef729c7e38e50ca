"""A line of runs whose keys share workers: starts them, serves them one by one, and says whose turn it was."""

from collections.abc import Sequence
from datetime import timedelta

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.adapters.system.ids import UlidIds
from holdfast.kernel.commands import Completed, JobClaim, JobSettle, RunCreate, SessionOpen
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.pipelines.plan import Group, Plan, StagePlan
from holdfast.ports.json import canonical
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.records.run import Run, attribute_texts
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from holdfast.ports.tables import RUNS
from holdfast.ports.working_set import Tables
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds

SECOND = 1_000_000


def plan(name: str = "w", *stages: str, fair: str | None = "tenant", version: str = "1") -> Plan:
    """A pipeline of stages, whose keys are the texts of an attribute."""
    groups = tuple(Group(nodes=(StagePlan(name=one),)) for one in stages or ("a",))
    return Plan(workflow=name, version=version, groups=groups, fair=fair)


class Line:
    """A store with runs in a line."""

    def __init__(
        self, *plans: Plan, persistence: Persistence | None = None, namespace: str = "default"
    ) -> None:
        self.plans = plans or (plan(),)
        self.namespace = namespace
        self.clock = ManualClock()
        self.store = MemoryPersistence() if persistence is None else persistence
        self.kernel = Kernel(
            persistence=self.store,
            clock=self.clock,
            ids=SeededIds(7) if persistence is None else UlidIds(),
            plans=self.plans,
        )
        self.session = self.kernel.dispatch(SessionOpen(namespace=namespace, host="h", lease=10**12)).session

    def start(
        self,
        key: str | None,
        number: int = 1,
        *,
        workflow: str = "w",
        weight: int | None = None,
        priority: int | None = None,
        start_at: int | None = None,
        concurrency_key: str | None = None,
    ) -> None:
        """Start runs of a key, in batches of 500."""
        one = RunCreate(
            namespace=self.namespace,
            workflow=workflow,
            input=Payload(inline="0"),
            attributes=None if key is None else canonical({"tenant": key}),
            weight=weight,
            priority=priority,
            start_at=start_at,
            concurrency_key=concurrency_key,
        )
        for reply in self.kernel.dispatch_many([one] * number):
            assert not isinstance(reply, Exception), reply

    def serve(self, number: int, at_once: int = 1, *, runs: bool = False) -> list[str]:
        """Claim and complete jobs; return their keys, or those of their runs, in the order of the claims."""
        served: list[str] = []
        definitions = tuple(one.definition for one in self.plans)
        while len(served) < number:
            most = min(at_once, number - len(served))
            claim = JobClaim(
                namespace=self.namespace,
                session=self.session,
                queue_claims=(QueueClaim(queue="default", definitions=definitions, limit=most),),
                limit=most,
            )
            attempts = self.kernel.dispatch(claim).attempts
            if not attempts:
                break
            claimed = [attempt.run for attempt in attempts]
            keys = self._keys(claimed)
            served += claimed if runs else [keys[run] for run in claimed]
            done = Completed(output=Payload(inline="1"))
            self.kernel.dispatch_many(
                [
                    JobSettle(namespace=self.namespace, job=one.job, epoch=one.epoch, outcome=done)
                    for one in attempts
                ]
            )
        return served

    def _keys(self, runs: Sequence[str]) -> dict[str, str]:
        def read(tx: Transaction) -> Sequence[Run]:
            return tx.get(RUNS, runs)

        rows = self.store.transact(read)
        return {row.key: _key(row.attributes, row.workflow) for row in rows}

    def tables(self) -> Tables:
        """Return all rows of a store in memory."""
        assert isinstance(self.store, MemoryPersistence)
        return self.store.dump()

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(timedelta(seconds=seconds))


def _key(attributes: str | None, workflow: str) -> str:
    return attribute_texts(attributes).get("tenant", workflow)


def places(served: Sequence[str], key: str) -> list[int]:
    """Return the places at which a key was served, from 1."""
    return [place for place, one in enumerate(served, 1) if one == key]
