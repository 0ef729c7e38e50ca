"""Conformance of the in-memory store."""

import pytest
from typing_extensions import override

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.ports.persistence import Persistence
from holdfast.testing.conformance.persistence import PersistenceContract
from holdfast.testing.faults import FaultPlan, FaultyPersistence


class TestMemoryPersistence(PersistenceContract):
    """As it is."""

    serial = True
    reads_wait = True

    @override
    def make_persistence(self) -> Persistence:
        return MemoryPersistence()


@pytest.mark.slow
class TestMemoryPersistenceThatRunsWorkAgain(PersistenceContract):
    """Of which every other transaction is run for nothing first, as after a deadlock."""

    serial = True
    reads_wait = True

    @override
    def make_persistence(self) -> Persistence:
        return FaultyPersistence(MemoryPersistence(), FaultPlan.seeded(1, runs_again=0.5))
