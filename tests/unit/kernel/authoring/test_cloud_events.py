"""CloudEvents over HTTP become messages of a topic, or an error that says what is wrong."""

import base64
import json
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.authoring.topics import Topic
from holdfast.ports.errors import InvalidArgumentError, InvalidValueError


@attrs.frozen
class Payment:
    order: str
    amount: int = 1


payments = Topic("payments", Payment, keys=("order",))
notes = Topic("notes", str)

BINARY = {
    "Content-Type": "application/json; charset=utf-8",
    "CE-SpecVersion": "1.0",
    "ce-id": "7",
    "ce-source": "/bank",
    "ce-type": "paid",
}
EVENT: dict[str, object] = {
    "specversion": "1.0",
    "id": "7",
    "source": "/bank",
    "type": "paid",
    "data": {"order": "A-17"},
}
STRUCTURED = {"content-type": "application/cloudevents+json"}
BODY = b'{"order":"A-17"}'


def body(**changes: object) -> bytes:
    fields = {name: value for name, value in {**EVENT, **changes}.items() if value is not ...}
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        (BINARY, BODY),
        (BINARY, BODY.decode()),
        ({name: value for name, value in BINARY.items() if name != "Content-Type"}, BODY),
        ({**BINARY, "ce-subject": "x", "ce-time": "2026-01-01T00:00:00Z", "ce-source": "%2Fbank"}, BODY),
        (STRUCTURED, body()),
        ({"Content-Type": "application/cloudevents+json; charset=UTF-8"}, body(subject="x")),
        (STRUCTURED, body(data=..., data_base64=base64.b64encode(BODY).decode())),
    ],
)
def test_both_modes_give_the_same_message(headers: Mapping[str, str], content: bytes | str) -> None:
    event = payments.from_cloud_event(headers, content)
    assert (event.id, event.source, event.type) == ("/bank 7", "/bank", "paid")
    assert event.message == payments(Payment("A-17"))
    assert dict(event.message.attributes) == {"order": "A-17"}


def test_text_is_data_too() -> None:
    event = notes.from_cloud_event({**BINARY, "Content-Type": "text/plain"}, "hello")
    assert event.message == notes("hello")


def test_ids_are_those_of_the_source() -> None:
    one = payments.from_cloud_event(BINARY, BODY)
    other = payments.from_cloud_event({**BINARY, "ce-source": "/shop"}, BODY)
    long = payments.from_cloud_event({**BINARY, "ce-id": "x" * 300}, BODY)
    assert one.id != other.id
    assert len(long.id) == 64


@pytest.mark.parametrize(
    ("headers", "content", "why"),
    [
        ({}, BODY, "is no CloudEvent"),
        ({"content-type": "application/json"}, BODY, "is no CloudEvent"),
        ({"content-type": "application/cloudevents-batch+json"}, b"[]", "is a batch"),
        ({"content-type": "application/cloudevents+xml"}, b"<a/>", "'application/cloudevents.xml'"),
        (STRUCTURED, b"{", "is not JSON"),
        (STRUCTURED, b"\xff", "is not UTF-8"),
        (STRUCTURED, b"[" * 100_000, "is not JSON"),
        (STRUCTURED, b"[]", "must be a JSON object"),
        (STRUCTURED, b"{}", "lacks specversion, id, source, type"),
        (STRUCTURED, body(id=...), "lacks id"),
        (STRUCTURED, body(id=""), "lacks id"),
        (STRUCTURED, body(id=7), "it must be a text"),
        (STRUCTURED, body(specversion="0.3"), "it must be '1.0'"),
        (STRUCTURED, body(source="a b"), "it must be a URI"),
        (STRUCTURED, body(data_base64="AA=="), "both data and data_base64"),
        (STRUCTURED, body(data=..., data_base64="?"), "not base64"),
        (STRUCTURED, body(data=..., data_base64="AA==", datacontenttype="image/png"), "'image/png'"),
        ({**BINARY, "Content-Type": "image/png"}, b"x", "'image/png'"),
        ({**BINARY, "ce-id": ""}, BODY, "lacks ce-id"),
        (BINARY, b"{", "is not JSON"),
    ],
)
def test_a_malformed_event_is_refused_with_what_is_wrong(
    headers: Mapping[str, str], content: bytes, why: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        payments.from_cloud_event(headers, content)


@pytest.mark.parametrize("data", [b"null", b"5", b'{"amount":1}', b'{"order":5}', b""])
def test_data_of_another_type_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidValueError, match="the data of the event for topic 'payments'"):
        payments.from_cloud_event(BINARY, data)


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=6), st.binary(max_size=60))
def test_nothing_else_is_raised(headers: dict[str, str], content: bytes) -> None:
    for more in ({}, BINARY, STRUCTURED):
        try:
            payments.from_cloud_event({**headers, **more}, content)
        except (InvalidArgumentError, InvalidValueError):
            continue
