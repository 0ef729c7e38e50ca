"""What is asked of a run from outside: its function is replayed here, in this process, and looked at.

A query is answered by that alone, without a worker. An update is checked so before it is stored, and answered by
whoever drives the run.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar, cast

import attrs

from holdfast.hosts.client.start_commands import as_given
from holdfast.hosts.execution.off_loop import drive_away
from holdfast.hosts.functions.function_events import call_of_update, raised_from_facts
from holdfast.hosts.functions.history_document import RunHistory, read_history, rows_since, text_of
from holdfast.hosts.functions.object_state import holdings, is_same, shape
from holdfast.hosts.functions.replay import Drive
from holdfast.hosts.functions.replay_cache import Follower, new_follower
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.queries import (
    Query,
    UpdateCall,
    names_of,
    query_of,
    update_of,
)
from holdfast.kernel.commands import UPDATE_ANSWERS, RunUpdate
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.protocol import Raised
from holdfast.kernel.functions.updates import NowhereError, RejectedError
from holdfast.kernel.history.exceptions import error_from, error_words
from holdfast.ports.errors import (
    HoldfastError,
    NotExposedError,
    QueryFailedError,
    UnknownWorkflowError,
    UpdateFailedError,
    UpdateLostError,
    UpdateRejectedError,
)
from holdfast.ports.json import parse
from holdfast.ports.persistence import FindRun, HistoryOf, RunsByKey
from holdfast.ports.records import TERMINAL, HistoryRow, Payload, Run

T = TypeVar("T")

_PAGE: Final = 1_000


def answer_query(core: Core, run: Run, name: str, arguments: str) -> str:
    """Return the JSON text of what the function of a run, as it is now, says to a query.

    Raises:
        NotExposedError: It exposes no such query, or is a pipeline.
        UnknownWorkflowError: The engine has no such code.
        QueryFailedError: The query raises an error, or changes something.
        InvalidValueError: The arguments are not what it takes.
        NondeterminismError: The code asks for something else than is recorded.
    """
    workflow = _code(core, run, name)
    if workflow is None:
        raise UnknownWorkflowError(run.workflow, run.version)
    history = read_history(core, run)
    return drive_away(lambda: _answer(history, workflow, name, arguments))


@attrs.frozen(kw_only=True)
class StoredUpdate:
    """An update that is a row of a run's history, and what comes of which is waited for."""

    run_id: str
    run: str
    update: str
    number: int


def store_update(core: Core, run: Run, call: UpdateCall[object], idempotency_key: str | None) -> StoredUpdate:
    """Check an update against the function as it is now, if it may have a validator, and store it.

    What is rejected is not stored. Where the engine has not the code, nothing is checked here, but when it is carried
    out; and so is all but what the validator says, so that no function is replayed here that nobody has to look at.

    Where it is replayed, what the arguments leave out is stored as the default that it has now.

    Raises:
        UpdateRejectedError: The validator says no.
        UpdateRefusedError: The run has ended, or is a pipeline.
        NotExposedError: As `answer_query`, and the like.
    """
    name, arguments = call.update, call.arguments
    workflow = _code(core, run, name)
    is_checked = workflow is not None and call.has_validator is not False and run.status not in TERMINAL
    if workflow is not None and is_checked:
        arguments = drive_away(lambda: _check(core, run, workflow, call, idempotency_key))
    command = RunUpdate(
        namespace=core.namespace,
        idempotency_key=idempotency_key,
        run_id=run.id,
        update=name,
        arguments=core.stored(arguments, "update", idempotency_key),
        given=as_given(call.given or call.arguments, arguments) if idempotency_key else None,
        checked=call.checked or is_checked,
    )
    reply = core.dispatch(command)
    return StoredUpdate(run_id=run.id, run=reply.run, update=call.update, number=reply.number)


class Reply:
    """What comes of an update that is stored, read on and on until it is there."""

    def __init__(self, core: Core, stored: StoredUpdate) -> None:
        self._core = core
        self._stored: StoredUpdate = stored
        self.seen: int = stored.number
        """The last row that was looked at."""

    @property
    def run(self) -> str:
        """The key of the run."""
        return self._stored.run

    def look(self) -> str | None:
        """Return the JSON text of the reply; None if it is not there yet.

        Raises:
            UpdateRejectedError: The validator has said no, when it was to be carried out.
            UpdateFailedError: It has raised an error.
            UpdateLostError: The run has ended without.
        """
        read = self._core.stores.persistence.read
        while True:
            # The row of the run before its history: what that has not, the history may have by then.
            runs = read(RunsByKey((self.run,)))
            while rows := read(HistoryOf(self.run, self.seen, _PAGE)):
                self.seen = rows[-1].number
                for row in rows:
                    if (payload := self._answer_in(row)) is not None:
                        return self._core.payloads.get(payload)
            if not runs or runs[0].status in TERMINAL:
                if runs and self._follow(runs[0]):
                    continue
                status = _end_in_words(runs[0]) if runs else "removed"
                raise UpdateLostError(self._stored.run_id, self._stored.update, status)
            return None

    def _follow(self, run: Run) -> bool:
        """Look at the next generation from here on, if that has been told of the update. Return whether it has."""
        read = self._core.stores.persistence.read
        following = read(FindRun(run.name, run.generation + 1))
        if following is None:
            return False
        stored, kept = self._stored, following.kept_rows
        if kept and stored.number <= kept[-1].last:
            self._go_on(following.key, stored.number, kept[-1].last)
            return True
        seen = kept[-1].last if kept else 0
        while rows := read(HistoryOf(following.key, seen, _PAGE)):
            seen = rows[-1].number
            for row in rows:
                facts = cast("Mapping[str, object]", parse(row.data or "{}"))
                if row.type == "update.received" and facts.get("again") == stored.number:
                    self._go_on(following.key, row.number, row.number)
                    self.seen = row.number
                    return True
        return False

    def _go_on(self, run: str, number: int, seen: int) -> None:
        self._stored = StoredUpdate(
            run_id=self._stored.run_id, run=run, update=self._stored.update, number=number
        )
        self.seen = seen

    def _answer_in(self, row: HistoryRow) -> Payload | None:
        if row.type not in UPDATE_ANSWERS:
            return None
        facts = cast("Mapping[str, object]", parse(row.data or "{}"))
        if facts.get("call") != call_of_update(self._stored.number):
            return None
        if row.type == "update.completed":
            return row.payload
        kind = UpdateRejectedError if row.type == "update.rejected" else UpdateFailedError
        raised = raised_from_facts(facts)
        if raised.type.endswith(f".{NowhereError.__name__}"):
            raise NotExposedError(self._stored.run_id, self._stored.update, (), raised.message)
        raise kind(self._stored.run_id, self._stored.update, _error_text(raised)) from error_from(raised)


def _end_in_words(run: Run) -> str:
    return f"continued, as generation {run.generation + 1}" if run.is_continued else run.status.value


def _code(core: Core, run: Run, name: str) -> Workflow[..., object] | None:
    code = core.registry.pipeline(run.workflow, run.version)
    if code is None:
        return None
    if not isinstance(code, Workflow):
        raise NotExposedError(
            run.id, name, (), f"{run.workflow!r} is a pipeline, and only durable functions expose anything"
        )
    return code


@contextmanager
def _replayed(history: RunHistory, workflow: Workflow[..., object]) -> Generator[FunctionMachine]:
    machine = workflow.machine(history.input, began_at=history.began_at, seed=history.key)
    drive = Drive(machine, text_of)
    try:
        drive.open(history.rows)
        if drive.fault is not None:
            raise drive.fault
        yield machine
    finally:
        drive.close()


def _answer(history: RunHistory, workflow: Workflow[..., object], name: str, arguments: str) -> str:
    with _replayed(history, workflow) as machine:
        state, query = _found(history.id, machine, name, query_of)
        return _looked(history, machine, state, query, arguments)


def _looked(
    history: RunHistory,
    machine: FunctionMachine,
    state: object,
    query: Query[Any, ..., object],
    arguments: str,
) -> str:
    before = shape(state)
    try:
        text = machine.looked_at(lambda: query.answer(state, arguments))
    except HoldfastError:
        raise
    except Exception as error:
        why = error_words(error)
        raise QueryFailedError(history.id, query.named, why) from error
    if not is_same(before, shape(state)):
        why = "it changes what is exposed, and a query only looks; make it an update"
        raise QueryFailedError(history.id, query.named, why)
    return text


def _check(
    core: Core,
    run: Run,
    workflow: Workflow[..., object],
    call: UpdateCall[object],
    idempotency_key: str | None,
) -> str:
    """Ask the validator of an update; return its arguments with the defaults of those that they leave out.

    The function is kept, so who asks next tells it only what has come since.
    """
    follower = _followed(core, run, workflow)
    is_kept = False
    try:
        if idempotency_key is not None and idempotency_key in follower.keys:
            is_kept = True  # it was checked before, and what it said may be true no more
            return call.arguments
        state, update = _found(run.id, follower.machine, call.update, update_of)
        before = holdings(state)
        try:
            follower.machine.looked_at(lambda: update.check(state, call.arguments))
        except RejectedError as error:
            _reject(run.id, update.named, error.reason)
        finally:  # a validator that has changed something has changed it here only
            is_kept = before is not None and holdings(state) == before
        return update.recoded(call.arguments)
    finally:
        if is_kept:
            core.followers.keep(follower)
        else:
            follower.drive.close()


def _followed(core: Core, run: Run, workflow: Workflow[..., object]) -> Follower:
    """Return the function of a run as it is now: as it was kept, told what has come since, or else replayed."""
    follower = core.followers.take(run.key, workflow)
    new_rows: Sequence[HistoryRow] = ()
    if follower is not None:
        try:
            new_rows = rows_since(core, run, follower.drive.seen)
            is_applied = follower.follow(new_rows)
        except BaseException:
            follower.drive.close()
            raise
        if not is_applied:
            follower.drive.close()
            follower = None
    if follower is None:
        history = read_history(core, run)
        new_rows = history.rows
        machine = workflow.machine(history.input, began_at=history.began_at, seed=history.key)
        follower = new_follower(run.key, workflow, machine, text_of)
        try:
            follower.drive.open(new_rows)
            if follower.drive.fault is not None:
                raise follower.drive.fault
        except BaseException:
            follower.drive.close()
            raise
    received = (row.data for row in new_rows if row.type == "update.received")
    facts = (cast("Mapping[str, object]", parse(data or "{}")) for data in received)
    follower.keys.update(str(one["key"]) for one in facts if "key" in one)
    return follower


def _reject(run_id: str, update: str, reason: Exception) -> NoReturn:
    if isinstance(reason, HoldfastError):  # the arguments are not what it takes
        raise reason
    raise UpdateRejectedError(run_id, update, error_words(reason)) from reason


def _found(
    run_id: str, machine: FunctionMachine, name: str, found_in: Callable[[object, str], T | None]
) -> tuple[object, T]:
    """Return what is exposed that can be asked for this. NotExposedError."""
    for state in reversed(machine.exposed):
        if (found := found_in(state, name)) is not None:
            return state, found
    exposed = [one for state in machine.exposed for one in names_of(state)]
    raise NotExposedError(run_id, name, exposed)


def _error_text(raised: Raised) -> str:
    kind = raised.type.rpartition(".")[2]
    return f"{kind}: {raised.message}" if raised.message else kind
