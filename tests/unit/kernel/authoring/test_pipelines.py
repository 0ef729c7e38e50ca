"""Pipelines: composition, its errors, and the resulting plan."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest

from holdfast.kernel.authoring import Pipeline, Rate, Retry, StageContext, each, stage
from holdfast.kernel.pipelines.plan import (
    Group,
    MapPlan,
    Plan,
    RatePlan,
    RetryPolicy,
    StagePlan,
    plan_from_json,
    stage_of,
)
from holdfast.ports.errors import DefinitionError


@attrs.frozen
class Document:
    path: str


@attrs.frozen
class Page:
    text: str


@attrs.frozen
class Extraction:
    dpi: int = 300


@attrs.frozen
class Model:
    name: str


@stage
def extract(ctx: StageContext[Extraction], document: Document) -> list[Page]:
    return [Page(document.path)] * ctx.config.dpi


@stage
def count(pages: list[Page]) -> int:
    return len(pages)


@stage
def head(pages: list[Page]) -> str:
    return pages[0].text


@stage
def translate(page: Page) -> Page:
    return page


@stage
def publish(count: int, head: str, pages: list[Page]) -> str:
    return f"{count} {head} {pages}"


@stage
def letter(text: str) -> str:
    return text


@stage
def words(page: Page) -> list[str]:
    return page.text.split()


@stage
def ask(ctx: StageContext[Model], document: Document) -> str:
    return document.path


@stage
def discover() -> list[Document]:
    return []


documents = Pipeline("p", input=Document)
pages = documents.pipe(extract)


def test_a_pipeline_shows_what_it_takes_and_gives() -> None:
    whole = pages.parallel(count, head, each(translate)).pipe(publish)

    assert repr(whole) == "<pipeline p: Document -> str>"
    assert (whole.name, whole.version, whole.input_type, whole.output_type) == ("p", "1", Document, str)


def test_what_goes_on_after_parallel_is_the_tuple_of_all_outputs() -> None:
    assert pages.parallel(count, head, each(translate)).output_type == tuple[int, str, list[Page]]


def test_adding_to_a_pipeline_leaves_it_as_it_is() -> None:
    pages.pipe(count)
    pages.map(translate)

    assert list(pages.bodies) == ["extract"]


def test_the_plan_holds_all_that_was_said() -> None:
    retry = Retry(attempts=7, wait=timedelta(seconds=2), backoff=3, wait_max=timedelta(hours=1), jitter=0)
    pipeline = (
        Pipeline("analysis", input=Document, version="2")
        .pipe(
            extract.configure(Extraction(600)).options(queue="ocr", timeout=timedelta(minutes=1), priority=3)
        )
        .parallel(count.options(retry=retry), each(translate, limit=8))
        .map(words, over=extract)
    )

    assert pipeline.plan() == Plan(
        workflow="analysis",
        version="2",
        groups=(
            Group(
                nodes=(
                    StagePlan(
                        name="extract", queue="ocr", priority=3, timeout_us=60_000_000, config='{"dpi":600}'
                    ),
                )
            ),
            Group(
                parallel=True,
                nodes=(
                    StagePlan(
                        name="count",
                        retry=RetryPolicy(
                            attempts=7, wait_us=2_000_000, backoff=3.0, wait_max_us=3_600_000_000, jitter=0.0
                        ),
                    ),
                    MapPlan(stage=StagePlan(name="translate"), limit=8),
                ),
            ),
            Group(nodes=(MapPlan(stage=StagePlan(name="words"), over="extract", limit=1_000),)),
        ),
    )


def test_the_plan_can_be_stored() -> None:
    plan = pages.parallel(count, each(translate)).plan()

    assert plan_from_json(plan.to_json()) == plan


def test_the_same_pipeline_has_the_same_fingerprint() -> None:
    assert documents.pipe(extract).plan().fingerprint == pages.plan().fingerprint
    assert documents.pipe(extract.configure(Extraction(1))).plan().fingerprint != pages.plan().fingerprint


def test_what_a_pipeline_says_is_for_stages_that_say_nothing() -> None:
    patient = Retry(attempts=9, give_up_on=(KeyError,))
    pipeline = (
        Pipeline("p", input=Document, retry=patient, queue="slow", timeout=timedelta(1), priority=5)
        .pipe(extract.options(queue="ocr"))
        .map(translate.options(retry=Retry(attempts=1)))
    )

    first, second = pipeline.bodies.values()

    assert (first.queue, first.retry, first.priority) == ("ocr", patient, 5)
    assert first.give_up_on == (KeyError,)
    assert (second.queue, second.retry, second.timeout) == ("slow", Retry(attempts=1), timedelta(1))
    assert pipeline.plan().node("translate") == MapPlan(
        stage=StagePlan(
            name="translate",
            queue="slow",
            priority=5,
            retry=RetryPolicy(attempts=1),
            timeout_us=86_400_000_000,
        )
    )


def test_a_stage_without_config_is_planned_with_its_default() -> None:
    assert pages.plan().node("extract") == StagePlan(name="extract", config='{"dpi":300}')


def test_a_stage_whose_config_has_no_default_must_be_configured() -> None:
    with pytest.raises(DefinitionError, match="stage 'ask' needs a config"):
        documents.pipe(ask)

    assert documents.pipe(ask.configure(Model("m"))).plan().node("ask") == StagePlan(
        name="ask", config='{"name":"m"}'
    )


def test_the_bodies_are_found_by_the_names_in_the_plan() -> None:
    pipeline = pages.map(translate.options(name="english"))

    assert set(pipeline.bodies) == set(pipeline.plan().nodes)
    assert pipeline.bodies["english"].body is translate.body


# Without a type checker, what it would refuse is refused all the same.
unchecked_documents: Any = documents
unchecked_pages: Any = pages
unchecked_each: Any = each


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: unchecked_documents.pipe(count),
            "'p': stage 'count' takes list[Page], but the pipeline's input is Document",
        ),
        (
            lambda: unchecked_pages.pipe(translate),
            "'p': stage 'translate' takes Page, but the stage before it returns list[Page]",
        ),
        (
            lambda: unchecked_pages.parallel(count, translate),
            "stage 'translate' takes Page, but the stage before it returns list[Page]",
        ),
        (
            lambda: unchecked_pages.parallel(head, count, each(translate)).pipe(publish),
            "takes tuple[int, str, list[Page]], but the stage before it returns tuple[str, int, list[Page]]",
        ),
        (
            lambda: unchecked_documents.map(translate),
            "mapping 'translate' over it takes Sequence[Page], but the pipeline's input is Document",
        ),
        (
            lambda: unchecked_pages.pipe(head).map(letter),
            "but the stage before it returns str; a string is not mapped letter by letter",
        ),
        (
            lambda: unchecked_pages.pipe(count).map(translate, over=head),
            "over=head) takes Sequence[Page]",
        ),
        (lambda: unchecked_pages.pipe(extract), "stage 'extract' takes Document"),
        (
            lambda: unchecked_pages.pipe(discover).pipe(discover),
            "two stages named 'discover'; rename one: discover.options(",
        ),
        (lambda: unchecked_pages.parallel(count, count), "two stages named 'count'"),
        (lambda: unchecked_pages.map(translate).map(translate), "two stages named 'translate'"),
        (lambda: unchecked_pages.parallel(count), "parallel takes 2 to 6 stages, not 1"),
        (
            lambda: unchecked_pages.parallel(count, count, count, count, count, count, count),
            "parallel takes 2 to 6 stages, not 7",
        ),
        (
            lambda: (
                unchecked_documents.pipe(discover)
                .pipe(discover.options(name="again"))
                .map(translate, over=extract)
            ),
            "'translate' maps over 'extract', which is not an earlier stage; there are discover, again",
        ),
        (
            lambda: unchecked_pages.parallel(head, unchecked_each(translate, over=words)),
            "each(translate, over=words) takes Sequence[Page], but 'words' gives list[str]",
        ),
        (
            lambda: unchecked_pages.parallel(count, each(letter, over=words)),
            "'letter' maps over 'words', which is not an earlier stage; there are extract",
        ),
        (
            lambda: unchecked_pages.map(words).map(letter, over=words),
            "'letter' maps over 'words', which is mapped itself; pipe a stage between them",
        ),
        (
            lambda: unchecked_pages.pipe(count.options(name="words")).map(letter, over=words),
            "'letter' maps over 'words', but the earlier stage of that name is a different one",
        ),
        (
            lambda: unchecked_documents.pipe(len),
            "takes stages, not <built-in function len>; make it one with @stage",
        ),
        (
            lambda: unchecked_documents.pipe(pages),
            "takes stages, not <pipeline p: Document -> list[Page]>",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        build()

    assert message in str(caught.value)


def test_a_parallel_group_cannot_go_over_its_own_member() -> None:
    with pytest.raises(DefinitionError, match="'letter' maps over 'split', which is not an earlier stage"):
        Pipeline("p", input=Page).parallel(
            words.options(name="split"), each(letter, over=words.options(name="split"))
        )


def test_two_types_of_one_name_are_told_apart() -> None:
    def make() -> Any:
        @attrs.frozen
        class Page:
            number: int

        @stage
        def number(page: Page) -> int:
            return page.number

        return number

    with pytest.raises(
        DefinitionError, match="takes Page, but the pipeline's input is Page; two types of one name"
    ):
        Pipeline("p", input=Page).pipe(make())


@pytest.mark.parametrize("name", ["", "a b", "-a", 3])
def test_a_pipeline_needs_a_plain_name_and_version(name: Any) -> None:
    with pytest.raises(DefinitionError, match="the name of a pipeline is"):
        Pipeline(name)
    with pytest.raises(DefinitionError, match="the version of pipeline 'p' is"):
        Pipeline("p", version=name)


def test_a_misspelt_default_is_named() -> None:
    with pytest.raises(TypeError, match=r"pipeline 'p' has no option 'retries' \(did you mean 'retry'\?\)"):
        Pipeline("p", retries=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def test_an_input_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the input of pipeline 'p': complex can't be stored"):
        Pipeline("p", input=complex)


def test_a_pipeline_has_a_most_of_stages() -> None:
    long = Pipeline("p", input=str)
    for number in range(500):
        long = long.pipe(letter.options(name=f"s{number}"))

    with pytest.raises(DefinitionError, match="more than 500 stages"):
        long.pipe(letter)


def test_a_call_carries_the_pipeline_and_the_value() -> None:
    call = pages(Document("a"))

    assert call.definition is pages
    assert call.value == Document("a")
    assert repr(call) == "p(Document(path='a'))"


def test_a_pipeline_without_input_is_called_without() -> None:
    nightly = Pipeline("nightly").pipe(discover)

    assert nightly().value is None
    assert nightly(None).value is None


def test_a_pipeline_with_input_is_not_called_without() -> None:
    with pytest.raises(TypeError, match="pipeline 'p' needs its input, a Document"):
        pages()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_a_pipeline_without_input_is_not_called_with_one() -> None:
    with pytest.raises(
        TypeError, match=r"'nightly' takes no input; declare it: Pipeline\('nightly', input=...\)"
    ):
        Pipeline("nightly").pipe(discover)(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def test_none_is_an_input_like_any_other() -> None:
    @stage
    def maybe(x: int | None) -> int:
        return x or 0

    assert Pipeline("p", input=int | None).pipe(maybe)(None).value is None


def test_a_pipeline_without_stages_is_not_called_and_has_no_plan() -> None:
    with pytest.raises(DefinitionError, match="'p' has no stages; add one with pipe, parallel or map"):
        documents(Document("a"))
    with pytest.raises(DefinitionError, match="has no stages"):
        documents.plan()


def test_a_rate_limit_is_part_of_the_plan_and_a_default_like_others() -> None:
    per_minute = Rate(60, per=60, name="model", by="tenant")
    whole = Pipeline("p", input=str, rate_limit=Rate(5, per=timedelta(seconds=1)))
    whole = whole.pipe(letter).pipe(letter.options(name="other", rate_limit=per_minute))

    plans = [stage_of(node).rate for node in whole.plan().nodes.values()]
    shared = RatePlan(limit=60, per_us=60_000_000, name="model", by="tenant")
    assert plans == [RatePlan(limit=5, per_us=1_000_000), shared]


@pytest.mark.parametrize("rate", [Rate(1, per=1, name="model"), Rate(1, per=1, by="tenant")])
def test_what_waits_waits_in_one_line(rate: Rate) -> None:
    both = letter.options(max_concurrency=2)
    assert Pipeline("p", input=str).pipe(both.options(rate_limit=Rate(1, per=1))).plan().limited

    with pytest.raises(
        DefinitionError, match="'letter' has max_concurrency and a rate limit with name or by"
    ):
        Pipeline("p", input=str).pipe(both.options(rate_limit=rate))
    with pytest.raises(
        DefinitionError, match="'letter' has max_concurrency and a rate limit with name or by"
    ):
        Pipeline("p", input=list[str], rate_limit=rate).pipe(each(both))
