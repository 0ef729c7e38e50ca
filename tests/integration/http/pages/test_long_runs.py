"""The steps and stages of runs with long histories: every one of them can be reached, page by page."""

from collections.abc import Iterator

import pytest

from holdfast import Engine, Pipeline, Retry, Worker, stage, start_child, step, step_context, workflow
from holdfast.errors import RunFailedError
from holdfast.hosts.http.pages import run, run_steps
from holdfast.hosts.inspection import stage_spans, step_pages
from tests.integration.http.api import NAMESPACE
from tests.integration.http.pages.form_person import BASE, Person, Seen
from tests.integration.http.programs import CANARY

pytestmark = pytest.mark.anyio

STEPS = 40


@step(retry=Retry(attempts=2, wait=0))
async def unsteady(number: int) -> str:
    """Fail once for every third number."""
    if number % 3 == 0 and step_context().attempt == 1:
        raise ValueError(CANARY)
    return f"{CANARY} {number}"


@workflow
async def little(number: int) -> int:
    return number


@workflow
async def many(number: int) -> int:
    for at in range(number):
        await unsteady(at)
        if at == number // 2:
            await start_child(little(at), id="child-of-the-middle")
    return number


@stage
def numbers(number: int) -> list[int]:
    return list(range(number))


@stage(retry=Retry(attempts=1))
def checked(number: int) -> int:
    if number == 29:
        raise ValueError(CANARY)
    return number


mapped = Pipeline("mapped", input=int).pipe(numbers).map(checked)


@pytest.fixture
def engine(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine whose histories are long from the twentieth row on."""
    monkeypatch.setattr(run_steps, "WHOLE_MAX", 20)
    monkeypatch.setattr(run_steps, "STAGES_MAX", 20)
    monkeypatch.setattr(stage_spans, "_WHOLE_MAX", 20)
    for module in (run_steps, step_pages):
        monkeypatch.setattr(module, "ROWS", 8)
    monkeypatch.setattr(step_pages, "AROUND", 8)
    opened = Engine.open(url, workflows=[many, little, mapped], namespace=NAMESPACE)
    with opened.sync:
        yield opened


@pytest.fixture
def ended(engine: Engine) -> Engine:
    with Worker(engine):
        engine.sync.start(many(STEPS), id="many").result()
    return engine


def calls_in(seen: Seen) -> list[str]:
    """Return the names of the calls whose rows are on a page."""
    return [part.partition('"')[0] for part in seen.source.split('id="call-')[1:]]


async def pages(person: Person, first: str, link: str) -> list[Seen]:
    """Return the pages that a person sees who follows a link as often as there is one."""
    found = [await person.opens(first)]
    while any(text.startswith(link) for _, text in found[-1].links):
        found.append(await person.opens(found[-1].link(link)))
        assert len(found) < 100
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("ended")
async def test_every_step_of_a_long_run_is_on_one_page(engine: Engine, person: Person) -> None:
    seen = await pages(person, "runs/many?tab=steps", "Older")
    calls = [call for one in seen for call in calls_in(one)]
    expected = {one.call for one in engine.sync.handle(many, "many").steps()}
    assert len(expected) == STEPS
    assert sorted(calls) == sorted(expected)
    assert all("retrying" not in one.text for one in seen)
    assert sum("child-of-the-middle" in one.text for one in seen) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("ended")
async def test_pages_of_steps_lead_both_ways(person: Person) -> None:
    newest = await person.opens("runs/many?tab=steps")
    older = await person.opens(newest.link("Older"))
    newer = await person.opens(older.link("Newer"))
    assert calls_in(older) != calls_in(newest) == calls_in(newer)
    last = await person.opens("runs/many?tab=steps&row=8")
    assert "history rows 1 to 8" in last.text
    assert "Older" not in last.text


@pytest.mark.slow
@pytest.mark.usefixtures("ended")
async def test_the_summary_of_a_long_run_leads_to_its_child_runs(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = f"{BASE}/runs/child-of-the-middle"
    assert child in (await person.opens("runs/many")).addresses()
    monkeypatch.setattr(run, "LONG", 20)
    seen = await person.opens("runs/many")
    assert child not in seen.addresses()
    assert child in (await person.opens(seen.link("look for child runs"))).addresses()


@pytest.mark.slow
@pytest.mark.usefixtures("ended")
async def test_a_long_run_shows_no_values_to_who_may_not_see_them(engine: Engine, person: Person) -> None:
    reader = Person(engine, "read")
    assert any(CANARY in one.source for one in await pages(person, "runs/many?tab=steps", "Older"))
    assert all(CANARY not in one.source for one in await pages(reader, "runs/many?tab=steps", "Older"))


async def test_stages_of_a_long_pipeline_come_from_sums(engine: Engine, person: Person) -> None:
    with Worker(engine), pytest.raises(RunFailedError):
        engine.sync.start(mapped(30), id="mapped").result()
    handle = engine.sync.handle(mapped, "mapped")
    of_rows = next(one for one in handle.details().stages if one.name == "checked")
    assert of_rows.attempts > 20
    seen = await person.opens("runs/mapped?tab=steps")
    assert f"checked, {of_rows.items_done} of 30 items" in seen.text
    assert f"ValueError: {CANARY}" in seen.text
    assert f"failed{of_rows.attempts}" in "".join(seen.text.split())
    assert CANARY not in (await Person(engine, "read").opens("runs/mapped?tab=steps")).source
