"""Rules for namespaces: creating and deleting them, and the quotas of starts."""

from collections.abc import Iterable

from holdfast.kernel.commands import (
    NamespaceCreate,
    NamespaceCreated,
    NamespaceDelete,
    NamespaceDeleted,
    RunCreate,
)
from holdfast.kernel.composed_searches import NamespaceContents
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.blobs import is_blob_key_part
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, NamespaceInUseError, QuotaExceededError
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.run import TERMINAL, Run
from holdfast.ports.records.values import Micros
from holdfast.ports.tables import NAMESPACES, WORKFLOWS


def reads_of_namespace(command: NamespaceCreate | NamespaceDelete) -> Reads:
    """Lock the namespace, and search for what it has. Raises InvalidCommandError for a name that none can have."""
    if not is_blob_key_part(command.namespace):
        raise InvalidCommandError(
            f"{command.namespace[:100]!r} is not the name of a namespace: use 1 to 200 of A-Z a-z 0-9 _ . @ = + -,"
            " the first a letter, a digit or _"
        )
    return Reads(search=NamespaceContents(command.namespace))


def decide_create(state: State, command: NamespaceCreate, now: Micros, _: Ids) -> Decision[NamespaceCreated]:
    """Store the namespace, or replace its note and quotas."""
    known = state.tables.namespaces.get(command.namespace)
    row = NamespaceRow(
        name=command.namespace,
        created_at=now if known is None else known.created_at,
        note=command.note,
        max_active_runs=command.max_active_runs,
        max_starts_per_minute=command.max_starts_per_minute,
    )
    if known is None:
        return Decision(NamespaceCreated(created=True), (Insert(row),))
    return Decision(NamespaceCreated(created=False), () if row == known else (Update(row),))


def decide_delete(state: State, command: NamespaceDelete, _: Micros, __: Ids) -> Decision[NamespaceDeleted]:
    """Delete the namespace. Raises NamespaceInUseError."""
    name = command.namespace
    contents = state.found[NamespaceContents(name)].contents
    if contents or any(run.namespace == name for run in state.tables.runs.values()):
        raise NamespaceInUseError(name, contents or ("runs",))
    workflows = (key for key, _ in state.found[NamespaceContents(name)].workflows)
    changes: list[Change] = [Delete(WORKFLOWS, key) for key in workflows]
    is_known = name in state.tables.namespaces
    if is_known:
        changes.append(Delete(NAMESPACES, name))
    return Decision(NamespaceDeleted(deleted=is_known), tuple(changes))


def check_quota(
    state: State, command: RunCreate, replaced: Run | None = None, changes: Iterable[Change] = ()
) -> None:
    """Raise QuotaExceededError if a client may not start one more run.

    The start may end a run that it replaces, and others that make way for it by `changes`.
    """
    use = state.quotas.get(command.namespace)
    if use is None or command.scheduled is not None:
        return
    new = [
        run
        for key, run in state.tables.runs.items()
        if run.namespace == command.namespace and key not in use.known
    ]
    active = use.active + sum(run.status not in TERMINAL for run in new)
    active -= sum(_has_ended(state.tables.runs.get(key)) for key in use.open)
    if replaced is not None and replaced.status not in TERMINAL:
        active -= 1
    active -= sum(isinstance(one, Update) and _has_ended(one.record) for one in changes)
    for quota, most, used in (
        ("max_active_runs", use.row.max_active_runs, active),
        ("max_starts_per_minute", use.row.max_starts_per_minute, use.started + len(new)),
    ):
        if most is not None and used >= most:
            raise QuotaExceededError(command.namespace, quota, most)


def _has_ended(record: object) -> bool:
    return isinstance(record, Run) and record.status in TERMINAL
