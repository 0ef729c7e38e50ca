"""Topics: messages get their numbers after the commits of their publishers, and each subscription gets each once."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.kernel.commands import (
    Completed,
    ContinuedAsNew,
    Failed,
    Failure,
    FunctionRecord,
    JobRecord,
    NewTopicMessage,
    RunRerunFrom,
    RunSignal,
    RunTerminate,
    TopicDeliver,
    TopicPublish,
    TopicSend,
    TopicUnsubscribe,
)
from holdfast.kernel.commands.outcomes import ChannelMessage
from holdfast.kernel.commands.topics import KEEP_LAST_MAX
from holdfast.kernel.history import events
from holdfast.kernel.topics.selections import (
    KEYS_MAX,
    digest_of,
    digests_of,
    is_selected,
    selection_text,
)
from holdfast.ports.changes import Update
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.job import JobState
from holdfast.ports.records.topic import MessageName, SubscriptionName, TopicName
from tests.unit.kernel.topic_worlds import (
    ALL,
    DAY,
    NZ,
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


@pytest.fixture
def world() -> World:
    return new_world()


def test_a_message_goes_to_each_subscription_once_with_its_number(world: World) -> None:
    every, selected = subscriber(world, "every"), subscriber(world, "nz", country="nz")
    subscriber(world, "fr", country="fr")
    publish(world, "a", "b", country="nz")
    publish(world, "c")
    deliver(world)
    with world.unchanged():
        deliver(world)
    assert received(world, "every") == [("a", 1), ("b", 2), ("c", 3)]
    assert received(world, "nz") == [("a", 1), ("b", 2)]
    assert received(world, "fr") == []
    assert [world.job(one).state for one in (every, selected)] == [JobState.QUEUED] * 2
    row = events.SignalReceived.from_row(world.history("nz")[-1])
    assert (row.channel, row.topic, row.message, row.sender) == (NZ, TOPIC, "b", None)


def test_a_message_is_published_once_by_its_id(world: World) -> None:
    first = world.do(TopicPublish(message=message("a"), id="a"))
    with world.unchanged():
        again = world.do(TopicPublish(message=message("b"), id="a"))
    assert (first.published, again.published, again.id) == (True, False, "a")
    other = world.do(TopicPublish(message=message("a")))
    assert other.published
    assert other.id != "a"


def test_a_message_gets_no_number_before_its_delivery(world: World) -> None:
    """A publisher that commits late gets a higher number than those that were delivered meanwhile."""
    subscriber(world, "s")
    publish(world, "a")
    name = MessageName("default", TOPIC, "a")
    assert world.tables().topic_messages[name].number is None
    deliver(world)
    assert world.tables().topic_messages[name].number == 1
    assert world.tables().topics[TopicName("default", TOPIC)].last == 1


def test_a_subscription_gets_what_was_published_since_its_run_started(world: World) -> None:
    """Between the start of the run and its subscription, nothing is missed, whether it was delivered or not."""
    publish(world, "before")
    deliver(world)
    world.wait(1)
    attempt = function(world, "s")
    publish(world, "delivered")
    deliver(world)
    publish(world, "new 1")
    record(world, attempt, subscribing())
    publish(world, "new 2")
    deliver(world)
    assert [text for text, _ in received(world, "s")] == ["delivered", "new 1", "new 2"]


def test_a_subscription_since_an_instant_gets_stored_messages(world: World) -> None:
    publish(world, "old")
    world.wait(10)
    since = world.now
    publish(world, "stored")
    deliver(world)
    world.wait(10)
    subscriber(world, "s", since=since)
    subscriber(world, "all", since=0)
    deliver(world)
    assert [text for text, _ in received(world, "s")] == ["stored"]
    assert [text for text, _ in received(world, "all")] == ["old", "stored"]


def test_subscribing_again_keeps_the_subscription(world: World) -> None:
    publish(world, "a")
    attempt = function(world, "s")
    record(world, attempt, subscribing(since=0), seen=1)
    deliver(world)
    again = record(world, attempt, subscribing("2", since=0), seen=3)
    assert [row.type for row in again.rows] == ["topic.subscribed"]
    deliver(world)
    assert received(world, "s") == [("a", 1)]


def test_the_messages_of_a_run_have_its_order(world: World) -> None:
    """Also where one command publishes more than nine, and the next one comes at the same instant."""
    subscriber(world, "s")
    attempt = function(world, "p")
    sends = tuple(TopicSend(call=str(number), message=message(str(number))) for number in range(1, 15))
    record(world, attempt, *sends[:11])
    record(world, attempt, *sends[11:], seen=12)
    deliver(world)
    assert received(world, "s") == [(str(number), number) for number in range(1, 15)]


def test_the_same_record_subscribes_and_publishes_once(world: World) -> None:
    attempt = function(world, "s")
    records = (subscribing(), TopicSend(call="2", message=message("mine")))
    record(world, attempt, *records)
    with world.unchanged():
        record(world, attempt, *records)
    deliver(world)
    assert [text for text, _ in received(world, "s")] == ["mine"]
    assert events.SignalReceived.from_row(world.history("s")[-1]).sender == "s"


def test_an_ended_subscription_gets_nothing_more(world: World) -> None:
    attempt = function(world, "s")
    record(world, attempt, subscribing())
    publish(world, "a")
    deliver(world)
    record(world, attempt, TopicUnsubscribe(call="2", topic=TOPIC, channel=ALL), seen=3)
    publish(world, "b")
    deliver(world)
    assert received(world, "s") == [("a", 1)]
    assert world.tables().subscriptions == {}


@pytest.mark.parametrize("ends", ["completes", "is terminated"])
def test_a_subscription_ends_with_its_run(world: World, ends: str) -> None:
    attempt = function(world, "s")
    record(world, attempt, subscribing(), subscribing("2", country="nz"))
    if ends == "completes":
        world.settle(attempt, Completed(output=payload(1)))
    else:
        world.do(RunTerminate(run_id="s"))
    assert world.tables().subscriptions == {}
    publish(world, "a", country="nz")
    deliver(world)
    assert received(world, "s") == []


def test_a_run_that_continues_as_new_keeps_its_subscriptions(world: World) -> None:
    """Messages that it has not received, and those that come, are those of the next generation."""
    attempt = function(world, "s")
    record(world, attempt, subscribing())
    publish(world, "a")
    deliver(world)
    world.settle(attempt, ContinuedAsNew(workflow="f", version="1", input=payload(2), seen=3))
    publish(world, "b")
    deliver(world)
    assert world.run("s").generation == 2
    assert received(world, "s") == [("a", 1), ("b", 2)]
    again = world.claim_one(world.open())
    record(world, again, subscribing(), seen=3)
    deliver(world)
    assert received(world, "s") == [("a", 1), ("b", 2)]


def test_a_rerun_from_a_row_has_the_subscriptions_of_the_rows_that_it_keeps(world: World) -> None:
    attempt = function(world, "s")
    record(world, attempt, subscribing())
    publish(world, "a")
    deliver(world)
    world.settle(attempt, Completed(output=payload(1)))
    world.do(RunRerunFrom(run_id="s", row=3))
    world.wait(1)
    publish(world, "b")
    deliver(world)
    assert received(world, "s") == [("a", 1), ("b", 2)]
    assert [one.channel for one in world.tables().subscriptions] == [ALL]


@pytest.mark.parametrize("row", [1, 3])
@pytest.mark.parametrize("is_behind", [False, True])
def test_a_rerun_of_an_active_run_loses_no_message_that_was_to_be_delivered(
    world: World, row: int, is_behind: bool
) -> None:
    """Its subscription stays, wherever the rerun starts: it may be behind, and messages may have no number yet."""
    publish(world, "a")
    attempt = function(world, "s")
    record(world, attempt, subscribing(since=0))
    if not is_behind:
        deliver(world)
    publish(world, "b")
    world.wait(1)
    world.do(RunRerunFrom(run_id="s", row=row if not is_behind else min(row, 2)))
    world.wait(1)
    again = world.claim_one(world.open())
    record(world, again, subscribing("1" if row == 1 else "2", since=0), seen=world.run("s").last_row)
    deliver(world)
    deliver(world)
    assert received(world, "s") == [("a", 1), ("b", 2)]
    assert world.run("s").generation == 2


def test_the_next_attempt_of_a_run_loses_no_message_that_was_to_be_delivered() -> None:
    world = World(pipeline(attrs.evolve(stage("f", attempts=2), function=True), workflow="f"))
    attempt = function(world, "s")
    record(world, attempt, subscribing())
    publish(world, "a")
    deliver(world)
    publish(world, "b")
    world.wait(1)
    world.settle(attempt, Failed(failure=Failure(code="body_error", message="no")))
    assert world.run("s").generation == 2
    again = world.claim_one(world.open())
    record(world, again, subscribing(), seen=world.run("s").last_row)
    deliver(world)
    assert received(world, "s") == [("a", 1), ("b", 2)]


def test_a_message_that_some_have_goes_to_the_others_in_the_next_transactions(world: World) -> None:
    names = [f"s{number}" for number in range(7)]
    for name in names:
        subscriber(world, name)
    deliver(world)
    publish(world, "a", "b")
    assert deliver(world, limit=3) == 7
    assert [received(world, name) for name in names] == [[("a", 1), ("b", 2)]] * 7


def test_a_subscription_that_begins_while_a_message_is_delivered_gets_it_once(world: World) -> None:
    for name in ("b", "c", "d"):
        subscriber(world, name)
    deliver(world)
    late = {name: function(world, name) for name in ("a", "z")}  # before and behind the place of the delivery
    publish(world, "m")
    assert world.do(TopicDeliver(topic=TOPIC, limit=1)).more
    for attempt in late.values():
        record(world, attempt, subscribing(since=0))
    deliver(world, limit=1)
    assert [received(world, name) for name in "abcdz"] == [[("m", 1)]] * 5


def test_stored_messages_are_caught_up_with_in_parts(world: World) -> None:
    texts = [f"{number:02}" for number in range(20)]
    publish(world, *texts)
    deliver(world)
    for name in ("a", "b"):
        subscriber(world, name, since=0)
    assert deliver(world, limit=7) > 5
    expected = [(text, number + 1) for number, text in enumerate(texts)]
    assert received(world, "a") == received(world, "b") == expected


@pytest.mark.parametrize("is_behind", [True, False])
@pytest.mark.parametrize("begins_again", [True, False])
def test_a_subscription_that_changes_before_its_run_is_locked_is_left_out(
    is_behind: bool, begins_again: bool
) -> None:
    """Its function has ended it, or ended it and begun it again: then the next delivery lets it catch up."""
    others: list[Callable[[], object]] = []
    world = new_world(lambda store: cast("Persistence", Racing(store, others)))
    publish(world, "stored")
    deliver(world)
    attempt = function(world, "s")
    record(world, attempt, subscribing(since=0))
    if not is_behind:
        deliver(world)
    publish(world, "new")
    records: list[FunctionRecord] = [
        TopicUnsubscribe(call="2", topic=TOPIC, channel=ALL),
        *([subscribing("3", since=0)] * begins_again),
    ]
    others.append(lambda: record(world, attempt, *records, seen=2 if is_behind else 3))

    done = world.do(TopicDeliver(topic=TOPIC))

    assert others == []
    # One that was behind, and begins again, is the same as before: it may catch up at once.
    assert done.deliveries == (is_behind and begins_again)
    deliver(world)
    before = [] if is_behind else [("stored", 1)]
    assert received(world, "s") == [*before, *([("stored", 1), ("new", 2)] if begins_again else [])]


def test_expired_messages_are_deleted_once_they_were_delivered(world: World) -> None:
    short = attrs.evolve(message("short"), keep=DAY)
    world.do(TopicPublish(message=short, id="short"))
    publish(world, "long")
    world.wait(2 * 86_400)
    deliver(world)  # it was kept until now
    deliver(world)
    assert [one.id for one in world.tables().topic_messages] == ["long"]


def test_a_topic_keeps_the_last_messages_only(world: World) -> None:
    """Those that are subscribed get them all, and those that subscribe later the ones that are kept."""
    subscriber(world, "first")
    for text in "abcde":
        new = attrs.evolve(message(text), keep_last=2)
        world.do(TopicPublish(message=new, id=text))
    deliver(world)
    assert [name.id for name in world.tables().topic_messages] == ["d", "e"]
    assert [text for text, _ in received(world, "first")] == list("abcde")
    subscriber(world, "late", since=0)
    deliver(world)
    assert [text for text, _ in received(world, "late")] == ["d", "e"]
    publish(world, "f")  # of a program with an older setting: it changes nothing
    deliver(world)
    assert [name.id for name in world.tables().topic_messages] == ["d", "e", "f"]


@pytest.mark.parametrize("most", [0, -1, KEEP_LAST_MAX + 1])
def test_how_many_messages_are_kept_has_bounds(most: int) -> None:
    with pytest.raises(InvalidCommandError, match="keep_last"):
        attrs.evolve(message("x"), keep_last=most)


def test_a_message_does_not_expire_for_a_subscription_that_begins_during_a_delivery(world: World) -> None:
    """It catches up once the message that some subscribers have is delivered to all; until then, nothing is deleted."""
    for name in ("a", "b"):
        subscriber(world, name)
    deliver(world)
    late = function(world, "late")
    world.do(TopicPublish(message=attrs.evolve(message("short"), keep=DAY), id="short"))
    deliver(world)
    publish(world, "m")
    assert world.do(TopicDeliver(topic=TOPIC, limit=1)).more
    record(world, late, subscribing(since=0))
    world.wait(2 * 86_400)  # it expires
    deliver(world, limit=1)
    assert [text for text, _ in received(world, "late")] == ["short", "m"]
    deliver(world)
    assert [one.id for one in world.tables().topic_messages] == ["m"]


def test_maintenance_delivers_what_is_left_of_any_topic(world: World) -> None:
    subscriber(world, "s")
    publish(world, "a")
    world.do(TopicPublish(namespace="team", message=message("b"), id="b"))
    after, topics = "", list[str | None]()
    for _ in range(9):
        done = world.do(TopicDeliver(after=after))
        topics.append(done.topic)
        after = done.next or ""
    assert topics[:4] == [
        TOPIC,
        TOPIC,
        TOPIC,
        None,
    ]  # it catches up, then gets the message; then the other namespace
    assert received(world, "s") == [("a", 1)]
    assert world.tables().topics[TopicName("team", TOPIC)].last == 1


@pytest.mark.parametrize(
    "damage",
    [
        {"last": -1},
        {"last": "x"},
        {"last": 2**62},
        {"after_subscription": "{"},
        {"after_subscription": "[1,2]"},
    ],
)
def test_a_topic_whose_row_is_damaged_holds_up_no_other(world: World, damage: dict[str, Any]) -> None:
    publish(world, "a")
    deliver(world)
    publish(world, "b")
    world.do(TopicPublish(message=attrs.evolve(message("c"), topic="other"), id="c"))
    row = world.tables().topics[TopicName("default", TOPIC)]
    world.put(Update(attrs.evolve(row, **damage)))
    first = world.kernel.dispatch(TopicDeliver())
    assert (first.topic, first.deliveries) == (TOPIC, 0)
    assert "the row of topic 'orders' has the" in str(first.problem)
    second = world.kernel.dispatch(TopicDeliver(after=first.next or ""))
    assert (second.topic, second.problem) == ("other", None)


def test_a_message_for_a_run_of_another_namespace_does_not_reach_it(world: World) -> None:
    subscriber(world, "s")
    world.do(TopicPublish(namespace="team", message=message("b"), id="b"))
    world.do(TopicDeliver(namespace="team", topic=TOPIC))
    deliver(world)
    assert received(world, "s") == []


@pytest.mark.parametrize(
    "wrong",
    [
        attrs.evolve(message("a"), topic=""),
        attrs.evolve(message("a"), topic="x" * 101),
        attrs.evolve(message("a"), attributes="[]"),
        attrs.evolve(message("a"), attributes="{"),
        attrs.evolve(message("a"), attributes='{"a":1}'),
        attrs.evolve(
            message("a"), attributes=canonical({str(number): "x" for number in range(KEYS_MAX + 1)})
        ),
        attrs.evolve(message("a"), attributes=canonical({"a": "x" * 1_001})),
        attrs.evolve(message("a"), payload="{"),
        attrs.evolve(message("a"), payload='"' + "x" * 262_144 + '"'),
    ],
)
def test_a_message_that_is_not_valid_is_refused(world: World, wrong: NewTopicMessage) -> None:
    attempt = function(world, "f")
    for command in (
        TopicPublish(message=wrong),
        JobRecord(
            job=attempt.job, epoch=attempt.epoch, seen=1, records=(TopicSend(call="1", message=wrong),)
        ),
    ):
        with world.unchanged(), pytest.raises(InvalidCommandError):
            world.do(command)


@pytest.mark.parametrize("keep", [0, -1, 400 * DAY])
def test_how_long_a_message_is_kept_has_bounds(keep: int) -> None:
    with pytest.raises(InvalidCommandError):
        attrs.evolve(message("a"), keep=keep)


def test_a_subscription_names_the_channel_of_its_selection(world: World) -> None:
    attempt = function(world, "f")
    with world.unchanged(), pytest.raises(InvalidCommandError, match="the channel of this subscription"):
        record(world, attempt, attrs.evolve(subscribing(country="nz"), channel=ALL))


@pytest.mark.parametrize(("limit", "message_id"), [(0, "a"), (10_001, "a"), (1, "")])
def test_limits_and_ids_have_bounds(world: World, limit: int, message_id: str) -> None:
    command = (
        TopicDeliver(topic=TOPIC, limit=limit) if message_id else TopicPublish(message=message("a"), id="")
    )
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(command)


def test_the_channels_of_topics_take_no_signals(world: World) -> None:
    subscriber(world, "s")
    with world.unchanged(), pytest.raises(InvalidCommandError, match="publish to the topic instead"):
        world.do(RunSignal(run_id="s", signal=ChannelMessage(channel=ALL, payload=payload("go"))))


# How subscriptions select messages ------------------------------------------------------------------------------

TEXTS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["x", "y", "1"]), max_size=KEYS_MAX)


@given(TEXTS, TEXTS)
def test_the_digests_of_a_message_are_those_of_the_selections_that_it_fits(
    selected: dict[str, str], attributes: dict[str, str]
) -> None:
    fits = digest_of(selection_text(selected)) in digests_of(attributes)
    assert fits == is_selected(selected, attributes)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.sampled_from(["nz", "fr", ""])),
            st.tuples(st.just("subscribe"), st.sampled_from(["nz", "fr", ""])),
            st.tuples(st.just("deliver"), st.integers(1, 4)),
        ),
        max_size=25,
    )
)
def test_each_subscription_gets_what_it_selects_in_one_order(steps: Sequence[tuple[str, str | int]]) -> None:
    """Whatever the order of publications, subscriptions and parts of deliveries is."""
    world = new_world()
    attempts = {
        number: function(world, f"{number * 7 % 10}-{number}")
        for number, (what, _) in enumerate(steps)
        if what == "subscribe"
    }
    published: list[tuple[str, str]] = []
    subscribers: list[tuple[str, str]] = []
    for number, (what, which) in enumerate(steps):
        country = str(which)
        selected = {"country": country} if country else {}
        match what:
            case "publish":
                publish(world, f"m{number}", **selected)
                published.append((f"m{number}", country))
            case "subscribe":
                record(world, attempts[number], subscribing(since=0, **selected))
                subscribers.append((f"{number * 7 % 10}-{number}", country))
            case _:
                assert isinstance(which, int)
                world.do(TopicDeliver(topic=TOPIC, limit=which))
    deliver(world, limit=2)
    numbers = {text: number for run, _ in subscribers for text, number in received(world, run)}
    for run, country in subscribers:
        got = received(world, run)
        assert {text for text, _ in got} == {text for text, of in published if country in ("", of)}
        assert [number for _, number in got] == sorted({number or 0 for _, number in got})
        assert all(numbers[text] == number for text, number in got)


def test_names_of_subscriptions_are_unique_by_run_and_channel() -> None:
    assert SubscriptionName("n", "r", "c") < SubscriptionName("n", "r", "d") < SubscriptionName("n", "s", "a")
