"""`Pipeline`: a workflow whose plan of stages is fixed before it starts.

Mistakes in a plan, such as types that do not match, are errors of its definition: no run of it exists yet.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, TypedDict, Unpack, cast, overload

import attrs
from typing_extensions import TypeForm, TypeVar, override

from holdfast.kernel.authoring.body_types import check_storable, is_async_body, tuple_of, union_of
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.completion_policies import AtLeast, PartialResults, TolerateFailures
from holdfast.kernel.authoring.decorators import each
from holdfast.kernel.authoring.nodes import AnyNode, In, Out, PlanNode
from holdfast.kernel.authoring.options import (
    BodyDefaults,
    Fair,
    PipelineOptions,
    Rate,
    Retry,
    check_name,
    check_options,
    input_attributes,
    to_timedelta,
)
from holdfast.kernel.authoring.pipeline_builder import (
    Condition,
    PipelineDefinition,
    StageGroup,
    group_of,
    micros_of,
    prepare_node,
    stage_of,
    with_stage_defaults,
)
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.pipelines.input_attributes import InputAttribute
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.values.type_forms import NoneType, show, unwrap
from holdfast.ports.errors import DefinitionError, InvalidArgumentError

Item = TypeVar("Item")
Next = TypeVar("Next")
Other = TypeVar("Other")
R = TypeVar("R")
T = TypeVar("T")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")
R5 = TypeVar("R5")
R6 = TypeVar("R6")

STAGES_MAX: Final = 500
"""Maximum number of stages of a pipeline."""
PARALLEL_MAX: Final = 6

_NOTHING: Final = object()


class _MapOptions(TypedDict, total=False):
    """Options of `map`."""

    over: object
    limit: object
    enough: object


class Pipeline(WorkflowDefinition[Out], Generic[In, Out]):
    """A workflow with a fixed plan: stages joined by `pipe`, `parallel`, `map` and `when`.

    A pipeline is immutable: each method returns a new one, so several can start with the same stages.

    Example:
        thumbnails = Pipeline("thumbnails", input=str).pipe(list_images).map(resize).pipe(index)

    Args:
        name: Name of the workflow in the store. Keep it: runs find their code by it.
        input: Type of the input. Without it, runs have no input.
        version: Version of the code. Raise it when active runs could not continue with the new code.
        **options: `deadline`, `concurrency`, `rate`, `fair` and `attributes_from` of its runs, and options for stages
            that do not set them. See `PipelineOptions`.

    Raises:
        DefinitionError: A name or the value of an option is invalid, or the input can't be stored.
        InvalidArgumentError: An option is unknown.
    """

    __slots__ = ("_design", "_plan")

    _design: PipelineDefinition
    _plan: Plan | None

    @overload
    def __init__(
        self: "Pipeline[None, None]", name: str, /, *, version: str = "1", **options: Unpack[PipelineOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: "Pipeline[T, T]",
        name: str,
        /,
        *,
        input: TypeForm[T],
        version: str = "1",
        **options: Unpack[PipelineOptions],
    ) -> None: ...
    def __init__(self, name: str, /, *, version: str = "1", **options: Any) -> None:
        input_type = options.pop("input", None)
        check_name(name, "the name of a pipeline")
        check_name(version, f"the version of pipeline {name!r}")
        where = f"pipeline {name!r}"
        check_options(options, PipelineOptions, where)
        deadline = to_timedelta(options.pop("deadline", None))
        fair: Fair | None = options.pop("fair", None)
        concurrency = options.pop("concurrency", None)
        rate: Rate | None = options.pop("rate", None)
        attributes_from = input_attributes(options.pop("attributes_from", ()))
        check_storable(input_type, f"the input of {where}")
        defaults = cast("BodyDefaults", options)
        self._set(
            PipelineDefinition(
                name=name,
                version=version,
                input_type=input_type,
                output_type=input_type,
                defaults=defaults,
                deadline=deadline,
                fair=fair,
                concurrency=concurrency,
                rate=rate,
                attributes_from=attributes_from,
            )
        )

    def pipe(self, node: PlanNode[Out, Next], /) -> "Pipeline[In, Next]":
        """Run `node` next, with the current output as its input.

        Raises:
            DefinitionError: It does not take this type, or a stage has its name already.
        """
        return self._append((node,), parallel=False)

    @overload
    def parallel(self, a: PlanNode[Out, R1], b: PlanNode[Out, R2], /) -> "Pipeline[In, tuple[R1, R2]]": ...
    @overload
    def parallel(
        self, a: PlanNode[Out, R1], b: PlanNode[Out, R2], c: PlanNode[Out, R3], /
    ) -> "Pipeline[In, tuple[R1, R2, R3]]": ...
    @overload
    def parallel(
        self, a: PlanNode[Out, R1], b: PlanNode[Out, R2], c: PlanNode[Out, R3], d: PlanNode[Out, R4], /
    ) -> "Pipeline[In, tuple[R1, R2, R3, R4]]": ...
    @overload
    def parallel(
        self,
        a: PlanNode[Out, R1],
        b: PlanNode[Out, R2],
        c: PlanNode[Out, R3],
        d: PlanNode[Out, R4],
        e: PlanNode[Out, R5],
        /,
    ) -> "Pipeline[In, tuple[R1, R2, R3, R4, R5]]": ...
    @overload
    def parallel(
        self,
        a: PlanNode[Out, R1],
        b: PlanNode[Out, R2],
        c: PlanNode[Out, R3],
        d: PlanNode[Out, R4],
        e: PlanNode[Out, R5],
        f: PlanNode[Out, R6],
        /,
    ) -> "Pipeline[In, tuple[R1, R2, R3, R4, R5, R6]]": ...
    def parallel(self, *nodes: PlanNode[Out, object]) -> "Pipeline[In, Any]":
        """Run two to six nodes at the same time, each with the current output. Their outputs become a tuple.

        Raises:
            DefinitionError: A node does not take this type, a name is used twice, or the number of nodes is wrong.
        """
        if not 2 <= len(nodes) <= PARALLEL_MAX:
            raise DefinitionError(
                f"pipeline {self.name!r}: parallel takes 2 to {PARALLEL_MAX} stages, not {len(nodes)}"
            )
        return self._append(nodes, parallel=True)

    @overload
    def map(
        self: "Pipeline[T, Sequence[Item]]", node: Stage[Item, R], /, *, limit: int | None = None
    ) -> "Pipeline[T, list[R]]": ...
    @overload
    def map(
        self: "Pipeline[T, Sequence[Item]]",
        node: Stage[Item, R],
        /,
        *,
        limit: int | None = None,
        enough: AtLeast | TolerateFailures,
    ) -> "Pipeline[T, PartialResults[R]]": ...
    @overload
    def map(
        self, node: Stage[Item, R], /, *, over: AnyNode[Sequence[Item]], limit: int | None = None
    ) -> "Pipeline[In, list[R]]": ...
    @overload
    def map(
        self,
        node: Stage[Item, R],
        /,
        *,
        over: AnyNode[Sequence[Item]],
        limit: int | None = None,
        enough: AtLeast | TolerateFailures,
    ) -> "Pipeline[In, PartialResults[R]]": ...
    def map(self, node: Stage[Any, object], /, **how: Any) -> "Pipeline[Any, Any]":
        """Run a stage once for each item of the current output, or of the output of the earlier stage `over`.

        This is `pipe(each(...))`: see `each` for the options and errors. With `over`, the current output is dropped; to
        keep it, use an `each` in `parallel`.
        """
        check_options(how, _MapOptions, f"pipeline {self.name!r}: map")
        mapped = cast("PlanNode[Any, object]", each(node, **how))
        return self._append((mapped,), parallel=False)

    @overload
    def when(
        self, test: Callable[[Out], bool], node: PlanNode[Out, Next], /
    ) -> "Pipeline[In, Out | Next]": ...
    @overload
    def when(
        self, test: Callable[[Out], bool], node: PlanNode[Out, Next], /, *, otherwise: PlanNode[Out, Other]
    ) -> "Pipeline[In, Next | Other]": ...
    def when(
        self,
        test: Callable[[Any], bool],
        node: PlanNode[Any, object],
        /,
        *,
        otherwise: PlanNode[Any, object] | None = None,
    ) -> "Pipeline[In, Any]":
        """Run `node` if `test(output)` is true; otherwise run `otherwise`, or keep the current output.

        Example:
            orders.when(is_large, review, otherwise=approve)

        A worker calls the condition once and records its answer. It must be a sync function.

        Raises:
            DefinitionError: A node does not take the output, a name is used twice, the condition is not a sync
                function, or the outputs of the two branches could not be told apart when they are read.
        """
        if not _is_sync_function(test):
            raise DefinitionError(f"pipeline {self.name!r}: when takes a sync function, not {test!r}")
        nodes = (node,) if otherwise is None else (node, otherwise)
        return self._append(nodes, parallel=False, test=Condition(test, self.output_type))

    @overload
    def __call__(self: "Pipeline[None, R]", /) -> Call[R]: ...
    @overload
    def __call__(self, value: In, /) -> Call[Out]: ...
    def __call__(self, value: object = _NOTHING, /) -> Call[Any]:
        """Return a call of the pipeline with its input, for an engine: `await engine.run(thumbnails("photos/"))`.

        Raises:
            InvalidArgumentError: The input is missing, or the pipeline takes none.
            DefinitionError: The pipeline has no stages.
        """
        self._check_stages()
        takes_nothing = unwrap(self.input_type) is NoneType
        if value is _NOTHING and not takes_nothing:
            raise InvalidArgumentError(
                "value", f"pipeline {self.name!r} needs its input, a {show(self.input_type)}"
            )
        if value is not _NOTHING and value is not None and takes_nothing:
            raise InvalidArgumentError(
                "value",
                f"pipeline {self.name!r} takes no input; declare it: Pipeline({self.name!r}, input=...)",
            )
        return Call[Any](self, None if value is _NOTHING else value)

    @property
    @override
    def name(self) -> str:
        return self._design.name

    @property
    @override
    def version(self) -> str:
        return self._design.version

    @property
    @override
    def input_type(self) -> object:
        return self._design.input_type

    @property
    @override
    def output_type(self) -> object:
        return self._design.output_type

    @property
    def bodies(self) -> Mapping[str, Stage[Any, object]]:
        """The stages by name, with the defaults of the pipeline applied."""
        stages = [stage_of(node) for step in self._design.groups for node in step.nodes]
        return MappingProxyType({stage.name: stage for stage in stages})

    @property
    def conditions(self) -> Mapping[str, Condition]:
        """The conditions, by the name of the first stage of their branches."""
        return MappingProxyType(
            {step.nodes[0].name: step.condition for step in self._design.groups if step.condition is not None}
        )

    @property
    @override
    def is_fair(self) -> bool:
        """Whether its runs share workers by an attribute."""
        return self._design.fair is not None

    @property
    @override
    def attributes_from(self) -> tuple[InputAttribute, ...]:
        """The attributes that it takes from the input of its runs."""
        return self._design.attributes_from

    def plan(self) -> Plan:
        """Return the plan: the stages and their order as data, without code.

        Raises:
            DefinitionError: The pipeline has no stages.
        """
        if self._plan is None:
            self._check_stages()
            groups = tuple(map(group_of, self._design.groups))
            deadline = micros_of(self._design.deadline)
            fair = self._design.fair
            concurrency, rate = self._design.concurrency, self._design.rate
            self._plan = Plan(
                workflow=self.name,
                version=self.version,
                groups=groups,
                deadline_us=deadline,
                fair=None if fair is None else fair.by,
                concurrency=None if concurrency is None else concurrency.plan,
                rate=None if rate is None else rate.of_runs,
                attributes_from=self.attributes_from,
            )
        return self._plan

    def with_default_retry(self, retry: Retry) -> "Pipeline[In, Out]":
        """Return a copy with this policy for stages that have none."""
        pipeline = cast("Pipeline[In, Out]", object.__new__(Pipeline))
        pipeline._set(with_stage_defaults(self._design, {"retry": retry}))
        return pipeline

    @override
    def __repr__(self) -> str:
        return f"<pipeline {self.name}: {show(self.input_type)} -> {show(self.output_type)}>"

    def _check_stages(self) -> None:
        if not self._design.groups:
            raise DefinitionError(f"pipeline {self.name!r} has no stages; add one with pipe, parallel or map")

    def _set(self, design: PipelineDefinition) -> None:
        self._design = design
        self._plan = None

    def _append(
        self, nodes: Sequence[object], *, parallel: bool, test: Condition | None = None
    ) -> "Pipeline[In, Any]":
        """Return a copy with these nodes at the end, each of which takes the current output."""
        design = self._design
        added: list[PlanNode[Any, object]] = []
        for node in nodes:
            checked = prepare_node(design, node)
            if checked.name in self.bodies or any(checked.name == each.name for each in added):
                raise DefinitionError(
                    f"pipeline {design.name!r} has two stages named {checked.name!r};"
                    f" rename one: {checked.name}.options(name=...)"
                )
            added.append(checked)
        if len(self.bodies) + len(added) > STAGES_MAX:
            raise DefinitionError(f"pipeline {design.name!r} has more than {STAGES_MAX} stages")
        outputs = [node.output_type for node in added]
        if test is not None:
            output = self._branch_output_type([*outputs, *([] if len(added) > 1 else [design.output_type])])
        else:
            output = tuple_of(outputs) if parallel else outputs[0]
        pipeline = cast("Pipeline[In, Any]", object.__new__(Pipeline))
        pipeline._set(
            attrs.evolve(
                design, output_type=output, groups=(*design.groups, StageGroup(tuple(added), parallel, test))
            )
        )
        return pipeline

    def _branch_output_type(self, outputs: Sequence[object]) -> object:
        union = union_of(outputs)
        check_storable(union, f"pipeline {self.name!r}: the output of `when` can't be stored")
        return union


def _is_sync_function(test: object) -> bool:
    if not callable(test) or isinstance(test, WorkflowDefinition):
        return False
    return not is_async_body(test)
