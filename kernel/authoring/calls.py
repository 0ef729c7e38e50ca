"""`Call`: a workflow with its input, ready to start."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic

from typing_extensions import TypeVar, override

from holdfast.kernel.pipelines.input_attributes import InputAttribute, attributes_in
from holdfast.kernel.values import encode

# Named without _co: users read this name in their type errors.
Out = TypeVar("Out", covariant=True)


class WorkflowDefinition(ABC, Generic[Out]):
    """A workflow whose runs return an `Out`."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the workflow in the store."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Version of the code. A run keeps the version that it started with."""

    @property
    @abstractmethod
    def input_type(self) -> object:
        """Type of a run's input, as an annotation."""

    @property
    @abstractmethod
    def output_type(self) -> object:
        """Type of a run's result, as an annotation."""

    @property
    def is_fair(self) -> bool:
        """Whether its runs share workers by an attribute, so that a start may have a weight."""
        return False

    @property
    def attributes_from(self) -> tuple[InputAttribute, ...]:
        """The attributes that it takes from the input of its runs."""
        return ()

    def attributes_in(self, text: str) -> dict[str, str]:
        """Return the attributes that it takes from an input, given as JSON text.

        Raises:
            InvalidArgumentError: A value there can't be an attribute.
        """
        return attributes_in(text, self.attributes_from, self.name)

    def input_text(self, value: object) -> str:
        """Return the JSON text of an input, with defaults added, as it is stored.

        Raises InvalidValueError or UnstorableValueError.
        """
        return encode(value, self.input_type)

    @property
    def stage_type(self) -> object:
        """Type of its input as a stage, as an annotation. DefinitionError if it can't be a stage."""
        return self.input_type

    @property
    def stage_parameters(self) -> tuple[str, ...] | None:
        """Names of the parameters that a stage's input is passed to; None if the input is passed as it is."""
        return None


class Call(Coroutine[Any, Any, Out]):
    """A workflow with its input. Pass it to an engine: `await engine.run(fulfil(order))`.

    In a durable function it can be awaited: that starts a child run and returns its result.
    """

    __slots__ = ("_child", "_definition", "_value")

    def __init__(self, definition: WorkflowDefinition[Out], value: object) -> None:
        self._definition = definition
        self._value = value
        self._child: Coroutine[Any, Any, Out] | None = None

    @property
    def definition(self) -> WorkflowDefinition[Out]:
        """The workflow."""
        return self._definition

    @property
    def value(self) -> object:
        """The input of the run."""
        return self._value

    @override
    def __await__(self) -> Generator[Any, Any, Out]:
        return self._start_child().__await__()

    @override
    def send(self, value: Any, /) -> Any:
        return self._start_child().send(value)

    @override
    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        return self._start_child().throw(typ, val, tb)

    @override
    def close(self) -> None:
        if self._child is not None:
            self._child.close()

    @override
    def __repr__(self) -> str:
        return f"{self._definition.name}({self._value!r})"

    def _start_child(self) -> Coroutine[Any, Any, Out]:
        """Return the coroutine that starts the child run and waits for it. RuntimeError outside of a workflow."""
        if self._child is None:
            # Imported here, because a program with pipelines only must not need asyncio.
            from holdfast.kernel.authoring.child_runs import run_child
            from holdfast.kernel.functions.loop import running_loop

            loop = running_loop()
            if loop is None:
                raise RuntimeError(
                    f"a call of {self._definition.name!r} was awaited, but it does nothing on its own: pass it to an"
                    " engine, as in `await engine.run(...)` for the result or `await engine.start(...)` for the run"
                )
            self._child = run_child(loop, self)
        return self._child
