"""The format of a job message: a job and an epoch, nothing else."""

import json
from collections.abc import Mapping

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.serverless.job_messages import JobMessage, message_from
from holdfast.ports.errors import InvalidMessageError

GOOD = {"job_id": "01ABC.7", "epoch": 3}
MESSAGE = JobMessage(job_id="01ABC.7", epoch=3)


@pytest.mark.parametrize("message", [GOOD, json.dumps(GOOD), MESSAGE, f"  {json.dumps(GOOD, indent=2)}\n"])
def test_a_message_is_a_mapping_json_or_what_they_stand_for(
    message: Mapping[str, object] | str | JobMessage,
) -> None:
    assert message_from(message) == MESSAGE


@pytest.mark.parametrize(
    "message",
    [
        "",
        "not json",
        "null",
        "[]",
        "7",
        '"01ABC.7"',
        "{}",
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"job_id": "01ABC.7", "epoch": ' + "9" * 5_000 + "}",
        '{"job_id": "01ABC.7"}',
        '{"job_id": "01ABC.7", "epoch": 3, "more": 1}',
        '{"job_id": "01ABC.7", "epoch": NaN}',
        {**GOOD, "epoch": "3"},
        {**GOOD, "epoch": 3.0},
        {**GOOD, "epoch": True},
        {**GOOD, "epoch": None},
        {**GOOD, "epoch": -1},
        {**GOOD, "job_id": 7},
        {**GOOD, "job_id": None},
        {**GOOD, "job_id": ["01ABC.7"]},
        {**GOOD, "job_id": ""},
        {**GOOD, "job_id": "01ABC"},
        {**GOOD, "job_id": ".7"},
        {**GOOD, "job_id": "01ABC."},
        {**GOOD, "job_id": "01ABC.-7"},
        {**GOOD, "job_id": "01ABC.seven"},
        {**GOOD, "job_id": "01ABC.٣"},
        {**GOOD, "job_id": "01ABC." + "9" * 11},
        {1: 2, 3: 4},
        JobMessage(job_id="nothing", epoch=1),
        JobMessage(job_id="01ABC.7", epoch=-1),
    ],
)
def test_anything_else_is_refused_for_good(message: Mapping[str, object] | str | JobMessage) -> None:
    with pytest.raises(InvalidMessageError):
        message_from(message)


@pytest.mark.parametrize("message", [b'{"job_id": "01ABC.7", "epoch": 3}', None, 7, ["01ABC.7", 3]])
def test_what_is_not_even_of_the_declared_types_is_refused_too(message: object) -> None:
    with pytest.raises(InvalidMessageError):
        message_from(message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_message_that_is_refused_costs_no_question_to_the_store() -> None:
    """There is no server at this address."""
    host = ServerlessHost(Engine.open("postgresql://nobody@127.0.0.1:1/nothing"))

    with pytest.raises(InvalidMessageError):
        host.handle_job("{}")


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_limit_is_a_length_of_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="time_limit"):
        ServerlessHost(Engine.open("memory://"), time_limit=seconds)


@pytest.mark.parametrize(("max_jobs", "concurrency"), [(0, 1), (1, 0), (-1, 1)])
def test_limits_are_at_least_one(max_jobs: int, concurrency: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ServerlessHost(Engine.open("memory://")).process_available_jobs(
            max_jobs=max_jobs, concurrency=concurrency
        )
