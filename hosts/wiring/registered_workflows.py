"""Registration of the workflows of a process, so that programs without their code can list and start them."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from holdfast.hosts.wiring.channel_discovery import ReachableChannels, channels_of
from holdfast.hosts.wiring.registry import Authored
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.commands import WorkflowRegister, WorkflowSchemas
from holdfast.kernel.commands.workflows import SCHEMAS_MAX
from holdfast.kernel.values.schemas import schema_of
from holdfast.kernel.values.type_forms import Form
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

    Beyond 64 KiB the least useful are left out: those of updates, then those of signals, of the output, of the input.
    """
    schemas = schemas_of(workflow)
    for name in ("updates", "signals", "output", "input"):
        text = compact(schemas)
        if len(text) <= SCHEMAS_MAX:
            return text
        schemas.pop(name, None)
    return compact(schemas)


def schemas_of(workflow: Authored) -> dict[str, Any]:
    """Return the schemas of what a workflow takes and returns.

    `input`, `output`, `signals` by channel, and `updates` by name, each with its `arguments` and `reply`.
    """
    found: dict[str, Any] = {
        "input": schema_of(workflow.input_type),
        "output": schema_of(workflow.output_type),
    }
    if isinstance(workflow, Workflow):
        known = channels_of(workflow.function)
        named = {"signals": dict(_signals(known)), "updates": dict(_updates(known))}
        found |= {name: schemas for name, schemas in named.items() if schemas}
    return found


def _signals(known: ReachableChannels) -> Iterator[tuple[str, Any]]:
    for name, channels in sorted(known.by_name.items()):
        try:
            yield name, _any_of([channel.message_type for channel in channels])
        except DefinitionError:  # it is raised when the channel is used
            continue


def _updates(known: ReachableChannels) -> Iterator[tuple[str, Any]]:
    for name, several in sorted(known.updates.items()):
        yield (
            name,
            {
                "arguments": _any_of([one.form.arguments for one in several]),
                "reply": _any_of([one.form.output for one in several]),
            },
        )


def _any_of(forms: Sequence[Form]) -> Any:
    schemas: list[Any] = []
    for one in map(schema_of, forms):
        if one not in schemas:
            schemas.append(one)
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
