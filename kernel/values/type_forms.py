"""Inspection of types: what an annotation means, how it is written, and which fields a class has.

A *form* is anything that can stand in an annotation: a class, `list[int]`, `int | None`, a NewType, ...
"""

import dataclasses
import sys
import types
import typing
from collections import abc
from typing import Annotated, Any, Final, Literal, NewType, TypeAlias, TypeVar, Union, cast

import attrs
import typing_extensions

NoneType: Final = type(None)
_UNIONS: Final = (Union, types.UnionType)
_QUALIFIERS: Final = (typing.Required, typing.NotRequired, typing_extensions.ReadOnly, typing.Final)

Form: TypeAlias = object

MODEL_MARK: Final = "__pydantic_validator__"
"""Attribute that pydantic 2 sets on its models and dataclasses."""

_MODEL_MODULES: Final = ("pydantic.main", "pydantic.v1.main")


@attrs.frozen
class Field:
    """One stored field of a class."""

    key: str
    """Name in JSON."""
    argument: str
    """Name of the constructor's parameter."""
    form: Form
    """Declared type."""
    required: bool
    set_after_init: bool = False
    """Whether the field is set after construction, because the constructor does not take it."""


def unwrap(form: Form) -> Form:
    """Return a form without Annotated, NewType, type aliases and qualifiers; NoneType for None."""
    while True:
        origin = typing.get_origin(form)
        if form is None:
            return NoneType
        if origin is Annotated or origin in _QUALIFIERS:
            form = arguments(form)[0]
        elif isinstance(form, NewType):
            form = form.__supertype__
        elif hasattr(origin, "__value__"):  # an alias such as `type Pair[T] = ...`, with its argument
            names = cast("tuple[TypeVar, ...]", getattr(origin, "__type_params__", ()))
            value = cast("Form", getattr(origin, "__value__", None))
            form = _substitute(value, dict(zip(names, arguments(form), strict=True)))
        elif type(form).__name__ == "TypeAliasType":
            form = _aliased(form)
        else:
            return form


def _aliased(alias: Form) -> Form:
    """Return the type of an alias, with strings evaluated in its module: it may name itself. Raises NameError."""
    value: object = getattr(alias, "__value__", None)
    module = sys.modules.get(str(getattr(alias, "__module__", "")))
    holder = types.SimpleNamespace(__annotations__={"value": value})
    return typing_extensions.get_type_hints(holder, vars(module) if module else None, include_extras=True)[
        "value"
    ]


def origin_of(form: Form) -> Form:
    """Return `list` for `list[int]` and for `list`. A form without arguments is its own origin."""
    return cast("Form", typing.get_origin(form)) or form


def arguments(form: Form) -> tuple[Form, ...]:
    """Return the type arguments of a form."""
    return cast("tuple[Form, ...]", typing.get_args(form))


def members(form: Form) -> tuple[Form, ...]:
    """Return the members of a union, plain and flattened; for any other form, the form alone."""
    form = unwrap(form)
    if typing.get_origin(form) not in _UNIONS:
        return (form,)
    return tuple(dict.fromkeys(each for member in arguments(form) for each in members(member)))


def is_literal(form: Form) -> bool:
    """Return whether a form is `Literal[...]`."""
    return typing.get_origin(form) is Literal


def is_class_with_fields(form: Form) -> bool:
    """Return whether a form is an attrs class, a dataclass or a pydantic model, with or without type arguments."""
    origin = origin_of(form)
    return is_model(form) or (
        isinstance(origin, type) and (attrs.has(origin) or dataclasses.is_dataclass(origin))
    )


def is_model(form: Form) -> bool:
    """Return whether a form is a pydantic model of any version or a pydantic dataclass. Does not import pydantic."""
    origin = origin_of(form)
    return isinstance(origin, type) and (
        MODEL_MARK in vars(origin)
        or any(each.__name__ == "BaseModel" and each.__module__ in _MODEL_MODULES for each in origin.__mro__)
    )


def model_fields(form: Form) -> dict[str, Any]:
    """Return the FieldInfo of each field of a pydantic model."""
    return cast("dict[str, Any]", getattr(origin_of(form), "__pydantic_fields__", {}))


def is_named_tuple(form: Form) -> bool:
    """Return whether a form is a NamedTuple class."""
    origin = origin_of(form)
    return isinstance(origin, type) and tuple in origin.__mro__ and hasattr(origin, "_fields")


def is_typed_dict(form: Form) -> bool:
    """Return whether a form is a TypedDict class."""
    return typing_extensions.is_typeddict(cast("type", origin_of(form)))


def item_of(form: Form) -> Form:
    """Return the item type of a list, set or sequence; `object` without type arguments."""
    return (arguments(form) or (object,))[0]


def fields_of(form: Form) -> tuple[Field, ...]:
    """Return the stored fields of an attrs class, dataclass, NamedTuple, TypedDict or pydantic model, in order.

    A field that the constructor does not take is stored if instances are compared by it.

    Raises:
        NameError: An annotation uses a name that its module does not have at run time.
    """
    origin = cast("type", origin_of(form))
    if is_model(form):
        return tuple(
            Field(name, name, info.annotation, info.is_required())
            for name, info in model_fields(form).items()
        )
    hints = cast("dict[str, Form]", typing_extensions.get_type_hints(origin, include_extras=True))
    variables = _variables(form)

    def field(key: str, argument: str, *, required: bool, late: bool = False) -> Field:
        return Field(key, argument, _substitute(hints.get(key, object), variables), required, late)

    if is_typed_dict(form):
        required = cast("frozenset[str]", getattr(origin, "__required_keys__", None) or frozenset())
        return tuple(field(key, key, required=key in required) for key in hints)
    if is_named_tuple(form):
        names = cast("tuple[str, ...]", getattr(origin, "_fields", ()))
        return tuple(field(name, name, required=True) for name in names)
    if attrs.has(origin):
        return tuple(
            field(
                each.name,
                each.alias or each.name,
                required=each.init and each.default is attrs.NOTHING,
                late=not each.init,
            )
            for each in attrs.fields(origin)
            if each.init or each.eq
        )
    missing = dataclasses.MISSING
    return tuple(
        field(
            each.name,
            each.name,
            required=each.init and each.default is missing and each.default_factory is missing,
            late=not each.init,
        )
        for each in dataclasses.fields(origin)
        if each.init or each.compare
    )


def tuple_items(form: Form) -> tuple[tuple[Form, ...], bool]:
    """Return the item types of a tuple, and whether it is of any length with items of one type.

    For a NamedTuple these are the types of its fields.
    """
    if is_named_tuple(form):
        return tuple(field.form for field in fields_of(form)), False
    items = arguments(form)
    if items and items[-1] is Ellipsis:
        return items[:1], True
    if not items and typing.get_origin(form) is None:
        return (object,), True
    return items, False


def show(form: Form) -> str:
    """Return a form as it is written in code, without module names."""
    origin, items = typing.get_origin(form), arguments(form)
    if form is None or form is NoneType:
        return "None"
    if form is Ellipsis:
        return "..."
    if origin is Annotated:
        return show(items[0])
    if origin in _UNIONS:
        return " | ".join(show(item) for item in items)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, items))}]"
    name = _name(form if origin is None else cast("Form", origin))
    if origin is tuple and not items:
        return f"{name}[()]"
    return f"{name}[{', '.join(map(_show_item, items))}]" if items else name


def _show_item(item: Form) -> str:
    if isinstance(item, list):  # the parameters of a Callable
        return f"[{', '.join(show(each) for each in cast('list[Form]', item))}]"
    return show(item)


def _name(form: Form) -> str:
    for attribute in ("__qualname__", "__name__", "_name"):
        name = getattr(form, attribute, None)
        if isinstance(name, str):
            return name.rpartition("<locals>.")[2]
    return repr(form)


def _variables(form: Form) -> dict[TypeVar, Form]:
    """Return the types of the type variables of a generic class and of its base classes."""
    origin = cast("type", origin_of(form))
    found: dict[TypeVar, Form] = {}
    names = cast("tuple[TypeVar, ...]", getattr(origin, "__parameters__", ()))
    found.update(zip(names, arguments(form), strict=False))
    for cls in getattr(origin, "__mro__", ()):
        for base in cast("tuple[Form, ...]", cls.__dict__.get("__orig_bases__", ())):
            if typing.get_origin(base) in (None, typing.Generic, typing.Protocol):
                continue
            inherited = cast("tuple[TypeVar, ...]", getattr(typing.get_origin(base), "__parameters__", ()))
            for name, value in zip(inherited, arguments(base), strict=False):
                found.setdefault(name, _substitute(value, found))
    return found


def _substitute(form: Form, variables: abc.Mapping[TypeVar, Form]) -> Form:
    if isinstance(form, TypeVar):
        return variables.get(form, form)
    names = cast("tuple[TypeVar, ...]", getattr(form, "__parameters__", ()))
    if not names or isinstance(form, type):
        return form
    return cast("Any", form)[tuple(variables.get(name, name) for name in names)]
