"""Which signals stop a worker."""

import signal
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from holdfast.hosts.worker.stop_signals import stop_signals


@contextmanager
def ignored(number: signal.Signals) -> Generator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_stays_so(number: signal.Signals) -> None:
    with ignored(number):
        assert number not in stop_signals()
        assert signal.SIGTERM in stop_signals()


def test_sigterm_always_stops() -> None:
    with ignored(signal.SIGTERM):
        assert signal.SIGTERM in stop_signals()
