"""The page of a rerun: where it can start, the preview of the engine, and the form."""

from collections.abc import Iterator

import pytest

from holdfast import Engine, Worker
from holdfast.errors import RunFailedError
from tests.integration.http.api import NAMESPACE
from tests.integration.http.pages.form_person import Person
from tests.integration.http.pages.form_programs import PROGRAMS, Customer, Parcel, bought, judged, shipped
from tests.integration.http.programs import CANARY, Order

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=PROGRAMS, namespace=NAMESPACE)
    with opened.sync as sync:
        with Worker(opened):
            sync.start(shipped(Parcel(customer=Customer("Ann"), number=3, is_paid=True)), id="good").result()
            for call, name in (
                (shipped(Parcel(customer=Customer("Ann"), number=14, is_paid=True)), "bad"),
                (bought("a"), "broke"),
            ):
                with pytest.raises(RunFailedError):
                    sync.start(call, id=name).result()
        yield opened


async def test_a_failed_pipeline_continues_where_it_failed(engine: Engine, person: Person) -> None:
    seen = await person.opens("runs/bad/rerun")
    assert "Starts at pack" in seen.text
    assert seen.text.index("Runs again pack") < seen.text.index("Kept weigh of generation 1")
    assert "strong" in seen.tags
    sent = await person.sends(seen.form("/rerun"), reason="try again")
    assert sent.status_code == 303, sent.text
    assert sent.headers["location"] == f"/ui/namespaces/{NAMESPACE}/runs/bad"
    info = engine.sync.handle(shipped, "bad").info()
    assert (info.generation, info.rerun_from) == (2, "pack")


@pytest.mark.slow
async def test_each_stage_can_be_chosen(engine: Engine, person: Person) -> None:
    seen = await person.opens("runs/good/rerun")
    address = next(one for one, text in seen.links if text.strip() == "total")
    seen = await person.opens(address)
    assert "Starts at total" in seen.text
    assert "total completed before: its effects are repeated" in seen.text
    assert "weigh of generation 1" in seen.text
    await person.sends(seen.form("/rerun"))
    assert engine.sync.handle(shipped, "good").info().rerun_from == "total"


@pytest.mark.slow
async def test_each_step_of_a_function_can_be_chosen(engine: Engine, person: Person) -> None:
    seen = await person.opens("runs/broke/rerun")
    assert "Starts at pay" in seen.text
    assert "reserve#2 of generation 1" in seen.text
    addresses = [one for one, text in seen.links if text.strip().startswith("reserve")]
    assert len(addresses) == 2
    seen = await person.opens(addresses[0])  # the newest is first
    assert "Starts at reserve#2" in seen.text
    assert "Kept reserve#1 of generation 1" in seen.text
    sent = await person.sends(seen.form("/rerun"))
    assert sent.status_code == 303, sent.text
    assert engine.sync.handle(bought, "broke").info().generation == 2


async def test_a_function_can_start_at_a_row(person: Person) -> None:
    seen = await person.opens("runs/broke/rerun?row=1")
    assert "First row that is not kept 1" in seen.text
    assert "Nothing is kept." in seen.text


async def test_a_refused_rerun_shows_why(person: Person) -> None:
    seen = await person.opens("runs/good/rerun?stage=nowhere")
    assert "This rerun is refused" in seen.text
    assert "there is no stage 'nowhere'" in seen.text
    assert not seen.forms
    assert "total" in seen.text
    seen = await person.opens("runs/good/rerun?row=3")
    assert "it is a pipeline; name the stage" in seen.text


async def test_a_form_of_an_older_generation_is_refused(engine: Engine, person: Person) -> None:
    form = (await person.opens("runs/good/rerun?stage=total")).form("/rerun")
    other = (await person.opens("runs/good/rerun?stage=total")).form("/rerun")
    assert (await person.sends(form)).status_code == 303
    assert (await person.sends(other)).status_code in {409, 412}
    assert engine.sync.handle(shipped, "good").info().generation == 2


async def test_a_form_that_is_sent_twice_runs_once_again(engine: Engine, person: Person) -> None:
    form = (await person.opens("runs/good/rerun")).form("/rerun")
    assert (await person.sends(form)).status_code == 303
    assert (await person.sends(form)).status_code == 303
    assert engine.sync.handle(shipped, "good").info().generation == 2


async def test_an_active_run_is_terminated_and_the_page_says_so(engine: Engine, person: Person) -> None:
    engine.sync.start(judged(Order(1)), id="active")
    assert "present generation is terminated" in (await person.opens("runs/active/rerun")).text


@pytest.mark.slow
async def test_who_only_reads_sees_the_preview_without_a_form_and_without_values(engine: Engine) -> None:
    seen = await Person(engine, "read").opens("runs/broke/rerun")
    assert "Starts at pay" in seen.text
    assert "needs the scope operate" in seen.text
    assert not seen.forms
    assert CANARY not in seen.source


@pytest.mark.slow
async def test_hostile_text_in_the_address_is_only_text(person: Person) -> None:
    seen = await person.opens('runs/good/rerun?stage="><img src=x onerror=alert(1)>')
    assert "img" not in seen.tags
    assert "onerror=alert(1)" in seen.text


@pytest.mark.slow
async def test_a_run_that_does_not_exist_is_not_found(person: Person) -> None:
    await person.opens("runs/none/rerun", status=404)
