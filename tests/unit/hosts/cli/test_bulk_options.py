"""`--all`: cancel, pause, resume and rerun of many runs; without `--yes` it only counts them."""

import re

import pytest

from tests.unit.hosts.cli.conftest import CommandLine


@pytest.fixture
def three(holdfast: CommandLine) -> CommandLine:
    """Three active runs, a failed one, and one of another workflow."""
    holdfast.start("broken", id="bad")
    holdfast.finish("bad")
    for name in ("a", "b", "c"):
        holdfast("run", "start", "shop:engine", "order", '{"customer":"x","items":["y"]}', "--id", name)
    holdfast("run", "start", "shop:engine", "nothing", "--id", "other")
    return holdfast


def statuses(line: CommandLine) -> dict[str, str]:
    return {run["id"]: run["status"] for run in line("run", "list", "shop:engine", "--json").json}


def test_without_yes_runs_are_counted_and_nothing_is_changed(three: CommandLine) -> None:
    before = statuses(three)
    answer = three("run", "cancel", "shop:engine", "--all", "--workflow", "order")
    assert (answer.code, answer.out) == (0, "3 runs (3 running) would be cancelled\n")
    assert "add --yes" in answer.err
    answer = three("run", "cancel", "shop:engine", "--all", "--limit", "2", "--json")
    assert answer.json == {"would_change": 2, "total": 4, "by_status": {"running": 4}}
    answer = three("run", "terminate", "shop:engine", "--all", "--limit", "1")
    assert answer.out == "1 of 4 runs (4 running) would be terminated\n"
    assert three("run", "resume", "shop:engine", "--all").out == "0 runs would be resumed\n"
    assert three("run", "rerun", "shop:engine", "--all").out == "1 run (1 failed) would be run again\n"
    assert statuses(three) == before


def test_runs_are_found_by_how_their_ids_begin(three: CommandLine) -> None:
    assert [run["id"] for run in three("run", "list", "shop:engine", "--id-prefix", "o", "--json").json] == [
        "other"
    ]
    assert three("run", "list", "shop:engine", "--id-prefix", "O").err == "No runs match.\n"
    counted = three("run", "cancel", "shop:engine", "--all", "--id-prefix", "o")
    assert counted.out == "1 run (1 running) would be cancelled\n"
    refused = three("run", "list", "shop:engine", "--id-prefix", "")
    assert (refused.code, "give the first 1 to 256 characters" in refused.err) == (2, True)
    assert three("run", "cancel", "shop:engine", "a", "--id-prefix", "o").code == 2


def test_runs_are_found_by_queue_parent_and_error(three: CommandLine) -> None:
    failed = three("run", "list", "shop:engine", "--error-code", "body_error", "--json").json
    assert [run["id"] for run in failed] == ["bad"]
    kind = failed[0]["error"]["type"]
    assert three("run", "list", "shop:engine", "--error-type", kind, "--count", "--json").json["total"] == 1
    assert three("run", "list", "shop:engine", "--children-of", "bad").err == "No runs match.\n"
    assert three("run", "list", "shop:engine", "--queue", "slow").err == "No runs match.\n"
    assert (
        three("run", "cancel", "shop:engine", "--all", "--queue", "slow").out == "0 runs would be cancelled\n"
    )


def test_runs_are_found_by_their_values(three: CommandLine) -> None:
    assert three("run", "annotate", "shop:engine", "a", "cents=7", "word=long", "--json-values").code == 2
    for run, cents in (("a", "7"), ("b", "8.5")):
        assert three("run", "annotate", "shop:engine", run, f"cents={cents}", "--json-values").code == 0

    def found(*options: str) -> list[str]:
        listed = three("run", "list", "shop:engine", *options, "--oldest-first", "--json").json
        return [run["id"] for run in listed]

    assert found("--annotation-where", 'cents={"at_least": 7, "below": 8}') == ["a"]
    assert found("--annotation-where", 'cents={"one_of": [7, 8.5]}') == ["a", "b"]
    assert found("--annotation-where", "cents=8.5") == ["b"]
    assert found("--attribute-where", 'city={"prefix": "Ber"}') == []
    counted = three("run", "cancel", "shop:engine", "--all", "--annotation-where", "cents=7")
    assert counted.out == "1 run (1 running) would be cancelled\n"
    for option, problem in (
        ("cents=long", "is not JSON"),
        ("cents", "write NAME=JSON"),
        ('cents={"at_least": 8, "below": 7}', "`below` must be above `at_least`"),
    ):
        refused = three("run", "list", "shop:engine", "--annotation-where", option)
        assert (refused.code, problem in refused.err) == (2, True), refused.err
    twice = ("--annotation", "cents=7", "--annotation-where", "cents=7")
    assert three("run", "list", "shop:engine", *twice).code == 2


def test_single_runs_are_named_by_their_ids(three: CommandLine) -> None:
    named = ("--id", "a", "--id", "b", "--id", "absent", "--id", "bad")
    assert len(three("run", "list", "shop:engine", *named, "--json").json) == 3
    counted = three("run", "cancel", "shop:engine", "--all", *named)
    assert counted.out == "2 runs (2 running) would be cancelled\n"
    assert three("run", "cancel", "shop:engine", "--all", *named, "--yes").out == "2 runs were cancelled\n"
    assert statuses(three)["c"] == "running"


@pytest.mark.parametrize("option", ["--id", "--id-prefix", "--queue", "--children-of"])
def test_an_empty_text_does_not_mean_all_runs(three: CommandLine, option: str) -> None:
    """As of a variable of a shell that has no value."""
    before = statuses(three)
    refused = three("run", "cancel", "shop:engine", "--all", option, "", "--yes")
    assert (refused.code, re.search("1 to (256|200) characters", refused.err) is not None) == (2, True)
    assert statuses(three) == before


def test_runs_with_queued_jobs_are_not_waiting(three: CommandLine) -> None:
    assert three("run", "list", "shop:engine", "--waiting", "--json").json == []
    assert three("run", "cancel", "shop:engine", "--all", "--waiting").out == "0 runs would be cancelled\n"
    refused = three("run", "list", "shop:engine", "--waiting", "--status", "failed")
    assert refused.code == 2
    assert "only be combined with the status `running`" in refused.err


def test_many_runs_are_paused_resumed_and_cancelled(three: CommandLine) -> None:
    paused = three("run", "pause", "shop:engine", "--all", "--workflow", "order", "--yes")
    assert (paused.code, paused.out) == (0, "3 runs were paused\n")
    again = three("run", "pause", "shop:engine", "--all", "--workflow", "order", "--yes", "--json")
    assert again.json == {"changed": 0, "unchanged": 0, "refused": 0, "refusals": []}
    resumed = three("run", "resume", "shop:engine", "--all", "--limit", "1", "--yes")
    assert resumed.out == "1 run was resumed\n"
    assert statuses(three) == {
        "bad": "failed",
        "a": "running",
        "b": "paused",
        "c": "paused",
        "other": "running",
    }
    cancelled = three("run", "cancel", "shop:engine", "--all", "--status", "paused", "--yes", "--json")
    assert cancelled.json["changed"] == 2
    assert three("run", "terminate", "shop:engine", "--all", "--yes").out == "2 runs were terminated\n"
    assert set(statuses(three).values()) == {"failed", "cancelled"}


def test_many_runs_are_run_again_and_those_that_can_not_be_are_named(three: CommandLine) -> None:
    answer = three("run", "rerun", "shop:engine", "--all", "--yes", "--reason", "fixed")
    assert (answer.code, answer.out) == (0, "1 run was run again\n")
    assert three("run", "show", "shop:engine", "bad", "--json").json["rerun_from"] == "pack"
    of_orders = ("--workflow", "order", "--status", "running")
    answer = three("run", "rerun", "shop:engine", "--all", "--from", "pack", *of_orders, "--yes")
    assert (answer.code, answer.out) == (4, "1 run was run again, 3 refused\n")
    assert "b: the rerun of run 'b' was refused: stage 'check' comes before 'pack'" in answer.err
    as_json = three("run", "rerun", "shop:engine", "--all", "--from", "pack", *of_orders, "--yes", "--json")
    assert (as_json.code, as_json.json["refused"]) == (4, 3)
    assert [one["code"] for one in as_json.json["refusals"]] == ["rerun_refused"] * 3


def test_older_generations_do_not_count(three: CommandLine) -> None:
    three("run", "rerun", "shop:engine", "--all", "--yes")
    assert three("run", "rerun", "shop:engine", "--all").out == "0 runs would be run again\n"
    assert statuses(three)["bad"] == "running"
    listed = three("run", "list", "shop:engine", "--json", "--all-generations").json
    assert sorted(run["status"] for run in listed if run["id"] == "bad") == ["failed", "running"]
    assert "failed" not in three("run", "list", "shop:engine", "--count").out
    assert "failed" in three("run", "list", "shop:engine", "--count", "--all-generations").out


@pytest.mark.parametrize(
    "options",
    [
        ("--yes",),
        ("--status", "running"),
        ("--limit", "3"),
        ("--workflow", "order"),
        ("a", "--since", "1h"),
        ("--all", "--status", "completed"),
        ("--all", "--status", "completed", "--status", "failed"),
        ("--all", "--limit", "0"),
        ("--all", "--attribute", "x"),
        ("--all", "a", "b"),
    ],
)
def test_what_does_not_go_together_is_refused(three: CommandLine, options: tuple[str, ...]) -> None:
    before = statuses(three)
    answer = three("run", "cancel", "shop:engine", *options)
    assert (answer.code, answer.out) == (2, "")
    assert statuses(three) == before


def test_a_preview_is_of_one_run(three: CommandLine) -> None:
    assert three("run", "rerun", "shop:engine", "--all", "--preview").code == 2
