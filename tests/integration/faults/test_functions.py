"""A worker is killed (-9) around every commit of a durable function: same result, each step recorded once."""

import signal
from collections import Counter

from sqlalchemy import create_engine, select, text

from holdfast.ports.json import parse
from holdfast.ports.records.run import RunStatus
from tests.chaos.faults import Fault
from tests.chaos.functions import ERRAND_STEPS, SEATS, booking, errand
from tests.chaos.site import Site

RECORDS = 4
"""One for each drive of the function: after the first step, the two concurrent ones (one record or two), the sleep."""

PHASES = (
    ("job.claim:inside", 1),
    ("job.claim:after", 1),
    ("body", 1),
    ("body", 3),
    *(
        (f"job.record:{moment}", nth)
        for moment in ("before", "inside", "after")
        for nth in range(1, RECORDS + 1)
    ),
    ("job.settle:inside", 1),  # it is parked
    ("job.settle:after", 1),
    ("job.claim:inside", 2),  # it has slept
    ("job.claim:after", 2),
    ("body", 4),
    ("job.settle:inside", 2),  # it has ended
    ("job.settle:after", 2),
)


def test_a_worker_killed_around_any_commit_of_a_function_changes_nothing(site: Site) -> None:
    queues = {phase: f"{phase[0].replace(':', '-')}-{phase[1]}" for phase in PHASES}
    runs = {phase: site.start(errand(10), queue=queue) for phase, queue in queues.items()}
    victims = [
        site.worker(queue, "errand@1", faults=[Fault(*phase)], only_queues=[queue], concurrency=1, lease=3.0)
        for phase, queue in queues.items()
    ]
    assert [victim.wait() for victim in victims] == [-signal.SIGKILL] * len(PHASES)
    assert sorted(site.book.faults()) == sorted(point for point, _ in PHASES)

    site.worker("survivor", "errand@1", queues=dict.fromkeys(queues.values(), 10))
    site.until_done()

    for phase, run in runs.items():
        assert (site.run(run).status, site.result(run)) == (RunStatus.COMPLETED, 25), phase
        rows = site.history(run)
        recorded = Counter(parse(row.data or "{}")["call"] for row in rows if row.type == "step.completed")
        assert recorded == Counter(("1", "2.1", "3.1", "4")) or len(recorded) == ERRAND_STEPS, phase
        assert set(recorded.values()) == {1}, phase
        assert sum(row.type == "timer.fired" for row in rows) == 1, phase
        tries = Counter(entry.stage for entry in site.book.entries(run=run))
        assert len(tries) == ERRAND_STEPS, phase
        assert sum(tries.values()) <= ERRAND_STEPS + 2, "more was done again than was under way"
    audit = site.audit()
    assert audit.lost >= len(PHASES) / 2
    assert 1 <= audit.repeats <= 2 * len(PHASES)


SHARED_PHASES = ("body", "job.record:inside", "job.record:after")


def test_a_worker_killed_in_a_step_in_a_transaction_leaves_both_rows_or_none(site: Site) -> None:
    database = create_engine(site.url.replace("postgresql://", "postgresql+psycopg://"))
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE test_seats (seat text PRIMARY KEY)"))

    def taken() -> list[str]:
        with database.connect() as connection:
            return sorted(seat for (seat,) in connection.execute(select(SEATS.c.seat)))

    def recorded(run: str) -> int:
        return sum(row.type == "step.completed" for row in site.history(run))

    queues = {phase: phase.replace(":", "-") for phase in SHARED_PHASES}
    runs = {phase: site.start(booking(phase), queue=queue) for phase, queue in queues.items()}
    victims = [
        site.worker(queue, "booking@1", faults=[Fault(phase)], only_queues=[queue], concurrency=1)
        for phase, queue in queues.items()
    ]
    assert [victim.wait() for victim in victims] == [-signal.SIGKILL] * len(SHARED_PHASES)
    assert sorted(site.book.faults()) == sorted(SHARED_PHASES)
    assert taken() == ["job.record:after"]
    assert [recorded(run) for run in runs.values()] == [0, 0, 1]

    site.worker("survivor", "booking@1", queues=dict.fromkeys(queues.values(), 10))
    site.until_done()
    for phase, run in runs.items():
        assert (site.run(run).status, site.result(run)) == (RunStatus.COMPLETED, phase)
        assert recorded(run) == 1
    assert taken() == sorted(SHARED_PHASES)
    site.audit()
    database.dispose()
