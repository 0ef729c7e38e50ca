"""Queries and updates: replays a run's function in this process and calls the object that it exposes.

A query needs no worker. An update is validated on the replay before it is stored; the worker that drives the run
carries it out.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar, cast

import attrs

from holdfast.hosts.client.client import Client
from holdfast.hosts.client.object_state import holdings, is_same, shape
from holdfast.hosts.client.replay_cache import CachedReplay
from holdfast.hosts.client.start_commands import idempotency_payload
from holdfast.hosts.client.stored_workflows import check_registered_update
from holdfast.hosts.execution.off_loop import run_off_loop
from holdfast.hosts.functions.function_events import call_of_update
from holdfast.hosts.functions.history_document import RunHistory, read_history, rows_since, text_of
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.hosts.functions.replay_check import machine_for, replayed
from holdfast.hosts.wiring.interceptors import FunctionRefusedError, entering
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.queries import Query, UpdateCall, names_of, query_of, update_of
from holdfast.kernel.commands import Command, RunCreate, RunCreated, RunUpdate, RunUpdated
from holdfast.kernel.commands.names import IDEMPOTENCY_KEY_MAX
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.replies import raise_update_error
from holdfast.kernel.functions.updates import RejectedError
from holdfast.kernel.history import events
from holdfast.kernel.history.exceptions import error_words
from holdfast.ports.errors import (
    HoldfastError,
    InvalidValueError,
    NotExposedError,
    QueryFailedError,
    UpdateLostError,
    UpdateRejectedError,
)
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import FindRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, Run, RunName
from holdfast.ports.records.values import Payload
from holdfast.ports.tables import REPLIES

T = TypeVar("T")

_PAGE: Final = 1_000


def answer_query(core: Core, run: Run, name: str, arguments: str) -> str:
    """Return the reply to a query as JSON text, computed on a replay of the run's function.

    Raises:
        NotExposedError: The function exposes no such query, or the run is a pipeline.
        UnknownWorkflowError: The engine does not have the workflow in the run's version.
        QueryFailedError: The query raises an exception or changes the object.
        InvalidValueError: The arguments do not have the types of the query.
        NondeterminismError: The code does not make the calls that the history records.
    """
    workflow = _code(core, run, name)
    if workflow is None:
        raise core.registry.unknown_workflow(run.workflow, run.version)
    history = read_history(core, run)
    return run_off_loop(lambda: _answer(core, history, workflow, name, arguments))


@attrs.frozen(kw_only=True)
class StoredUpdate:
    """An update in a run's history, and the ids for finding its reply."""

    run_id: str
    """The run id."""
    run: str
    """The key of the generation that has the update."""
    update: str
    """The name of the update."""
    number: int
    """The number of its history row."""


def store_update(
    client: Client, run: Run, call: UpdateCall[object], idempotency_key: str | None
) -> StoredUpdate:
    """Validate an update on a replay of the function and store it. A rejected update is not stored.

    The replay is skipped if the engine lacks the code, or the update has no validator; everything is checked again when
    the update is carried out. Without the code, arguments that are plain JSON are checked by what a worker has
    registered. If the function is replayed, the defaults of omitted arguments are stored too.

    Raises:
        UpdateRejectedError: The validator rejects the update.
        UpdateRefusedError: The run has ended or is a pipeline.
        NotExposedError, InvalidValueError, NondeterminismError: As `answer_query`.
    """
    has_code = _code(client.core, run, call.update) is not None
    # A repeated call with a key is not checked again: another version may have been registered since.
    if not call.checked and not has_code and not _is_stored(client.core, idempotency_key):
        check_registered_update(client.core, run.workflow, run.version, call)
    reply = client.dispatch(_update_command(client, run.id, run, call, idempotency_key))
    return StoredUpdate(run_id=run.id, run=reply.run, update=call.update, number=reply.number)


def store_update_with_start(
    client: Client, start: RunCreate, call: UpdateCall[object]
) -> tuple[RunCreated, StoredUpdate]:
    """Start a run, or find the one that the start returns, and store an update for it, in one transaction.

    The validator runs on a replay of the run that is active now, if there is one. Otherwise, arguments that are plain
    JSON are checked by the code of the workflow, or by what a worker has registered. Raises what a start raises, and
    what `store_update` raises.
    """
    client.core.connect()
    run_id, key = start.id or "", start.idempotency_key
    update_key = None if key is None else _key_of_update(key)
    run = client.core.stores.persistence.read(FindRun(RunName(client.core.namespace, run_id)))
    # A repeated call with a key is not validated again: the run may be another generation by now.
    is_new = run is not None and run.status not in TERMINAL and not _is_stored(client.core, update_key)
    try:
        if not call.checked:
            _check_arguments(client, start, run if is_new else None, call, update_key)
        command = _update_command(client, run_id, run if is_new else None, call, update_key)
    except HoldfastError:
        if not _is_stored(client.core, update_key):  # else an earlier request was still under way
            raise
        command = _update_command(client, run_id, None, call, update_key)
    commands: tuple[Command[object], ...] = (start, command)
    created, updated = cast("tuple[RunCreated, RunUpdated]", tuple(client.dispatch_together(commands)))
    return created, StoredUpdate(run_id=run_id, run=updated.run, update=call.update, number=updated.number)


def _check_arguments(
    client: Client, start: RunCreate, active: Run | None, call: UpdateCall[object], update_key: str | None
) -> None:
    """Raise InvalidValueError for arguments of the wrong types, unless a replay of the active run will check them."""
    core, workflow, version = client.core, start.workflow, start.version
    if active is not None and _code(core, active, call.update) is not None:
        return
    if active is not None and (start.if_active or start.if_exists) == "return":
        workflow, version = active.workflow, active.version
    if active is None and _is_stored(core, update_key):
        return
    code = core.registry.find_workflow(workflow, version)
    if code is None:
        check_registered_update(core, workflow, version, call)
    elif isinstance(code, Workflow):
        client.check_update(call, code)


def _is_stored(core: Core, key: str | None) -> bool:
    """Return whether a command with this idempotency key has been carried out."""
    if key is None:
        return False
    place = (core.namespace, key)
    return bool(core.stores.persistence.transact(lambda tx: tx.get(REPLIES, [place])))


def _key_of_update(key: str) -> str:
    """Return the idempotency key of the update that is stored with a start."""
    made = f"{key}/update"
    return made if len(made) <= IDEMPOTENCY_KEY_MAX else f"update/{hashlib.sha256(key.encode()).hexdigest()}"


def _update_command(
    client: Client, run_id: str, run: Run | None, call: UpdateCall[object], idempotency_key: str | None
) -> RunUpdate:
    """Return the command that stores an update. With a run, its validator is called on a replay."""
    name, arguments = call.update, call.arguments
    workflow = None if run is None else _code(client.core, run, name)
    is_checked = False
    if run is not None and workflow is not None and call.has_validator is not False:
        is_checked = run.status not in TERMINAL
    if run is not None and workflow is not None and is_checked:
        arguments = run_off_loop(lambda: _check(client, run, workflow, call, idempotency_key))
    return RunUpdate(
        namespace=client.core.namespace,
        idempotency_key=idempotency_key,
        run_id=run_id,
        update=name,
        arguments=client.stored(arguments, "update", idempotency_key),
        given=idempotency_payload(call.given or call.arguments, arguments) if idempotency_key else None,
        checked=call.checked or is_checked,
    )


class UpdateReplyReader:
    """A reader of the reply to a stored update.

    It reads each history row once, and follows the run to later generations.
    """

    def __init__(self, core: Core, stored: StoredUpdate) -> None:
        self._core = core
        self._stored: StoredUpdate = stored
        self.last_read_row: int = stored.number
        """The number of the last history row read."""

    @property
    def run(self) -> str:
        """The key of the generation that has the update."""
        return self._stored.run

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._stored.run_id

    @property
    def update(self) -> str:
        """The name of the update."""
        return self._stored.update

    def read_reply(self) -> str | None:
        """Return the JSON text of the reply; None if there is no reply yet.

        Raises:
            UpdateRejectedError: The validator rejected the update when it was to be carried out.
            UpdateFailedError: The update raised an exception.
            NotExposedError: The function exposes no object with this update.
            UpdateLostError: The run ended before the update was carried out.
        """
        read = self._core.stores.persistence.read
        while True:
            # The run's row first: if it has ended then, the history read afterwards is complete.
            runs = read(RunsByKey((self.run,)))
            while rows := read(HistoryOf(self.run, self.last_read_row, _PAGE)):
                self.last_read_row = rows[-1].number
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
        """Move to the next generation if the update was handed on to it. Return whether it was."""
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
                if _repeats(row, stored.number):
                    self._go_on(following.key, row.number, row.number)
                    self.last_read_row = row.number
                    return True
        return False

    def _go_on(self, run: str, number: int, seen: int) -> None:
        self._stored = StoredUpdate(
            run_id=self._stored.run_id, run=run, update=self._stored.update, number=number
        )
        self.last_read_row = seen

    def _answer_in(self, row: HistoryRow) -> Payload | None:
        if row.type not in events.UPDATE_ANSWERS:
            return None
        ours, run, update = call_of_update(self._stored.number), self._stored.run_id, self._stored.update
        match events.event_of(row):
            case events.UpdateCompleted(call=call) if call == ours:
                return row.payload
            case events.UpdateRejected(call=call, error=error) if call == ours:
                raise_update_error(run, update, error.raised, is_rejected=True)
            case events.UpdateFailed(call=call, error=error) if call == ours:
                raise_update_error(run, update, error.raised, is_rejected=False)
            case _:
                pass
        return None


def _repeats(row: HistoryRow, number: int) -> bool:
    """Return whether a row repeats the update that had this row number in the generation before."""
    return row.type == events.UpdateReceived.type and events.UpdateReceived.from_row(row).again == number


def _end_in_words(run: Run) -> str:
    return f"continued, as generation {run.generation + 1}" if run.is_continued else run.status.value


def _code(core: Core, run: Run, name: str) -> Workflow[..., object] | None:
    code = core.registry.find_workflow(run.workflow, run.version)
    if code is None:
        return None
    if not isinstance(code, Workflow):
        raise NotExposedError(
            run.id, name, (), f"{run.workflow!r} is a pipeline, and only durable functions expose anything"
        )
    return code


def _answer(
    core: Core, history: RunHistory, workflow: Workflow[..., object], name: str, arguments: str
) -> str:
    enter = entering(core.interceptors, core.namespace, history.facts)
    try:
        with replayed(history, workflow, enter) as (machine, _):
            state, query = _exposed_method(history.id, machine, name, query_of)
            return _run_query(history, machine, state, query, arguments)
    except FunctionRefusedError as refused:
        raise QueryFailedError(history.id, name, str(refused)) from refused


def _run_query(
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
        why = "it changes what is exposed, and a query only reads; make it an update"
        raise QueryFailedError(history.id, query.named, why)
    return text


def _check(
    client: Client,
    run: Run,
    workflow: Workflow[..., object],
    call: UpdateCall[object],
    idempotency_key: str | None,
) -> str:
    """Run the validator of an update; return its arguments with the defaults of omitted ones.

    The replayed function is cached, so the next check only applies the new history rows.
    """
    try:
        replay = _current_replay(client, run, workflow)
    except FunctionRefusedError as refused:
        raise QueryFailedError(run.id, call.update, str(refused)) from refused
    is_kept = False
    try:
        if idempotency_key is not None and idempotency_key in replay.keys:
            is_kept = True  # the first call with this key was validated, and the state may have changed since
            return _as_first_stored(replay.machine, call)
        state, update = _exposed_method(run.id, replay.machine, call.update, update_of)
        before = holdings(state)
        try:
            replay.machine.looked_at(lambda: update.check(state, call.arguments))
        except RejectedError as error:
            _reject(run.id, update.named, error.reason)
        finally:  # if the validator changed the state, this replay is no longer valid
            is_kept = before is not None and holdings(state) == before
        return update.recoded(call.arguments)
    finally:
        if is_kept:
            client.replays.keep(replay)
        else:
            replay.drive.close()


def _as_first_stored(machine: FunctionMachine, call: UpdateCall[object]) -> str:
    """Return the arguments of a repeated update with the defaults that were added to those of the first call.

    Of long arguments, a hash of what the caller passed is compared if defaults were added: to those of the repeat, too.
    """
    for state in reversed(machine.exposed):
        if (update := update_of(state, call.update)) is not None:
            try:
                return update.recoded(call.arguments)
            except InvalidValueError:  # the repeated call has other arguments: it is a conflict
                break
    return call.arguments


def _current_replay(client: Client, run: Run, workflow: Workflow[..., object]) -> CachedReplay:
    """Return the replayed function of a run up to its last row, from the cache if possible."""
    replay = client.replays.take(run.key, workflow)
    new_rows: Sequence[HistoryRow] = ()
    if replay is not None:
        try:
            new_rows = rows_since(client.core, run, replay.drive.seen)
            is_applied = replay.follow(new_rows)
        except BaseException:
            replay.drive.close()
            raise
        if not is_applied:
            replay.drive.close()
            replay = None
    if replay is None:
        history = read_history(client.core, run)
        new_rows = history.rows
        machine = machine_for(history, workflow)
        drive = FunctionReplay(machine, text_of)
        replay = CachedReplay(run=run.key, workflow=workflow, drive=drive, machine=machine)
        try:
            entering(client.core.interceptors, run.namespace, history.facts)(machine)
            replay.drive.open(new_rows)
            if replay.drive.fault is not None:
                raise replay.drive.fault
        except BaseException:
            replay.drive.close()
            raise
    received = (row for row in new_rows if row.type == events.UpdateReceived.type)
    keys = (events.UpdateReceived.from_row(row).key for row in received)
    replay.keys.update(key for key in keys if key is not None)
    return replay


def _reject(run_id: str, update: str, reason: Exception) -> NoReturn:
    if isinstance(reason, HoldfastError):  # the arguments do not have the types of the update
        raise reason
    raise UpdateRejectedError(run_id, update, error_words(reason)) from reason


def _exposed_method(
    run_id: str, machine: FunctionMachine, name: str, found_in: Callable[[object, str], T | None]
) -> tuple[object, T]:
    """Return the exposed object with this query or update, and the method. Raises NotExposedError."""
    for state in reversed(machine.exposed):
        if (found := found_in(state, name)) is not None:
            return state, found
    exposed = [one for state in machine.exposed for one in names_of(state)]
    raise NotExposedError(run_id, name, exposed)
