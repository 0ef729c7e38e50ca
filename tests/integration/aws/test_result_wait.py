"""Waiting for a result receives no queue messages: those are for the job handlers."""

import pytest

from holdfast.adapters.aws.sqs import SqsJobTransport
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.transport import JobHint
from tests.aws import FakeAws


@stage
def plain(x: int) -> int:
    return x


ONE = Pipeline("one", input=int).pipe(plain)


@pytest.mark.slow
def test_a_process_that_only_waits_for_a_run_takes_no_message_of_its_job(aws: FakeAws) -> None:
    client, url = aws.new_queue()
    transport = SqsJobTransport(url, client=client, poll_seconds=1)
    engine = Engine.open("memory://", workflows=[ONE], transport=transport)
    with engine.sync as runs:
        run = runs.start(ONE(7))
        with pytest.raises(TimeoutError):
            run.result(timeout=0.3)

        (delivery,) = SqsJobTransport(url, client=client).receive(10, 0)
        assert isinstance(delivery.hint, JobHint)
        ServerlessHost(engine).handle_job({"job_id": delivery.hint.job, "epoch": delivery.hint.epoch})
        assert run.result(timeout=120) == 7
