"""Parameters and return types of steps, durable functions, queries and updates, whose calls are stored as JSON."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NotRequired, TypedDict, cast

import attrs

from holdfast.kernel.authoring.body_types import check_storable, is_generator
from holdfast.kernel.authoring.type_hints import hints_of, signature_of
from holdfast.kernel.values import Fields, decode, decode_input, encode
from holdfast.kernel.values.type_forms import Form, show
from holdfast.ports.errors import DefinitionError, InvalidValueError, UnstorableValueError
from holdfast.ports.validation import shown

_SEVERAL: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@attrs.frozen(kw_only=True, eq=False)
class CallForm:
    """How calls of a function are stored: as a JSON object of the arguments by name, including defaults.

    Defaults are stored so that a call keeps its arguments when code with other defaults is deployed.
    """

    what: str
    """What is called, for error messages: `workflow 'fulfil'`."""
    signature: inspect.Signature
    """Parameters of the function."""
    hints: Mapping[str, Form]
    """Types of the parameters by name."""
    arguments: Form
    """Type of the JSON object: a TypedDict.

    Parameters with a default are not required, because calls that were stored before they existed lack them.
    """
    output: Form
    """Type of the result; of an async function, when awaited."""
    _positional_names: tuple[str, ...] | None = attrs.field(init=False, repr=False)
    """Names of the parameters if all are required and positional; otherwise None.

    Such calls are bound without `Signature.bind`, which is slow.
    """
    _defaults: Mapping[str, object] = attrs.field(init=False, repr=False)
    """Default values by name."""
    _plain: Fields | None = attrs.field(init=False, repr=False)
    """Encoder of positional calls, if `_by_place` is set."""

    def __attrs_post_init__(self) -> None:
        parameters = self.signature.parameters.values()
        are_plain = all(
            one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty for one in parameters
        )
        names = tuple(self.signature.parameters) if are_plain else None
        plain = None if names is None else Fields(self.arguments, {name: self.hints[name] for name in names})
        object.__setattr__(self, "_positional_names", names)
        defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
        object.__setattr__(self, "_defaults", defaults)
        object.__setattr__(self, "_plain", plain)

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a call by name. TypeError if the function does not take them."""
        if not kwargs and self._positional_names is not None and len(args) == len(self._positional_names):
            return dict(zip(self._positional_names, args, strict=True))
        try:
            given = dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self.what}: {error}") from None
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL and name in given:
                given[name] = list(given[name])  # its stored type is a list, of any length
        return given

    def with_defaults(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return arguments by name with missing defaults added."""
        return {**self._defaults, **given} if self._defaults else dict(given)

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return the JSON text of a call's arguments, including defaults.

        Raises TypeError, InvalidValueError or UnstorableValueError.
        """
        by_place, plain = self._positional_names, self._plain
        if by_place is not None and plain is not None and not kwargs and len(args) == len(by_place):
            return plain.encode(args)
        return encode(self.with_defaults(self.bind(args, kwargs)), self.arguments)

    def encode_by_name(self, given: Mapping[str, object]) -> str:
        """Return the JSON text of arguments by name, including defaults. InvalidValueError or UnstorableValueError."""
        if self._plain is not None and tuple(given) == self._positional_names:
            return self._plain.encode(tuple(given.values()))
        return encode(self.with_defaults(given), self.arguments)

    def encode_given(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return the JSON text of a call's arguments without defaults. Raises as `encode`."""
        return (
            encode(self.bind(args, kwargs), self.arguments) if self._defaults else self.encode(args, kwargs)
        )

    def reencode(self, text: str) -> str:
        """Return the JSON text of a caller's arguments with missing defaults added. Raises InvalidValueError."""
        given = cast("dict[str, object]", decode_input(text, self.arguments))
        return encode(self.with_defaults(given), self.arguments)

    def arguments_from(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments from JSON text. Raises InvalidValueError."""
        if self._positional_names is not None:
            values = cast("dict[str, Any]", decode(text, self.arguments))
            return tuple(values[name] for name in self._positional_names), {}
        bound = self.decode(text)
        return bound.args, bound.kwargs

    def decode(self, text: str) -> inspect.BoundArguments:
        """Return arguments from JSON text, bound to the signature. Raises InvalidValueError."""
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
    check_first: Callable[[str, Form], None] | None = None,
) -> CallForm:
    """Read the parameter and return types of a function; of a method without `self`.

    If `check_first` is set, the first parameter is not part of calls: `check_first` is called with its name and type.

    Raises:
        DefinitionError: An annotation is missing or can't be evaluated, or values of its type can't be stored.
    """
    if is_generator(function):
        raise DefinitionError(f"{what} is a generator; return all its values in a list")
    signature = signature_of(function, what)
    if is_method:
        signature = signature.replace(parameters=tuple(signature.parameters.values())[1:])
    hints = dict(hints_of(function, what, "function"))
    if check_first is not None:
        first = next(iter(signature.parameters), "")
        check_first(first, hints.pop(first, None))
        signature = signature.replace(parameters=tuple(signature.parameters.values())[1:])
    names = (*signature.parameters, "return")
    hints = {name: hint for name, hint in hints.items() if name in names}
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if name in ("self", "cls") and name not in hints:
            raise DefinitionError(
                f"{what} is a method, and is defined before there is an object; make it a function, or a step of a"
                " method of an object, as `charge = step(payments.charge)`"
            )
        if name not in hints:
            raise DefinitionError(
                f"{what}: parameter {name!r} has no annotation; annotate it, as in `{name}: str`"
            )
        form = hints[name]
        check_storable(form, f"{what} takes a type that can't be stored, as {name!r}")
        if parameter.default is not parameter.empty:
            _check_default(parameter.default, form, f"{what}: parameter {name!r}")
        if parameter.kind in _SEVERAL:
            form = list[form] if parameter.kind is parameter.VAR_POSITIONAL else dict[str, form]  # type: ignore[valid-type]
        may_be_left_out = parameter.kind in _SEVERAL or parameter.default is not parameter.empty
        fields[name] = NotRequired[form] if may_be_left_out else form
    if "return" not in hints:
        raise DefinitionError(f"{what} has no return annotation; write `-> str`, or `-> None` for nothing")
    check_storable(hints["return"], f"{what} returns a type that can't be stored")
    arguments = cast("Any", TypedDict)(function.__name__, fields)
    output = hints.pop("return")
    return CallForm(what=what, signature=signature, hints=hints, arguments=arguments, output=output)


def _check_default(default: object, form: Form, where: str) -> None:
    """Raise DefinitionError if a default is mutable or can't be stored."""
    try:
        hash(default)
    except TypeError:
        raise DefinitionError(
            f"{where} has a default that can be changed, {shown(default)}: calls would share it. Write `= None` (or a"
            " tuple, or a frozen class), and make it in the body"
        ) from None
    try:
        encode(default, form)
    except (InvalidValueError, UnstorableValueError) as error:
        raise DefinitionError(
            f"{where} has a default that can't be stored with the calls that leave it out: {error}. Annotate it as what"
            f" it is, as in `{show(form)} | None = None`, or give it another default"
        ) from None
