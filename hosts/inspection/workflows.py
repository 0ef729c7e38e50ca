"""Workflows as the server and the command line show them: those of this process, and those that workers registered."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal, cast

import attrs

from holdfast.hosts.wiring.registered_workflows import schemas_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.values.schemas import problems_of
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidValueError
from holdfast.ports.json import parse
from holdfast.ports.queries.workflows import ListWorkflows, WorkflowPlace
from holdfast.ports.records.values import Micros
from holdfast.ports.unreadable import PARSE_ERRORS

_PAGE: Final = 100


@attrs.frozen
class RegisteredWorkflow:
    """A workflow in one version, as a worker has registered it."""

    plan: Plan
    schemas: Mapping[str, Any]
    registered_at: Micros

    @property
    def takes_arguments(self) -> bool:
        """Whether its input is an object of arguments: it is a durable function."""
        return self.plan.function is not None

    def check_input(self, data: object) -> None:
        """Raise InvalidValueError for an input that does not have the schema."""
        self._check(f"the input of workflow {self.plan.workflow!r}", data, self.schemas.get("input"))

    def check_signal(self, channel: str, data: object) -> None:
        """Raise InvalidValueError for a message that does not have the schema of its channel."""
        schema = _object(self.schemas.get("signals")).get(channel)
        self._check(f"channel {channel!r} of workflow {self.plan.workflow!r}", data, schema)

    def check_update(self, update: str, arguments: object) -> None:
        """Raise InvalidValueError for arguments that do not have the schema of the update of this name."""
        found = _updates(self.schemas).get(update)
        what = f"the arguments of update {update!r} of workflow {self.plan.workflow!r}"
        self._check(what, arguments, None if found is None else found.arguments)

    def _check(self, what: str, data: object, schema: object) -> None:
        if isinstance(schema, dict) and (problems := problems_of(data, cast("dict[str, Any]", schema))):
            raise InvalidValueError(what, problems)


def registered_workflows(
    core: Core, *, name: str = "", after: WorkflowPlace | None = None, limit: int = _PAGE
) -> Iterator[RegisteredWorkflow]:
    """Yield the workflows that are registered in the namespace, by name and version. One page is read."""
    core.connect()
    query = ListWorkflows(namespace=core.namespace, name=name, after=after, limit=limit)
    for one in core.stores.persistence.read(query):
        try:
            schemas = parse(one.row.schemas)
            plan = plan_from_json(one.plan)
        except PARSE_ERRORS:  # of a later release, or damaged: only its own code can start it
            continue
        if isinstance(schemas, dict):
            yield RegisteredWorkflow(plan, cast("dict[str, Any]", schemas), one.row.registered_at)


@attrs.frozen(kw_only=True)
class UpdateSchemas:
    """What an update takes and returns."""

    arguments: object
    """The JSON Schema of the object of its arguments by name."""
    reply: object
    """The JSON Schema of its reply."""


@attrs.frozen(kw_only=True)
class WorkflowInfo:
    """A workflow in one version."""

    name: str
    """Its name."""
    version: str
    """Its version."""
    kind: Literal["function", "pipeline"]
    """Whether it is a durable function or a pipeline."""
    stages: tuple[str, ...]
    """The names of its stages, in the order of the plan; of a durable function, its own name."""
    queue: str | None
    """The queue of its jobs, unless a stage has its own; null for the default queue."""
    has_code: bool
    """Whether this process has its code. Otherwise a start goes by what a worker has registered."""
    registered_at: datetime | None
    """When a worker that has it started last; null if none has registered it."""
    input: object
    """The JSON Schema of its input; of a durable function, of the object of its arguments. Null if it is too long."""
    output: object
    """The JSON Schema of its result; null if it is too long."""
    signals: Mapping[str, object]
    """The JSON Schemas of the messages that a durable function takes, by channel, as far as they are known."""
    updates: Mapping[str, UpdateSchemas] = attrs.field(factory=dict[str, UpdateSchemas])
    """The updates that a durable function takes, by name, such as `Board.move`, as far as they are known."""


def workflow_infos(core: Core, name: str, after: str | None, limit: int) -> tuple[WorkflowInfo, ...]:
    """Return the workflows that can be started, by name and version: at most `limit` after `<name>@<version>`."""
    place = None if after is None else WorkflowPlace(*after.partition("@")[::2])
    registered = {
        WorkflowPlace(one.plan.workflow, one.plan.version): one
        for one in registered_workflows(core, name=name, after=place, limit=limit)
    }
    found = {at: _registered(one) for at, one in registered.items()}
    found |= {
        at: info
        for at, info in _of_code(core, registered)
        if name in {"", at.name} and (place is None or at > place)
    }
    return tuple(found[at] for at in sorted(found))[:limit]


def _of_code(
    core: Core, registered: Mapping[WorkflowPlace, RegisteredWorkflow]
) -> Iterator[tuple[WorkflowPlace, WorkflowInfo]]:
    for workflow, plan in zip(core.registry.workflows, core.registry.plans, strict=True):
        place = WorkflowPlace(plan.workflow, plan.version)
        known = registered.get(place)
        at = None if known is None else instant(known.registered_at)
        yield place, _info(plan, schemas_of(workflow), at, has_code=True)


def _registered(one: RegisteredWorkflow) -> WorkflowInfo:
    return _info(one.plan, one.schemas, instant(one.registered_at), has_code=False)


def _info(
    plan: Plan, schemas: Mapping[str, Any], registered_at: datetime | None, *, has_code: bool
) -> WorkflowInfo:
    return WorkflowInfo(
        name=plan.workflow,
        version=plan.version,
        kind="pipeline" if plan.function is None else "function",
        stages=tuple(plan.nodes),
        queue=plan.queue,
        has_code=has_code,
        registered_at=registered_at,
        input=schemas.get("input"),
        output=schemas.get("output"),
        signals=_object(schemas.get("signals")),
        updates=_updates(schemas),
    )


def _updates(schemas: Mapping[str, Any]) -> dict[str, UpdateSchemas]:
    """Return the updates of stored schemas: none if another release has registered the workflow without them."""
    found = _object(schemas.get("updates"))
    named = ((name, _object(one)) for name, one in found.items())
    return {
        name: UpdateSchemas(arguments=one.get("arguments"), reply=one.get("reply")) for name, one in named
    }


def _object(value: object) -> Mapping[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
