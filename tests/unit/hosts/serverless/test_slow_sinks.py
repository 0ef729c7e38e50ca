"""A slow sink delays a maintenance tick by at most one call."""

import time

import pytest

from holdfast import Engine, Pipeline, stage
from holdfast.adapters.sinks.webhook import WebhookSink
from holdfast.hosts.serverless.host import ServerlessHost
from tests.unit.adapters.sinks.test_deadlines import a_server, dripping


@stage
def double(n: int) -> int:
    return 2 * n


DOUBLE = Pipeline("double", input=int).pipe(double)


@pytest.mark.slow
def test_a_tick_ends_one_timeout_after_its_time_is_up() -> None:
    engine = Engine.open("memory://", workflows=[DOUBLE])
    with a_server(dripping(b"HTTP/1.0 503 No\r\n\r\n")) as port, engine.sync:
        sinks = {
            name: WebhookSink(f"http://127.0.0.1:{port}/", allow_internal=True, timeout=1.0)
            for name in ("a", "b", "c")
        }
        for name in sinks:
            engine.sync.register_sink(name)
        for _ in range(5):
            engine.sync.start(DOUBLE(3))
        host = ServerlessHost(engine, sinks=sinks)
        began = time.monotonic()
        host.run_maintenance_tick(keep_on=lambda: time.monotonic() < began + 0.2)

        assert 1.0 <= time.monotonic() - began < 3.0, "each sink had a timeout of its own"
