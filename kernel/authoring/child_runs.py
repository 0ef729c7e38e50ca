"""Child runs: runs of other workflows that a durable function starts."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, Unpack, cast

from typing_extensions import TypeVar

from holdfast.kernel.authoring.options import ChildStartOptions, check_options, given_options
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.functions.call_sites import call_site
from holdfast.kernel.functions.loop import FunctionLoop, loop_for
from holdfast.kernel.functions.protocol import ChildEnded, ChildRequest, NotifyRequest
from holdfast.kernel.history.exceptions import error_if_known
from holdfast.kernel.values import decode
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.errors import InvalidArgumentError, RunCancelledError, RunFailedError
from holdfast.ports.records.run import ClosePolicy
from holdfast.ports.validation import TEXT, Wanted, an, check

if TYPE_CHECKING:
    from holdfast.kernel.authoring.calls import Call

R = TypeVar("R")
Out = TypeVar("Out", covariant=True)

ParentEnd: TypeAlias = Literal["cancel", "terminate", "abandon"]
_PARENT_END: Final = Wanted(
    "one of 'cancel', 'terminate' and 'abandon'",
    lambda value: value in [policy.value for policy in ClosePolicy],
)


class ChildRun(Generic[Out]):
    """A child run of a durable function. Elsewhere, `engine.handle(workflow, child.id)` is its handle."""

    def __init__(self, loop: FunctionLoop, id: str, output: Form) -> None:
        self._loop = loop
        self._output = output
        self.id = id

    async def result(self) -> Out:
        """Wait until the run ends, and return its result.

        Raises:
            RunFailedError: The run failed. Its error is the `__cause__`, if that was stored.
            RunCancelledError: The run was cancelled.
        """
        ended = await self._loop.children.ended(self.id)
        if ended.output is not None:
            return cast("Out", decode(ended.output, self._output))
        if ended.is_cancelled:
            raise RunCancelledError(self.id, ended.message)
        raise RunFailedError(self.id, ended.message) from error_if_known(ended.error)

    async def signal(self, signal: Signal, /) -> None:
        """Send a message to the run: `await child.signal(go(5))`. When this returns, it is stored exactly once.

        Raises:
            SignalRefusedError: The run has ended, or is a pipeline.
            InvalidArgumentError: The argument is not a `Signal`.
        """
        check(
            "signal", an("a message with its channel, as channel(message) returns it", Signal), signal=signal
        )
        await notify(self._loop, self.id, signal.channel, signal.text, checked=signal.checked)

    async def cancel(self, *, reason: str = "") -> None:
        """Cancel the run, unless it has ended. `result` raises RunCancelledError once the run has cleaned up.

        `reason` is a text for people; InvalidArgumentError if it is not a string.
        """
        check("cancel", TEXT, reason=reason)
        await notify(self._loop, self.id, None, reason)


async def notify(
    loop: FunctionLoop, run: str, channel: str | None, text: str, *, checked: bool = False
) -> None:
    """Send a message to a run or, without a channel, cancel it. A cancellation does not withdraw the request."""
    request = NotifyRequest(
        call=loop.next_call(), run=run, channel=channel, text=text, site=call_site(), checked=checked
    )
    await loop.submit(request)


async def start_child(
    call: "Call[R]", /, *, parent_end: ParentEnd = "cancel", **options: Unpack[ChildStartOptions]
) -> ChildRun[R]:
    """Start a child run of a durable function or a pipeline, without waiting for its result.

    `child = await start_child(fulfil(order))`. When this returns, the run is stored. To wait for the result at once,
    await the call itself: `await fulfil(order)`.

    Args:
        call: The workflow with its input. The engine must know this version of the workflow.
        parent_end: What happens to the run if its parent ends first: "cancel", "terminate" or "abandon".
        options: `id`, `queue`, `priority`, `attributes`, `headers`, `start_at`, `deadline`, `concurrency`, `rate`,
            `units` and `weight`, as those of `engine.start`. Without a queue, a priority or attributes the run gets the
            queue and the priority of its workflow, and otherwise those of its parent; `attributes={}` gives it none. It
            has the headers of its parent, and those given here. See `ChildStartOptions`.

    Raises:
        ChildRefusedError: A run with this id exists, or an option does not fit.
        ConcurrencyFullError: Too many runs of its concurrency key are open.
        RateExceededError: Its rate of starts is used up, and its `over` is "refuse".
        InvalidValueError: The input does not have the declared type.
        UnstorableValueError: The input can't be stored as JSON.
        InvalidArgumentError: An argument is of the wrong type, or an option is unknown or invalid.
        RuntimeError: It was not called by a durable function.
    """
    return await request_child_run(loop_for("holdfast.start_child()"), call, parent_end, options)


def request_child_run(
    loop: FunctionLoop, call: "Call[R]", parent_end: ParentEnd, options: ChildStartOptions
) -> Coroutine[Any, Any, ChildRun[R]]:
    """Start a child run. The call gets its number now, not when the coroutine is awaited."""
    check_options(options, ChildStartOptions, "start_child")
    check("start_child", _PARENT_END, parent_end=parent_end)
    definition = call.definition
    if "weight" in options and not definition.is_fair:
        raise InvalidArgumentError(
            "weight",
            f"start_child: weight is for workflows whose keys share workers, and {definition.name!r} has no"
            " fair=Fair(by=...); add it there, or leave the weight out",
        )
    number = loop.next_call()  # also if the input is refused: a replay numbers calls alike
    text = definition.input_text(call.value)
    request = ChildRequest(
        call=number,
        workflow=definition.name,
        version=definition.version,
        input=text,
        attributes_taken=definition.attributes_in(text) or None,
        run=options.get("id"),
        parent_end=parent_end,
        options=given_options(options),
        site=call_site(),
    )
    return loop.made(request, _await_child_start(loop, request, definition.output_type))


async def _await_child_start(loop: FunctionLoop, request: ChildRequest, output: object) -> ChildRun[Any]:
    # A cancellation does not withdraw the request: otherwise it would be unknown whether the run exists.
    run = cast("str", await loop.submit(request))

    def check(ended: ChildEnded, row: int) -> None:
        """Halt the function if the result of the run can't be read, whether the code awaits it or not."""
        if ended.output is not None:
            try:
                decode(ended.output, output)
            except Exception as error:  # noqa: BLE001  # a user's class may raise anything
                loop.halt(f"what the run {run!r} of {request.workflow!r} gave", row, error)

    loop.children.begin(run, check, is_bound=request.parent_end != ClosePolicy.ABANDON)
    if loop.fault is not None:
        await loop.never()
    return ChildRun(loop, run, output)


async def run_child(loop: FunctionLoop, call: "Call[R]") -> R:
    """Start a child run and return its result."""
    return await (await request_child_run(loop, call, "cancel", {})).result()
