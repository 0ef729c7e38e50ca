"""Wake-up of a function with a long history: reading and replay."""

from typing import Final

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.functions.history_document import read_history
from holdfast.hosts.functions.replay_check import replay_here
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import EventAppend, JobClaim, JobRecord, SessionOpen
from holdfast.kernel.history import events
from holdfast.ports.json import canonical
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.run import RunName
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from tests.benchmarks.floors import check
from tests.benchmarks.meter import Meter, Sample
from tests.benchmarks.sites import Site

_BATCH: Final = 500
_HOUR: Final = 3_600_000_000
_NAMESPACE: Final = "default"

over: Final = Channel("over", bool)


@step
async def one(number: int) -> int:
    """Return a number. Never called, since its result is recorded."""
    return number


@workflow
async def chain(length: int) -> int:
    """Add the results of steps in sequence, and wait for a message."""
    total = 0
    for number in range(length):
        total += await one(number)
    await over.receive()
    return total


def replay(site: Site, steps: int) -> Sample:
    """Read a history with many steps, and replay it."""
    with Engine.open(site.url, workflows=[chain]).sync as engine:
        _record(engine, steps)
    with Meter(site) as meter, Engine.open(site.url, workflows=[chain]).sync as engine:
        run = engine.core.stores.persistence.read(FindRun(RunName(_NAMESPACE, "x")))
        assert run is not None
        meter.start()
        replayed = replay_here(read_history(engine.core, run), chain)
        meter.stop()
    check(not replayed.is_stuck and replayed.ended is None, f"{replayed}")
    return meter.sample(steps)


def _record(engine: SyncEngine, steps: int) -> None:
    """Start a run, and record steps of it without calling them."""
    engine.start(chain(steps), id="x")
    kernel = engine.core.kernel
    session = kernel.dispatch(SessionOpen(namespace=_NAMESPACE, host="bench", lease=_HOUR)).session
    lane = QueueClaim(queue="default", definitions=("chain@1",), limit=1)
    claim = JobClaim(namespace=_NAMESPACE, session=session, queue_claims=(lane,), limit=1)
    (attempt,) = kernel.dispatch(claim).attempts
    seen = 1
    for first in range(0, steps, _BATCH):
        rows = tuple(
            EventAppend(
                event=events.StepCompleted(
                    call=str(number + 1), step="one", attempt=1, site="replays.py:38", started_at=0
                ),
                payload=Payload(inline=canonical(number)),
            )
            for number in range(first, min(first + _BATCH, steps))
        )
        command = JobRecord(
            namespace=_NAMESPACE,
            job=attempt.job,
            epoch=attempt.epoch,
            seen=seen,
            records=rows,
        )
        stored = kernel.dispatch(command).rows
        check(len(stored) >= len(rows), "not all is recorded")  # a mark that it gets long may be among them
        seen = stored[-1].number
