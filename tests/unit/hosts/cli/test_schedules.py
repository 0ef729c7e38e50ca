"""`holdfast schedule`: list, show, why, create, update, pause, resume, trigger, backfill, remove, apply."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from holdfast import Cron, Engine, Every, Schedule
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.inspection.schedules import read_schedule
from holdfast.kernel.commands import ScheduleFire
from holdfast.kernel.schedules.row_data import policy_of, specs_of, start_of
from holdfast.ports.changes import Update
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.structs import evolve
from holdfast.ports.tables import SCHEDULES
from tests.unit.hosts.cli.conftest import NEGATE, CommandLine, bill

ENGINE = "shop:engine"
NIGHTLY = Schedule("nightly", bill("emea"), when=Cron("30 2 * * *"))
HOURLY = Schedule("hourly", NEGATE(1), when=Every(3_600))


def changed_row(holdfast: CommandLine, name: str, **fields: Any) -> None:
    """Write fields of a schedule's row past the rules."""
    core = holdfast.engine().core
    row = read_schedule(core, name)

    def write(tx: Transaction) -> None:
        tx.lock(SCHEDULES, [row.key])
        tx.apply([Update(attrs.evolve(row, **fields))])

    core.stores.persistence.transact(write)


def row_of(holdfast: CommandLine, name: str) -> ScheduleRow:
    return read_schedule(holdfast.engine().core, name)


def create(holdfast: CommandLine, *schedules: Schedule[object]) -> None:
    for schedule in schedules or (NIGHTLY, HOURLY):
        holdfast.engine().sync.create_schedule(schedule)


# Read -----------------------------------------------------------------------------------------------------------


def test_schedules_are_listed_by_name(holdfast: CommandLine) -> None:
    assert "No schedules." in holdfast("schedule", "list", ENGINE).err
    create(holdfast)
    answer = holdfast("schedule", "list", ENGINE, "--utc")
    assert answer.code == Exit.OK
    head, hourly, nightly = answer.out.splitlines()
    assert head.split() == ["NAME", "WORKFLOW", "STATE", "WHEN", "NEXT", "RUNS", "SKIPPED", "MISSED"]
    assert re.fullmatch(r"hourly +negate +active +every 1h +\d{4}-\d\d-\d\d \d\d:00:00Z +0 +0 +0", hourly)
    assert re.fullmatch(r"nightly +bill +active +30 2 \* \* \* \(UTC\) +\S+ 02:30:00Z +0 +0 +0", nightly)
    assert [one["name"] for one in holdfast("schedule", "list", ENGINE, "--json").json] == [
        "hourly",
        "nightly",
    ]


def test_a_schedule_is_shown_with_its_times_and_changes(holdfast: CommandLine) -> None:
    limits = Schedule(
        "limited",
        bill("emea"),
        when=[Cron("@daily"), Every(timedelta(days=1, hours=2, minutes=3, seconds=4))],
        missed="all",
        missed_within=7_200,
        jitter=90,
        pause_after_failures=3,
        max_runs=9,
    )
    create(holdfast, limits)
    holdfast("schedule", "trigger", ENGINE, "limited")
    assert holdfast("schedule", "trigger", ENGINE, "limited", "--actor", "bob").code == Exit.REFUSED
    holdfast("schedule", "pause", ENGINE, "limited", "--reason", "it is\nlate", "--actor", "ann")
    out = holdfast("schedule", "show", ENGINE, "limited", "--utc").out
    facts = dict(
        re.split(r"  +", line, maxsplit=1) for line in out.partition("\n\n")[0].splitlines() if line[0] != " "
    )
    assert facts["Schedule"] == "limited"
    assert facts["Workflow"] == "bill"
    assert '"order":"emea"' in facts["Input"]
    assert facts["When"] == "@daily (UTC)"
    assert "every 1d 2h 3m 4s" in out
    assert facts["State"] == "paused"
    assert re.fullmatch(r"\S+ \S+Z by user ann: it is\\nlate", facts["Paused"])
    assert facts["Missed times"] == "all, late by 2h at most"
    assert facts["Jitter"] == "up to 1m 30s"
    assert facts["Pauses after"] == "3 failures in a row"
    assert facts["Runs started"] == "1 of 9"
    assert facts["Times skipped"] == "1"
    assert facts["Made"] == "at run time"
    assert "Next" not in facts
    assert re.search(r"^\S+ \S+Z  started  manual  limited/manual/\w+$", out, re.MULTILINE)
    assert re.search(r"^\S+ \S+Z  skipped  manual  limited/manual/\w+$", out, re.MULTILINE)
    changes = out.partition("\nChanges\n")[2]
    assert re.findall(r"created|triggered|paused", changes) == ["created", "triggered", "triggered", "paused"]


def test_a_schedule_says_why_it_waits(holdfast: CommandLine) -> None:
    create(holdfast)
    first, reason = holdfast("schedule", "why", ENGINE, "nightly", "--utc").out.splitlines()
    assert first == "Schedule nightly is active."
    assert re.fullmatch(r"- The next run starts in .+ \(at \S+ 02:30:00Z\)\.", reason)
    document = holdfast("schedule", "why", ENGINE, "nightly", "--json").json
    assert (document["name"], document["state"]) == ("nightly", "active")
    assert [one["code"] for one in document["reasons"]] == ["next"]
    assert document["reasons"][0]["until"].endswith("T02:30:00.000000Z")


@pytest.mark.parametrize("command", ["show", "why", "pause", "resume", "remove", "trigger", "update"])
def test_a_schedule_that_does_not_exist_is_not_found(holdfast: CommandLine, command: str) -> None:
    create(holdfast)
    answer = holdfast("schedule", command, ENGINE, "nightl", "--json")
    assert answer.code == Exit.NOT_FOUND
    expected = {
        "code": "schedule_not_found",
        "message": "there is no schedule 'nightl'; did you mean 'nightly'?",
        "exit_code": 3,
    }
    assert answer.error == expected
    assert "`holdfast schedule list` lists" in holdfast("schedule", command, ENGINE, "xxxxxxxxx").err


# Create and update ----------------------------------------------------------------------------------------------


def test_a_schedule_is_created_with_all_options(holdfast: CommandLine) -> None:
    answer = holdfast(
        *("schedule", "create", ENGINE, "weekly", "bill", '{"order": "emea"}'),
        *("--cron", "0 9 * * MON", "--cron", "30 1-3 1 * *", "--every", "6h", "--timezone", "Europe/Paris"),
        *(
            "--gap",
            "skip",
            "--fold",
            "last",
            "--days",
            "both",
            "--except",
            "2026-12-25",
            "--except",
            "2027-01-01",
        ),
        *("--starts", "2026-01-01T00:00Z", "--ends", "2099-01-01T00:00Z"),
        *("--overlap", "queue", "--missed", "all", "--missed-within", "2d", "--jitter", "10m"),
        *("--pause-after-failures", "4", "--max-runs", "100", "--queue", "slow", "--priority", "-5"),
        *("--attribute", "team=a", "--attribute", "tier=1", "--deadline", "90m", "--json", "--actor", "ann"),
    )
    assert answer.code == Exit.OK, answer.err
    assert (answer.json["name"], answer.json["state"]) == ("weekly", "active")
    row = row_of(holdfast, "weekly")
    made = specs_of(row.timing)
    bounds = {"start": datetime(2026, 1, 1, tzinfo=UTC), "end": datetime(2099, 1, 1, tzinfo=UTC)}
    expected = Schedule(
        "weekly",
        bill("emea"),
        when=[
            Cron(
                ["0 9 * * MON", "30 1-3 1 * *"],
                zone="Europe/Paris",
                gap="skip",
                fold="last",
                days="both",
                except_on=[date(2026, 12, 25), date(2027, 1, 1)],
                **bounds,
            ),
            Every(timedelta(hours=6), **bounds),
        ],
        overlap="queue",
        missed="all",
        missed_within=timedelta(days=2),
        jitter=600,
        pause_after_failures=4,
        max_runs=100,
    )
    assert made == expected.when
    assert policy_of(row) == expected.policy
    start = start_of(row)
    assert (start.queue, start.priority, start.deadline) == ("slow", -5, 5_400_000_000)
    assert start.attributes == '{"team":"a","tier":"1"}'
    (created,) = answer.json["changes"]
    assert (created["change"], created["actor"]) == ("created", "user ann")


def test_a_schedule_of_a_name_that_exists_is_refused(holdfast: CommandLine) -> None:
    create(holdfast)
    answer = holdfast("schedule", "create", ENGINE, "nightly", "nothing", "--every", "1h", "--json")
    assert (answer.code, answer.error["code"]) == (Exit.REFUSED, "schedule_exists")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "NAME and WORKFLOW is missing"),
        (("x",), "WORKFLOW is missing"),
        (("x", "nothing"), "say when: --cron TEXT or --every LENGTH"),
        (("x", "nothing", "1", "2"), "unexpected argument '2'; quote JSON"),
        (("x", "nothing", "--every", "1h", "--timezone", "UTC"), "--timezone needs --cron"),
        (("x", "nothing", "--every", "1h", "--except", "2026-12-25"), "--except needs --cron"),
        (("x", "nothing", "--cron", "61 * * * *"), "61"),
        (("x", "nothing", "--cron", "* * * * *", "--timezone", "Europe/Pariss"), "Europe/Pariss"),
        (("x", "nothing", "--cron", "* * * * *", "--except", "Friday"), "'Friday' is not a date"),
        (("x", "nothing", "--every", "soon"), "'soon' is not a duration"),
        (("x", "nothing", "--cron", "0 0 * * *", "--ends", "2001-01-01T00:00Z"), "never fires after now"),
        (("x", "nothing", "--cron", "0 0 * * *", "--overlap", "sometimes"), "sometimes"),
        (("x", "nothing", "--every", "1h", "--missed-within", "0s"), "missed_within"),
        (("x", "nothing", "--every", "1h", "--attribute", "a"), "write NAME=TEXT"),
        (("x", "negate", "--every", "1h"), "INPUT is missing"),
        (("x", "negate", '"a"', "--every", "1h"), "invalid value for the input of workflow 'negate'"),
        (("x", "negate", "1", "--input-file", "x.json", "--every", "1h"), "not both"),
    ],
)
def test_invalid_options_are_named(holdfast: CommandLine, arguments: tuple[str, ...], problem: str) -> None:
    answer = holdfast("schedule", "create", ENGINE, *arguments)
    assert answer.code == Exit.USAGE
    assert problem in answer.err
    assert "No schedules." in holdfast("schedule", "list", ENGINE).err


def test_an_update_changes_what_is_given(holdfast: CommandLine) -> None:
    when = Cron(["0 9 * * *", "0 17 * * *"], zone="Europe/Paris", except_on=[date(2026, 12, 25)])
    create(
        holdfast,
        Schedule(
            "x",
            bill("emea"),
            when=[when, Every(60)],
            jitter=30,
            attributes={"a": "b"},
            headers={"locale": "de"},
            priority=3,
            max_runs=7,
        ),
    )
    before = row_of(holdfast, "x")
    answer = holdfast("schedule", "update", ENGINE, "x", "--jitter", "40s", "--queue", "slow")
    assert answer.out.startswith("x was updated; its next time is ")
    after = row_of(holdfast, "x")
    assert (after.timing, after.next_at) == (before.timing, before.next_at)
    assert policy_of(after) == evolve(policy_of(before), jitter=40_000_000)
    assert start_of(after) == evolve(start_of(before), queue="slow")

    assert (
        holdfast("schedule", "update", ENGINE, "x", '{"order": "us"}', "--timezone", "Asia/Tokyo").code
        == Exit.OK
    )
    row = row_of(holdfast, "x")
    assert specs_of(row.timing) == (evolved(when, zone="Asia/Tokyo"), Every(60))
    assert start_of(row).input.inline == '{"naps":0,"order":"us"}'

    assert holdfast("schedule", "update", ENGINE, "x", "--cron", "5 5 * * *", "--every", "2h").code == Exit.OK
    row = row_of(holdfast, "x")
    assert specs_of(row.timing) == (evolved(when, zone="Asia/Tokyo", text="5 5 * * *"), Every(7_200))

    assert start_of(row).headers == '{"locale":"de"}'
    assert holdfast("schedule", "update", ENGINE, "x", "--header", "locale=en").code == Exit.OK
    assert start_of(row_of(holdfast, "x")).headers == '{"locale":"en"}'

    names = ("except", "attribute", "header", "priority", "max-runs")
    clear = [word for name in names for word in ("--clear", name)]
    assert holdfast("schedule", "update", ENGINE, "x", *clear).code == Exit.OK
    row = row_of(holdfast, "x")
    assert specs_of(row.timing) == (Cron("5 5 * * *", zone="Asia/Tokyo"), Every(7_200))
    assert (start_of(row).attributes, start_of(row).priority, policy_of(row).runs_max) == (None, None, None)
    assert start_of(row).headers is None
    assert policy_of(row).jitter == 40_000_000
    assert [one["change"] for one in holdfast("schedule", "show", ENGINE, "x", "--json").json["changes"]] == [
        "created",
        *["updated"] * 5,
    ]


def evolved(cron: Cron, **changes: Any) -> Cron:
    return attrs.evolve(cron, **changes)


def test_an_update_names_what_it_can_not_know(holdfast: CommandLine) -> None:
    zones = [Cron("0 9 * * *", zone="Europe/Paris"), Cron("0 9 * * *", zone="Asia/Tokyo")]
    create(
        holdfast, Schedule("two", bill("emea"), when=zones), Schedule("every", bill("emea"), when=Every(60))
    )
    differ = holdfast("schedule", "update", ENGINE, "two", "--cron", "0 8 * * *")
    assert (differ.code, "differ in --timezone: give it" in differ.err) == (Exit.USAGE, True)
    needs = holdfast("schedule", "update", ENGINE, "every", "--timezone", "UTC")
    assert (needs.code, "--timezone needs --cron" in needs.err) == (Exit.USAGE, True)
    both = holdfast("schedule", "update", ENGINE, "every", "--max-runs", "3", "--clear", "max-runs")
    assert (both.code, "--max-runs or --clear max-runs, not both" in both.err) == (Exit.USAGE, True)


def test_a_paused_schedule_stays_paused_when_it_is_updated(holdfast: CommandLine) -> None:
    create(holdfast)
    holdfast("schedule", "pause", ENGINE, "nightly")
    answer = holdfast("schedule", "update", ENGINE, "nightly", "--cron", "0 4 * * *")
    assert answer.out == "nightly was updated; it is paused\n"


# Act ------------------------------------------------------------------------------------------------------------


def test_a_schedule_is_paused_and_resumed(holdfast: CommandLine) -> None:
    create(holdfast)
    assert (
        holdfast("schedule", "pause", ENGINE, "nightly", "--reason", "why not").out == "nightly is paused\n"
    )
    assert holdfast("schedule", "pause", ENGINE, "nightly").out == "nightly is already paused\n"
    paused = holdfast("schedule", "show", ENGINE, "nightly", "--json").json
    assert (paused["state"], paused["pause_reason"], paused["next_at"]) == ("paused", "why not", None)
    resumed = holdfast("schedule", "resume", ENGINE, "nightly", "--json").json
    assert (resumed["state"], resumed["paused_at"]) == ("active", None)
    again = holdfast("schedule", "resume", ENGINE, "nightly").out
    assert again.startswith("nightly is already active; its next time is ")


@pytest.mark.parametrize("make_up", [True, False])
def test_a_resume_makes_up_for_missed_times_on_request(holdfast: CommandLine, make_up: bool) -> None:
    create(holdfast)
    holdfast("schedule", "pause", ENGINE, "hourly")
    now = holdfast.engine().core.clock.now()
    long_ago = int((now - timedelta(hours=5)).timestamp() * 1_000_000)
    changed_row(holdfast, "hourly", handled_until=long_ago)
    holdfast("schedule", "resume", ENGINE, "hourly", *["--make-up"] * make_up)
    fired = holdfast.engine().core.kernel.dispatch(ScheduleFire(namespace="default", workflows=("negate",)))
    assert len(fired.runs) == make_up


def test_a_trigger_prints_the_run_that_it_starts(holdfast: CommandLine) -> None:
    create(holdfast)
    answer = holdfast("schedule", "trigger", ENGINE, "nightly")
    assert answer.code == Exit.OK
    run_id = answer.out.strip()
    why = holdfast("why", ENGINE, run_id, "--utc").out.splitlines()
    assert re.fullmatch(r"Started by schedule nightly, triggered by hand at \S+ \S+Z\.", why[0])
    refused = holdfast("schedule", "trigger", ENGINE, "nightly", "--json")
    assert (refused.code, refused.error["code"]) == (Exit.REFUSED, "schedule_skipped")
    assert f"run {run_id!r} has not ended, and overlap is skip" in refused.error["message"]
    beside = holdfast("schedule", "trigger", ENGINE, "nightly", "--overlap", "allow", "--json").json
    assert beside["run_id"].startswith("nightly/manual/")
    assert beside["skipped_for"] is None


def test_a_backfill_starts_what_has_no_run(holdfast: CommandLine) -> None:
    create(holdfast)
    window = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-04T00:00Z")
    days = [f"nightly/2026-01-0{day}T02:30:00Z" for day in (1, 2, 3)]
    dry = holdfast("schedule", "backfill", ENGINE, "nightly", *window, "--dry-run")
    assert (dry.out.split(), "3 runs would be started." in dry.err) == (days, True)
    assert holdfast("run", "list", ENGINE, "--json").json == []
    first = holdfast(
        "schedule",
        "backfill",
        ENGINE,
        "nightly",
        "--from",
        "2026-01-02T00:00Z",
        *window[2:3],
        "2026-01-03T00:00Z",
    )
    assert (first.out.split(), "1 run started." in first.err) == (days[1:2], True)
    assert holdfast("schedule", "backfill", ENGINE, "nightly", *window, "--dry-run", "--json").json == {
        "name": "nightly",
        "dry_run": True,
        "runs": [days[0], days[2]],
    }
    assert holdfast("schedule", "backfill", ENGINE, "nightly", *window, "--overlap", "allow").out.split() == [
        days[0],
        days[2],
    ]
    assert holdfast("schedule", "backfill", ENGINE, "nightly", *window).out == ""
    why = holdfast("why", ENGINE, days[1], "--utc").out
    assert why.startswith("Started by schedule nightly, in a backfill of 2026-01-02 02:30:00Z.\n")
    assert re.search(
        r"Started by +schedule nightly, in a backfill of 2026-01-02 02:30:00Z",
        holdfast("run", "show", ENGINE, days[1], "--utc").out,
    )


def test_a_backfill_covers_a_bounded_time_in_the_past(holdfast: CommandLine) -> None:
    create(holdfast)
    backfill = partial(holdfast, "schedule", "backfill", ENGINE, "nightly")
    assert "--from" in backfill().err
    for window, problem in (
        (("--from", "2026-01-02T00:00Z", "--to", "2026-01-01T00:00Z"), "it must be after start"),
        (("--from", "7d", "--to", "2099-01-01T00:00Z"), "it must not be in the future"),
        (("--from", "1975-01-01T00:00Z"), "has more than 10,000 nominal times"),
    ):
        answer = backfill(*window)
        assert (answer.code, problem in answer.err) == (Exit.USAGE, True), answer.err


def test_a_schedule_is_removed(holdfast: CommandLine) -> None:
    create(holdfast)
    answer = holdfast("schedule", "remove", ENGINE, "nightly")
    assert (answer.code, answer.out, answer.err) == (Exit.OK, "nightly was removed\n", "")
    assert [one["name"] for one in holdfast("schedule", "list", ENGINE, "--json").json] == ["hourly"]


# Code -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("create", ("nightly", "bill", "--every", "1h")),
        ("update", ("nightly",)),
        ("trigger", ("nightly",)),
        ("backfill", ("nightly", "--from", "7d")),
        ("apply", ()),
    ],
)
def test_what_needs_code_says_so(holdfast: CommandLine, command: str, words: tuple[str, ...]) -> None:
    for options in (("--url", "sqlite:///x.db", *words), ("sqlite:///x.db", *words)):
        answer = holdfast("schedule", command, *options)
        assert answer.code == Exit.USAGE
        assert f"has no workflows: `holdfast schedule {command}` needs MODULE:ENGINE" in answer.err
    unnamed = holdfast("schedule", command, *words)
    assert (unnamed.code, "set HOLDFAST_ENGINE" in unnamed.err) == (Exit.USAGE, True)


def test_commands_that_need_no_code_take_a_store(holdfast: CommandLine, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with Engine.open(url, workflows=[bill]).sync as engine:
        engine.create_schedule(NIGHTLY)
    of_store = ("--url", url)
    assert holdfast("schedule", "list", *of_store, "--json").json[0]["name"] == "nightly"
    assert holdfast("schedule", "show", *of_store, "nightly").code == Exit.OK
    assert holdfast("schedule", "why", *of_store, "nightly").code == Exit.OK
    assert holdfast("schedule", "pause", *of_store, "nightly").out == "nightly is paused\n"
    assert holdfast("schedule", "resume", *of_store, "nightly").code == Exit.OK
    dry = holdfast(
        *("schedule", "backfill", *of_store, "nightly", "--dry-run", "--from", "2026-01-01T00:00Z"),
        *("--to", "2026-01-02T00:00Z"),
    )
    assert dry.out == "nightly/2026-01-01T02:30:00Z\n"
    assert holdfast("schedule", "remove", *of_store, "nightly").out == "nightly was removed\n"


def test_an_engine_without_the_workflow_is_named(holdfast: CommandLine) -> None:
    create(holdfast)
    changed_row(holdfast, "nightly", workflow="unknown")
    answer = holdfast("schedule", "update", ENGINE, "nightly", "--jitter", "1m", "--json")
    assert (answer.code, answer.error["code"]) == (Exit.NOT_FOUND, "unknown_workflow")


# Declared -------------------------------------------------------------------------------------------------------


def names(holdfast: CommandLine) -> list[str]:
    return [one["name"] for one in holdfast("schedule", "list", ENGINE, "--json").json]


def test_commands_do_not_apply_what_the_code_declares(holdfast: CommandLine) -> None:
    holdfast.schedules = [NIGHTLY]
    assert names(holdfast) == []
    holdfast("run", "start", ENGINE, "nothing")
    holdfast("schedule", "create", ENGINE, "other", "nothing", "--every", "1h")
    holdfast("doctor", ENGINE)
    assert names(holdfast) == ["other"]
    with holdfast.engine().sync as engine:  # a program does
        assert [one.name for one in engine.schedules()] == ["nightly", "other"]


def test_what_the_code_declares_is_applied_on_request(holdfast: CommandLine) -> None:
    holdfast.schedules = [NIGHTLY, HOURLY]
    dry = holdfast("schedule", "apply", ENGINE, "--dry-run")
    assert dry.out == "nightly: would be created\nhourly: would be created\n"
    assert names(holdfast) == []
    assert holdfast("schedule", "apply", ENGINE).out == "nightly: created\nhourly: created\n"
    holdfast.schedules = [Schedule("nightly", bill("us"), when=Cron("30 2 * * *"))]
    assert holdfast("schedule", "apply", ENGINE, "--no-prune").out == "nightly: updated\n"
    assert holdfast("schedule", "apply", ENGINE, "--dry-run", "--json").json == [
        {"name": "nightly", "change": "unchanged"},
        {"name": "hourly", "change": "removed"},
    ]
    assert holdfast("schedule", "apply", ENGINE).out == "nightly: unchanged\nhourly: removed\n"
    assert re.search(r"Made +declared in code", holdfast("schedule", "show", ENGINE, "nightly").out)
    assert "Code declares this schedule" in holdfast("schedule", "remove", ENGINE, "nightly").err


def test_an_engine_that_declares_nothing_removes_nothing(holdfast: CommandLine) -> None:
    holdfast.schedules = [NIGHTLY]
    holdfast("schedule", "apply", ENGINE)
    holdfast.schedules = None
    answer = holdfast("schedule", "apply", ENGINE)
    assert (answer.code, "declares no schedules" in answer.err) == (Exit.USAGE, True)
    assert holdfast("db", "upgrade", ENGINE, "--json").json["schedules"] == []
    assert names(holdfast) == ["nightly"]
    holdfast.schedules = []
    assert holdfast("schedule", "apply", ENGINE).out == "nightly: removed\n"


def test_an_upgrade_applies_what_the_code_declares(holdfast: CommandLine) -> None:
    holdfast.schedules = [NIGHTLY]
    out = holdfast("db", "upgrade", ENGINE, "--actor", "ann").out
    assert out.endswith("\nApplied the schedules that the code declares:\nnightly: created\n")
    (created,) = holdfast("schedule", "show", ENGINE, "nightly", "--json").json["changes"]
    assert created["actor"] == "user ann"
    assert holdfast("db", "upgrade", ENGINE, "--json").json["schedules"] == [
        {"name": "nightly", "change": "unchanged"}
    ]
