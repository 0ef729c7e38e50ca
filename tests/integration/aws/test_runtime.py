"""The handlers under Lambda's own runtime client: bootstrap, events, contexts, deadlines, shutdown."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from holdfast import Engine
from holdfast.kernel.commands import LeaseReapStale, SessionClose
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunName
from tests.aws import REGION, FakeAws
from tests.event_source_mapping import EventSource
from tests.integration.aws.functions import BLOCKS, WHERE, counts, open_engine
from tests.postgres import plain_url
from tests.runtime_api import Answer, Function

pytestmark = pytest.mark.service

Start = Callable[..., Function]


@pytest.fixture
def environment(
    aws: FakeAws, shared_database: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    _, url = aws.new_queue()
    joint = "&" if "?" in shared_database else "?"
    values = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": aws.url,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "DATABASE_URL": f"{shared_database}{joint}application_name={namespace}",
        "NAMESPACE": namespace,
        "QUEUE_URL": url,
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return values


@pytest.fixture
def engine(
    environment: dict[str, str], shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """The engine that starts runs, outside of the functions."""
    monkeypatch.setenv("DATABASE_URL", shared_database)
    engine = open_engine()
    with engine.sync:
        yield engine


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(handler: str = "on_jobs", *, seconds: float = 30.0) -> Function:
            more = {**environment, "LIMIT": str(seconds)}
            return stack.enter_context(
                Function(f"tests.integration.aws.functions.{handler}", seconds=seconds, environment=more)
            )

        yield begin


def source_of(aws: FakeAws, invoke: Callable[[Any], Answer], batch: int = 10) -> EventSource:
    def invoked(event: Any) -> Any:
        answer = invoke(event)
        assert answer.error is None
        return None if answer.killed else answer.value

    return EventSource(aws.client("sqs"), os.environ["QUEUE_URL"], invoked, batch=batch)


@pytest.mark.slow
def test_one_process_serves_batch_after_batch_and_is_frozen_between_them(
    aws: FakeAws, engine: Engine, start: Start, shared_database: str, namespace: str
) -> None:
    """With one event loop and one connection, without a listener."""
    function = start()
    source = source_of(aws, function.invoke, batch=2)
    runs = [engine.sync.start(WHERE(number), id=str(number)) for number in range(6)]
    while source.poll():
        pass

    assert function.invocations == 3
    found = [run.result() for run in runs]
    assert len({process for process, _, _ in found}) == 1
    assert sorted(count for _, count, _ in found) == [1, 2, 3, 4, 5, 6]
    with psycopg.connect(plain_url(shared_database)) as connection:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        (connections,) = connection.execute(asked, (namespace,)).fetchone() or (0,)
    assert connections == 1


@pytest.mark.slow
def test_an_event_of_another_service_is_an_error(start: Start, engine: Engine) -> None:
    function = start()
    assert function.invoke({"Records": [{"s3": {}}]}) == Answer(error="InvalidMessageError")
    assert function.invoke({"Records": []}) == Answer({"batchItemFailures": []})


@pytest.mark.slow
def test_a_timer_gets_what_was_done(start: Start, engine: Engine) -> None:
    answer = start("on_timer").invoke({"source": "aws.events", "detail-type": "Scheduled Event"})
    assert answer.error is None
    assert (answer.value["woken"], answer.value["repaired"]) == (0, [])


@pytest.mark.slow
def test_a_function_goes_on_in_the_next_invocation_when_one_nears_its_end(
    aws: FakeAws, engine: Engine, start: Start
) -> None:
    function = start(seconds=3.0)
    source = source_of(aws, function.invoke)
    run = engine.sync.start(counts(36), id="x")
    while source.poll():
        pass

    assert run.result() == sum(range(36))
    assert function.is_alive
    assert function.invocations >= 3


@pytest.mark.slow
def test_a_function_that_is_killed_at_its_deadline_loses_an_attempt_and_no_job(
    aws: FakeAws, engine: Engine, start: Start
) -> None:
    run = engine.sync.start(BLOCKS(7), id="x")
    victim = start(seconds=2.0)
    source = source_of(aws, victim.invoke)
    assert source.poll() == 1
    assert not victim.is_alive

    heir = start()
    source = source_of(aws, heir.invoke)
    aws.pass_time(61)  # the message is there again, and its job is held
    assert (source.poll(), source.poll()) == (1, 0)
    persistence = engine.core.stores.persistence
    row = persistence.read(FindRun(RunName(engine.core.namespace, "x")))
    assert row is not None
    (job,) = persistence.read(JobsOfRun(row.key))
    assert (job.state, job.session is None) == (JobState.LEASED, False)

    # What the timer finds when the session has expired.
    kernel, space = engine.kernel, engine.core.namespace
    kernel.dispatch(SessionClose(namespace=space, session=str(job.session)))
    kernel.dispatch(LeaseReapStale(namespace=space))
    assert source.poll() == 1
    assert run.result() == 7
