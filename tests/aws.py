"""What speaks as AWS does, for the tests: moto's server in a thread of this process, asked over real HTTP."""

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import boto3
import pytest
from moto.server import ThreadedMotoServer
from moto.sqs import models as sqs_models

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

REGION: Final = "eu-central-1"


class FakeAws:
    """A region without anything in it. Queues go by a clock that `pass_time` moves on."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._passed = 0
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._numbers = count(1)

    def client(self, service: Any) -> Any:
        """Return a client of boto3's, as an adapter is given one: the same each time, for each knows all of AWS."""
        if service not in self._clients:
            make: Any = boto3.Session()
            self._clients[service] = make.client(
                service,
                endpoint_url=self.url,
                region_name=REGION,
                aws_access_key_id="key",
                aws_secret_access_key="secret",
            )
        return self._clients[service]

    def new_bucket(self) -> "tuple[S3Client, str]":
        """Make a bucket; return a client and its name."""
        client: S3Client = self.client("s3")
        name = f"bucket-{next(self._numbers)}"
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return client, name

    def new_queue(self, *, fifo: bool = False) -> "tuple[SQSClient, str]":
        """Make a queue, whose messages stay unseen for thirty seconds; return a client and its URL."""
        client: SQSClient = self.client("sqs")
        name = f"queue-{next(self._numbers)}" + (".fifo" if fifo else "")
        attributes: Any = {"VisibilityTimeout": "30", **({"FifoQueue": "true"} if fifo else {})}
        return client, client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    def pass_time(self, seconds: float) -> None:
        """Let time pass for queues."""
        with self._lock:
            self._passed += round(seconds * 1_000)

    def millis(self) -> int:
        """Return how far the clock of queues is ahead."""
        return self._passed


@contextmanager
def fake_aws() -> Generator[FakeAws]:
    """Start the server, and stop it afterwards."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    aws = FakeAws(f"http://{host}:{port}")
    real: Callable[[], float] = vars(sqs_models)["unix_time_millis"]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it tells of every request
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqs_models, "unix_time_millis", lambda: real() + aws.millis())
        try:
            yield aws
        finally:
            server.stop()
