"""The cost of `holdfast doctor`: a page of many runs costs no more than a page of few, and locks nothing."""

from collections.abc import Iterator

import pytest

from holdfast.hosts.maintenance.doctor import scan
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements
from tests.integration.counts.test_commands import COMPLETED, FEW, LONG, MANY, SHORT, Worked
from tests.postgres import fresh_database

pytestmark = pytest.mark.sized

PAGE = 50


@pytest.fixture(scope="module")
def shared_database(postgres_url: str) -> Iterator[str]:
    """A database for these tests alone: runs of other tests would be scanned, too."""
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture
def worked(open_engine: OpenEngine) -> Worked:
    worked = Worked(open_engine(LONG, SHORT))
    worked.create(FEW, "long")
    worked.settle(worked.claim(1), COMPLETED)
    worked.claim(1)
    return worked


@pytest.mark.slow
def test_a_page_of_many_runs_costs_no_more_than_one_of_few(
    worked: Worked, statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "PAGE_RUNS", 100_000)
    with statements.of() as few:
        runs = worked.engine.sync.doctor().runs
    worked.create(MANY, "long")
    with statements.of() as many:
        assert worked.engine.sync.doctor().runs == runs + MANY

    assert many.sent == few.sent
    # The runs with their jobs, kin, histories, plans, sessions, orphans; the schema, live sessions, slots twice, sinks,
    # changed limits, namespaces that have schedules only; the queues, their code, and the workers that have it.
    # And what can not be read: of runs, jobs, histories, items, and jobs without a run.
    assert many.queries <= 23


@pytest.mark.slow
def test_many_pages_cost_so_many_times_what_one_costs(
    worked: Worked, statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "PAGE_RUNS", PAGE)
    worked.create(MANY, "long")
    with statements.of() as within:
        runs = worked.engine.sync.doctor(
            all_namespaces=True
        ).runs  # those of other tests are looked through, too

    pages = runs // PAGE + 1
    assert within.queries <= 11 * pages + 6


@pytest.mark.slow
def test_nothing_is_locked_and_nothing_written(worked: Worked, statements: Statements) -> None:
    with statements.of() as within:
        worked.engine.sync.doctor(repair=True)

    sent = "\n".join(within.sent)
    assert not any(word in sent for word in ("FOR UPDATE", "BEGIN IMMEDIATE", "INSERT", "UPDATE ", "DELETE"))
