"""A worker's capacity, and the claims made from it."""

from holdfast.hosts.worker.capacity import Capacity
from holdfast.hosts.worker.machine_protocol import Claim
from holdfast.hosts.worker.settings import Settings
from holdfast.kernel.commands import Attempt
from holdfast.ports.records.job import JobKind, PassOver
from holdfast.ports.searches import QueueClaim

CODE = ("w@1",)


def room(concurrency: int = 4, *, definitions: tuple[str, ...] = CODE, **limits: int) -> Capacity:
    return Capacity(
        Settings(definitions=definitions, queues=("default", "gpu"), concurrency=concurrency, limits=limits)
    )


def attempt(number: int, *, queue: str = "default", losses: int = 0) -> Attempt:
    return Attempt(
        job=f"run.{number}",
        epoch=1,
        run="run",
        definition="w@1",
        queue=queue,
        kind=JobKind.STAGE,
        node="a",
        item=None,
        attempt=1,
        max_attempts=3,
        lost_attempts=losses,
        input="1",
    )


def lane(queue: str, limit: int) -> QueueClaim:
    return QueueClaim(queue=queue, definitions=CODE, limit=limit)


def test_a_claim_asks_every_queue_for_what_there_is_room_for() -> None:
    assert room(4, gpu=1).claim() == Claim((lane("default", 4), lane("gpu", 1)), 4)


def test_what_is_inside_takes_up_room_in_all_and_in_its_queue() -> None:
    some = room(4, gpu=2)
    some.enter(attempt(1, queue="gpu"))

    assert some.free == 3
    assert some.claim() == Claim((lane("default", 4), lane("gpu", 1)), 3)


def test_a_queue_at_its_limit_is_not_asked() -> None:
    some = room(4, gpu=1)
    some.enter(attempt(1, queue="gpu"))

    assert some.claim() == Claim((lane("default", 4),), 3)


def test_nothing_is_claimable_when_all_queues_are_at_their_limits_though_there_is_room() -> None:
    some = room(4, default=1, gpu=1)
    some.enter(attempt(1))
    some.enter(attempt(2, queue="gpu"))

    assert (some.free, some.claimable) == (2, 0)


def test_nothing_is_claimable_without_code() -> None:
    assert room(definitions=()).claimable == 0


def test_what_leaves_frees_its_room() -> None:
    some = room(4, gpu=1)
    some.enter(attempt(1, queue="gpu"))
    some.leave(attempt(1, queue="gpu"))

    assert some.claim() == room(4, gpu=1).claim()


def test_room_in_a_queue_that_gave_all_that_was_asked_for_may_let_in_more() -> None:
    some = room(4, gpu=1)
    some.claim()
    found = (attempt(1), attempt(2, queue="gpu"))
    some.claimed(found)
    for one in found:
        some.enter(one)

    assert not some.leave(attempt(1))
    assert some.leave(attempt(2, queue="gpu"))


def test_what_was_lost_before_decides_what_is_passed_over_until_it_leaves() -> None:
    some = room()
    suspect = attempt(1, losses=1)
    some.enter(suspect)

    assert some.claim().pass_over is suspect.pass_over
    assert suspect.pass_over is not PassOver.NOTHING
    assert some.leave(suspect)
    assert some.claim().pass_over is PassOver.NOTHING
