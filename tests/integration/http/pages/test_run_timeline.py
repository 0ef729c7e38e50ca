"""The timeline and the graph of a run: bars and boxes with states, and the same facts as text."""

import threading
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.requests import Request

from holdfast import Engine, Pipeline, Worker, stage, step, workflow
from holdfast.errors import RunFailedError
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.http.operations import Invocation, Nothing
from holdfast.hosts.http.pages import timeline_bars
from holdfast.hosts.http.pages.html import Html
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.pages.run_graph import NODES_MAX, graph, plan_graph
from holdfast.hosts.http.pages.run_query import RunQuery
from holdfast.hosts.http.pages.run_timeline import timeline
from holdfast.hosts.http.pages.timeline_bars import BARS_MAX, STEPS_MAX
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.inspection import newest_steps
from holdfast.hosts.inspection.run_info import find_run
from holdfast.kernel.pipelines.plan import Group, Plan, StagePlan
from tests.integration.http.api import NAMESPACE, PRINCIPALS
from tests.integration.http.pages.form_person import Seen
from tests.integration.http.pages.form_programs import PROGRAMS, Customer, Parcel, bought, judged, shipped
from tests.integration.http.programs import CANARY, Order

pytestmark = pytest.mark.anyio


def is_small(number: int) -> bool:
    return number < 10


@stage
def halve(number: int) -> int:
    return number // 2


@stage
def double(number: int) -> int:
    return number * 2


@step
def count(number: int) -> int:
    return number


@workflow
async def counted(number: int) -> int:
    for at in range(number):
        await count(at)
    return number


@stage
def listed(number: int) -> list[int]:
    return list(range(number))


started, go_on = threading.Event(), threading.Event()


@step
def hold(number: int) -> int:
    started.set()
    assert go_on.wait(120)
    return number


@workflow
async def held(number: int) -> int:
    return await hold(number)


spread = Pipeline("spread", input=int).pipe(listed).map(double)
chosen = Pipeline("chosen", input=int).when(is_small, double, otherwise=halve)


@pytest.fixture
def engine(url: str) -> Iterator[SyncEngine]:
    opened = Engine.open(url, workflows=(*PROGRAMS, chosen, counted, spread, held), namespace=NAMESPACE)
    with opened.sync as sync:
        yield sync


def page_of(engine: SyncEngine, **query: Any) -> Page[RunQuery]:
    call: Invocation[RunQuery, Nothing] = Invocation(
        engine=engine,
        principal=PRINCIPALS["all"],
        server=cast("Any", None),  # drawings need nothing of it
        path={"namespace": NAMESPACE},
        query=RunQuery(**query),
        body=Nothing(),
        request=Request({"type": "http", "headers": [], "path": "/", "query_string": b""}),
    )
    return Page(call)


def seen(found: Html) -> Seen:
    return Seen(httpx.Response(200, text=found.markup))


def timeline_of(engine: SyncEngine, run_id: str, address: str = "") -> Seen:
    """Return the timeline of a run, or of the part of its time that an address has."""
    given = {name: text for name, (text,) in parse_qs(urlsplit(address).query).items()}
    page = page_of(engine, from_=given.get("from", ""), to=given.get("to", ""))
    return seen(timeline(page, find_run(engine.core, run_id)))


def bars_in(found: Seen) -> set[str]:
    """Return the addresses that bars lead to: parts of tabs."""
    return {one for one in found.addresses() if "#" in one}


def graph_of(engine: SyncEngine, run_id: str) -> Seen:
    return seen(graph(page_of(engine), find_run(engine.core, run_id)))


def parcel(number: int) -> Parcel:
    return Parcel(customer=Customer("Ann"), number=number, is_paid=True)


def test_each_stage_that_was_reached_has_a_bar_and_a_row(engine: SyncEngine) -> None:
    with Worker(engine):
        engine.start(shipped(parcel(3)), id="good").result()
    found = timeline_of(engine, "good")
    assert found.tags.count("tr") == 6
    assert "pack: done, 3 of 3 items" in found.text
    assert found.source.count('class="good"') >= 5
    assert "style=" not in found.source
    assert any("tab=steps" in one and one.endswith("#stage-pack") for one in found.addresses())


def test_a_failed_stage_is_red_and_what_follows_is_not_drawn(engine: SyncEngine) -> None:
    with Worker(engine), pytest.raises(RunFailedError):
        engine.start(shipped(parcel(14)), id="bad").result()
    found = timeline_of(engine, "bad")
    assert "pack: failed, 13 of 14 items" in found.text or "pack: failed" in found.text
    assert "total" not in found.text
    assert 'class="bad"' in found.source
    drawn = graph_of(engine, "bad")
    assert "total: not reached" in drawn.text
    assert "pack: failed" in drawn.text
    assert "weigh: done" in drawn.text


def test_steps_of_a_function_have_bars(engine: SyncEngine) -> None:
    with Worker(engine), pytest.raises(RunFailedError):
        engine.start(bought("a"), id="one").result()
    found = timeline_of(engine, "one")
    assert found.text.count("reserve: done") == 2
    assert "pay: failed" in found.text
    assert CANARY not in found.source
    assert "has no plan" in graph_of(engine, "one").text


@pytest.mark.slow
def test_of_many_steps_the_newest_are_drawn(engine: SyncEngine) -> None:
    with Worker(engine):
        engine.start(counted(STEPS_MAX + 10), id="few").result()
    found = timeline_of(engine, "few")
    assert "10 earlier steps are not drawn." in found.text
    assert len(bars_in(found)) == STEPS_MAX
    assert len(found.source) < 100_000


@pytest.mark.slow
def test_a_long_history_is_read_from_its_end(engine: SyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_steps, "ROWS_MAX", 20)
    monkeypatch.setattr(timeline_bars, "ROWS_MAX", 20)
    with Worker(engine):
        engine.start(counted(60), id="many").result()
    found = timeline_of(engine, "many")
    assert "from the last 20 history rows" in found.text
    assert 0 < len(bars_in(found)) <= 20


def test_a_run_that_has_not_started_says_so_or_waits(engine: SyncEngine) -> None:
    engine.start(judged(Order(1)), id="function")
    assert "Nothing has started yet." in timeline_of(engine, "function").text
    engine.start(shipped(parcel(3)), id="pipeline")
    found = timeline_of(engine, "pipeline")
    assert "weigh: queued, waited" in found.text or "Nothing has started yet." in found.text
    assert "total: waiting" in graph_of(engine, "pipeline").text


def test_the_branch_that_was_not_taken_is_pale(engine: SyncEngine) -> None:
    with Worker(engine):
        engine.start(chosen(4), id="one").result()
    found = graph_of(engine, "one")
    assert "double: done" in found.text
    assert "halve: skipped" in found.text
    assert "if is_small" in found.text


def test_a_kept_stage_says_so(engine: SyncEngine) -> None:
    with Worker(engine):
        run = engine.start(shipped(parcel(3)), id="one")
        run.result()
        run.rerun_from("total")
        engine.handle(shipped, "one").result()
    assert "weigh: kept" in graph_of(engine, "one").text
    assert "total: done" in timeline_of(engine, "one").text
    assert "weigh" not in timeline_of(engine, "one").text


def test_a_map_of_many_items_is_one_bar(engine: SyncEngine) -> None:
    with Worker(engine, concurrency=8), pytest.raises(RunFailedError):
        engine.start(shipped(parcel(300)), id="one").result()
    found = timeline_of(engine, "one")
    assert "of 300 items" in found.text
    assert len(bars_in(found)) <= 4
    assert len(found.source) < 15_000


@pytest.mark.slow
def test_zoomed_into_a_map_each_of_its_items_has_a_bar(engine: SyncEngine) -> None:
    """Following the links from part to part shows every item, at most 500 at once."""
    number = 1_200
    with Worker(engine, concurrency=8):
        engine.start(spread(number), id="one").result()
    whole = timeline_of(engine, "one")
    assert not [one for one in bars_in(whole) if "row-" in one]
    found = timeline_of(engine, "one", whole.link("1,200 of 1,200 items"))
    items: set[str] = set()
    for _ in range(20):
        bars = bars_in(found)
        assert 0 < len(bars) <= BARS_MAX
        items |= {one for one in bars if "row-" in one}
        if not any(text == "The next bars" for _, text in found.links):
            break
        assert "bars of this time" in found.text
        found = timeline_of(engine, "one", found.link("The next bars"))
    assert len(items) == number
    assert any("row-" in one for one in bars_in(timeline_of(engine, "one", found.link("Earlier"))))


@pytest.mark.slow
def test_links_lead_to_other_parts_of_the_time(engine: SyncEngine) -> None:
    with Worker(engine):
        engine.start(counted(STEPS_MAX * 8), id="one").result()
    newest = timeline_of(engine, "one")
    whole = timeline_of(engine, "one", "?from=0")
    assert len(bars_in(whole)) == BARS_MAX
    last = next(one for one in reversed(list(newest.addresses())) if "#call-" in one)
    assert last not in bars_in(whole)
    assert last in bars_in(timeline_of(engine, "one", whole.link("The next bars")))

    def length(found: Seen) -> float:
        (of_part,) = (query for text in ("Zoom in",) if (query := parse_qs(urlsplit(found.link(text)).query)))
        return float(of_part["to"][0]) - float(of_part["from"][0])

    near = timeline_of(engine, "one", whole.link("Zoom in"))
    assert length(near) == pytest.approx(length(whole) / 4, rel=0.01)
    assert length(timeline_of(engine, "one", near.link("Zoom out"))) == pytest.approx(length(whole), rel=0.01)
    earlier, later = (timeline_of(engine, "one", near.link(text)) for text in ("Earlier", "Later"))
    assert length(earlier) == pytest.approx(length(near), rel=0.01)
    assert bars_in(earlier) != bars_in(near) != bars_in(later)
    assert bars_in(timeline_of(engine, "one", near.link("Without zoom"))) == bars_in(newest)


@pytest.mark.slow
def test_a_part_of_the_axis_leads_to_itself(engine: SyncEngine) -> None:
    with Worker(engine):
        engine.start(counted(50), id="one").result()
    found = timeline_of(engine, "one")
    sections = [one for one in found.addresses() if "from=" in one and "#" not in one]
    axis = [one for one in sections if found.link("Zoom in") != one]
    assert len(axis) > 2
    seen_of_all: set[str] = set()
    for one in axis:
        seen_of_all |= bars_in(timeline_of(engine, "one", one))
    assert seen_of_all >= bars_in(found)


def test_what_runs_now_is_drawn_to_the_end_of_a_part(engine: SyncEngine) -> None:
    with Worker(engine, concurrency=1):
        engine.start(held(0), id="one")
        assert started.wait(120)
        try:
            found = timeline_of(engine, "one", "?from=0&to=3600")
            early = timeline_of(engine, "one", "?from=-20&to=-10")
        finally:
            go_on.set()
        engine.handle(held, "one").result()
    assert "hold: running" in found.text
    assert "Nothing ran in this time." in early.text


@pytest.mark.parametrize("query", ["from=x", "to=-1e3", "from=5&to=4", "from=1&to=1", "to=1.1234567"])
def test_a_part_that_is_not_understood_is_refused(engine: SyncEngine, query: str) -> None:
    engine.start(counted(1), id="one")
    with pytest.raises(HttpError, match=r"from|to"):
        timeline_of(engine, "one", f"?{query}")


def test_a_plan_with_too_many_stages_is_a_list() -> None:
    def plan(number: int) -> Plan:
        groups = tuple(Group(nodes=(StagePlan(name=f"stage{at}"),)) for at in range(number))
        return Plan(workflow="large", version="1", groups=groups)

    assert "svg" in seen(plan_graph(plan(NODES_MAX), {})).tags
    found = seen(plan_graph(plan(NODES_MAX + 1), {}))
    assert "svg" not in found.tags
    assert "stage200" in found.text


def test_names_are_shortened_and_escaped_in_drawings() -> None:
    name = "<script>" + "x" * 10_000
    plan = Plan(workflow="w", version="1", groups=(Group(nodes=(StagePlan(name=name),)),))
    found = seen(plan_graph(plan, {}))
    assert "script" not in found.tags
    assert len(found.source) < 2_000
