"""The codec of pydantic models and pydantic dataclasses. Pydantic itself writes and reads them.

Inside a model, pydantic's types, serializers and validators apply: a timedelta is written as pydantic writes it. The
rules of all codecs hold too. Reading is strict, as pydantic is with JSON: nothing is coerced. Fields are stored under
their names, never their aliases, so that a changed alias does not make stored values unreadable. A model may lose data
when it is written (masked secrets, excluded fields, subclasses declared as their parent), so each text is read back at
once, and refused if the value does not come back equal.

Pydantic is optional and slow to import. A program with a model has imported it, so it is taken from `sys.modules`.
"""

import dataclasses
import sys
from collections import deque
from collections.abc import Mapping
from datetime import datetime, time
from typing import Any, Final, Protocol, cast

from holdfast.kernel.values.classes import rejected, wrong_instance
from holdfast.kernel.values.codec import (
    KINDS,
    Codec,
    Mismatch,
    Problem,
    class_name,
    segment,
    unstorable,
)
from holdfast.kernel.values.plain_json import MAX_DEPTH, check_data
from holdfast.kernel.values.type_forms import MODEL_MARK, Form, is_model, model_fields, origin_of, show
from holdfast.ports.json import canonical, compact

PYDANTIC_MIN: Final = (2, 11)
"""The first version whose calls can use the names of fields instead of their aliases."""

_MISSING: Final = object()


class _Adapter(Protocol):
    """The methods of pydantic's TypeAdapter that are used here."""

    def rebuild(self, *, raise_errors: bool) -> object: ...
    def dump_python(
        self, instance: object, /, *, mode: str, include: Any, by_alias: bool, round_trip: bool, warnings: str
    ) -> object: ...
    def validate_json(self, data: str, /, *, strict: bool, by_alias: bool, by_name: bool) -> object: ...


def model_codec(form: Form) -> Codec:
    """Return the codec of a model: a JSON object with all fields except private and computed ones.

    Raises:
        TypeError: The model can't be stored.
        NameError: An annotation uses a name that its module does not have at run time.
    """
    cls = cast("type", origin_of(form))
    adapter = _adapter(form)

    def encode(value: object) -> object:
        if type(value) is not cls:
            raise wrong_instance(value, cls, form)
        data = _written(adapter, value)
        if KINDS.get(type(data)) != "object":
            raise unstorable(
                f"{show(form)} is serialized as {class_name(data)}, and only a dict can be read back"
            )
        try:
            data = _with_sorted_sets(value, data)
            back = _read(adapter, data, form)
        except ValueError:  # NaN or an infinity: find its path
            check_data(data)
            raise
        _check_same(value, back)
        return data

    def decode(data: object) -> object:
        return _read(adapter, data, form)

    return Codec(encode, decode, frozenset({"object"}), (cls,))


def _adapter(form: Form) -> _Adapter:
    cls = cast("type", origin_of(form))
    if MODEL_MARK not in vars(cls):
        raise TypeError("pydantic 1 models are not supported; derive it from the BaseModel of pydantic 2")
    pydantic = cast("Any", sys.modules["pydantic"])
    version = cast("str", pydantic.VERSION)
    if tuple(int(part) for part in version.split(".")[:2]) < PYDANTIC_MIN:
        needed = ".".join(map(str, PYDANTIC_MIN))
        raise TypeError(f"it needs pydantic {needed} or newer, got {version}; install holdfast[pydantic]")
    if getattr(cls, "__pydantic_root_model__", False):
        raise TypeError("a RootModel has no fields; declare its root type, or a model with one field")
    if getattr(form, "__parameters__", ()):
        raise TypeError(
            "give its type arguments in brackets; the type of a type variable is not known when a value is read"
        )
    try:
        adapter = cast("_Adapter", pydantic.TypeAdapter(form))
        adapter.rebuild(raise_errors=True)
    except NameError as error:  # without the link that pydantic appends
        raise NameError(str(error).partition("\n")[0]) from None
    except pydantic.PydanticUserError as error:
        raise TypeError(str(error).partition("\n")[0]) from None
    return adapter


def _written(adapter: _Adapter, value: object) -> object:
    try:
        return _dump(adapter, value, None)
    except Exception as error:  # a user's serializer may raise anything
        raise _place(adapter, value, error) from error


def _dump(adapter: _Adapter, value: object, include: object) -> object:
    return adapter.dump_python(
        value, mode="json", include=include, by_alias=False, round_trip=True, warnings="none"
    )


def _place(adapter: _Adapter, value: object, error: Exception) -> Mismatch:
    """Return the error for the innermost part that can't be written, which pydantic does not report."""
    path: list[object] = []
    seen = [value]
    while len(path) < MAX_DEPTH:
        for key, part in _children(seen[-1]).items():
            try:
                _dump(adapter, value, _only([*path, key]))
            except Exception as inner:  # noqa: BLE001  # it is reported below
                error = inner
                path.append(key)
                if any(part is each for each in seen):
                    return _misfit_at(path, "it contains itself")
                seen.append(part)
                break
        else:
            return _misfit_at(path, f"it can't be written as JSON: {type(error).__name__}: {error}")
    return _misfit_at(path, f"lists and objects are nested more than {MAX_DEPTH} levels deep")


def _only(path: list[object]) -> object:
    """Return a value for pydantic's `include` that selects one part."""
    include: object = {path[-1]}
    for key in reversed(path[:-1]):
        include = {key: include}
    return include


def _misfit_at(path: list[object], reason: str) -> Mismatch:
    return Mismatch(Problem("".join(map(segment, path)), reason, fits=True))


def _read(adapter: _Adapter, data: object, form: Form) -> object:
    text = compact(data)
    try:
        return adapter.validate_json(text, strict=True, by_alias=False, by_name=True)
    except Exception as error:  # a user's validator may raise anything
        check_data(data)  # pydantic's parser has its own limits, and reports no path
        if isinstance(error, cast("Any", sys.modules["pydantic"]).ValidationError):
            found = cast("Any", error).errors(include_url=False, include_context=False, include_input=False)
            raise Mismatch(*(_problem(each, data) for each in found)) from None
        raise rejected(form, error) from error


def _problem(error: Mapping[str, Any], data: object) -> Problem:
    """Return a pydantic error as a Problem. Its `loc` also names members of unions, which are not part of a path."""
    where, reason = cast("tuple[object, ...]", error["loc"]), cast("str", error["msg"])
    path, at = "", data
    for number, key in enumerate(where, 1):
        inside = _children(at)
        if key in inside:
            path, at = path + segment(key), inside[key]
        elif number == len(where) and error["type"] == "missing":
            path += segment(key)
        else:
            reason += " (as a key)" if key == "[key]" else f" (as {key})"
    return Problem(path, reason)


def _check_same(given: object, back: object) -> None:
    """Raise Mismatch if a value that was read back differs from the one given. Private attributes are ignored."""
    parts, parts_back = _children(given), _children(back)
    if type(given) is not type(back):
        raise unstorable(f"{class_name(given)} would be read back as {class_name(back)}")
    if parts or parts_back:
        if parts.keys() != parts_back.keys():
            raise unstorable(f"{class_name(given)} would be read back with other fields, keys or items")
        if [(key, type(key)) for key in parts] != [(key, type(key)) for key in parts_back]:
            raise unstorable(
                f"{class_name(given)} would be read back with its keys in another order or of another type"
            )
        for key, part in parts.items():
            try:
                _check_same(part, parts_back[key])
            except Mismatch as error:
                raise Mismatch(*error.inside(segment(key))) from None
        return
    try:
        if given == back and _is_alike(given, back):
            return
    except Exception as error:  # a user's class may raise anything
        raise unstorable(
            f"{class_name(given)} can't be compared with what is read back: {type(error).__name__}: {error}"
        ) from error
    if isinstance(given, datetime | time):
        raise unstorable(
            "pydantic stores only the offset of a time zone; convert the value with `.astimezone(UTC)`, or store the"
            " zone's key in a field"
        )
    raise unstorable(f"{class_name(given)} would not be equal when it is read back")


def _is_alike(given: Any, back: Any) -> bool:
    """Return whether two equal values also agree in what equality ignores, such as the zone of a time."""
    match given, back:
        case (datetime(), datetime()) | (time(), time()):
            zone = given.tzinfo
            return (
                given.replace(tzinfo=None) == back.replace(tzinfo=None)
                and given.fold == back.fold
                and (zone is None or zone.utcoffset(None) is not None)  # a fixed offset
            )
        case deque(), deque():
            return given.maxlen == back.maxlen
        case ((set() | frozenset()), (set() | frozenset())):
            kinds = {one: type(one) for one in cast("set[object]", back)}
            return all(kinds[one] is type(one) for one in cast("set[object]", given))
        case _:
            return True


def _with_sorted_sets(value: object, data: object) -> object:
    """Return written data with the items of sets sorted, so that equal sets are stored alike."""
    parts = _children(value)
    if isinstance(data, list):
        items = cast("list[object]", data)
        if isinstance(value, set | frozenset) and len(members := cast("set[object]", value)) == len(items):
            return sorted(map(_with_sorted_sets, members, items), key=canonical)
        return list(map(_with_sorted_sets, parts.values(), items)) if len(parts) == len(items) else items
    if isinstance(data, dict):
        fields = cast("dict[str, object]", data)
        if isinstance(value, dict):  # keys may be written differently, but in the same order
            parts = dict(zip(fields, parts.values(), strict=False))
        return {key: _with_sorted_sets(parts.get(key), item) for key, item in fields.items()}
    return data


def _children(value: object) -> dict[object, object]:
    """Return the parts of a value by index, key or field name; empty for a value without parts."""
    if isinstance(value, dict):
        return cast("dict[object, object]", value)
    if isinstance(value, list | tuple):
        return dict(enumerate(cast("list[object]", value)))
    cls = type(value)
    names: list[str] = []
    if is_model(cls):
        names = [*model_fields(cls), *(getattr(value, "__pydantic_extra__", None) or ())]
    elif dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    found = {name: getattr(value, name, _MISSING) for name in names}
    return {name: part for name, part in found.items() if part is not _MISSING}
