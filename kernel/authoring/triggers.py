"""`Trigger`: a workflow that messages of a topic start."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Generic, cast, get_args

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.options import Rate, StartOptions, check_options
from holdfast.kernel.authoring.topics import TopicSelection
from holdfast.kernel.commands.names import text_fault
from holdfast.kernel.commands.triggers import TRIGGER_NAME_MAX
from holdfast.kernel.values.type_forms import show
from holdfast.ports.durations import Duration
from holdfast.ports.errors import DefinitionError
from holdfast.ports.validation import AWARE, Wanted, an, shown

Out = TypeVar("Out", covariant=True)

_NAME: Final = Wanted(
    f"a text of 1 to {TRIGGER_NAME_MAX} characters, with no / at its ends or beside another one",
    lambda value: (
        isinstance(value, str)
        and text_fault(value, TRIGGER_NAME_MAX, 1) is None
        and value == value.strip("/")
        and "//" not in value
    ),
)
_MESSAGES: Final = an('a topic, or messages of it, such as orders.where(country="nz")', TopicSelection)
_WORKFLOW: Final = an("a workflow or a pipeline, which is not called", WorkflowDefinition)
_RUN_OPTIONS: Final = (
    *("queue", "priority", "attributes", "headers", "annotations", "deadline"),
    *("concurrency", "rate", "overrides"),
)


@attrs.frozen
class Trigger(Generic[Out]):
    """A workflow that messages of a topic start.

    `Trigger("ship-nz", orders.where(country="nz"), ship)`. Pass it to `Engine.open(triggers=[...])`, or create it at
    run time with `engine.triggers.put`.

    Each message that it selects starts one run, in the order of the topic, and is the input of that run. The id of the
    run is `<name>/<topic>/<number of the message>`; the runs of a workflow that gathers its starts have other ids.

    Attributes:
        name: Name in the namespace, of 1 to 100 characters.
        messages: The topic, or the messages of it that start runs.
        workflow: A workflow with one parameter that needs a value, or a pipeline. It takes the message.
        since: Start runs also for messages that were published from this instant on, as far as the topic keeps them.
            Default: for those that are published after the trigger was created.
        queue: Queue of each run's jobs. Default: that of the workflow.
        priority: Head start of each run in its queue, one minute per step. Default: that of the workflow.
        attributes: Short texts by which the runs are found.
        headers: Texts that the steps and child runs of each run have too. See `StartOptions`.
        annotations: First annotations of each run: plain JSON by name.
        deadline: How long a run may take. Default: that of the workflow.
        concurrency: How many runs of a key may be under way and waiting. Default: that of the workflow. A message for
            which the start is refused starts no run.
        rate: How many runs start in a period. Default: that of the workflow.
        overrides: Stages of the pipeline with other options or another config: `[resize.options(queue="gpu")]`.

    Raises:
        DefinitionError: `name`, `messages`, `workflow` or `since` is invalid, or the workflow does not take messages of
            the topic.
        InvalidArgumentError: An option of the runs is invalid, such as `queue` or `deadline`.
    """

    name: str
    messages: TopicSelection[object]
    workflow: WorkflowDefinition[Out]
    since: datetime | None = attrs.field(default=None, kw_only=True)
    queue: str | None = attrs.field(default=None, kw_only=True)
    priority: int | None = attrs.field(default=None, kw_only=True)
    attributes: Mapping[str, str] | None = attrs.field(default=None, kw_only=True, hash=False)
    headers: Mapping[str, str] | None = attrs.field(default=None, kw_only=True, hash=False)
    annotations: Mapping[str, object] | None = attrs.field(default=None, kw_only=True, hash=False)
    deadline: Duration | None = attrs.field(default=None, kw_only=True)
    concurrency: Concurrency | None = attrs.field(default=None, kw_only=True)
    rate: Rate | None = attrs.field(default=None, kw_only=True)
    overrides: Sequence[AnyNode[object]] = attrs.field(default=(), kw_only=True, hash=False)

    def __attrs_post_init__(self) -> None:
        _check("name", self.name, _NAME)
        where = f"Trigger {self.name!r}"
        _check("messages", self.messages, _MESSAGES, where)
        _check("workflow", self.workflow, _WORKFLOW, where)
        _check("since", self.since, AWARE.or_none, where)
        check_options(cast("dict[str, object]", self.start_options), StartOptions, where)
        _check_input(self.workflow, self.messages, where)

    @property
    def start_options(self) -> StartOptions:
        """The options of each run as those of a start."""
        given = {name: getattr(self, name) for name in _RUN_OPTIONS}
        return cast("StartOptions", {name: value for name, value in given.items() if value not in (None, ())})


def _check(option: str, value: object, wanted: Wanted, where: str = "Trigger") -> None:
    if not wanted.test(value):
        raise DefinitionError(f"{where}: {option} is {shown(value)}; it must be {wanted.words}")


def _check_input(workflow: WorkflowDefinition[object], messages: TopicSelection[object], where: str) -> None:
    """Raise DefinitionError if a workflow does not take messages of a topic."""
    names = workflow.stage_parameters
    if names is not None and len(names) != 1:
        listed = ", ".join(names) or "none"
        raise DefinitionError(
            f"{where}: the workflow {workflow.name!r} must have one parameter without a default, which takes the "
            f"message; it has {listed}"
        )
    form = workflow.stage_type
    if messages.message_type != form and messages.message_type not in get_args(form) and form is not object:
        raise DefinitionError(
            f"{where}: messages of topic {messages.name!r} are {messages.takes}, and the workflow {workflow.name!r} "
            f"takes {show(form)}"
        )
