"""Runs the body of one stage to its outcome: async bodies on the event loop, sync ones in a thread."""

import inspect
from collections.abc import Awaitable, Callable
from typing import cast

import anyio
from anyio import CapacityLimiter, lowlevel

from holdfast.hosts.execution.attempt_runtime import AttemptRuntime
from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.execution.threads import result_in_thread, run_in_thread
from holdfast.hosts.wiring.interceptors import within
from holdfast.hosts.wiring.payloads import INLINE_MAX
from holdfast.kernel.commands import Outcome


async def run_stage(body: Body, threads: CapacityLimiter) -> Outcome:
    """Run the body of a stage and return its outcome. Raises only the cancellation of the caller.

    A sync body that is cancelled or times out is flagged as cancelled and abandoned: its thread cannot be stopped,
    and its result is dropped.
    """
    if body.has_no_user_code:
        return body.done() if len(body.work.input) <= INLINE_MAX else await result_in_thread(body.done)
    try:
        return await within(body.interceptors, lambda: body.call, lambda: _in_time(body, threads))
    except _AttemptTimeoutError:
        return body.timed_out()
    except BaseException as error:  # noqa: BLE001  # a body may raise anything, CancelledError too
        if not isinstance(error, GeneratorExit):
            await lowlevel.checkpoint_if_cancelled()  # raises if this task is being cancelled
        return body.failed(error)


class _AttemptTimeoutError(TimeoutError):
    """The attempt exceeded its timeout."""


async def _in_time(body: Body, threads: CapacityLimiter) -> Outcome:
    if body.timeout is None:  # the usual case: a cancel scope costs more than a quick body
        return await _completed(body, await _call(body, threads))
    with anyio.move_on_after(body.timeout):
        return await _completed(body, await _call(body, threads))
    body.runtime.cancel()
    raise _AttemptTimeoutError


async def _completed(body: Body, value: object) -> Outcome:
    """Return the outcome of a body that returned `value`. Large results are stored in a thread."""
    result = body.encoded_result(value)
    if body.payloads.stay_inline(result.text):
        return body.stored(result)
    return await result_in_thread(lambda: body.stored(result))


async def _call(body: Body, threads: CapacityLimiter) -> object:
    if body.is_async:
        return await cast("Awaitable[object]", body.invoked())
    call = _Call(body.invoked, body.runtime)
    await run_in_thread(call, threads)
    value = call.result()
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value


class _Call:
    """A call whose exception is kept, as some exceptions, like StopIteration, cannot be raised across threads."""

    def __init__(self, function: Callable[[], object], runtime: AttemptRuntime) -> None:
        self._function = function
        self._runtime = runtime
        self._value: object = None
        self._error: BaseException | None = None

    def __call__(self) -> None:
        self._runtime.is_in_thread = True
        try:
            self._value = self._function()
        except BaseException as error:  # noqa: BLE001  # raised again where the body is awaited
            self._error = error
        finally:
            self._runtime.is_in_thread = False

    def result(self) -> object:
        if self._error is not None:
            if isinstance(self._error, StopIteration):
                raise RuntimeError("the body raised StopIteration") from self._error
            raise self._error
        return self._value
