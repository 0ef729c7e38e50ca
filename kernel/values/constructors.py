"""Constructors of classes with fields: whether they accept the stored fields, and whether they may change them."""

import inspect
from collections.abc import Callable, Iterable
from types import MemberDescriptorType
from typing import Any, ClassVar, Final, cast, get_origin

import attrs

from holdfast.kernel.values.type_forms import Field, is_named_tuple

_ANY_NAME: Final = inspect.Parameter.VAR_KEYWORD
_SEVERAL: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_DECORATED: Final = ("__attrs_attrs__", "__dataclass_fields__", "_fields")
_MAKERS: Final = ("__init__", "__new__", "__setattr__", "__getattribute__")
_HOOKS: Final = ("__attrs_pre_init__", "__attrs_post_init__", "__post_init__")


def check_constructor(cls: type, fields: Iterable[Field]) -> None:
    """Raise TypeError if a class can't be called with its fields, or has annotations that its decorator did not see."""
    own = _undecorated(cls)
    if own:
        raise TypeError(
            f"its annotation {own[0]!r} is not a field, because only its parent class is a dataclass, attrs class or"
            " NamedTuple; decorate this class too"
        )
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return  # a class written in C: encoding a value will tell
    taken = {one.name for one in parameters if one.kind in _BY_NAME}
    takes_any = any(one.kind is _ANY_NAME for one in parameters)
    init_fields = {field.argument: field.key for field in fields if not field.set_after_init}
    for argument, key in init_fields.items():
        if argument not in taken and not takes_any:
            raise TypeError(
                f"its __init__ has no parameter for the field {key!r}; add the parameter {argument!r}, or let the"
                " decorator generate __init__"
            )
    for one in parameters:
        if one.default is one.empty and one.kind not in _SEVERAL and one.name not in init_fields:
            raise TypeError(
                f"its __init__ requires {one.name!r}, which is not a field, so a value can't be read back; make it a"
                " field, or give it a default"
            )


def may_change_fields(cls: type, fields: Iterable[Field]) -> bool:
    """Return whether user code makes instances or computes fields, so that each encoded value must be checked."""
    return (
        any(_is_of_user(getattr(cls, name)) for name in _MAKERS)
        or type(cls).__call__ is not type.__call__
        or any(hasattr(cls, hook) for hook in _HOOKS)
        or (attrs.has(cls) and any(one.converter is not None for one in attrs.fields(cls)))
        or (not is_named_tuple(cls) and any(_is_computed(cls, field.key) for field in fields))
    )


def _undecorated(cls: type) -> list[str]:
    """Return the annotations of a class that has no decorator of its own, only a decorated parent class."""
    if not vars(cls).keys().isdisjoint(_DECORATED):
        return []
    try:
        hints = inspect.get_annotations(cls)
    except NameError:
        return []
    return [name for name, hint in hints.items() if not _is_of_class(hint)]


def _is_of_class(hint: object) -> bool:
    text = hint if isinstance(hint, str) else ""
    return hint is ClassVar or get_origin(hint) is ClassVar or "ClassVar" in text


def _is_of_user(maker: Callable[..., Any]) -> bool:
    """Return whether a function was written by a user, not by attrs, dataclasses, NamedTuple or Python."""
    code = getattr(maker, "__code__", None)
    if code is None:
        return False
    file, name = cast("str", code.co_filename), cast("str", code.co_qualname)
    is_of_dataclass = file == "<string>" and name.startswith("__create_fn__.")
    is_of_named_tuple = name == "<lambda>" and code.co_varnames[:1] == ("_cls",)
    is_of_attrs = file.startswith("<attrs generated") or maker.__globals__.get("__name__") == "attr._make"
    return not (is_of_dataclass or is_of_named_tuple or is_of_attrs)


def _is_computed(cls: type, name: str) -> bool:
    """Return whether reading a field of an instance runs code, such as a property."""
    found = cast("object", inspect.getattr_static(cls, name, None))
    return hasattr(type(found), "__set__") and not isinstance(found, MemberDescriptorType)
