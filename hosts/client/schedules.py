"""Stores schedules: those that an application creates, and those that its code declares."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from holdfast.hosts.client.client import Client
from holdfast.hosts.client.start_commands import StartCommandBuilder
from holdfast.hosts.inspection.schedules import schedule_rows
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.commands import SchedulePut, ScheduleRemove
from holdfast.kernel.commands.codec import command_json
from holdfast.ports.actors import Actor
from holdfast.ports.errors import DefinitionError
from holdfast.ports.queries.schedules import FindSchedule
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.values import Payload
from holdfast.ports.structs import evolve
from holdfast.ports.validation import an, several

SCHEDULE: Final = an("a Schedule(...)", Schedule)

AppliedChange: TypeAlias = Literal["created", "updated", "unchanged", "removed"]


@attrs.frozen(kw_only=True)
class AppliedSchedule:
    """The outcome for a declared schedule."""

    name: str
    """Its name."""
    change: AppliedChange
    """What happened: `created`, `updated`, `unchanged`, or `removed`, as the code does not declare it any more."""


def check_schedules(schedules: Iterable[Schedule[object]]) -> tuple[Schedule[object], ...]:
    """Return the schedules that code declares. DefinitionError for two of one name, InvalidArgumentError."""
    listed = tuple(several("Engine", "schedules", schedules, "a list of schedules, such as [Schedule(...)]"))
    names: set[str] = set()
    for one in listed:
        if not SCHEDULE.test(one):
            raise DefinitionError(f"schedules has {one!r:.80}; it must be a Schedule(...)")
        if one.name in names:
            raise DefinitionError(f"two schedules are named {one.name!r}; a name is used once in a namespace")
        names.add(one.name)
    return listed


def inline_payload(text: str, what: str, idempotency_key: str | None) -> Payload:
    """Return the payload of an input. It stays in the row of the schedule, where no removal of a run can take it."""
    del what, idempotency_key
    return Payload(inline=text)


def put_command(core: Core, schedule: Schedule[object], *, intercepts: bool = True) -> SchedulePut:
    """Return the command that creates a schedule; without `intercepts`, as its declaration alone makes it.

    Raises UnknownWorkflowError, InvalidValueError, UnstorableValueError or InvalidOverrideError.
    """
    interceptors = core.interceptors if intercepts else ()
    builder = StartCommandBuilder(core.namespace, core.registry, inline_payload, interceptors, "schedule")
    (start,) = builder.commands(((schedule.call, None),), schedule.start_options)
    return SchedulePut(
        namespace=core.namespace,
        schedule=schedule.name,
        start=evolve(start, version=None, actor=None),
        timing=schedule.timing,
        policy=schedule.policy,
    )


def apply_schedules(
    client: Client, schedules: Sequence[Schedule[object]], *, prune: bool, dry_run: bool, actor: Actor | None
) -> list[AppliedSchedule]:
    """Create and update the schedules that code declares, and remove those that it does not declare any more.

    Only schedules of workflows that this process has are removed: others belong to other programs.
    """
    core = client.core
    puts = [_declared(core, schedule) for schedule in schedules]
    names = {put.schedule for put in puts}
    gone = [row for row in _declared_rows(core) if row.name not in names] if prune else []
    if dry_run:
        changed = [AppliedSchedule(name=put.schedule, change=_change_of(core, put)) for put in puts]
        return [*changed, *(AppliedSchedule(name=row.name, change="removed") for row in gone)]
    applied: list[AppliedSchedule] = []
    for put in puts:
        stored = client.dispatch(evolve(put, actor=actor))
        change: AppliedChange = "created" if stored.created else "updated" if stored.changed else "unchanged"
        applied.append(AppliedSchedule(name=put.schedule, change=change))
    for row in gone:
        remove = ScheduleRemove(
            namespace=core.namespace, schedule=row.name, declared=row.declared, actor=actor
        )
        if client.dispatch(remove).removed:
            applied.append(AppliedSchedule(name=row.name, change="removed"))
    return applied


def _declared(core: Core, schedule: Schedule[object]) -> SchedulePut:
    # Without interceptors: one that adds something else each time would update the schedule with every deploy.
    digest = hashlib.sha256(command_json(put_command(core, schedule, intercepts=False)).encode()).hexdigest()
    return evolve(put_command(core, schedule), if_exists="update", declared=digest[:32])


def _declared_rows(core: Core) -> list[ScheduleRow]:
    workflows = {plan.workflow for plan in core.registry.plans}
    return [row for row in schedule_rows(core, declared=True) if row.workflow in workflows]


def _change_of(core: Core, put: SchedulePut) -> AppliedChange:
    row = core.stores.persistence.read(FindSchedule(ScheduleName(core.namespace, put.schedule)))
    if row is None:
        return "created"
    return "unchanged" if row.declared == put.declared else "updated"
