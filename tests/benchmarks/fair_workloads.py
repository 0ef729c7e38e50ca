"""Workloads of keys that share workers: starts while many keys wait, and what each key gets of the next claims."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from holdfast import Engine, Fair, Pipeline, SyncEngine, Worker
from holdfast.kernel.commands import JobClaim, RunCreate, SessionOpen
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import FairKeyName
from holdfast.ports.records.run import attribute_texts
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from holdfast.ports.tables import FAIR_KEYS, RUNS
from tests.benchmarks.floors import check
from tests.benchmarks.meter import Meter, Sample, wait_until
from tests.benchmarks.programs import ONE, add_one
from tests.benchmarks.sites import Before, Site
from tests.benchmarks.workloads import CONCURRENCY

SHARED: Final = Pipeline("shared", input=int, fair=Fair(by="tenant")).pipe(add_one)
_BATCH: Final = 500
_ROUNDS: Final = 2
_FLOOD: Final = "flood"
_FLOOD_SHARE: Final = 9
"""How many runs the flood has for each run of another key."""
_CLAIM: Final = 100
_KEYS_MAX: Final = 10_000
_LEASE: Final = 3_600_000_000


def backlog(keys: int, runs: int) -> Before:
    """One key has so many runs that wait, and each of the others a few of them."""

    def make(site: Site) -> None:
        with Engine.open(site.url, workflows=(SHARED, ONE)).sync as engine:
            _start(engine, [_create(_FLOOD)] * runs)
            others = [_create(f"t{key}") for key in range(keys - 1) for _ in range(2 * _ROUNDS)]
            _start(engine, others)

    return Before(f"backlog-{keys}-{runs}", make)


def start(site: Site, runs: int) -> Sample:
    """Start runs of all keys while others wait. Then each key gets the same share of the next claims."""
    with Meter(site) as meter, Engine.open(site.url, workflows=(SHARED, ONE)).sync as engine:
        keys = _count_keys(engine)
        commands = [_create(f"t{number % (keys - 1)}") for number in range(runs)]
        meter.start()
        _start(engine, commands)
        meter.stop()
        served = Counter(islice(_served(engine), _ROUNDS * keys))
        check(len(served) == keys, f"{len(served)} of {keys} keys were served in {_ROUNDS} rounds")
        least, most = min(served.values()), max(served.values())
        check(
            _ROUNDS - 1 <= least <= most <= _ROUNDS + 1, f"a key was served {least} times, another one {most}"
        )
    return meter.sample(runs)


def start_plain(site: Site, runs: int) -> Sample:
    """Start runs of a workflow whose keys take no turns, as fast."""
    with Meter(site) as meter, Engine.open(site.url, workflows=(SHARED, ONE)).sync as engine:
        commands = [_create(f"t{number}", "one") for number in range(runs)]
        meter.start()
        _start(engine, commands)
        meter.stop()
    return meter.sample(runs)


def drain(site: Site, keys: int, workflow: str = "shared") -> Sample:
    """Run a backlog of which one key has nine tenths, on one worker.

    The latencies are from the worker's start to the end of each run of another key. Such runs were stored last.
    """
    others = keys - 1
    with Engine.open(site.url, workflows=(SHARED, ONE)).sync as engine:
        _start(engine, [_create(_FLOOD, workflow)] * (_FLOOD_SHARE * others))
        _start(engine, [_create(f"t{key}", workflow) for key in range(others)])
    runs = (_FLOOD_SHARE + 1) * others
    with Meter(site) as meter, Engine.open(site.url, workflows=(SHARED, ONE)).sync as engine:
        began_at = datetime.now(UTC)
        meter.start()
        with Worker(engine, concurrency=CONCURRENCY) as worker:
            wait_until(lambda: worker.stats().settled >= runs)
            meter.stop()
        ended = [run for run in engine.runs(status="completed") if run.attributes["tenant"] != _FLOOD]
        check(len(ended) == others, f"{len(ended)} of {others} runs of other keys have completed")
        waits = [(run.ended_at - began_at).total_seconds() for run in ended if run.ended_at is not None]
    return meter.sample(runs, latencies=tuple(waits))


def drain_plain(site: Site, keys: int) -> Sample:
    """Run the same backlog, of a workflow whose keys take no turns."""
    return drain(site, keys, "one")


def _create(key: str, workflow: str = "shared") -> RunCreate:
    return RunCreate(workflow=workflow, input=Payload(inline="1"), attributes=canonical({"tenant": key}))


def _start(engine: SyncEngine, commands: Sequence[RunCreate]) -> None:
    for at in range(0, len(commands), _BATCH):
        for answer in engine.kernel.dispatch_many(commands[at : at + _BATCH]):
            check(not isinstance(answer, Exception), f"a start was refused: {answer}")


def _count_keys(engine: SyncEngine) -> int:
    names = [FairKeyName("default", "shared/default", f"t{key}") for key in range(_KEYS_MAX)]
    return 1 + len(engine.kernel.persistence.transact(lambda tx: tx.get(FAIR_KEYS, names)))


def _served(engine: SyncEngine) -> Iterator[str]:
    """Claim jobs in batches, and yield their keys in the order of the claims."""
    kernel = engine.kernel
    session = kernel.dispatch(SessionOpen(host="benchmark", lease=_LEASE)).session
    queue_claims = (QueueClaim(queue="default", definitions=("shared@1",), limit=_CLAIM),)
    while True:
        claimed = kernel.dispatch(JobClaim(session=session, queue_claims=queue_claims, limit=_CLAIM)).attempts
        if not claimed:
            return
        runs = [attempt.run for attempt in claimed]
        rows = kernel.persistence.transact(lambda tx, runs=runs: tx.get(RUNS, runs))  # type: ignore[misc]
        keys = {row.key: attribute_texts(row.attributes)["tenant"] for row in rows}
        yield from (keys[run] for run in runs)
