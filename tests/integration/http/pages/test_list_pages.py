"""The pages of a namespace and of the server: overview, schedules, queues, workers, events, namespaces, keys, audit."""

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from holdfast import Engine, Every, Schedule, Topic, Trigger, Worker, workflow
from holdfast.http import asgi_app
from tests.integration.hosts.polling import until
from tests.integration.http.api import NAMESPACE
from tests.integration.http.pages.form_person import BASE, Person, Seen

pytestmark = pytest.mark.anyio

PAGES = (BASE, "runs", "workflows", "schedules", "topics", "queues", "workers", "events")
SERVER_PAGES = ("/ui/namespaces", "/ui/keys", "/ui/audit")


@workflow
async def report(day: str) -> str:
    return day


@workflow
async def wait_in_group(country: str) -> str:
    parcels = Topic("parcels", dict[str, str], keys=("country",))
    return (await parcels.where(country=country).group("drivers").receive())["country"]


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=[report, wait_in_group], namespace=NAMESPACE)
    with opened.sync:
        yield opened


async def test_the_first_address_leads_to_the_overview_of_a_namespace(engine: Engine) -> None:
    seen = await Person(engine, "read").opens("/", status=303)
    assert seen.response.headers["location"] == f"/ui/namespaces/{NAMESPACE}"
    foreign = await Person(engine, "foreign").opens("/ui", status=303)
    assert foreign.response.headers["location"] == "/ui/namespaces/elsewhere"


@pytest.mark.parametrize("path", [*PAGES, *SERVER_PAGES])
async def test_every_page_of_an_empty_store_has_a_title_and_says_that_nothing_is_there(
    person: Person, path: str
) -> None:
    seen = await person.opens(path)
    assert seen.tags.count("h1") == 1
    assert "<title>" in seen.source


async def test_a_slash_at_the_end_of_an_address_leads_to_the_page(person: Person) -> None:
    seen = await person.opens(f"{BASE}/runs/?status=failed&q=a%2Fb", status=308)
    assert seen.response.headers["location"] == f"{BASE}/runs?status=failed&q=a%2Fb"
    seen = await person.opens("/ui/a%2F%5C%0d%0aX:/", status=308)
    assert seen.response.headers["location"] == "/ui/a%2F%5C%0D%0AX%3A"
    await person.opens("/ui/a", status=404)
    seen = await person.opens("/ui//evil.example/", status=308)
    assert seen.response.headers["location"] == "/ui//evil.example"


@pytest.mark.parametrize("path", PAGES)
async def test_a_namespace_that_a_person_does_not_reach_does_not_exist(engine: Engine, path: str) -> None:
    await Person(engine, "foreign").opens(path, status=404)


@pytest.mark.parametrize("path", ["/ui/keys", "/ui/audit"])
async def test_keys_and_the_audit_log_are_for_administrators(engine: Engine, path: str) -> None:
    seen = await Person(engine, "read").opens(path, status=403)
    assert "admin" in seen.text


async def test_the_overview_names_what_needs_a_person(engine: Engine, person: Person) -> None:
    assert "Nothing is blocked" in (await person.opens(BASE)).text
    engine.sync.start(report("today"))
    seen = await person.opens(BASE)
    assert "No worker on queue 'default' has report@1" in seen.text
    with Worker(engine):
        next(iter(engine.sync.runs()))
        engine.sync.start(report("again")).result()
    assert "completed" in (await person.opens(BASE)).text


async def test_topics_are_listed_with_what_their_messages_start(engine: Engine, person: Person) -> None:
    empty = await person.opens("topics")
    assert "No topic has messages or subscriptions." in empty.text
    assert "No messages start runs." in empty.text
    days = Topic("days", str)
    engine.sync.triggers.put(Trigger("reports", days, report))
    engine.sync.publish(days("today"))
    seen = await person.opens("topics")
    assert "reports" in seen.text
    assert "days" in seen.text


async def test_groups_of_topics_are_listed(engine: Engine, person: Person) -> None:
    assert "Groups" not in (await person.opens("topics")).text
    with Worker(engine):
        run = engine.sync.start(wait_in_group("nz"))
        await until(lambda: any(one.waiting for topic in engine.sync.topics() for one in topic.groups))
        seen = await person.opens("topics")
        for shown in ("Groups", "drivers", "parcels", "country=nz"):
            assert shown in seen.text
        engine.sync.publish(Topic("parcels", dict[str, str], keys=("country",))({"country": "nz"}))
        assert run.result() == "nz"


async def test_a_trigger_is_paused_resumed_and_removed(engine: Engine, person: Person) -> None:
    days = Topic("days", str)
    engine.sync.triggers.put(Trigger("reports", days, report))
    engine.sync.publish(days("today"))
    engine.sync.publish(Topic("days", int)(5))
    for shown in ("reports/days/1", "started", "refused", "message 2 of topic 'days'", "created"):
        assert shown in (await person.opens("triggers/reports")).text
    seen = await person.opens("triggers/reports")
    assert (await person.sends(seen.form("triggers/reports/pause"), reason="closed")).status_code == 303
    engine.sync.publish(days("tomorrow"))
    seen = await person.opens("triggers/reports")
    for shown in ("paused", "closed"):
        assert shown in seen.text
    assert (await person.sends(seen.form("triggers/reports/resume"), skip="true")).status_code == 303
    info = engine.sync.triggers.get("reports")
    assert (info.state, info.started, info.next_number) == ("active", 1, 4)
    seen = await person.opens("triggers/reports")
    assert (await person.sends(seen.form("triggers/reports"))).status_code == 303
    await person.opens("triggers/reports", status=404)


async def test_a_schedule_is_paused_resumed_triggered_and_removed(engine: Engine, person: Person) -> None:
    schedule = Schedule("nightly", report("x"), when=Every(timedelta(hours=1)))
    engine.sync.create_schedule(schedule)
    listed = await person.opens("schedules?name=night")
    assert "nightly" in listed.text
    assert "nightly" not in (await person.opens("schedules?name=other")).text
    for operation, fields, shown in (
        ("pause", {"reason": "holiday"}, "holiday"),
        ("resume", {}, "active"),
        ("trigger", {}, "manual"),
    ):
        seen = await person.opens("schedules/nightly")
        response = await person.sends(seen.form(f"nightly/{operation}"), **fields)
        assert response.status_code == 303, response.text
        assert shown in (await person.opens("schedules/nightly")).text
    seen = await person.opens("schedules/nightly")
    assert (await person.sends(seen.form("schedules/nightly"))).status_code == 303
    assert "There is no such schedule." in (await person.opens("schedules")).text
    await person.opens("schedules/nightly", status=404)


async def test_a_queue_is_paused_and_resumed(engine: Engine, person: Person) -> None:
    engine.sync.start(report("today"))
    seen = await person.opens("queues")
    await person.sends(seen.form("default/pause"), reason="maintenance")
    seen = await person.opens("queues")
    assert "paused" in seen.text
    await person.sends(seen.form("default/resume"))
    assert "paused" not in (await person.opens("queues")).text.replace("Pause", "")


async def test_a_limit_is_set_and_cleared(person: Person) -> None:
    seen = await person.opens("queues?set=run:acme")
    response = await person.sends(seen.form("limits/run%3Aacme"), slots="3", reason="busy")
    assert response.status_code == 303, response.text
    seen = await person.opens("queues")
    assert "0 of 3" in seen.text
    assert "busy" in seen.text
    wrong = await person.sends(seen.form("limits/run%3Aacme"), slots="many")
    assert (wrong.status_code, "slots" in wrong.text) == (400, True)
    clear = [one for one in seen.forms if "_method=DELETE" in one.action]
    assert (await person.sends(clear[0])).status_code == 303
    assert "busy" not in (await person.opens("queues")).text


async def test_workers_are_listed_with_their_code(engine: Engine, person: Person) -> None:
    with Worker(engine):
        engine.sync.start(report("today")).result()
        seen = await person.opens("workers")
    assert "live" in seen.text
    assert "report@1" in seen.text


async def test_a_key_is_shown_once(person: Person) -> None:
    seen = await person.opens("/ui/keys")
    response = await person.sends(
        seen.form("/v1/keys"), label="ci", scopes__list="read, operate", namespaces__list=NAMESPACE
    )
    made = Seen(response)
    assert (response.status_code, "hf_" in made.text) == (200, True)
    listed = await person.opens("/ui/keys")
    assert "operate, read" in listed.text
    assert made.text[made.text.index("hf_") :].split()[0] not in listed.source
    rotated = await person.sends(listed.form("ci/rotate"))
    assert "hf_" in rotated.text
    assert (await person.sends(listed.form("keys/ci"))).status_code == 303
    assert "revoked" in (await person.opens("/ui/keys")).text
    assert "credential.create" in (await person.opens("/ui/audit")).text


async def test_a_namespace_is_created(person: Person) -> None:
    seen = await person.opens("/ui/namespaces")
    response = await person.sends(
        seen.form("/v1/namespaces"), name="other", note="theirs", max_active_runs="5"
    )
    assert response.status_code == 303, response.text
    listed = await person.opens("/ui/namespaces")
    assert "theirs" in listed.text
    assert "/ui/namespaces/other" in list(listed.addresses())


async def test_without_a_credential_a_page_leads_to_the_sign_in_and_back(engine: Engine) -> None:
    key = engine.sync.keys.create("ann", scopes=["admin", "read"], namespaces=["*"]).text or ""
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(asgi_app(engine), client=("10.0.0.1", 1)), base_url="http://localhost"
    )
    async with client:
        path = f"/ui/namespaces/{NAMESPACE}/runs?status=failed"
        refused = await client.get(path)
        assert refused.status_code == 303
        page = Seen(await client.get(refused.headers["location"]))
        form = page.form("browser-session")
        signed_in = await client.post(form.action, data={**form.fields, "credential": key})
        assert signed_in.headers["location"] == path
        seen = Seen(await client.get(path))
        assert seen.status == 200
        out = seen.form("sign-out")
        without_token = {name: text for name, text in out.fields.items() if name != "csrf_token"}
        assert (await client.post(out.action, data=without_token)).status_code == 403
        assert (await client.post(out.action, data=out.fields)).status_code == 303
        assert (await client.get(path)).status_code == 303


async def test_the_files_of_the_pages_are_kept_by_browsers(person: Person) -> None:
    seen = await person.opens(BASE)
    for part in ("app.", ".css", ".svg"):
        assert part in seen.source
    start = seen.source.index("/ui/static/app.")
    address = seen.source[start : seen.source.index('"', start)]
    assert "immutable" in (await person.opens(address)).response.headers["cache-control"]
    await person.opens("/ui/static/none.js", status=404)
