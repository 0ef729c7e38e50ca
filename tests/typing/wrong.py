"""Programs that must not type-check. A line that both checkers begin to accept is an error, for its comments say so.

This file is only read, never run.
"""

from datetime import timedelta

from holdfast.kernel.authoring import (
    Call,
    NotReady,
    Pipeline,
    Retry,
    StageContext,
    Suspended,
    TolerateFailures,
    each,
    stage,
    suspend,
)
from holdfast.ports.errors import RetryAfter
from tests.typing import documents as d

documents = Pipeline("x", input=d.Document)
pages = documents.pipe(d.extract)

# pipelines
documents.pipe(d.summarise)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.parallel(d.summarise, d.shorten)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.parallel(d.index, d.summarise, each(d.translate)).pipe(d.publish)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.parallel(d.index, d.summarise).pipe(d.publish)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.parallel(d.summarise)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
documents.pipe(d.publish)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
documents.map(d.translate)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
pages.map(d.shorten)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.map(d.translate, over=d.publish)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.parallel(d.summarise, each(d.shorten))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
each(each(d.translate))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
documents.pipe(lambda document: document)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportUnknownLambdaType]
documents.pipe(d.analyse)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

Pipeline("y", input=d.Document, retries=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
Pipeline("y", input=d.Document, name="z")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


# stages
@stage
async def uses_context(ctx: StageContext[d.Extraction], page: d.Page) -> d.Summary:
    print(ctx.config.dpy)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    summary: str = ctx.output_of(d.summarise)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    other: str = await ctx.aio.output_of(d.summarise)  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    ctx.aio.output_of(d.summarise)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    ctx.log("x", page=page)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return d.Summary(summary + other)


@stage  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def keyword(page: d.Page, *, must: int) -> d.Summary:
    return d.Summary(f"{page}{must}")


@stage(quue="gpu")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def option(page: d.Page) -> d.Summary:
    return d.Summary(page.text)


@stage(retry=3)  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType]
async def option_type(page: d.Page) -> d.Summary:
    return d.Summary(page.text)


Retry(by_error={ValueError: 3})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
Retry(by_error={int: Retry()})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
RetryAfter("5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
d.extract.configure(d.Page("x"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
d.summarise.configure(d.Page("x"))  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
d.extract.options(retries=Retry())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# stages whose work is done elsewhere
@stage.external  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def gives_its_result(ctx: StageContext, page: d.Page) -> str:
    return page.text


@stage.external  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def takes_no_context(page: d.Page) -> Suspended[str, str]:
    return suspend(page.text, check_after=timedelta(1))


@stage.external
def suspends_another(ctx: StageContext, page: d.Page) -> Suspended[int, str]:
    return suspend(page.text, check_after=timedelta(1))  # type: ignore[arg-type]  # pyright: ignore[reportReturnType]


@d.print_on_paper.check  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def takes_another(ctx: StageContext, ticket: str) -> int | NotReady:
    return NotReady()


@d.print_on_paper.check  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def gives_another(ctx: StageContext, ticket: d.Ticket) -> str | NotReady:
    return NotReady()


@d.print_on_paper.cancel  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def cancels_another(ctx: StageContext, ticket: str) -> None:
    pass


@d.print_on_paper.cancel  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def gives_something(ctx: StageContext, ticket: d.Ticket) -> int:
    return 1


suspend("x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
suspend("x", check_after="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
documents.pipe(d.printed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
d.translate.check(d.publish)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

# stages that are pipelines, maps that may lose items, one of two
pages.pipe(stage(d.analyse))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
stage(close_policy="forget")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
pages.map(d.translate, enough=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
pages.map(d.translate, enough=TolerateFailures(1))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
pages.map(d.translate, enough=TolerateFailures(count=1)).pipe(d.summarise)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.when(len, d.summarise)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.when(bool, d.publish)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.when(bool, d.summarise).pipe(d.index)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pages.when(lambda found: found.text == "", d.summarise)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]


# calls
async def application() -> None:
    d.analyse(d.Page("x"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    d.analyse()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    d.nightly(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    d.index([])  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    await d.index([3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    wrong: Call[str] = d.analyse(d.Document("x"))  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(wrong)
