"""The random workload of topics: runs that publish and subscribe, while they are cancelled, paused and run again."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias, cast

import attrs

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import Workflow, random, sleep, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.authoring.topics import Topic, TopicSelection
from holdfast.kernel.authoring.triggers import Trigger
from holdfast.kernel.history import events
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import InvalidCommandError, TriggerNotFoundError
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import ACTIVE, Run, RunStatus
from holdfast.ports.records.topic import MessageName
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.fibers import START
from holdfast.testing.simulation.players import operate
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.step_behaviour import PATIENT
from holdfast.testing.simulation.topic_ledger import TopicLedger

_SECOND: Final = 1_000_000
_COUNTRIES: Final = ("nz", "fr")
_STOP: Final = "stop"
_FAILS: Final = 0.6


@attrs.frozen
class _Order:
    id: str
    country: str


_ORDERS: Final = Topic("orders", _Order, keys=("country",))
_OFFERS: Final = Topic("offers", _Order, keys={"country": "country", "offer": "id"}, keep=4)
"""Its messages are kept for a few seconds."""
_DEALS: Final = Topic("deals", _Order, keys=("country",), keep_last=2)
"""Its last messages are kept."""
_TOPICS: Final = {one.name: one for one in (_ORDERS, _OFFERS, _DEALS)}

_Topics: TypeAlias = Sequence[Topic[_Order]]
"""The topics of a scenario, that of most followers and messages twice."""
_Part: TypeAlias = tuple[str, float]
"""A part of a script: what to do, and a number or a duration."""


@attrs.frozen(kw_only=True)
class _Follower:
    """A durable function that subscribes, by its draws."""

    name: str
    topic: Topic[_Order]
    country: str | None
    """It selects the messages of this country; None: of all."""
    group: str | None
    """It is a member of this group; None: it gets every message."""
    since: datetime | None
    generations: Sequence[Sequence[_Part]]
    """The scripts of its generations: each but the last continues as new."""

    @property
    def selection(self) -> TopicSelection[_Order]:
        return self.topic if self.country is None else self.topic.where(country=self.country)

    @property
    def closes(self) -> bool:
        """Whether it drops messages that it has not received."""
        return self.group is None and any(
            what == "close" for script in self.generations for what, _ in script
        )


@step(retry=PATIENT)
async def _think(number: int) -> int:
    return number


def _draw_follower(draw: Random, topics: _Topics, number: int) -> _Follower:
    generations: list[list[_Part]] = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        script: list[_Part] = []
        for _ in range(draw.choice((0, 1, 3, 6))):
            what = draw.choice(("subscribe", "receive", "receive", "receive", "think", "sleep", "publish"))
            if draw.random() < 0.1:
                what = draw.choice(("close", "close", "fail"))
            script.append((what, draw.choice((0.2, 1.0, 3.0))))
        generations.append(script)
    return _Follower(
        name=f"follower{number}",
        topic=draw.choice(topics),
        country=draw.choice((None, *_COUNTRIES)),
        group=draw.choice((None, None, "packers", "packers", "others")),
        since=draw.choice((None, None, instant(0), instant(START + 8 * _SECOND))),
        generations=generations,
    )


def _following(one: _Follower) -> Workflow[[int], list[str]]:
    @workflow(name=one.name, retry=Retry(attempts=5, wait=timedelta(seconds=1)))
    async def follow(turn: int) -> list[str]:
        got: list[str] = []

        async def receive(seconds: float | None) -> bool:
            """Receive a message; return whether it is the last one."""
            try:
                if one.group is not None:
                    members = one.selection.group(one.group)
                    order = await members.receive(timeout=seconds, since=one.since)
                elif one.since is None:
                    order = await one.selection.receive(timeout=seconds)
                else:
                    order = await (await one.selection.subscribe(since=one.since)).receive(timeout=seconds)
            except TimeoutError:
                return False
            got.append(order.id)
            return order.id.startswith(_STOP)

        for what, seconds in one.generations[turn]:
            match what:
                case "subscribe" | "close" if one.group is not None:
                    await receive(0)
                case "subscribe":
                    await one.selection.subscribe(since=one.since)
                case "receive":
                    if await receive(seconds):
                        return got
                case "think":
                    await _think(turn)
                case "publish":
                    await _ORDERS.publish(_Order(f"{one.name}-{turn}-{seconds}", _COUNTRIES[turn % 2]))
                case "fail":
                    if random().random() < _FAILS:
                        raise ConnectionError("this attempt was unlucky")
                case "close":
                    await (await one.selection.subscribe(since=one.since)).close()
                case _:
                    await sleep(timedelta(seconds=seconds))
        if turn + 1 < len(one.generations):
            return await continue_as_new(follow(turn + 1))
        while not await receive(None):
            pass
        return got

    return cast("Workflow[[int], list[str]]", follow)


def _publishing(draw: Random, topics: _Topics, number: int) -> Workflow[[int], int]:
    script = [
        (draw.choice(("burst", "one", "again", "sleep", "think")), draw.choice((1, 2, 4)))
        for _ in range(draw.choice((2, 5)))
    ]
    countries = [draw.choice(_COUNTRIES) for _ in range(4)]
    topic = draw.choice(topics)

    @workflow(name=f"publisher{number}")
    async def publish(start: int) -> int:
        for turn, (what, amount) in enumerate(script):
            orders = [_Order(f"p{number}-{turn}-{index}", countries[index]) for index in range(amount)]
            match what:
                case "burst":
                    await asyncio.gather(*(topic.publish(order) for order in orders))
                case "one":
                    await topic.publish(orders[0], id=orders[0].id)
                case "again":
                    await topic.publish(_Order(f"again-{number}", countries[0]), id=f"again-{number}")
                case "think":
                    await _think(start)
                case _:
                    await sleep(timedelta(seconds=amount))
        return start

    return cast("Workflow[[int], int]", publish)


def draw_topics(draw: Random) -> tuple[Scenario, Sizes]:
    """Draw everything but the faults."""
    topics = (_ORDERS, _ORDERS, draw.choice((_OFFERS, _OFFERS, _DEALS)))
    followers = [_draw_follower(draw, topics, number) for number in range(draw.choice((2, 3, 5, 8)))]
    follow = [_following(one) for one in followers]
    publish = [_publishing(draw, topics, number) for number in range(draw.choice((0, 1, 2)))]
    workflows: list[Workflow[..., Any]] = [*follow, *publish]
    actions = [
        ClientAction(
            at=draw.randrange(10 * _SECOND if index < len(followers) else 20 * _SECOND),
            what=f"start {one.name}",
            do=partial(_started, one=one),
            is_keyed=True,
        )
        for index, one in enumerate(workflows)
    ]
    triggers = [_draw_trigger(draw, topics, number) for number in range(draw.choice((0, 1, 2)))]
    actions += _publications(draw, topics)
    actions += _actions_on_triggers(draw, triggers)
    actions += _operations(draw, workflows)
    actions.sort(key=lambda action: action.at)
    clients = [actions[start::3] for start in range(3)]
    done = [f"done {index}" for index in range(3)]
    names = [one.name for one in triggers]
    for index, deeds in enumerate(clients):
        deeds.append(ClientAction(at=45 * _SECOND, what=f"resume {index}", do=partial(_resume, names)))
        last = _Order(done[index], "-")
        deeds.append(ClientAction(at=45 * _SECOND, what=done[index], do=partial(_publish, _ORDERS, last)))
    since = {one.name: None if one.since is None else micros(one.since) for one in followers}
    ledger = TopicLedger(
        lambda run: run.created_at if since[run.workflow] is None else since[run.workflow] or 0
    )
    scenario = Scenario(
        workflows=[*workflows, _pack],
        clients=clients,
        missing=partial(_stops, {one.name: one for one in followers}, done),
        at_end=lambda tables: [
            *ledger.wrong(tables),
            *result_violations(
                tables,
                {one.name for one in followers if not one.closes},
                {one.name for one in followers if one.group is not None},
            ),
        ],
        topics=ledger,
    )
    sizes = Sizes(
        workers=draw.choice((1, 2, 3)),
        functions=draw.choice((0, 0, 1)),
        concurrency=draw.choice((1, 4)),
        lease=draw.choice((10.0, 15.0)),
        poll_interval=draw.choice((1.0, 2.0)),
        tick_interval=10.0,
        faults_for=draw.choice((20.0, 40.0)),
        function_cache=draw.choice((0, 2, 100)),
        topic_deliveries=draw.choice((1, 2, 3, 500)),
    )
    return scenario, sizes


def _publications(draw: Random, topics: _Topics) -> Iterator[ClientAction]:
    for number in range(draw.choice((5, 15, 30))):
        topic = draw.choice(topics)
        order = _Order(f"c{number}", draw.choice(_COUNTRIES))
        at = draw.randrange(35 * _SECOND)
        do = partial(_publish, topic, order)
        yield ClientAction(at=at, what=f"publish {number}", do=do, is_keyed=True)
        if draw.random() < 0.2:
            yield ClientAction(at=at + draw.randrange(2 * _SECOND), what=f"publish {number} again", do=do)


@workflow
async def _pack(order: _Order) -> str:
    await _think(1)
    return order.id


def _draw_trigger(draw: Random, topics: _Topics, number: int) -> Trigger[str]:
    topic, country = draw.choice(topics[1:]), draw.choice((None, *_COUNTRIES))
    messages = cast("TopicSelection[object]", topic if country is None else topic.where(country=country))
    since = draw.choice((None, None, instant(0), instant(START + 8 * _SECOND)))
    return Trigger(f"trigger{number}", messages, _pack, since=since)


def _actions_on_triggers(draw: Random, triggers: Sequence[Trigger[str]]) -> Iterator[ClientAction]:
    for one in triggers:
        at = draw.randrange(15 * _SECOND)
        yield ClientAction(at=at, what=f"put {one.name}", do=partial(_put, one))
        acts = (
            (),
            ("pause", "resume"),
            ("pause", "skip"),
            ("change",),
            ("again",),
            ("again", "change at once"),
        )
        for what in draw.choice(acts):
            at += (
                draw.randrange(_SECOND // 5)
                if what == "change at once"
                else draw.randrange(_SECOND, 12 * _SECOND)
            )
            do = partial(_act_on_trigger, one, what)
            yield ClientAction(at=at, what=f"{what} {one.name}", do=do)


def _put(trigger: Trigger[str], engine: SyncEngine) -> object:
    # A `since` that is still to come by the clock of this process is refused.
    with suppress(InvalidCommandError):
        return engine.triggers.put(trigger).name
    return None


def _act_on_trigger(trigger: Trigger[str], what: str, engine: SyncEngine) -> object:
    with suppress(TriggerNotFoundError):
        match what:
            case "pause":
                return engine.triggers.pause(trigger.name, reason="on purpose").state
            case "resume":
                return engine.triggers.resume(trigger.name).state
            case "skip":
                return engine.triggers.resume(trigger.name, skip=True).state
            case "change" | "change at once":
                return engine.triggers.put(attrs.evolve(trigger, since=None, priority=3)).name
            case _:
                return engine.triggers.put(attrs.evolve(trigger, since=instant(0))).name
    return None


def _operations(draw: Random, workflows: Sequence[Workflow[[int], Any]]) -> Iterator[ClientAction]:
    for _ in range(draw.choice((0, 0, 1, 3))):
        one = draw.choice(workflows)
        what = draw.choice(
            ("cancel", "terminate", "pause", "rerun", "rerun", "fork", "fork", "look", "again")
        )
        at = draw.randrange(_SECOND, 40 * _SECOND)
        act: Callable[[SyncEngine], object] = partial(_act, one=one, what=what, part=draw.random())
        yield ClientAction(at=at, what=f"{what} {one.name} at {at}", do=act)


def _started(engine: SyncEngine, *, one: Workflow[[int], Any]) -> object:
    return engine.start(one(0), id=one.name, idempotency_key=f"start {one.name}").id


def _publish(topic: Topic[_Order], order: _Order, engine: SyncEngine) -> object:
    return engine.publish(topic(order), id=order.id).id


def _act(engine: SyncEngine, *, one: Workflow[[int], Any], what: str, part: float) -> object:
    handle = engine.handle(one, one.name)
    match what:
        case "fork":
            return handle.rerun_from(row=1 + int(part * handle.row().last_row), reason="again").generation
        case "again":
            return engine.start(one(0), id=one.name, if_active="terminate", if_ended="rerun").id
        case _:
            return operate(handle, what)


def _resume(triggers: Sequence[str], engine: SyncEngine) -> object:
    for name in triggers:
        with suppress(TriggerNotFoundError):
            engine.triggers.resume(name)
    return engine.resume_all().changed


def _stops(
    followers: dict[str, _Follower], done: Sequence[str], tables: Tables
) -> Sequence[Callable[[SyncEngine], object]]:
    """Return the publications that end the functions which still wait, once all else has been published."""
    active = [run for run in tables.runs.values() if run.status in ACTIVE]
    is_done = all(MessageName("default", _ORDERS.name, one) in tables.topic_messages for one in done)
    if not is_done or any(run.workflow not in followers for run in active):
        return ()
    waiting = [followers[run.workflow] for run in active]
    # All that follow a topic get one message; of a group, each member needs one of its own.
    followed = {_place(one) for one in waiting if one.group is None}
    of_members = Counter(_place(one) for one in waiting if one.group is not None)
    return [
        partial(_stop, _TOPICS[topic], _Order(f"{_STOP} {country}", country))
        for topic, country in sorted((*followed, *of_members.elements()))
    ]


def _place(one: _Follower) -> tuple[str, str]:
    return one.topic.name, one.country or _COUNTRIES[0]


def _stop(topic: Topic[_Order], order: _Order, engine: SyncEngine) -> object:
    return engine.publish(topic(order)).id


def result_violations(tables: Tables, names: set[str], members: set[str]) -> Iterator[str]:
    """Yield functions whose result differs from the messages that the store counts as received (M1).

    A message of a group is for one call. So `members` may receive what a rerun has again after what is new.
    """
    for run in tables.runs.values():
        if run.workflow not in names or run.status is not RunStatus.COMPLETED or run.is_continued:
            continue
        rows = tables.whole_history(run)
        mailbox = mailbox_from(run.mailbox)
        left = {*mailbox.unread, *mailbox.returned}
        received = [
            _id_in(row) for row in rows if row.type == events.SignalReceived.type and row.number not in left
        ]
        returned = _result(run, rows)
        order = sorted if run.workflow in members else list
        if returned is not None and order(returned) != order(received):
            yield f"M1: run {run.key} returned the messages {returned}, but received {received}"


def _id_in(row: HistoryRow) -> str:
    assert row.payload is not None
    return cast("dict[str, str]", parse(row.payload.inline or "{}"))["id"]


def _result(run: Run, rows: Sequence[HistoryRow]) -> list[str] | None:
    ended = next((row for row in rows if row.run == run.key and row.type == events.StageCompleted.type), None)
    if ended is None or ended.payload is None or ended.payload.inline is None:
        return None
    return cast("list[str]", parse(ended.payload.inline))
