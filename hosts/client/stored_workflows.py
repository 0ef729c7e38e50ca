"""Workflows whose code this process lacks, started by what their workers have registered."""

import json

from holdfast.hosts.client.client import Client
from holdfast.hosts.inspection.workflows import RegisteredWorkflow, registered_workflows
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.options import StartOptions
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.kernel.commands import RunCreate
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.json import compact
from holdfast.ports.records.run import Run


def find_registered(core: Core, workflow: str, version: str | None = None) -> RegisteredWorkflow:
    """Return a registered workflow, by default in the version registered last. Raises UnknownWorkflowError."""
    found = [
        one
        for one in registered_workflows(core, name=workflow)
        if version is None or one.plan.version == version
    ]
    if not found:
        raise core.registry.unknown_workflow(workflow, version)
    return max(found, key=lambda one: one.registered_at)


def create_registered(
    client: Client, workflow: RegisteredWorkflow, data: object, options: StartOptions
) -> RunCreate:
    """Return the command that starts a run of a registered workflow. A client with its plan carries it out.

    Raises InvalidValueError, InvalidArgumentError for one that gathers starts, and what commands of starts raise.
    """
    if workflow.plan.gather is not None:
        raise InvalidArgumentError(
            "workflow",
            f"{workflow.plan.workflow!r} gathers its starts, and this process lacks its code, which says what to join;"
            " start it where the code is",
        )
    nothing: dict[str, object] = {}
    given: object = nothing if data is None and workflow.takes_arguments else data
    workflow.check_input(given)
    for signal in options.get("signals", ()):
        workflow.check_signal(signal.channel, json.loads(signal.text))
    return client.create_of_plan(workflow.plan, compact(given), options)


def check_registered_signal(core: Core, run: Run, channel: str, data: object) -> None:
    """Raise InvalidValueError for a message that the workflow of a run does not take, as far as it is registered.

    A process with the code checks it by the code.
    """
    if core.registry.find_workflow(run.workflow, run.version) is None:
        for one in _registered(core, run.workflow, run.version):
            one.check_signal(channel, data)


def check_registered_update(core: Core, workflow: str, version: str | None, call: UpdateCall[object]) -> None:
    """Raise InvalidValueError for arguments that an update does not take, as far as its workflow is registered."""
    for one in _registered(core, workflow, version):
        one.check_update(call.update, json.loads(call.arguments))


def _registered(core: Core, workflow: str, version: str | None) -> list[RegisteredWorkflow]:
    return [one for one in registered_workflows(core, name=workflow) if one.plan.version == version]
