"""Durable functions in the command line: their steps, and why they wait."""

import re
import time
from collections.abc import Callable
from typing import Any

from holdfast.hosts.cli.run_show import ENTRIES_SHOWN
from tests.unit.hosts.cli.conftest import CommandLine


def start(holdfast: CommandLine, workflow: str, arguments: str = "{}") -> None:
    answer = holdfast("run", "start", "shop:engine", workflow, arguments, "--id", "a")
    assert answer.code == 0, answer.err


def shown_when(holdfast: CommandLine, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Run a worker until the run satisfies a condition, and return its output."""
    until = time.monotonic() + 20
    with holdfast.working():
        while time.monotonic() < until:
            document: dict[str, Any] = holdfast("run", "show", "shop:engine", "a", "--json").json
            if condition(document):
                return document
    raise AssertionError(holdfast("why", "shop:engine", "a").out)


def has_ended(document: dict[str, Any]) -> bool:
    return document["status"] in ("completed", "failed", "blocked")


def test_a_function_is_shown_with_its_steps_their_tries_and_times(holdfast: CommandLine) -> None:
    start(holdfast, "bill", '{"order": "o-1"}')
    assert "No step has started yet." in holdfast("run", "show", "shop:engine", "a").out
    document = shown_when(holdfast, has_ended)
    (step,) = document["steps"]
    assert (step["call"], step["step"], step["state"], step["attempts"]) == ("1", "charge", "done", 2)
    assert step["site"].startswith("conftest.py:")
    assert step["started_at"] <= step["ended_at"]
    assert step["duration_seconds"] >= 0
    assert "o-1 has no money" in step["error"]
    lines = holdfast("run", "show", "shop:engine", "a").out.splitlines()
    head = lines.index("Steps") + 1
    assert lines[head].split() == ["CALL", "STEP", "STATE", "ATTEMPTS", "DURATION", "ENDED"]
    assert lines[head + 1].split()[:4] == ["1", "charge", "done", "2"]
    assert "no money" not in lines[head + 1], "a step that is done says nothing of a failure that was healed"
    assert "Stages" not in lines


def test_a_function_that_went_on_is_shown_by_generation(holdfast: CommandLine) -> None:
    start(holdfast, "rounds", '{"left": 2}')
    with holdfast.working():
        waited = holdfast("run", "wait", "shop:engine", "a", "--timeout", "20")
    assert (waited.code, waited.out) == (0, '"round and round"\n')
    newest = holdfast("run", "show", "shop:engine", "a").out
    assert "3, continued from generation 2 (shown by --generation 2)" in newest
    document = holdfast("run", "show", "shop:engine", "a", "--json").json
    assert (document["generation"], document["is_continued"]) == (3, False)
    before = holdfast("run", "show", "shop:engine", "a", "--generation", "1", "--history").out
    assert re.search(r"Continued +as generation 2", before)
    assert "run.continued" in before
    assert "Generation" not in before
    refused = holdfast("run", "show", "shop:engine", "a", "--generation", "1", "--output", "--json")
    assert (refused.code, refused.error["code"]) == (4, "run_continued")


def test_a_pipeline_has_no_steps(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    assert holdfast("run", "show", "shop:engine", "a", "--json").json["steps"] is None


def test_a_step_that_fails_for_good_is_told_with_where(holdfast: CommandLine) -> None:
    start(holdfast, "bill", '{"order": "broke"}')
    document = shown_when(holdfast, has_ended)
    assert document["status"] == "failed"
    assert document["error"]["text"].startswith("ValueError: broke has no money")
    out = holdfast("run", "show", "shop:engine", "a", "--history").out
    assert "Step 'charge', call 1, attempt 2:" in out
    assert "in charge" in out
    rows = [line for line in out.splitlines() if " step." in line]
    assert ["step.retrying" in rows[0], "step.failed" in rows[1]] == [True, True]
    assert all(" charge " in row and "call 1 at conftest.py:" in row for row in rows)
    assert all("ValueError: broke has no money" in row for row in rows)


def test_a_function_that_sleeps_says_until_when(holdfast: CommandLine) -> None:
    start(holdfast, "bill", '{"order": "o-1", "naps": 1}')
    shown_when(holdfast, lambda document: any(job["state"] == "sleeping" for job in document["jobs"]))
    reasons = holdfast("why", "shop:engine", "a", "--json").json["reasons"]
    assert [reason["code"] for reason in reasons] == ["waiting"]
    assert "it continues in 59m" in reasons[0]["text"]
    assert reasons[0]["until"] is not None


def test_a_function_that_is_blocked_says_why_and_what_to_do(holdfast: CommandLine) -> None:
    start(holdfast, "lost")
    document = shown_when(holdfast, has_ended)
    assert document["status"] == "blocked"
    assert "asyncio.Event" in document["blocked"]
    assert document["blocked"] in holdfast("run", "show", "shop:engine", "a").out
    why = holdfast("why", "shop:engine", "a").out
    assert document["blocked"] in why
    assert "It resumes when fitting code is deployed." in why
    assert holdfast("run", "resume", "shop:engine", "--all").out == "0 runs would be resumed\n"
    blocked = ("--all", "--status", "blocked", "--yes")
    assert holdfast("run", "resume", "shop:engine", *blocked).out == "1 run was resumed\n"
    assert holdfast("run", "list", "shop:engine", "--json").json[0]["status"] == "running"


def test_of_many_steps_the_last_are_shown(holdfast: CommandLine) -> None:
    start(holdfast, "bills", f'{{"orders": {ENTRIES_SHOWN + 3}}}')
    shown_when(holdfast, has_ended)
    out = holdfast("run", "show", "shop:engine", "a").out
    assert "and 3 earlier steps: --history shows all" in out
    calls = [line.split()[0] for line in out.splitlines() if " file_away " in line]
    assert calls == [str(number) for number in range(4, ENTRIES_SHOWN + 4)]
