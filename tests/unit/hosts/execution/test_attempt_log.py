"""A host's log of attempts: one line for each failed attempt and for each failed or blocked run."""

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import Engine, GiveUp, Pipeline, Retry, ServerlessHost, Worker, stage, step, workflow
from holdfast.hosts.execution.attempt_log import log_failed_try
from holdfast.workflows import Call
from tests.unit.hosts.inspection.test_why import RUN

AT_ONCE = Retry(attempts=2, wait=timedelta(0), backoff=1.0)


@step(retry=AT_ONCE)
def charge(cents: int) -> None:
    raise ValueError(f"{cents} cents:\ncard declined")


@step(retry=AT_ONCE, queue="cards")
def charge_there(cents: int) -> None:
    raise ValueError("declined there")


@workflow
async def pay() -> None:
    await charge(500)


@workflow
async def pay_there() -> None:
    await charge_there(500)


@workflow
async def waits_for_nothing() -> None:
    await asyncio.Event().wait()


@stage(retry=AT_ONCE)
def bill(order: int) -> None:
    raise GiveUp("no such order") if order < 0 else RuntimeError("no ink")


bills = Pipeline("bills", input=int).pipe(bill)


@step
def greet(name: str) -> str:
    return f"hello {name}"


@workflow
async def welcome(name: str) -> str:
    return await greet(name)


WORKFLOWS = (pay, pay_there, waits_for_nothing, bills, welcome)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "holdfast.runs"]


def by_a_worker(call: Call[None]) -> None:
    with Engine.open("memory://", workflows=WORKFLOWS).sync as runs, Worker(runs):
        run = runs.start(call, id="r")
        while run.info().status == "running":
            pass


def by_messages(call: Call[None]) -> None:
    engine = Engine.open("memory://", workflows=WORKFLOWS)
    with engine.sync as runs:
        host = ServerlessHost(engine, time_limit=10)
        run = runs.start(call, id="r")
        while run.info().status == "running":
            host.process_available_jobs(max_jobs=1)
            host.run_maintenance_tick()


@pytest.mark.parametrize("host", [by_a_worker, by_messages])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            pay(),
            [
                (
                    r"WARNING run r \(pay@1\), step 'charge', attempt 1 failed, next attempt in \S+:"
                    " ValueError: 500 cents: card declined"
                ),
                "WARNING run r (pay@1), step 'charge', attempt 2 failed for good: ValueError: 500 cents: card declined",
                "ERROR run r (pay@1) failed: ValueError: 500 cents: card declined",
            ],
        ),
        (
            pay_there(),
            [
                (
                    r"WARNING run r \(pay_there@1\), step 'charge_there', attempt 1 of 2 failed,"
                    r" next attempt in \S+: ValueError: declined there"
                ),
                (
                    "WARNING run r (pay_there@1), step 'charge_there', attempt 2 of 2 failed for good:"
                    " ValueError: declined there"
                ),
                "ERROR run r (pay_there@1) failed: ValueError: declined there",
            ],
        ),
        (
            bills(1),
            [
                (
                    r"WARNING run r \(bills@1\), stage 'bill', attempt 1 of 2 failed, next attempt in \S+:"
                    " RuntimeError: no ink"
                ),
                "ERROR run r (bills@1) failed: stage 'bill', attempt 2 of 2: RuntimeError: no ink",
            ],
        ),
        (
            bills(-1),
            [
                (
                    "ERROR run r (bills@1) failed: stage 'bill', attempt 1 of 2:"
                    " holdfast.ports.errors.GiveUp: no such order"
                )
            ],
        ),
        (waits_for_nothing(), [r"ERROR run r \(waits_for_nothing@1\) is blocked: the function waits for .*"]),
    ],
    ids=["step", "queued step", "stage", "given up", "blocked"],
)
def test_failures_are_logged_with_their_run_step_and_error(
    host: Callable[[Call[None]], None],
    call: Call[None],
    expected: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By default: a newcomer sees on the worker's terminal what failed, and where."""
    host(call)
    logged = [" ".join(line) for line in lines(caplog)]
    assert len(logged) == len(expected)
    for line, pattern in zip(logged, expected, strict=True):
        assert line == pattern or re.fullmatch(pattern, line), line


def test_a_record_has_the_facts_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    by_messages(bills(1))
    failed = caplog.records[-1]
    facts = {name: getattr(failed, name) for name in ("run", "workflow", "step", "attempt", "error")}
    assert facts == {
        "run": "r",
        "workflow": "bills@1",
        "step": "bill",
        "attempt": 2,
        "error": "RuntimeError: no ink",
    }


def test_an_error_of_any_length_is_one_bounded_line(caplog: pytest.LogCaptureFixture) -> None:
    log_failed_try(RUN, "charge", 1, "ValueError", "x\n" * 10_000, None)
    (line,) = lines(caplog)
    assert "\n" not in line[1]
    assert len(line[1]) < 700


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_other_attempts_that_end_are_logged_at_debug_only(
    level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(level, logger="holdfast"),
        Engine.open("memory://", workflows=WORKFLOWS).sync as runs,
        Worker(runs),
    ):
        assert runs.run(welcome("ann"), id="r") == "hello ann"

    patterns = (
        r"run r \(welcome@1\), step 'greet', attempt 1: completed after \S+",
        r"run r \(welcome@1\), function 'welcome', attempt 1: completed after \S+; the run is completed",
    )
    logged = lines(caplog)
    assert len(logged) == (2 if level == logging.DEBUG else 0)
    for (name, message), pattern in zip(logged, patterns, strict=False):
        assert name == "DEBUG"
        assert re.fullmatch(pattern, message)
