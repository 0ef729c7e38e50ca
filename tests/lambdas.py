"""The surroundings of a Lambda function in tests: SQS events, a context, and queue requests."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

import attrs

from holdfast.hosts.client.engine import Engine
from holdfast.ports.errors import UnavailableError
from holdfast.ports.json import canonical
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.records.run import RunName

QUEUE_ARN: Final = "arn:aws:sqs:eu-central-1:123456789012:jobs"
_numbers: Final = count(1)


@attrs.define
class FakeContext:
    """An invocation with so many seconds left, unless changed."""

    seconds: float = 60.0
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        return round(self.seconds * 1_000)


class FakeMessages:
    """Records requests to queues."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, dict[str, float]]] = []
        self.aside: list[tuple[str, str, str]] = []
        self.is_away = False

    def show_in(self, queue: str, seconds: Mapping[str, float], /) -> None:
        self.shown.append((queue, dict(seconds)))

    def put_aside(self, queue: str, body: str, reason: str, /) -> None:
        if self.is_away:
            raise UnavailableError("SQS is away")
        self.aside.append((queue, body, reason))


def record(body: str | Mapping[str, object], *, receives: int = 1, **more: Any) -> dict[str, Any]:
    """Return an event record as Lambda passes it on. `group` and `queue` become its attributes."""
    named = more.get("id") or f"m{next(_numbers)}"
    attributes: dict[str, str] = {
        "ApproximateReceiveCount": str(receives),
        "SentTimestamp": "1764000000000",
        "SenderId": "AROA",
        "ApproximateFirstReceiveTimestamp": "1764000000001",
    }
    if "group" in more:
        attributes["MessageGroupId"] = more["group"]
    queue = {"queue": {"stringValue": more["queue"], "dataType": "String"}} if "queue" in more else {}
    return {
        "messageId": named,
        "receiptHandle": f"receipt of {named}",
        "body": body if isinstance(body, str) else canonical(dict(body)),
        "attributes": attributes,
        "messageAttributes": queue,
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": more.get("source", QUEUE_ARN),
        "awsRegion": "eu-central-1",
    }


def event(*records: Mapping[str, Any]) -> dict[str, Any]:
    return {"Records": list(records)}


def failures(answer: Mapping[str, Sequence[Mapping[str, str]]]) -> list[str]:
    """Return the messages that a handler reports as failures."""
    assert set(answer) == {"batchItemFailures"}
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


def told_of(engine: Engine, id: str) -> list[dict[str, object]]:
    """Return the messages of a run's jobs."""
    persistence = engine.core.stores.persistence
    run = persistence.read(FindRun(RunName(engine.core.namespace, id)))
    assert run is not None
    return [{"job_id": job.key.text, "epoch": job.epoch} for job in persistence.read(JobsOfRun(run.key))]
