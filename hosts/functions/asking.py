"""What is asked of a run from outside: its function is replayed here, in this process, and looked at.

A query is answered by that alone, without a worker. An update is checked so before it is stored, and answered by
whoever drives the run.
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cached_property
from inspect import getattr_static
from typing import Any, Final, NoReturn, TypeVar, cast

import attrs

from holdfast.hosts.core import Core
from holdfast.hosts.functions.away import drive_away
from holdfast.hosts.functions.drive import Drive
from holdfast.hosts.functions.telling import call_of_update, raised_from_facts
from holdfast.hosts.run_histories import RunHistory, read_history, text_of
from holdfast.kernel.authoring.exposed import (
    Query,
    Update,
    names_of,
    query_of,
    update_of,
)
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.commands import UPDATE_ANSWERS, RunUpdate
from holdfast.kernel.functions.asked import Raised
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.raising import error_from
from holdfast.kernel.functions.updates import RejectedError
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
_DEPTH: Final = 4
"""How deep in lists, dicts and sets it is noticed that a query changes them."""


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


def store_update(
    core: Core, run: Run, name: str, arguments: str, idempotency_key: str | None
) -> StoredUpdate:
    """Check an update against the function as it is now, and store it. What is rejected is not stored.

    Where the engine has not the code, nothing is checked here, but when it is carried out.

    Raises:
        UpdateRejectedError: The validator says no.
        UpdateRefusedError: The run has ended, or is a pipeline.
        NotExposedError: As `answer_query`, and the like.
    """
    command = RunUpdate(
        namespace=core.namespace,
        idempotency_key=idempotency_key,
        run_id=run.id,
        update=name,
        arguments=core.stored(arguments, "update", idempotency_key),
    )
    workflow = _code(core, run, name)
    if workflow is not None and run.status not in TERMINAL:
        history = read_history(core, run)
        if not _is_known(history, idempotency_key):
            drive_away(lambda: _check(history, workflow, name, arguments))
    reply = core.dispatch(command)
    return StoredUpdate(run_id=run.id, run=reply.run, update=name, number=reply.number)


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
        raise kind(self._stored.run_id, self._stored.update, _said(raised)) from error_from(raised)


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


def _is_known(history: RunHistory, idempotency_key: str | None) -> bool:
    """Whether an update of this key is stored: then it was checked before, and may be true no more."""
    return idempotency_key is not None and any(
        row.type == "update.received"
        and cast("Mapping[str, object]", parse(row.data or "{}")).get("key") == idempotency_key
        for row in history.rows
    )


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
        state, query = _found(history, machine, name, query_of)
        return _looked(history, machine, state, query, arguments)


def _looked(
    history: RunHistory,
    machine: FunctionMachine,
    state: object,
    query: Query[Any, ..., object],
    arguments: str,
) -> str:
    before = _shape(state)
    try:
        text = machine.looked_at(lambda: query.answer(state, arguments))
    except HoldfastError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise QueryFailedError(history.id, query.named, why) from error
    if not _is_same(before, _shape(state)):
        why = "it changes what is exposed, and a query only looks; make it an update"
        raise QueryFailedError(history.id, query.named, why)
    return text


def _check(history: RunHistory, workflow: Workflow[..., object], name: str, arguments: str) -> None:
    with _replayed(history, workflow) as machine:
        state, update = _found(history, machine, name, update_of)
        _checked(history, machine, state, update, arguments)


def _checked(
    history: RunHistory,
    machine: FunctionMachine,
    state: object,
    update: Update[Any, ..., Any, object],
    arguments: str,
) -> None:
    try:
        machine.looked_at(lambda: update.check(state, arguments))
    except RejectedError as error:
        _reject(history.id, update.named, error.reason)


def _reject(run_id: str, update: str, reason: Exception) -> NoReturn:
    if isinstance(reason, HoldfastError):  # the arguments are not what it takes
        raise reason
    raise UpdateRejectedError(run_id, update, f"{type(reason).__name__}: {reason}") from reason


def _found(
    history: RunHistory, machine: FunctionMachine, name: str, found_in: Callable[[object, str], T | None]
) -> tuple[object, T]:
    """Return what is exposed that can be asked for this. NotExposedError."""
    for state in reversed(machine.exposed):
        if (found := found_in(state, name)) is not None:
            return state, found
    exposed = [one for state in machine.exposed for one in names_of(state)]
    raise NotExposedError(history.id, name, exposed)


def _said(raised: Raised) -> str:
    kind = raised.type.rpartition(".")[2]
    return f"{kind}: {raised.message}" if raised.message else kind


# What a query must not change -------------------------------------------------------------------------------------


def _shape(value: object, depth: int = _DEPTH) -> object:
    """Return what a value holds, as far as it is plain: attributes, lists, dicts and sets, and what is in these."""
    if depth == 0:
        return value
    if isinstance(value, list | tuple | deque):
        return [_shape(one, depth - 1) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return [(key, _shape(one, depth - 1)) for key, one in items]
    if isinstance(value, set | frozenset):
        return list(cast("set[object]", value))
    if depth == _DEPTH:
        slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
        names = dict.fromkeys((*getattr(value, "__dict__", ()), *slots))
        return [
            (name, _shape(getattr(value, name, None), depth - 1))
            for name in names
            if not isinstance(getattr_static(type(value), name, None), cached_property)
        ]
    return value


def _is_same(before: object, after: object) -> bool:
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        ours, theirs = cast("list[object]", before), cast("list[object]", after)
        return len(ours) == len(theirs) and all(map(_is_same, ours, theirs))
    return before is after
