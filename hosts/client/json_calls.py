"""Calls of workflows whose names and inputs come from outside, as JSON."""

from typing import Any, cast

from holdfast.hosts.wiring.registry import Authored
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.values import decode_input
from holdfast.kernel.values.type_forms import NoneType, unwrap
from holdfast.ports.errors import InvalidValueError


def find_code(core: Core, workflow: str, version: str | None = None) -> Authored:
    """Return a workflow of an engine, by default in the version registered last. Raises UnknownWorkflowError."""
    found = core.registry.find_workflow(workflow, version)
    if found is None:
        raise core.registry.unknown_workflow(workflow, version)
    return found


def takes_nothing(workflow: Authored) -> bool:
    """Return whether a workflow can be called without an input."""
    return isinstance(workflow, Workflow) or unwrap(workflow.input_type) is NoneType


def call_with(workflow: Authored, text: str | None) -> Call[object]:
    """Return the call of a workflow with its input as JSON text; None for no input. Raises InvalidValueError."""
    if isinstance(workflow, Workflow):
        return Call(workflow, _input(workflow, text or "{}"))
    if text is None and not takes_nothing(workflow):
        raise InvalidValueError(f"the input of workflow {workflow.name!r}", ("$: it is required",))
    return workflow(None if text is None else _input(workflow, text))


def _input(workflow: Authored, text: str) -> object:
    try:
        return decode_input(text, cast("Any", workflow.input_type))
    except InvalidValueError as error:
        raise InvalidValueError(f"the input of workflow {workflow.name!r}", error.problems) from None
