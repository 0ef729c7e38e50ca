"""A call that nobody has made yet: a workflow with what to run it with, as a value."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic

from typing_extensions import TypeVar, override

from holdfast.kernel.values import encode

# Named without _co: users read this name in their type errors.
Out = TypeVar("Out", covariant=True)


class Definition(ABC, Generic[Out]):
    """A workflow. Its runs end in an `Out`."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """What the workflow is called wherever runs are stored or listed."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Which state of its code this is. A run stays with the version that it began with."""

    @property
    @abstractmethod
    def input_type(self) -> object:
        """What a run is given, as an annotation."""

    @property
    @abstractmethod
    def output_type(self) -> object:
        """What a run ends in, as an annotation."""

    def input_text(self, value: object) -> str:
        """Return the JSON text of what a run is given, with the defaults of what was left out: as it is stored.

        InvalidValueError, UnstorableValueError.
        """
        return encode(value, self.input_type)

    @property
    def stage_type(self) -> object:
        """What it takes where it is a stage, as an annotation. DefinitionError if it can't be one."""
        return self.input_type

    @property
    def stage_parameters(self) -> tuple[str, ...] | None:
        """To which parameters that is given; None if it is the input as it is."""
        return None


class Call(Coroutine[Any, Any, Out]):
    """A workflow with its input. Nothing happens until it is given to an engine.

    In a durable function it is a coroutine: awaited, it starts a run, the function's child, and gives what that gave.
    Anywhere else it can't be awaited: whoever tries is told where it belongs.
    """

    __slots__ = ("_child", "_definition", "_value")

    def __init__(self, definition: Definition[Out], value: object) -> None:
        self._definition = definition
        self._value = value
        self._child: Coroutine[Any, Any, Out] | None = None

    @property
    def definition(self) -> Definition[Out]:
        """The workflow."""
        return self._definition

    @property
    def value(self) -> object:
        """What a run of it is given."""
        return self._value

    @override
    def __await__(self) -> Generator[Any, Any, Out]:
        return self._begun().__await__()

    @override
    def send(self, value: Any, /) -> Any:
        return self._begun().send(value)

    @override
    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        return self._begun().throw(typ, val, tb)

    @override
    def close(self) -> None:
        if self._child is not None:
            self._child.close()

    @override
    def __repr__(self) -> str:
        return f"{self._definition.name}({self._value!r})"

    def _begun(self) -> Coroutine[Any, Any, Out]:
        """Return what waits for the run of it. RuntimeError outside of a durable function."""
        if self._child is None:
            # Here, for a program that only has pipelines needs no asyncio to import them.
            from holdfast.kernel.authoring.child_runs import result_of
            from holdfast.kernel.functions.loop import running_loop

            loop = running_loop()
            if loop is None:
                raise RuntimeError(
                    f"a call of {self._definition.name!r} was awaited, but it does nothing by itself: give it to an"
                    " engine, as in `await engine.run(...)` for the result or `await engine.start(...)` for the run"
                )
            self._child = result_of(loop, self)
        return self._child
