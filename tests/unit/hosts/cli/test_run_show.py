"""`holdfast run list` and `holdfast run show`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.hosts.cli.conftest import STUBBORN, CommandLine, unlucky


def test_runs_are_listed_newest_first(holdfast: CommandLine) -> None:
    for name in ("a", "b"):
        holdfast.start("x", id=name)
    holdfast.finish("a")
    answer = holdfast("run", "list", "shop:engine")
    head, *rows = [line.split() for line in answer.out.splitlines()]
    assert head == ["ID", "WORKFLOW", "STATUS", "AGE", "DURATION"]
    assert [row[:2] for row in rows] == [["b", "order@1"], ["a", "order@1"]]
    assert not re.search(r" $|\x1b", answer.out, re.MULTILINE)


def test_a_list_can_be_narrowed(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    holdfast("run", "start", "shop:engine", "nothing", "--id", "b")
    holdfast("run", "cancel", "shop:engine", "b")

    def listed(*options: str) -> list[str]:
        return [run["id"] for run in holdfast("run", "list", "shop:engine", "--json", *options).json]

    assert listed() == ["b", "a"]
    assert listed("--status", "cancelled") == ["b"]
    assert listed("--workflow", "order") == ["a"]
    assert listed("--workflow", "order", "--status", "failed") == []
    assert listed("--status", "cancelled", "--status", "RUNNING") == ["b", "a"]
    assert listed("--oldest-first") == ["a", "b"]


def test_a_list_can_be_narrowed_by_attributes(holdfast: CommandLine) -> None:
    for name, *attributes in (("a", "who=me", "what=x=y"), ("b", "who=me"), ("c",)):
        given = [word for attribute in attributes for word in ("--attribute", attribute)]
        holdfast("run", "start", "shop:engine", "nothing", "--id", name, *given)

    def listed(*attributes: str) -> list[str]:
        given = [word for attribute in attributes for word in ("--attribute", attribute)]
        return [run["id"] for run in holdfast("run", "list", "shop:engine", "--json", *given).json]

    assert listed("who=me") == ["b", "a"]
    assert listed("who=me", "what=x=y") == ["a"]
    assert listed("who=m") == listed("who=") == []
    answer = holdfast("run", "list", "shop:engine", "--attribute", "who")
    assert (answer.code, "NAME=TEXT" in answer.err) == (2, True)


def test_a_list_can_be_narrowed_by_time(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")

    def listed(*options: str) -> list[str]:
        return [run["id"] for run in holdfast("run", "list", "shop:engine", "--json", *options).json]

    now = datetime.now(UTC).replace(microsecond=0)
    early, late = now - timedelta(minutes=1), now + timedelta(minutes=1)
    assert listed("--since", "1h") == listed("--since", "2w", "--until", late.isoformat()) == ["a"]
    assert listed("--until", "60s") == listed("--since", late.isoformat()) == []
    # Without a zone it is a time of where we are, or with --utc one of UTC.
    assert listed("--since", early.astimezone().replace(tzinfo=None).isoformat()) == ["a"]
    assert listed("--since", early.replace(tzinfo=None).isoformat(), "--utc") == ["a"]
    assert listed("--since", late.replace(tzinfo=None).isoformat(), "--utc") == []
    for bad in (
        ("--since", "yesterday"),
        ("--since", "1.5h"),
        ("--until", "999999999w"),
        ("--since", "999999999h"),
        ("--since", "0001-01-01T00:00+23:59", "--until", "0001-01-01T00:00+23:59"),
        ("--since", "1h", "--until", "2h"),
    ):
        answer = holdfast("run", "list", "shop:engine", *bad)
        assert (answer.code, answer.out) == (2, ""), bad


def test_a_list_goes_on_where_the_last_one_ended(holdfast: CommandLine) -> None:
    for number in range(5):
        holdfast.start("x", id=f"run-{number}")
    first = holdfast("run", "list", "shop:engine", "--limit", "2")
    assert [line.split()[0] for line in first.out.splitlines()[1:]] == ["run-4", "run-3"]
    (cursor,) = re.findall("More runs: --after (.*)", first.err)
    holdfast.start("x", id="meanwhile")
    second = holdfast("run", "list", "shop:engine", "--limit", "3", "--after", cursor)
    assert [line.split()[0] for line in second.out.splitlines()[1:]] == ["run-2", "run-1", "run-0"]
    assert second.err == ""
    listed = holdfast("run", "list", "shop:engine", "--json").json
    assert cursor == listed[2]["cursor"]
    back = holdfast("run", "list", "shop:engine", "--after", cursor, "--oldest-first", "--json").json
    assert [run["id"] for run in back] == ["run-4", "meanwhile"]
    for bad in ("nobody", "run-1", "", "1.", "x.Y", f"{cursor} "):
        answer = holdfast("run", "list", "shop:engine", "--after", bad, "--json")
        assert (answer.code, answer.error["code"]) == (2, "invalid_filter")


def test_runs_are_counted(holdfast: CommandLine) -> None:
    for name in ("a", "b", "c"):
        holdfast.start("x", id=name)
    holdfast("run", "cancel", "shop:engine", "b")

    counted = holdfast("run", "list", "shop:engine", "--count")
    lines = [line.split() for line in counted.out.splitlines()]
    assert lines == [["STATUS", "RUNS"], ["running", "2"], ["cancelled", "1"], ["total", "3"]]
    asked = ("--status", "failed", "--status", "running", "--workflow", "order", "--since", "1h")
    found = holdfast("run", "list", "shop:engine", "--count", "--json", *asked).json
    assert found == {"total": 2, "by_status": {"running": 2, "failed": 0}}
    for wrong in (("--limit", "3"), ("--after", "1.A"), ("--oldest-first",)):
        assert holdfast("run", "list", "shop:engine", "--count", *wrong).code == 2


def test_no_runs_are_no_error(holdfast: CommandLine) -> None:
    answer = holdfast("run", "list", "shop:engine")
    assert (answer.code, answer.out, answer.err) == (0, "", "There are no runs.\n")
    assert holdfast("run", "list", "shop:engine", "--json").json == []


def test_a_run_is_shown_with_its_stages(holdfast: CommandLine) -> None:
    holdfast.start("a", "flaky", "c")
    holdfast.finish("order-1")
    shown = holdfast("run", "show", "shop:engine", "order-1", "--json").json
    assert (shown["status"], shown["error"], shown["jobs"]) == ("completed", None, [])
    facts = [
        (
            one["name"],
            one["state"],
            one["items_done"],
            one["items_total"],
            one["attempts"],
            one["failed_attempts"],
        )
        for one in shown["stages"]
    ]
    assert facts == [
        ("check", "done", None, None, 1, 0),
        ("pack", "done", 3, 3, 4, 1),
        ("ship", "done", None, None, 1, 0),
    ]
    text = holdfast("run", "show", "shop:engine", "order-1").out
    assert re.search(r"^pack +done +3/3 +4 +\S+ +1 failed, last: ValueError: flaky", text, re.MULTILINE)


RUN_KEYS = """id key generation rerun_of rerun_from is_continued is_retried namespace workflow version status queue
priority created_at updated_at ended_at start_at deadline concurrency_key concurrency_limit duration_seconds attributes
error parent cursor scheduled"""


def test_documents_have_the_keys_that_scripts_rely_on(holdfast: CommandLine) -> None:
    holdfast.start("a", "broken")
    holdfast.finish("order-1")
    (listed,) = holdfast("run", "list", "shop:engine", "--json").json
    assert set(listed) == set(RUN_KEYS.split())
    waited = holdfast("run", "wait", "shop:engine", "order-1", "--json").json
    assert set(waited) == {*listed, "result"}
    shown = holdfast("run", "show", "shop:engine", "order-1", "--json").json
    assert set(shown) > set(listed)
    assert {"stages", "steps", "blocked", "jobs", "history_rows", "unread", "annotations", "progress"} < set(
        shown
    )
    assert set(shown["stages"][0]) >= {
        "name",
        "mapped",
        "state",
        "items_done",
        "attempts",
        "duration_seconds",
    }
    assert set(shown["error"]) == {"text", "code", "message", "type", "stage", "item", "attempt"}
    assert (shown["history"], shown["log"], shown["published"]) == (None, None, [])


def test_live_jobs_say_where_they_are(holdfast: CommandLine) -> None:
    holdfast.start("a")
    (job,) = holdfast("run", "show", "shop:engine", "order-1", "--json").json["jobs"]
    assert (job["stage"], job["state"], job["epoch"], job["attempts"], job["host"]) == (
        "check",
        "queued",
        0,
        0,
        None,
    )
    text = holdfast("run", "show", "shop:engine", "order-1", "-v").out
    assert re.search(r"^ +1 +check +queued +0 +0/3 +in queue default$", text, re.MULTILINE)
    text = holdfast("run", "show", "shop:engine", "order-1").out
    assert re.search(r"^ +1 +check +queued +0/3 +in queue default$", text, re.MULTILINE), "epochs are for -v"
    assert re.search(r"^ship +waiting$", text, re.MULTILINE)


def test_a_run_that_failed_says_why(holdfast: CommandLine) -> None:
    holdfast.start("a", "broken")
    holdfast.finish("order-1")
    shown = holdfast("run", "show", "shop:engine", "order-1", "--json").json
    assert shown["error"]["stage"] == "pack"
    assert shown["error"]["text"].startswith("stage 'pack', item 1, attempt 2: ValueError: broken")
    assert [stage["state"] for stage in shown["stages"]] == ["done", "failed", "not reached"]
    text = holdfast("run", "show", "shop:engine", "order-1").out
    assert "Traceback (most recent call last)" in text
    assert "\x1b" not in text, "a message must not command the terminal"


def test_the_history_tells_all_that_happened(holdfast: CommandLine) -> None:
    holdfast.start("flaky")
    holdfast.finish("order-1")
    rows: list[dict[str, Any]] = holdfast(
        "run", "show", "shop:engine", "order-1", "--json", "--history"
    ).json["history"]
    assert [row["type"] for row in rows] == [
        "run.created",
        "stage.completed",
        "stage.expanded",
        "stage.retrying",
        "stage.completed",
        "stage.completed",
        "run.completed",
    ]
    assert rows[4]["payload"] == {"value": "FLAKY", "text": None, "size": 7, "blob": None}
    text = holdfast("run", "show", "shop:engine", "order-1", "--history").out
    assert re.search(
        r"^4 +\S+ \S+ +stage.retrying +pack\[0\] +attempt 1, .*retry in .*ValueError: flaky",
        text,
        re.MULTILINE,
    )


def test_the_log_says_which_stage_spoke(holdfast: CommandLine) -> None:
    holdfast.start("a")
    holdfast.finish("order-1")
    text = holdfast("run", "show", "shop:engine", "order-1", "--log", "--utc").out
    assert re.search(
        r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z  pack\[0\]  packing item=a$", text, re.MULTILINE
    )
    log = holdfast("run", "show", "shop:engine", "order-1", "--log", "--json").json["log"]
    (line,) = log
    assert (line["stage"], line["item"], line["message"], line["fields"]) == (
        "pack",
        0,
        "packing",
        {"item": "a"},
    )


def test_the_output_is_the_stored_json(holdfast: CommandLine) -> None:
    holdfast.start("a", "ü")
    holdfast.finish("order-1")
    assert holdfast("run", "show", "shop:engine", "order-1", "--output").out == '"A+\\u00dc"\n'


@pytest.mark.parametrize(("item", "code"), [("broken", 1), ("a", 4)])
def test_where_there_is_no_output_the_exit_code_says_why(holdfast: CommandLine, item: str, code: int) -> None:
    holdfast.start(item)
    if code == 1:
        holdfast.finish("order-1")
    answer = holdfast("run", "show", "shop:engine", "order-1", "--output")
    assert (answer.code, answer.out) == (code, "")


def test_a_run_that_is_not_there_is_not_found(holdfast: CommandLine) -> None:
    answer = holdfast("run", "show", "shop:engine", "nobody", "--json")
    assert (answer.code, answer.out, answer.error["code"]) == (3, "", "run_not_found")


@pytest.mark.parametrize(
    "words", [("shop:engine",), ("shop:engine", "a", "b"), (), ("shop:engine", "a", "--output", "--log")]
)
def test_wrong_usage_is_told(holdfast: CommandLine, words: tuple[str, ...]) -> None:
    assert holdfast("run", "show", *words).code == 2


def test_the_attempts_of_a_whole_run_are_shown(holdfast: CommandLine) -> None:
    holdfast.start_and_fail(unlucky(), id="u")
    shown = holdfast("run", "show", "shop:engine", "u", "--json").json
    assert (shown["generation"], shown["status"]) == (2, "pending")
    assert (shown["attempt"], shown["max_attempts"], shown["is_retried"]) == (2, 3, False)
    text = holdfast("run", "show", "shop:engine", "u").out
    assert re.search(r"^Attempt +2 of 3$", text, re.MULTILINE)
    assert re.search(r"^Waits for +its start at .+ \(in ", text, re.MULTILINE)
    before = holdfast("run", "show", "shop:engine", "u", "--generation", "1")
    assert re.search(r"^Retried +as generation 2$", before.out, re.MULTILINE)
    why = holdfast("why", "shop:engine", "u").out
    assert "attempt 2 of 3; attempt 1 failed: ValueError: no luck." in why


def test_attempts_without_a_limit_are_shown_without_one(holdfast: CommandLine) -> None:
    holdfast.start_and_fail(STUBBORN(), id="s")
    (job,) = holdfast("run", "show", "shop:engine", "s", "--json").json["jobs"]
    assert (job["attempts"], job["max_attempts"]) == (1, None)
    text = holdfast("run", "show", "shop:engine", "s").out
    assert re.search(r"^ +1 +refuse +sleeping +1 +wakes in ", text, re.MULTILINE)
    assert "attempt 2, no limit; the last attempt failed: ValueError: no luck" in holdfast(
        "why", "shop:engine", "s"
    ).out.replace("\n", " ")


def test_a_job_that_waits_for_shared_slots_names_them(holdfast: CommandLine) -> None:
    for name in ("a", "b"):
        given = ("1", "--id", name, "--attribute", "team=blue")
        assert holdfast("run", "start", "shop:engine", "polish", *given).code == 0

    text = " ".join(holdfast("run", "show", "shop:engine", "b").out.split())
    (job,) = holdfast("run", "show", "shop:engine", "b", "--json").json["jobs"]

    assert "1 of 1 slots of 'bench' for 'blue' in use" in text
    assert job["concurrency_key"] == "/bench/blue"
