"""Answers: problems as errors, repetitions, documents of newer servers."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import cast

import pytest

from holdfast.errors import (
    AccessDeniedError,
    HoldfastError,
    InvalidArgumentError,
    InvalidValueError,
    QuotaExceededError,
    RunNotFoundError,
    ServerAnswerError,
    TooManyFailuresError,
    UnavailableError,
    UpdateFailedError,
)
from holdfast.hosts.http.problems import HttpError, Problem, errors_by_code, problem_of
from holdfast.hosts.http.run_actions import RunChanged
from holdfast.hosts.http_client.answers import Fault, Tries, error_of, fault_of, lost, structured
from holdfast.hosts.http_client.requests import ClientRequest, request_of
from holdfast.hosts.inspection.json_form import json_form
from holdfast.ports.records.run import RunStatus

REQUEST = request_of("run.cancel", {"namespace": "shop", "run_id": "one"})
SHOWN_ONCE = request_of("key.create", {})
JSON, PROBLEM = {"content-type": "application/json"}, {"content-type": "application/problem+json"}


def problem(error: Exception, *, sees_values: bool = True) -> Mapping[str, object]:
    found = problem_of(error, "", sees_values=sees_values)
    assert isinstance(found, Problem)
    return cast("Mapping[str, object]", json_form(found))


def fault(request: ClientRequest, status: int, headers: Mapping[str, str], document: object) -> Fault:
    found = fault_of(request, status, headers, json.dumps(document).encode())
    assert found is not None
    return found


@pytest.mark.parametrize(
    "error",
    [
        RunNotFoundError("one", 3),
        QuotaExceededError("shop", "max_active_runs", 5),
        InvalidValueError("the input", ("$.a: expected number", "$.b: it is required")),
        InvalidArgumentError("end", "it is in the future"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_it_was_raised(error: HoldfastError) -> None:
    found = error_of(problem(error))

    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_every_code_of_the_engine_is_raised_as_its_class() -> None:
    for code, kind in errors_by_code().items():
        assert type(error_of({"code": code, "status": 400, "detail": "why"})) is kind


def test_an_error_whose_text_the_key_may_not_see_still_has_its_attributes() -> None:
    found = error_of(problem(UpdateFailedError("one", "move", "secret"), sees_values=False))

    assert isinstance(found, UpdateFailedError)
    assert (found.run_id, found.update) == ("", "")
    assert "secret" not in str(found)


def test_a_code_that_this_version_does_not_know_is_an_error_of_the_server() -> None:
    found = error_of({"code": "brand_new", "status": 409, "detail": "why"})

    assert isinstance(found, ServerAnswerError)
    assert (found.status, found.server_code, str(found)) == (409, "brand_new", "why")


@pytest.mark.parametrize("code", ["unauthenticated", "forbidden", "read_only", "namespace_not_found"])
def test_a_missing_right_is_an_access_that_was_denied(code: str) -> None:
    assert isinstance(error_of(problem(HttpError(code, "no"))), AccessDeniedError)


def test_an_answer_of_something_else_is_no_answer_of_holdfast() -> None:
    found = fault_of(REQUEST, 404, {"content-type": "text/html"}, b"<h1>nginx</h1>")

    assert found is not None
    assert isinstance(found.error, ServerAnswerError)
    assert "nginx" in str(found.error)
    assert not found.is_passing


def test_a_redirection_is_not_followed_as_the_key_would_go_along() -> None:
    found = fault_of(REQUEST, 301, {"location": "https://elsewhere.example.com/"}, b"")

    assert found is not None
    assert not found.is_passing
    assert "https://elsewhere.example.com/" in str(found.error)


@pytest.mark.parametrize("content", [b"", b'{"run_id": "one", "sta', b"[]", b"\xff"])
def test_an_answer_that_was_cut_off_is_none(content: bytes) -> None:
    found = fault_of(REQUEST, 200, JSON, content)

    assert found is not None
    assert isinstance(found.error, UnavailableError)
    assert found.is_passing


def test_a_field_that_this_version_does_not_know_is_left_out() -> None:
    data = {"run_id": "one", "status": "failed", "changed": True, "since": {"later": [1]}}

    assert structured("it", data, RunChanged) == RunChanged(
        run_id="one", status=RunStatus.FAILED, changed=True
    )
    with pytest.raises(ServerAnswerError, match="RunChanged"):
        structured("it", {"run_id": "one", "status": "melted", "changed": True}, RunChanged)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_request_is_repeated_after_longer_and_longer_pauses_until_patience_ends() -> None:
    clock = Clock()
    tries = Tries(REQUEST, 30.0, clock.monotonic)
    again = lost(REQUEST, "ReadError", is_unsent=False)
    pauses: list[float] = []

    with pytest.raises(UnavailableError, match="ReadError"):
        while True:
            pauses.append(tries.pause_after(again))
            clock.now += pauses[-1]

    assert 7 < len(pauses) < 30
    assert pauses[0] <= 0.1
    assert 2.5 <= pauses[-1] <= 5.0
    assert sum(pauses) <= 30.0


def test_a_retry_after_is_obeyed_and_ends_the_patience_if_it_is_longer() -> None:
    busy = fault(REQUEST, 503, {**PROBLEM, "retry-after": "7"}, problem(UnavailableError("down")))

    assert Tries(REQUEST, 30.0, Clock().monotonic).pause_after(busy) == 7.0
    with pytest.raises(UnavailableError):
        Tries(REQUEST, 5.0, Clock().monotonic).pause_after(busy)


def test_a_request_to_a_proxy_without_a_server_is_repeated() -> None:
    found = fault(REQUEST, 502, {"content-type": "text/html"}, "bad gateway")

    assert found.is_passing
    assert isinstance(found.error, UnavailableError)


def test_a_429_with_a_time_is_repeated_and_one_without_is_a_refusal() -> None:
    many = fault(REQUEST, 429, {**PROBLEM, "retry-after": "2"}, problem(TooManyFailuresError(1.5)))
    quota = fault(REQUEST, 429, PROBLEM, problem(QuotaExceededError("shop", "max_active_runs", 5)))

    assert Tries(REQUEST, 30.0, Clock().monotonic).pause_after(many) == 2.0
    with pytest.raises(QuotaExceededError):
        Tries(REQUEST, 30.0, Clock().monotonic).pause_after(quota)


def test_a_request_whose_answer_has_a_secret_is_repeated_only_if_it_was_not_sent() -> None:
    tries = Tries(SHOWN_ONCE, 30.0, Clock().monotonic)

    assert tries.pause_after(lost(SHOWN_ONCE, "ConnectError", is_unsent=True)) > 0
    with pytest.raises(UnavailableError, match="may have been carried out"):
        tries.pause_after(lost(SHOWN_ONCE, "ReadError", is_unsent=False))


@pytest.mark.slow
def test_totals_of_model_calls_are_read_by_a_process_that_serves_nothing() -> None:
    """A class that refers to itself is resolved by a server, which would hide it here."""
    program = (
        "from holdfast.hosts.http_client.answers import structured\n"
        "from holdfast.hosts.inspection.ai_calls import AiTotals\n"
        "one = dict(name='m', calls=1, failed=0, unpriced=0, input_tokens=2, output_tokens=3, cost='0.5',"
        " duration_seconds=1.5, parts=[])\n"
        "print(structured('totals', {**one, 'parts': [one]}, AiTotals).parts[0].cost)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "0.5\n", done.stderr
