"""The page of messages: forms made from the schemas of channels, approvals, and updates."""

import json
from collections.abc import Iterator

import pytest

from holdfast import Engine, Worker
from tests.integration.http.api import NAMESPACE
from tests.integration.http.pages.form_person import Form, Person, Seen
from tests.integration.http.pages.form_programs import PROGRAMS, Customer, Parcel, judged, shipped
from tests.integration.http.programs import CANARY, Order, approved, game

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=(*PROGRAMS, approved, game), namespace=NAMESPACE)
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


async def test_an_update_is_called_by_its_name(engine: Engine, person: Person) -> None:
    with Worker(engine):
        engine.sync.start(game(), id="game")
        seen = await person.opens("runs/game/signal?update=Board.move")
        form = seen.form("/updates/Board.move")
        sent = await person.sends(form, arguments='{"to": "e4"}')
        assert sent.status_code == 303, sent.text
        seen = await person.opens("runs/game/signal")
        assert "Board.move" in seen.text
        assert any("update=Board.move" in one for one in seen.addresses())


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
