"""What a function takes by name, read from its annotations: for steps and durable functions, whose calls are stored."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NotRequired, TypedDict, cast

import attrs
from typing_extensions import get_type_hints

from holdfast.kernel.values import Fields, check_type, decode, encode
from holdfast.kernel.values.forms import Form
from holdfast.ports.errors import DefinitionError

_SEVERAL: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@attrs.frozen(kw_only=True, eq=False)
class CallForm:
    """How calls of a function are stored: an object of its arguments by name, as they were given.

    Attributes:
        signature: What the function can be called with.
        hints: The types of its parameters, by name.
        arguments: The type of that object: a TypedDict, in which what has a default may be left out.
        output: What the function gives; of an async one, when awaited.
    """

    signature: inspect.Signature
    hints: Mapping[str, Form]
    arguments: Form
    output: Form
    _by_place: tuple[str, ...] | None = attrs.field(init=False, repr=False)
    """The parameters, if all are required and may be given by place: such calls are bound without more ado."""
    _plain: Fields | None = attrs.field(init=False, repr=False)
    """Writes the arguments of such calls, if all are given by place."""

    def __attrs_post_init__(self) -> None:
        parameters = self.signature.parameters.values()
        are_plain = all(
            one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty for one in parameters
        )
        names = tuple(self.signature.parameters) if are_plain else None
        plain = None if names is None else Fields(self.arguments, {name: self.hints[name] for name in names})
        object.__setattr__(self, "_by_place", names)
        object.__setattr__(self, "_plain", plain)

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a call by name. TypeError if the function can't be called so."""
        if not kwargs and self._by_place is not None and len(args) == len(self._by_place):
            return dict(zip(self._by_place, args, strict=True))
        given = dict(self.signature.bind(*args, **kwargs).arguments)
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL and name in given:
                given[name] = list(given[name])  # as it is stored: of no certain length
        return given

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return the JSON text of the arguments of a call. TypeError, UnstorableValueError."""
        by_place, plain = self._by_place, self._plain
        if by_place is not None and plain is not None and not kwargs and len(args) == len(by_place):
            return plain.encode(args)
        return encode(self.bind(args, kwargs), self.arguments)

    def given(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments that a text stands for, by place and by name. InvalidValueError."""
        if self._by_place is not None:
            values = cast("dict[str, Any]", decode(text, self.arguments))
            return tuple(values[name] for name in self._by_place), {}
        bound = self.decode(text)
        return bound.args, bound.kwargs

    def decode(self, text: str) -> inspect.BoundArguments:
        """Return the arguments that a text stands for, ready for a call. InvalidValueError."""
        given = cast("dict[str, Any]", decode(text, self.arguments))
        arguments = {name: given[name] for name in self.signature.parameters if name in given}
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL and name in arguments:
                arguments[name] = tuple(arguments[name])
        return inspect.BoundArguments(self.signature, cast("Any", arguments))


def read_call_form(
    function: Callable[..., object],
    what: str,
    *,
    is_method: bool = False,
    given: Callable[[str, Form], None] | None = None,
) -> CallForm:
    """Read what a function takes and gives; a method, besides the object that it is of.

    With `given`, the first parameter is none of the call's; that is told of it.

    Raises:
        DefinitionError: An annotation is missing or can't be resolved, or a value of its type can't be stored.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"{what} is a generator; give all its values at once, in a list")
    signature = inspect.signature(function)
    if is_method:
        signature = signature.replace(parameters=tuple(signature.parameters.values())[1:])
    try:
        hints = cast("dict[str, Form]", get_type_hints(function, include_extras=True))
    except NameError as error:
        raise DefinitionError(
            f"{what}: {error} when the program runs; define or import it above the function, at the top of the module"
            " and outside `if TYPE_CHECKING:`"
        ) from None
    if given is not None:
        first = next(iter(signature.parameters), "")
        given(first, hints.pop(first, None))
        signature = signature.replace(parameters=tuple(signature.parameters.values())[1:])
    names = (*signature.parameters, "return")
    hints = {name: hint for name, hint in hints.items() if name in names}
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if name in ("self", "cls") and name not in hints:
            raise DefinitionError(f"{what} is a method; make it a function")
        if name not in hints:
            raise DefinitionError(
                f"{what}: parameter {name!r} has no annotation; say what it takes, as in `{name}: str`"
            )
        form = hints[name]
        _check_storable(form, f"{what} takes what it can't be given, as {name!r}")
        if parameter.kind in _SEVERAL:
            form = list[form] if parameter.kind is parameter.VAR_POSITIONAL else dict[str, form]  # type: ignore[valid-type]
        may_be_left_out = parameter.kind in _SEVERAL or parameter.default is not parameter.empty
        fields[name] = NotRequired[form] if may_be_left_out else form
    if "return" not in hints:
        raise DefinitionError(f"{what} does not say what it gives; write `-> str`, or `-> None` for nothing")
    _check_storable(hints["return"], f"{what} gives what can't be kept")
    arguments = cast("Any", TypedDict)(function.__name__, fields)
    output = hints.pop("return")
    return CallForm(signature=signature, hints=hints, arguments=arguments, output=output)


def _check_storable(form: Form, where: str) -> None:
    try:
        check_type(form)
    except DefinitionError as error:
        raise DefinitionError(f"{where}: {error}") from None
