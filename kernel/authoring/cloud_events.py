"""CloudEvents 1.0 that come over HTTP, in structured and in binary mode.

Read from https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import unquote

import attrs

from holdfast.kernel.commands.topics import ID_MAX
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.json import canonical, parse

_SPEC_VERSION: Final = "1.0"
_STRUCTURED: Final = "application/cloudevents+json"
_BATCH: Final = "application/cloudevents-batch"
_REQUIRED: Final = ("specversion", "id", "source", "type")
_SHOWN_MAX: Final = 100


@attrs.frozen(kw_only=True)
class CloudEvent:
    """A CloudEvent as it was received."""

    id: str
    """The id of the event, unique for its source."""
    source: str
    type: str
    data: str
    """The data as JSON text; `null` without data."""

    @property
    def message_id(self) -> str:
        """The id of a message with this event: the same whenever its producer sends it again."""
        text = f"{self.source} {self.id}"
        return text if len(text) <= ID_MAX else hashlib.sha256(text.encode()).hexdigest()


def cloud_event_from(headers: Mapping[str, str], body: bytes | str) -> CloudEvent:
    """Return the CloudEvent of an HTTP request. InvalidArgumentError for one that is malformed.

    Args:
        headers: The headers of the request. Their names may be in any case.
        body: The body of the request.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    kind = _media_type(lower.get("content-type"))
    raw = body.encode() if isinstance(body, str) else body
    if kind.startswith(_BATCH):
        raise _wrong("headers", "is a batch; send one event in each request")
    if kind.startswith("application/cloudevents"):
        if kind != _STRUCTURED:
            raise _wrong("headers", f"has the format {kind!r}; the formats are {_STRUCTURED} and binary mode")
        return _structured(raw)
    if not any(name.startswith("ce-") for name in lower):
        raise _wrong(
            "headers",
            f"is no CloudEvent: it has neither the content type {_STRUCTURED} nor headers such as ce-id",
        )
    attributes = {
        name.removeprefix("ce-"): unquote(value) for name, value in lower.items() if name.startswith("ce-")
    }
    return _event(attributes, _data_of_body(raw, kind), "headers", "ce-")


def _structured(raw: bytes) -> CloudEvent:
    event = _parsed(raw, "body")
    if not isinstance(event, dict):
        raise _wrong("body", "must be a JSON object")
    fields = cast("dict[str, object]", event)
    if "data" in fields and "data_base64" in fields:
        raise _wrong("body", "has both data and data_base64")
    if "data_base64" in fields:
        try:
            decoded = base64.b64decode(str(fields["data_base64"]), validate=True)
        except (binascii.Error, ValueError):
            raise _wrong("body", "has data_base64 that is not base64") from None
        data = _data_of_body(decoded, _media_type(fields.get("datacontenttype")))
    else:
        data = canonical(fields.get("data"))
    return _event(fields, data, "body", "")


def _event(attributes: Mapping[str, object], data: str, argument: str, prefix: str) -> CloudEvent:
    missing = [prefix + name for name in _REQUIRED if not attributes.get(name)]
    if missing:
        raise _wrong(argument, f"lacks {', '.join(missing)}")
    texts: dict[str, str] = {}
    for name in _REQUIRED:
        value = attributes[name]
        if not isinstance(value, str):
            raise _wrong(argument, f"has {prefix + name} {value!r:.{_SHOWN_MAX}}; it must be a text")
        texts[name] = value
    if texts["specversion"] != _SPEC_VERSION:
        raise _wrong(
            argument,
            f"has {prefix}specversion {texts['specversion']!r:.{_SHOWN_MAX}}; it must be '{_SPEC_VERSION}'",
        )
    if any(map(str.isspace, texts["source"])):
        raise _wrong(argument, f"has {prefix}source {texts['source']!r:.{_SHOWN_MAX}}; it must be a URI")
    return CloudEvent(id=texts["id"], source=texts["source"], type=texts["type"], data=data)


def _data_of_body(raw: bytes, kind: str) -> str:
    """Return the data of a body as JSON text."""
    if not raw:
        return "null"
    if kind in ("", "application/json", "text/json") or kind.endswith("+json"):
        return canonical(_parsed(raw, "body"))
    if kind.startswith("text/"):
        return canonical(_decoded(raw))
    raise _wrong("body", f"has data of the type {kind!r}; topics take JSON and text")


def _media_type(value: object) -> str:
    return str(value or "").partition(";")[0].strip().lower()


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _wrong("body", "is not UTF-8") from None


def _parsed(raw: bytes, argument: str) -> object:
    try:
        return parse(_decoded(raw))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise _wrong(argument, f"is not JSON: {error}") from None


def _wrong(argument: str, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(argument, f"the event {what}")
