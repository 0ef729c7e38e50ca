"""Requests: paths, query parameters, bodies and keys, as the server reads them."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import InvalidArgumentError
from holdfast.hosts.http.operations import GenerationQuery
from holdfast.hosts.http.run_reads import RunsQuery
from holdfast.hosts.http.run_starts import NewMessage, NewRun
from holdfast.hosts.http_client.requests import base_of, request_of
from holdfast.ports.records.run import RunStatus

PATH = {"namespace": "shop", "run_id": "a/b c?", "channel": ".."}


def test_a_name_is_one_segment_of_the_path_whatever_it_has() -> None:
    assert request_of("run.get", PATH).path == "/v1/namespaces/shop/runs/a%2Fb%20c%3F"
    assert request_of("run.signal", PATH).path.endswith("/signals/%2E%2E")


@pytest.mark.parametrize(
    ("name", "may_repeat"),
    [
        ("run.list", True),
        ("run.start", True),  # with its idempotency key
        ("sink.remove", True),
        ("key.create", False),
        ("run.cancel_all", False),
        ("run.rerun_all", False),
        ("dead_letter.replay", False),
    ],
)
def test_what_would_go_on_with_the_next_ones_is_sent_once(name: str, may_repeat: bool) -> None:
    path = {"namespace": "shop", "name": "a"}
    assert request_of(name, path).may_repeat == may_repeat


def test_a_name_that_is_empty_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="run_id"):
        request_of("run.get", {"namespace": "shop", "run_id": ""})


def test_query_parameters_that_have_their_defaults_are_left_out() -> None:
    query = RunsQuery(
        status=(RunStatus.FAILED, RunStatus.RUNNING),
        attributes={"a&b": "c=d"},
        since=datetime(2026, 1, 2, tzinfo=UTC),
        oldest_first=True,
        limit=7,
    )

    found = request_of("run.list", PATH, query=query).path.partition("?")[2].split("&")

    assert sorted(found) == [
        "attributes%5Ba%26b%5D=c%3Dd",
        "limit=7",
        "oldest_first=true",
        "since=2026-01-02T00%3A00%3A00%2B00%3A00",
        "status=failed",
        "status=running",
    ]
    assert "?" not in request_of("run.get", PATH, query=GenerationQuery()).path


def test_a_body_has_the_names_of_the_json_forms() -> None:
    body = NewRun(
        workflow="report",
        input={"a": None},
        deadline=timedelta(minutes=1),
        signals=(NewMessage(channel="approval", message=False),),
    )

    found = request_of("run.start", PATH, body=body)

    assert found.body == (
        b'{"workflow":"report","input":{"a":null},"deadline_seconds":60.0,'
        b'"signals":[{"channel":"approval","message":false}]}'
    )


def test_a_change_has_one_key_for_all_of_its_repetitions_and_a_read_has_none() -> None:
    first, second = request_of("run.cancel", PATH), request_of("run.cancel", PATH)

    assert first.headers["Idempotency-Key"] == first.headers["Idempotency-Key"]
    assert first.key != second.key
    assert request_of("run.cancel", PATH, key="mine").key == "mine"
    assert request_of("run.get", PATH).key is None


@pytest.mark.parametrize(
    "url",
    ["", "holdfast.example.com", "ftp://a", "https://a?b=c", "https://a#b", "http://[::1", "http://a:b"],
)
def test_what_is_not_the_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="the URL of a server"):
        base_of(url, "Client")


def test_a_server_may_be_mounted_under_a_path() -> None:
    assert base_of("https://a.example.com/holdfast/", "Client") == "https://a.example.com/holdfast"
