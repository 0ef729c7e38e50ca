"""Documents become reports: the pipelines against which the other files of this folder are checked."""

from datetime import timedelta

import attrs

from holdfast.kernel.authoring import (
    NotReady,
    PartialResults,
    Pipeline,
    Retry,
    StageContext,
    Suspended,
    completed,
    each,
    stage,
    suspend,
)


@attrs.frozen
class Document:
    path: str


@attrs.frozen
class Page:
    text: str


@attrs.frozen
class Summary:
    text: str


@attrs.frozen
class Index:
    words: dict[str, int]


@attrs.frozen
class Report:
    html: str


@attrs.frozen
class Extraction:
    dpi: int = 300


llm = stage(queue="llm", retry=Retry(attempts=5))


@stage
async def extract(ctx: StageContext[Extraction], document: Document) -> list[Page]:
    return [Page(f"{document.path} at {ctx.config.dpi}")]


@llm
async def summarise(pages: list[Page]) -> Summary:
    return Summary(pages[0].text)


@stage
def index(pages: list[Page]) -> Index:
    return Index({page.text: 1 for page in pages})


@llm
async def translate(ctx: StageContext, page: Page) -> Page:
    ctx.progress(1, len(ctx.output_of(extract)))
    return page


@stage
async def publish(summary: Summary, index: Index, pages: list[Page]) -> Report:
    return Report(f"{summary} {index} {pages}")


@stage
async def shorten(report: Report) -> Report:
    return report


analyse = (
    Pipeline("document-analysis", input=Document)
    .pipe(extract.configure(Extraction(dpi=600)))
    .parallel(summarise, index, each(translate, limit=8))
    .pipe(publish)
)


@stage
def discover() -> list[Document]:
    return [Document("a.pdf"), Document("b.pdf")]


@stage
def count_pages(document: Document) -> int:
    return len(document.path)


@stage
async def total(ctx: StageContext, counts: list[int]) -> int:
    ctx.log("counted", documents=len(counts), workflow=ctx.workflow)
    return sum(counts)


nightly = Pipeline("nightly", queue="slow").pipe(discover).map(count_pages, limit=50).pipe(total)


@attrs.frozen
class Ticket:
    number: int


@stage.external
async def print_on_paper(ctx: StageContext, reports: PartialResults[Report]) -> Suspended[Ticket, int]:
    if not reports.results:
        return completed(0)
    return suspend(Ticket(len(reports.results)), check_after=timedelta(hours=1), key=ctx.idempotency_key)


@print_on_paper.check
async def printed(ctx: StageContext, ticket: Ticket) -> int | NotReady:
    return ticket.number if ctx.attempt > 1 else NotReady()
