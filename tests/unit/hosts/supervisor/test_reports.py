"""Reports of worker processes over a socket."""

import socket
import threading
from collections.abc import Generator

import pytest

from holdfast.hosts.supervisor.reports import ReportReader, ReportServer, WorkerReport

REPORT = WorkerReport(phase="running", session="s", running=3, metrics="# HELP a é\n" * 50_000)


@pytest.fixture
def pair() -> Generator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_report_arrives_as_it_was_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    wanted = list[bool]()

    def report(metrics: bool) -> WorkerReport:
        wanted.append(metrics)
        return REPORT

    ReportServer(pair[1], report, abandoned=lambda: None).start()
    reader = ReportReader(pair[0])
    assert reader.read_report(metrics=True, timeout=30) == REPORT
    assert reader.read_report(metrics=False, timeout=30) == REPORT
    assert wanted == [True, False]


def test_a_late_report_is_not_taken_for_the_next_one(pair: tuple[socket.socket, socket.socket]) -> None:
    reports = [WorkerReport(phase="running", running=number) for number in (1, 2)]
    reader = ReportReader(pair[0])
    assert reader.read_report(metrics=False, timeout=0.01) is None
    ReportServer(pair[1], lambda _: reports.pop(0), abandoned=lambda: None).start()
    assert reader.read_report(metrics=False, timeout=30) == WorkerReport(phase="running", running=2)
    assert reader.answers == 2


def test_a_process_that_has_ended_has_no_report(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    reader = ReportReader(pair[0])
    assert reader.read_report(metrics=False, timeout=30) is None
    assert reader.read_report(metrics=False, timeout=30) is None


def test_a_worker_notices_that_its_supervisor_has_ended(pair: tuple[socket.socket, socket.socket]) -> None:
    gone = threading.Event()
    ReportServer(pair[1], lambda _: REPORT, abandoned=gone.set).start()
    pair[0].close()
    assert gone.wait(30)
