"""Replays of recorded histories by changed code, and the check of open runs before a deploy."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.functions.history_document import RunHistory
from holdfast.hosts.functions.replay_check import replay
from holdfast.hosts.functions.upgrade_check import UpgradeCheck, UpgradeVerdict, judge_history
from holdfast.hosts.wiring.stores import Stores, open_stores
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import Workflow, patched, sleep, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.steps import step
from holdfast.ports.errors import (
    InvalidArgumentError,
    InvalidHistoryError,
    NondeterminismError,
    RunFailedError,
    SchemaError,
    UnknownWorkflowError,
    UnreadableValueError,
    WorkflowStalledError,
)
from tests.integration.hosts.polling import until

DONE: list[str] = []
MONTH = timedelta(days=30)


@step
async def charge(order: str) -> str:
    DONE.append(f"charge {order}")
    return f"receipt of {order}"


@step(retry=Retry(attempts=2, wait=timedelta()))
def decline(order: str) -> str:
    DONE.append(f"decline {order}")
    raise ValueError(f"{order} is declined")


@step
def pack(order: str, parcels: int = 1) -> int:
    DONE.append(f"pack {order}")
    return parcels


@workflow
async def fulfil(order: str) -> list[int]:
    await charge(order)
    return list(await asyncio.gather(pack(order, 2), pack(order)))


@workflow
async def remind(order: str) -> str:
    receipt = await charge(order)
    await sleep(MONTH)
    return receipt


@workflow
async def refuse(order: str) -> str:
    return await decline(order)


def code(name: str, body: Callable[..., Coroutine[Any, Any, Any]]) -> Workflow[..., Any]:
    """Return the workflow of this name in another version of the code."""
    return workflow(name=name)(body)


@pytest.fixture(scope="module")
def recorded() -> dict[str, RunHistory]:
    """Histories of a run that returned, one that waits, and one that failed."""

    async def run() -> dict[str, RunHistory]:
        async with Engine.open("memory://", workflows=[fulfil, remind, refuse]) as engine:
            async with Worker(engine):
                await engine.run(fulfil("a"), id="returned")
                await engine.start(remind("b"), id="waits")
                with pytest.raises(RunFailedError):
                    await engine.run(refuse("c"), id="failed")
                waits = engine.sync.handle(remind, "waits")
                await until(lambda: len(waits.history()) == 2)
            ids: dict[str, WorkflowDefinition[Any]] = {"returned": fulfil, "waits": remind, "failed": refuse}
            return {name: await engine.handle(one, name).export_history() for name, one in ids.items()}

    found = anyio.run(run)
    DONE.clear()
    return found


# Replays of the same code -----------------------------------------------------------------------------------------


def test_a_run_that_has_returned_does_so_again_and_no_step_is_run(recorded: dict[str, RunHistory]) -> None:
    replayed = replay(recorded["returned"], fulfil)
    assert (replayed.output, replayed.error, replayed.as_recorded) == ("[2,1]", None, True)
    assert str(replayed) == "it returns [2,1], as recorded"
    assert DONE == []


def test_a_run_that_has_failed_does_so_again(recorded: dict[str, RunHistory]) -> None:
    replayed = replay(recorded["failed"], refuse)
    assert isinstance(replayed.error, ValueError)
    assert replayed.as_recorded
    assert str(replayed) == "it raises ValueError: c is declined, as recorded"
    assert DONE == []


def test_a_run_that_waits_says_for_what(recorded: dict[str, RunHistory]) -> None:
    replayed = replay(recorded["waits"], remind)
    assert replayed.ended is None
    assert not replayed.is_stuck
    (waiting,) = replayed.waits_for
    assert waiting.call == "2"
    assert waiting.what.startswith("a timer until ")
    assert waiting.site.startswith("test_replays.py:")


def test_a_file_is_replayed(recorded: dict[str, RunHistory], tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(recorded["returned"].to_json())
    assert replay(path, remind, fulfil).as_recorded
    assert replay(str(path), fulfil).as_recorded


def test_replays_work_where_an_event_loop_runs(recorded: dict[str, RunHistory]) -> None:
    async def inside() -> bool:
        with pytest.raises(NondeterminismError):
            replay(recorded["waits"], code("remind", forgets_to_sleep))
        return replay(recorded["returned"], fulfil).as_recorded

    assert asyncio.run(inside())


@workflow
async def meets_changes() -> list[bool]:
    async def each(number: int) -> bool:
        await pack(str(number))
        return patched(f"new-{number}")

    return list(await asyncio.gather(*map(each, range(3))))


def test_a_run_that_meets_changes_of_its_code_as_it_ends_does_so_again() -> None:
    async def run() -> RunHistory:
        async with Engine.open("memory://", workflows=[meets_changes]) as engine, Worker(engine):
            handle = await engine.start(meets_changes())
            assert await handle.result() == [True, True, True]
            return await handle.export_history()

    history = anyio.run(run)
    DONE.clear()
    assert [row.type for row in history.rows].count("patch.marked") == 3
    assert replay(history, meets_changes).as_recorded


# Replays of other code --------------------------------------------------------------------------------------------


async def packs_first(order: str) -> list[int]:
    return [await pack(order)]


async def forgets_to_charge(order: str) -> str:
    del order
    await sleep(MONTH)
    return ""


async def forgets_to_sleep(order: str) -> str:
    await pack(order)
    return await charge(order)


async def gives_other(order: str) -> list[int]:
    await charge(order)
    return [1, *await asyncio.gather(pack(order, 2), pack(order))]


async def goes_on(order: str) -> list[int]:
    await charge(order)
    found = await asyncio.gather(pack(order, 2), pack(order))
    await pack("more")
    return list(found)


async def raises_other(order: str) -> str:
    try:
        return await decline(order)
    except ValueError:
        raise KeyError(order) from None


async def says_other(order: str) -> str:
    try:
        return await decline(order)
    except ValueError:
        raise ValueError("it was not me") from None


async def forgives(order: str) -> str:
    try:
        return await decline(order)
    except ValueError:
        return "fine"


@pytest.mark.parametrize(
    ("which", "body", "row", "call", "recorded_as", "asked"),
    [
        ("returned", packs_first, 2, "1", "step 'charge' (test_replays.py:", "step 'pack' (test_replays.py:"),
        ("waits", forgets_to_charge, 2, "1", "step 'charge' (test_replays.py:", "a timer (test_replays.py:"),
        ("returned", gives_other, 5, "", "the function's return of [2,1]", "now it returns [1,2,1]"),
        (
            "returned",
            goes_on,
            5,
            "",
            "the function's return of [2,1]",
            "the code waits for step 'pack' (test",
        ),
        ("failed", raises_other, 4, "", "failure with ValueError: c is declined", "it raises KeyError: 'c'"),
        ("failed", says_other, 4, "", "failure with ValueError: c is", "it raises ValueError: it was not me"),
        ("failed", forgives, 4, "", "failure with ValueError: c is declined", 'now it returns "fine"'),
    ],
)
def test_code_that_does_something_else_is_told_where_and_what(
    recorded: dict[str, RunHistory],
    which: str,
    body: Callable[..., Coroutine[Any, Any, Any]],
    row: int,
    call: str,
    recorded_as: str,
    asked: str,
) -> None:
    history = recorded[which]
    with pytest.raises(NondeterminismError) as told:
        replay(history, code(history.workflow, body))
    error = told.value
    assert (error.row, error.call) == (row, call)
    assert recorded_as in error.recorded
    assert asked in error.requested
    assert f"row {row} of the history records {error.recorded}" in str(error)
    assert DONE == []


def test_what_the_code_waits_for_instead_has_its_call_sites(recorded: dict[str, RunHistory]) -> None:
    async def charged(order: str) -> str:
        return await charge(order)

    async def both(order: str) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(charged(order))
        return ""

    with pytest.raises(
        NondeterminismError, match=r"waits for step 'charge' \(test_replays\.py:\d+\) as 1\.1"
    ):
        replay(recorded["waits"], code("remind", both))


def test_a_history_needs_its_own_workflow_in_its_own_version(recorded: dict[str, RunHistory]) -> None:
    with pytest.raises(UnknownWorkflowError, match="fulfil@1"):
        replay(recorded["returned"], remind, workflow(name="fulfil", version="2")(packs_first))


def test_a_pipeline_has_nothing_to_replay(recorded: dict[str, RunHistory]) -> None:
    with pytest.raises(InvalidHistoryError, match="fulfil@1 is a pipeline"):
        replay(recorded["returned"], Pipeline("fulfil", input=str).pipe(stage(name="one")(measure)))


def measure(text: str) -> int:
    return len(text)


def twice(number: int) -> int:
    return 2 * number


def test_an_input_that_does_not_fit_any_more_is_told(recorded: dict[str, RunHistory]) -> None:
    @workflow(name="fulfil")
    async def takes_a_number(order: int) -> list[int]:
        return [order]

    with pytest.raises(UnreadableValueError, match=r"row 1 .*: \$\.order: expected integer"):
        replay(recorded["returned"], takes_a_number)


@pytest.mark.slow
def test_code_that_never_rests_is_told(recorded: dict[str, RunHistory]) -> None:
    async def restless(order: str) -> None:
        del order
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(WorkflowStalledError):
        replay(recorded["waits"], code("remind", restless))


def test_what_is_no_history_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a history, or the path of one"):
        replay(7, fulfil)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Open runs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store() -> Stores:
    """A store with open runs: three that sleep, and a pipeline without a worker."""
    stores = open_stores("memory://", None, None, 30)
    one = Pipeline("pipeline", input=str).pipe(stage(name="one")(measure))
    calls: list[tuple[str, Call[Any]]] = [(f"waits-{at}", remind(f"{at}")) for at in range(3)]

    async def fill() -> None:
        engine = Engine.on(stores, workflows=[fulfil, remind])
        async with Worker(engine):
            await engine.run(fulfil("a"), id="ended")
            for name, call in calls:
                await engine.start(call, id=name)
            await until(
                lambda: all(len(engine.sync.handle(remind, name).history()) == 2 for name, _ in calls)
            )

    anyio.run(fill)
    Engine.on(stores, workflows=[one]).sync.start(one("p"), id="pipeline-1")
    DONE.clear()
    return stores


def looked_at(stores: Stores, *workflows: WorkflowDefinition[Any], **options: Any) -> list[UpgradeCheck]:
    return list(Engine.on(stores, workflows=workflows).sync.check_upgrade(**options))


def verdicts(found: list[UpgradeCheck]) -> dict[str, str]:
    return {upgrade.run_id: upgrade.verdict.value for upgrade in found}


def test_open_runs_are_looked_at_and_those_that_have_ended_are_not(store: Stores) -> None:
    found = looked_at(store, fulfil, remind)
    assert verdicts(found) == {
        "waits-0": "compatible",
        "waits-1": "compatible",
        "waits-2": "compatible",
        "pipeline-1": "no_code",
    }
    assert [upgrade.is_compatible for upgrade in found] == [False, True, True, True]
    assert "keep that version until all its runs have ended" in found[0].message
    assert DONE == []


async def unable(order: str) -> str:
    receipt = await charge(order)
    raise ValueError(receipt)


async def stuck(order: str) -> str:
    await charge(order)
    await asyncio.Event().wait()
    return ""


async def shortened(order: str) -> str:
    return await charge(order)


@pytest.mark.parametrize(
    ("body", "verdict", "message"),
    [
        (forgets_to_charge, UpgradeVerdict.DIVERGES, "row 2 of the history records step 'charge'"),
        (unable, UpgradeVerdict.FAILS, "it raises ValueError: receipt of 0"),
        (stuck, UpgradeVerdict.BLOCKED, "it waits for something that can never happen"),
        (shortened, UpgradeVerdict.COMPATIBLE, 'it returns "receipt of 0"'),
    ],
)
def test_each_run_is_told_what_would_become_of_it(
    store: Stores, body: Callable[..., Coroutine[Any, Any, Any]], verdict: UpgradeVerdict, message: str
) -> None:
    (found,) = looked_at(store, code("remind", body), workflow="remind", limit=1, sample="oldest")
    assert found.verdict is verdict
    assert message in found.message
    assert (found.run_id, found.workflow, found.version, found.rows) == ("waits-0", "remind", "1", 2)
    assert (found.row, found.call) == ((2, "1") if verdict is UpgradeVerdict.DIVERGES else (None, None))


def test_an_input_or_a_version_that_the_code_has_not_is_told(store: Stores) -> None:
    @workflow(name="remind")
    async def takes_a_list(order: list[str]) -> str:
        return order[0]

    (found,) = looked_at(store, takes_a_list, workflow=takes_a_list, limit=1)
    assert (found.verdict, found.row) == (UpgradeVerdict.BLOCKED, 1)
    (found,) = looked_at(store, workflow(name="remind", version="2")(unable), workflow="remind", limit=1)
    assert found.verdict is UpgradeVerdict.NO_CODE


def test_what_can_not_be_driven_at_all_is_told_of_its_run_only(recorded: dict[str, RunHistory]) -> None:
    history = recorded["returned"]
    torn = attrs.evolve(
        history, rows=(history.rows[0], attrs.evolve(history.rows[1], data="{}", payload=None))
    )
    found = judge_history(torn, fulfil)
    assert found.verdict is UpgradeVerdict.BLOCKED
    assert found.message.startswith("it can't be driven: AssertionError: row 2 of run")


def test_a_pipeline_needs_the_stages_of_the_plan_that_its_run_has(store: Stores) -> None:
    kept = Pipeline("pipeline", input=str).pipe(stage(name="one")(measure)).pipe(stage(name="two")(twice))
    renamed = Pipeline("pipeline", input=str).pipe(stage(name="uno")(measure))
    assert verdicts(looked_at(store, kept, workflow=kept)) == {"pipeline-1": "compatible"}
    (found,) = looked_at(store, renamed, workflow=renamed)
    assert found.verdict is UpgradeVerdict.NO_CODE
    assert "no stage 'one'" in found.message


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"limit": None}, ["pipeline-1", "waits-2", "waits-1", "waits-0"]),
        ({"limit": None, "sample": "oldest"}, ["waits-0", "waits-1", "waits-2", "pipeline-1"]),
        ({"limit": 2, "sample": "newest"}, ["pipeline-1", "waits-2"]),
        ({"limit": 2, "sample": "oldest"}, ["waits-0", "waits-1"]),
        ({"limit": 2}, ["pipeline-1", "waits-0"]),
        ({"limit": 3}, ["pipeline-1", "waits-2", "waits-0"]),
        ({"limit": 9}, ["pipeline-1", "waits-2", "waits-1", "waits-0"]),
        ({"limit": 9, "known_only": True}, ["waits-2", "waits-1", "waits-0"]),
        ({"limit": 9, "workflow": "pipeline"}, ["pipeline-1"]),
    ],
)
def test_a_sample_is_of_the_newest_and_the_oldest(
    store: Stores, options: dict[str, object], ids: list[str]
) -> None:
    assert [upgrade.run_id for upgrade in looked_at(store, remind, **options)] == ids


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"sample": "all"}, {"workflow": 7}])
def test_what_can_not_be_asked_for_is_refused(store: Stores, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        looked_at(store, remind, **wrong)


def test_tables_are_not_made(tmp_path: Path) -> None:
    engine = Engine.open(f"sqlite:///{tmp_path}/none.db", workflows=[remind])
    with pytest.raises(SchemaError, match="no tables"):
        list(engine.sync.check_upgrade())
    engine.core.close()


def test_a_value_that_is_lost_is_told_of_its_run_only(
    tmp_path: Path, new_sqlite: Callable[[Path], str]
) -> None:
    with Engine.open(
        new_sqlite(tmp_path / "a.db"), workflows=[remind], blobs=f"file://{tmp_path}/blobs"
    ).sync as sync:
        sync.start(remind("x" * 70_000), id="lost")
        sync.start(remind("x"), id="kept")
        (blob,) = (path for path in (tmp_path / "blobs").rglob("*") if path.is_file())
        blob.unlink()
        assert verdicts(list(sync.check_upgrade())) == {"kept": "compatible", "lost": "unreadable"}


def test_async_code_looks_at_open_runs(store: Stores) -> None:
    async def look() -> list[str]:
        engine = Engine.on(store, workflows=[remind])
        return [upgrade.run_id async for upgrade in engine.check_upgrade(workflow=remind, limit=1)]

    assert anyio.run(look) == ["waits-2"]
