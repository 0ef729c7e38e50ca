"""The page of messages: forms made from the schemas of channels, approvals, and updates."""

import json
from collections.abc import Iterator, Mapping

import pytest

from holdfast import Engine, Worker, expose, update, workflow
from tests.integration.http.api import NAMESPACE
from tests.integration.http.pages.form_person import Form, Person, Seen
from tests.integration.http.pages.form_programs import (
    PROGRAMS,
    Customer,
    Parcel,
    judged,
    shipped,
    stocked,
    urgent,
)
from tests.integration.http.programs import CANARY, Order, approved

pytestmark = pytest.mark.anyio


@workflow
async def inner() -> None:
    """Expose an object whose class is not found by inspection."""

    class Inner:
        @update
        def move(self, to: str) -> str:
            return to

    expose(Inner())
    await urgent.receive()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=(*PROGRAMS, approved, inner), namespace=NAMESPACE)
    with opened.sync as sync:
        sync.start(judged(Order(1)), id="one")
        yield opened


def form_with(seen: Seen, channel: str, button: str) -> Form:
    """Return the form of a channel with this button."""
    return next(one for one in seen.forms if f"/signals/{channel}" in one.action and one.buttons == [button])


def messages(engine: Engine) -> list[tuple[object, object]]:
    """Return the messages that the run has received, with their channels."""
    found = engine.sync.handle(judged, "one").history()
    return [
        (one.data["channel"], one.payload.value)
        for one in found
        if one.type == "signal.received" and one.payload is not None
    ]


def updates(engine: Engine) -> list[tuple[Mapping[str, object], object]]:
    """Return the updates that the run of the shelf has received, with their arguments."""
    found = engine.sync.handle(stocked, "shelf").history()
    return [
        (one.data, one.payload.value)
        for one in found
        if one.type == "update.received" and one.payload is not None
    ]


async def test_each_channel_of_the_workflow_has_a_form(person: Person) -> None:
    seen = await person.opens("runs/one/signal")
    assert [text for text in ("verdict", "urgent", "remark") if text not in seen.text] == []
    assert form_with(seen, "remark", "Send").required == {"message/text/text"}


@pytest.mark.parametrize(("button", "value"), [("Approve", True), ("Reject", False)])
async def test_an_approval_is_one_button(engine: Engine, person: Person, button: str, value: bool) -> None:
    sent = await person.sends(form_with(await person.opens("runs/one/signal"), "verdict", button))
    assert sent.status_code == 303, sent.text
    assert sent.headers["location"] == f"/ui/namespaces/{NAMESPACE}/runs/one"
    assert messages(engine) == [("verdict", {"approved": value})]


async def test_a_boolean_is_one_button(engine: Engine, person: Person) -> None:
    sent = await person.sends(form_with(await person.opens("runs/one/signal"), "urgent", "Yes"))
    assert sent.status_code == 303, sent.text
    assert messages(engine) == [("urgent", True)]


async def test_a_message_is_sent_by_fields_or_as_json_and_once(engine: Engine, person: Person) -> None:
    seen = await person.opens("runs/one/signal")
    by_fields, as_json = [one for one in seen.forms if "/signals/remark" in one.action]
    assert (await person.sends(by_fields, message__text__text="good")).status_code == 303
    assert (await person.sends(by_fields, message__text__text="good")).status_code == 303
    assert (await person.sends(as_json, message='{"text": "bad", "stars": 2}')).status_code == 303
    assert messages(engine) == [
        ("remark", {"text": "good", "stars": 0}),
        ("remark", {"text": "bad", "stars": 2}),
    ]


async def test_a_message_that_does_not_fit_is_refused(engine: Engine, person: Person) -> None:
    as_json = [one for one in (await person.opens("runs/one/signal")).forms if "remark" in one.action][1]
    assert (await person.sends(as_json, message='{"stars": 2}')).status_code in {400, 422}
    assert messages(engine) == []


async def test_an_update_that_is_not_found_in_the_code_is_sent_by_its_name(
    engine: Engine, person: Person
) -> None:
    with Worker(engine):
        engine.sync.start(inner(), id="inner")
        assert "No update of its workflow is known." in (await person.opens("runs/inner/signal")).text
        seen = await person.opens("runs/inner/signal?update=Inner.move")
        sent = await person.sends(seen.form("/updates/Inner.move"), arguments='{"to": "e4"}')
        assert sent.status_code == 303, sent.text
        seen = await person.opens("runs/inner/signal")
        assert any("update=Inner.move" in one for one in seen.addresses())


async def test_each_update_of_the_workflow_has_a_form_without_a_script(
    engine: Engine, person: Person
) -> None:
    engine.sync.start(stocked(), id="shelf")
    seen = await person.opens("runs/shelf/signal")
    put, as_json = (seen.form("/updates/Shelf.put", number) for number in range(2))

    assert put.required == {"arguments/text/title"}
    assert put.kinds["arguments/number/copies"] == "number"
    assert put.kinds["arguments/json/size"] == "select"
    assert put.kinds["arguments/json/others"] == "textarea"
    assert as_json.kinds["arguments"] == "textarea"
    assert {one for one in seen.form("/updates/Shelf.clear").kinds if "/" in one} == {"arguments/json"}
    assert "script" not in {*put.kinds, *as_json.kinds}
    assert not any("update=" in one for one in seen.addresses())


async def test_an_update_is_sent_by_fields_or_as_json_and_once(engine: Engine, person: Person) -> None:
    engine.sync.start(stocked(), id="shelf")
    seen = await person.opens("runs/shelf/signal")
    put, as_json = (seen.form("/updates/Shelf.put", number) for number in range(2))
    fields = {"arguments__text__title": "Emma", "arguments__number__copies": "2"}
    for _ in range(2):
        assert (await person.sends(put, **fields, arguments__json__size='"large"')).status_code == 303
    assert (await person.sends(as_json, arguments='{"title": "Jude"}')).status_code == 303
    assert (await person.sends(seen.form("/updates/Shelf.clear"))).status_code == 303

    assert [(data["update"], value) for data, value in updates(engine)] == [
        ("Shelf.put", {"title": "Emma", "copies": 2, "size": "large", "others": []}),
        ("Shelf.put", {"title": "Jude", "copies": 1, "size": "small", "others": []}),
        ("Shelf.clear", {}),
    ]


async def test_an_update_that_does_not_fit_is_refused(engine: Engine, person: Person) -> None:
    engine.sync.start(stocked(), id="shelf")
    seen = await person.opens("runs/shelf/signal")
    sent = await person.sends(seen.form("/updates/Shelf.put", 1), arguments='{"copies": "two"}')

    assert sent.status_code == 400
    assert "required field is missing" in Seen(sent).text
    assert updates(engine) == []


async def test_a_server_without_the_code_has_the_same_forms(url: str, engine: Engine, person: Person) -> None:
    bare = Engine.open(url, workflows=[], namespace=NAMESPACE)
    with Worker(engine), bare.sync:
        engine.sync.start(stocked(), id="shelf")
        own = await person.opens("runs/shelf/signal")
        without = Person(bare)
        seen = await without.opens("runs/shelf/signal")
        for operation in ("/updates/Shelf.put", "/updates/Shelf.clear"):
            assert seen.form(operation).kinds == own.form(operation).kinds
        wrong = await without.sends(seen.form("/updates/Shelf.put", 1), arguments='{"title": 1}')
        right = await without.sends(seen.form("/updates/Shelf.put"), arguments__text__title="Emma")

    assert (wrong.status_code, right.status_code) == (400, 303)
    assert "expected string, got integer" in Seen(wrong).text
    assert [value for _, value in updates(engine)] == [{"title": "Emma"}]


async def test_a_channel_that_is_not_declared_takes_json(person: Person) -> None:
    seen = await person.opens("runs/one/signal?channel=other")
    assert seen.form("/signals/other").kinds["message"] == "textarea"


async def test_a_run_that_has_ended_takes_nothing(engine: Engine, person: Person) -> None:
    engine.sync.handle(judged, "one").terminate()
    seen = await person.opens("runs/one/signal")
    assert "The run has ended" in seen.text
    assert not seen.forms


async def test_a_pipeline_takes_nothing(engine: Engine, person: Person) -> None:
    engine.sync.start(shipped(Parcel(customer=Customer("Ann"), number=1, is_paid=True)), id="parcel")
    assert "only durable functions receive messages" in (await person.opens("runs/parcel/signal")).text


async def test_who_only_reads_gets_no_forms_and_no_values(engine: Engine) -> None:
    engine.sync.handle(judged, "one").annotate({"secret": CANARY})
    seen = await Person(engine, "read").opens("runs/one/signal")
    assert not seen.forms
    assert "needs the scope start" in seen.text
    assert CANARY not in seen.source


async def test_hostile_names_are_only_text(person: Person) -> None:
    hostile = json.dumps('"><img src=x onerror=alert(1)>')
    seen = await person.opens(f"runs/one/signal?update={hostile}&channel={hostile}")
    assert "img" not in seen.tags


async def test_a_run_that_does_not_exist_is_not_found(person: Person) -> None:
    await person.opens("runs/none/signal", status=404)
