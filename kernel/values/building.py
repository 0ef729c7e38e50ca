"""From a type to its codec. A type that can't be stored is refused here, before any value of it exists."""

import enum
from typing import Final, cast

from holdfast.kernel.values.classes import class_codec, named_tuple_codec, typed_dict_codec
from holdfast.kernel.values.codec import Codec, Kind
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
from holdfast.kernel.values.forms import (
    Form,
    fields_of,
    is_class_with_fields,
    is_literal,
    is_model,
    is_named_tuple,
    is_typed_dict,
    members,
    origin_of,
    plain,
    show,
)
from holdfast.kernel.values.models import model_codec
from holdfast.kernel.values.plain_json import PLAIN_FORMS, PLAIN_JSON
from holdfast.kernel.values.scalars import SCALARS, enum_codec, literal_codec
from holdfast.ports.errors import DefinitionError

_CODECS: Final[dict[Form, Codec]] = {}
"""The codecs that have been built. Only whole ones get in, so threads that build the same one do no harm."""


def codec_for(form: Form) -> Codec:
    """Return the codec of a type.

    Raises:
        DefinitionError: Values of this type can't be stored, or not so that they can be read again.
    """
    try:
        return _CODECS[form]
    except KeyError:
        pass
    except TypeError:
        raise DefinitionError(f"{show(form)} can't be stored: its arguments are not hashable") from None
    builder = _Builder()
    codec = builder.codec_of(form, "")
    _CODECS.update(builder.made)
    _CODECS[form] = codec
    return codec


class _Builder:
    """Builds one codec with those of all its parts."""

    def __init__(self) -> None:
        self.made: dict[Form, Codec] = {}
        self._open: dict[Form, _Later] = {}

    def codec_of(self, form: Form, where: str) -> Codec:
        """Return the codec of a part; `where` names the part in an error."""
        form = plain(form)
        known = _CODECS.get(form) or self.made.get(form)
        if known is not None:
            return known
        if form in self._open:
            return self._open[form].codec(where)
        later = self._open[form] = _Later(form)
        try:
            codec = self._build(form)
        except TypeError as error:
            raise _refused(form, where, str(error)) from None
        except NameError as error:
            reason = f"{error} when the program runs; define or import it, outside `if TYPE_CHECKING:`"
            raise _refused(form, where, reason) from None
        del self._open[form]
        later.found = self.made[form] = codec
        return codec

    def _build(self, form: Form) -> Codec:
        origin = origin_of(form)
        if form in PLAIN_FORMS:
            return PLAIN_JSON
        if form in SCALARS:
            return SCALARS[form]
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


class _Later:
    """Stands in for the codec of a class inside itself, as the children of a tree are."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self.found: Codec | None = None

    def codec(self, where: str) -> Codec:
        kinds = self._kinds()
        if kinds is None:
            raise _refused(self._form, where, "only a class may hold itself; write `object` for any JSON")
        return Codec(self._encode, self._decode, kinds, (cast("type", origin_of(self._form)),))

    def _kinds(self) -> frozenset[Kind] | None:
        if is_named_tuple(self._form):
            return frozenset({"array"})
        if is_class_with_fields(self._form):
            return frozenset({"object"})
        return None

    def _encode(self, value: object) -> object:
        return self._whole().encode(value)

    def _decode(self, data: object) -> object:
        return self._whole().decode(data)

    def _whole(self) -> Codec:
        assert self.found is not None, "a codec is used before it is built"
        return self.found


def _refused(form: Form, where: str, reason: str) -> DefinitionError:
    place = f"{where}: " if where else ""
    return DefinitionError(f"{place}{show(form)} can't be stored: {reason}")


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
        return "write list[...] for many values"
    if name in ("Awaitable", "Coroutine", "Future"):
        return "write `async def` and what it gives when awaited"
    if type(form).__name__ == "TypeVar":
        return "name the type; a type variable does not say how to read the value again"
    return (
        "use attrs classes, dataclasses, pydantic models, TypedDict, NamedTuple, enums, list, tuple, set, dict, str,"
        " int, float, bool, bytes, datetime, date, time, timedelta, Decimal, UUID or Path, or `object` for any JSON"
    )
