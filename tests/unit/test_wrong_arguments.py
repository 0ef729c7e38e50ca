"""Arguments of the wrong type raise a typed error at the call that says what to do.

Type checkers find these too, so everything here is `Any`.
"""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import (
    Engine,
    NotReady,
    Pipeline,
    Retry,
    RetryAfter,
    ServerlessHost,
    StageContext,
    Suspended,
    Worker,
    each,
    stage,
    suspend,
)
from holdfast.adapters.sinks.webhook import WebhookSink
from holdfast.client import Actor
from holdfast.plugins import Price
from holdfast.ports.errors import (
    DefinitionError,
    InvalidArgumentError,
    InvalidFilterError,
    RunFailedError,
)
from holdfast.testing import Effects, ManualClock, World, check_history, recorded

SOON = timedelta(seconds=1)


@stage
def one(text: str) -> str:
    return text


@stage.external
def far(ctx: StageContext, text: str) -> Suspended[str, str]:
    return suspend(text, check_after=SOON)


@far.check
def far_away(ctx: StageContext, text: str) -> str | NotReady:
    return text


def plain(text: str) -> str:
    return text


SHOP = Pipeline("shop", input=str).pipe(one)
EMPTY = Pipeline("other", input=str)
Open: Any = Engine.open
A: Any = SHOP
ENGINE: Any = Engine.open("memory://", workflows=[SHOP])
SYNC: Any = ENGINE.sync
RUN: Any = SYNC.start(SHOP("a"), id="a")
OTHER: Any = EMPTY
checked: Any = far_away
work: Any = Worker
serve: Any = ServerlessHost
a_world: Any = World
WORLD: Any = World([SHOP])
the_stage: Any = stage
every: Any = each
later: Any = suspend
not_yet: Any = NotReady
retry_after: Any = RetryAfter
retry: Any = Retry
webhook: Any = WebhookSink
clock: Any = ManualClock
effects: Any = Effects()
actor: Any = Actor
price: Any = Price
compare: Any = check_history
record: Any = recorded

Case = tuple[Callable[[], object], str]

ARGUMENTS: list[Case] = [
    # Engines
    (lambda: Open(5), "url is 5; it must be a URL in a string: memory://"),
    (
        lambda: Open("memory://", workflows=A),
        r"workflows is <pipeline shop.*; it must be a list of workflows",
    ),
    (lambda: Open("memory://", workflows=None), "workflows is None"),
    (lambda: Open("memory://", workflows="shop"), "workflows is 'shop'"),
    (lambda: Open("memory://", blobs=5), "blobs is 5; it must be a URL in a string, such as file:///"),
    (lambda: Open("memory://", transport=7), "transport is 7; it must be a URL in a string"),
    (lambda: Open("memory://", scheduler=7), "scheduler is 7; it must be a URL in a string"),
    (lambda: Open("memory://", namespace=5), "namespace is 5; it must be a string"),
    (lambda: Open("memory://", migrate="no"), "migrate is 'no'; it must be True or False"),
    (lambda: Open("memory://", prices=[1]), r"prices is \[1\]; it must be a dict of Price"),
    (lambda: Open("memory://", prices={"m": 1}), r"prices\['m'\] is 1; it must be a Price"),
    (lambda: Open("memory://", redact="all"), "redact is 'all'; it must be a function"),
    (lambda: Open("memory://", interceptors=5), "interceptors is 5; it must be a list of interceptors"),
    (lambda: Engine.on(OTHER), r"stores is .*; it must be stores, as open_stores\(url\) gives them"),
    (
        lambda: SYNC.start(A),
        r"expects the call of a workflow, .* got .*; call it with its input: shop\(...\)",
    ),
    (lambda: SYNC.start(A("a"), overrides=None), "overrides is None; it must be a list of stages"),
    (lambda: SYNC.start(A("a"), prioritty=1), "start has no option 'prioritty'.*mean 'priority'"),
    (A, "'shop' needs its input, a str"),
    (lambda: ENGINE.handle("shop", "a"), "workflow is 'shop'; it must be a workflow, .* not its name"),
    (lambda: SYNC.handle("shop", "a"), "workflow is 'shop'; it must be a workflow, .* not its name"),
    (lambda: SYNC.handle(A, 5), "id is 5; it must be a string"),
    (lambda: SYNC.wake(5), "key is 5; it must be a string"),
    (lambda: SYNC.cancel_all(reason=5), "cancel_all: reason is 5"),
    (lambda: SYNC.rerun_all(5), "stage is 5; it must be a stage, or the name of one"),
    (lambda: SYNC.rerun_all(version=5), "version is 5"),
    (lambda: SYNC.register_sink(5), "name is 5; it must be a string"),
    (lambda: SYNC.register_sink("log", types="run.failed"), "types is 'run.failed'; it must be a list"),
    (lambda: SYNC.register_sink("log", since=5), "since is 5; it must be an aware datetime"),
    (lambda: SYNC.remove_sink(None), "name is None"),
    (lambda: SYNC.flush(["log"]), r"sinks is \['log'\]; it must be a dict of sinks by name"),
    (lambda: SYNC.flush({"log": 3}), r"sinks\['log'\] is 3; it must be an event sink"),
    (lambda: SYNC.dead_letters(sink=None), "sink is None"),
    (lambda: SYNC.replay_dead_letters(run_id=5), "run_id is 5"),
    (lambda: SYNC.doctor(limit="x"), "limit is 'x'; it must be an integer of at least 0"),
    (lambda: SYNC.doctor(repair="yes"), "repair is 'yes'; it must be True or False"),
    # Handles
    (lambda: RUN.result(timeout="5"), "timeout is '5'; it must be a timedelta or a number of seconds"),
    (lambda: RUN.history(after="1"), "after is '1'; it must be an integer of at least 0"),
    (lambda: RUN.history(limit=0), "limit is 0"),
    (lambda: RUN.annotate("done"), "said is 'done'; it must be a dict"),
    (lambda: RUN.annotate({"a": 1}, actor="ann"), r"actor is 'ann'; it must be an Actor"),
    (lambda: RUN.annotate({"a": 1}, reason=5), "reason is 5"),
    (lambda: RUN.artifact(5), "name is 5"),
    (lambda: RUN.ai_totals(topic=5), "topic is 5"),
    (lambda: RUN.cancel(reason=5), "reason is 5"),
    (lambda: RUN.terminate(reason=5), "reason is 5"),
    (lambda: RUN.pause(reason=5), "reason is 5"),
    (lambda: RUN.resume(reason=5), "reason is 5"),
    (lambda: RUN.rerun_from(5), "point is 5; it must be a stage, a step, or the name of one, or None"),
    (lambda: RUN.preview_rerun(plain), "point is <function plain"),
    (lambda: RUN.wake(5), "stage is 5"),
    (lambda: RUN.wake("one", item="x"), "item is 'x'"),
    # Hosts
    (lambda: work("x"), r"engine is 'x'; it must be an Engine, as Engine.open\(url, workflows=\[...\]\)"),
    (lambda: work(ENGINE, concurrency="5"), "concurrency is '5'; it must be an integer of at least 1"),
    (lambda: work(ENGINE, queues=["llm"]), r"queues is \['llm'\]; it must be a dict of limits.*only_queues"),
    (lambda: work(ENGINE, queues={"llm": "3"}), r"queues\['llm'\] is '3'; it must be an integer"),
    (lambda: work(ENGINE, only_queues="llm"), r"only_queues is 'llm'; it must be a list"),
    (lambda: work(ENGINE, only_queues=["a b"]), "queue is 'a b'; it must be a queue's name: 1 to 128"),
    (lambda: work(ENGINE, sinks={"a": 3}), r"sinks\['a'\] is 3; it must be an event sink"),
    (lambda: work(ENGINE, lease="30s"), "lease is '30s'; it must be a timedelta or a number of seconds"),
    (lambda: serve("x"), "engine is 'x'; it must be an Engine"),
    (lambda: serve(ENGINE, time_limit="x"), "time_limit is 'x'; it must be a timedelta or a number"),
    (lambda: serve(ENGINE, heartbeat_interval=0), "heartbeat_interval is 0"),
    (lambda: serve(ENGINE, sinks=[1]), r"sinks is \[1\]"),
    (lambda: serve(ENGINE).process_available_jobs(max_jobs="5"), "max_jobs is '5'"),
    (lambda: webhook(5), "url is 5; it must be a string"),
    (
        lambda: webhook("http://x/", headers=5),
        "headers are not shown here; it must be a dict of strings to strings",
    ),
    (lambda: webhook("http://x/", timeout=30), "timeout is 30; .* at most"),
    # What stages say
    (lambda: later("x", check_after="1"), "check_after is '1'; it must be a timedelta or a number"),
    (lambda: later("x", check_after=1, give_up_at=5), "give_up_at is 5; it must be an aware datetime"),
    (lambda: later("x", check_after=1, key=5), "key is 5"),
    (lambda: not_yet("soon"), "check_after is 'soon'"),
    (lambda: retry_after("soon"), "wait is 'soon'; it must be a timedelta or a number of seconds"),
    (lambda: price(input=1.5), "input is 1.5; it must be a Decimal"),
    (lambda: price(input=Decimal("0.0000001")), "a price with up to 6 decimals"),
    (lambda: actor(5), "kind is 5; it must be a string"),
    (lambda: the_stage(quue="llm"), r"stage has no option 'quue' \(did you mean 'queue'\?\)"),
    (lambda: OTHER.map(one, ovr=one), "map has no option 'ovr'"),
    # The test kit
    (lambda: a_world(A), "workflows is <pipeline shop"),
    (lambda: a_world(start=5), "start is 5; it must be an aware datetime"),
    (lambda: a_world(horizon="1d"), "horizon is '1d'"),
    (lambda: a_world(sinks=["log"]), r"sinks is \['log'\]"),
    (lambda: a_world(blobs="file:///x"), "blobs is 'file:///x'; it must be a blob store"),
    (lambda: a_world(interceptors=5), "interceptors is 5"),
    (lambda: WORLD.advance("5"), "by is '5'"),
    (lambda: WORLD.advance(hours="5"), "hours is '5'; it must be a number"),
    (lambda: WORLD.advance(-1), "advance: invalid duration"),
    (lambda: WORLD.run_until_quiet(within="5"), "within is '5'"),
    (
        lambda: WORLD.stub("one"),
        "stage is 'one'; it must be a stage or a step, not its name or its function",
    ),
    (lambda: WORLD.stub(plain), "stage is <function plain"),
    (
        lambda: WORLD.stub(one).fails("boom"),
        r"error is 'boom'; it must be an exception, as ValueError\('boom'\)",
    ),
    (lambda: WORLD.stub(one).fails(KeyboardInterrupt), "error is <class 'KeyboardInterrupt'>"),
    (lambda: WORLD.stub(one).does("x"), "fn is 'x'; it must be a function"),
    (lambda: WORLD.stub(one).fails(ValueError, times="2"), "times is '2'; it must be an integer"),
    (lambda: WORLD.stub_check(one), "stage 'one' has no check"),
    (lambda: WORLD.calls("one"), "stage is 'one'"),
    (lambda: WORLD.checks(one), "stage 'one' has no check"),
    (lambda: WORLD.asleep("a"), "run is 'a'; it must be the handle of a run"),
    (lambda: WORLD.published(5), "type is 5"),
    (lambda: WORLD.start("shop"), "expects the call of a workflow, .* got 'shop'"),
    (lambda: clock(5), "start is 5; it must be an aware datetime"),
    (lambda: clock().advance("5"), "by is '5'"),
    (lambda: clock().jump("5"), "by is '5'"),
    (lambda: effects.happen(5), "what is 5; it must be a string"),
    (lambda: effects.happen("x", "y"), "do is 'y'; it must be a function"),
    (lambda: record("a"), "run is 'a'; it must be the handle of a run"),
    (lambda: compare("{}", "x.json"), "path is 'x.json'; it must be a pathlib.Path"),
]


@pytest.mark.parametrize(("call", "message"), ARGUMENTS, ids=[message for _, message in ARGUMENTS])
def test_an_argument_that_can_not_be_is_told(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        call()


DEFINITIONS: list[Case] = [
    (
        lambda: OTHER.pipe(A),
        r"takes stages, not <pipeline shop.*; make it one with stage\(pipeline\)",
    ),
    (lambda: OTHER.pipe(plain), "make it one with @stage"),
    (lambda: OTHER.parallel(one, A), r"make it one with stage\(pipeline\)"),
    (lambda: OTHER.map(A), r"each takes a stage, not .*; make it one with stage\(pipeline\)"),
    (lambda: every(plain), "each takes a stage, not .*; make it one with @stage"),
    (lambda: OTHER.when(A, one), "when takes a sync function, not <pipeline shop"),
    (lambda: Open("memory://", workflows=[one]), r"is not a workflow: .*Pipeline\(...\).pipe\(one\)"),
    (
        lambda: Open("memory://", workflows=[5]),
        "5 is not a workflow: pass functions with @workflow, and pipelines",
    ),
    (lambda: the_stage(timeout="5"), "timeout is '5'; it must be a timedelta or a number of seconds"),
    (lambda: retry(wait="5"), "wait is '5'"),
    (lambda: checked.check(timeout="5"), "timeout is '5'"),
]


@pytest.mark.parametrize(("call", "message"), DEFINITIONS, ids=[message for _, message in DEFINITIONS])
def test_a_workflow_that_is_put_together_wrongly_is_told(call: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: SYNC.runs(workflow=5),
        lambda: SYNC.runs(workflow=one),
        lambda: SYNC.runs(after=b"x"),
        lambda: RUN.logs(stage=5),
        lambda: RUN.logs(item="x"),
        lambda: RUN.ai_calls(topic=5),
        lambda: RUN.ai_calls(model=one),
        lambda: RUN.ai_calls(texts="x"),
        lambda: RUN.annotations(after=5),
    ],
)
def test_what_nothing_can_be_asked_for_by_is_told_before_the_store_is_asked(
    call: Callable[[], object],
) -> None:
    with pytest.raises(InvalidFilterError):
        call()


BODIES: list[tuple[Callable[[Any], object], str]] = [
    (lambda ctx: ctx.output_of("one"), "stage is 'one'; it must be a stage of the pipeline, and not its"),
    (lambda ctx: ctx.outputs_of(plain), "stage is <function plain"),
    (lambda ctx: ctx.progress("1", 2), "done is '1'; it must be a number"),
    (lambda ctx: ctx.progress(1, 2, 3), "message is 3"),
    (lambda ctx: ctx.log(5), "message is 5; it must be a string"),
    (lambda ctx: ctx.annotate(5, 1), "name is 5"),
    (lambda ctx: ctx.annotate("a", 1, scope="all"), "scope is 'all'; it must be one of 'run', 'stage'"),
    (lambda ctx: ctx.annotate("a", 1, actor="ann"), "actor is 'ann'"),
    (lambda ctx: ctx.publish(5), "type is 5"),
    (lambda ctx: ctx.blobs.put("a", "text"), "data is 'text'; it must be bytes"),
    (lambda ctx: ctx.blobs.get("a"), "ref is 'a'; it must be the BlobRef that put returned"),
    (lambda ctx: ctx.artifacts.put("a", "text"), "data is 'text'; it must be bytes"),
    (lambda ctx: ctx.artifacts.get(5), "name is 5"),
    (lambda ctx: ctx.ai.record(topic=5, model="m"), "topic is 5"),
    (lambda ctx: ctx.ai.record(topic="t", model="m", cost=0.5), "cost is 0.5; it must be exact"),
    (lambda ctx: ctx.ai.record(topic="t", model="m", duration="5"), "duration is '5'"),
]


@pytest.mark.parametrize(("call", "message"), BODIES, ids=[message for _, message in BODIES])
def test_a_body_that_asks_its_context_wrongly_fails_with_what_to_do(
    call: Callable[[Any], object], message: str, world: World
) -> None:
    @stage(retry=Retry(attempts=1))
    def ask(ctx: StageContext, text: str) -> str:
        call(ctx)
        return text

    with pytest.raises(RunFailedError, match=f"InvalidArgumentError: .*{message}"):
        world.run(Pipeline("asking", input=str).pipe(ask)("a"))


def test_an_async_engine_in_a_sync_with_says_what_to_write() -> None:
    engine: Any = Engine.open("memory://")
    with pytest.raises(TypeError, match=r"write `async with engine:`, or `with engine\.sync:` in"), engine:
        pass


@pytest.mark.anyio
async def test_a_sync_engine_in_an_async_with_says_what_to_write() -> None:
    engine: Any = Engine.open("memory://").sync
    with pytest.raises(TypeError, match=r"write `with engine\.sync:`, or `async with engine:` in"):
        async with engine:
            pass
