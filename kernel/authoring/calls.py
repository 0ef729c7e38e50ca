"""A call that nobody has made yet: a workflow with what to run it with, as a value."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, NoReturn

from typing_extensions import TypeVar, override

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


class Call(Coroutine[Any, Any, Out]):
    """A workflow with its input. Nothing happens until it is given to an engine.

    It is a coroutine that can't be awaited by itself: whoever tries is told where it belongs.
    """

    __slots__ = ("_definition", "_value")

    def __init__(self, definition: Definition[Out], value: object) -> None:
        self._definition = definition
        self._value = value

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
        self._refuse()

    @override
    def send(self, value: Any, /) -> Any:
        self._refuse()

    @override
    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        self._refuse()

    @override
    def close(self) -> None:
        """Nothing is open, so nothing is done."""

    @override
    def __repr__(self) -> str:
        return f"{self._definition.name}({self._value!r})"

    def _refuse(self) -> NoReturn:
        name = self._definition.name
        raise RuntimeError(
            f"a call of {name!r} was awaited, but it does nothing by itself: give it to an engine, as in"
            f" `await engine.run(...)` for the result or `await engine.start(...)` for the run"
        )
