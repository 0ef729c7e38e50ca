"""What the world may ask of a run: an object that its function exposes, with methods marked as queries and updates.

Nobody names them by text: `Board.status()` says what to ask, and is given to a handle.
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
    """A query with its arguments: what `run.query` asks. `arguments` are the JSON text of them, by name."""

    query: str
    arguments: str
    form: CallForm = attrs.field(repr=False)

    def decoded(self, text: str) -> Out:
        """Return the answer of this JSON text. InvalidValueError."""
        return cast("Out", decode(text, self.form.output))


@attrs.frozen(kw_only=True, eq=False)
class UpdateCall(Generic[Out]):
    """An update with its arguments: what `run.update` asks for. `arguments` are the JSON text of them, by name.

    `has_validator` is None where that is not known.
    `given` is that text without the defaults of those that were left out, None if there are none. `checked` says that
    they are of the types that it takes.
    """

    update: str
    arguments: str
    form: CallForm = attrs.field(repr=False)
    has_validator: bool | None = None
    given: str | None = attrs.field(default=None, repr=False)
    checked: bool = attrs.field(default=True, repr=False)

    def decoded(self, text: str) -> Out:
        """Return the reply of this JSON text. InvalidValueError."""
        return cast("Out", decode(text, self.form.output))


class Query(Generic[S, P, Out]):
    """A method that only looks. On its class it is what to ask a run; on an object it is just the method."""

    def __init__(self, method: Callable[Concatenate[S, P], Out], form: CallForm) -> None:
        self._method = method
        self._form = form
        self.named = method.__qualname__

    def __set_name__(self, owner: type[object], name: str) -> None:
        self.named = f"{owner.__name__}.{name}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> QueryCall[Out]:
        """Say what to ask: `run.query(Board.status())`. TypeError if it can't be called so, UnstorableValueError."""
        return QueryCall(query=self.named, arguments=self._form.encode(args, kwargs), form=self._form)

    @overload
    def __get__(self, instance: None, owner: type[S], /) -> "Query[S, P, Out]": ...
    @overload
    def __get__(self, instance: S, owner: type[S], /) -> Callable[P, Out]: ...
    def __get__(self, instance: S | None, owner: type[S], /) -> object:
        return self if instance is None else MethodType(self._method, instance)

    @property
    def method(self) -> Callable[..., object]:
        """What was marked."""
        return self._method

    def answer(self, state: S, arguments: str) -> str:
        """Return the JSON text of what an object says. InvalidValueError, or what the method raises."""
        bound = self._form.decode(arguments)
        return encode(cast("Any", self._method)(state, *bound.args, **bound.kwargs), self._form.output)


class Update(Generic[S, P, Result, Out]):
    """A method that changes an object. On its class it is what to ask a run for; on an object it is just the method."""

    def __init__(self, method: Callable[Concatenate[S, P], Result], form: CallForm) -> None:
        self._method = method
        self._form = form
        self.named = method.__qualname__
        self._check: Callable[..., object] | None = None

    def __set_name__(self, owner: type[object], name: str) -> None:
        self.named = f"{owner.__name__}.{name}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> UpdateCall[Out]:
        """Say what to ask for: `run.update(Board.move("e4"))`. Raises as `Query.__call__`."""
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

    @property
    def method(self) -> Callable[..., object]:
        """What was marked."""
        return self._method

    def validator(self, check: Callable[Concatenate[S, P], None], /) -> Callable[Concatenate[S, P], None]:
        """Have a method asked, before the update is stored and again before it is carried out, whether it may be.

        It takes what the update takes, and says no by raising. It only looks, and is not async.

        Raises:
            DefinitionError: It is async, takes something else, or there is one already.
        """
        if self._check is not None:
            raise DefinitionError(f"update {self.named!r} has a validator already")
        _check_method(check, "validator")
        if _is_async(check):
            raise DefinitionError(f"the validator of {self.named!r} is async; write `def`: it only looks")
        taken = tuple(inspect.signature(check).parameters)[1:]
        if taken != tuple(self._form.signature.parameters):
            wanted = ", ".join(self._form.signature.parameters) or "nothing"
            raise DefinitionError(f"the validator of {self.named!r} takes what that takes: {wanted}")
        self._check = check
        return check

    def check(self, state: S, arguments: str) -> None:
        """Ask the validator. RejectedError if it says no, or the arguments are not of their types."""
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
                f"the validator of {self.named!r} gave something to await; it is to be a plain function"
            )

    def recoded(self, arguments: str) -> str:
        """Return the JSON text of arguments with the defaults of those that it leaves out. InvalidValueError."""
        return self._form.recoded(arguments)

    async def carry_out(self, state: S, arguments: str) -> str:
        """Change an object, and return the JSON text of the reply. RejectedError, or what the method raises."""
        self.check(state, arguments)
        bound = self._form.decode(arguments)
        result = cast("Any", self._method)(state, *bound.args, **bound.kwargs)
        return encode(await result if inspect.isawaitable(result) else result, self._form.output)


def query(method: Callable[Concatenate[S, P], R], /) -> Query[S, P, R]:
    """Mark a method as one that the world may ask: it says what is, and changes nothing.

    Raises:
        DefinitionError: It is async, its annotations do not say what it takes and gives, or no value of such a type
            can be stored.
    """
    _check_method(method, "query")
    if _is_async(method):
        raise DefinitionError(
            f"query {_called(method)!r} is async, and waits for nothing; write `def`, or make it an update"
        )
    return Query(method, read_call_form(method, f"query {_called(method)!r}", is_method=True))


@overload
def update(method: Callable[Concatenate[S, P], Async[R]], /) -> Update[S, P, Async[R], R]: ...
@overload
def update(method: Callable[Concatenate[S, P], R], /) -> Update[S, P, R, R]: ...
def update(method: Callable[Concatenate[Any, P], object], /) -> object:
    """Mark a method as one that the world may have called, sync or async: it changes the object, and gives a reply.

    An async one may do all that the function may: call steps, sleep, wait.

    Raises:
        DefinitionError: Its annotations do not say what it takes and gives, or no value of such a type can be stored.
    """
    _check_method(method, "update")
    form = read_call_form(method, f"update {_called(method)!r}", is_method=True)
    return Update[Any, P, Any, object](method, form)


def expose(state: S, /) -> S:
    """Let the world ask an object of the function's, by its methods that are marked with `query` and `update`.

    From here on others may look at it, also when the run has ended. Of each class there is one: the last counts.
    Updates are carried out as tasks of the function, in the order in which they came; those that came before this too.
    Return the object.

    Raises:
        InvalidArgumentError: It has no such method.
        RuntimeError: It is called outside of a workflow.
    """
    loop = loop_for("holdfast.expose()")
    if not any(isinstance(one, Query | Update) for _, one in _marked(type(state))):
        problem = f"expose takes an object with methods marked by @query or @update; {type(state).__name__} has none"
        raise InvalidArgumentError("state", problem)
    loop.updates.expose(state, _handlers(state))
    return state


def query_of(state: object, name: str) -> Query[Any, ..., object] | None:
    """Return the query of an object that is called so, as `Board.status`; None if it has none."""
    found = dict(_names(type(state))).get(name)
    return cast("Query[Any, ..., object]", found) if isinstance(found, Query) else None


def update_of(state: object, name: str) -> Update[Any, ..., Any, object] | None:
    """Return the update of an object that is called so, as `Board.move_to`; None if it has none."""
    found = dict(_names(type(state))).get(name)
    return cast("Update[Any, ..., Any, object]", found) if isinstance(found, Update) else None


def names_of(state: object) -> list[str]:
    """Return what an object can be asked: by the name of its class."""
    return [f"{type(state).__name__}.{name}" for name, _ in _marked(type(state))]


def _handlers(state: object) -> Mapping[str, Handler]:
    return {
        name: partial(cast("Update[Any, ..., Any, object]", one).carry_out, state)
        for name, one in _names(type(state))
        if isinstance(one, Update)
    }


def _names(kind: type[object]) -> "Iterator[tuple[str, object]]":
    """Yield the marked methods of a class by all names that they go by: those of the classes above it, too."""
    for name, one in _marked(kind):
        yield from ((f"{above.__name__}.{name}", one) for above in kind.__mro__ if hasattr(above, name))


def _marked(kind: type[object]) -> Sequence[tuple[str, object]]:
    """Return the marked methods of a class, by name. Each of its attributes is looked at once: there are many runs."""
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
        raise DefinitionError(f"a {what} is made of a method, not of {method!r}; write `def` in a class")


def _called(method: Callable[..., object]) -> str:
    return str(getattr(method, "__qualname__", method)).rpartition("<locals>.")[2]
