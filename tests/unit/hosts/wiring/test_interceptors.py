"""Interceptors see every dispatch and body, can refuse them, and cannot lose anything."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import anyio
import attrs
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.interceptors import BodyCall, CommandBatch
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import RunCreate, SessionOpen
from holdfast.ports.errors import CommandError, RetryAfter, RunFailedError

who: ContextVar[str] = ContextVar("who", default="nobody")
SOON = timedelta(seconds=20)


@stage(retry=Retry(attempts=1))
def in_thread(x: int) -> str:
    return f"{who.get()} {x}"


@stage(retry=Retry(attempts=1))
async def on_loop(text: str) -> str:
    return f"{text} {who.get()}"


@stage(retry=Retry(attempts=2, wait=timedelta(0)))
def breaks(x: int) -> str:
    raise ConnectionError("no line")


@stage(retry=Retry(attempts=1), timeout=timedelta(milliseconds=20))
async def sleeps(x: int) -> str:
    await anyio.sleep_forever()
    return ""


BOTH = Pipeline("both", input=int).pipe(in_thread).pipe(on_loop)
BREAKS = Pipeline("breaks", input=int).pipe(breaks)
SLEEPS = Pipeline("sleeps", input=int).pipe(sleeps)


@attrs.define
class Recorder:
    """Records what it sees, and raises where told."""

    name: str = "a"
    seen: list[str] = attrs.field(factory=list[str])
    raises: dict[str, Exception] = attrs.field(factory=dict[str, Exception])

    @contextmanager
    def dispatch(self, batch: CommandBatch) -> Generator[None]:
        kinds = [type(command).__name__ for command in batch.commands]
        self._do(f"{self.name} > {','.join(kinds)}", "dispatch in", kinds)
        yield
        assert len(batch.answers) == len(kinds)
        self._do(f"{self.name} < {','.join(kinds)}", "dispatch out", kinds)

    @contextmanager
    def body(self, call: BodyCall) -> Generator[None]:
        self._do(f"{self.name} > {call.stage} {call.attempt}/{call.max_attempts}", "body in")
        token = who.set(f"{self.name} of {call.run_id}")
        try:
            yield
        except BaseException as error:
            self._do(f"{self.name} ! {type(error).__name__}", "body failed")
            raise
        finally:
            who.reset(token)
        self._do(f"{self.name} < {call.stage}", "body out")

    def _do(self, line: str, point: str, kinds: list[str] | None = None) -> None:
        self.seen.append(line)
        if (error := self.raises.get(point)) and (kinds is None or "RunCreate" in kinds):
            raise error

    @property
    def bodies(self) -> list[str]:
        return [
            line
            for line in self.seen
            if any(name in line for name in ("in_thread", "on_loop", "breaks", "!"))
        ]


def result(pipeline: Pipeline[int, str], *interceptors: Any) -> str:
    with (
        Engine.open("memory://", workflows=[pipeline], interceptors=interceptors).sync as engine,
        Worker(engine, poll_interval=0.05),
    ):
        return engine.start(pipeline(1), id="x").result(timeout=SOON)


def test_bodies_see_what_is_set_around_them_on_the_loop_and_in_threads() -> None:
    assert result(BOTH, Recorder()) == "a of x 1 a of x"


def test_the_first_interceptor_is_the_outermost() -> None:
    seen: list[str] = []
    outer, inner = Recorder("outer", seen), Recorder("inner", seen)
    assert result(BOTH, outer, inner) == "inner of x 1 inner of x"

    bodies = [line for line in seen if "in_thread" in line]
    assert bodies == [
        "outer > in_thread 1/1",
        "inner > in_thread 1/1",
        "inner < in_thread",
        "outer < in_thread",
    ]
    creates = [line for line in seen if "RunCreate" in line]
    assert creates == ["outer > RunCreate", "inner > RunCreate", "inner < RunCreate", "outer < RunCreate"]


def test_a_body_that_fails_is_seen_to_fail() -> None:
    recorder = Recorder()
    with pytest.raises(RunFailedError, match="no line"):
        result(BREAKS, recorder)

    assert recorder.bodies == [
        "a > breaks 1/2",
        "a ! ConnectionError",
        "a > breaks 2/2",
        "a ! ConnectionError",
    ]


def test_a_body_that_times_out_is_seen_to() -> None:
    recorder = Recorder()
    with pytest.raises(RunFailedError, match="took longer"):
        result(SLEEPS, recorder)

    assert [line for line in recorder.seen if "!" in line] == ["a ! _AttemptTimeoutError"]


def test_what_is_raised_before_a_body_is_a_failed_attempt() -> None:
    recorder = Recorder(raises={"body in": PermissionError("not today")})
    with pytest.raises(RunFailedError, match="PermissionError: not today"):
        result(BOTH, recorder)

    assert recorder.bodies == ["a > in_thread 1/1"]


def test_an_error_can_be_turned_into_another() -> None:
    recorder = Recorder(raises={"body failed": RetryAfter(timedelta(0), "later")})
    with pytest.raises(RunFailedError, match="later"):
        result(BREAKS, recorder)


def test_what_is_raised_after_a_body_is_logged_and_its_result_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder(raises={"body out": ValueError("a bug")})

    assert result(BOTH, recorder) == "a of x 1 a of x"
    assert "an interceptor raised on the way out" in caplog.text


def test_an_error_can_not_be_made_undone() -> None:
    class Swallows:
        @contextmanager
        def body(self, call: BodyCall) -> Generator[None]:
            with suppress(ConnectionError):
                yield

    with pytest.raises(RunFailedError, match="no line"):
        result(BREAKS, Swallows())


def engine_with(*interceptors: Any) -> Engine:
    return Engine.open("memory://", workflows=[BOTH], interceptors=interceptors)


def test_a_policy_refuses_one_command_of_a_batch() -> None:
    class Policy:
        @contextmanager
        def dispatch(self, batch: CommandBatch) -> Generator[None]:
            for command in batch.commands:
                if isinstance(command, RunCreate) and (command.priority or 0) > 3:
                    batch.refuse(command, CommandError("too important"))
            yield

    recorder = Recorder()
    engine = engine_with(Policy(), recorder)
    creates = [engine.client.create(BOTH(1), {"priority": number}) for number in (1, 5, 2)]
    answers = engine.kernel.dispatch_many(creates)

    assert [isinstance(answer, CommandError) for answer in answers] == [False, True, False]
    assert "a > RunCreate,RunCreate" in recorder.seen
    assert sum(engine.sync.count().values()) == 2
    with pytest.raises(CommandError, match="too important"):
        engine.sync.start(BOTH(1), priority=9)


@pytest.mark.parametrize("error", [CommandError("closed"), ValueError("a bug")])
def test_what_is_raised_before_a_dispatch_refuses_it_all(error: Exception) -> None:
    engine = engine_with(Recorder(raises={"dispatch in": error}))
    with pytest.raises(type(error), match=str(error)):
        engine.sync.start(BOTH(1))

    assert sum(engine.sync.count().values()) == 0


def test_what_is_raised_after_a_dispatch_is_logged_and_the_answer_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = engine_with(Recorder(raises={"dispatch out": ValueError("a bug")}))

    assert engine.sync.start(BOTH(1), id="x").id == "x"
    assert "an interceptor raised on the way out" in caplog.text


def test_without_interceptors_nothing_is_put_around() -> None:
    assert engine_with().core.kernel._around is None  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("thing", [object(), Recorder, None])
def test_an_object_with_neither_method_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="an interceptor is an object with a method"):
        engine_with(thing)


def test_only_what_is_in_a_batch_can_be_refused_and_only_before_it_is_carried_out() -> None:
    command = SessionOpen(host="h", lease=1)
    batch = CommandBatch([command])
    with pytest.raises(ValueError, match="of this batch"):
        batch.refuse(SessionOpen(host="h", lease=1), CommandError())
    with pytest.raises(RuntimeError, match="no replies"):
        _ = batch.answers
    batch.carry_out(lambda commands: [None for _ in commands])
    with pytest.raises(ValueError, match="before the batch is executed"):
        batch.refuse(command, CommandError())
