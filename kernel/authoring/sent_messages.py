"""Messages, updates and cancellations that a durable function sends to other runs."""

import asyncio
from typing import Final

from typing_extensions import TypeVar

from holdfast.kernel.authoring.child_runs import ChildRun, notify
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.functions.call_sites import call_site
from holdfast.kernel.functions.loop import FunctionLoop, loop_for
from holdfast.kernel.functions.protocol import UpdateRequest
from holdfast.kernel.functions.replies import raise_lost, raise_update_error
from holdfast.ports.durations import NO_TIME, Duration, length_of
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.validation import TEXT, Wanted, an, check, duration

Out = TypeVar("Out")

_RUN = Wanted(
    "the id of a run, or a child run as start_child returns it",
    lambda value: isinstance(value, str | ChildRun) and value != "",
)
_SIGNAL = an("a message with its channel, as channel(message) returns it", Signal)
_UPDATE: Final = an('an update with its arguments, as Board.move_to("e4")', UpdateCall)


async def signal_run(run: str | ChildRun[object], signal: Signal, /) -> None:
    """Send a message to another run of the namespace.

    `await signal_run("order-17", paid(5))`. When this returns, the message is a row of that run's history, once:
    the row of this run that records it was stored in the same transaction. The run receives it as any message, and
    `Channel.receive_message` also says which run sent it.

    Args:
        run: The id of the run, such as `run_info().parent` or the sender of a message, or a child run. Its newest
            generation gets the message.
        signal: The message with its channel, as `channel(message)` returns it.

    Raises:
        SignalRefusedError: There is no such run, it has ended, or it is a pipeline. ChannelClosedError if its function
            has closed the channel.
        InvalidArgumentError: An argument is of the wrong type.
        RuntimeError: It was not called by a durable function. A step and a program use `engine.handle(...).signal`.
    """
    loop = loop_for("holdfast.workflows.signal_run()")
    check("signal_run", _RUN, run=run)
    check("signal_run", _SIGNAL, signal=signal)
    await notify(loop, _id_of(run), signal.channel, signal.text, checked=signal.checked)


async def update_run(
    run: str | ChildRun[object], call: UpdateCall[Out], /, *, timeout: Duration | None = None
) -> Out:
    """Send an update to another run of the namespace, and return its reply.

    `total = await update_run("cart-7", Cart.add(item))`. The update is a row of that run's history, once: the row of
    this run that records it was stored in the same transaction. The reply is stored in this run, once, whatever
    crashes. No validator runs here: the function that the update is for validates it, and may reject it.

    Args:
        run: The id of the run, such as the sender of a message, or a child run. Its newest generation gets the update.
        call: The update with its arguments.
        timeout: The longest wait for the reply, a timedelta or a number of seconds; None for no limit.

    Raises:
        RunNotFoundError: There is no such run.
        UpdateRefusedError: The run has ended, or is a pipeline.
        NotExposedError: Its function exposes no object with this update.
        UpdateRejectedError: The validator rejected the update; its exception is the `__cause__`.
        UpdateFailedError: The update raised an exception, which is the `__cause__`.
        UpdateLostError: The run ended before the update was complete.
        TimeoutError: No reply within `timeout`. The update stays stored and will be carried out.
        InvalidArgumentError: An argument is of the wrong type, or the run is this one: call the method instead.
        RuntimeError: It was not called by a durable function. A step and a program use `engine.handle(...).update`.
    """
    loop = loop_for("holdfast.workflows.update_run()")
    check("update_run", _RUN, run=run)
    check("update_run", _UPDATE, call=call)
    if _id_of(run) == loop.run.id:
        raise InvalidArgumentError(
            "run",
            "update_run: the run is that of this function; call the method of the object that it exposes instead",
        )
    seconds = (
        None if timeout is None else duration("update_run", "timeout", timeout, least=NO_TIME).total_seconds()
    )
    request = UpdateRequest(
        call=loop.next_call(),
        run=_id_of(run),
        update=call.update,
        text=call.arguments,
        checked=call.checked,
        site=call_site(),
    )
    if seconds is None:
        return await _updated(loop, request, call)
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await _updated(loop, request, call)
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(
            f"run {request.run!r} has not answered update {call.update!r} within {length_of(timeout)}; it is stored,"
            " and will be carried out"
        ) from None


async def _updated(loop: FunctionLoop, request: UpdateRequest, call: UpdateCall[Out]) -> Out:
    # A cancellation does not withdraw the request: otherwise it would be unknown whether the run gets the update.
    await loop.submit(request)
    reply, row = await loop.replies.reply(request)
    if reply.lost is not None:
        raise_lost(request.run, request.update, reply.lost)
    if reply.error is not None:
        raise_update_error(request.run, request.update, reply.error, is_rejected=reply.is_rejected)
    try:
        return call.decoded(reply.output or "null")
    except Exception as error:  # noqa: BLE001  # a user's class may raise anything
        loop.halt(f"the reply to update {request.update!r} of run {request.run!r}", row, error)
    return await loop.never()


async def cancel_run(run: str | ChildRun[object], /, *, reason: str = "") -> None:
    """Cancel another run of the namespace, unless it has ended.

    `await cancel_run("order-17", reason="sold out")`. The cancellation is stored in the same transaction as the row of
    this run that records it. Nothing happens if there is no such run.

    Args:
        run: The id of the run, or a child run.
        reason: A text for people.

    Raises:
        InvalidArgumentError: An argument is of the wrong type, or the run is this one: raise `CancelRun` instead.
        RuntimeError: It was not called by a durable function.
    """
    loop = loop_for("holdfast.workflows.cancel_run()")
    check("cancel_run", _RUN, run=run)
    check("cancel_run", TEXT, reason=reason)
    if _id_of(run) == loop.run.id:
        raise InvalidArgumentError(
            "run",
            "cancel_run: the run is that of this function; to end it, raise holdfast.workflows.CancelRun(reason)",
        )
    await notify(loop, _id_of(run), None, reason)


def _id_of(run: str | ChildRun[object]) -> str:
    return run if isinstance(run, str) else run.id
