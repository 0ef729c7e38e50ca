"""Audit entries of administrative actions that are in no run's history, stored with their changes.

They are no part of decisions: what a rule decides depends on its state alone, and is recorded as it was.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from holdfast.kernel import commands as c
from holdfast.kernel.commands.codec import command_data
from holdfast.ports.actors import Actor
from holdfast.ports.changes import Change, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.json import canonical
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.credential import Credential
from holdfast.ports.records.values import Micros

TARGETS: Final[Mapping[type[c.Command[Any]], str]] = {
    c.BrowserSessionCreate: "principal",
    c.BrowserSessionDelete: "principal",
    c.CredentialCreate: "label",
    c.CredentialRotate: "name",
    c.CredentialRevoke: "name",
    c.DeadLetterReplay: "sink",
    c.LimitClear: "name",
    c.LimitSet: "name",
    c.NamespaceCreate: "namespace",
    c.NamespaceDelete: "namespace",
    c.RunRemove: "run_id",
    c.ScheduleRemove: "schedule",
    c.SinkRegister: "sink",
    c.SinkRemove: "sink",
    c.TopicRemove: "topic",
    c.TriggerRemove: "trigger",
}
"""The commands with audit entries, and the field that names what each is about."""
ALL: Final = "*"
"""The target of a command that is about all sinks."""
_NOT_DETAILS: Final = frozenset(
    {
        *("type", "namespace", "idempotency_key", "actor", "request_id", "after", "limit"),
        *("hash", "credential_hash"),
    }
)


def audit_entries(
    command: c.Command[Any], changes: Sequence[Change], now: Micros, ids: Ids
) -> tuple[Change, ...]:
    """Return the change that stores the audit entry of a command, if it has one and has changed anything.

    The removal of a run without an actor or a request has none: retention removes as many runs as are started.
    """
    field = TARGETS.get(type(command))
    if field is None or not changes or not isinstance(command, c.OperatorCommand):
        return ()
    if isinstance(command, c.RunRemove) and command.actor is None and command.request_id is None:
        return ()
    if isinstance(command, c.LimitSet | c.LimitClear) and command.after:
        return ()  # it only releases more of what its first command has released
    actor = command.actor or Actor()
    data = command_data(command)
    given = {
        one.name
        for one in attrs.fields(type(command))
        if one.default is attrs.NOTHING or getattr(command, one.name) != one.default
    }
    details = {name: data[name] for name in given - _NOT_DETAILS - {field}}
    if isinstance(command, c.CredentialCreate):  # a first key has another id than the command
        (details["id"],) = (
            one.record.id for one in changes if isinstance(one, Insert) and isinstance(one.record, Credential)
        )
    entry = AuditEntry(
        namespace=command.namespace,
        at=now,
        id=ids.new(),
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_version=actor.version,
        action=command.type,
        target=str(data[field]) or ALL,
        request_id=command.request_id,
        details=canonical(details),
    )
    return (Insert(entry),)
