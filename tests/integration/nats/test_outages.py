"""A NATS server is killed and comes back; a stream is missing, full or deleted."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import DiscardPolicy, StreamConfig

from holdfast import Engine, Pipeline, Worker, stage
from holdfast.adapters.nats.connection import NatsConnection
from holdfast.adapters.nats.sink import NatsSink
from holdfast.adapters.nats.transport import NatsJobTransport
from holdfast.hosts.wiring.stores import built_in_sink
from holdfast.ports.errors import EventRefusedError, InvalidArgumentError, InvalidUrlError, UnavailableError
from holdfast.ports.transport import HistoryGrew, RunEnded
from holdfast.testing.conformance.events import an_event
from holdfast.testing.conformance.transport import a_hint
from tests.certificates import a_certificate
from tests.integration.sql.proxy import Proxy
from tests.nats import PrivateNats, private_nats
from tests.sinks import events_in

pytestmark = [pytest.mark.service, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server() -> Iterator[PrivateNats]:
    with private_nats() as server:
        yield server


class Admin:
    """Creates and reads streams, with a new connection for each operation."""

    def __init__(self, url: str) -> None:
        self._url = url

    def make(self, subject: str, **options: Any) -> None:
        self._do(
            lambda client: client.jetstream().add_stream(
                StreamConfig(name=subject, subjects=[f"{subject}.>"], **options)
            )
        )

    def delete(self, name: str) -> None:
        self._do(lambda client: client.jetstream().delete_stream(name))

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of the events in a stream."""

        async def read(client: Any) -> list[int]:
            stream = client.jetstream()
            last = (await stream.stream_info(name)).state.last_seq
            texts = [((await stream.get_msg(name, one)).data or b"").decode() for one in range(1, last + 1)]
            return [event.number for text in texts for event in events_in(text)]

        found: list[int] = self._do(read)
        return found

    def _do(self, work: Callable[[Any], Any]) -> Any:
        connection = NatsConnection("Admin", self._url)
        try:
            return connection.run("administer", work, 10)
        finally:
            connection.close()


# Events ---------------------------------------------------------------------------------------------------------------


def test_events_of_an_outage_come_after_it_in_order_and_once(server: PrivateNats) -> None:
    admin = Admin(server.url)
    admin.make("events")
    sink = NatsSink(server.url, subject="events")
    sink.emit([an_event(1, number) for number in (1, 2)])
    server.kill()
    failures = 0
    for _ in range(3):
        with pytest.raises(UnavailableError, match="could not publish to events at nats://127"):
            sink.emit([an_event(1, number) for number in (2, 3)])
        failures += 1
    server.start()
    sink.emit([an_event(1, number) for number in (2, 3)])
    sink.close()

    assert (admin.numbers("events"), failures) == ([1, 2, 3], 3)


def test_a_server_that_is_killed_while_events_are_sent_leaves_no_gap(server: PrivateNats) -> None:
    admin = Admin(server.url)
    admin.make("events")
    sink = NatsSink(server.url, subject="events")
    events = [an_event(1, number) for number in range(1, 2_001)]
    killer = threading.Timer(0.1, server.kill)
    killer.start()
    with pytest.raises(UnavailableError):
        sink.emit(events)
    killer.join()
    server.start()
    kept = admin.numbers("events")
    assert kept == list(range(1, len(kept) + 1))
    assert 0 < len(kept) < 2_000, "it was killed in the midst of it"
    sink.emit(events)
    sink.close()

    assert admin.numbers("events") == list(range(1, 2_001))


def test_where_no_stream_takes_events_it_is_said_what_to_do(server: PrivateNats) -> None:
    sink = NatsSink(server.url, subject="nobody")
    with pytest.raises(UnavailableError, match=r"nats stream add --subjects 'nobody\.>'"):
        sink.emit([an_event()])
    Admin(server.url).make("nobody")
    sink.emit([an_event()])
    sink.close()


def test_what_is_too_large_is_refused_and_a_full_stream_is_not_the_event(server: PrivateNats) -> None:
    admin = Admin(server.url)
    admin.make("small", max_msg_size=2_000)
    admin.make("full", max_msgs=1, discard=DiscardPolicy.NEW)
    small, full = NatsSink(server.url, subject="small"), NatsSink(server.url, subject="full")
    for size in (3_000, 2_000_000):
        with pytest.raises(EventRefusedError, match="larger than"):
            small.emit([an_event(data=f'"{"x" * size}"')])
    full.emit([an_event(1, 1)])
    with pytest.raises(UnavailableError, match="maximum messages exceeded"):
        full.emit([an_event(1, 2)])
    small.close()
    full.close()


def test_one_run_that_fails_holds_up_no_other(server: PrivateNats) -> None:
    admin = Admin(server.url)
    admin.make("small", max_msg_size=2_000)
    sink = NatsSink(server.url, subject="small")
    with pytest.raises(EventRefusedError):
        sink.emit([an_event(1, 1, f'"{"x" * 3_000}"'), an_event(1, 2), an_event(2, 7), an_event(2, 8)])
    sink.close()

    assert admin.numbers("small") == [7, 8]


# Hints ----------------------------------------------------------------------------------------------------------------


def test_hints_of_an_outage_are_lost_and_those_before_it_come_again(
    server: PrivateNats, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    transport = NatsJobTransport(server.url, visibility=0.5, monotonic=lambda: now[0])
    transport.announce([a_hint(1), a_hint(2)])
    first, second = transport.receive(10, 1)
    transport.ack(first.receipt)
    server.kill()
    with caplog.at_level(logging.WARNING):
        transport.announce([a_hint(3)])
        began = time.monotonic()
        transport.announce([a_hint(4)])
    assert time.monotonic() - began < 1, "no commit waits for what is away"
    assert caplog.text.count("lost for 5.0 seconds") == 1
    with pytest.raises(UnavailableError, match="could not receive hints"):
        transport.receive(10, 0)
    transport.ack(second.receipt)  # which is lost
    server.start()
    now[0] = 5.0
    transport.announce([a_hint(5)])
    came = {delivery.hint for _ in range(20) for delivery in transport.receive(10, 0.1)}
    transport.close()

    # What was acknowledged may come again too: the server had no time to write it down.
    assert {a_hint(2), a_hint(5)} <= came <= {a_hint(1), a_hint(2), a_hint(5)}


def test_a_receiver_that_waits_is_told_of_an_outage_and_hears_again_after_it(server: PrivateNats) -> None:
    transport = NatsJobTransport(server.url)
    assert list(transport.receive(1, 0)) == []
    killer = threading.Timer(0.2, server.kill)
    killer.start()
    began = time.monotonic()
    with pytest.raises(UnavailableError):
        transport.receive(1, 20)
    assert time.monotonic() - began < 10
    killer.join()
    server.start()
    transport.announce([a_hint()])

    assert [delivery.hint for delivery in transport.receive(1, 5)] == [a_hint()]
    transport.close()


def test_a_connection_that_was_cut_is_made_again_when_something_is_to_be_done_and_not_before(
    server: PrivateNats,
) -> None:
    """The client's own reconnect would send messages reported as failed after later ones."""
    admin = Admin(server.url)
    admin.make("events")
    with Proxy(server.url) as proxy:
        sink = NatsSink(proxy.url, subject="events")
        sink.emit([an_event(1, 1)])
        proxy.cut()
        time.sleep(0.5)  # as long as the client needs to be back, and more
        assert proxy.connections == 1
        sink.emit([an_event(1, 2)])
        assert proxy.connections == 2
        sink.close()

    assert admin.numbers("events") == [1, 2]


@pytest.mark.parametrize("after", [0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.2])
def test_a_transport_can_be_closed_at_any_moment_of_a_wait(server: PrivateNats, after: float) -> None:
    """While it connects, looks up its stream or waits: the receiver gets nothing, and no error."""
    for _ in range(5):
        transport = NatsJobTransport(server.url)
        with ThreadPoolExecutor(1) as thread:
            receiving = thread.submit(transport.receive, 1, 60.0)
            time.sleep(after)
            transport.close()
            assert list(receiving.result(timeout=120)) == []


def test_a_stream_that_is_deleted_is_made_anew(server: PrivateNats) -> None:
    seconds = count(step=10)
    transport = NatsJobTransport(server.url, monotonic=lambda: float(next(seconds)))
    transport.announce([a_hint(1)])
    Admin(server.url).delete("HOLDFAST_JOBS")
    came: set[object] = set()
    for number in range(2, 6):
        try:
            transport.announce([a_hint(number)])
            came |= {delivery.hint for delivery in transport.receive(10, 0)}
        except UnavailableError:
            continue
        if came:
            break
    transport.close()

    assert came


def test_a_message_from_elsewhere_says_only_that_something_changed(server: PrivateNats) -> None:
    transport = NatsJobTransport(server.url)
    assert list(transport.receive(1, 0)) == []
    bodies = [b"", b"\xff", b"[1]", b'{"job_id":7,"epoch":0}', b'{"job_id":"x","epoch":0}', b"[" * 9_000]

    async def send(client: Any) -> None:
        for body in bodies:
            await client.jetstream().publish("holdfast.jobs", body)

    connection = NatsConnection("Admin", server.url)
    connection.run("send", send, 10)
    connection.close()
    deliveries = transport.receive(100, 1)
    for delivery in deliveries:
        transport.ack(delivery.receipt)
    transport.announce([kind(run="01TESTKEY00000000000000001") for kind in (RunEnded, HistoryGrew)])

    assert [delivery.hint for delivery in deliveries] == [None] * len(bodies)
    assert list(transport.receive(10, 0)) == []
    transport.close()


# Servers as they may be -----------------------------------------------------------------------------------------------


def test_who_may_not_come_in_is_told_so_at_once() -> None:
    with private_nats("-js", "--user", "me", "--pass", "s3cret") as server:
        for who in ("", "me:wr0ng@"):
            url = server.url.replace("://", f"://{who}")
            with pytest.raises(UnavailableError, match="Authorization") as caught:
                NatsSink(url).emit([an_event()])
            assert "wr0ng" not in str(caught.value)
        transport = NatsJobTransport(server.url.replace("://", "://me:s3cret@"))
        transport.announce([a_hint()])
        assert [delivery.hint for delivery in transport.receive(1, 1)] == [a_hint()]
        transport.close()


def test_a_server_that_proves_who_it_is_is_spoken_to_in_secret_and_another_one_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_certificate("127.0.0.1", tmp_path)
    both = str(tmp_path / "both.pem")
    with private_nats("-js", "--tls", "--tlscert", both, "--tlskey", both) as server:
        url = server.url.replace("nats://", "tls://")
        stranger = NatsSink(url)
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.emit([an_event()])
        stranger.close()
        monkeypatch.setenv("SSL_CERT_FILE", both)
        transport = NatsJobTransport(url)
        transport.announce([a_hint()])
        assert [delivery.hint for delivery in transport.receive(1, 5)] == [a_hint()]
        transport.close()


def test_a_server_without_jetstream_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with private_nats("-m", "0") as server:
        sink, transport = NatsSink(server.url), NatsJobTransport(server.url)
        with pytest.raises(UnavailableError, match="JetStream"):
            sink.emit([an_event()])
        transport.announce([a_hint()])
        with pytest.raises(UnavailableError, match="JetStream"):
            transport.receive(1, 0)
        sink.close()
        transport.close()
    assert "JetStream" in caplog.text


@stage
def double(number: int) -> int:
    return 2 * number


doubling = (
    Pipeline("doubling", input=int)
    .pipe(double)
    .pipe(double.options(name="again"))
    .pipe(double.options(name="last"))
)


@pytest.mark.anyio
async def test_runs_complete_though_the_server_is_killed_again_and_again(server: PrivateNats) -> None:
    """It carries hints only: workers find by polling what it loses."""
    transport = NatsJobTransport(server.url)
    kills = 0
    async with (
        Engine.open("memory://", workflows=[doubling], transport=transport) as engine,
        Worker(engine, poll_interval=0.2),
    ):
        for _ in range(3):
            handles = [await engine.start(doubling(number)) for number in range(10)]
            server.kill()
            kills += 1
            results = [await handle.result(timeout=120) for handle in handles]
            assert results == [8 * number for number in range(10)]
            server.start()
    assert kills == 3


# Arguments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "localhost:4222", "http://x", "nats://", "nats://a,b", "nats://me:s3cret@"]
)
def test_what_is_no_server_is_refused_at_once_and_secrets_are_not_shown(url: str) -> None:
    for kind in (NatsSink, NatsJobTransport):
        with pytest.raises(InvalidUrlError, match="nats://host:4222") as caught:
            kind(url)
        assert "s3cret" not in str(caught.value)


def test_secrets_are_shown_nowhere() -> None:
    sink = NatsSink("nats://me:s3cret@127.0.0.1:1,nats://t0ken@127.0.0.1:1")
    with pytest.raises(UnavailableError) as caught:
        sink.emit([an_event()])
    sink.close()

    assert "s3cret" not in str(caught.value) + repr(sink)
    assert "t0ken" not in str(caught.value) + repr(sink)


def test_arguments_that_can_not_be_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a subject"):
        NatsSink("nats://x", subject="a b")
    with pytest.raises(InvalidArgumentError, match="a name"):
        NatsJobTransport("nats://x", stream="a.b")
    with pytest.raises(InvalidArgumentError, match="visibility"):
        NatsJobTransport("nats://x", visibility=0)


def test_a_sink_is_named_by_a_url() -> None:
    assert (
        repr(built_in_sink("nats://me:x@host:4222"))
        == "NatsSink('nats://host:4222', subject='holdfast.events')"
    )
    assert (
        repr(built_in_sink("nats://host:4222/shop.events"))
        == "NatsSink('nats://host:4222', subject='shop.events')"
    )
