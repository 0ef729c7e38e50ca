"""The outcomes with which the attempt of a driven function is settled."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs

from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.execution.failures import MESSAGE_MAX
from holdfast.hosts.functions.loader import rows_after
from holdfast.hosts.functions.published_values import newest_rows, published_name
from holdfast.hosts.functions.replay import FedAhead, FunctionReplay
from holdfast.hosts.functions.store_retries import until_available_in_thread
from holdfast.hosts.text import printable
from holdfast.kernel.commands import (
    Blocked,
    Cancelled,
    CarriedValue,
    Completed,
    CompletedAfterStep,
    ContinuedAsNew,
    Failed,
    Failure,
    Outcome,
)
from holdfast.kernel.functions.protocol import FunctionContinued, FunctionReturned
from holdfast.kernel.history import events
from holdfast.kernel.history.exceptions import error_words, message_of
from holdfast.kernel.rules.continue_as_new import carried_update
from holdfast.ports.records.values import Payload

_PLACES_MAX: Final = 3
"""How many places in the code the message of a stuck function names."""

_log = logging.getLogger("holdfast.functions")


async def outcome_of(body: Body, drive: FunctionReplay) -> Outcome:
    """Return the outcome of a function that ended or failed to replay. Stores a large result first."""
    if drive.fault is not None:
        return blocked(drive.fault.code, str(drive.fault))
    ended = drive.ended
    for task, error in drive.failures:
        _log.warning(
            "run %s of %s: its task %r failed and was never awaited: await it, or create it in a TaskGroup: %s",
            body.work.run.id,
            body.work.run.workflow,
            task,
            error_words(error),
        )
    if isinstance(ended, FunctionReturned):
        payloads, place, text = body.payloads, body.place, ended.output
        for one in ended.unawaited:
            run, what = body.work.run, f"{one.what}{one.site and f' ({one.site})'}"
            _log.warning(
                "run %s of %s: %s was called but never awaited, so it did not run", run.id, run.workflow, what
            )
        put = partial(payloads.put, text, place)
        if payloads.stay_inline(text):
            output = put()
        else:
            output = await until_available_in_thread(put, "the result of a function can't be stored yet")
        return Completed(output=output) if drive.ahead is None else _with_step(drive.ahead, output)
    if isinstance(ended, FunctionContinued):
        return await continue_as_new_outcome(body, drive, ended)
    assert ended is not None
    if drive.is_cancelled:
        return Cancelled(reason=printable(message_of(ended.error))[:MESSAGE_MAX])
    if isinstance(ended.error, Exception):
        return body.failed(ended.error)
    message = printable(message_of(ended.error))[:MESSAGE_MAX]
    kind = type(ended.error).__name__
    return Failed(failure=Failure(code="body_error", message=message, type=kind, retryable=False))


def _with_step(ahead: FedAhead, output: Payload) -> CompletedAfterStep:
    step, result = ahead.step.event, ahead.step.payload
    assert isinstance(step, events.StepCompleted)
    assert result is not None
    return CompletedAfterStep(output=output, seen=ahead.after, step=step, result=result)


def stuck(places: Sequence[str]) -> Outcome:
    """Return the outcome of a function that waits, at these places in the code, for something that cannot arrive."""
    first = "; ".join(places[:_PLACES_MAX])
    more = f"; and {len(places) - _PLACES_MAX} more tasks" if len(places) > _PLACES_MAX else ""
    message = (
        f"the function waits for something that can never happen, at {first or 'no line of its own'}{more}: an"
        " asyncio.Event that is never set, or the result of a thread or another event loop, which no replay could"
        " repeat: make that a step, a function with @step, and await it"
    )
    return blocked("stuck", message)


def blocked(code: str, message: str) -> Outcome:
    """Return an outcome that blocks the run."""
    return Blocked(failure=Failure(code=code, message=printable(message)[:MESSAGE_MAX]))


_SHOWN_PAGE: Final = 100
"""How many rows with published values are read per page."""


async def continue_as_new_outcome(
    body: Body, drive: FunctionReplay, ended: FunctionContinued
) -> ContinuedAsNew:
    """Return the outcome of a continue-as-new, with the updates that the function has not started."""
    unread = drive.unread

    def made() -> ContinuedAsNew:
        rows = [row for row in (rows_after(body, 0) if unread else ()) if row.number in unread]
        # Stored under a key of its own: the blob belongs to the next generation.
        place = attrs.evolve(body.place, run=f"{body.work.run.key}-next")
        return ContinuedAsNew(
            workflow=ended.workflow,
            version=ended.version,
            input=body.payloads.put(ended.input, place),
            seen=drive.seen,
            updates=tuple(carried_update(row) for row in rows if row.type == events.UpdateReceived.type),
            published=_shown(body) if drive.has_published else (),
        )

    return await until_available_in_thread(made, "the input of the next generation can't be stored yet")


def _shown(body: Body) -> tuple[CarriedValue, ...]:
    """Return the last published value of each name."""
    newest: dict[str, CarriedValue] = {}
    for row in newest_rows(body.parts.persistence, body.work.run, events.ValuePublished.type, _SHOWN_PAGE):
        name = published_name(row)
        if name not in newest and row.payload is not None:
            newest[name] = CarriedValue(name=name, value=row.payload)
    return tuple(newest[name] for name in sorted(newest))
