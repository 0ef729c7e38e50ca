"""The stage context on an in-memory host."""

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar

import attrs
import pytest

from holdfast.kernel.authoring import (
    BlobRef,
    StageContext,
    StageOutputs,
    StageRuntime,
    stage,
)
from holdfast.kernel.authoring.ai import AiCallOptions
from holdfast.kernel.authoring.artifacts import BYTES
from holdfast.kernel.authoring.attempt_context import Level
from holdfast.kernel.values import decode, encode
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.errors import (
    BlobMissingError,
    InvalidArgumentError,
    InvalidEventError,
    OutputMissingError,
    StageCancelledError,
    UnreadableInputError,
    UnstorableValueError,
)
from holdfast.ports.events import EVENT_BYTES_MAX

R = TypeVar("R")


@attrs.frozen
class Page:
    text: str


@stage
def extract(path: str) -> list[Page]:
    return [Page(path)]


@stage
def translate(page: Page) -> Page:
    return page


@attrs.define
class MemoryBlobs:
    by_key: dict[str, bytes] = attrs.Factory(dict[str, bytes])

    def put(self, name: str, data: bytes, /) -> BlobRef:
        sha256 = hashlib.sha256(data).hexdigest()
        self.by_key[f"{name}/{sha256}"] = data
        return BlobRef(f"{name}/{sha256}", sha256, len(data))

    def get(self, ref: BlobRef, /) -> bytes:
        if ref.key not in self.by_key:
            raise BlobMissingError(ref.key)
        return self.by_key[ref.key]


class Colour(Enum):
    RED = "red"


@attrs.define
class MemoryArtifacts:
    by_name: dict[str, bytes] = attrs.Factory(dict[str, bytes])

    def put(self, name: str, data: bytes, /, *, content_type: str = BYTES) -> None:
        self.by_name[name] = data

    def get(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        return self.by_name[name]


@attrs.define
class MemoryAiLog:
    calls: list[tuple[str, str, AiCallOptions]] = attrs.Factory(list[tuple[str, str, AiCallOptions]])
    now: float = 0.0

    def record(self, topic: str, model: str, options: AiCallOptions, /) -> None:
        self.calls.append((topic, model, options))

    def monotonic(self) -> float:
        self.now += 1.5
        return self.now


@attrs.define
class MemoryRuntime:
    done: dict[str, StageOutputs] = attrs.Factory(dict[str, StageOutputs])
    blobs: MemoryBlobs = attrs.Factory(MemoryBlobs)
    artifacts: MemoryArtifacts = attrs.Factory(MemoryArtifacts)
    ai: MemoryAiLog = attrs.Factory(MemoryAiLog)
    cancelled: bool = False
    noted: list[object] = attrs.Factory(list[object])
    last: str | None = None

    def outputs(self, stage: str, /) -> StageOutputs | None:
        return self.done.get(stage)

    async def in_thread(self, call: Callable[[], R], /) -> R:
        return call()

    def progress(self, done: float, of: float, message: str, /) -> None:
        self.noted.append((done, of, message))

    def log(self, message: str, fields: Mapping[str, str | float | bool], /, level: Level = "info") -> None:
        self.noted.append((message, fields) if level == "info" else (message, fields, level))

    def annotate(
        self,
        name: str,
        value: object,
        /,
        *,
        scope: AnnotationScope | None,
        actor: Actor | None,
        reason: str,
        key: str | None,
    ) -> None:
        self.noted.append((name, value, scope, actor, reason, key))

    def heartbeat(self, details: str, /) -> None:
        self.noted.append(details)

    def last_heartbeat(self) -> str | None:
        return self.last

    def publish(self, type: str, data: str, /) -> None:
        self.noted.append((type, data))


def context(runtime: StageRuntime) -> StageContext[None]:
    return StageContext(
        run_id="r1",
        workflow="p",
        stage="publish",
        attempt=2,
        epoch=3,
        idempotency_key="r1/publish",
        config=None,
        runtime=runtime,
    )


def test_what_an_earlier_stage_gave_is_read_by_its_type() -> None:
    ctx = context(MemoryRuntime({"extract": StageOutputs(('[{"text":"a"}]',))}))

    assert ctx.output_of(extract) == [Page("a")]


def test_what_a_mapped_stage_gave_is_a_list() -> None:
    ctx = context(MemoryRuntime({"translate": StageOutputs(('{"text":"a"}', '{"text":"b"}'), mapped=True)}))

    assert ctx.outputs_of(translate) == [Page("a"), Page("b")]


def test_a_mapped_stage_may_have_given_nothing() -> None:
    assert context(MemoryRuntime({"translate": StageOutputs((), mapped=True)})).outputs_of(translate) == []


def test_an_output_that_there_is_not_is_an_error_or_the_default() -> None:
    ctx = context(MemoryRuntime())

    assert ctx.output_of(extract, None) is None
    with pytest.raises(
        OutputMissingError, match="no output of stage 'extract': it is not an earlier stage of this"
    ):
        ctx.output_of(extract)
    with pytest.raises(OutputMissingError, match="it is not an earlier stage"):
        ctx.outputs_of(translate)


def test_asking_a_mapped_stage_for_one_output_names_the_other_method() -> None:
    with pytest.raises(OutputMissingError, match="it was mapped; use outputs_of"):
        context(MemoryRuntime({"translate": StageOutputs((), mapped=True)})).output_of(translate)


def test_asking_one_stage_for_many_outputs_names_the_other_method() -> None:
    with pytest.raises(OutputMissingError, match="it was not mapped; use output_of"):
        context(MemoryRuntime({"extract": StageOutputs(("[]",))})).outputs_of(extract)


def test_an_output_of_another_type_is_refused() -> None:
    with pytest.raises(UnreadableInputError, match=r"\$: expected list"):
        context(MemoryRuntime({"extract": StageOutputs(("3",))})).output_of(extract)


def test_progress_and_logs_reach_the_host() -> None:
    runtime = MemoryRuntime()
    ctx = context(runtime)

    ctx.progress(1, 3, "x" * 2_000)
    ctx.log("read", page=3, scanned=True)

    assert runtime.noted == [(1, 3, "x" * 1_000), ("read", {"page": 3, "scanned": True})]


@pytest.mark.parametrize(
    ("details", "text", "form"),
    [
        (None, "null", type(None)),
        ({"page": 7}, '{"page":7}', dict[str, int]),
        ([1, "a"], '[1,"a"]', list[int | str]),
        (Page("a"), '{"text":"a"}', Page),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00+00:00"', datetime),
        (Colour.RED, '"red"', Colour),
    ],
)
def test_what_a_heartbeat_says_is_read_by_the_next_attempt(details: object, text: str, form: Any) -> None:
    runtime = MemoryRuntime()
    context(runtime).heartbeat(details)
    assert runtime.noted == [text]

    runtime.last = text
    assert context(runtime).last_heartbeat(form) == details


def test_where_nothing_was_said_there_is_the_default() -> None:
    ctx = context(MemoryRuntime())

    assert ctx.last_heartbeat(int) is None
    assert ctx.last_heartbeat(int, 0) == 0
    assert ctx.last_heartbeat(int, default=3) == 3


def test_what_was_said_is_of_another_type() -> None:
    with pytest.raises(UnreadableInputError, match=r"\$: expected integer"):
        context(MemoryRuntime(last='"a"')).last_heartbeat(int)


@pytest.mark.parametrize(
    "details", ["x" * 16_383, [[[{"a": "x" * 17_000}]]], float("nan"), {"page": Page("a")}]
)
def test_details_are_small_and_can_be_stored(details: object) -> None:
    runtime = MemoryRuntime()
    with pytest.raises(UnstorableValueError):
        context(runtime).heartbeat(details)
    context(runtime).heartbeat("x" * 16_382)

    assert len(runtime.noted) == 1


@pytest.mark.parametrize(("done", "of"), [(-1, 3), (1, float("nan")), (float("inf"), 3)])
def test_progress_is_counted_in_finite_numbers(done: float, of: float) -> None:
    with pytest.raises(InvalidArgumentError, match="it must be a number that is finite and not negative"):
        context(MemoryRuntime()).progress(done, of)


@pytest.mark.parametrize("value", [None, Page("a"), [1]])
def test_the_fields_of_a_log_line_are_scalars(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"log: page is .*; it must be a string, a number"):
        context(MemoryRuntime()).log("read", page=value)


def test_a_sync_body_learns_that_it_is_to_stop() -> None:
    runtime = MemoryRuntime()
    ctx = context(runtime)
    ctx.check_cancelled()
    assert not ctx.cancelled

    runtime.cancelled = True

    assert ctx.cancelled
    with pytest.raises(StageCancelledError, match="stage 'publish' of run 'r1' must stop"):
        ctx.check_cancelled()


def test_a_blob_is_put_and_got_by_a_reference_that_is_a_value() -> None:
    ctx = context(MemoryRuntime())

    ref = ctx.blobs.put("scan", b"\0\1")

    assert ref.size == 2
    assert ctx.blobs.get(decode(encode(ref, BlobRef), BlobRef)) == b"\0\1"


def test_what_is_published_goes_to_the_host_as_text() -> None:
    runtime = MemoryRuntime()
    ctx = context(runtime)
    ctx.publish("page.read", Page("a"))
    ctx.publish("done_2")
    ctx.publish("many", [1, {"a": 1.5}])

    assert runtime.noted == [("page.read", '{"text":"a"}'), ("done_2", "null"), ("many", '[1,{"a":1.5}]')]


@pytest.mark.parametrize(
    "type", ["", "Paid", "order paid", ".a", "a.", "a..b", "user-paid", "1", "é", "a" * 101]
)
def test_an_event_has_a_plain_type(type: str) -> None:
    runtime = MemoryRuntime()
    with pytest.raises(InvalidEventError):
        context(runtime).publish(type)

    assert runtime.noted == []


def test_what_is_too_large_or_can_not_be_stored_is_refused_at_once() -> None:
    ctx = context(MemoryRuntime())
    ctx.publish("a", "x" * (EVENT_BYTES_MAX - 2))
    with pytest.raises(InvalidEventError, match="BlobRef"):
        ctx.publish("a", "x" * (EVENT_BYTES_MAX - 1))
    for data in (object(), [object()], float("nan"), "\ud800"):
        with pytest.raises(UnstorableValueError):
            ctx.publish("a", data)
