"""Model calls of a run: listed and added up."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, TypedDict, cast

import attrs

from holdfast.hosts.inspection.filters import (
    check_names,
    number_option,
    place_option,
    text_option,
    truth_option,
)
from holdfast.hosts.wiring.pages import pages_of, place_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.ai import cost_of
from holdfast.ports.attempt_output import AiCall, AiCallKind, AiTotal
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.run_output import AiCallsOf, AiTotalsOf
from holdfast.ports.records.values import Payload

_PAGE: Final = 200


class AiCallFilter(TypedDict, total=False):
    """Filters for the model calls of a run.

    Attributes:
        topic: Only calls of this topic and of the topics below it.
        model: Only calls of this model.
        texts: Read prompts and responses too; they are None otherwise.
        after: Start after this position: the `cursor` of an `AiCallInfo`.
        limit: The maximum number of calls, at least 1; no limit if omitted.
    """

    topic: str | None
    model: str | None
    texts: bool
    after: str | None
    limit: int | None


@attrs.frozen(kw_only=True)
class AiCallInfo:
    """A model call that a stage, a step or a durable function logged."""

    at: datetime
    """When it was logged; aware, in UTC."""
    topic: str
    """The topic that it was logged under."""
    model: str
    """The name of the model."""
    kind: AiCallKind
    """The kind of call."""
    stage: str
    """The stage that made the call."""
    item: int | None
    """The index of the map item; None if the stage is not mapped."""
    epoch: int
    """The epoch of the attempt that made the call."""
    input_tokens: int
    """The number of tokens of the prompt."""
    output_tokens: int
    """The number of tokens of the response."""
    cost: Decimal | None
    """The exact cost; None if unknown."""
    duration: timedelta | None
    """How long the call took; None if unknown."""
    batch: str | None
    """The batch that the call was part of, if any."""
    batch_index: int | None
    """The index of the call in its batch."""
    prompt: object
    """The stored prompt; None also if it was not read."""
    response: object
    """The stored response; None also if it was not read."""
    error: str | None
    """Why the call failed; None if it succeeded."""
    metadata: Mapping[str, object]
    """What else was logged with it."""
    cursor: str
    """An opaque position; pass it to `ai_calls(after=...)` to list the calls that follow."""


@attrs.frozen(kw_only=True)
class AiTotals:
    """Totals of model calls."""

    name: str = ""
    """The model or topic, in an element of `parts`; otherwise empty."""
    calls: int
    """The number of calls."""
    failed: int
    """How many of them failed; the other totals include them."""
    unpriced: int
    """How many have no known cost and are missing from `cost`."""
    input_tokens: int
    """The number of tokens of all prompts."""
    output_tokens: int
    """The number of tokens of all responses."""
    cost: Decimal
    """The exact sum of the costs."""
    duration: timedelta
    """The sum of the durations."""
    parts: tuple["AiTotals", ...] = ()
    """The same totals per model or per topic."""


attrs.resolve_types(AiTotals)  # it has parts of its own class, which a client reads by its types


def ai_calls_of(core: Core, run: str, options: AiCallFilter) -> Iterator[AiCallInfo]:
    """Return the model calls of a run, oldest first, read page by page. Options are checked at once.

    Raises InvalidFilterError or InvalidArgumentError.
    """
    given = cast("dict[str, object]", options)
    check_names(given, AiCallFilter, "ai_calls")
    text_option(given, "topic")
    text_option(given, "model")
    truth_option(given, "texts")
    topic, model, texts = options.get("topic"), options.get("model"), options.get("texts", False)

    def read(after: ListPlace | None, limit: int) -> Sequence[AiCall]:
        return core.stores.persistence.read(
            AiCallsOf(run, topic=topic, model=model, after=after, limit=limit)
        )

    pages = pages_of(read, _PAGE, place_option(given), number_option(given, "limit", 1), place_of)
    return (_info(core, call, texts=texts) for page in pages for call in page)


def ai_totals_of(core: Core, run: str, topic: str | None, by: Literal["model", "topic"]) -> AiTotals:
    """Return the totals of a run's model calls. Raises InvalidFilterError."""
    if by not in ("model", "topic"):
        raise InvalidFilterError("by", f"is {by!r}; it is 'model' or 'topic'")
    parts = core.stores.persistence.read(AiTotalsOf(run, topic=topic, by=by))
    numbers = [field.name for field in attrs.fields(AiTotal) if field.name != "name"]
    whole = AiTotal(name="", **{name: sum(getattr(part, name) for part in parts) for name in numbers})
    return attrs.evolve(_total(whole), parts=tuple(map(_total, parts)))


def _info(core: Core, call: AiCall, *, texts: bool) -> AiCallInfo:
    def text(payload: Payload | None) -> object:
        return None if payload is None or not texts else parse(core.payloads.get(payload))

    return AiCallInfo(
        at=instant(call.at),
        topic=call.topic,
        model=call.model,
        kind=call.kind,
        stage=call.node,
        item=call.item,
        epoch=call.epoch,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cost=None if call.cost is None else cost_of(call.cost),
        duration=None if call.duration is None else timedelta(microseconds=call.duration),
        batch=call.batch,
        batch_index=call.batch_index,
        prompt=text(call.prompt),
        response=text(call.response),
        error=call.error,
        metadata=cast("dict[str, object]", parse(call.metadata)) if call.metadata else {},
        cursor=call.place.text,
    )


def _total(total: AiTotal) -> AiTotals:
    return AiTotals(
        name=total.name,
        calls=total.calls,
        failed=total.failed,
        unpriced=total.unpriced,
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        cost=cost_of(total.cost),
        duration=timedelta(microseconds=total.duration),
    )
