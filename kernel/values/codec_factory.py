"""The codec of each type. A type that can't be stored is refused when a workflow is defined, before any run."""

import enum
from typing import Final, cast

import attrs

from holdfast.kernel.values.classes import class_codec, named_tuple_codec, typed_dict_codec
from holdfast.kernel.values.codec import Codec, Kind, Mismatch
from holdfast.kernel.values.containers import (
    DICTS,
    LISTS,
    SETS,
    dict_codec,
    list_codec,
    set_codec,
    tuple_codec,
    union_codec,
)
from holdfast.kernel.values.converters import Converter, add_converter, converter_codec, converter_of
from holdfast.kernel.values.models import model_codec
from holdfast.kernel.values.plain_json import PLAIN_FORMS, PLAIN_JSON
from holdfast.kernel.values.scalars import SCALARS, enum_codec, literal_codec
from holdfast.kernel.values.type_forms import (
    Form,
    fields_of,
    is_class_with_fields,
    is_literal,
    is_model,
    is_named_tuple,
    is_typed_dict,
    members,
    origin_of,
    show,
    unwrap,
)
from holdfast.ports.errors import DefinitionError

_CODECS: Final[dict[Form, Codec]] = {}
"""Cache of codecs by type. It has complete codecs only, so threads may build the same one at the same time."""


def codec_for(form: Form) -> Codec:
    """Return the codec of a type.

    Raises:
        DefinitionError: Values of this type can't be stored, or could not be read again.
    """
    try:
        return _CODECS[form]
    except KeyError:
        pass
    except TypeError:
        raise DefinitionError(f"{show(form)} can't be stored: its arguments are not hashable") from None
    builder = _Builder()
    builder.codec_of(form, "")
    _CODECS.update(builder.finished())
    _CODECS[form] = _CODECS[unwrap(form)]
    return _CODECS[form]


def register(converter: Converter, example: object) -> None:
    """Register a converter, if it stores the example, and no type that contains its class was used. DefinitionError."""
    if converter_of(converter.cls) is not None:
        return
    if converter.cls in SCALARS or converter.cls in PLAIN_FORMS or converter.cls in _CODECS:
        raise DefinitionError(
            f"register_converter: {show(converter.cls)} is stored without a converter already; register it before the"
            " first step, workflow or channel that has the type"
        )
    codec = converter_codec(converter, codec_for(converter.stored_as))
    if converter.cls in _CODECS:
        raise DefinitionError(
            f"register_converter: the stored form of {show(converter.cls)} contains the class itself"
        )
    try:
        codec.encode(example)
    except Mismatch as error:
        reason = error.problems[0].reason
        raise DefinitionError(
            f"register_converter: the example of {show(converter.cls)} can't be stored: {reason}"
        ) from None
    add_converter(converter)


class _Builder:
    """A builder of the codec of one type and of all types inside it."""

    def __init__(self) -> None:
        self._made: dict[Form, Codec] = {}
        self._open: dict[Form, _RecursiveCodec] = {}
        self._parts: dict[Form, set[Form]] = {}
        """The types directly inside each type that is built here."""
        self._path: list[Form] = []

    def finished(self) -> dict[Form, Codec]:
        """Return the codecs that were built. `checks` is set if a type inside has it."""
        return {
            form: attrs.evolve(codec, needs_round_trip=True)
            if not codec.needs_round_trip and self._checks(form)
            else codec
            for form, codec in self._made.items()
        }

    def _checks(self, form: Form) -> bool:
        seen, waiting = {form}, [form]
        while waiting:
            one = waiting.pop()
            codec = _CODECS.get(one) or self._made.get(one)
            if codec is not None and codec.needs_round_trip:
                return True
            new = self._parts.get(one, set()) - seen
            seen |= new
            waiting += new
        return False

    def codec_of(self, form: Form, where: str) -> Codec:
        """Return the codec of a type inside; `where` names it in an error."""
        try:
            form = unwrap(form)
        except NameError as error:
            raise _refused(form, where, _undefined(error)) from None
        if self._path:
            self._parts.setdefault(self._path[-1], set()).add(form)
        known = _CODECS.get(form) or self._made.get(form)
        if known is not None:
            return known
        if form in self._open:
            return self._open[form].codec()
        later = self._open[form] = _RecursiveCodec(form)
        self._path.append(form)
        try:
            codec = self._build(form)
        except TypeError as error:
            raise _refused(form, where, str(error)) from None
        except NameError as error:
            raise _refused(form, where, _undefined(error)) from None
        del self._open[form]
        self._path.pop()
        later.found = self._made[form] = codec
        return codec

    def _build(self, form: Form) -> Codec:
        origin = origin_of(form)
        if form in PLAIN_FORMS:
            return PLAIN_JSON
        if form in SCALARS:
            return SCALARS[form]
        if (converter := converter_of(form)) is not None:
            return converter_codec(converter, self.codec_of(converter.stored_as, "its stored form"))
        if is_literal(form):
            return literal_codec(form)
        if len(members(form)) > 1:
            return union_codec(form, self.codec_of)
        for family, build in ((LISTS, list_codec), (SETS, set_codec), (DICTS, dict_codec)):
            if origin in family:
                return build(form, self.codec_of)
        if isinstance(origin, type) and issubclass(origin, enum.Enum):
            return enum_codec(origin)
        if is_typed_dict(form):
            return typed_dict_codec(form, fields_of(form), self.codec_of)
        if is_named_tuple(form):
            return named_tuple_codec(form, fields_of(form), self.codec_of)
        if origin is tuple:
            return tuple_codec(form, self.codec_of)
        if is_model(form):
            return model_codec(form)
        if is_class_with_fields(form):
            return class_codec(form, fields_of(form), self.codec_of)
        raise TypeError(_advice(form))


class _RecursiveCodec:
    """A placeholder for the codec of a type that contains itself, such as a tree."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self.found: Codec | None = None

    def codec(self) -> Codec:
        return Codec(self._encode, self._decode, _kinds(self._form), _classes(self._form))

    def _encode(self, value: object) -> object:
        return self._whole().encode(value)

    def _decode(self, data: object) -> object:
        return self._whole().decode(data)

    def _whole(self) -> Codec:
        assert self.found is not None, "a codec is used before it is built"
        return self.found


def _kinds(form: Form) -> frozenset[Kind]:
    """Return the JSON types of a type's values, before its codec is built."""
    form = unwrap(form)
    origin = origin_of(form)
    if form in PLAIN_FORMS:
        return PLAIN_JSON.kinds
    if form in SCALARS:
        return SCALARS[form].kinds
    if (converter := converter_of(form)) is not None:
        return _kinds(converter.stored_as)
    if is_literal(form):
        return literal_codec(form).kinds
    if len(several := members(form)) > 1:
        return frozenset[Kind]().union(*map(_kinds, several))
    if isinstance(origin, type) and issubclass(origin, enum.Enum):
        return enum_codec(origin).kinds
    is_array = origin in LISTS or origin in SETS or origin is tuple or is_named_tuple(form)
    return frozenset({"list"}) if is_array else frozenset({"object"})


def _classes(form: Form) -> tuple[type, ...]:
    """Return the classes of a type that contains itself, before its codec is built."""
    if is_typed_dict(form):
        return (dict,)
    return tuple(cast("type", origin_of(each)) for each in members(form))


def _refused(form: Form, where: str, reason: str) -> DefinitionError:
    place = f"{where}: " if where else ""
    return DefinitionError(f"{place}{show(form)} can't be stored: {reason}")


def _undefined(error: NameError) -> str:
    return f"{error} when the program runs; define or import it, outside `if TYPE_CHECKING:`"


def _advice(form: Form) -> str:
    name = getattr(origin_of(form), "__name__", "")
    if name in (
        "Iterable",
        "Iterator",
        "Generator",
        "AsyncIterator",
        "AsyncGenerator",
        "AsyncIterable",
        "Collection",
    ):
        return "declare list[...] for several values"
    if name in ("defaultdict", "ChainMap", "UserDict", "MappingProxyType", "mappingproxy"):
        return "declare dict[...] and convert the value with dict(value)"
    if name in ("Awaitable", "Coroutine", "Future"):
        return "use `async def`, and declare the type of the awaited value"
    if type(form).__name__ == "TypeVar":
        return "declare a concrete type; the type of a type variable is not known when a value is read"
    return (
        "use attrs classes, dataclasses, pydantic models, TypedDict, NamedTuple, enums, list, tuple, set, dict, str,"
        " int, float, bool, bytes, datetime, date, time, timedelta, Decimal, UUID or Path, or `object` for any JSON"
    )
