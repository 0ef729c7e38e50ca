"""A wait for a run is over as soon as this process has committed what it waits for: no hint and no read is needed."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Channel, Engine, SyncEngine, workflow
from holdfast.hosts.wiring.hint_listener import ThreadedHintListener
from holdfast.kernel.commands import RunRemove, RunRemoved, RunTerminate
from holdfast.ports.persistence import Query
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.transport import Hint

signals = Channel("signals", int)


@workflow
async def waiting() -> None:
    await signals.receive()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncEngine]:
    """An engine whose hints are lost, and whose listener does not read."""
    with Engine.open("memory://", workflows=[waiting]).sync as engine:
        stores = engine.core.stores
        read = stores.persistence.read

        def unread(query: Query[object]) -> object:
            assert not isinstance(query, RunsByKey), "the listener reads"
            return read(query)

        def lost(*_: Sequence[Hint]) -> None: ...

        monkeypatch.setattr(stores.transport, "announce", lost)
        monkeypatch.setattr(stores.persistence, "read", unread)
        monkeypatch.setattr(ThreadedHintListener, "_look", lost)
        yield engine


def ended(engine: SyncEngine, key: str) -> "Future[Run]":
    return engine.core.listener.when_ended(key)


def test_an_end_resolves_the_waits_for_its_run_alone(engine: SyncEngine) -> None:
    run, other = engine.start(waiting()), engine.start(waiting())
    mine = [ended(engine, run.info().key) for _ in range(2)]
    others = ended(engine, other.info().key)

    run.terminate()

    assert [one.result(0).status for one in mine] == [RunStatus.CANCELLED] * 2
    assert not others.done()
    others.cancel()
    assert engine.core.listener.waiting == 1  # a cancelled wait stays until the next look


def test_a_row_resolves_the_waits_that_it_is_past(engine: SyncEngine) -> None:
    run = engine.start(waiting())
    row = len(run.history())
    soon, later = (engine.core.listener.when_past(run.info().key, past) for past in (row, row + 1))

    run.signal(signals(1))
    assert soon.result(0).last_row == row + 1
    assert not later.done()
    run.signal(signals(2))
    assert later.result(0).last_row == row + 2


def test_a_run_that_is_removed_with_the_commit_resolves_nothing(engine: SyncEngine) -> None:
    run = engine.start(waiting(), start_at=datetime.now(UTC) + timedelta(hours=1))
    wait = ended(engine, run.info().key)

    together = (
        RunTerminate(namespace="default", run_id=run.id),
        RunRemove(namespace="default", run_id=run.id),
    )
    _, removed = engine.core.kernel.dispatch_many(together)

    assert isinstance(removed, RunRemoved)
    assert not wait.done()
    wait.cancel()
