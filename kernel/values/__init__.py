"""Values as they are stored: compact JSON text, encoded and decoded by their declared type.

A value comes back equal and alike: with the same classes, dicts in their order, times in their zones. Nothing is
coerced, dropped or added: a value that would come back different is refused, with its path. Objects are stored with all
their fields, bytes in base64, times in ISO 8601, timedeltas in microseconds, enums by value. Pickle is never used, so a
stored value can't run code.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast, overload

from typing_extensions import TypeForm

from holdfast.kernel.values.codec import Codec, Convert, Mismatch, Problem
from holdfast.kernel.values.codec_factory import codec_for
from holdfast.kernel.values.plain_json import MAX_DEPTH, check_data, first_difference
from holdfast.kernel.values.type_forms import Form, show, unwrap
from holdfast.ports.errors import HoldfastError, InvalidValueError, UnstorableValueError
from holdfast.ports.json import TEXTS, compact, parse, parse_input

__all__ = [
    "MAX_DEPTH",
    "MAX_VALUE_BYTES",
    "Fields",
    "check",
    "check_type",
    "decode",
    "decode_input",
    "encode",
]

T = TypeVar("T")

MAX_VALUE_BYTES: Final = 16 * 1024 * 1024
"""Default maximum length of the JSON text of one value, in bytes."""


def encode(value: object, form: Form, *, max_bytes: int = MAX_VALUE_BYTES) -> str:
    """Return the compact JSON text of a value with the declared type `form`.

    Raises:
        InvalidValueError: The value does not have that type. The error lists all problems with their paths.
        UnstorableValueError: The value has that type, but JSON can't represent it, its class would not restore it
            unchanged, or its text is longer than `max_bytes`.
        DefinitionError: Values of that type can't be stored.
    """
    codec = codec_for(form)
    data: object = None
    try:
        data = codec.encode(value)
        text = compact(data)
    except Mismatch as error:
        raise _refused(error, form) from None
    except RecursionError:
        raise UnstorableValueError("$", "it contains itself, or is nested too deeply") from None
    except ValueError:  # NaN, an infinity or a huge integer: find its path
        _check(data, form)
        raise
    if (len(text) > MAX_DEPTH or "\\" in text) and _may_be_refused(text):
        _check(data, form)
    if len(text) > max_bytes:
        reason = f"its JSON has {len(text):,} bytes, and the maximum is {max_bytes:,}; store it as a blob"
        raise UnstorableValueError("$", reason)
    if codec.needs_round_trip:
        _check_back(text, codec, form)
    return text


class Fields:
    """An encoder of objects with fixed fields. It does the same as `encode` with a dict, and is several times faster.

    Args:
        form: Type of the object: a TypedDict whose fields are all required.
        forms: Types of the fields by name.
    """

    __slots__ = ("_checks", "_form", "_names", "_parts")

    def __init__(self, form: Form, forms: Mapping[str, Form]) -> None:
        self._form = form
        self._names = tuple(forms)
        self._parts = tuple((f"{compact(name)}:", *_writer(one)) for name, one in forms.items())
        self._checks = codec_for(form).needs_round_trip

    def encode(self, values: Sequence[object]) -> str:
        """Return the compact JSON text of an object with these values, one for each field. Raises as `encode`."""
        if self._checks:
            return encode(self._named(values), self._form)
        text, before = "", "{"
        try:
            for (key, cls, write, convert), value in zip(self._parts, values, strict=True):
                text += before + key + (write(value) if type(value) is cls else compact(convert(value)))
                before = ","
        except (Mismatch, RecursionError, ValueError):
            return encode(self._named(values), self._form)  # for its error message
        text = text + "}" if text else "{}"
        is_plain = len(text) <= MAX_DEPTH and "\\" not in text
        if not is_plain and (_may_be_refused(text) or len(text) > MAX_VALUE_BYTES):
            return encode(self._named(values), self._form)
        return text

    def _named(self, values: Sequence[object]) -> dict[str, object]:
        return dict(zip(self._names, values, strict=True))


def _writer(form: Form) -> tuple[type | None, Callable[[Any], str], Convert]:
    """Return how to write a value of a type.

    Values of the returned class are written as text directly. Others are converted to JSON data first.
    """
    convert = codec_for(form).encode
    cls = unwrap(form)
    known = TEXTS.get(cls) if isinstance(cls, type) else None
    return (None, compact, convert) if known is None else (cast("type", cls), known, convert)


@overload
def decode(text: str, form: TypeForm[T]) -> T: ...
@overload
def decode(text: str, form: Form) -> object: ...
def decode(text: str, form: Form) -> object:
    """Return the value of a JSON text.

    Raises:
        InvalidValueError: The text is not JSON, or does not have the type `form`. The error lists all problems with
            their paths.
        DefinitionError: Values of that type can't be stored.
    """
    codec = codec_for(form)
    try:
        return codec.decode(parse(text))
    except Mismatch as error:
        raise _invalid(error.problems, form) from None
    except RecursionError:
        problems = ("$: it is nested too deeply",)
    except ValueError as error:
        problems = (f"$: invalid JSON: {error}",)
    raise InvalidValueError(show(form), problems)


@overload
def decode_input(text: str, form: TypeForm[T]) -> T: ...
@overload
def decode_input(text: str, form: Form) -> object: ...
def decode_input(text: str, form: Form) -> object:
    """Return the value of a user-supplied JSON text. As `decode`, but no key may occur twice in an object."""
    try:
        parse_input(text)
    except ValueError as error:
        raise InvalidValueError(show(form), (f"$: invalid JSON: {error}",)) from None
    except RecursionError:
        pass  # `decode` refuses it
    return decode(text, form)


def check(value: object, form: Form, *, max_bytes: int = MAX_VALUE_BYTES) -> None:
    """Raise the errors of `encode`, without returning the text."""
    encode(value, form, max_bytes=max_bytes)


def check_type(form: Form) -> None:
    """Raise DefinitionError if values of this type can't be stored."""
    codec_for(form)


def _check_back(text: str, codec: Codec, form: Form) -> None:
    """Raise UnstorableValueError if a decoded value encodes differently, because its constructor has changed it."""
    try:
        data = codec.encode(codec.decode(parse(text)))
    except Mismatch as error:
        first = error.problems[0]
        raise UnstorableValueError("$" + first.path, f"it can't be read back: {first.reason}") from None
    if compact(data) != text:
        path = first_difference(parse(text), data)
        raise UnstorableValueError(
            "$" + path,
            f"it would change when it is read back: the constructor of {show(form)}, a converter or __post_init__ does"
            " not keep the field values that it gets; keep them unchanged, or declare another type",
        )


def _may_be_refused(text: str) -> bool:
    """Return whether a text may be of a value that can't be stored: it has such escapes, or many brackets.

    Python looks for one character fifty times as fast as for two, which matters in a text of 100 KB.
    """
    return _has_many_brackets(text) or ("\\" in text and ("\\u0000" in text or "\\ud" in text))


def _has_many_brackets(text: str) -> bool:
    """Return whether a text has more opening brackets than the greatest depth. To count all would take far longer."""
    left = MAX_DEPTH
    for bracket in "[{":
        at = text.find(bracket)
        while at >= 0:
            left -= 1
            if left < 0:
                return True
            at = text.find(bracket, at + 1)
    return False


def _check(data: object, form: Form) -> None:
    try:
        check_data(data)
    except Mismatch as error:
        raise _refused(error, form) from None


def _refused(error: Mismatch, form: Form) -> HoldfastError:
    """Return the error for a value. Values of the wrong type come before those that JSON can't represent."""
    wrong = [problem for problem in error.problems if not problem.fits]
    if wrong:
        return _invalid(wrong, form)
    first = error.problems[0]
    return UnstorableValueError("$" + first.path, first.reason)


def _invalid(problems: Iterable[Problem], form: Form) -> InvalidValueError:
    texts = tuple(f"${problem.path}: {problem.reason}" for problem in problems)
    return InvalidValueError(show(form), texts)
