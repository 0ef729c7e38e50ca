"""`holdfast run rerun`, and generations in `run show`."""

import pytest

from holdfast import Engine
from tests.unit.hosts.cli.conftest import CommandLine


@pytest.fixture
def done(holdfast: CommandLine) -> CommandLine:
    """A command line, and a completed run."""
    holdfast.start("a", "b")
    holdfast.finish("order-1")
    return holdfast


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_preview_says_what_would_be_and_changes_nothing(done: CommandLine) -> None:
    answer = done("run", "rerun", "shop:engine", "order-1", "--from", "pack", "--preview")
    assert (answer.code, lines(answer.out)) == (
        0,
        [
            "order-1 would run again from pack, as generation 2",
            "Workflow order@1",
            "Runs pack (completed before), ship (completed before)",
            "Keeps check (from generation 1)",
        ],
    )
    as_json = done("run", "rerun", "shop:engine", "order-1", "--preview", "--json").json
    assert as_json == {
        "run_id": "order-1",
        "generation": 2,
        "workflow": "order",
        "version": "1",
        "stage": None,
        "runs": ["check", "pack", "ship"],
        "again": ["check", "pack", "ship"],
        "keeps": {},
        "terminates": False,
        "row": None,
        "timers": [],
        "starts": [],
        "children": [],
        "messages": 0,
        "undone": [],
    }
    assert done("run", "show", "shop:engine", "order-1", "--json").json["generation"] == 1


def test_a_run_is_run_again(done: CommandLine) -> None:
    answer = done("run", "rerun", "shop:engine", "order-1", "--from", "ship", "--reason", "the box was wet")
    assert (answer.code, answer.out) == (0, "order-1 runs again from ship, as generation 2\n")
    again = done("run", "rerun", "shop:engine", "order-1", "--from", "check")
    assert again.out == ("order-1 runs again from check, as generation 3; generation 2 was terminated\n")
    done.finish("order-1")
    answer = done("run", "rerun", "shop:engine", "order-1", "--json")
    assert answer.json["stage"] is None
    assert (answer.json["generation"], answer.json["rerun_of"], answer.json["started"]) == (4, 3, True)


def test_where_the_code_is_not_known_a_run_follows_the_plan_that_it_had(
    holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast.start("broken")
    holdfast.finish("order-1")
    without_code = Engine.on(holdfast.engine().core.stores)
    monkeypatch.setattr(holdfast, "engine", lambda: without_code)
    answer = holdfast("run", "rerun", "shop:engine", "order-1", "--json").json
    assert (answer["stage"], answer["keeps"]) == ("pack", ["check"])


def test_each_generation_is_shown(done: CommandLine) -> None:
    done("run", "rerun", "shop:engine", "order-1", "--from", "ship", "--reason", "wet")
    done.finish("order-1")
    newest = done("run", "show", "shop:engine", "order-1", "--history")
    assert "Generation 2, a rerun of generation 1 from ship" in lines(newest.out)
    assert "check kept from generation 1" in lines(newest.out)
    assert "pack kept from generation 1" in lines(newest.out)
    assert "wet" in newest.out
    first = done("run", "show", "shop:engine", "order-1", "--generation", "1", "--json").json
    assert [(one["state"], one["kept_of"]) for one in first["stages"]] == [("done", None)] * 3
    second = done("run", "show", "shop:engine", "order-1", "--json").json
    assert [one["kept_of"] for one in second["stages"]] == [1, 1, None]
    assert (second["rerun_of"], second["rerun_from"]) == (1, "ship")
    assert done("run", "show", "shop:engine", "order-1", "--output").out == '"A+B"\n'
    missing = done("run", "show", "shop:engine", "order-1", "--generation", "3")
    assert (missing.code, "generation 3 of run 'order-1'" in missing.err) == (3, True)


def test_what_can_not_be_is_refused(done: CommandLine) -> None:
    answer = done("run", "rerun", "shop:engine", "order-1", "--from", "shop", "--json")
    assert (answer.code, answer.error["code"]) == (4, "rerun_refused")
    assert "check, pack, ship" in answer.error["message"]
    for options in (("nobody",), ("order-1", "--version", "9"), ("nobody", "--preview")):
        assert done("run", "rerun", "shop:engine", *options).code == 3


def billed(holdfast: CommandLine) -> CommandLine:
    """A command line, and a run of a durable function that has filed three bills."""
    holdfast("run", "start", "shop:engine", "bills", '{"orders": 3}', "--id", "bills-1")
    wait(holdfast)
    return holdfast


def wait(holdfast: CommandLine) -> None:
    with holdfast.working():
        assert holdfast("run", "wait", "shop:engine", "bills-1").code == 0


def test_a_function_is_run_again_from_a_step_or_a_row(holdfast: CommandLine) -> None:
    done = billed(holdfast)
    answer = done("run", "rerun", "shop:engine", "bills-1", "--from", "file_away#3", "--preview")
    assert (answer.code, lines(answer.out)) == (
        0,
        [
            "bills-1 would run again from file_away#3, as generation 2",
            "Workflow bills@1",
            "Runs file_away#3 (completed before)",
            "Keeps file_away#1 (from generation 1), file_away#2 (from generation 1)",
        ],
    )
    answer = done("run", "rerun", "shop:engine", "bills-1", "--from", "file_away#3")
    assert (answer.code, answer.out) == (0, "bills-1 runs again from file_away#3, as generation 2\n")
    wait(done)
    shown = lines(done("run", "show", "shop:engine", "bills-1").out)
    assert "Generation 2, a rerun of generation 1 from file_away#3" in shown
    assert sum("from generation 1" in line for line in shown) == 2
    steps = done("run", "show", "shop:engine", "bills-1", "--json").json["steps"]
    assert [one["kept_of"] for one in steps] == [1, 1, None]
    answer = done("run", "rerun", "shop:engine", "bills-1", "--row", "2", "--json")
    assert (answer.json["row"], answer.json["stage"], answer.json["generation"]) == (2, "row 2", 3)


def test_a_point_that_is_not_there_is_refused(holdfast: CommandLine) -> None:
    done = billed(holdfast)
    answer = done("run", "rerun", "shop:engine", "bills-1", "--from", "file_away")
    assert answer.code == 4
    assert "name one of file_away#1 (call 1, row 2), file_away#2 (call 2, row 3)" in " ".join(
        answer.err.split()
    )
    answer = done("run", "rerun", "shop:engine", "bills-1", "--row", "9")
    assert (answer.code, "its rows 1 to 4 can be kept" in " ".join(answer.err.split())) == (4, True)
    answer = done("run", "rerun", "shop:engine", "--all", "--row", "2")
    assert (answer.code, "--row needs one run" in answer.err) == (2, True)
