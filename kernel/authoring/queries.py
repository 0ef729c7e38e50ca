"""Queries and updates: methods of an object that a durable function exposes to callers outside of the run.

Callers pass a method call instead of a name: `await run.query(Board.status())`.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeAlias, cast, overload
from weakref import WeakKeyDictionary

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.authoring.body_types import is_async_body
from holdfast.kernel.authoring.call_types import CallForm, read_call_form
from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.functions.updates import Handler, RejectedError, UnreadableError
from holdfast.kernel.values import decode, encode
from holdfast.ports.errors import DefinitionError, InvalidArgumentError

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Result = TypeVar("Result")
Out = TypeVar("Out", covariant=True)

# Not Awaitable: see `holdfast.kernel.authoring.decorators`.
Async: TypeAlias = Coroutine[Any, Any, R]

_MARKED: Final[MutableMapping[type[object], Sequence[tuple[str, object]]]] = WeakKeyDictionary()


@attrs.frozen(kw_only=True, eq=False)
class QueryCall(Generic[Out]):
    """A query with its arguments, for `run.query`."""

    query: str
    """Name of the query, such as `Board.status`."""
    arguments: str
    """JSON text of the arguments by name."""
    form: CallForm = attrs.field(repr=False)

    def decoded(self, text: str) -> Out:
        """Return the answer from its JSON text. Raises InvalidValueError."""
        return cast("Out", decode(text, self.form.output))


@attrs.frozen(kw_only=True, eq=False)
class UpdateCall(Generic[Out]):
    """An update with its arguments, for `run.update`."""

    update: str
    """Name of the update, such as `Board.move`."""
    arguments: str
    """JSON text of the arguments by name, including defaults."""
    form: CallForm = attrs.field(repr=False)
    has_validator: bool | None = None
    """Whether the update has a validator; None if unknown."""
    given: str | None = attrs.field(default=None, repr=False)
    """JSON text of the arguments without defaults; None if it equals `arguments`."""
    checked: bool = attrs.field(default=True, repr=False)
    """Whether the arguments have been checked against the types of the parameters."""

    def decoded(self, text: str) -> Out:
        """Return the reply from its JSON text. Raises InvalidValueError."""
        return cast("Out", decode(text, self.form.output))


class _MarkedMethod(Generic[S, P, Out]):
    def __init__(self, method: Callable[Concatenate[S, P], Out], form: CallForm) -> None:
        self._method = method
        self._form = form
        self.named = method.__qualname__

    def __set_name__(self, owner: type[object], name: str) -> None:
        self.named = f"{owner.__name__}.{name}"

    @property
    def method(self) -> Callable[..., object]:
        """The decorated method."""
        return self._method

    @property
    def form(self) -> CallForm:
        """How its calls are stored: the types of its arguments and of its result."""
        return self._form


class Query(_MarkedMethod[S, P, Out], Generic[S, P, Out]):
    """A method marked with `@query`. `Board.status()` makes a `QueryCall`; on an object it is a plain method."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> QueryCall[Out]:
        """Return a call, for `run.query(Board.status())`.

        Raises TypeError, InvalidValueError or UnstorableValueError.
        """
        return QueryCall(query=self.named, arguments=self._form.encode(args, kwargs), form=self._form)

    @overload
    def __get__(self, instance: None, owner: type[S], /) -> "Query[S, P, Out]": ...
    @overload
    def __get__(self, instance: S, owner: type[S], /) -> Callable[P, Out]: ...
    def __get__(self, instance: S | None, owner: type[S], /) -> object:
        return self if instance is None else MethodType(self._method, instance)

    def answer(self, state: S, arguments: str) -> str:
        """Return the answer of an object as JSON text. Raises InvalidValueError, or the error of the method."""
        bound = self._form.decode(arguments)
        return encode(cast("Any", self._method)(state, *bound.args, **bound.kwargs), self._form.output)


class Update(_MarkedMethod[S, P, Result], Generic[S, P, Result, Out]):
    """A method marked with `@update`. `Board.move("e4")` makes an `UpdateCall`; on an object it is a plain method."""

    _check: Callable[..., object] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> UpdateCall[Out]:
        """Return a call, for `run.update(Board.move("e4"))`.

        Raises TypeError, InvalidValueError or UnstorableValueError.
        """
        form = self._form
        text, given = form.encode(args, kwargs), form.encode_given(args, kwargs)
        return UpdateCall(
            update=self.named,
            arguments=text,
            form=form,
            has_validator=self._check is not None,
            given=None if given == text else given,
        )

    @overload
    def __get__(self, instance: None, owner: type[S], /) -> "Update[S, P, Result, Out]": ...
    @overload
    def __get__(self, instance: S, owner: type[S], /) -> Callable[P, Result]: ...
    def __get__(self, instance: S | None, owner: type[S], /) -> object:
        return self if instance is None else MethodType(self._method, instance)

    def validator(self, check: Callable[Concatenate[S, P], None], /) -> Callable[Concatenate[S, P], None]:
        """Register a validator with `@move.validator`: a method that rejects an update by raising an error.

        It takes the same arguments and is called twice: before the update is stored, and before it is carried out. It
        must be sync and change nothing.

        Raises:
            DefinitionError: It is async, its parameters differ, or the update has a validator already.
        """
        if self._check is not None:
            raise DefinitionError(f"update {self.named!r} has a validator already")
        _check_method(check, "validator")
        if _is_async(check):
            raise DefinitionError(
                f"the validator of {self.named!r} is async; write `def`: a validator only reads"
            )
        taken = tuple(inspect.signature(check).parameters)[1:]
        if taken != tuple(self._form.signature.parameters):
            wanted = ", ".join(self._form.signature.parameters) or "nothing"
            raise DefinitionError(f"the validator of {self.named!r} must take the same parameters: {wanted}")
        self._check = check
        return check

    def check(self, state: S, arguments: str) -> None:
        """Check the arguments and call the validator. RejectedError if either fails."""
        try:
            bound = self._form.decode(arguments)
        except Exception as error:
            raise UnreadableError(error) from error
        try:
            if self._check is not None:
                self._refuse_awaitable(self._check(state, *bound.args, **bound.kwargs))
        except Exception as error:
            raise RejectedError(error) from error

    def _refuse_awaitable(self, result: object) -> None:
        if inspect.isawaitable(result):
            close = getattr(result, "close", None)
            if close is not None:
                close()
            raise TypeError(
                f"the validator of {self.named!r} returned an awaitable; it must be a plain function"
            )

    def recoded(self, arguments: str) -> str:
        """Return the JSON text of arguments with missing defaults added. Raises InvalidValueError."""
        return self._form.reencode(arguments)

    async def carry_out(self, state: S, arguments: str) -> str:
        """Call the update on an object, and return its reply as JSON text.

        Raises RejectedError, or the error of the method.
        """
        self.check(state, arguments)
        bound = self._form.decode(arguments)
        result = cast("Any", self._method)(state, *bound.args, **bound.kwargs)
        return encode(await result if inspect.isawaitable(result) else result, self._form.output)


AnyUpdate: TypeAlias = Update[Any, ..., Any, object]


def query(method: Callable[Concatenate[S, P], R], /) -> Query[S, P, R]:
    """Mark a method as a query: callers outside of the run can call it to read an object.

    It must change nothing and be sync.

    Example:
        class Board:
            @query
            def status(self) -> str: ...

    Raises:
        DefinitionError: It is async, an annotation is missing, or values of a type can't be stored.
    """
    _check_method(method, "query")
    if _is_async(method):
        raise DefinitionError(
            f"query {_called(method)!r} is async, but a query can't wait; write `def`, or make it an update"
        )
    return Query(method, read_call_form(method, f"query {_called(method)!r}", is_method=True))


@overload
def update(method: Callable[Concatenate[S, P], Async[R]], /) -> Update[S, P, Async[R], R]: ...
@overload
def update(method: Callable[Concatenate[S, P], R], /) -> Update[S, P, R, R]: ...
def update(method: Callable[Concatenate[Any, P], object], /) -> object:
    """Mark a sync or async method as an update: callers outside of the run can call it to change an object.

    The caller gets its return value. An async update can call steps, sleep and wait, as the durable function can.

    Example:
        class Board:
            @update
            def move(self, square: str) -> int: ...

    Raises:
        DefinitionError: An annotation is missing, or values of a type can't be stored.
    """
    _check_method(method, "update")
    form = read_call_form(method, f"update {_called(method)!r}", is_method=True)
    return Update[Any, P, Any, object](method, form)


def expose(state: S, /) -> S:
    """Expose an object to queries and updates, in a durable function. Return the object.

    `board = expose(Board())`. From here on callers can query it, also after the run has ended. A later object of the
    same class replaces it. Updates run as tasks of the function, in the order of their arrival, including those that
    arrived before.

    Raises:
        InvalidArgumentError: The object has no method marked with `query` or `update`.
        RuntimeError: It was not called by a durable function.
    """
    loop = loop_for("holdfast.expose()")
    if not any(isinstance(one, Query | Update) for _, one in _marked(type(state))):
        problem = f"expose takes an object with methods marked by @query or @update; {type(state).__name__} has none"
        raise InvalidArgumentError("state", problem)
    loop.updates.expose(state, _handlers(state))
    return state


def query_of(state: object, name: str) -> Query[Any, ..., object] | None:
    """Return the query of an object with this name, such as `Board.status`; None if it does not exist."""
    found = dict(_names(type(state))).get(name)
    return cast("Query[Any, ..., object]", found) if isinstance(found, Query) else None


def update_of(state: object, name: str) -> AnyUpdate | None:
    """Return the update of an object with this name, such as `Board.move`; None if it does not exist."""
    found = dict(_names(type(state))).get(name)
    return cast("AnyUpdate", found) if isinstance(found, Update) else None


def names_of(state: object) -> list[str]:
    """Return the names of an object's queries and updates, such as `Board.status`."""
    return [f"{type(state).__name__}.{name}" for name, _ in _marked(type(state))]


def updates_in(kind: type[object]) -> Iterator[tuple[str, AnyUpdate]]:
    """Yield the updates of a class by all their names, as `update_of` finds them. No code of the class is run."""
    found: dict[str, object] = {}
    for above in reversed(kind.__mro__):
        found.update(vars(above))
    for name, one in found.items():
        if isinstance(one, Update):
            for above in kind.__mro__:
                if any(name in vars(base) for base in above.__mro__):
                    yield f"{above.__name__}.{name}", cast("AnyUpdate", one)


def _handlers(state: object) -> Mapping[str, Handler]:
    return {
        name: partial(cast("AnyUpdate", one).carry_out, state)
        for name, one in _names(type(state))
        if isinstance(one, Update)
    }


def _names(kind: type[object]) -> "Iterator[tuple[str, object]]":
    """Yield the queries and updates of a class by all their names: also by the names of its base classes."""
    for name, one in _marked(kind):
        yield from ((f"{above.__name__}.{name}", one) for above in kind.__mro__ if hasattr(above, name))


def _marked(kind: type[object]) -> Sequence[tuple[str, object]]:
    """Return the queries and updates of a class by name. Cached by class, since many runs use one class."""
    known = _MARKED.get(kind)
    if known is None:
        found: Iterator[tuple[str, object]] = (
            (name, inspect.getattr_static(kind, name, None)) for name in dir(kind)
        )
        known = _MARKED[kind] = [one for one in found if isinstance(one[1], Query | Update)]
    return known


def _is_async(method: Callable[..., object]) -> bool:
    return is_async_body(method) or inspect.isasyncgenfunction(method)


def _check_method(method: object, what: str) -> None:
    if not isinstance(method, FunctionType):
        raise DefinitionError(f"@{what} needs a method, not {method!r}; write `def` in a class")


def _called(method: Callable[..., object]) -> str:
    return str(getattr(method, "__qualname__", method)).rpartition("<locals>.")[2]
