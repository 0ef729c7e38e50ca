"""One run, seen from sync code: waited for, looked at, acted on."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import timedelta
from typing import Any, Final, Generic, Literal, Unpack, cast, overload

from typing_extensions import TypeForm, TypeVar

from holdfast.hosts.client.queries import Reply, answer_query, store_update
from holdfast.hosts.execution.artifacts import (
    ArtifactInfo,
    artifact_bytes,
    artifact_info,
    artifacts_of,
    check_artifact_query,
)
from holdfast.hosts.functions.history_document import RunHistory, read_history
from holdfast.hosts.functions.published_values import published_value
from holdfast.hosts.inspection.ai_calls import AiCallFilter, AiCallInfo, AiTotals, ai_calls_of, ai_totals_of
from holdfast.hosts.inspection.annotations import (
    AnnotateOptions,
    AnnotationInfo,
    AnnotationOptions,
    annotate_command,
    annotations_of,
)
from holdfast.hosts.inspection.logs import (
    FOLLOW_INTERVAL,
    LogLine,
    LogOptions,
    LogReader,
    ProgressInfo,
    progress_of,
)
from holdfast.hosts.inspection.messages import MessageInfo, message_of, messages_of
from holdfast.hosts.inspection.run_info import (
    RunEvent,
    RunInfo,
    ended_reason,
    error_text,
    event_of,
    info_of,
    raised_of,
)
from holdfast.hosts.inspection.why import Reason, why_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.nodes import AnyNode, Node
from holdfast.kernel.authoring.queries import QueryCall, UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import (
    RunAnnotated,
    RunCancel,
    RunEnded,
    RunPause,
    RunPaused,
    RunRemove,
    RunRerun,
    RunRerunFrom,
    RunResume,
    RunSignal,
    RunSignalled,
    RunTerminate,
    StagesWoken,
    StageWake,
)
from holdfast.kernel.history.exceptions import error_if_known
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.kernel.values import decode
from holdfast.ports.durations import Duration, length_of
from holdfast.ports.errors import (
    EngineClosedError,
    NothingToWakeError,
    RunCancelledError,
    RunFailedError,
    RunNotFoundError,
    UnreadableRowError,
)
from holdfast.ports.persistence import FindRun, HistoryOf
from holdfast.ports.records import TERMINAL, Run, RunName, RunStatus
from holdfast.ports.references import reference_from
from holdfast.ports.validation import TEXT, an, check, duration, integer

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

CLOSED: Final = "the engine was closed while a run was waited for"
NEW_SECONDS: Final = 0.02
"""For how long nobody looks whether a run has ended that was started just now: it is waited for to be told."""


class SyncRunHandle(Generic[Out]):
    """One run, seen from sync code. Always its newest generation."""

    def __init__(self, core: Core, id: str, output_type: object, key: str | None = None) -> None:
        self._core = core
        self._output_type = output_type
        self.id = id
        self.known = key
        """The key of the generation that is the newest as far as is known."""

    @property
    def core(self) -> Core:
        """What the engine is made of, for what a handle has no method for."""
        return self._core

    def info(self, *, generation: int | None = None) -> RunInfo:
        """Return where the run is, or where an older generation of it ended. RunNotFoundError."""
        return info_of(self._row(generation))

    def result(self, *, timeout: Duration | None = None) -> Out:
        """Wait until the run ends, and return what it gave.

        That is the generation of it which is the newest when this is called, and those as which that goes on. If it is
        run again meanwhile, what is waited for ends with a RunCancelledError that says so, and the next call waits for
        the new one.

        Raises:
            TimeoutError: It has not ended within `timeout`. It goes on.
            InvalidArgumentError: `timeout` is no length of time.
            RunFailedError: It failed.
            RunCancelledError: It was cancelled.
            RunNotFoundError: There is no such run.
        """
        seconds = seconds_of(timeout)
        self._core.lifecycle.check_may_block("result()")
        monotonic = self._core.stores.clock.monotonic
        until = None if seconds is None else monotonic() + seconds
        while True:
            # Before it is read: or else it may end before anybody listens for that.
            listened = self.known
            end = None if listened is None else self._core.listener.when_ended(listened)
            try:
                run = self.row()
                if run.status not in TERMINAL:
                    if end is None or run.key != listened:
                        continue
                    run = end.result(None if until is None else max(0.0, until - monotonic()))
            except FutureTimeoutError:
                raise TimeoutError(too_long(self.id, timeout)) from None
            except CancelledError:
                raise EngineClosedError(CLOSED) from None
            finally:
                if end is not None:
                    end.cancel()
            if not run.is_continued:
                break
        return self.output(run)

    def history(self, *, after: int = 0, limit: int = 1_000, generation: int | None = None) -> list[RunEvent]:
        """Return what has happened to the run since event `after`, at most `limit` events. RunNotFoundError.

        Each generation has a history of its own; without a number it is that of the newest.
        """
        check("history", integer(0), after=after)
        check("history", integer(1), limit=limit)
        check("history", integer(1).or_none, generation=generation)
        query = HistoryOf(self._row(generation).key, after, limit)
        return [event_of(row) for row in self._core.stores.persistence.read(query)]

    def export_history(self, *, generation: int | None = None) -> RunHistory:
        """Return all that the run was given and that has happened to it, with all values, as one document.

        What `holdfast.testing.replay` takes; `to_json` gives what `holdfast history export` writes. Secrets that were
        given to the run, or came of its steps, are in it.

        Raises:
            RunNotFoundError: There is no such run, or no such generation of it.
            BlobMissingError: A value of it is lost.
        """
        check("export_history", integer(1).or_none, generation=generation)
        return read_history(self._core, self._row(generation))

    def annotate(self, said: Mapping[str, object], /, **options: Unpack[AnnotateOptions]) -> RunAnnotated:
        """Say something of the run, for those who look at it or look for it: plain JSON by name.

        What was said is never changed. Runs are found by texts that were said of them: `runs(annotations=...)`.

        Args:
            said: 1 to 100 names, each of at most 200 characters, with values of at most 16,384 characters as JSON.
            options: Who says it, as `actor`, and why, as `reason`; of which `stage` and `item`, if not of the run; and
                under which `key`, so that it is said once. See `AnnotateOptions`.

        Raises:
            RunNotFoundError: There is no such run.
            UnstorableValueError: A value is no plain JSON.
            InvalidCommandError: Something is too long, or there is no such stage.
        """
        command = annotate_command(self._core.namespace, self.id, said, options)
        return self._core.kernel.dispatch(command)

    def annotations(self, **options: Unpack[AnnotationOptions]) -> Iterator[AnnotationInfo]:
        """Return what was said of the run, oldest first, read some at a time.

        Args:
            options: Which of it, by `name`, `prefix`, `actor_kind`, `actor_id`, `scope`, `stage`, `item`, `since` and
                `until`; and how many, by `after` and `limit`. See `AnnotationOptions`.

        Raises:
            RunNotFoundError: There is no such run.
            InvalidFilterError: An option can't be.
        """
        return annotations_of(self._core, self._row().key, options)

    def logs(self, *, follow: bool = False, **options: Unpack[LogOptions]) -> Iterator[LogLine]:
        """Return what the run's stages have logged, in the order in which it was said.

        With `follow` the lines go on until the run ends, each within about two seconds.

        Args:
            follow: Wait for more until the run ends.
            options: Which lines, by `level`, `stage`, `item` and `after`. See `LogOptions`.

        Raises:
            RunNotFoundError: There is no such run.
            InvalidFilterError: An option can't be.
        """
        reader = self.log_reader(options)
        return _followed(reader) if follow else reader.all()

    def progress(self) -> list[ProgressInfo]:
        """Return how far stages, and items of mapped ones, said that they are: the newest of each. RunNotFoundError."""
        return progress_of(self._core, self._row().key)

    def artifacts(self) -> list[ArtifactInfo]:
        """Return the artifacts that stages of the run have put, in the order of their jobs. RunNotFoundError."""
        run = self._row()
        return [
            artifact_info(one) for one in artifacts_of(self._core.stores.persistence, run.key, run.inherited)
        ]

    def artifact(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """Return the bytes of an artifact.

        Args:
            name: Its name.
            stage: Which stage put it, if several put one of this name.
            item: Which item of a mapped stage put it.

        Raises:
            RunNotFoundError: There is no such run.
            ArtifactMissingError: There is no such artifact, or there are several.
            BlobMissingError: Its bytes are not there any more.
            BlobCorruptError: Its bytes are not those that were put.
            NoBlobStoreError: This process has no blob store.
        """
        check_artifact_query("artifact", name, stage, item)
        run, core = self._row(), self._core
        return artifact_bytes(
            core.stores.persistence, core.payloads, run.key, run.inherited, name, stage, item
        )

    def ai_calls(self, **options: Unpack[AiCallFilter]) -> Iterator[AiCallInfo]:
        """Return the calls of models that stages of the run have logged, oldest first, read some at a time.

        Args:
            options: Which ones, by `topic` and `model`; with `texts` also prompts and responses; and how many, by
                `after` and `limit`. See `AiCallFilter`.

        Raises:
            RunNotFoundError: There is no such run.
            InvalidFilterError: An option can't be.
        """
        return ai_calls_of(self._core, self._row().key, options)

    def ai_totals(self, *, topic: str | None = None, by: Literal["model", "topic"] = "model") -> AiTotals:
        """Return what the calls of models of the run come to, added up by the store.

        Args:
            topic: Only those of this topic, and those below it.
            by: What the parts are by: `model` or `topic`.

        Raises:
            RunNotFoundError: There is no such run.
        """
        check("ai_totals", TEXT.or_none, topic=topic)
        return ai_totals_of(self._core, self._row().key, topic, by)

    def log_reader(self, options: LogOptions) -> LogReader:
        """Return what reads the run's log. RunNotFoundError, InvalidFilterError."""
        return LogReader(self._core, self._row().key, options)

    def cancel(self, *, reason: str = "") -> RunEnded:
        """End the run as cancelled, unless it has ended. RunNotFoundError.

        A durable function gets a CancelledError where it waits, and may clean up and take back what it has done: the
        run is `cancelling` until it has.
        """
        check("cancel", TEXT, reason=reason)
        command = RunCancel(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._core.dispatch(command)

    def terminate(self, *, reason: str = "") -> RunEnded:
        """End the run as cancelled at once, whatever it has left to clean up. RunNotFoundError."""
        check("terminate", TEXT, reason=reason)
        command = RunTerminate(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._core.dispatch(command)

    def signal(self, signal: Signal, /, *, idempotency_key: str | None = None) -> RunSignalled:
        """Send the run a message: `run.signal(approval(decision))`. It is stored when this returns, and not lost.

        The function has it when it asks, or has asked, its channel; a run that is paused, or has not begun, too. If it
        ends without, the next generation of the run gets it, if there is one. `message` says what became of it.

        Args:
            signal: A message with its channel.
            idempotency_key: Sending again with this key sends nothing, and is answered as the first time.

        Raises:
            RunNotFoundError: There is no such run.
            SignalRefusedError: It has ended, or is a pipeline; or its function, whose code this engine has, has no such
                channel.
            ChannelClosedError: It has closed the channel, and is about to end.
            InvalidValueError: It was made by hand, and is not what the channel takes.
            InvalidArgumentError: It is no signal.
        """
        check("signal", an("a message with its channel, as channel(message) gives it", Signal), signal=signal)
        check("signal", TEXT.or_none, idempotency_key=idempotency_key)
        command = RunSignal(
            namespace=self._core.namespace,
            idempotency_key=idempotency_key,
            run_id=self.id,
            signal=self._core.sent(signal, idempotency_key, self.id),
        )
        return self._core.dispatch(command)

    def messages(self, *, generation: int | None = None) -> list[MessageInfo]:
        """Return the messages of the run, in the order in which they came, and whether each was received.

        Each generation has its own, with those that were handed on to it; without a number it is that of the newest.
        RunNotFoundError.
        """
        check("messages", integer(1).or_none, generation=generation)
        return messages_of(self._core, self._row(generation))

    def message(self, sent: RunSignalled, /) -> MessageInfo:
        """Return what became of a message, by what `signal` returned when it was sent: `run.message(sent).state`.

        It is followed to whichever generation of the run it was handed on to.

        Raises:
            RunNotFoundError: The run was removed.
            InvalidArgumentError: It is not what `signal` returned.
        """
        check("message", an("what signal returned", RunSignalled), sent=sent)
        return message_of(self._core, sent)

    def query(self, call: QueryCall[T], /) -> T:
        """Ask the run what is: `run.query(Board.status())`. Nothing is stored, and no worker is needed.

        The function is replayed here, in this process, up to the last row of its history, and its object that it
        exposes is asked: so this takes as long as a wake-up does. It needs the workflow's code, and works for a run
        that has ended, too.

        Args:
            call: A query with its arguments.

        Raises:
            RunNotFoundError: There is no such run.
            UnknownWorkflowError: This engine was not given the run's workflow, or not in its version.
            NotExposedError: The function exposes no object with that query, or not yet.
            QueryFailedError: The query raises an error, changes something, or calls what only a workflow may.
            NondeterminismError: The code asks for something else than is recorded.
            InvalidArgumentError: It is no query.
        """
        check("query", _QUERY, call=call)
        return call.decoded(answer_query(self._core, self._row(), call.query, call.arguments))

    def update(
        self, call: UpdateCall[T], /, *, timeout: Duration | None = None, idempotency_key: str | None = None
    ) -> T:
        """Have the run change what it exposes: `run.update(Board.move_to("e4"))`. Return the reply.

        The validator is asked here, as a query is, if there is one: what it rejects is stored nowhere. Then the update
        is a row of the run's history, and not lost. Whoever drives the run asks the validator again, and carries the
        update out; one that comes before the function has exposed anything waits for that.

        Args:
            call: An update with its arguments.
            timeout: How long to wait for the reply: a timedelta or a number of seconds; for ever if left out.
            idempotency_key: Asking again with this key asks for nothing new, and waits for the same reply.

        Raises:
            RunNotFoundError: There is no such run.
            UpdateRefusedError: It has ended, or is a pipeline.
            NotExposedError: The function exposes no object with that update, or not yet.
            UpdateRejectedError: The validator says no. What it raised is the `__cause__`.
            UpdateFailedError: It was carried out, and raised what is the `__cause__`.
            UpdateLostError: The run has ended before it was done.
            TimeoutError: There is no reply yet. The update is stored, and will be carried out.
            NondeterminismError: The code asks for something else than is recorded.
            InvalidArgumentError: It is no update, or `timeout` is no length of time.
        """
        seconds = seconds_of(timeout, "update")
        self._core.lifecycle.check_may_block("update()")
        reply = self.ask_update(call, idempotency_key=idempotency_key)
        monotonic = self._core.stores.clock.monotonic
        until = None if seconds is None else monotonic() + seconds
        while (text := reply.look()) is None:
            future = self._core.listener.when_past(reply.run, reply.seen)
            try:
                future.result(None if until is None else max(0.0, until - monotonic()))
            except FutureTimeoutError:
                raise TimeoutError(no_reply(self.id, call.update, timeout)) from None
            except CancelledError:
                raise EngineClosedError(CLOSED) from None
            finally:
                future.cancel()
        return call.decoded(text)

    def ask_update(self, call: UpdateCall[object], *, idempotency_key: str | None = None) -> Reply:
        """Store an update, and return what looks for the reply to it. Raises what `update` does before it waits."""
        check("update", _UPDATE, call=call)
        check("update", TEXT.or_none, idempotency_key=idempotency_key)
        stored = store_update(self._core, self._row(), call, idempotency_key)
        return Reply(self._core, stored)

    @overload
    def published(self, name: str, /) -> object: ...
    @overload
    def published(self, name: str, type: TypeForm[T], /) -> T | None: ...
    def published(self, name: str, type: object = object, /) -> object:
        """Return what the run's function showed last by `publish(name, ...)`; None if it has shown nothing by then.

        It can be read as soon as it is stored, and when the run has ended. No code of the run is needed.

        Args:
            name: Under which name.
            type: Of which type it is; plain JSON if left out.

        Raises:
            RunNotFoundError: There is no such run.
            InvalidValueError: It is not of that type.
        """
        check("published", TEXT, name=name)
        return published_value(self._core, self._row(), name, type)

    def pause(self, *, reason: str = "") -> RunPaused:
        """Start nothing more of the run until it is resumed; what is under way ends as ever. RunNotFoundError."""
        check("pause", TEXT, reason=reason)
        command = RunPause(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._core.dispatch(command)

    def resume(self, *, reason: str = "") -> RunPaused:
        """Let a paused run go on where it is. RunNotFoundError."""
        check("resume", TEXT, reason=reason)
        command = RunResume(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._core.dispatch(command)

    def remove(self) -> bool:
        """Take the run out of the store for good, with all its generations, what was said of them, and their blobs.

        Its children are runs of their own, and stay. What it gave others, its parent for instance, is theirs. Return
        False if it was run again meanwhile.

        Raises:
            RunNotFoundError: There is no such run.
            RemoveRefusedError: It has not ended, or others are still to hear of it: its parent, or a sink.
        """
        return self._core.dispatch(RunRemove(namespace=self._core.namespace, run_id=self.id)).removed

    def rerun_from(
        self,
        point: AnyNode[object] | Step[..., object] | str | None = None,
        /,
        *,
        row: int | None = None,
        reason: str = "",
        version: str | None = None,
    ) -> RunRerun:
        """Run it again from a stage or a step on, as a new generation that keeps what comes before.

        A generation that is active is terminated by it. What runs has idempotency keys of its own, so whatever it does
        outside is done again: `preview_rerun` tells what that would be.

        Args:
            point: Of a pipeline the stage, or its name. Of the stages beside it, in a `parallel`, those that were
                completed are kept. A mapped stage runs whole. Of a durable function the step, or its name: `charge`,
                `"charge#2"` for the second of several calls, or a call as `holdfast run show` lists it, `"3.1"`. All
                that its history tells before the first row about that call is kept.
                Without a point the run goes on where it failed or stopped; if it was completed, it runs again from the
                start.
            row: The number of the row of a function's history to begin with, in place of a point: those before it are
                kept. 1 is the start.
            reason: For people; kept in the history.
            version: The version of the code to run it with; the same if left out.

        Raises:
            RunNotFoundError: There is no such run.
            RerunRefusedError: The plan has no such stage, or the history no such call or row; or what comes before it
                can't be kept.
            UnknownWorkflowError: The engine was not given this version of the workflow.
            InvalidCommandError: There are both a point and a row.
        """
        return self._core.dispatch(self._rerun(point, row, reason, version))

    def preview_rerun(
        self,
        point: AnyNode[object] | Step[..., object] | str | None = None,
        /,
        *,
        row: int | None = None,
        version: str | None = None,
    ) -> RerunPreview:
        """Return what `rerun_from` would do now, and change nothing. Raises what that does."""
        return self._core.kernel.preview(self._rerun(point, row, "", version))

    def wake(self, stage: AnyNode[object] | str, /, *, item: int | None = None) -> StagesWoken:
        """Have the external work of a stage checked now: of all its items, or of one, if it is mapped.

        If its body runs still, the work is checked as soon as that has handed it on.

        Raises:
            NothingToWakeError: The stage is not suspended, and no body of it runs.
            RunNotFoundError: There is no such run.
        """
        check("wake", STAGE, stage=stage)
        check("wake", integer(0).or_none, item=item)
        name = stage if isinstance(stage, str) else stage.name
        command = StageWake(namespace=self._core.namespace, run_id=self.id, stage=name, item=item)
        try:
            return self._core.kernel.dispatch(command)
        except NothingToWakeError:
            self._row()
            raise

    def why(self) -> tuple[Reason, ...]:
        """Return in plain words what the run waits for, or how it ended. RunNotFoundError."""
        try:
            return why_of(self._core, self._row())
        except UnreadableRowError as error:
            return (Reason(code="unreadable", text=f"{error}."),)

    def row(self) -> Run:
        """Return the run's row in the store. RunNotFoundError."""
        run = self._row()
        self.known = run.key
        return run

    def output(self, run: Run) -> Out:
        """Return what a run that has ended gave, or raise why it gave nothing."""
        if run.status is RunStatus.COMPLETED:
            text = self._core.inputs.text(run.key, reference_from(run.result or "null"))
            return cast("Out", decode(text, cast("Any", self._output_type)))
        if run.status is RunStatus.FAILED:
            raise RunFailedError(run.id, error_text(run) or "") from error_if_known(raised_of(run))
        raise RunCancelledError(run.id, ended_reason(run))

    def _rerun(
        self,
        point: AnyNode[object] | Step[..., object] | str | None,
        row: int | None,
        reason: str,
        version: str | None,
    ) -> RunRerunFrom:
        check("rerun_from", _POINT.or_none, point=point)
        check("rerun_from", integer(1).or_none, row=row)
        check("rerun_from", TEXT, reason=reason)
        check("rerun_from", TEXT.or_none, version=version)
        return RunRerunFrom(
            namespace=self._core.namespace,
            run_id=self.id,
            stage=point.name if isinstance(point, Node | Step) else point,
            reason=reason,
            version=version,
            row=row,
        )

    def _row(self, generation: int | None = None) -> Run:
        self._core.connect()
        name = RunName(self._core.namespace, self.id)
        run = self._core.stores.persistence.read(FindRun(name, generation))
        if run is None:
            raise RunNotFoundError(self.id, generation)
        return run


_QUERY: Final = an("a query with its arguments, as Board.status()", QueryCall)
_UPDATE: Final = an('an update with its arguments, as Board.move_to("e4")', UpdateCall)
_POINT: Final = an("a stage, a step, or the name of one", Node, Step, str)
STAGE: Final = an("a stage, or the name of one", Node, str)
"""What names a stage."""


def _followed(reader: LogReader) -> Iterator[LogLine]:
    while True:
        yield from reader.look()
        if reader.ended:
            return
        time.sleep(FOLLOW_INTERVAL)


def result_of_new(handle: SyncRunHandle[Out]) -> Out:
    """Wait for the result of a run that was started just now, and was not there before: as `SyncRunHandle.result`.

    Most likely it has not ended yet, and to look would keep the hint waiting that has it begin. If it has all the same,
    unheard, it is found a moment later.
    """
    core, known = handle.core, handle.known
    end = None if known is None else core.listener.when_ended(known)
    try:
        run = None if end is None else end.result(NEW_SECONDS)
    except FutureTimeoutError:
        run = None
    except CancelledError:
        raise EngineClosedError(CLOSED) from None
    finally:
        if end is not None:
            end.cancel()
    return handle.result() if run is None or run.is_continued else handle.output(run)


def seconds_of(timeout: Duration | None, what: str = "result") -> float | None:
    """Return a time to wait in seconds, none if it is negative. InvalidArgumentError."""
    if timeout is None:
        return None
    return max(0.0, duration(what, "timeout", timeout, least=timedelta.min).total_seconds())


def no_reply(id: str, update: str, timeout: Duration | None) -> str:
    """Return what a TimeoutError says of an update."""
    return (
        f"run {id!r} has not answered update {update!r} within {length_of(timeout)}; it is stored, and will be carried"
        " out: ask again with the same idempotency_key to wait on"
    )


def too_long(id: str, timeout: Duration | None) -> str:
    """Return what a TimeoutError says."""
    return f"run {id!r} has not ended within {length_of(timeout)}; it goes on"
