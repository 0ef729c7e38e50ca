"""What both type checkers must infer of pipelines."""

from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypedDict, assert_type

from holdfast.kernel.authoring import (
    AnyNode,
    AtLeast,
    BlobRef,
    Call,
    ConfigurableStage,
    ExternalStage,
    NotReady,
    PartialResults,
    Pipeline,
    PlanNode,
    Retry,
    Stage,
    StageContext,
    StageDecorator,
    Suspended,
    TolerateFailures,
    WorkflowDefinition,
    completed,
    each,
    stage,
    suspend,
)
from holdfast.kernel.values import decode
from tests.typing import documents as d


class Row(TypedDict):
    a: int


# stages: inputs, outputs, config
assert_type(d.extract, ConfigurableStage[d.Document, list[d.Page], d.Extraction])
assert_type(d.summarise, Stage[list[d.Page], d.Summary])
assert_type(d.index, Stage[list[d.Page], d.Index])
assert_type(d.translate, ConfigurableStage[d.Page, d.Page, None])
assert_type(d.publish, Stage[tuple[d.Summary, d.Index, list[d.Page]], d.Report])
assert_type(d.discover, Stage[object, list[d.Document]])
assert_type(d.extract.options(queue="x"), ConfigurableStage[d.Document, list[d.Page], d.Extraction])
assert_type(d.extract.configure(d.Extraction(3)), ConfigurableStage[d.Document, list[d.Page], d.Extraction])
assert_type(stage(queue="gpu")(retry=Retry()), StageDecorator)


@stage(
    retry=Retry(
        give_up_on=(LookupError,),
        by_error={ConnectionError: Retry(attempts=9), ValueError: Retry(attempts=2)},
    ),
    timeout_total=timedelta(hours=1),
    heartbeat_timeout=timedelta(minutes=1),
)
async def picky(x: int) -> str:
    return str(x)


assert_type(picky, Stage[int, str])


@stage
async def may_be(x: int | None) -> str | None:
    return str(x)


@stage
def optional_argument(x: int, *, y: int = 3) -> dict[str, Any]:
    return {"x": x + y}


@stage
async def row(ctx: StageContext, x: int, y: str) -> Row:
    assert_type(ctx.config, None)
    assert_type(ctx.output_of(d.extract), list[d.Page])
    assert_type(ctx.output_of(d.summarise, None), d.Summary | None)
    assert_type(ctx.outputs_of(d.translate), list[d.Page])
    ctx.heartbeat(d.Page("x"))
    assert_type(ctx.last_heartbeat(d.Page), d.Page | None)
    assert_type(ctx.last_heartbeat(list[int], default=[1]), list[int])
    assert_type(ctx.last_heartbeat(int, 0), int)
    assert_type(await ctx.aio.last_heartbeat(int), int | None)
    assert_type(await ctx.aio.last_heartbeat(str, ""), str)
    assert_type(ctx.blobs.put("scan", b""), BlobRef)
    assert_type(ctx.blobs.get(ctx.blobs.put("scan", b"")), bytes)
    assert_type(await ctx.aio.output_of(d.extract), list[d.Page])
    assert_type(await ctx.aio.output_of(d.summarise, None), d.Summary | None)
    assert_type(await ctx.aio.outputs_of(d.translate), list[d.Page])
    assert_type(await ctx.aio.blobs.put("scan", b""), BlobRef)
    assert_type(await ctx.aio.blobs.get(await ctx.aio.blobs.put("scan", b"")), bytes)
    assert_type(ctx.item, int | None)
    return {"a": x}


@stage
def alone(ctx: StageContext[d.Extraction]) -> int:
    assert_type(ctx.config, d.Extraction)
    ctx.check_cancelled()
    return 0 if ctx.cancelled else ctx.config.dpi


assert_type(may_be, Stage[int | None, str | None])
assert_type(optional_argument, Stage[int, dict[str, Any]])
assert_type(row, ConfigurableStage[tuple[int, str], Row, None])
assert_type(alone, ConfigurableStage[object, int, d.Extraction])

# pipelines: what flows
pages = Pipeline("p", input=d.Document).pipe(d.extract)
assert_type(pages, Pipeline[d.Document, list[d.Page]])
assert_type(pages.parallel(d.summarise, d.index), Pipeline[d.Document, tuple[d.Summary, d.Index]])
assert_type(each(d.translate), PlanNode[Sequence[d.Page], list[d.Page]])
assert_type(each(d.translate, over=d.extract), PlanNode[object, list[d.Page]])
assert_type(d.analyse, Pipeline[d.Document, d.Report])
assert_type(d.nightly, Pipeline[None, int])
assert_type(pages.map(d.translate), Pipeline[d.Document, list[d.Page]])
assert_type(d.analyse.pipe(d.shorten), Pipeline[d.Document, d.Report])
# `over` needs the name of the earlier stage, and gives up what came out
assert_type(
    pages.pipe(d.index).map(d.translate.options(name="again"), over=d.extract),
    Pipeline[d.Document, list[d.Page]],
)
assert_type(Pipeline("q", input=int | None).pipe(may_be), Pipeline[int | None, str | None])
assert_type(Pipeline("q", input=Row), Pipeline[Row, Row])
assert_type(Pipeline("q", input=int, retry=Retry(), queue="x", timeout=timedelta(1)), Pipeline[int, int])
# a stage that takes a supertype fits
assert_type(Pipeline("q", input=int).pipe(may_be), Pipeline[int, str | None])
assert_type(pages.pipe(alone), Pipeline[d.Document, int])

# stages whose work is done elsewhere
assert_type(d.print_on_paper, ExternalStage[PartialResults[d.Report], int, None, d.Ticket])
assert_type(d.printed, ExternalStage[PartialResults[d.Report], int, None, d.Ticket])
assert_type(d.printed.options(queue="x"), ExternalStage[PartialResults[d.Report], int, None, d.Ticket])


@stage.external
def hand_on(ctx: StageContext[d.Extraction], page: d.Page) -> Suspended[str, d.Page]:
    if not page.text:
        return completed(page)
    return suspend(page.text, check_after=timedelta(seconds=1))


@hand_on.check(retry=Retry(attempts=9), timeout=timedelta(minutes=1))
def handed_on(ctx: StageContext[d.Extraction], job: str) -> d.Page | NotReady:
    return NotReady(timedelta(ctx.config.dpi)) if job else d.Page(job)


@handed_on.cancel
async def cancelled(ctx: StageContext[d.Extraction], job: str) -> None:
    ctx.log(job)


@hand_on.cancel(retry=Retry(attempts=9), timeout=timedelta(minutes=1))
def cancelled_first(ctx: StageContext[d.Extraction], job: str) -> None:
    ctx.log(job)


assert_type(cancelled, ExternalStage[d.Page, d.Page, d.Extraction, str])
assert_type(cancelled_first, ExternalStage[d.Page, d.Page, d.Extraction, str])
assert_type(hand_on, ExternalStage[d.Page, d.Page, d.Extraction, str])
assert_type(handed_on, ExternalStage[d.Page, d.Page, d.Extraction, str])
assert_type(pages.map(handed_on), Pipeline[d.Document, list[d.Page]])
assert_type(Pipeline("q", input=d.Page).pipe(handed_on), Pipeline[d.Page, d.Page])

# stages that are pipelines
assert_type(stage(d.analyse), Stage[d.Document, d.Report])
assert_type(stage(queue="x")(d.analyse), Stage[d.Document, d.Report])
assert_type(stage(close_policy="abandon")(d.analyse), Stage[d.Document, d.Report])
assert_type(Pipeline("q", input=d.Document).pipe(stage(d.analyse)), Pipeline[d.Document, d.Report])
assert_type(
    Pipeline("q", input=list[d.Document]).map(stage(d.analyse)), Pipeline[list[d.Document], list[d.Report]]
)

# maps that may lose items
assert_type(each(d.translate, enough=AtLeast(1)), PlanNode[Sequence[d.Page], PartialResults[d.Page]])
assert_type(
    each(d.translate, over=d.extract, enough=TolerateFailures(share=0.1)),
    PlanNode[object, PartialResults[d.Page]],
)
assert_type(
    pages.map(d.translate, enough=TolerateFailures(count=1)), Pipeline[d.Document, PartialResults[d.Page]]
)
assert_type(
    pages.map(d.translate, enough=AtLeast(1)).map(
        d.translate.options(name="again"), over=d.extract, enough=AtLeast(1)
    ),
    Pipeline[d.Document, PartialResults[d.Page]],
)
assert_type(
    Pipeline("q", input=list[d.Document])
    .map(stage(d.analyse), enough=TolerateFailures(count=1))
    .pipe(d.printed),
    Pipeline[list[d.Document], int],
)

# one of two, or none
assert_type(pages.when(bool, d.summarise), Pipeline[d.Document, list[d.Page] | d.Summary])
assert_type(pages.when(bool, d.summarise, otherwise=d.index), Pipeline[d.Document, d.Summary | d.Index])
assert_type(pages.when(lambda found: len(found) > 3, each(d.translate)), Pipeline[d.Document, list[d.Page]])
assert_type(d.analyse.when(lambda report: not report.html, d.shorten), Pipeline[d.Document, d.Report])

# calls
assert_type(d.analyse(d.Document("")), Call[d.Report])
assert_type(d.nightly(), Call[int])
assert_type(d.analyse(d.Document("")).definition, WorkflowDefinition[d.Report])
coroutine: Coroutine[Any, Any, d.Report] = d.analyse(d.Document(""))
definitions: list[WorkflowDefinition[object]] = [d.analyse, d.nightly]
nodes: list[AnyNode[object]] = [d.extract, d.discover, each(d.translate)]


async def by_hand() -> None:
    assert_type(await d.summarise([d.Page("")]), d.Summary)
    assert_type(await d.index([]), d.Index)


# values
assert_type(decode("[]", list[int]), list[int])
assert_type(decode("null", int | None), int | None)


def host(some: Stage[Any, object]) -> None:
    assert_type(decode("", some.output_type), object)
