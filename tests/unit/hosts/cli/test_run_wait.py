"""`holdfast run wait`, `pause`, `resume`, `cancel` and `terminate`."""

import io
import re
from datetime import timedelta

import attrs
import pytest
from rich.console import Console
from rich.live import Live

from holdfast.hosts.cli.run_wait import Bars, OpenStage, ProgressReader, ProgressSnapshot
from holdfast.hosts.inspection.run_info import read_info
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.run import RunName
from tests.unit.hosts.cli.conftest import CommandLine, on_the_store


def test_the_result_goes_to_stdout_and_the_rest_to_stderr(holdfast: CommandLine) -> None:
    holdfast.start("a", "b")
    holdfast.finish("order-1")
    answer = holdfast("run", "wait", "shop:engine", "order-1")
    assert (answer.code, answer.out) == (0, '"A+B"\n')
    assert answer.err.startswith("order-1 completed after ")


@on_the_store  # over HTTP the run may have ended at the first look
def test_it_waits_for_a_run_that_is_under_way(holdfast: CommandLine) -> None:
    holdfast.start("a")
    with holdfast.working():
        answer = holdfast("run", "wait", "shop:engine", "order-1", "--timeout", "30")
    assert (answer.code, answer.out) == (0, '"A"\n')
    assert "stage ship is done (3 of 3)" in answer.err


def test_a_failed_run_is_1(holdfast: CommandLine) -> None:
    holdfast.start("broken")
    holdfast.finish("order-1")
    answer = holdfast("run", "wait", "shop:engine", "order-1")
    assert (answer.code, answer.out) == (1, "")
    assert "ValueError: broken" in answer.err


def test_a_cancelled_run_is_5(holdfast: CommandLine) -> None:
    holdfast.start("a")
    holdfast("run", "cancel", "shop:engine", "order-1", "--reason", "no stock", "--actor", "ann")
    answer = holdfast("run", "wait", "shop:engine", "order-1", "--json")
    assert (answer.code, answer.json["status"], answer.json["error"]["message"]) == (
        5,
        "cancelled",
        "no stock",
    )


def test_the_reason_of_a_cancellation_is_given_without_repeating_the_status(holdfast: CommandLine) -> None:
    holdfast.start("a")
    holdfast("run", "cancel", "shop:engine", "order-1", "--reason", "no stock", "--actor", "ann")
    answer = holdfast("run", "wait", "shop:engine", "order-1")
    assert re.fullmatch(r"order-1 cancelled after \S+: no stock\n", answer.err)
    why = holdfast("why", "shop:engine", "order-1").out
    assert re.search(r"It was cancelled by user ann \S+ ago \(.*\): no stock\.$", why, re.MULTILINE)


def test_a_run_that_takes_too_long_is_7(holdfast: CommandLine) -> None:
    holdfast.start("a")
    answer = holdfast("run", "wait", "shop:engine", "order-1", "--timeout", "0.01", "--json")
    assert (answer.code, answer.out, answer.error["code"]) == (7, "", "timeout")


def test_as_json_the_result_is_part_of_the_run(holdfast: CommandLine) -> None:
    holdfast.start("a")
    holdfast.finish("order-1")
    answer = holdfast("run", "wait", "shop:engine", "order-1", "--json")
    assert (answer.json["id"], answer.json["result"], answer.err) == ("order-1", "A", "")


def test_a_view_follows_the_run(holdfast: CommandLine) -> None:
    holdfast.start("a", "flaky", "c")
    core = holdfast.engine().core
    run = core.stores.persistence.read(FindRun(RunName("default", "order-1")))
    assert run is not None
    watch = ProgressReader(core, run)
    assert (watch.look().open, watch.look().done) == ((OpenStage("check"),), ())
    holdfast.finish("order-1")
    assert watch.look().done == ("check", "pack", "ship")
    assert watch.look().message.startswith("25%  packing ")


def test_a_terminal_gets_bars(holdfast: CommandLine) -> None:
    holdfast.start("a")
    core = holdfast.engine().core
    run = core.stores.persistence.read(FindRun(RunName("default", "order-1")))
    assert run is not None
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    info = attrs.evolve(read_info(core, run), duration=timedelta(seconds=192))
    with Live(console=console) as live:
        view = ProgressSnapshot(
            run=info, done=("check",), open=(OpenStage("pack", 2, 4),), stages=3, message="25%  packing"
        )
        Bars(live).show(view, info.created_at)
        with console.capture() as drawn:
            console.print(live.renderable)
    text = drawn.get()
    for part in ("order-1", "running", "3m 12s", "1/3", "2/4 items", "━━━", "25%  packing"):
        assert part in text


def test_a_run_is_paused_and_resumed(holdfast: CommandLine) -> None:
    holdfast.start("a")
    assert holdfast("run", "pause", "shop:engine", "order-1", "--reason", "look").out == "order-1 is paused\n"
    assert holdfast("run", "pause", "shop:engine", "order-1").out == "order-1 is already paused\n"
    shown = holdfast("run", "show", "shop:engine", "order-1", "--history").out
    assert "run.paused" in shown
    assert "reason: look" in shown
    assert "paused" in shown
    resumed = holdfast("run", "resume", "shop:engine", "order-1", "--json")
    assert resumed.json == {"id": "order-1", "status": "running", "changed": True}


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_what_has_ended_can_not_be_paused(holdfast: CommandLine, command: str) -> None:
    holdfast.start("a")
    holdfast.finish("order-1")
    answer = holdfast("run", command, "shop:engine", "order-1", "--json")
    assert (answer.code, answer.error["code"]) == (4, "run_ended")


def test_cancelling_twice_is_fine(holdfast: CommandLine) -> None:
    holdfast.start("a")
    first = holdfast("run", "cancel", "shop:engine", "order-1", "--json")
    second = holdfast("run", "cancel", "shop:engine", "order-1", "--json")
    assert (first.code, first.json) == (0, {"id": "order-1", "status": "cancelled", "changed": True})
    assert (second.code, second.json["changed"]) == (0, False)
    assert holdfast("run", "cancel", "shop:engine", "order-1").out == "order-1 is already cancelled\n"


def test_terminating_says_so_in_the_history(holdfast: CommandLine) -> None:
    holdfast.start("a")
    assert holdfast("run", "terminate", "shop:engine", "order-1", "--reason", "enough").code == 0
    text = holdfast("run", "show", "shop:engine", "order-1", "--history").out
    assert "run.terminated" in text
    assert "reason: enough" in text
    assert "terminated: enough" in text


def test_what_has_ended_otherwise_can_not_be_cancelled(holdfast: CommandLine) -> None:
    holdfast.start("a")
    holdfast.finish("order-1")
    answer = holdfast("run", "cancel", "shop:engine", "order-1", "--json")
    assert (answer.code, answer.error["code"]) == (4, "run_ended")


@pytest.mark.parametrize("command", ["wait", "pause", "resume", "cancel", "terminate"])
def test_a_run_that_is_not_there_is_not_found(holdfast: CommandLine, command: str) -> None:
    assert holdfast("run", command, "shop:engine", "nobody").code == 3
