"""Pages of workflows: what can be started, the form that starts a run, and duplicates of runs."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import unquote

import pytest

from holdfast import Engine, Pipeline, Worker, stage
from holdfast.client import RunStatus
from tests.integration.http.api import NAMESPACE
from tests.integration.http.pages.form_person import Person
from tests.integration.http.pages.form_programs import PROGRAMS, Customer, Parcel, Size, shipped
from tests.integration.http.programs import CANARY

pytestmark = pytest.mark.anyio


@stage
def total_of(number: int) -> int:
    return number


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=PROGRAMS, namespace=NAMESPACE)
    with opened.sync:
        yield opened


async def test_the_list_shows_each_workflow_with_its_workers_and_links(person: Person) -> None:
    seen = await person.opens("workflows")
    assert "shipped" in seen.text
    assert "pipeline of 5: weigh, pack, total, label, bill" in seen.text
    assert "none is live" in seen.text
    assert seen.query_of("failed")["status"] == ["failed"]
    assert any("/workflows/bought/start" in one for one in seen.addresses())


async def test_the_list_counts_the_live_workers(engine: Engine, person: Person) -> None:
    with Worker(engine):
        run = engine.sync.start(shipped(Parcel(customer=Customer("Ann"), number=2, is_paid=True)))
        run.result()  # by then the worker is registered
        seen = await person.opens("workflows")
    assert "none is live" not in seen.text


async def test_the_list_has_pages(person: Person) -> None:
    first = await person.opens("workflows?limit=1")
    assert first.query_of("Next")["after"][0].startswith("bought@")
    following = await person.opens(next(one for one in first.addresses() if "after=" in one))
    assert "judged" in following.text
    assert "bought" not in following.text


async def test_a_store_without_workflows_says_so(url: str) -> None:
    empty = Engine.open(url, namespace=NAMESPACE)
    with empty.sync:
        seen = await Person(empty).opens("workflows")
    assert "No workflow is known" in seen.text


async def test_a_person_who_only_reads_gets_no_way_to_start(engine: Engine) -> None:
    person = Person(engine, "read")
    assert "Start…" not in (await person.opens("workflows")).text
    seen = await person.opens("workflows/shipped/start")
    assert not seen.forms
    assert "needs the scope start" in seen.text


async def test_a_server_that_only_reads_has_no_way_to_start(engine: Engine) -> None:
    seen = await Person(engine, read_only=True).opens("workflows")
    assert "Start…" not in seen.text


async def test_the_page_of_a_workflow_draws_its_plan_and_has_its_schemas(person: Person) -> None:
    seen = await person.opens("workflows/shipped")
    assert "svg" in seen.tags
    assert {"weigh", "pack", "total"} <= set(seen.text.split())
    assert '"is_paid"' in seen.text
    assert "It has no runs yet." in seen.text


async def test_an_unknown_workflow_is_not_found(person: Person) -> None:
    await person.opens("workflows/unknown", status=404)
    await person.opens("workflows/unknown/start", status=404)
    await person.opens("workflows/shipped?version=nope", status=404)


async def test_the_form_has_a_field_for_each_property_up_to_two_levels(person: Person) -> None:
    form = (await person.opens("workflows/shipped/start")).form("/runs")
    kinds = {
        name: kind for name, kind in form.kinds.items() if name.startswith("input/") and kind != "hidden"
    }
    assert kinds == {
        "input/text/customer/name": "text",
        "input/boolean/customer/is_new": "select",
        "input/json/customer/tags": "textarea",
        "input/number/number": "number",
        "input/boolean/is_paid": "select",
        "input/number/weight": "number",
        "input/instant/due": "datetime-local",
        "input/json/size": "select",
        "input/text/note": "text",
        "input/text/backup/name": "text",
        "input/boolean/backup/is_new": "select",
        "input/json/backup/tags": "textarea",
    }
    assert {name for name in form.required if name.startswith("input/")} == {
        "input/text/customer/name",
        "input/number/number",
        "input/boolean/is_paid",
    }


async def test_a_form_by_fields_starts_the_run_and_leads_to_its_page(engine: Engine, person: Person) -> None:
    form = (await person.opens("workflows/shipped/start")).form("/runs")
    sent = await person.sends(
        form,
        input__text__customer__name="Ann",
        input__number__number="3",
        input__boolean__is_paid="false",
        input__instant__due="2026-03-01T10:00",
        input__json__size='"large"',
        id="parcel 1",
        priority="5",
        deadline_seconds="3600",
        attributes='{"tier": "gold"}',
    )
    assert sent.status_code == 303, sent.text
    assert unquote(sent.headers["location"]).endswith("/runs/parcel 1")
    run = engine.sync.handle(shipped, "parcel 1")
    assert run.input(Parcel) == Parcel(
        customer=Customer("Ann"),
        number=3,
        is_paid=False,
        due=datetime(2026, 3, 1, 10, tzinfo=UTC),
        size=Size.LARGE,
    )
    info = run.info()
    assert info.attributes == {"tier": "gold"}
    assert info.priority == 5
    assert info.deadline is not None


async def test_a_form_that_is_sent_twice_starts_one_run(engine: Engine, person: Person) -> None:
    form = (await person.opens("workflows/bought/start")).form("/runs")
    first = await person.sends(form, input__text__text="a")
    again = await person.sends(form, input__text__text="a")
    assert first.status_code == again.status_code == 303
    assert sum(engine.sync.count().values()) == 1
    other = (await person.opens("workflows/bought/start")).form("/runs")
    assert other.fields["idempotency_key"] != form.fields["idempotency_key"]


async def test_the_whole_value_can_be_sent_as_json(engine: Engine, person: Person) -> None:
    form = (await person.opens("workflows/bought/start")).form("/runs", 1)
    sent = await person.sends(form, input='{"text": "a\\nb"}', id="one")
    assert sent.status_code == 303, sent.text
    assert next(iter(engine.sync.runs())).id == "one"


async def test_what_does_not_fit_is_refused_with_its_path(person: Person) -> None:
    form = (await person.opens("workflows/shipped/start")).form("/runs")
    sent = await person.sends(form, input__text__customer__name="Ann", input__boolean__is_paid="true")
    assert sent.status_code in {400, 422}
    assert "$.number" in sent.text


@pytest.mark.parametrize(
    "parcel",
    [
        Parcel(customer=Customer("Ann", is_new=True, tags=["a"]), number=2, is_paid=True, weight=1.5),
        Parcel(customer=Customer(""), number=2**60, is_paid=False, note=" two\nlines \u202e\x07"),
        Parcel(
            customer=Customer("<script>alert(1)</script>"),
            number=-1,
            is_paid=True,
            due=datetime(2026, 3, 1, 10, 30, 1, 250_001, tzinfo=UTC),
            backup=Customer('"quoted" & \\'),
        ),
        Parcel(
            customer=Customer("~/a"), number=0, is_paid=True, due=datetime(2026, 3, 1, 10, 30, 1, tzinfo=UTC)
        ),
    ],
)
async def test_a_duplicate_has_exactly_the_input_of_the_run(
    engine: Engine, person: Person, parcel: Parcel
) -> None:
    engine.sync.start(shipped(parcel), id="first")
    seen = await person.opens("workflows/shipped/start?copy_of=first")
    assert "With the input of first" in seen.text
    assert "script" not in seen.tags[seen.tags.index("main") :]
    for number, name in enumerate(("by fields", "as json")):
        sent = await person.sends(seen.form("/runs", number), id=name)
        assert sent.status_code == 303, sent.text
        assert engine.sync.handle(shipped, name).input(Parcel) == parcel


async def test_a_duplicate_can_be_edited(engine: Engine, person: Person) -> None:
    parcel = Parcel(customer=Customer("Ann"), number=2, is_paid=True)
    engine.sync.start(
        shipped(parcel), id="first", priority=3, attributes={"tier": "gold"}, headers={"locale": "de"}
    )
    form = (await person.opens("workflows/shipped/start?copy_of=first")).form("/runs")
    await person.sends(form, input__number__number="7", id="second")
    second = engine.sync.handle(shipped, "second")
    assert second.input(Parcel).number == 7
    assert second.info().priority == 3
    assert second.info().attributes == {"tier": "gold"}
    assert second.details().headers == {"locale": "de"}


async def test_who_may_not_see_values_gets_an_empty_form(engine: Engine) -> None:
    engine.sync.start(shipped(Parcel(customer=Customer(CANARY), number=2, is_paid=True)), id="first")
    seen = await Person(engine, "start").opens("workflows/shipped/start?copy_of=first", status=403)
    assert CANARY not in seen.source
    seen = await Person(engine, "read").opens("workflows/shipped/start?copy_of=first")
    assert CANARY not in seen.source
    assert "is not shown to you" in seen.text


async def test_a_run_that_cannot_be_copied_is_named(engine: Engine, person: Person) -> None:
    assert "no input" in (await person.opens("workflows/shipped/start?copy_of=none")).text
    engine.sync.start(shipped(Parcel(customer=Customer("Ann"), number=2, is_paid=True)), id="first")
    seen = await person.opens("workflows/bought/start?copy_of=first")
    assert "of another workflow: shipped" in seen.text


async def test_an_input_that_is_too_large_for_a_form_is_left_out(engine: Engine, person: Person) -> None:
    parcel = Parcel(customer=Customer("Ann"), number=2, is_paid=True, note="x" * 200_000)
    engine.sync.start(shipped(parcel), id="first")
    seen = await person.opens("workflows/shipped/start?copy_of=first")
    assert "too large for a form" in seen.text
    assert len(seen.source) < 60_000


async def test_the_page_of_a_workflow_lists_its_newest_runs(engine: Engine, person: Person) -> None:
    for number in range(25):
        parcel = Parcel(customer=Customer("Ann"), number=number, is_paid=True)
        engine.sync.start(shipped(parcel), id=f"run-{number:02}")
    seen = await person.opens("workflows/shipped")
    assert "run-24" in seen.text
    assert "run-04" not in seen.text
    assert seen.text.count(RunStatus.PENDING.value) == 20 or seen.text.count(RunStatus.RUNNING.value) == 20


async def test_a_server_without_the_code_starts_what_a_worker_has_registered(
    url: str, engine: Engine
) -> None:
    with Worker(engine):
        pass
    bare = Engine.open(url, namespace=NAMESPACE)
    with bare.sync:
        person = Person(bare)
        seen = await person.opens("workflows/shipped")
        assert "Code in this server no" in seen.text
        form = (await person.opens("workflows/shipped/start")).form("/runs", 1)
        value = {"customer": {"name": "Ann"}, "number": 1, "is_paid": True}
        sent = await person.sends(form, input=json.dumps(value), id="one")
        assert sent.status_code == 303, sent.text


async def test_a_version_can_be_chosen(url: str) -> None:
    versions = [Pipeline("versioned", input=int, version=version).pipe(total_of) for version in ("1", "2")]
    opened = Engine.open(url, workflows=versions, namespace=NAMESPACE)
    with opened.sync as engine:
        person = Person(opened)
        newest = await person.opens("workflows/versioned/start")
        assert newest.form("/runs").fields["version"] == "2"
        older = await person.opens("workflows/versioned/start?version=1")
        await person.sends(older.form("/runs"), input__number="5", id="one")
        assert next(iter(engine.runs())).version == "1"
