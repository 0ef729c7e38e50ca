"""Calls of models, listed and added up for whoever looks at a run."""

from collections.abc import Iterator, Mapping
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
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.ai import cost_of
from holdfast.ports.attempt_output import AiCall, AiCallKind, AiTotal
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.run_output import AiCallsOf, AiTotalsOf
from holdfast.ports.records import Payload

_PAGE: Final = 200


class AiCallFilter(TypedDict, total=False):
    """Which calls of models of a run are asked for.

    Attributes:
        topic: Of this topic, and those below it.
        model: Of this model.
        texts: Whether to read prompts and responses too; otherwise these are None.
        after: Begin after this place: the `cursor` of an `AiCallInfo`.
        limit: How many at most, 1 or more; all if left out.
    """

    topic: str | None
    model: str | None
    texts: bool
    after: str | None
    limit: int | None


@attrs.frozen(kw_only=True)
class AiCallInfo:
    """A call of a model.

    Attributes:
        cost: Exact; None if it is not known.
        prompt: What went in, as it was kept. None also if it was not asked for.
        response: What came out, as it was kept. None also if it was not asked for.
        error: Why it failed; None if it did not.
        epoch: Which attempt of the stage made it, by the number of its lease.
        cursor: Its place in the list: give it to `ai_calls(after=...)` for those that follow. Opaque.
    """

    at: datetime
    topic: str
    model: str
    kind: AiCallKind
    stage: str
    item: int | None
    epoch: int
    input_tokens: int
    output_tokens: int
    cost: Decimal | None
    duration: timedelta | None
    batch: str | None
    batch_index: int | None
    prompt: object
    response: object
    error: str | None
    metadata: Mapping[str, object]
    cursor: str


@attrs.frozen(kw_only=True)
class AiTotals:
    """What calls of models come to. `parts` are the same by model, or by topic, whose `name` each of them has.

    Attributes:
        failed: How many of the calls failed; they count in all else too.
        unpriced: Of how many the cost is not known: they are not in `cost`.
        cost: Exact.
    """

    name: str = ""
    calls: int
    failed: int
    unpriced: int
    input_tokens: int
    output_tokens: int
    cost: Decimal
    duration: timedelta
    parts: tuple["AiTotals", ...] = ()


def ai_calls_of(core: Core, run: str, options: AiCallFilter) -> Iterator[AiCallInfo]:
    """Yield the calls of models of a run, oldest first, read some at a time. Options are checked at once."""
    given = cast("dict[str, object]", options)
    check_names(given, AiCallFilter, "ai_calls")
    text_option(given, "topic")
    text_option(given, "model")
    truth_option(given, "texts")
    return _listed(core, run, options, place_option(given), number_option(given, "limit", 1))


def ai_totals_of(core: Core, run: str, topic: str | None, by: Literal["model", "topic"]) -> AiTotals:
    """Return what the calls of a run come to: added up by the store."""
    if by not in ("model", "topic"):
        raise InvalidFilterError("by", f"is {by!r}; it is 'model' or 'topic'")
    parts = core.stores.persistence.read(AiTotalsOf(run, topic=topic, by=by))
    return AiTotals(
        calls=sum(part.calls for part in parts),
        failed=sum(part.failed for part in parts),
        unpriced=sum(part.unpriced for part in parts),
        input_tokens=sum(part.input_tokens for part in parts),
        output_tokens=sum(part.output_tokens for part in parts),
        cost=cost_of(sum(part.cost for part in parts)),
        duration=timedelta(microseconds=sum(part.duration for part in parts)),
        parts=tuple(map(_total, parts)),
    )


def _listed(
    core: Core, run: str, options: AiCallFilter, after: ListPlace | None, left: int | None
) -> Iterator[AiCallInfo]:
    topic, model = options.get("topic"), options.get("model")
    while left is None or left > 0:
        page = _PAGE if left is None else min(_PAGE, left)
        calls = core.stores.persistence.read(
            AiCallsOf(run, topic=topic, model=model, after=after, limit=page)
        )
        yield from (_info(core, call, texts=options.get("texts", False)) for call in calls)
        if len(calls) < page:
            return
        after, left = calls[-1].place, None if left is None else left - page


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
