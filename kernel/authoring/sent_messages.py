"""Messages and cancellations that a durable function sends to other runs."""

from holdfast.kernel.authoring.child_runs import ChildRun, notify
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.functions.loop import loop_for
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.validation import TEXT, Wanted, an, check

_RUN = Wanted(
    "the id of a run, or a child run as start_child returns it",
    lambda value: isinstance(value, str | ChildRun) and value != "",
)
_SIGNAL = an("a message with its channel, as channel(message) returns it", Signal)


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
