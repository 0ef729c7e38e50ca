"""The command that registers workflows, and its reply."""

from typing import Any, ClassVar, Final, Literal

import attrs

from holdfast.kernel.commands.command import Command
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.structs import frozen

SCHEMAS_MAX: Final = 65_536
"""Maximum length of the schemas of a workflow, in characters."""
REGISTERED_AT_ONCE: Final = 1_000
"""How many workflows a command registers at most."""


def _few(_: object, field: "attrs.Attribute[Any]", value: tuple[object, ...]) -> None:
    if len(value) > REGISTERED_AT_ONCE:
        raise InvalidCommandError(
            f"{field.name} has {len(value)} entries; {REGISTERED_AT_ONCE:,} are possible"
        )


@frozen(kw_only=True)
class WorkflowSchemas:
    """A workflow to register."""

    workflow: str
    """Its name."""
    version: str
    """Its version."""
    schemas: str = "{}"
    """JSON text of an object, at most 65,536 characters: `input`, `output`, `signals`, `updates` as JSON Schema."""


@frozen(kw_only=True)
class WorkflowsRegistered:
    """Reply to `WorkflowRegister`."""

    registered: int
    """How many were new, were changed, or had been registered for the last time a minute ago or longer."""


@frozen(kw_only=True)
class WorkflowRegister(Command[WorkflowsRegistered]):
    """Command to store the plans and schemas of workflows, so that programs without their code can start them.

    Of each workflow the 20 versions are kept that were registered last. Errors: UnknownWorkflowError for one whose code
    this process lacks, InvalidCommandError for schemas that are not a JSON object.
    """

    type: ClassVar[Literal["workflow.register"]] = "workflow.register"
    workflows: tuple[WorkflowSchemas, ...] = attrs.field(validator=_few)
    """The workflows, the default version of a name last."""
