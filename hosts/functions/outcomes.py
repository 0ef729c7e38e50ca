"""How a function that is driven has ended: what its attempt is settled with."""

import logging
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Final

from holdfast.hosts.bodies import Body
from holdfast.hosts.failures import MESSAGE_MAX
from holdfast.hosts.functions.continuing import going_on
from holdfast.hosts.functions.drive import Drive
from holdfast.hosts.functions.patience import until_available_in_thread
from holdfast.hosts.payloads import INLINE_MAX
from holdfast.kernel.commands import Blocked, Cancelled, Completed, Failed, Failure, Outcome
from holdfast.kernel.functions.asked import GoesOn, Returned
from holdfast.kernel.functions.raising import error_words

_PLACES_MAX: Final = 3
"""How many places are named in which a function waits for nothing."""

_log = logging.getLogger("holdfast.functions")


async def outcome_of(body: Body, drive: Drive) -> Outcome:
    """Return how a function has ended, or why it can't go on. What it gave is stored by then."""
    if drive.fault is not None:
        return blocked(drive.fault.code, str(drive.fault))
    ended = drive.ended
    for task, error in drive.failures:
        _log.warning(
            "run %s of %s: its task %r has failed, and nobody awaited it: await it, or make it in a TaskGroup: %s",
            body.work.run.id,
            body.work.run.workflow,
            task,
            error_words(error),
        )
    if isinstance(ended, Returned):
        payloads, place, text = body.payloads, body.place, ended.output
        for one in ended.unawaited:
            run, what = body.work.run, f"{one.what}{one.site and f' ({one.site})'}"
            _log.warning(
                "run %s of %s: %s was called, never awaited, and so not done", run.id, run.workflow, what
            )
        if len(text) <= INLINE_MAX:
            return Completed(output=payloads.put(text, place))
        put = partial(payloads.put, text, place)
        return Completed(
            output=await until_available_in_thread(put, "what a function gave can't be stored yet")
        )
    if isinstance(ended, GoesOn):
        return await going_on(body, drive, ended)
    assert ended is not None
    if drive.is_cancelled:
        return Cancelled(reason=str(ended.error)[:MESSAGE_MAX])
    if isinstance(ended.error, Exception):
        return body.failed(ended.error)
    message = "".join(traceback.format_exception_only(ended.error)).strip()
    kind = type(ended.error).__name__
    return Failed(failure=Failure(code="body_error", message=message, type=kind, retryable=False))


def stuck(places: Sequence[str]) -> Outcome:
    """Return that a function waits, at these places, for nothing that could come."""
    first = "; ".join(places[:_PLACES_MAX])
    more = f"; and {len(places) - _PLACES_MAX} tasks more" if len(places) > _PLACES_MAX else ""
    message = (
        f"the function waits for something that nobody will ever bring, at {first or 'no line of its own'}{more}: an"
        " asyncio.Event that nobody sets, say; or what a thread or another loop brings, which no replay could repeat:"
        " make that a step, a function with @step, and await it"
    )
    return blocked("stuck", message)


def blocked(code: str, message: str) -> Outcome:
    """Return that somebody has to look at a run, and why."""
    return Blocked(failure=Failure(code=code, message=message[:MESSAGE_MAX]))
