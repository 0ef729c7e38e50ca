"""A body misses its heartbeats because it hangs or its process is stopped: it is lost within seconds."""

import signal
from typing import cast

from holdfast.ports.json import parse
from tests.chaos.faults import Fault
from tests.chaos.programs import PAGES
from tests.chaos.site import Site


def test_a_process_that_is_stopped_loses_its_silent_body_long_before_its_lease(site: Site) -> None:
    run = site.start(PAGES(60))
    late = site.worker("late", faults=[Fault("body", do="stop")], lease=300.0)
    site.until(late.is_stopped, "the worker has stopped itself")
    site.worker("other", lease=10.0)

    site.until_done(60)

    first, end = _result(site, run)
    assert first >= 1, "the second attempt began anew"
    assert (end, _codes(site, run)) == (60, ["heartbeat_timeout"])
    before = site.snapshot()
    site.open_gate()
    late.signal(signal.SIGCONT)
    late.signal(signal.SIGTERM)
    assert late.wait() == 0
    assert late.said["settled"] == 0
    assert site.snapshot().history == before.history
    site.audit()


def test_a_body_that_hangs_is_left_behind_and_its_worker_takes_it_up_again(site: Site) -> None:
    run = site.start(PAGES(60))
    worker = site.worker("worker", lease=10.0)

    site.until_done(60)

    first, _ = _result(site, run)
    assert first >= 1
    assert _codes(site, run) == ["heartbeat_timeout"]
    assert {entry.pid for entry in site.book.entries()} == {worker.pid}
    site.audit()


def _result(site: Site, run: str) -> tuple[int, int]:
    first, end = cast("list[int]", site.result(run))
    return first, end


def _codes(site: Site, run: str) -> list[str]:
    rows = (row for row in site.history(run) if row.type == "stage.retrying")
    return [str(parse(row.data or "{}")["code"]) for row in rows]
