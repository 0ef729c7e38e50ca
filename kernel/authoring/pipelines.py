"""Pipelines: stages, and the static plan that joins them.

Everything that can be wrong with a pipeline is found while it is put together, before a run of it exists.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, TypedDict, Unpack, cast, overload

import attrs
from typing_extensions import TypeForm, TypeVar, override

from holdfast.kernel.authoring.body_types import is_async_body, tuple_of, union_of
from holdfast.kernel.authoring.calls import Call, Definition
from holdfast.kernel.authoring.completion_policies import AtLeast, Partial, Tolerate
from holdfast.kernel.authoring.decorators import each
from holdfast.kernel.authoring.nodes import AnyNode, In, Node, Out
from holdfast.kernel.authoring.options import BodyDefaults, check_name, check_options
from holdfast.kernel.authoring.pipeline_builder import Design, Step, Test, group_of, joined, stage_of
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.values import check_type
from holdfast.kernel.values.type_forms import NoneType, plain, show
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
"""How many stages a pipeline may have."""
PARALLEL_MAX: Final = 6

_NOTHING: Final = object()


class _MapOptions(TypedDict, total=False):
    """What `map` can be told."""

    over: object
    limit: object
    enough: object


class Pipeline(Definition[Out], Generic[In, Out]):
    """A workflow as a static plan: stages that are fed by those before them.

    A pipeline is never changed: every method that adds to it gives a new one, so a beginning can be shared.

    Args:
        name: What it is called wherever runs are stored or listed. Runs find their code by it, so it stays.
        input: What a run is given. None if left out.
        version: Which state of the code this is. Raise it when runs in flight could not go on with the new code.
        **defaults: `retry`, `timeout`, `queue` and `priority`, for stages that say nothing themselves.

    Raises:
        DefinitionError: A name is malformed, an option is not what it must be, or the input can't be stored.
        InvalidArgumentError: There is no such option.
    """

    __slots__ = ("_design", "_plan")

    _design: Design
    _plan: Plan | None

    @overload
    def __init__(
        self: "Pipeline[None, None]", name: str, /, *, version: str = "1", **defaults: Unpack[BodyDefaults]
    ) -> None: ...
    @overload
    def __init__(
        self: "Pipeline[T, T]",
        name: str,
        /,
        *,
        input: TypeForm[T],
        version: str = "1",
        **defaults: Unpack[BodyDefaults],
    ) -> None: ...
    def __init__(self, name: str, /, *, version: str = "1", **options: Any) -> None:
        input_type = options.pop("input", None)
        check_name(name, "the name of a pipeline")
        check_name(version, f"the version of pipeline {name!r}")
        where = f"pipeline {name!r}"
        check_options(options, BodyDefaults, where)
        try:
            check_type(input_type)
        except DefinitionError as error:
            raise DefinitionError(f"the input of {where}: {error}") from None
        defaults = cast("BodyDefaults", options)
        self._set(
            Design(
                name=name, version=version, input_type=input_type, output_type=input_type, defaults=defaults
            )
        )

    def pipe(self, node: Node[Out, Next], /) -> "Pipeline[In, Next]":
        """Then do `node` with what came out.

        Raises:
            DefinitionError: It does not take that, or its name is taken.
        """
        return self._then((node,), parallel=False)

    @overload
    def parallel(self, a: Node[Out, R1], b: Node[Out, R2], /) -> "Pipeline[In, tuple[R1, R2]]": ...
    @overload
    def parallel(
        self, a: Node[Out, R1], b: Node[Out, R2], c: Node[Out, R3], /
    ) -> "Pipeline[In, tuple[R1, R2, R3]]": ...
    @overload
    def parallel(
        self, a: Node[Out, R1], b: Node[Out, R2], c: Node[Out, R3], d: Node[Out, R4], /
    ) -> "Pipeline[In, tuple[R1, R2, R3, R4]]": ...
    @overload
    def parallel(
        self, a: Node[Out, R1], b: Node[Out, R2], c: Node[Out, R3], d: Node[Out, R4], e: Node[Out, R5], /
    ) -> "Pipeline[In, tuple[R1, R2, R3, R4, R5]]": ...
    @overload
    def parallel(
        self,
        a: Node[Out, R1],
        b: Node[Out, R2],
        c: Node[Out, R3],
        d: Node[Out, R4],
        e: Node[Out, R5],
        f: Node[Out, R6],
        /,
    ) -> "Pipeline[In, tuple[R1, R2, R3, R4, R5, R6]]": ...
    def parallel(self, *nodes: Node[Out, object]) -> "Pipeline[In, Any]":
        """Then do two to six nodes at once, each with what came out. What goes on is the tuple of their outputs.

        Raises:
            DefinitionError: One of them does not take that, a name is taken, or there are too few or too many.
        """
        if not 2 <= len(nodes) <= PARALLEL_MAX:
            raise DefinitionError(
                f"pipeline {self.name!r}: parallel takes 2 to {PARALLEL_MAX} stages, not {len(nodes)}"
            )
        return self._then(nodes, parallel=True)

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
        enough: AtLeast | Tolerate,
    ) -> "Pipeline[T, Partial[R]]": ...
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
        enough: AtLeast | Tolerate,
    ) -> "Pipeline[In, Partial[R]]": ...
    def map(self, node: Stage[Any, object], /, **how: Any) -> "Pipeline[Any, Any]":
        """Then do a stage once for each item of what came out, or of what the earlier stage `over` gave.

        It is `pipe(each(...))`: see `each` for `over`, `limit`, `enough` and what it raises. With `over`, what came out
        goes no further; to keep it, give `parallel` an `each`.
        """
        check_options(how, _MapOptions, f"pipeline {self.name!r}: map")
        mapped = cast("Node[Any, object]", each(node, **how))
        return self._then((mapped,), parallel=False)

    @overload
    def when(self, test: Callable[[Out], bool], node: Node[Out, Next], /) -> "Pipeline[In, Out | Next]": ...
    @overload
    def when(
        self, test: Callable[[Out], bool], node: Node[Out, Next], /, *, otherwise: Node[Out, Other]
    ) -> "Pipeline[In, Next | Other]": ...
    def when(
        self,
        test: Callable[[Any], bool],
        node: Node[Any, object],
        /,
        *,
        otherwise: Node[Any, object] | None = None,
    ) -> "Pipeline[In, Any]":
        """Then do `node` if `test` says so of what came out; if not, `otherwise`, or go on with what came out.

        The test is called once, by a worker, and what it said is recorded. It must not be async.

        Raises:
            DefinitionError: A node does not take what came out, a name is taken, the test is no function, or values of
                what the two nodes give could not be told apart.
        """
        if not _is_sync_function(test):
            raise DefinitionError(f"pipeline {self.name!r}: when takes a sync function, not {test!r}")
        nodes = (node,) if otherwise is None else (node, otherwise)
        return self._then(nodes, parallel=False, test=Test(test, self.output_type))

    @overload
    def __call__(self: "Pipeline[None, R]", /) -> Call[R]: ...
    @overload
    def __call__(self, value: In, /) -> Call[Out]: ...
    def __call__(self, value: object = _NOTHING, /) -> Call[Any]:
        """Say what to run it with. Nothing runs until an engine is given the call.

        Raises:
            InvalidArgumentError: There is no value and the pipeline takes one, or the other way round.
            DefinitionError: The pipeline has no stages.
        """
        self._check_stages()
        takes_nothing = plain(self.input_type) is NoneType
        if value is _NOTHING and not takes_nothing:
            raise InvalidArgumentError(
                "value", f"pipeline {self.name!r} is called with its input, a {show(self.input_type)}"
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
        """The stages by name, with the defaults of this pipeline put in."""
        stages = [stage_of(node) for step in self._design.steps for node in step.nodes]
        return MappingProxyType({stage.name: stage for stage in stages})

    @property
    def tests(self) -> Mapping[str, Test]:
        """What decides which node is done, by the name of the first of the two."""
        return MappingProxyType(
            {step.nodes[0].name: step.test for step in self._design.steps if step.test is not None}
        )

    def plan(self) -> Plan:
        """Return what is stored of this pipeline: what is done after what, without code.

        Raises:
            DefinitionError: The pipeline has no stages.
        """
        if self._plan is None:
            self._check_stages()
            groups = tuple(map(group_of, self._design.steps))
            self._plan = Plan(workflow=self.name, version=self.version, groups=groups)
        return self._plan

    @override
    def __repr__(self) -> str:
        return f"<pipeline {self.name}: {show(self.input_type)} -> {show(self.output_type)}>"

    def _check_stages(self) -> None:
        if not self._design.steps:
            raise DefinitionError(f"pipeline {self.name!r} has no stages; add one with pipe, parallel or map")

    def _set(self, design: Design) -> None:
        self._design = design
        self._plan = None

    def _then(
        self, nodes: Sequence[object], *, parallel: bool, test: Test | None = None
    ) -> "Pipeline[In, Any]":
        """Return this pipeline with nodes added that all take what came out."""
        design = self._design
        added: list[Node[Any, object]] = []
        for node in nodes:
            checked = joined(design, node)
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
            output = self._either([*outputs, *([] if len(added) > 1 else [design.output_type])])
        else:
            output = tuple_of(outputs) if parallel else outputs[0]
        pipeline = cast("Pipeline[In, Any]", object.__new__(Pipeline))
        pipeline._set(
            attrs.evolve(
                design,
                output_type=output,
                steps=(*design.steps, Step(tuple(added), parallel, test)),
            )
        )
        return pipeline

    def _either(self, outputs: Sequence[object]) -> object:
        union = union_of(outputs)
        try:
            check_type(union)
        except DefinitionError as error:
            raise DefinitionError(
                f"pipeline {self.name!r}: what comes out of `when` can't be kept: {error}"
            ) from None
        return union


def _is_sync_function(test: object) -> bool:
    if not callable(test) or isinstance(test, Definition):
        return False
    return not is_async_body(test)
