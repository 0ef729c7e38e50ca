"""Groups: each message of a topic is handed to one of the members that wait, and none is lost with one."""

from collections.abc import Callable, Sequence
from typing import cast

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.kernel.commands import (
    Attempt,
    ChannelMessage,
    Completed,
    CompletedAfterStep,
    ContinuedAsNew,
    Failed,
    Failure,
    FunctionWaiting,
    JobRecord,
    JobSettle,
    RunCreate,
    RunRerunFrom,
    RunSignal,
    RunTerminate,
    TopicDeliver,
    TopicPublish,
    TopicSubscribe,
    TopicUnsubscribe,
)
from holdfast.kernel.dispatch import topic_searches
from holdfast.kernel.history import events
from holdfast.kernel.topics.selections import (
    GROUP_MAX,
    TOPIC_MAX,
    group_channel_of,
    group_key_of,
    selection_text,
)
from holdfast.ports.changes import Insert
from holdfast.ports.errors import InvalidCommandError, RerunRefusedError
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.topic import GROUP_IDLE, GroupName
from holdfast.ports.records.values import Micros
from tests.unit.kernel.topic_worlds import (
    TOPIC,
    Racing,
    deliver,
    function,
    message,
    new_world,
    publish,
    received,
    record,
    subscriber,
    subscribing,
)
from tests.unit.kernel.world import World, payload, pipeline, stage

GROUP = "packers"


@pytest.fixture
def world() -> World:
    return new_world()


def waiting(
    call: str = "1", *, group: str = GROUP, since: Micros | None = 0, country: str | None = None
) -> TopicSubscribe:
    """The record of a member that waits for its next message."""
    return TopicSubscribe(
        call=call,
        topic=TOPIC,
        channel=group_channel_of(TOPIC, group, call),
        selection=selection_text({} if country is None else {"country": country}),
        group=group,
        since=since,
    )


def member(world: World, name: str, *, group: str = GROUP, country: str | None = None) -> Attempt:
    """A function that waits for the next message of a group, since later than those before it."""
    attempt = function(world, name)
    record(world, attempt, waiting(group=group, country=country))
    world.settle(attempt, FunctionWaiting(seen=world.run(name).last_row))
    world.wait(1)
    return attempt


def taken(world: World, *names: str) -> list[list[str]]:
    """The messages in the histories of runs."""
    return [[text for text, _ in received(world, name)] for name in names]


def who_waits(world: World) -> list[str]:
    """The runs that wait as members of groups."""
    rows = world.tables().subscriptions.values()
    return [one.run_id for one in rows if one.group_key is not None and one.holds is None]


def stored(world: World) -> list[str]:
    """The messages of topics that are stored."""
    return sorted(name.id for name in world.tables().topic_messages)


def next_number(world: World, key: str = GROUP) -> int:
    """The number of the first message that a group has not handed out."""
    return world.tables().groups[GroupName("default", TOPIC, key)].next_number


def test_each_message_goes_to_one_member_that_has_waited_longest(world: World) -> None:
    member(world, "late")
    for name in ("c", "a", "b"):
        member(world, name)
    publish(world, "1", "2", "3")
    deliver(world)
    with world.unchanged():
        deliver(world)
    assert taken(world, "late", "c", "a", "b") == [["1"], ["2"], ["3"], []]
    row = events.SignalReceived.from_row(world.history("a")[-1])
    assert (row.channel, row.topic, row.number, row.group_key) == ("group:orders/packers@1", TOPIC, 3, GROUP)


def test_a_member_gets_one_message_for_each_wait(world: World) -> None:
    attempt = function(world, "m")
    record(world, attempt, waiting("1"))
    publish(world, "1", "2")
    deliver(world)
    assert taken(world, "m") == [["1"]]
    record(world, attempt, waiting("2"), seen=world.run("m").last_row)
    deliver(world)
    assert taken(world, "m") == [["1", "2"]]


def test_messages_for_which_no_member_waits_are_kept_for_the_next(world: World) -> None:
    publish(world, "1", "2")
    deliver(world)
    for name in ("a", "b", "c"):
        member(world, name)
    publish(world, "3")
    deliver(world)
    assert taken(world, "a", "b", "c") == [["1"], ["2"], ["3"]]


def test_a_member_that_was_overtaken_at_its_end_still_holds_what_it_has_read_since(world: World) -> None:
    """The step that it has received before is stored after another row, so it has not read the message."""
    attempt = function(world, "m")
    record(world, attempt, waiting())
    publish(world, "1")
    deliver(world)
    last, number = world.run("m").last_row, world.history("m")[-1].number
    world.do(RunSignal(run_id="m", signal=ChannelMessage(channel="go", payload=payload(1))))
    done = events.StepCompleted(call="2", step="pack", attempt=1, host="here", site="")
    outcome = CompletedAfterStep(output=payload(1), seen=last, step=done, result=payload(2))
    settled = world.do(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=outcome, received=(number,)))
    assert settled.retry_at == world.now
    (held,) = world.tables().subscriptions.values()
    assert held.holds == 1
    assert number in mailbox_from(world.run("m").mailbox).unread
    world.do(RunTerminate(run_id="m"))
    member(world, "other")
    deliver(world)
    assert taken(world, "other") == [["1"]]


def test_groups_and_subscribers_do_not_take_from_each_other(world: World) -> None:
    subscriber(world, "every")
    member(world, "a")
    member(world, "b", group="others")
    member(world, "nz", country="nz")
    publish(world, "1", country="nz")
    deliver(world)
    assert taken(world, "every", "a", "b", "nz") == [["1"]] * 4


def test_a_group_gets_only_what_it_selects(world: World) -> None:
    member(world, "nz", country="nz")
    publish(world, "1", country="fr")
    publish(world, "2", country="nz")
    deliver(world)
    assert taken(world, "nz") == [["2"]]
    assert next_number(world, group_key_of(GROUP, {"country": "nz"})) == 3


@pytest.mark.parametrize(("since", "expected"), [(None, []), (0, ["old"])])
def test_a_group_begins_with_its_first_member(
    world: World, since: Micros | None, expected: list[str]
) -> None:
    """From the start of that run on, or from the instant that it names. Other members go on where the group is."""
    publish(world, "old")
    deliver(world)
    world.wait(1)
    attempt = function(world, "first")
    record(world, attempt, waiting(since=since))
    deliver(world)
    assert taken(world, "first") == [expected]
    member(world, "second")
    deliver(world)
    assert taken(world, "second") == [[]]


def test_a_member_that_waits_no_more_gets_nothing(world: World) -> None:
    attempt = function(world, "a")
    record(world, attempt, waiting())
    deliver(world)
    record(world, attempt, TopicUnsubscribe(call="2", topic=TOPIC, channel="group:orders/packers@1"), seen=2)
    member(world, "b")
    publish(world, "1")
    deliver(world)
    assert taken(world, "a", "b") == [[], ["1"]]


def test_a_message_that_comes_as_a_member_stops_to_wait_goes_back(world: World) -> None:
    """It is the first that the next member gets."""
    attempt = function(world, "a")
    record(world, attempt, waiting())
    publish(world, "1", "2")
    deliver(world)
    assert taken(world, "a") == [["1"]]
    record(world, attempt, TopicUnsubscribe(call="2", topic=TOPIC, channel="group:orders/packers@1"), seen=2)
    for name in ("b", "c"):
        member(world, name)
    deliver(world)
    assert taken(world, "b", "c") == [["1"], ["2"]]
    assert not world.tables().returned_messages


def test_a_message_that_was_read_does_not_go_back(world: World) -> None:
    attempt = function(world, "a")
    record(world, attempt, waiting())
    publish(world, "1")
    deliver(world)
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=3, received=(3,), records=()))
    world.do(RunTerminate(run_id="a"))
    member(world, "b")
    deliver(world)
    assert taken(world, "b") == [[]]


@pytest.mark.parametrize("ends", ["completed", "failed", "terminated", "continued as new", "begun anew"])
def test_what_a_generation_has_not_read_goes_back_when_it_ends(world: World, ends: str) -> None:
    attempt = function(world, "a")
    record(world, attempt, waiting("1"), waiting("2"))
    publish(world, "1")
    deliver(world)
    match ends:
        case "completed":
            world.settle(attempt, Completed(output=payload(1)))
        case "failed":
            world.settle(attempt, Failed(failure=Failure(code="body_error", message="no")))
        case "continued as new":
            world.settle(attempt, ContinuedAsNew(workflow="f", version="1", input=payload(1), seen=4))
        case "begun anew":
            world.do(RunRerunFrom(run_id="a", stage="f"))
        case _:
            world.do(RunTerminate(run_id="a"))
    for name in ("b", "c"):
        member(world, name)
    publish(world, "2")
    deliver(world)
    if ends == "begun anew":  # it gets its messages again
        assert taken(world, "b", "c") == [["2"], []]
        assert taken(world, "a") == [["1"]]
    else:
        assert taken(world, "b", "c") == [["1"], ["2"]]
    assert who_waits(world) == ([] if ends != "begun anew" else ["c"])


def test_the_next_attempt_of_a_run_has_the_messages_of_the_one_before() -> None:
    world = World(pipeline(attrs.evolve(stage("f", attempts=2), function=True), workflow="f"))
    attempt = function(world, "a")
    record(world, attempt, waiting("1"))
    publish(world, "1", "2")
    deliver(world)
    record(world, attempt, waiting("2"), seen=3)
    deliver(world)
    record(world, attempt, waiting("3"), seen=5)
    world.settle(attempt, Failed(failure=Failure(code="body_error", message="no")))
    assert world.run("a").generation == 2
    assert taken(world, "a") == [["1", "2"]]
    publish(world, "3")
    member(world, "b")
    deliver(world)
    assert taken(world, "a", "b") == [["1", "2"], ["3"]]
    again = world.claim_one(world.open())
    world.do(RunTerminate(run_id="a"))
    assert again.epoch
    for name in ("c", "d"):
        member(world, name)
    deliver(world)
    assert taken(world, "c", "d") == [["1"], ["2"]]


@pytest.mark.parametrize("fork", [False, True])
def test_a_generation_that_has_its_message_again_waits_for_no_other(fork: bool) -> None:
    """Nor does a rerun that keeps the rows of its call: another message would be held until the run ends."""
    world = World(pipeline(attrs.evolve(stage("f", attempts=2), function=True), workflow="f"))
    attempt = function(world, "a")
    record(world, attempt, waiting("1"))
    publish(world, "1")
    deliver(world)
    world.settle(attempt, Failed(failure=Failure(code="body_error", message="no")))
    again = world.claim_one(world.open())
    record(world, again, waiting("1"), seen=world.run("a").last_row)
    if fork:
        world.do(RunRerunFrom(run_id="a", row=world.run("a").last_row + 1))
    publish(world, "2")
    deliver(world)
    assert taken(world, "a") == [[] if fork else ["1"]]
    member(world, "b")
    deliver(world)
    assert taken(world, "b") == [["2"]]


@pytest.mark.parametrize("ends", ["completed", "retried", "replaced", "replaced, kept"])
def test_what_a_run_has_read_stays_with_its_next_generations(ends: str) -> None:
    """They have it again, and do not give it back, nor to a start under the same id."""
    attempts = 2 if ends == "retried" else 1
    world = World(pipeline(attrs.evolve(stage("f", attempts=attempts), function=True), workflow="f"))
    attempt = function(world, "a")
    record(world, attempt, waiting("1"))
    publish(world, "1")
    deliver(world)
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=3, received=(3,), records=()))
    match ends:
        case "completed":
            world.settle(attempt, Completed(output=payload(1)))
            world.do(RunRerunFrom(run_id="a", stage="f"))
        case "retried":
            world.settle(attempt, Failed(failure=Failure(code="body_error", message="no")))
        case _:
            world.do(RunRerunFrom(run_id="a", row=4 if "kept" in ends else 1))
    assert taken(world, "a") == [[] if "kept" in ends else ["1"]]
    again = world.claim_one(world.open())
    end = TopicUnsubscribe(call="2", topic=TOPIC, channel="group:orders/packers@1")
    record(world, again, end, seen=world.run("a").last_row)
    world.do(RunTerminate(run_id="a"))
    member(world, "b")
    deliver(world)
    assert taken(world, "b") == [[]]
    world.do(RunCreate(workflow="f", id="a", input=payload(1), if_ended="rerun"))
    assert taken(world, "a") == [[]]


@pytest.mark.parametrize("is_active", [True, False])
def test_a_rerun_from_a_row_has_the_waits_and_messages_of_the_rows_that_it_keeps(
    world: World, is_active: bool
) -> None:
    attempt = function(world, "a")
    record(world, attempt, waiting("1"))
    record(world, attempt, subscribing("2", topic="other"), seen=2)
    publish(world, "1")
    if not is_active:
        world.settle(attempt, Failed(failure=Failure(code="body_error", message="no")))
    world.do(RunRerunFrom(run_id="a", row=3))
    deliver(world)
    assert taken(world, "a") == [["1"]]
    assert who_waits(world) == []


def test_a_rerun_does_not_wait_where_the_rows_that_it_keeps_do_not(world: World) -> None:
    attempt = function(world, "a")
    record(world, attempt, subscribing("1", topic="other"))
    record(world, attempt, waiting("2"), seen=2)
    world.do(RunRerunFrom(run_id="a", row=3))
    publish(world, "1")
    deliver(world)
    assert taken(world, "a") == [[]]


def test_a_rerun_gets_a_message_that_went_back_from_the_group_only(world: World) -> None:
    attempt = function(world, "a")
    record(world, attempt, waiting("1"))
    publish(world, "1")
    deliver(world)
    record(world, attempt, subscribing("2", topic="other"), seen=3)
    world.do(RunTerminate(run_id="a"))
    member(world, "b")
    deliver(world)
    with pytest.raises(RerunRefusedError, match=r"message in row 3 went back .* start from row 3"):
        world.do(RunRerunFrom(run_id="a", row=4))
    world.do(RunRerunFrom(run_id="a", row=3))
    assert taken(world, "a", "b") == [[], ["1"]]
    publish(world, "2")
    deliver(world)
    assert taken(world, "a") == [["2"]]


def test_a_rerun_may_keep_a_message_that_went_back_before(world: World) -> None:
    """The replay drops it where the member stopped to wait, and it goes back once."""
    attempt = function(world, "a")
    record(world, attempt, waiting("1"))
    publish(world, "1")
    deliver(world)
    record(world, attempt, TopicUnsubscribe(call="2", topic=TOPIC, channel="group:orders/packers@1"), seen=3)
    member(world, "b")
    deliver(world)
    world.do(RunRerunFrom(run_id="a", row=5))
    world.do(RunTerminate(run_id="a"))
    member(world, "c")
    deliver(world)
    assert taken(world, "b", "c") == [["1"], []]
    assert mailbox_from(world.run("a").mailbox).unread == ()
    world.do(RunRerunFrom(run_id="a", row=1))
    assert taken(world, "a") == [[]]
    world.do(RunTerminate(run_id="a"))
    member(world, "d")
    deliver(world)
    assert taken(world, "d") == [[]]


def test_more_members_and_messages_than_one_transaction_takes(world: World) -> None:
    names = [f"m{number:02}" for number in range(60)]
    for name in names:
        member(world, name)
    publish(world, *(f"{number:02}" for number in range(60)))
    deliver(world)
    assert taken(world, *names) == [[f"{number:02}"] for number in range(60)]


def test_more_groups_than_one_transaction_takes(world: World) -> None:
    names = [f"group-{number:02}" for number in range(45)]
    for name in names:
        member(world, name, group=name)
    publish(world, "1")
    deliver(world)
    assert taken(world, *names) == [["1"]] * 45


def test_members_whose_runs_are_gone_hold_up_no_other(world: World) -> None:
    member(world, "a")
    publish(world, *(f"{number:02}" for number in range(10)))
    (row,) = world.tables().subscriptions.values()
    world.put(*(Insert(attrs.evolve(row, run_id=f"gone-{number}", waits_since=0)) for number in range(30)))
    while world.kernel.dispatch(TopicDeliver(topic=TOPIC, limit=4)).more:
        pass
    assert taken(world, "a") == [["00"]]


def test_messages_that_a_group_does_not_select_are_passed_in_parts(world: World) -> None:
    publish(world, *(f"{number:02}" for number in range(20)), country="fr")
    publish(world, "last", country="nz")
    deliver(world)
    member(world, "nz", country="nz")
    assert deliver(world, limit=4) > 3
    assert taken(world, "nz") == [["last"]]


def test_messages_of_a_group_do_not_expire_unless_it_is_idle(world: World) -> None:
    attempt = function(world, "a")
    record(world, attempt, waiting())
    publish(world, "1", "2")
    deliver(world)
    assert taken(world, "a") == [["1"]]
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=3, received=(3,), records=()))
    world.wait(8 * 86_400)
    deliver(world)
    assert stored(world) == ["2"]
    world.wait(GROUP_IDLE / 1_000_000)
    deliver(world)
    assert stored(world) == []


@pytest.mark.parametrize("goes_back", [False, True])
@pytest.mark.parametrize("how", ["time", "count"])
def test_a_topic_keeps_what_a_member_has_not_read(world: World, how: str, goes_back: bool) -> None:
    """Whatever its time is, and how many came after it: also for the next member if it goes back."""
    attempt = function(world, "a")
    record(world, attempt, waiting())
    publish(world, "1")
    deliver(world)
    assert taken(world, "a") == [["1"]]
    if goes_back:
        world.do(RunTerminate(run_id="a"))
    if how == "time":
        world.wait(40 * 86_400)
    else:
        newer = attrs.evolve(message("2"), keep_last=1)
        world.do(TopicPublish(message=newer, id="2"))
    assert deliver(world) <= 3
    assert "1" in stored(world)
    if not goes_back:
        world.do(RunTerminate(run_id="a"))
    member(world, "b")
    deliver(world)
    assert taken(world, "b") == [["1"]]


def test_a_topic_deletes_what_a_member_has_read(world: World) -> None:
    """The time of a message that it keeps longer is looked at again after a day."""
    attempt = function(world, "a")
    record(world, attempt, waiting())
    publish(world, "1")
    deliver(world)
    world.wait(8 * 86_400)
    deliver(world)
    assert world.do(TopicDeliver()).topic is None  # until then, it costs maintenance nothing
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=3, received=(3,), records=()))
    assert not world.tables().subscriptions
    deliver(world)
    assert stored(world) == ["1"]
    world.wait(86_401)
    assert world.do(TopicDeliver()).topic == TOPIC
    assert stored(world) == []


def test_many_messages_that_are_kept_do_not_hold_up_the_deletion_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked at in parts, and those behind them expire in time."""
    monkeypatch.setattr(topic_searches, "POSTPONED_MAX", 5)
    for number in range(12):
        member(world, f"m{number}")
    publish(world, *(f"{number:03}" for number in range(13)))
    deliver(world)
    world.do(RunTerminate(run_id="m0"))
    attempt = function(world, "reader")
    record(world, attempt, waiting())
    deliver(world)
    record(world, attempt, waiting("2"), seen=3)
    deliver(world)
    rows = world.history("reader")
    numbers = tuple(row.number for row in rows if row.type == events.SignalReceived.type)
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=len(rows), received=numbers, records=()))
    world.wait(8 * 86_400)
    assert deliver(world) == 3
    assert len(stored(world)) == 11
    assert {"000", "012"}.isdisjoint(stored(world))


def test_maintenance_hands_out_what_went_back(world: World) -> None:
    """Also if the process that ended the member does not deliver."""
    attempt = function(world, "a")
    record(world, attempt, waiting())
    publish(world, "1")
    deliver(world)
    member(world, "b")
    deliver(world)
    world.settle(attempt, Completed(output=payload(1)))
    done = world.do(TopicDeliver())
    assert (done.topic, done.deliveries) == (TOPIC, 1)
    assert taken(world, "b") == [["1"]]
    assert world.do(TopicDeliver()).topic is None


@pytest.mark.parametrize(
    "wrong",
    [
        attrs.evolve(waiting(), group=""),
        attrs.evolve(waiting(), group="x" * 65),
        attrs.evolve(waiting(), group="a\nb"),
        attrs.evolve(waiting(), channel="topic:orders"),
        attrs.evolve(waiting(), channel="group:orders/packers@2"),
        attrs.evolve(waiting(), group=None),
    ],
)
def test_a_wait_that_is_not_valid_is_refused(world: World, wrong: TopicSubscribe) -> None:
    attempt = function(world, "a")
    with world.unchanged(), pytest.raises(InvalidCommandError):
        record(world, attempt, wrong)


def test_the_names_of_a_topic_a_group_and_a_call_may_be_long(world: World) -> None:
    topic, group, call = "t" * TOPIC_MAX, "g" * GROUP_MAX, ".".join(["10"] * 20)
    channel = group_channel_of(topic, group, call)
    attempt = function(world, "a")
    record(world, attempt, TopicSubscribe(call=call, topic=topic, channel=channel, group=group, since=0))
    new = attrs.evolve(message("1"), topic=topic)
    world.do(TopicPublish(message=new, id="1"))
    world.do(TopicDeliver(topic=topic))
    record(world, attempt, TopicUnsubscribe(call="2", topic=topic, channel=channel), seen=3)
    assert [name.topic for name in world.tables().returned_messages] == [topic]


STEPS = st.lists(
    st.sampled_from(["publish", "wait", "leave", "end", "deliver", "deliver one"]), min_size=1, max_size=40
)


@settings(max_examples=60)
@given(steps=STEPS)
def test_no_message_is_lost_and_none_is_handed_to_two(steps: Sequence[str]) -> None:
    """Whatever members do in between: in the end, each message is unread with one run, or in the group."""
    world = new_world()
    attempts: dict[str, Attempt] = {}
    published = 0
    for number, what in enumerate(steps):
        match what:
            case "publish":
                publish(world, f"{published:02}")
                published += 1
            case "wait":
                attempts[f"m{number}"] = function(world, f"m{number}")
                record(world, attempts[f"m{number}"], waiting())
            case "leave" if attempts:
                name, attempt = attempts.popitem()
                channel = group_channel_of(TOPIC, GROUP, "1")
                record(
                    world,
                    attempt,
                    TopicUnsubscribe(call="2", topic=TOPIC, channel=channel),
                    seen=world.run(name).last_row,
                )
            case "end" if attempts:
                world.do(RunTerminate(run_id=attempts.popitem()[0]))
            case "deliver":
                deliver(world)
            case "deliver one":
                world.do(TopicDeliver(topic=TOPIC, limit=1))
            case _:
                pass
    for number in range(published):
        member(world, f"last{number:02}")
    deliver(world)
    has = [
        text
        for name in (*attempts, *(f"last{number:02}" for number in range(published)))
        for text, _ in received(world, name)
    ]
    assert sorted(has) == [f"{number:02}" for number in range(published)]


def test_a_member_that_leaves_before_its_run_is_locked_is_handed_nothing() -> None:
    """The next member gets the message, or it stays with the group."""
    others: list[Callable[[], object]] = []
    world = new_world(lambda store: cast("Persistence", Racing(store, others)))
    leaving = function(world, "a")
    record(world, leaving, waiting())
    world.wait(1)
    member(world, "b")
    end = TopicUnsubscribe(call="2", topic=TOPIC, channel="group:orders/packers@1")
    others.append(lambda: record(world, leaving, end, seen=2))
    publish(world, "1", "2")
    deliver(world)
    assert not others
    assert taken(world, "a", "b") == [[], ["1"]]
    member(world, "c")
    deliver(world)
    assert taken(world, "c") == [["2"]]
