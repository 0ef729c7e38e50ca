"""Untrusted text in Holdfast's logs stays on one line, whatever handlers a program has."""

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.hosts.cli.console import Screen
from holdfast.hosts.cli.process_logs import ScreenHandler, stop_logging
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.safe_logs import LOGGERS

ROOT = Path(__file__).resolve().parents[4]
FORGED = "no\n2026-01-01 00:00:00,000 INFO worker stopped\r\x1b[2J\u202e\u2028\x85\u200b"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The output of a program's own handler, as `logging.basicConfig` creates one."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("holdfast")
    logger.addHandler(handler)
    Engine.open("memory://")
    yield stream
    logger.removeHandler(handler)


def test_all_loggers_are_known() -> None:
    """A logger missing there would write unescaped lines."""
    found = {
        name
        for folder in ("adapters", "hosts", "testing")
        for path in (ROOT / folder).glob("**/*.py")
        for name in re.findall(r'getLogger\("(holdfast\.[\w.]+)"\)', path.read_text())
    }

    assert found <= set(LOGGERS)
    assert not [
        path
        for folder in ("adapters", "hosts")
        for path in (ROOT / folder).glob("**/*.py")
        if "getLogger(__name__)" in path.read_text()
    ]


@pytest.mark.parametrize("name", LOGGERS)
def test_a_record_is_one_line(written: io.StringIO, name: str) -> None:
    logging.getLogger(name).warning("sink %r takes no events now: %s", FORGED, ValueError(FORGED))

    assert len(written.getvalue().splitlines()) == 1
    assert written.getvalue().strip().isprintable()


def test_what_is_no_text_of_others_is_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    Engine.open("memory://")
    logging.getLogger("holdfast.events").warning("%s of %s", 1, "größe")

    assert caplog.records[-1].args == (1, "größe")


def test_a_traceback_is_indented(written: io.StringIO) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        logging.getLogger("holdfast.worker").exception("failed")

    first, *others = written.getvalue().rstrip("\n").split("\n")
    assert first.endswith("failed")
    assert len(others) > 3
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_a_worker_shows_a_record_of_anybody_as_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    handler = ScreenHandler(Screen(utc=True))
    logger = logging.getLogger("app")
    logger.addHandler(handler)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("a message\nof two lines %s", FORGED)
    finally:
        logger.removeHandler(handler)
        stop_logging()

    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])


def test_whatever_is_printed_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a command forgot to escape."""
    screen = Screen()
    screen.write(f"a {FORGED}")
    screen.note(FORGED)

    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).split("\n"))
