"""Output for people: durations, instants, untrusted text, and logging."""

import logging
from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from holdfast.hosts.cli.console import Screen, one_line, safe
from holdfast.hosts.cli.process_logs import ScreenHandler, log_all, stop_logging
from holdfast.hosts.inspection.json_form import json_form
from holdfast.hosts.text import format_duration, format_instant
from holdfast.ports.clock import instant
from holdfast.ports.json import parse

SECOND = 1_000_000
HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "0ms"),
        (999, "<1ms"),
        (1_000, "1ms"),
        (999_999, "999ms"),
        (SECOND, "1.0s"),
        (9_999_999, "9.9s"),
        (10 * SECOND, "10s"),
        (59_999_999, "59s"),
        (60 * SECOND, "1m"),
        (192 * SECOND, "3m 12s"),
        (HOUR - 1, "59m 59s"),
        (HOUR, "1h"),
        (HOUR + 60 * SECOND, "1h 1m"),
        (24 * HOUR, "1d"),
        (52 * HOUR, "2d 4h"),
        (-3 * SECOND, "-3.0s"),
    ],
)
def test_lengths_of_time_are_said_in_two_units_at_most(length: int, text: str) -> None:
    assert format_duration(length) == text


def test_instants_are_shown_in_a_zone_and_written_in_utc() -> None:
    at = 1_782_907_445_678_901
    assert format_instant(at, UTC) == "2026-07-01 12:04:05Z"
    assert format_instant(at, timezone(timedelta(hours=2)), fine=True) == "2026-07-01 14:04:05.678"
    assert format_instant(at, ZoneInfo("America/New_York")) == "2026-07-01 08:04:05"
    assert json_form(instant(at)) == "2026-07-01T12:04:05.678901Z"


def test_texts_from_anywhere_command_no_terminal() -> None:
    assert safe("a\x1b[31mb\x9bc\u202ed\r\te") == "a\\u001b[31mb\\u009bc\\u202ed\\u000d\te"
    assert one_line("first\nsecond") == "first…"
    assert one_line("  ") == ""


def test_a_log_is_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    handler = ScreenHandler(Screen(utc=True))
    record = logging.makeLogRecord(
        {
            "name": "holdfast.worker",
            "levelno": 30,
            "levelname": "WARNING",
            "msg": "job %s",
            "args": ("7",),
            "created": 0,
        }
    )
    handler.emit(record)
    assert capsys.readouterr().err == "1970-01-01 00:00:00Z  WARNING  job 7\n"


def test_a_log_is_lines_of_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    handler = ScreenHandler(Screen(as_json=True))
    try:
        raise ValueError("oh")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    handler.emit(
        logging.makeLogRecord(
            {"name": "x", "levelname": "ERROR", "msg": "bad", "created": 1, "exc_info": info}
        )
    )
    line = parse(capsys.readouterr().err)
    assert (line["at"], line["level"], line["logger"], line["message"]) == (
        "1970-01-01T00:00:01.000000Z",
        "error",
        "x",
        "bad",
    )
    assert "ValueError: oh" in line["traceback"]


def test_logging_that_is_set_up_already_stays(capsys: pytest.CaptureFixture[str]) -> None:
    before = list(logging.getLogger().handlers)
    assert before, "pytest has handlers there"
    log_all(Screen(), verbose=False)
    assert logging.getLogger().handlers == before
    stop_logging()
