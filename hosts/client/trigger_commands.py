"""Stores triggers: those that an application creates, and those that its code declares."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.hosts.client.client import Client
from holdfast.hosts.client.schedules import inline_payload
from holdfast.hosts.client.start_commands import StartCommandBuilder
from holdfast.hosts.inspection.triggers import trigger_entries
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.triggers import Trigger
from holdfast.kernel.commands import TriggerPut, TriggerRemove
from holdfast.kernel.commands.codec import command_json
from holdfast.kernel.topics.selections import selection_text
from holdfast.ports.actors import Actor
from holdfast.ports.clock import micros
from holdfast.ports.errors import DefinitionError
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.structs import evolve
from holdfast.ports.validation import an, several

TRIGGER: Final = an("a Trigger(...)", Trigger)


def check_triggers(triggers: Iterable[Trigger[object]]) -> tuple[Trigger[object], ...]:
    """Return the triggers that code declares. DefinitionError for two of one name, InvalidArgumentError."""
    listed = tuple(several("Engine", "triggers", triggers, "a list of triggers, such as [Trigger(...)]"))
    names: set[str] = set()
    for one in listed:
        if not TRIGGER.test(one):
            raise DefinitionError(f"triggers has {one!r:.80}; it must be a Trigger(...)")
        if one.name in names:
            raise DefinitionError(f"two triggers are named {one.name!r}; a name is used once in a namespace")
        names.add(one.name)
    return listed


def trigger_command(core: Core, trigger: Trigger[object], *, intercepts: bool = True) -> TriggerPut:
    """Return the command that stores a trigger; without `intercepts`, as its declaration alone makes it.

    Raises UnknownWorkflowError or InvalidOverrideError.
    """
    interceptors = core.interceptors if intercepts else ()
    builder = StartCommandBuilder(core.namespace, core.registry, inline_payload, interceptors, "trigger")
    start = builder.without_input(trigger.workflow, trigger.start_options)
    return TriggerPut(
        namespace=core.namespace,
        trigger=trigger.name,
        topic=trigger.messages.name,
        selection=selection_text(trigger.messages.selected),
        start=evolve(start, version=None, actor=None),
        since=None if trigger.since is None else micros(trigger.since),
    )


def apply_triggers(client: Client, triggers: Sequence[Trigger[object]], *, actor: Actor | None) -> bool:
    """Store the triggers that code declares, and remove those that it does not declare any more.

    Only triggers of workflows that this process has are removed: others belong to other programs. Return whether
    anything has changed.
    """
    core = client.core
    puts = [_declared(core, trigger) for trigger in triggers]
    names = {put.trigger for put in puts}
    gone = [row for row in _declared_rows(core) if row.name not in names]
    has_changed = False
    for put in puts:
        has_changed = client.dispatch(evolve(put, actor=actor)).changed or has_changed
    for row in gone:
        remove = TriggerRemove(namespace=core.namespace, trigger=row.name, declared=row.declared, actor=actor)
        has_changed = client.dispatch(remove).removed or has_changed
    return has_changed


def _declared(core: Core, trigger: Trigger[object]) -> TriggerPut:
    # Without interceptors: one that adds something else each time would change the trigger with every deploy.
    digest = hashlib.sha256(
        command_json(trigger_command(core, trigger, intercepts=False)).encode()
    ).hexdigest()
    return evolve(trigger_command(core, trigger), declared=digest[:32])


def _declared_rows(core: Core) -> list[TriggerRow]:
    workflows = {plan.workflow for plan in core.registry.plans}
    entries = trigger_entries(core, declared=True)
    return [one.row for one in entries if one.row.workflow in workflows]
