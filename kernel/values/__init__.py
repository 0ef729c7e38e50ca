"""Values as they are stored: compact JSON text, written and read by declared type.

What is stored under a type comes back equal and alike: of the same classes, dicts in their order, times in their zones.
Nothing is coerced, dropped or made up, and what would not come back so is refused with its place in the value. Objects
are written with all their fields, bytes in base64, times in ISO 8601, timedeltas in microseconds, enums by value.
Pickle is never used, so a stored value can run no code.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast, overload

from typing_extensions import TypeForm

from holdfast.kernel.values.codec import Codec, Convert, Misfit, Problem
from holdfast.kernel.values.codec_factory import codec_for
from holdfast.kernel.values.plain_json import MAX_DEPTH, check_data, first_difference
from holdfast.kernel.values.type_forms import Form, plain, show
from holdfast.ports.errors import HoldfastError, InvalidValueError, UnstorableValueError
from holdfast.ports.json import TEXTS, compact, parse

__all__ = ["MAX_DEPTH", "MAX_VALUE_BYTES", "Fields", "check", "check_type", "decode", "encode"]

T = TypeVar("T")

MAX_VALUE_BYTES: Final = 16 * 1024 * 1024
"""How long the text of one value may be where nothing else is said."""


def encode(value: object, form: Form, *, max_bytes: int = MAX_VALUE_BYTES) -> str:
    """Return the compact JSON text of a value that was declared as `form`.

    Raises:
        InvalidValueError: The value is not of that type; it lists every problem with its place.
        UnstorableValueError: It is of that type, but JSON can't hold it, its own class would not give it back as it
            is, or its text is longer than `max_bytes`.
        DefinitionError: No value of that type can be stored.
    """
    codec = codec_for(form)
    data: object = None
    try:
        data = codec.encode(value)
        text = compact(data)
    except Misfit as error:
        raise _refused(error, form) from None
    except RecursionError:
        raise UnstorableValueError("$", "it holds itself, or nests far too deeply") from None
    except ValueError:  # NaN, an infinity or an endless integer: find out where
        _check(data, form)
        raise
    if (len(text) > MAX_DEPTH or "\\u" in text) and _may_be_refused(text):
        _check(data, form)
    if len(text) > max_bytes:
        reason = f"its text has {len(text):,} bytes, more than {max_bytes:,}; store it as a blob"
        raise UnstorableValueError("$", reason)
    if codec.checks:
        _check_back(text, codec, form)
    return text


class Fields:
    """Writes objects that have all of some fields, as `encode` would of a dict, and in a fraction of the time.

    Args:
        form: The type of the object: a TypedDict that requires all of its fields.
        forms: The types of its fields, by name.
    """

    __slots__ = ("_checks", "_form", "_names", "_parts")

    def __init__(self, form: Form, forms: Mapping[str, Form]) -> None:
        self._form = form
        self._names = tuple(forms)
        self._parts = tuple((f"{compact(name)}:", *_writer(one)) for name, one in forms.items())
        self._checks = codec_for(form).checks

    def encode(self, values: Sequence[object]) -> str:
        """Return the compact JSON text of an object that has these values, one for each field. As `encode`."""
        if self._checks:
            return encode(self._named(values), self._form)
        text, before = "", "{"
        try:
            for (key, cls, write, convert), value in zip(self._parts, values, strict=True):
                text += before + key + (write(value) if type(value) is cls else compact(convert(value)))
                before = ","
        except (Misfit, RecursionError, ValueError):
            return encode(self._named(values), self._form)  # that says what is wrong, and where
        text = text + "}" if text else "{}"
        is_plain = len(text) <= MAX_DEPTH and "\\u" not in text
        if not is_plain and (_may_be_refused(text) or len(text) > MAX_VALUE_BYTES):
            return encode(self._named(values), self._form)
        return text

    def _named(self, values: Sequence[object]) -> dict[str, object]:
        return dict(zip(self._names, values, strict=True))


def _writer(form: Form) -> tuple[type | None, Callable[[Any], str], Convert]:
    """Return how a value is written: just so if it is of this class, or else as the JSON that it is turned into."""
    convert = codec_for(form).encode
    cls = plain(form)
    known = TEXTS.get(cls) if isinstance(cls, type) else None
    return (None, compact, convert) if known is None else (cast("type", cls), known, convert)


@overload
def decode(text: str, form: TypeForm[T]) -> T: ...
@overload
def decode(text: str, form: Form) -> object: ...
def decode(text: str, form: Form) -> object:
    """Return the value that a text stands for.

    Raises:
        InvalidValueError: The text is not JSON, or not of a `form`; it lists every problem with its place.
        DefinitionError: No value of that type can be stored.
    """
    codec = codec_for(form)
    try:
        return codec.decode(parse(text))
    except Misfit as error:
        raise _invalid(error.problems, form) from None
    except RecursionError:
        problems = ("$: it nests far too deeply",)
    except ValueError as error:
        problems = (f"$: it is not JSON that can be read: {error}",)
    raise InvalidValueError(f"the value for {show(form)}", problems)


def check(value: object, form: Form, *, max_bytes: int = MAX_VALUE_BYTES) -> None:
    """Raise what `encode` would raise, and give nothing."""
    encode(value, form, max_bytes=max_bytes)


def check_type(form: Form) -> None:
    """Raise DefinitionError if values of this type can't be stored."""
    codec_for(form)


def _check_back(text: str, codec: Codec, form: Form) -> None:
    """UnstorableValueError if what comes back of a text is no longer written so: a constructor has changed it."""
    try:
        data = codec.encode(codec.decode(parse(text)))
    except Misfit as error:
        first = error.problems[0]
        raise UnstorableValueError("$" + first.path, f"it can't be read again: {first.reason}") from None
    if compact(data) != text:
        path = first_difference(parse(text), data)
        raise UnstorableValueError(
            "$" + path,
            f"it would come back changed: what makes {show(form)} does not give its fields back as they were; store"
            " what its __init__ (a converter, __post_init__) is given, or declare another type",
        )


def _may_be_refused(text: str) -> bool:
    """Whether JSON may not be able to hold a value of this text: that takes such an escape, or many brackets."""
    is_deep = len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH
    return is_deep or ("\\u" in text and ("\\u0000" in text or "\\ud" in text))


def _check(data: object, form: Form) -> None:
    try:
        check_data(data)
    except Misfit as error:
        raise _refused(error, form) from None


def _refused(error: Misfit, form: Form) -> HoldfastError:
    """Return what a value is refused with: first of all it must be of its type."""
    wrong = [problem for problem in error.problems if not problem.fits]
    if wrong:
        return _invalid(wrong, form)
    first = error.problems[0]
    return UnstorableValueError("$" + first.path, first.reason)


def _invalid(problems: Iterable[Problem], form: Form) -> InvalidValueError:
    texts = tuple(f"${problem.path}: {problem.reason}" for problem in problems)
    return InvalidValueError(f"the value for {show(form)}", texts)
