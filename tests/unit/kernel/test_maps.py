"""Maps: one job for each item, bounded concurrency, outputs in the order of the items."""

import pytest

from holdfast.kernel.commands import Attempt, Completed, MapExpanded, Outcome, RunCreate
from holdfast.kernel.pipelines.plan import DEFAULT_MAP_LIMIT, MapPlan, StagePlan
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.ports.json import parse
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from tests.unit.kernel.world import World, completing, each, failed, payload, pipeline, stage


def _over(items: int, *, payloads: int = 1) -> Outcome:
    return MapExpanded(items=tuple(payload("x" * payloads + str(index)) for index in range(items)))


def _doing(world: World, items: int) -> None:
    """Do all jobs; maps have so many items; each body returns its input in brackets."""

    def give(attempt: Attempt) -> Outcome:
        if attempt.kind is JobKind.EXPAND_MAP:
            return _over(items)
        return Completed(output=payload([world.value(attempt.run, attempt.input)]))

    world.drain(give)


def _items(world: World) -> list[int]:
    return sorted(job.item for job in world.jobs() if job.item is not None)


def test_a_map_does_its_body_for_each_item_and_gives_the_list() -> None:
    world = World(pipeline(each("m")))
    world.create()
    _doing(world, 3)

    assert world.result() == [["x0"], ["x1"], ["x2"]]


def test_a_map_begins_with_a_job_that_reads_what_it_goes_over() -> None:
    world = World(pipeline(stage("a"), each("m")))
    world.create()
    session = world.open()
    world.complete(world.claim_one(session), [1, 2])
    expand = world.claim_one(session)

    assert (expand.kind, expand.node, expand.item) == (JobKind.EXPAND_MAP, "m", None)
    assert world.value(expand.run, expand.input) == [1, 2]
    world.expand(expand, [1, 2])
    assert [(one.kind, one.node, one.item) for one in world.claim(session)] == [
        (JobKind.STAGE, "m", 0),
        (JobKind.STAGE, "m", 1),
    ]


def test_outputs_come_in_the_order_of_the_items_whoever_is_first() -> None:
    world = World(pipeline(each("m"), stage("z")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(4))
    for attempt in reversed(world.claim(session)):
        world.complete(attempt)

    last = world.claim_one(session)
    assert world.value(last.run, last.input) == [["m", 0], ["m", 1], ["m", 2], ["m", 3]]


def test_a_map_over_nothing_gives_nothing_and_the_run_goes_on() -> None:
    world = World(pipeline(each("m"), stage("z")))
    world.create()
    session = world.open()
    settled = world.expand(world.claim_one(session), [])

    assert settled.run_status == RunStatus.RUNNING
    last = world.claim_one(session)
    assert (last.node, world.value(last.run, last.input)) == ("z", [])
    assert world.tables().pages == {}


def test_maps_over_nothing_one_after_the_other_complete_the_run() -> None:
    world = World(pipeline(each("m"), each("n")))
    world.create()
    _doing(world, 0)

    assert world.result() == []
    assert world.events() == ["run.created", "stage.expanded", "stage.expanded", "run.completed"]


def test_an_item_that_is_done_makes_room_for_the_next() -> None:
    world = World(pipeline(each("m", limit=2)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(5))
    order: list[int | None] = []
    held = list(world.claim(session))
    while held:
        attempt = held.pop()
        order.append(attempt.item)
        world.complete(attempt)
        held += world.claim(session)
        assert len(_items(world)) <= 2

    assert sorted(order, key=lambda item: item or 0) == [0, 1, 2, 3, 4]
    assert order == [1, 2, 3, 4, 0]
    assert world.result() == [["m", index] for index in range(5)]


def test_a_batch_of_settles_opens_as_many_as_it_closes() -> None:
    world = World(pipeline(each("m", limit=4)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(10))
    world.send(*map(completing, world.claim(session)))

    assert _items(world) == [4, 5, 6, 7]


def test_an_item_that_fails_keeps_its_place_until_it_is_done() -> None:
    world = World(pipeline(each("m", limit=1)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(2))
    world.fail(world.claim_one(session))

    assert _items(world) == [0]
    world.complete(world.claim_one(session))
    assert _items(world) == [1]


def test_an_author_who_says_nothing_gets_a_limit() -> None:
    world = World(pipeline(MapPlan(stage=StagePlan(name="m"))))
    world.create()
    world.expand(world.claim_one(world.open()), range(DEFAULT_MAP_LIMIT + 5))

    assert len(world.jobs()) == DEFAULT_MAP_LIMIT


def test_a_map_goes_over_what_an_earlier_stage_gave() -> None:
    world = World(pipeline(stage("a"), stage("b"), stage("c"), each("m", over="a")))
    world.create()
    session = world.open()
    for _ in range(3):
        world.complete(world.claim_one(session))

    expand = world.claim_one(session)
    assert world.value(expand.run, expand.input) == "a"


def test_a_map_goes_over_what_an_earlier_map_gave() -> None:
    world = World(pipeline(each("m", limit=2), stage("b"), each("n", over="m")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(3))
    while (attempt := world.claim(session, limit=1)) and attempt[0].kind is JobKind.STAGE:
        world.complete(attempt[0])

    assert attempt[0].node == "n"
    assert world.value(attempt[0].run, attempt[0].input) == [["m", 0], ["m", 1], ["m", 2]]


def test_a_map_goes_over_an_earlier_map_over_nothing() -> None:
    world = World(pipeline(each("m"), stage("b"), each("n", over="m")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), [])
    world.complete(world.claim_one(session))

    expand = world.claim_one(session)
    assert (expand.node, world.value(expand.run, expand.input)) == ("n", [])


def test_a_reader_that_fails_is_tried_again() -> None:
    world = World(pipeline(each("m", attempts=2)))
    world.create()
    session = world.open()
    world.fail(world.claim_one(session))
    again = world.claim_one(session)

    assert (again.kind, again.attempt) == (JobKind.EXPAND_MAP, 2)
    world.expand(again, [1])
    item = world.claim_one(session)
    assert (item.item, item.attempt, item.max_attempts) == (0, 1, 2)


def test_a_reader_that_fails_for_good_fails_the_run() -> None:
    world = World(pipeline(each("m")))
    world.create()
    world.drain(lambda _: failed())

    assert world.run().status == "failed"
    assert parse(world.run().error or "")["stage"] == "m"


# Wide maps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1_000, 64])
def test_a_run_stays_as_small_as_it_was_however_wide_its_map_is(limit: int) -> None:
    def sizes(items: int) -> tuple[int, int]:
        world = World(pipeline(each("m", limit=limit), stage("z")))
        world.create()
        session = world.open()
        world.expand(world.claim_one(session), range(items))
        widest = len(world.run().progress)
        for attempt in world.claim(session, limit=10):
            world.complete(attempt)
            widest = max(widest, len(world.run().progress))
        return widest, max(len(job.input) for job in world.jobs())

    narrow, wide = sizes(20), sizes(1_000)

    assert wide[0] <= narrow[0] + 6
    assert wide[1] <= narrow[1] + 4


@pytest.mark.slow
def test_a_thousand_items_are_done_once_each() -> None:
    world = World(pipeline(each("m", limit=100)))
    world.create()
    _doing(world, 1_000)

    assert world.result() == [[f"x{index}"] for index in range(1_000)]
    assert world.events().count("stage.completed") == 1_000
    assert world.run().last_job == 1_001
    assert len(world.run().result or "") < 40


def test_items_are_stored_in_pages_and_each_job_refers_to_its_own() -> None:
    world = World(pipeline(each("m")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(250))

    assert [(page.node, page.page) for page in world.tables().pages.values()] == [
        ("m", 0),
        ("m", 1),
        ("m", 2),
    ]
    items = world.claim(session)
    assert [world.value(item.run, item.input) for item in items] == list(range(250))


@pytest.mark.parametrize("length", [1, 500, 5_000, 100_000])
def test_a_page_is_never_much_larger_than_32_kib(length: int) -> None:
    world = World(pipeline(each("m")))
    world.create()
    session = world.open()
    world.settle(world.claim_one(session), _over(60, payloads=length))

    pages = world.tables().pages.values()
    assert all(len(page.items) < 40_000 or len(parse(page.items)) == 1 for page in pages)
    items = world.claim(session)
    assert [world.value(item.run, item.input) for item in items] == [f"{'x' * length}{n}" for n in range(60)]


def test_an_item_may_be_in_a_blob() -> None:
    world = World(pipeline(each("m")))
    world.do(RunCreate(workflow="w", id="x", input=Payload(blob="the/input")))
    world.settle(world.claim_one(world.open()), MapExpanded(items=(Payload(blob="one"), Payload(inline="2"))))

    assert [parse(page.items) for page in world.tables().pages.values()] == [[[None, "one"], ["2", None]]]


def test_counters_tell_how_far_a_map_is() -> None:
    world = World(pipeline(each("m", limit=4)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(9))
    for attempt in world.claim(session)[:3]:
        world.complete(attempt)

    counters = progress_from(world.run().progress).nodes["m"].map
    assert counters is not None
    assert (counters.total, counters.done, counters.next) == (9, 3, 7)
