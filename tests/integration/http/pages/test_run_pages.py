"""The pages of runs: lists with filters, bulk actions, and one run with its cause, its tabs and its actions."""

from collections.abc import Iterator

import attrs
import pytest

from holdfast import Engine, Retry, Worker, sleep, start_child, step, step_context, workflow
from holdfast.adapters.sql.sqlite import connection
from holdfast.errors import RunFailedError
from holdfast.hosts.http.pages import found_runs
from holdfast.ports.changes import Update
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.run import RunName
from tests.integration.http.api import NAMESPACE
from tests.integration.http.pages.form_person import BASE, Person, Seen

pytestmark = pytest.mark.anyio

HOSTILE = "<img src=x onerror=alert(1)>\"'&"
"""A text that would be an element, if it were not escaped."""
NUMBER = 130
"""How many runs are started for bulk actions: more than need no typed confirmation."""


@step
def shout(text: str) -> str:
    step_context().log(f"shouting {text}")
    return text.upper()


@step(retry=Retry(attempts=1))
def refuse(text: str) -> str:
    raise ValueError(f"refused: {text}")


@workflow
async def shouted(text: str) -> str:
    return await shout(text)


@workflow
async def refused(text: str) -> str:
    return await refuse(text)


@workflow
async def recovers(text: str) -> str:
    try:
        return await refuse(text)
    except ValueError:
        raise LookupError("something else") from None


@workflow
async def outer(text: str) -> str:
    return await (await start_child(shouted(text), id=f"{text}-child")).result()


@workflow
async def waits(text: str) -> str:
    await sleep(3_600)
    return text


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=[shouted, refused, recovers, outer, waits], namespace=NAMESPACE)
    with opened.sync:
        yield opened


@pytest.fixture
def reader(engine: Engine) -> Person:
    """A person who may read, without the values of users, and change nothing."""
    return Person(engine, "read")


@pytest.fixture
def ended(engine: Engine) -> Engine:
    """The engine, with runs that have ended: one completed, one failed, one with a child run."""
    engine.sync.start(shouted(HOSTILE), id="done/1", attributes={"tenant": HOSTILE})
    engine.sync.start(refused(HOSTILE), id="bad")
    engine.sync.start(outer("p"), id="parent")
    with Worker(engine):
        engine.sync.handle(shouted, "done/1").result()
        engine.sync.handle(outer, "parent").result()
        with pytest.raises(RunFailedError):
            engine.sync.handle(refused, "bad").result()
    return engine


# The list ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("ended")
async def test_the_list_has_the_runs_that_match_the_filters_of_its_address(person: Person) -> None:
    seen = await person.opens("runs")
    assert "4 runs" in seen.text
    assert "done/1" in seen.text
    assert (await person.opens("runs?status=failed&workflow=&since=&until=&attribute=")).text.count(
        "refused @"
    ) == 1
    active = await person.opens("runs?status=active")
    assert "No run matches." in active.text
    assert "Without status active" in active.text


@pytest.mark.usefixtures("ended")
async def test_runs_are_found_by_how_their_ids_begin(person: Person) -> None:
    seen = await person.opens("runs?id_prefix=done/")
    assert "1 run " in seen.text
    assert 'value="done/"' in seen.source
    assert "No run matches." in (await person.opens("runs?id_prefix=Done")).text
    none = await person.opens("runs?id_prefix=zzz")
    assert "Without run id begins with zzz" in none.text
    preview = await person.opens(seen.link("Rerun all…"))
    assert "run id begins with done/" in preview.text
    too_long = await person.opens(f"runs?id_prefix={'x' * 257}", status=400)
    assert "give the first 1 to 256 characters" in too_long.text


@pytest.mark.usefixtures("ended")
async def test_an_attribute_leads_to_the_runs_that_have_it(person: Person) -> None:
    seen = await person.opens("runs")
    (address,) = [one for one in seen.addresses() if "attribute=" in one]
    found = await person.opens(address)
    assert "1 run" in found.text
    assert "done/1" in found.text


async def test_an_old_attribute_that_no_address_can_have_is_a_text_without_a_link(
    engine: Engine, person: Person
) -> None:
    """Stores keep half of a surrogate pair. Starts refuse it now."""
    run = engine.sync.start(waits("old"), id="old", attributes={"file": "new"})
    stored = engine.core.stores.persistence.read(FindRun(RunName(NAMESPACE, run.id)))
    assert stored is not None
    engine.core.stores.persistence.transact(
        lambda tx: tx.apply([Update(attrs.evolve(stored, attributes='{"day":"1","file":"caf\\udce9"}'))])
    )
    for path in (f"{BASE}/runs", f"{BASE}/runs/old"):
        seen = await person.opens(path)
        assert r"file=caf\udce9" in seen.text
        assert "attribute=day%3D1" in seen.source
        assert "attribute=file" not in seen.source


async def test_a_filter_has_one_address_as_a_view(person: Person) -> None:
    """However a person has come to it; the script shows the form, and without a filter there is nothing to save."""
    expected = 'hidden data-view="status=failed&amp;attribute=a%3Db"'
    for query in (
        "status=failed&attribute=a%3Db",
        "attribute=&attribute=a%3Db&status=failed&since=&limit=9",
    ):
        assert expected in (await person.opens(f"runs?{query}")).source
    assert "data-view=" not in (await person.opens("runs")).source


@pytest.mark.parametrize("query", ["status=lost", "since=yesterday", "attribute=tenant", "limit=x"])
async def test_a_filter_that_is_not_understood_is_named(person: Person, query: str) -> None:
    seen = await person.opens(f"runs?{query}", status=400)
    assert query.partition("=")[0] in seen.text


async def test_a_list_has_pages(engine: Engine, person: Person) -> None:
    engine.sync.start_all(waits(str(number)) for number in range(5))
    first = await person.opens("runs?limit=2&workflow=waits")
    second = await person.opens(first.link("Older"))
    assert "5 runs" in second.text
    assert "workflow=waits" in second.link("Newest")


@pytest.mark.usefixtures("ended")
async def test_an_id_leads_to_its_run(person: Person) -> None:
    await person.opens("runs?id=done/1", status=303)


@pytest.fixture
def slow_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every filter takes too long, and then the newest three runs are looked through."""
    monkeypatch.setattr(connection, "LIMIT_CHECKED_EVERY", 1)
    monkeypatch.setattr(found_runs, "SECONDS", 0)
    monkeypatch.setattr(found_runs, "NEWEST", 3)


@pytest.mark.usefixtures("slow_filters")
async def test_a_filter_that_takes_long_is_applied_to_the_newest_runs(engine: Engine, person: Person) -> None:
    """Further pages look through the runs before these, so that every match can be reached."""
    wanted = {engine.sync.start(waits(str(number))).id for number in range(8)}
    for number in range(4):
        engine.sync.start(shouted(str(number)))
    seen = await person.opens("runs?workflow=waits&limit=2")
    assert "0 runs of the newest 3: to look through all of them would take too long." in seen.text
    assert "No run matches." in seen.text
    assert "of the next 3" in (await person.opens(seen.link("Older"))).text
    found: set[str] = set()
    while any(text.startswith("Older") for _, text in seen.links):
        seen = await person.opens(seen.link("Older"))
        found |= {one for one in wanted if one in seen.source}
    assert found == wanted


@pytest.mark.usefixtures("slow_filters")
async def test_a_slow_filter_is_applied_to_all_runs_if_these_are_few(engine: Engine, person: Person) -> None:
    engine.sync.start_all(waits(str(number)) for number in range(2))
    seen = await person.opens("runs?workflow=waits")
    assert "2 runs" in seen.text
    assert "of the newest" not in seen.text


# Bulk actions -----------------------------------------------------------------------------------------------------


async def test_a_bulk_action_is_confirmed_by_the_number_of_its_runs(engine: Engine, person: Person) -> None:
    engine.sync.start_all(waits(str(number)) for number in range(NUMBER))
    listed = await person.opens("runs?workflow=waits")
    preview = await person.opens(listed.link("Terminate all…"))
    assert "workflow waits" in preview.text
    assert f"Type {NUMBER} to go on" in preview.text
    assert not preview.forms, "nothing can be sent before the number is typed"
    wrong = await person.opens("runs:bulk?action=terminate&workflow=waits&confirmed=7")
    assert (wrong.forms, f"There are {NUMBER} runs now." in wrong.text) == ([], True)
    confirmed = await person.opens(f"runs:bulk?action=terminate&workflow=waits&confirmed={NUMBER}")
    seen = Seen(await person.sends(confirmed.form("bulk/terminate"), reason="too many", limit="100"))
    assert "Changed 100" in seen.text
    seen = Seen(await person.sends(seen.form("bulk/terminate")))
    assert f"Changed {NUMBER - 100}" in seen.text
    assert "gone through" in seen.text
    assert not list(engine.sync.runs(status="running"))


async def test_selected_runs_are_confirmed_and_changed_and_no_others(engine: Engine, person: Person) -> None:
    engine.sync.start_all(waits(str(number)) for number in range(2))
    for one in ("a/1", "b", "c"):
        engine.sync.start(waits("x"), id=one)
    engine.sync.terminate_all(ids=["c"])
    listed = await person.opens("runs?workflow=waits")
    assert 'name="ids" value="a/1" form="selection"' in listed.source
    assert 'name="action" value="cancel"' in listed.source
    preview = await person.opens("runs:bulk?ids=a/1&ids=b&ids=c&action=terminate")
    assert "one of 3 selected runs" in preview.text
    assert "Runs on which it acts 2" in preview.text
    assert "1 of the selected runs would be left alone" in preview.text
    seen = Seen(await person.sends(preview.form("bulk/terminate")))
    assert "Changed 2" in seen.text
    chosen = await person.opens(seen.link("The selected runs"))
    assert "3 runs" in chosen.text
    assert "Only 3 selected runs" in chosen.text
    assert len(list(engine.sync.runs(status="cancelled"))) == 3
    assert len(list(engine.sync.runs(status="running"))) == 2


async def test_an_action_on_no_selected_run_is_not_one_on_all(engine: Engine, person: Person) -> None:
    engine.sync.start(waits("x"))
    seen = await person.opens("runs:bulk?action=cancel")
    assert "No run is selected" in seen.text
    assert not seen.forms
    many = "&".join(f"ids={number}" for number in range(101))
    refused = await person.opens(f"runs:bulk?action=cancel&{many}", status=400)
    assert "has more than 100 ids" in refused.text


async def test_who_only_reads_selects_nothing(engine: Engine) -> None:
    engine.sync.start(waits("x"), id="one")
    seen = await Person(engine, "read").opens("runs")
    assert "one" in seen.text
    assert "selection" not in seen.source
    assert 'name="ids"' not in seen.source


async def test_runs_that_refuse_an_action_do_not_hide_others(engine: Engine, person: Person) -> None:
    """They still match afterwards: the next request goes on behind them."""
    engine.sync.start_all(waits(str(number)) for number in range(4))
    engine.sync.cancel_all(workflow="waits")
    preview = await person.opens("runs:bulk?action=cancel&workflow=waits")
    seen = Seen(await person.sends(preview.form("bulk/cancel"), limit="3"))
    assert "Unchanged 3" in seen.text
    seen = Seen(await person.sends(seen.form("bulk/cancel")))
    assert "Unchanged 1" in seen.text


async def test_an_attribute_with_two_texts_is_refused(person: Person) -> None:
    """No run has both, and a bulk action on the second alone would be a mistake."""
    seen = await person.opens("runs:bulk?action=cancel&attribute=tenant%3Da&attribute=tenant%3Db", status=400)
    assert "given twice" in seen.text


async def test_a_bulk_action_without_a_filter_can_not_be_sent(
    engine: Engine, person: Person, reader: Person
) -> None:
    engine.sync.start(waits("one"))
    seen = await person.opens("runs:bulk?action=cancel")
    assert not seen.forms
    assert "Without a filter" in seen.text
    assert "all…" not in (await reader.opens("runs?workflow=waits")).text
    assert not (await reader.opens("runs:bulk?action=cancel&workflow=waits")).forms


# One run ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("ended")
async def test_a_failed_run_shows_its_whole_error(person: Person) -> None:
    seen = await person.opens("runs/bad")
    assert "Why it failed" in seen.text
    assert f"ValueError: refused: {HOSTILE}" in seen.text
    assert "Traceback of the step" in seen.text
    assert "raise ValueError" in seen.text
    assert "img" not in seen.tags


async def test_a_run_that_waits_says_why(engine: Engine, person: Person) -> None:
    engine.sync.start(waits("one"), id="one")
    seen = await person.opens("runs/one")
    assert "Why it is not done" in seen.text
    assert "queued" in seen.text


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize(
    ("tab", "shown"),
    [
        ("summary", "Newest history"),
        ("steps", "shout"),
        ("history", "run.completed"),
        ("logs", "shouting"),
        ("values", "Result"),
        ("raw", "holdfast why done/1 --server http://localhost --namespace shop"),
        ("children", "It has started no child runs."),
        ("messages", "It was sent no messages."),
        ("timeline", "shout"),
    ],
)
async def test_each_tab_shows_its_part_of_a_run(person: Person, tab: str, shown: str) -> None:
    seen = await person.opens(f"runs/done%2F1?tab={tab}")
    assert shown in seen.text
    assert "img" not in seen.tags


@pytest.mark.usefixtures("ended")
async def test_a_part_of_a_timeline_has_an_address(person: Person) -> None:
    seen = await person.opens("runs/done%2F1?tab=timeline")
    assert {"from", "to"} <= set(seen.query_of("Zoom in"))
    everything = await person.opens("runs/done%2F1?tab=timeline&from=0&to=3600")
    assert "shout: done" in everything.text
    wrong = await person.opens("runs/done%2F1?tab=timeline&from=soon", status=400)
    assert "not a number of seconds" in wrong.text


@pytest.mark.usefixtures("ended")
async def test_a_parent_and_its_child_lead_to_each_other(person: Person) -> None:
    assert f"{BASE}/runs/p-child" in (await person.opens("runs/parent?tab=steps")).addresses()
    assert f"{BASE}/runs/p-child" in (await person.opens("runs/parent?tab=children")).addresses()
    assert f"{BASE}/runs/parent" in (await person.opens("runs/p-child")).addresses()


@pytest.mark.usefixtures("ended")
async def test_a_history_is_read_from_its_end_and_both_ways(person: Person) -> None:
    seen = await person.opens("runs/done%2F1?tab=history")
    assert seen.text.index("run.completed") < seen.text.index("run.created")
    older = await person.opens("runs/done%2F1?tab=history&row=1")
    assert "run.completed" not in older.text
    assert "Newer" in older.text


@pytest.mark.usefixtures("ended")
async def test_who_lacks_the_scope_for_values_sees_none(reader: Person) -> None:
    for tab in ("summary", "steps", "history", "logs", "values", "messages", "timeline", "raw"):
        for run_id in ("bad", "done%2F1"):
            seen = await reader.opens(f"runs/{run_id}?tab={tab}")
            for text in ("refused: ", "onerror=alert(1)&gt;refused", "shouting", "Traceback"):
                assert text not in seen.source.replace("tenant", ""), (tab, run_id)
            assert not seen.forms


async def test_a_run_is_paused_resumed_terminated_and_removed(engine: Engine, person: Person) -> None:
    handle = engine.sync.start(waits("one"), id="one")
    seen = await person.opens("runs/one")
    response = await person.sends(seen.form("one/pause"))
    assert (response.status_code, response.headers["location"]) == (303, f"{BASE}/runs/one")
    seen = await person.opens("runs/one")
    await person.sends(seen.form("one/resume"))
    seen = await person.opens("runs/one")
    await person.sends(seen.form("one/terminate"), reason="out of stock")
    assert handle.info().status == "cancelled"
    seen = await person.opens("runs/one")
    assert "Why it was cancelled" in seen.text
    assert "by user ann" in seen.text
    assert "out of stock" in seen.text
    response = await person.sends(seen.form("runs/one"))
    assert (response.status_code, response.headers["location"]) == (303, f"{BASE}/runs")
    assert not list(engine.sync.runs())


async def test_a_form_leads_back_to_an_id_with_any_characters(engine: Engine, person: Person) -> None:
    engine.sync.start(waits("one"), id="a/b é?")
    path = f"{BASE}/runs/a%2Fb%20%C3%A9%3F"
    seen = await person.opens(path)
    response = await person.sends(seen.form("/pause"))
    assert response.headers["location"] == path
    assert "paused" in (await person.opens(path)).text


async def test_an_error_that_a_function_has_caught_is_not_shown_as_the_cause(
    engine: Engine, person: Person
) -> None:
    handle = engine.sync.start(recovers("x"), id="one")
    with Worker(engine), pytest.raises(RunFailedError):
        handle.result()
    seen = await person.opens("runs/one")
    assert "LookupError: something else" in seen.text
    cause = seen.text.partition("Newest history")[0]
    assert "refused: x" not in cause
    assert "Traceback of the step" not in cause


async def test_a_page_of_an_older_generation_acts_on_no_newer_one(engine: Engine, person: Person) -> None:
    engine.sync.start(waits("one"), id="one")
    seen = await person.opens("runs/one")
    engine.sync.start(waits("two"), id="one", if_active="terminate")
    response = await person.sends(seen.form("one/cancel"))
    assert response.status_code == 412
    assert engine.sync.handle(waits, "one").info().status == "running"
    older = await person.opens("runs/one?generation=1")
    assert "1 of 2" in older.text
    assert not older.forms


async def test_a_server_that_only_reads_has_no_actions(engine: Engine) -> None:
    engine.sync.start(waits("one"), id="one")
    seen = await Person(engine, read_only=True).opens("runs/one")
    assert not seen.forms
    assert "Rerun" not in seen.text


async def test_an_unknown_run_is_a_page_with_a_way_back(person: Person) -> None:
    seen = await person.opens("runs/none", status=404)
    assert "there is no run 'none'" in seen.text
    assert "/ui" in list(seen.addresses())
