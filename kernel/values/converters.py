"""Converters: how classes are stored that have no fields that Holdfast could read, declared by the user."""

import inspect
from collections.abc import Callable
from typing import Any, Final

import attrs

from holdfast.kernel.values.classes import rejected, wrong_instance
from holdfast.kernel.values.codec import Codec, Mismatch, described, mismatch, unstorable
from holdfast.kernel.values.type_forms import Form, show
from holdfast.ports.errors import DefinitionError


@attrs.frozen
class Converter:
    """The stored form of a class."""

    cls: type
    stored_as: Form
    """The type of what `dump` returns and `load` takes: a type that can be stored."""
    dump: Callable[[Any], object]
    load: Callable[[Any], object]


_CONVERTERS: Final[dict[Form, Converter]] = {}


def converter_of(form: Form) -> Converter | None:
    """Return the converter of a type; None if it has none."""
    return _CONVERTERS.get(form)


def add_converter(converter: Converter) -> None:
    """Register a converter that was checked."""
    _CONVERTERS[converter.cls] = converter


def checked_converter(cls: Any, stored_as: Form, dump: Any, load: Any) -> Converter:
    """Return a converter whose class and functions are what they must be. DefinitionError if they are not."""
    if not isinstance(cls, type):
        raise DefinitionError(f"register_converter: {cls!r:.80} is not a class")
    if getattr(cls, "__parameters__", ()):
        raise DefinitionError(
            f"register_converter: {show(cls)} is generic; register a class without type parameters, such as a subclass"
        )
    for name, function in (("dump", dump), ("load", load)):
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise DefinitionError(
                f"register_converter: {name}= of {show(cls)} must be a function of one argument, not {function!r:.80}"
            )
    known = _CONVERTERS.get(cls)
    made = Converter(cls, stored_as, dump, load)
    if known is not None and known != made:
        raise DefinitionError(f"register_converter: {show(cls)} has another converter already")
    return made


def converter_codec(converter: Converter, inner: Codec) -> Codec:
    """Return the codec of a class with a converter. Each value is read back before it is stored."""
    cls = converter.cls

    def encode(value: object) -> object:
        if type(value) is not cls:
            raise wrong_instance(value, cls, cls)
        try:
            dumped = converter.dump(value)
        except Exception as error:
            raise unstorable(f"dump= of {show(cls)} failed: {type(error).__name__}: {error}") from error
        try:
            data = inner.encode(dumped)
            back = decode(data)
        except Mismatch as error:
            problem = error.problems[0]
            raise unstorable(f"its stored form{problem.path} is wrong: {problem.reason}") from None
        try:
            is_same = bool(back == value)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise unstorable(f"the __eq__ of {show(cls)} must return a bool; it failed: {what}") from error
        if not is_same:
            raise unstorable(
                f"it would change when it is read back: load= of {show(cls)} returned {described(back)}, which is not"
                " equal to it; store all that its __eq__ compares, and define __eq__"
            )
        return data

    def decode(data: object) -> object:
        plain = inner.decode(data)
        try:
            value = converter.load(plain)
        except Exception as error:
            raise rejected(cls, error) from error
        if type(value) is not cls:
            raise mismatch(f"load= of {show(cls)} returned {described(value)}")
        return value

    return Codec(encode, decode, inner.kinds, (cls,))
