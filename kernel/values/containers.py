"""Codecs for lists, tuples, sets, dicts and unions."""

from collections import Counter, OrderedDict, abc, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

import attrs
from cattrs import Converter
from cattrs.disambiguators import create_default_dis_func

from holdfast.kernel.values.classes import CodecOf
from holdfast.kernel.values.codec import (
    KINDS,
    Codec,
    Convert,
    Kind,
    Mismatch,
    Problem,
    changed_class,
    mismatch,
    object_name,
    quoted,
    segment,
    unstorable,
    wrong_class,
    wrong_json,
    wrong_value,
)
from holdfast.kernel.values.plain_json import PLAIN_FORMS
from holdfast.kernel.values.type_forms import (
    Form,
    arguments,
    fields_of,
    is_class_with_fields,
    is_literal,
    is_model,
    item_of,
    members,
    origin_of,
    show,
    tuple_items,
    unwrap,
)
from holdfast.ports.json import canonical

LISTS: Final = frozenset({list, abc.Sequence, abc.MutableSequence, deque})
SETS: Final = frozenset({set, frozenset, abc.Set, abc.MutableSet})
DICTS: Final = frozenset({dict, abc.Mapping, abc.MutableMapping, OrderedDict, Counter})

_INT: Final[frozenset[Kind]] = frozenset({"integer"})
_STRING: Final[frozenset[Kind]] = frozenset({"string"})

_CONVERTER: Final = Converter()


def list_codec(form: Form, codec_of: CodecOf) -> Codec:
    """Return the codec of a list, a deque or a Sequence. A Sequence is decoded as a list."""
    cls = cast("type", origin_of(form))
    item = codec_of(item_of(form), f"an item of {show(form)}")
    made: type = deque if cls is deque else list

    def encode(value: object) -> object:
        if type(value) is not made:
            raise _other(value, cls, made, form)
        if made is deque and cast("deque[object]", value).maxlen is not None:
            raise unstorable("its maxlen would be lost; use a deque without maxlen, or declare a list")
        return _each(item.encode, cast("Iterable[object]", value))

    def decode(data: object) -> object:
        items = _each_of_array(item.decode, data)
        return deque(items) if made is deque else items

    return Codec(encode, decode, frozenset({"list"}), (cls,))


def set_codec(form: Form, codec_of: CodecOf) -> Codec:
    """Return the codec of a set: a sorted JSON array, so that equal sets are stored alike."""
    cls = cast("type", origin_of(form))
    item = codec_of(item_of(form), f"an item of {show(form)}")
    made: type = frozenset if cls is frozenset else set

    def encode(value: object) -> object:
        if type(value) is not made:
            raise _other(value, cls, made, form)
        return sorted(_each(item.encode, cast("Iterable[object]", value)), key=_sort_key)

    def decode(data: object) -> object:
        items = _each_of_array(item.decode, data)
        try:
            return made(items)
        except TypeError as error:
            raise mismatch(f"expected hashable items for {show(form)}: {error}") from None

    return Codec(encode, decode, frozenset({"list"}), (cls,))


def tuple_codec(form: Form, codec_of: CodecOf) -> Codec:
    """Return the codec of a tuple: a JSON array, of the declared length if the type has one."""
    items, endless = tuple_items(form)
    codecs = tuple(codec_of(item, f"an item of {show(form)}") for item in items)

    def encode(value: object) -> object:
        if type(value) is not tuple:
            raise wrong_class(value, tuple, show(form))
        values = cast("tuple[object, ...]", value)
        if endless:
            return _each(codecs[0].encode, values)
        if len(values) != len(codecs):
            raise mismatch(f"expected {len(codecs)} items, got {len(values)}")
        return _zipped([codec.encode for codec in codecs], values)

    def decode(data: object) -> object:
        if endless:
            return tuple(_each_of_array(codecs[0].decode, data))
        array = _array(data)
        if len(array) != len(codecs):
            raise mismatch(f"expected {len(codecs)} items, got {len(array)}")
        return tuple(_zipped([codec.decode for codec in codecs], array))

    return Codec(encode, decode, frozenset({"list"}), (tuple,))


def dict_codec(form: Form, codec_of: CodecOf) -> Codec:
    """Return the codec of a dict: a JSON object with its keys in order. A Mapping is decoded as a dict.

    TypeError if the keys are not stored as strings or integers.
    """
    cls = cast("type", origin_of(form))
    made: type = cls if cls in (OrderedDict, Counter) else dict
    types = arguments(form) or (str, object)
    key_form, item_form = cast("tuple[Form, Form]", (*types, int) if cls is Counter else types)[:2]
    key = codec_of(key_form, f"a key of {show(form)}")
    item = codec_of(item_form, f"a value of {show(form)}")
    if key.kinds == _INT:
        key = _integer_keys(key)
    elif key.kinds != _STRING:
        raise TypeError("the keys of a stored dict must be strings or integers")

    def encode(value: object) -> object:
        if type(value) is not made:
            raise _other(value, cls, made, form)
        return _pairs(key.encode, item.encode, cast("abc.Mapping[object, object]", value))

    def decode(data: object) -> object:
        if type(data) is not dict:
            raise wrong_json(data, "object")
        pairs = _pairs(key.decode, item.decode, cast("dict[object, object]", data))
        return pairs if made is dict else made(pairs)

    return Codec(encode, decode, frozenset({"object"}), (cls,))


def union_codec(form: Form, codec_of: CodecOf) -> Codec:
    """Return the codec of a union. A value is stored as if its own type alone were declared.

    So the members must differ in their JSON types, or be classes with different fields. TypeError if two can't be told
    apart.
    """
    kept = _without_absorbed(members(form))
    if len(kept) == 1:
        return codec_of(kept[0], show(form))
    codecs = {member: codec_of(member, f"a member of {show(form)}") for member in kept}
    encoders = {cls: codec.encode for codec in codecs.values() for cls in codec.classes}
    classes = [member for member in kept if is_class_with_fields(member)]
    decode_class = _by_fields(classes, codecs) if len(classes) > 1 else None
    decoders: dict[Kind, Convert] = {}
    owners: dict[Kind, Form] = {}
    for member, codec in codecs.items():
        for kind in codec.kinds:
            if kind in owners and not (member in classes and owners[kind] in classes):
                raise TypeError(f"{show(owners[kind])} and {show(member)} are both stored as {kind}")
            owners[kind] = member
            decoders[kind] = decode_class if decode_class and member in classes else codec.decode
    if "number" in decoders and "integer" not in decoders:
        decoders["integer"] = decoders["number"]
        encoders.setdefault(int, encoders[float])

    expected = " or ".join(_json_names(owners, classes))

    def encode(value: object) -> object:
        known = encoders.get(type(value))
        if known is not None:
            return known(value)
        for cls, encode_as in encoders.items():
            if isinstance(value, cls):
                return encode_as(value)
        raise wrong_value(value, show(form))

    def decode(data: object) -> object:
        kind = KINDS.get(type(data))
        if kind not in decoders:
            raise wrong_json(data, expected)
        return decoders[kind](data)

    kinds = frozenset[Kind]().union(*(codec.kinds for codec in codecs.values()))
    return Codec(encode, decode, kinds, tuple(encoders))


def _json_names(owners: abc.Mapping[Kind, Form], classes: list[Form]) -> Iterator[str]:
    """Yield the JSON types of a union's members, for a message."""
    for kind, owner in owners.items():
        if kind == "object" and owner in classes:
            yield object_name(" or ".join(map(show, classes)))
        else:
            yield kind


def _without_absorbed(forms: tuple[Form, ...]) -> tuple[Form, ...]:
    """Return the members without those that another includes: `Literal["auto"]` beside `str`, any beside `object`."""
    for form in forms:
        if form in PLAIN_FORMS:
            return (form,)
    return tuple(
        form
        for form in forms
        if not (is_literal(form) and all(type(value) in forms for value in arguments(form)))
    )


def _by_fields(classes: list[Form], codecs: dict[Form, Codec]) -> Convert:
    known = {_known_to_cattrs(each): each for each in classes}
    try:
        choose = cast(
            "Callable[[object], Form]",
            create_default_dis_func(_CONVERTER, *cast("list[type]", list(known)), overrides={}),
        )
    except TypeError:
        names = " and ".join(show(each) for each in classes)
        raise TypeError(
            f"{names} can't be told apart by their fields; give each a field without default that the others lack,"
            " or a Literal field of one name with different values"
        ) from None

    def decode(data: object) -> object:
        try:
            chosen = known.get(choose(data))
        except (KeyError, ValueError):
            chosen = None
        codec = codecs.get(_by_required_fields(classes, data) if chosen is None else chosen)
        if codec is None:
            raise mismatch(
                f"expected the fields of {' or '.join(show(each) for each in classes)}, got other fields"
            )
        return codec.decode(data)

    return decode


def _by_required_fields(classes: list[Form], data: object) -> Form:
    """Return the only class whose required fields an object has; None if no class or several match.

    cattrs may tell classes apart by a field with a default, which stored data need not have.
    """
    keys = frozenset(cast("dict[str, object]", data)) if isinstance(data, dict) else frozenset[str]()
    fitting = [form for form in classes if {field.key for field in fields_of(form) if field.required} <= keys]
    return fitting[0] if len(fitting) == 1 else None


def _known_to_cattrs(form: Form) -> Form:
    """Return the class itself, or for a pydantic model an attrs class with the same fields."""
    if not is_model(form):
        return form
    fields = {
        field.key: attrs.field(
            type=cast("type", unwrap(field.form)), default=attrs.NOTHING if field.required else None
        )
        for field in fields_of(form)
    }
    return attrs.make_class(show(form), fields, kw_only=True)


def _integer_keys(key: Codec) -> Codec:
    def decode(data: object) -> object:
        try:
            number = int(cast("str", data))
        except ValueError:
            raise mismatch(f"expected an integer as key, got {quoted(data)}") from None
        return key.decode(number)

    return Codec(lambda value: str(key.encode(value)), decode, _STRING, key.classes)


def _other(value: object, cls: type, made: type, form: Form) -> Mismatch:
    """Return the error for a value of another class than a container is read back as."""
    if not isinstance(value, cls) or isinstance(value, str | bytes):
        return wrong_value(value, show(form))
    return changed_class(value, show(form), made.__name__)


def _array(data: object) -> list[object]:
    if type(data) is not list:
        raise wrong_json(data, "list")
    return cast("list[object]", data)


def _each_of_array(convert: Convert, data: object) -> list[object]:
    return _each(convert, _array(data))


def _each(convert: Convert, items: Iterable[object]) -> list[object]:
    """Convert all items. Raises Mismatch with all problems, which a second pass collects."""
    items = items if isinstance(items, list | tuple) else list(items)
    try:
        return [convert(item) for item in items]
    except Mismatch:
        raise _problems((segment(index), convert, item) for index, item in enumerate(items)) from None


def _zipped(converts: list[Convert], items: Iterable[object]) -> list[object]:
    pairs = list(zip(converts, items, strict=True))
    try:
        return [convert(item) for convert, item in pairs]
    except Mismatch:
        raise _problems((segment(i), convert, item) for i, (convert, item) in enumerate(pairs)) from None


def _pairs(key: Convert, value: Convert, items: abc.Mapping[object, object]) -> dict[object, object]:
    try:
        return {key(k): value(v) for k, v in items.items()}
    except Mismatch:
        keys = ((f"[{quoted(k)}]", key, k) for k in items)
        values = ((segment(k), value, v) for k, v in items.items())
        raise _problems([*keys, *values]) from None


def _problems(attempts: Iterable[tuple[str, Convert, object]]) -> Mismatch:
    problems: list[Problem] = []
    for where, convert, item in attempts:
        try:
            convert(item)
        except Mismatch as error:
            problems.extend(error.inside(where))
    return Mismatch(*problems)


def _sort_key(data: object) -> str:
    return canonical(data)
