"""Bodies of async methods that do more than call the sync method in a thread.

`python -m tools.async_facade` generates methods of the same names that call them.
"""

from collections.abc import AsyncIterator
from typing import Any, Unpack

import anyio
from typing_extensions import TypeVar

from holdfast.hosts.client.queries import UpdateReplyReader
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.client.sync_run_handle import (
    SyncRunHandle,
    published_timeout_message,
    result_timeout_message,
    seconds_of,
    update_timeout_message,
)
from holdfast.hosts.execution.event_loops import resolved
from holdfast.hosts.execution.threads import in_thread, iterate_in_thread
from holdfast.hosts.functions.published_values import PublishedValueReader
from holdfast.hosts.inspection.logs import FOLLOW_INTERVAL, LogLine, LogOptions
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.options import StartOptions
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.ports.actors import Actor
from holdfast.ports.durations import Duration
from holdfast.ports.records.run import TERMINAL
from holdfast.ports.validation import TEXT, TRUTH, check

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)


async def run(engine: SyncEngine, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
    """Start a run, and wait for its result without a thread."""
    handle = await in_thread(lambda: engine.start(call, **options))
    return await result(handle)


async def result(handle: SyncRunHandle[Out], /, *, timeout: Duration | None = None) -> Out:
    """Wait for the result of a run without a thread."""
    seconds = seconds_of(timeout)
    until = None if seconds is None else anyio.current_time() + seconds
    while True:
        # Subscribe before reading: a run that ends in between would go unnoticed.
        listened = handle.newest_key
        end = None if listened is None else handle.core.listener.when_ended(listened)
        try:
            run = await in_thread(handle.row)
            if run.status not in TERMINAL:
                if end is None or run.key != listened:
                    continue
                with anyio.fail_after(None if until is None else until - anyio.current_time()):
                    run = await resolved(end)
        except TimeoutError:
            raise TimeoutError(result_timeout_message(handle.id, timeout)) from None
        finally:
            if end is not None:
                end.cancel()
        if not run.has_successor:
            break
    return await in_thread(handle.output, run)


async def update(
    handle: SyncRunHandle[object],
    call: UpdateCall[T],
    /,
    *,
    timeout: Duration | None = None,
    idempotency_key: str | None = None,
    actor: Actor | None = None,
) -> T:
    """Store an update in a thread, and wait for its reply without one."""
    seconds_of(timeout, "update")  # an invalid timeout is refused before anything is stored
    reply = await in_thread(lambda: handle.submit_update(call, idempotency_key=idempotency_key, actor=actor))
    return call.decoded(await _reply_text(handle.core, reply, timeout))


async def update_with_start(
    engine: SyncEngine,
    call: Call[object],
    update: UpdateCall[T],
    /,
    *,
    timeout: Duration | None = None,
    **options: Unpack[StartOptions],
) -> T:
    """Start a run and store an update in a thread, and wait for the reply without one."""
    seconds_of(timeout, "update_with_start")
    reply = await in_thread(lambda: engine.submit_update_with_start(call, update, options))
    return update.decoded(await _reply_text(engine.core, reply, timeout))


async def _reply_text(core: Core, reply: UpdateReplyReader, timeout: Duration | None) -> str:
    """Wait for the reply to a stored update and return its JSON text."""
    try:
        with anyio.fail_after(seconds_of(timeout, "update")):
            while (text := await in_thread(reply.read_reply)) is None:
                future = core.listener.when_past(reply.run, reply.last_read_row)
                try:
                    await resolved(future)
                finally:
                    future.cancel()
    except TimeoutError:
        raise TimeoutError(update_timeout_message(reply.run_id, reply.update, timeout)) from None
    return text


async def published_values(
    handle: SyncRunHandle[object], name: str, type: Any, /, *, follow: bool = False
) -> AsyncIterator[Any]:
    """Yield published values. No thread waits for further ones."""
    check("published_values", TEXT, name=name)
    check("published_values", TRUTH, follow=follow)
    reader = await in_thread(handle.published_reader, name, type)
    while True:
        for value in await in_thread(reader.read_new):
            yield value
        if reader.ended or not follow:
            return
        await _new_rows(handle.core, reader)


async def wait_for_published(
    handle: SyncRunHandle[object], name: str, type: Any, /, *, timeout: Duration | None = None
) -> Any:
    """Wait for a published value without a thread."""
    check("wait_for_published", TEXT, name=name)
    seconds = seconds_of(timeout, "wait_for_published")
    reader = await in_thread(handle.published_reader, name, type)
    values = await in_thread(reader.read_new)  # outside the timeout, which may be 0
    try:
        with anyio.fail_after(seconds):
            while not values and not reader.ended:
                await _new_rows(handle.core, reader)
                values = await in_thread(reader.read_new)
    except TimeoutError:
        raise TimeoutError(published_timeout_message(handle.id, name, timeout)) from None
    return values[-1] if values else None


async def _new_rows(core: Core, reader: PublishedValueReader) -> None:
    """Wait until the run has new rows, or has ended."""
    future = core.listener.when_past(reader.run, reader.last_read_row)
    try:
        await resolved(future)
    finally:
        future.cancel()


async def logs(
    handle: SyncRunHandle[object], /, *, follow: bool = False, **options: Unpack[LogOptions]
) -> AsyncIterator[LogLine]:
    """Yield log lines. Between two reads of a followed log, no thread waits."""
    reader = await in_thread(handle.log_reader, options)
    if not follow:
        async for line in iterate_in_thread(reader.all()):
            yield line
    while follow:
        for line in await in_thread(reader.read_new):
            yield line
        if reader.ended:
            return
        await anyio.sleep(FOLLOW_INTERVAL)
