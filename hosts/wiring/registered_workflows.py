"""Registration of the workflows of a process, so that programs without their code can list and start them."""

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from holdfast.hosts.wiring.channel_discovery import channels_of
from holdfast.hosts.wiring.registry import Authored
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.commands import WorkflowRegister, WorkflowSchemas
from holdfast.kernel.commands.workflows import SCHEMAS_MAX
from holdfast.kernel.values.schemas import schema_of
from holdfast.ports.errors import DefinitionError
from holdfast.ports.json import compact

_AT_ONCE: Final = 50
"""How many workflows one command registers: their schemas may have 64 KiB each."""

_log = logging.getLogger("holdfast.worker")


def register_workflows(core: Core) -> None:
    """Store the plans and schemas of the workflows of a process. What fails is logged: a worker works without it."""
    if not core.registry.workflows:
        return
    try:
        rows = iter(_schemas(core))
        while batch := tuple(islice(rows, _AT_ONCE)):
            core.kernel.dispatch(WorkflowRegister(namespace=core.namespace, workflows=batch))
    except Exception as error:  # noqa: BLE001  # whatever it is, a worker works without it
        _log.warning("the workflows are not registered for servers without their code: %s", error)


def _schemas(core: Core) -> Iterable[WorkflowSchemas]:
    for workflow, plan in zip(core.registry.workflows, core.registry.plans, strict=True):
        try:
            text = schemas_text(workflow)
        except Exception as error:  # noqa: BLE001  # of a class of the user's, which may raise anything
            _log.warning(
                "the workflow %s is not registered for servers without its code: %s", plan.definition, error
            )
            continue
        yield WorkflowSchemas(workflow=plan.workflow, version=plan.version, schemas=text)


def schemas_text(workflow: Authored) -> str:
    """Return the schemas of a workflow as they are stored.

    Beyond 64 KiB the least useful are left out: those of signals, then that of the output, then that of the input.
    """
    schemas = schemas_of(workflow)
    for name in ("signals", "output", "input"):
        text = compact(schemas)
        if len(text) <= SCHEMAS_MAX:
            return text
        schemas.pop(name, None)
    return compact(schemas)


def schemas_of(workflow: Authored) -> dict[str, Any]:
    """Return the schemas of what a workflow takes and returns: `input`, `output`, and `signals` by channel."""
    found: dict[str, Any] = {
        "input": schema_of(workflow.input_type),
        "output": schema_of(workflow.output_type),
    }
    signals = dict(_signals(workflow))
    return {**found, "signals": signals} if signals else found


def _signals(workflow: Authored) -> Iterator[tuple[str, Any]]:
    if not isinstance(workflow, Workflow):
        return
    for name, channels in sorted(channels_of(workflow.function).by_name.items()):
        try:
            schemas = [schema_of(channel.message_type) for channel in channels]
        except DefinitionError:  # it is raised when the channel is used
            continue
        yield name, schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
