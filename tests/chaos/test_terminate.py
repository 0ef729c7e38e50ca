"""A run is terminated while its bodies run in another process: they are cancelled within seconds."""

import signal
import time

import pytest

from holdfast.ports.records.run import RunStatus
from tests.chaos.programs import GATE_BOTH, ONE
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_bodies_of_a_run_that_was_ended_are_told_soon(site: Site, how: str) -> None:
    run = site.start(GATE_BOTH(1))
    worker = site.worker("worker")
    site.until_started(2)
    handle = site.engine.handle(GATE_BOTH, run)
    ended_at = time.monotonic()
    ended = handle.terminate(reason="enough") if how == "terminate" else handle.cancel(reason="enough")
    assert ended.changed
    before = site.snapshot()

    site.until(lambda: len(site.book.entries("told")) == 2, "both bodies were told", 5.0)

    assert time.monotonic() - ended_at < 5.0
    assert {told.stage for told in site.book.entries("told")} == {"stand", "stand_async"}
    another = site.start(ONE(1))
    site.until_done()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    key = site.run(run).key
    assert site.snapshot().history[key] == before.history[key]
    assert (site.run(run).status, site.result(another)) == (RunStatus.CANCELLED, 2)
    assert site.book.entries("end", run=run) == []
    # Nobody has tried to settle them: they were given up, not refused.
    assert (worker.said["settled"], worker.said["fenced"]) == (1, 0)
    site.audit()
