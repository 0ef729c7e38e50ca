"""Options of bodies and runs, and their validation."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import (
    BodyOptions,
    ChildStartOptions,
    Rate,
    Retry,
    StartAllOptions,
    StartOptions,
    check_name,
    check_options,
)
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.errors import DefinitionError, InvalidArgumentError


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"attempts": 0}, "attempts is 0; it must be an integer from 1 to 10,000"),
        ({"attempts": 10_001}, "attempts is 10001"),
        ({"attempts": True}, "attempts is True"),
        (
            {"wait": timedelta(seconds=-1)},
            "wait is .*; it must be a timedelta or a number of seconds, not negative",
        ),
        ({"wait": "3"}, "wait is '3'; it must be a timedelta or a number of seconds"),
        ({"wait_max": timedelta(-1)}, "wait_max is"),
        ({"attempts": True}, "attempts is True; .*, or None for no limit"),
        ({"total_time": 0}, "total_time is .*; it must be .* longer than nothing, or None for no limit"),
        ({"total_time": "1h"}, "total_time is '1h'"),
        ({"backoff": 0.5}, "backoff is 0.5; it must be a number of at least 1"),
        ({"backoff": float("nan")}, "backoff is nan"),
        ({"backoff": float("inf")}, "backoff is inf"),
        ({"jitter": 1.1}, "jitter is 1.1; it must be a number from 0 to 1"),
        ({"jitter": "a"}, "jitter is 'a'"),
        ({"give_up_on": ValueError}, "give_up_on is .*; it must be a tuple of exception classes"),
        ({"give_up_on": (ValueError, int)}, "give_up_on is"),
        ({"by_error": (ValueError,)}, "by_error is .*; it must be a dict of Retry"),
        ({"by_error": {int: Retry()}}, "by_error has <class 'int'>; it must be an exception class"),
        ({"by_error": {"ValueError": Retry()}}, "by_error has 'ValueError'"),
        ({"by_error": {ValueError: 3}}, r"by_error\[ValueError\] is 3; it must be a Retry"),
        (
            {"by_error": {ValueError: Retry(by_error={KeyError: Retry()})}},
            r"by_error\[ValueError\] has by_error or give_up_on itself",
        ),
        ({"by_error": {ValueError: Retry(give_up_on=(KeyError,))}}, "set these in the outer Retry"),
        (
            {"give_up_on": (ValueError,), "by_error": {ValueError: Retry()}},
            "ValueError is in give_up_on and in by_error",
        ),
    ],
)
def test_a_retry_out_of_bounds_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Retry(**said)


@pytest.mark.parametrize("seconds", [90, 90.0, timedelta(seconds=90)])
def test_lengths_of_time_are_timedeltas_or_seconds_and_kept_as_timedeltas(seconds: Any) -> None:
    @stage(timeout=seconds, timeout_total=seconds, heartbeat_timeout=seconds)
    def work() -> None: ...

    length = timedelta(seconds=90)
    retry = Retry(wait=seconds, wait_max=seconds)
    pipeline = Pipeline("p", timeout=seconds).pipe(work.options(timeout_total=seconds))
    assert (work.timeout, work.timeout_total, work.heartbeat_timeout) == (length, length, length)
    assert (retry.wait, retry.wait_max) == (length, length)
    assert pipeline.bodies["work"].timeout == length


def test_a_retry_at_its_bounds_is_taken() -> None:
    patient = Retry(attempts=100, wait=timedelta(0), backoff=1, jitter=0, give_up_on=(KeyError, OSError))

    assert patient == Retry(
        attempts=100, wait=timedelta(0), backoff=1, jitter=0, give_up_on=(KeyError, OSError)
    )


def test_a_misspelt_option_is_named_with_what_there_is() -> None:
    with pytest.raises(TypeError) as caught:
        check_options({"quue": "gpu"}, BodyOptions, "stage 'extract'")

    assert str(caught.value) == (
        "stage 'extract' has no option 'quue' (did you mean 'queue'?); it has attributes, close_policy,"
        " deadline, headers, heartbeat_timeout, max_concurrency, name, priority, queue, rate_limit, remote, retry,"
        " timeout, timeout_total, weight"
    )


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"retry": 3}, r"x: retry is 3; it must be a Retry\(...\)"),
        ({"timeout": timedelta(0)}, "timeout is .*; it must be a timedelta or a number of seconds, longer"),
        ({"timeout": True}, "timeout is True"),
        ({"timeout_total": timedelta(0)}, "timeout_total is .* longer than nothing"),
        ({"rate_limit": 60}, r"rate_limit is 60; it must be a Rate\(...\)"),
        (
            {"heartbeat_timeout": timedelta(seconds=4)},
            "heartbeat_timeout is .*, of at least 5 seconds",
        ),
        ({"heartbeat_timeout": 4.9}, "heartbeat_timeout is 4.9"),
        ({"queue": "a b"}, "queue is 'a b'; it must be 1 to 128 letters"),
        ({"priority": 32_768}, "priority is 32768; it must be an integer from -32767 to 32767"),
        ({"max_concurrency": 0}, "max_concurrency is 0; it must be an integer from 1 to 1000000"),
        ({"max_concurrency": True}, "max_concurrency is True"),
        ({"priority": True}, "priority is True"),
        ({"name": ""}, "name is ''"),
    ],
)
def test_the_value_of_a_body_option_is_checked(said: dict[str, object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        check_options(said, BodyOptions, "x")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"id": ""}, "id is ''; it must be a string of 1 to 256 characters"),
        ({"idempotency_key": 3}, "idempotency_key is 3"),
        ({"attributes": {"a": 1}}, "attributes is .*; it must be a dict of strings to strings"),
        ({"attributes": "a"}, "attributes is 'a'"),
        ({"if_exists": "replace"}, "if_exists is 'replace'; it must be 'error' or 'return'"),
        (
            {"deadline": 0},
            "deadline is 0; it must be a timedelta or a number of seconds, longer than nothing",
        ),
        ({"overrides": None}, "overrides is None; it must be a list of stages"),
    ],
)
def test_the_value_of_a_start_option_is_checked_and_is_no_definition(
    said: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        check_options(said, StartOptions, "start")


@pytest.mark.parametrize("options_type", [StartOptions, StartAllOptions, ChildStartOptions])
def test_a_value_for_one_run_or_for_many_or_for_a_child_is_refused_alike(options_type: type) -> None:
    with pytest.raises(InvalidArgumentError, match="priority is 'high'; it must be an integer"):
        check_options({"priority": "high"}, options_type, "start")


def test_options_that_are_right_pass() -> None:
    check_options({"id": "order 7", "attributes": {"a": "b"}, "if_exists": "return"}, StartOptions, "start")
    check_options({"retry": Retry(), "queue": "gpu", "priority": -1}, BodyOptions, "stage")


@pytest.mark.parametrize("name", ["a", "_a", "0", "a.b-c_d", "x" * 128])
def test_a_name_of_plain_characters_is_taken(name: str) -> None:
    check_name(name, "it")


@pytest.mark.parametrize("name", ["", ".a", "-a", "a b", "a/b", "a\n", "é", "x" * 129, None, 3])
def test_any_other_name_is_refused(name: object) -> None:
    with pytest.raises(DefinitionError, match=r"it is .*; it must be 1 to 128 letters, digits"):
        check_name(name, "it")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rate(0, per=timedelta(1)), "Rate: limit is 0; it must be an integer from 1 to 1000000"),
        (lambda: Rate(True, per=timedelta(1)), "limit is True"),
        (
            lambda: Rate(1, per=timedelta(days=2)),
            "per is .*; it must be a timedelta or a number of seconds",
        ),
        (lambda: Rate(1, per=timedelta(microseconds=9)), "per is "),
        (lambda: Rate(1, per=cast("float", "60")), "per is '60'"),
        (lambda: Rate(1, per=0), "per is "),
        (lambda: Rate(1, per=timedelta(1), name="a/b"), "name is 'a/b'; it must be 1 to 128 letters"),
        (lambda: Rate(1, per=timedelta(1), by=""), "by is ''; it must be the name of an attribute"),
    ],
)
def test_a_rate_that_is_none_is_refused(make: Callable[[], Rate], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()


def test_the_period_of_a_rate_may_be_said_in_seconds() -> None:
    assert Rate(1, per=90).per == timedelta(seconds=90)
