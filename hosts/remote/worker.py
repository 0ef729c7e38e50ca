"""A worker that runs queued steps and remote stages for a server, with an API key in place of the database."""

import logging
import os
import platform
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

import anyio
import anyio.to_thread
import attrs
from anyio import CancelScope, CapacityLimiter, lowlevel
from anyio.abc import TaskGroup

from holdfast.hosts.execution.event_loops import caller_into_loop
from holdfast.hosts.execution.failures import MESSAGE_MAX, named_match, retry_after_of, traceback_text
from holdfast.hosts.remote.bodies import AnyStage, AnyStep, RemoteBody, Task, bodies_of, queues_of
from holdfast.hosts.remote.connection import Abandonment, Answer, ServerConnection
from holdfast.hosts.remote.large_values import input_text, sent_output
from holdfast.hosts.remote.protocol import CLAIMED_MAX, HELD_MAX, LARGE, LEASE_MAX, LEASE_MIN, SETTLED_MAX
from holdfast.hosts.remote.services import RemoteServices
from holdfast.hosts.text import first_of, printable
from holdfast.kernel.history.exceptions import message_of
from holdfast.kernel.rules.retries import RETRY_AFTER_MAX
from holdfast.ports.durations import Duration
from holdfast.ports.errors import AccessDeniedError, HoldfastError, UnavailableError
from holdfast.ports.json import parse
from holdfast.ports.validation import TEXT, check, duration, refused, several

R = TypeVar("R")

_REFUSABLE: Final = 1024 * 1024
"""The size of a body, in bytes, that a proxy in front of a server may refuse."""
_REFUSABLE_TRIES: Final = 5
_TOGETHER: Final = 512 * 1024
"""The size of the outcomes, in bytes, that are sent together at most."""
_TOGETHER_TRIES: Final = 2
"""How often they are sent together until each is sent alone."""
_GATHER: Final = 0.005
"""For how many seconds a claim waits for more free slots, while other tasks run or are settled."""
_GATHER_OUTCOMES: Final = 0.001
"""For how many seconds an outcome waits for others, while other bodies run."""
_TRACEBACK_MAX: Final = 2_000
"""How many characters of a traceback are sent."""
_LAST_TRIES: Final = 3
"""How often the end of a worker is reported to a server that does not answer."""

_log = logging.getLogger("holdfast.remote")


class RemoteWorker:
    """Runs queued steps for a server: `RemoteWorker("https://holdfast.example.com", key, steps=[embed]).run()`.

    It needs an API key with the scope `work`, and no access to the database. Steps and stages run as in a `Worker`; of
    `step_context()` and `StageContext`, what needs the store raises RuntimeError.

    Args:
        url: The URL of the server.
        key: An API key with the scope `work`.
        steps: The steps, each with a queue.
        stages: The bodies of remote stages: stages with the same name as in the pipeline, without `remote=True`.
        namespace: The namespace.
        queues: The queues that it serves; those of its steps and stages if omitted.
        concurrency: How many bodies run at once.
        name: Its name, for people; that of the machine and the process if omitted.
        lease: After how long without a sign of life others get its tasks: 5 seconds to an hour.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        steps: Iterable[AnyStep] = (),
        stages: Iterable[AnyStage] = (),
        namespace: str = "default",
        queues: Iterable[str] | None = None,
        concurrency: int = 1,
        name: str | None = None,
        lease: Duration = timedelta(seconds=30),
    ) -> None:
        check("RemoteWorker", TEXT, url=url, key=key, namespace=namespace)
        check("RemoteWorker", TEXT.or_none, name=name)
        if isinstance(concurrency, bool) or not 1 <= concurrency <= HELD_MAX:
            raise refused("RemoteWorker", "concurrency", concurrency, f"a number from 1 to {HELD_MAX:,}")
        given = several("RemoteWorker", "steps", steps, "a list of queued steps")
        bodies = several("RemoteWorker", "stages", stages, "a list of stages")
        self._bodies = bodies_of(given, bodies)
        if not self._bodies:
            raise refused(
                "RemoteWorker", "steps", steps, "a list of at least one step, unless there are stages"
            )
        found = queues_of(given, bodies) if queues is None else queues
        self._queues = sorted(set(several("RemoteWorker", "queues", found, "a list of names")))
        self._concurrency = concurrency
        self._name = name or f"{platform.node()}:{os.getpid()}"
        self._lease = duration("RemoteWorker", "lease", lease, LEASE_MIN, LEASE_MAX)
        self._server = ServerConnection(url, key, namespace)
        self._stopping = threading.Event()
        self._loop: Future[Callable[[], None]] = Future()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run steps until `stop`, SIGTERM or Ctrl-C; then wait for those that run. A worker runs once.

        A second signal gives the running steps back. AccessDeniedError: the server refuses the key.
        """
        try:
            anyio.run(self._main)
        except BaseExceptionGroup as group:
            raise first_of(group) from None
        finally:
            self._server.close()

    def stop(self) -> None:
        """Claim no more tasks, and end once those that run have ended. From any thread."""
        self._stopping.set()
        if self._loop.done():
            self._loop.result()()

    def __enter__(self) -> Self:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self._run_in_thread, name="holdfast-remote-worker")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for the end. Raises what `run` raised, unless the block raised something itself."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001  # raised again at the end of the block
            _log.error("the worker has ended: %s", error)  # it is raised with its traceback
            self._error = error

    async def _main(self) -> None:
        stopped = anyio.Event()
        in_loop = caller_into_loop()
        self._loop.set_result(lambda: in_loop(stopped.set))
        if self._stopping.is_set():
            return
        # Calls of the server get threads of their own: bodies must not hold up a heartbeat.
        calls = CapacityLimiter(2 * self._concurrency + 3)
        bodies = CapacityLimiter(self._concurrency)
        async with anyio.create_task_group() as group:
            if threading.current_thread() is threading.main_thread():
                group.start_soon(self._obey_signals, stopped, group.cancel_scope)
            while not stopped.is_set():
                await _WorkerSession(self._server, self._bodies, self._registration(), calls, bodies).run(
                    stopped
                )
            group.cancel_scope.cancel()

    async def _obey_signals(self, stopped: anyio.Event, scope: CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if stopped.is_set():
                    scope.cancel()
                stopped.set()

    def _registration(self) -> Mapping[str, object]:
        return {
            "name": self._name[:255],
            "language": f"python {platform.python_version()}",
            "steps": [one.name for one in self._bodies if not one.is_stage],
            "stages": [one.name for one in self._bodies if one.is_stage],
            "queues": self._queues,
            "concurrency": self._concurrency,
            "lease_seconds": self._lease.total_seconds(),
        }


@attrs.define(eq=False)
class _SentOutcome:
    """An outcome that is to be sent, and its answer."""

    token: str
    how: str
    """`complete` or `fail`."""
    body: object
    size: int
    answered: anyio.Event = attrs.field(factory=anyio.Event)
    answer: Answer | None = None


@attrs.frozen
class _Claim:
    """A claim, which is repeated under its key."""

    key: str
    limit: int

    def request(self, worker: str) -> tuple[str, str, Mapping[str, object]]:
        """Return its method, path and body."""
        return "POST", f"/workers/{worker}/claim", {"limit": self.limit, "addresses": True}


@attrs.define(eq=False)
class _WorkerSession:
    """One session of a worker with the server, until the worker stops or the session is lost."""

    server: ServerConnection
    available: Sequence[RemoteBody]
    registration: Mapping[str, object]
    calls: CapacityLimiter
    bodies: CapacityLimiter
    running: dict[str, tuple[CancelScope, RemoteServices]] = attrs.field(
        factory=dict[str, tuple[CancelScope, RemoteServices]]
    )
    busy: int = 0
    """How many of them run a body. The outcomes of the others are being stored."""
    worker: str = ""
    changed: anyio.Event = attrs.field(factory=anyio.Event)
    """Set when a task has ended."""
    outcomes: deque[_SentOutcome] = attrs.field(factory=deque["_SentOutcome"])
    """The outcomes that wait until those before them are stored."""
    has_outcomes: anyio.Event = attrs.field(factory=anyio.Event)

    async def run(self, stopped: anyio.Event) -> None:
        """Register, and run tasks. Return after a stop, with nothing running, or when the session is lost."""
        concurrency = cast("int", self.registration["concurrency"])
        registered = _checked(await self._call("POST", "/workers", self.registration)).document
        self.worker = cast("str", registered["worker"])
        _log.info("registered as %s", self.worker)
        wait = int(cast("float", registered["wait_max_seconds"]))
        try:
            async with anyio.create_task_group() as group:
                claims = CancelScope()

                async def stop_claims() -> None:
                    await stopped.wait()
                    claims.cancel()

                group.start_soon(stop_claims)
                group.start_soon(
                    self._send_heartbeats, registered["heartbeat_every_seconds"], group.cancel_scope
                )
                group.start_soon(self._send_outcomes)
                async with anyio.create_task_group() as tasks:
                    with claims:
                        number = 0
                        while True:
                            free = await self._free(concurrency)
                            number += 1
                            answer = await self._claim(_Claim(str(number), free), wait, tasks)
                            if answer.code == "session_lost":
                                group.cancel_scope.cancel()
                            for task in _checked(answer, "session_lost").document.get("tasks", ()):
                                scope = CancelScope()
                                services = RemoteServices(_named(task))
                                self.running[task["token"]] = scope, services
                                self.busy += 1
                                tasks.start_soon(self._work, task, scope, services)
                group.cancel_scope.cancel()
        finally:
            with CancelScope(shield=True), suppress(UnavailableError):
                await self._call("DELETE", f"/workers/{self.worker}", tries=_LAST_TRIES)

    async def _claim(self, claim: _Claim, wait: int, tasks: TaskGroup) -> Answer:
        """Return the answer to a claim. At a stop the claim is given up, and its tasks are released."""
        abandonment = Abandonment()
        try:
            return await self._call(
                *claim.request(self.worker), key=claim.key, wait=wait, abandonment=abandonment
            )
        except anyio.get_cancelled_exc_class():
            abandonment.give_up()
            tasks.start_soon(self._release_claimed, claim)
            raise

    async def _release_claimed(self, claim: _Claim) -> None:
        """Release the tasks of a claim whose answer was not read. Other workers would get them after the lease."""
        with suppress(UnavailableError):
            answer = await self._call(*claim.request(self.worker), key=claim.key, tries=_LAST_TRIES)
            for task in answer.document.get("tasks", ()):
                await self._call("POST", f"/tasks/{task['token']}/release", {}, tries=_LAST_TRIES)

    async def _free(self, concurrency: int) -> int:
        """Wait for free slots, and return how many there are.

        A slot is free once its body has ended: its outcome is stored while the next task is claimed. If more slots may
        be free soon, they are waited for: one claim for several costs the server as much as for one.
        """
        await self._until_free(concurrency, 1)
        with anyio.move_on_after(_GATHER):
            await self._until_free(concurrency, concurrency // 2)
        return self._free_now(concurrency)

    async def _until_free(self, concurrency: int, number: int) -> None:
        while self._free_now(concurrency) < number:
            self.changed = anyio.Event()
            await self.changed.wait()

    def _free_now(self, concurrency: int) -> int:
        return min(concurrency - self.busy, 2 * concurrency - len(self.running), CLAIMED_MAX)

    async def _call(self, method: str, path: str, body: object = None, **options: Any) -> Answer:
        call = partial(self.server.call, method, path, body, **options)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self.calls)

    async def _send_heartbeats(self, every: float, life: CancelScope) -> None:
        path = f"/workers/{self.worker}/heartbeat"
        while True:
            await anyio.sleep(every)
            holds = [{"token": token} for token in self.running]
            answer = _checked(await self._call("POST", path, {"holds": holds}), "session_lost")
            if answer.code == "session_lost":
                _log.warning("the session is lost: running tasks are dropped")
                life.cancel()
            for token in answer.document.get("stop", ()):
                self._stop(token)

    def _stop(self, token: str) -> None:
        if (found := self.running.get(token)) is not None:
            scope, services = found
            services.cancelled = True
            scope.cancel()

    async def _work(self, task: Task, scope: CancelScope, services: RemoteServices) -> None:
        """Run a task and settle it. Its outcome is dropped if the worker does not hold it any more."""
        token, body = task["token"], self._body_of(task)
        try:
            with scope:
                try:
                    output = await self._output(body, task, services)
                except BaseException as error:
                    if isinstance(error, GeneratorExit):
                        raise
                    await lowlevel.checkpoint_if_cancelled()  # raises if this task is being cancelled
                    await self._fail(token, _failure(body, task, error))
                else:
                    await self._complete(token, output)
        finally:
            del self.running[token]
            self.changed.set()

    async def _output(self, body: RemoteBody, task: Task, services: RemoteServices) -> str:
        """Run a body, and return the JSON text of its result. Raises its errors."""
        try:
            has_address = task["input_address"] is not None
            read = partial(input_text, self.server, task)
            text = await self._in_thread(read) if has_address else read()
            return await body.result(task, text, services, self.bodies)
        finally:
            self.busy -= 1
            self.changed.set()

    def _body_of(self, task: Task) -> RemoteBody:
        name, is_stage = task["stage"] or task["step"], task["stage"] is not None
        return next(one for one in self.available if (one.name, one.is_stage) == (name, is_stage))

    async def _complete(self, token: str, text: str) -> None:
        reference = None
        if len(text) > LARGE:
            reference = await self._in_thread(partial(sent_output, self.server, token, text))
        output = {"output": parse(text)} if reference is None else {"reference": reference}
        size = len(text) if reference is None else 0
        # A server that refuses a large body may close the connection before it is sent, so that its answer is lost.
        tries = _REFUSABLE_TRIES if size > _REFUSABLE else None
        try:
            answer = await self._settle(token, "complete", output, size, tries)
        except UnavailableError:
            answer = Answer(413, {"code": "too_large", "detail": "the server does not take the output"})
        if answer.status in {400, 413}:
            error = {"code": answer.code, "message": answer.detail[:MESSAGE_MAX], "type": "StepResultError"}
            await self._fail(token, {"error": error, "retry": False})

    async def _fail(self, token: str, failure: Mapping[str, object]) -> None:
        """Report a failed attempt. If the server does not take the report, it gets one without the body's words."""
        answer = await self._settle(token, "fail", failure)
        if answer.status in {400, 413}:
            text = f"the server does not take the report of the failure: {answer.detail}"
            error = {"code": "body_error", "message": printable(text)[:MESSAGE_MAX], "type": "HoldfastError"}
            await self._settle(token, "fail", {"error": error, "retry": failure["retry"]})

    async def _settle(
        self, token: str, how: str, body: object, size: int = 0, tries: int | None = None
    ) -> Answer:
        """Send an outcome, and return its answer. Small ones are sent together."""
        if size > LARGE:
            answer = await self._settle_alone(token, how, body, tries)
        else:
            one = _SentOutcome(token, how, body, size)
            self.outcomes.append(one)
            self.has_outcomes.set()
            await one.answered.wait()
            answer = one.answer or await self._settle_alone(token, how, body)
        if answer.status >= 400:
            _log.warning("the outcome of a task was refused: %s: %s", answer.code, answer.detail)
        return answer

    async def _settle_alone(self, token: str, how: str, body: object, tries: int | None = None) -> Answer:
        return await self._call("POST", f"/tasks/{token}/{how}", body, tries=tries)

    async def _send_outcomes(self) -> None:
        """Send the outcomes that were added while earlier ones were stored, many in one request."""
        while True:
            await self.has_outcomes.wait()
            if self.busy:
                await anyio.sleep(_GATHER_OUTCOMES)
            self.has_outcomes = anyio.Event()
            while batch := self._next_outcomes():
                # A request that is refused as a whole, or not answered, says nothing about each outcome: then each is
                # sent alone, so that one that the server can't take does not hold up the others.
                for one, found in zip(batch, await self._answers_to(batch), strict=False):
                    problem = found["problem"]
                    one.answer = Answer(200, {}) if problem is None else Answer(problem["status"], problem)
                for one in batch:
                    one.answered.set()

    async def _answers_to(self, batch: Iterable[_SentOutcome]) -> Iterable[Mapping[str, Any]]:
        """Return the answers to outcomes; none if the request has none."""
        body = {"outcomes": [{"token": one.token, one.how: one.body} for one in batch]}
        try:
            answer = await self._call("POST", "/tasks:settle", body, tries=_TOGETHER_TRIES)
        except UnavailableError:
            return ()
        return cast("Iterable[Mapping[str, Any]]", answer.document.get("answers", ()))

    def _next_outcomes(self) -> list[_SentOutcome]:
        found: list[_SentOutcome] = []
        size = 0
        while self.outcomes and len(found) < SETTLED_MAX and size + self.outcomes[0].size <= _TOGETHER:
            found.append(self.outcomes.popleft())
            size += found[-1].size
        return found

    async def _in_thread(self, call: Callable[[], R]) -> R:
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self.calls)


def _checked(answer: Answer, *expected: str) -> Answer:
    """Return an answer that is no problem, or one of these. AccessDeniedError, HoldfastError."""
    if answer.status < 400 or answer.code in expected:
        return answer
    kind = AccessDeniedError if answer.status in {401, 403, 404} else HoldfastError
    raise kind(f"the server refuses the worker: {answer.status} {answer.code}: {answer.detail}")


def _failure(body: RemoteBody, task: Task, error: BaseException) -> Mapping[str, object]:
    """Return the report of a failed attempt: what was raised, and which class of the policy it is.

    Whether and when there is another attempt is decided in the kernel of the server.
    """
    names = body.names(task)
    matched, is_final = named_match(error, names.rules | names.give_up_on)
    after = retry_after_of(error)
    found: dict[str, object] = {
        "error": {
            "code": error.code if isinstance(error, HoldfastError) else "body_error",
            "type": printable(type(error).__name__)[:255],
            "message": printable(message_of(error))[:MESSAGE_MAX],
            "traceback": traceback_text(error, _TRACEBACK_MAX),
        },
        "matched": matched or "",
        "retry": not is_final and matched not in names.give_up_on,
    }
    return (
        found if after is None else {**found, "retry_after_seconds": min(after, RETRY_AFTER_MAX) / 1_000_000}
    )


def _named(task: Task) -> str:
    return f"step {task['step']!r}" if task["stage"] is None else f"stage {task['stage']!r}"
