"""Random pipelines that use every kind of stage, with pure bodies, and the expected result of each."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, Final, Literal, cast

import attrs

from holdfast.kernel.authoring.completion_policies import AtLeast, PartialResults, TolerateFailures
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.external import ExternalStage, NotReady, Suspended, completed, suspend
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.options import BodyOptions, Fair, Rate, Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.stages import Stage
from holdfast.ports.clock import instant
from holdfast.ports.errors import GiveUp, RetryAfter
from holdfast.testing.simulation.external_service import ExternalService
from holdfast.testing.simulation.fibers import START, current, spend_time

_MODULUS: Final = 1_000_003
_BIG: Final = 70_000
REMOTE_SHARE: Final = 0.15
"""How many of the stages with a sync body are remote."""
Model = Callable[[int], "int | None"]
"""A function from a workflow's input to its expected result; None if the result depends on faults."""


@attrs.frozen(kw_only=True)
class BodyBehaviour:
    """The behaviour of a body: the first `fails` attempts fail in the way `how`; an attempt takes `seconds`.

    `reports` names the sorts of attempt output that it writes.
    """

    salt: int
    seconds: float = 0.0
    fails: int = 0
    how: Literal["error", "give_up", "retry_after", "hang"] = "error"
    reports: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class ExternalWork:
    """The behaviour of external work. Times are in seconds."""

    salt: int
    seconds: float
    """How long the external work takes."""
    check_after: float
    """The delay before the first check."""
    fails: int
    """The number of attempts of a check that fail first."""
    give_up_after: float | None
    """The time until the stage's `give_up_at`; None: it has none."""
    takes: float
    """How long submitting takes."""
    breaks: bool
    """Whether the external work fails."""


@attrs.frozen(kw_only=True)
class Program:
    """A workflow and its expected result."""

    workflow: Pipeline[int, int] | Workflow[[int], int]
    model: Model
    nodes: tuple[str, ...]
    """The names of all stages of a pipeline."""
    externals: tuple[str, ...] = ()
    """The names of its external stages."""
    children: tuple[str, ...] = ()
    """The names of its stages that are child runs."""
    receives: int = 0
    """The most messages that a durable function receives."""
    takes_updates: bool = False
    """Whether clients send updates to it."""


def mixed(salt: int, number: int) -> int:
    """Return the result of a body with this salt."""
    return (number * 31 + salt) % _MODULUS


def draw_program(
    random: Random,
    name: str,
    outside: ExternalService,
    *,
    version: str = "1",
    children: tuple[Program, ...] = (),
    parts: int = 4,
) -> Program:
    """Draw a pipeline of 1 to `parts` random parts."""
    defaults: dict[str, Any] = {"retry": draw_retry(random)}
    # A second stream, which leaves old seeds as they are.
    if Random(f"{name}/{version}/{parts}/fair").random() < 0.3:
        defaults["fair"] = Fair(by="colour")
    draft = _Draft(random, cast("Any", Pipeline(name, input=int, version=version, **defaults)), outside)
    makers: list[Callable[[], None]] = [
        draft.add_plain,
        draft.add_plain,
        draft.add_parallel,
        draft.add_map,
        draft.add_map,
        draft.add_choice,
        draft.add_external,
        draft.add_big,
    ]
    if children:
        makers += [lambda: draft.add_child(children), lambda: draft.add_child_map(children)]
    for _ in range(random.randrange(1, parts + 1)):
        random.choice(makers)()
    return Program(
        workflow=draft.pipeline,
        model=draft.model,
        nodes=tuple(draft.nodes),
        externals=tuple(draft.externals),
        children=tuple(draft.children),
    )


def draw_retry(random: Random) -> Retry:
    """Draw a retry policy."""
    return Retry(
        attempts=random.choice((1, 2, 3, 3, 5, 10)),
        wait=timedelta(seconds=random.choice((0, 0, 0.5, 2, 6))),
        wait_max=timedelta(seconds=8),  # idle hosts are slow to simulate
        backoff=random.choice((1.0, 2.0)),
        jitter=random.choice((0.0, 0.5)),
        by_error={KeyError: Retry(attempts=4, wait=timedelta(seconds=1))} if random.random() < 0.2 else {},
    )


class _Draft:
    """Builds a pipeline part by part, each from number to number."""

    def __init__(self, random: Random, pipeline: Pipeline[Any, Any], outside: ExternalService) -> None:
        self.pipeline: Pipeline[Any, Any] = pipeline
        self.model: Model = lambda number: number
        self.nodes: list[str] = []
        self.externals: list[str] = []
        self.children: list[str] = []
        self._random = random
        self._outside = outside

    # Parts ----------------------------------------------------------------------------------------------------------

    def add_plain(self) -> None:
        """Add a stage."""
        manner, made = self._body()
        self.pipeline = self.pipeline.pipe(made)
        self._then(lambda number: mixed(manner.salt, number))

    def add_parallel(self) -> None:
        """Add two or three parallel stages, and one that joins their results."""
        bodies = [self._body() for _ in range(self._random.randrange(2, 4))]
        nodes: list[Any] = [made for _, made in bodies]
        salts = [manner.salt for manner, _ in bodies]
        join = _join_two if len(bodies) == 2 else _join_three
        self.pipeline = (
            cast("Any", self.pipeline).parallel(*nodes).pipe(join.options(name=self._name("join")))
        )
        self._then(lambda number: sum(mixed(salt, number) for salt in salts) % _MODULUS)

    def add_map(self) -> None:
        """Add a mapped stage over a list, and one that adds up the results."""
        random = self._random
        manner, made = self._body(seconds_max=1.0)  # items may run one after the other, each with retries
        more = Random(f"{made.name}/{manner.salt}")
        if more.random() < 0.3:
            made = self._elsewhere(manner.salt, more).options(name=made.name)
        size = random.choice((0, 1, 2, 3, 5))
        spread = _spread(size).options(name=self._name("spread"))
        limit = random.choice((None, 1, 2, 3))
        enough = random.choice(
            (None, None, TolerateFailures(count=1), TolerateFailures(share=0.5), AtLeast(1), AtLeast(2))
        )
        self.pipeline = self.pipeline.pipe(spread)
        if enough is None:
            self.pipeline = self.pipeline.pipe(each(made, limit=limit)).pipe(
                _total.options(name=self._name("total"))
            )
            self._then(lambda number: sum(mixed(manner.salt, number + at) for at in range(size)) % _MODULUS)
        else:
            self.pipeline = self.pipeline.pipe(each(made, limit=limit, enough=enough)).pipe(
                _partial_total.options(name=self._name("total"))
            )
            self._then(lambda _: None)

    def add_choice(self) -> None:
        """Add a stage for odd numbers, and for even ones another or none."""
        manner, made = self._body()
        salt = manner.salt
        if self._random.random() < 0.5:
            self.pipeline = self.pipeline.when(_is_odd, made)
            self._then(lambda number: mixed(salt, number) if number % 2 else number)
            return
        other, otherwise = self._body()
        self.pipeline = self.pipeline.when(_is_odd, made, otherwise=otherwise)
        self._then(lambda number: mixed(salt if number % 2 else other.salt, number))

    def add_external(self) -> None:
        """Add an external stage."""
        random = self._random
        salt, name = random.randrange(1_000), self._name("external")
        more = Random(f"{name}/{salt}")  # a second stream: later additions do not change old seeds
        give_up_after = more.choice((None, None, 10.0, 30.0))
        work = ExternalWork(
            salt=salt,
            seconds=random.choice((0.0, 1.0, 8.0, 20.0 if give_up_after is None else 1_000_000.0)),
            check_after=random.choice((1.0, 4.0, 10.0)),
            fails=random.choice((0, 0, 1, 2)),
            give_up_after=give_up_after,
            takes=more.choice((0.0, 0.0, 1.0, 6.0)),
            breaks=more.random() < 0.1,
        )
        made = _cancelled(_external(work, self._outside), self._outside, more)
        self.externals.append(name)
        self.pipeline = self.pipeline.pipe(made.options(name=name))
        self._then(lambda number: mixed(salt, number))

    def add_big(self) -> None:
        """Add a result that is too large for a row, and a stage that takes it."""
        self.pipeline = self.pipeline.pipe(_blow_up.options(name=self._name("blow_up"))).pipe(
            _shrink.options(name=self._name("shrink"))
        )
        self._then(lambda number: number % 10)

    def add_child(self, children: tuple[Program, ...]) -> None:
        """Add a child run."""
        child = self._random.choice(children)
        self.pipeline = self.pipeline.pipe(self._child(child))
        self._then(child.model)

    def add_child_map(self, children: tuple[Program, ...]) -> None:
        """Add a child run for each item of a list."""
        child, size = self._random.choice(children), self._random.randrange(1, 3)
        self.pipeline = (
            self.pipeline.pipe(_spread(size).options(name=self._name("spread")))
            .pipe(each(self._child(child), limit=self._random.choice((None, 1, 2))))
            .pipe(_total.options(name=self._name("total")))
        )

        def model(number: int) -> int | None:
            results = [child.model(number + at) for at in range(size)]
            return None if None in results else sum(one for one in results if one is not None) % _MODULUS

        self._then(model)

    def _elsewhere(self, salt: int, random: Random) -> Any:
        """Return an external stage for the items of a map."""
        work = ExternalWork(
            salt=salt,
            seconds=random.choice((1.0, 8.0, 20.0)),
            check_after=random.choice((1.0, 4.0, 10.0)),
            fails=random.choice((0, 0, 1)),
            give_up_after=random.choice((None, None, 5.0)),
            takes=random.choice((0.0, 1.0)),
            breaks=random.random() < 0.1,
        )
        return _cancelled(_external(work, self._outside), self._outside, random)

    # What they are made of ------------------------------------------------------------------------------------------

    def _child(self, child: Program) -> Stage[int, int]:
        policy = self._random.choice(("cancel", "terminate", "abandon"))
        make: Any = stage
        self.children.append(self._name("child"))
        return cast("Stage[int, int]", make(child.workflow, name=self.children[-1], close_policy=policy))

    def _name(self, kind: str) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(name)
        return name

    def _then(self, model: Model) -> None:
        before = self.model

        def both(number: int) -> int | None:
            value = before(number)
            return None if value is None else model(value)

        self.model = both

    def _body(self, seconds_max: float = 8.0) -> tuple[BodyBehaviour, Stage[int, int]]:
        random = self._random
        seconds = min(random.choice((0.0, 0.0, 0.1, 1.0, 3.0, 8.0)), seconds_max)
        manner = BodyBehaviour(
            salt=random.randrange(1_000),
            seconds=seconds,
            fails=random.choice((0, 0, 0, 0, 1, 1, 2, 4)),
            how=random.choice(("error", "error", "give_up", "retry_after", "hang")),
            reports=frozenset(
                one
                for one in ("log", "progress", "annotate", "publish", "artifact", "blob", "heartbeat", "ai")
                if random.random() < 0.15
            ),
        )
        options: BodyOptions = {"name": self._name("stage")}
        if random.random() < 0.25:
            options["retry"] = draw_retry(random)
        if manner.how == "hang" or random.random() < 0.1:
            options["timeout"] = timedelta(seconds=random.choice((2, 15)))
        if random.random() < 0.1:
            options["timeout_total"] = timedelta(seconds=random.choice((5, 20, 60)))
        if random.random() < 0.15 or (manner.how == "hang" and random.random() < 0.5):
            options["heartbeat_timeout"] = timedelta(seconds=random.choice((5, 8)))
            manner = attrs.evolve(manner, reports=manner.reports | {"heartbeat"})
        if random.random() < 0.15:
            options["max_concurrency"] = random.choice((1, 2))
        if random.random() < 0.15:
            options["queue"] = random.choice(("default", "slow"))
        if random.random() < 0.1:
            options["priority"] = random.randrange(-2, 3)
        rate = _draw_rate(manner, alone="max_concurrency" not in options)
        if rate is not None:
            options["rate_limit"] = rate
        make = _async_body if random.random() < 0.5 else _sync_body
        more = Random(f"remote/{manner.salt}/{options['name']}")  # a second stream, as above
        if make is _sync_body and more.random() < REMOTE_SHARE:
            # Remote workers find a stage by its name, among those of all pipelines.
            self.nodes[-1] = f"{options['name']}-{self.pipeline.name}-{self.pipeline.version}"
            options |= {"name": self.nodes[-1], "remote": True}
        return manner, make(manner).options(**options)


def _draw_rate(manner: BodyBehaviour, *, alone: bool) -> Rate | None:
    # A second stream: later additions do not change old seeds.
    random = Random(f"{manner.salt}/{manner.seconds}/{manner.fails}")
    if random.random() > 0.15:
        return None
    span = timedelta(seconds=random.choice((0.5, 2, 5)))
    name, by = random.choice(((None, None), (None, None), ("model", None), (None, "colour")))
    return Rate(random.choice((1, 1, 2, 3)), per=span, name=name if alone else None, by=by if alone else None)


# Bodies -------------------------------------------------------------------------------------------------------------


def _sync_body(manner: BodyBehaviour) -> Stage[int, int]:
    @stage
    def body(ctx: StageContext, number: int) -> int:
        _report(manner, ctx, number)
        left = 3_600.0 if _hangs(manner, ctx) else manner.seconds
        while left > 0 and not ctx.cancelled:
            spend_time(min(left, 1.5))
            left -= 1.5
            _keep_reporting(manner, ctx, number)
        ctx.check_cancelled()
        _fail(manner, ctx)
        return mixed(manner.salt, number)

    return body


def _async_body(manner: BodyBehaviour) -> Stage[int, int]:
    @stage
    async def body(ctx: StageContext, number: int) -> int:
        _report(manner, ctx, number)
        left = 3_600.0 if _hangs(manner, ctx) else manner.seconds
        while left > 0:
            await asyncio.sleep(min(left, 1.5))
            left -= 1.5
            _keep_reporting(manner, ctx, number)
        _fail(manner, ctx)
        return mixed(manner.salt, number)

    return body


def _hangs(manner: BodyBehaviour, ctx: StageContext) -> bool:
    return manner.how == "hang" and ctx.attempt <= manner.fails


def _fail(manner: BodyBehaviour, ctx: StageContext) -> None:
    if ctx.attempt > manner.fails:
        return
    match manner.how:
        case "give_up":
            raise GiveUp("no further attempt")
        case "retry_after":
            raise RetryAfter(timedelta(seconds=3), "not yet")
        case "error" | "hang":
            raise (KeyError if manner.salt % 2 else ValueError)("not yet")


def _report(manner: BodyBehaviour, ctx: StageContext, number: int) -> None:
    reports = manner.reports
    if "log" in reports:
        ctx.log("begins", number=number)
    if "progress" in reports:
        ctx.progress(1, 2, "half")
    if "annotate" in reports:
        ctx.annotate("seen", number, key="once" if number % 2 else None)
    if "publish" in reports:
        ctx.publish("number.seen", {"number": number})
    if "artifact" in reports:
        ctx.artifacts.put("report", b"number %d" % number)
    if "blob" in reports:
        ref = ctx.blobs.put("number", b"%d" % number)
        assert ctx.blobs.get(ref) == b"%d" % number
    if "heartbeat" in reports:
        ctx.last_heartbeat(int)
        ctx.heartbeat(number)
    if "ai" in reports:
        ctx.ai.record(topic="numbers", model="abacus", input_tokens=1, output_tokens=1)


def _keep_reporting(manner: BodyBehaviour, ctx: StageContext, number: int) -> None:
    """Write output repeatedly. A host that was paused then holds buffered output of a fenced attempt."""
    if "heartbeat" in manner.reports and not _hangs(manner, ctx):
        ctx.heartbeat(number)
    if "log" in manner.reports:
        ctx.log("goes on", number=number)
    if "progress" in manner.reports:
        ctx.progress(1, 2, "half")


def _external(work: ExternalWork, outside: ExternalService) -> ExternalStage[int, int, None, list[int]]:
    @stage.external
    def body(ctx: StageContext, number: int) -> Suspended[list[int], int]:
        if work.seconds == 0.0:
            return completed(mixed(work.salt, number))
        if work.takes:
            spend_time(work.takes)
        now = current().process.hub.now
        ends = None if work.give_up_after is None else now + round(work.give_up_after * 1_000_000)
        state = [now - START + round(work.seconds * 1_000_000), number]
        outside.submit(ctx.idempotency_key, state)
        return suspend(
            state,
            check_after=timedelta(seconds=work.check_after),
            give_up_at=None if ends is None else instant(ends),
            key=f"{ctx.run_id}/key",
        )

    @body.check(retry=Retry(attempts=6, wait=timedelta(seconds=1)))
    def check(ctx: StageContext, state: list[int]) -> int | NotReady:
        if ctx.attempt <= work.fails:
            raise ValueError("the service can't be polled yet")
        if current().process.hub.now - START < state[0]:
            return NotReady()
        if work.breaks:
            raise GiveUp("the external work has failed")
        return mixed(work.salt, state[1])

    return check


def _cancelled(
    made: ExternalStage[int, int, None, list[int]], outside: ExternalService, random: Random
) -> ExternalStage[int, int, None, list[int]]:
    """Add a cancel function to most external stages; it may be slow or fail."""
    if random.random() < 0.2:
        return made
    takes, fails = random.choice((0.0, 0.0, 2.0, 8.0)), random.choice((0, 0, 0, 1, 2, 5))
    retry = Retry(attempts=random.choice((2, 3, 6, 10)), wait=timedelta(seconds=random.choice((0, 1, 4))))

    @made.cancel(retry=retry, timeout=timedelta(seconds=30))
    def cancel(ctx: StageContext, state: list[int]) -> None:
        if takes:
            spend_time(takes / 2)
        if ctx.attempt <= fails:
            raise ConnectionError("the service can't be reached")
        outside.cancel(ctx.idempotency_key, state)
        if takes:
            spend_time(takes / 2)

    return cancel


def _spread(size: int) -> Stage[int, list[int]]:
    @stage
    def spread(number: int) -> list[int]:
        return [number + at for at in range(size)]

    return spread


@stage
def _total(numbers: list[int]) -> int:
    return sum(numbers) % _MODULUS


@stage
def _partial_total(part: PartialResults[int]) -> int:
    return sum(part.results) % _MODULUS


@stage
def _join_two(one: int, two: int) -> int:
    return (one + two) % _MODULUS


@stage
def _join_three(one: int, two: int, three: int) -> int:
    return (one + two + three) % _MODULUS


@stage
async def _blow_up(number: int) -> str:
    return str(number % 10) * _BIG


@stage
def _shrink(text: str) -> int:
    assert len(text) == _BIG
    return int(text[0])


def _is_odd(number: int) -> bool:
    return number % 2 == 1
