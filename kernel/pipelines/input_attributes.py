"""Attributes that a workflow takes from the input of its runs, so that limits and searches can go by an argument.

The process that starts a run takes them, because only it always has the input: the kernel does not open payloads
(docs/decisions/0098).
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.json import canonical, parse
from holdfast.ports.structs import frozen
from holdfast.ports.validation import is_unicode

TEXT_MAX: Final = 1_000
"""Maximum length of an attribute from the input: it is stored in an index, and shown in lists."""
ATTRIBUTES_MAX: Final = 20
"""How many attributes a workflow may take from its input. A run may have those of its parent as well."""


@frozen
class InputAttribute:
    """An attribute whose text is a value in the input."""

    name: str
    """The name of the attribute."""
    path: str
    """Where the value is in the input's JSON object: names of fields, with dots between them."""


@frozen
class AttributeSource:
    """How the texts from a JSON value are named in messages of errors."""

    option: str
    """The option that names them."""
    noun: str
    """What each of them is."""
    value: str
    """What the JSON value is."""


_OF_INPUT: Final = AttributeSource("attributes_from", "attribute", "input")


def attributes_in(
    text: str, wanted: Sequence[InputAttribute], where: str, source: AttributeSource = _OF_INPUT
) -> dict[str, str]:
    """Return the attributes that an input has. A field that is missing or null is no attribute.

    Args:
        text: The input as JSON text.
        wanted: The attributes.
        where: What is started, for error messages.
        source: What the texts and the input are called there.

    Raises:
        InvalidArgumentError: A value is a list, an object or too long, or the input has no fields.
    """
    if not wanted:
        return {}
    data = parse(text)
    found = ((one.name, _value_at(data, one, where, source)) for one in wanted)
    return {name: value for name, value in found if value is not None}


def joined_attributes(
    inherited: str | None, taken: Mapping[str, str], given: Mapping[str, str] | None
) -> str | None:
    """Return the attributes of a new run as JSON text; None if it has none of its own.

    Args:
        inherited: JSON text of those of its parent, which it gets if the start gives none.
        taken: Those from its input.
        given: Those of its start, which come first.
    """
    if not taken:
        return None if given is None else canonical(given)
    parents = cast("dict[str, object]", parse(inherited)) if inherited and given is None else {}
    return canonical({**parents, **taken, **(given or {})})


def _value_at(data: object, wanted: InputAttribute, where: str, source: AttributeSource) -> str | None:
    value = data
    for name in wanted.path.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _refused(wanted, f"needs an object with the field {name!r}", value, where, source)
        value = cast("dict[str, object]", value).get(name)
    if isinstance(value, str) and len(value) > TEXT_MAX:
        raise InvalidArgumentError(
            source.option,
            f"{where}: the {source.noun} {wanted.name!r} comes from {wanted.path!r} of the {source.value}, which has"
            f" {len(value):,} characters; at most {TEXT_MAX:,} are possible",
        )
    if isinstance(value, str) and not is_unicode(value):
        raise InvalidArgumentError(
            source.option,
            f"{where}: the {source.noun} {wanted.name!r} comes from {wanted.path!r} of the {source.value}, which has"
            " half of a surrogate pair; use another text",
        )
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise _refused(wanted, "must be a text, a number or a boolean", cast("object", value), where, source)
    return canonical(value)


def _refused(
    wanted: InputAttribute, words: str, value: object, where: str, source: AttributeSource
) -> InvalidArgumentError:
    what = next((words for kind, words in _WORDS.items() if isinstance(value, kind)), "a number")
    return InvalidArgumentError(
        source.option,
        f"{where}: the {source.noun} {wanted.name!r} comes from {wanted.path!r} of the {source.value}, which {words};"
        f" it is {what}",
    )


_WORDS: Final[Mapping[type, str]] = {list: "a list", dict: "an object", str: "a text", bool: "a boolean"}
