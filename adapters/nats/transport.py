"""A transport of hints over a work-queue stream of NATS JetStream, which delivers each to one receiver."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar, cast

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StreamConfig
from nats.js.errors import NoStreamResponseError, NotFoundError, ServiceUnavailableError
from typing_extensions import override

from holdfast.adapters.nats.connection import NatsConnection, jetstream, subscribed
from holdfast.adapters.nats.sink import SUBJECT
from holdfast.ports.durations import Duration
from holdfast.ports.errors import UnavailableError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import job_key
from holdfast.ports.transport import Delivery, Hint, JobHint
from holdfast.ports.validation import TEXT, Wanted, check, duration, integer

T = TypeVar("T")

STREAM: Final = "HOLDFAST_JOBS"
"""The default name of the stream."""
KEPT_FOR: Final = 86_400
"""Seconds after which an unreceived hint is dropped: maintenance has announced it again long before."""
KEPT_MAX: Final = 1_000_000
ALIKE_WITHIN: Final = 2.0
"""Seconds in which a repeated hint is dropped. Not longer, since the first one may have been handled by then."""
_CONSUMER: Final = "workers"
_AT_ONCE: Final = 200
_SEND_BACKOFF: Final = 5.0
"""Seconds without sending after a failure: every commit would wait for it."""
_SEND_WITHIN: Final = 2.0
_GRACE: Final = 2.0
"""Seconds that the server has for an answer, beyond the requested wait."""
_GONE: Final = frozenset({"409", "503"})
"""Status codes for a consumer that no longer exists."""
_NAME: Final = Wanted(
    "a name of A-Z a-z 0-9 _ -",
    lambda value: isinstance(value, str) and re.fullmatch(r"[\w-]+", value, re.ASCII) is not None,
)
_RECEIPT: Final = re.compile(r"\$JS\.ACK\.[!-~]+")

_log = logging.getLogger("holdfast.nats")


class NatsJobTransport:
    """A JobTransport over a work queue: each hint goes to one receiver, until it is acknowledged. Safe from any thread.

    A message is `{"epoch":0,"job_id":"..."}` and nothing else, with the job's queue as its header `queue`. Hints at the
    ends of runs are not sent, because a message reaches only one receiver; callers that wait for a run poll the store.

    The stream and its consumer are created on first use; existing ones of the same name are used as they are. A message
    is stored before `announce` returns. If that fails hints are lost, and so are those of the next five seconds.
    """

    delivers_run_hints: Final = False

    def __init__(
        self,
        url: str,
        /,
        *,
        stream: str = STREAM,
        subject: str = "holdfast.jobs",
        visibility: Duration = 60.0,
        replicas: int = 1,
        credentials: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Configure the transport, without connecting.

        Args:
            url: `nats://host:4222`, or several separated by commas; `tls://` for TLS. It may contain user and
                password, or a token, which are never shown.
            stream: The name of the stream.
            subject: The subject of the messages, which no other stream may have.
            visibility: How long a message that is not acknowledged stays invisible before it goes to another receiver.
            replicas: How many servers of a cluster store the stream.
            credentials: The path of a credentials file as written by `nsc`.
            monotonic: The clock for timeouts.

        Raises:
            InvalidUrlError: The URL is not that of a server.
            InvalidArgumentError: Another argument is invalid.
        """
        check("NatsJobTransport", TEXT, url=url)
        check("NatsJobTransport", _NAME, stream=stream)
        check("NatsJobTransport", SUBJECT, subject=subject)
        check("NatsJobTransport", TEXT.or_none, credentials=credentials)
        check("NatsJobTransport", integer(1, 5), replicas=replicas)
        seconds = duration("NatsJobTransport", "visibility", visibility).total_seconds()
        self._stream_config = StreamConfig(
            name=stream,
            subjects=[subject],
            retention=RetentionPolicy.WORK_QUEUE,
            discard=DiscardPolicy.OLD,
            max_msgs=KEPT_MAX,
            max_age=KEPT_FOR,
            duplicate_window=ALIKE_WITHIN,
            num_replicas=replicas,
        )
        self._consumer_config = ConsumerConfig(
            durable_name=_CONSUMER, ack_policy=AckPolicy.EXPLICIT, ack_wait=seconds, max_ack_pending=-1
        )
        self._subject = subject
        self._connection = NatsConnection("NatsJobTransport", url, credentials)
        self._name = stream
        self._monotonic = monotonic
        self._backoff_until = float("-inf")
        self._ready: Client | None = None

    @override
    def __repr__(self) -> str:
        return f"NatsJobTransport({self._connection.shown!r}, stream={self._name!r})"

    def announce(self, hints: Sequence[Hint], /) -> None:
        """Send a message for each job. Hints are lost after `close`, and for a while after a failure."""
        jobs = [hint for hint in hints if isinstance(hint, JobHint)]
        for start in range(0, len(jobs), _AT_ONCE):
            if self._connection.is_closed or self._monotonic() < self._backoff_until:
                return
            some = jobs[start : start + _AT_ONCE]
            try:
                self._run("announce jobs", partial(self._send, some), _SEND_WITHIN)
            except UnavailableError as error:
                self._backoff_until = self._monotonic() + _SEND_BACKOFF
                _log.warning(
                    "hints are lost for %s seconds, the jobs are announced again later: %s",
                    _SEND_BACKOFF,
                    error,
                )

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """Return up to `limit` hints, waiting up to `wait` seconds for the first. Empty if none arrived.

        UnavailableError if the server can't be reached.
        """
        if self._connection.is_closed or limit < 1:
            return ()
        try:
            messages = self._run(
                "receive hints", lambda client: self._take(client, limit, wait), wait + 3 * _GRACE
            )
        except UnavailableError:
            if self._connection.is_closed:
                return ()
            raise
        return [Delivery(hint=_hint(message), receipt=message.reply) for message in messages]

    def ack(self, receipt: str, /) -> None:
        """Remove the message from the stream, unless that was done already."""
        self._answer(receipt, b"+ACK")

    def retry(self, receipt: str, delay: float, /) -> None:
        """Redeliver the message after `delay` seconds."""
        nanoseconds = max(0, round(delay * 1e9))
        self._answer(receipt, f'-NAK {{"delay": {nanoseconds}}}'.encode() if nanoseconds else b"-NAK")

    def extend(self, receipt: str, by: float, /) -> None:
        """Keep the message invisible for another `visibility`. NATS has no other period, so `by` is ignored."""
        del by
        self._answer(receipt, b"+WPI")

    def reopen(self) -> None:
        """See `Reopenable`."""
        self._connection.reopen()

    def close(self) -> None:
        """Stop. A waiting `receive` returns. Can be called repeatedly."""
        self._connection.close()

    async def _send(self, hints: Sequence[JobHint], client: Client) -> None:
        stream = jetstream(client)
        sent = (
            stream.publish(
                self._subject,
                canonical({"epoch": hint.epoch, "job_id": hint.job}).encode(),
                _SEND_WITHIN,
                headers={"Nats-Msg-Id": f"{hint.job}/{hint.epoch}", "queue": canonical(hint.queue)},
            )
            for hint in hints
        )
        try:
            await asyncio.gather(*sent)
        except NoStreamResponseError:
            self._ready = None
            raise

    async def _take(self, client: Client, limit: int, wait: float) -> list[Msg]:
        """Return the messages in the stream, or, if it is empty, the next one and those that arrived with it."""
        inbox = client.new_inbox()
        answers = await subscribed(client, inbox)
        try:
            messages = await self._fetch(client, answers, inbox, limit, 0.0)
            if not messages and wait > 0:
                messages = await self._fetch(client, answers, inbox, 1, wait)
                if messages and limit > 1:
                    messages += await self._fetch(client, answers, inbox, limit - 1, 0.0)
        finally:
            await answers.unsubscribe()
        return messages

    async def _fetch(
        self, client: Client, answers: Subscription, inbox: str, limit: int, wait: float
    ) -> list[Msg]:
        request = (
            {"batch": limit, "expires": round(wait * 1e9)} if wait else {"batch": limit, "no_wait": True}
        )
        await client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._name}.{_CONSUMER}", canonical(request).encode(), reply=inbox
        )
        messages: list[Msg] = []
        while len(messages) < limit:
            try:
                message = await answers.next_msg(timeout=wait + _GRACE)
            except NatsTimeoutError:
                self._ready = None  # a deleted consumer does not answer
                break
            if (status := (message.headers or {}).get("Status")) is not None:
                self._ready = None if status in _GONE else self._ready
                break
            messages.append(message)
        return messages

    def _run(self, doing: str, work: Callable[[Client], Awaitable[T]], within: float) -> T:
        async def prepared(client: Client) -> T:
            if self._ready is not client:
                await self._prepare(client)
                self._ready = client
            return await work(client)

        return self._connection.run(doing, prepared, within)

    async def _prepare(self, client: Client) -> None:
        stream = jetstream(client)
        try:
            await stream.stream_info(self._name)
        except NotFoundError:
            await stream.add_stream(self._stream_config)
        except ServiceUnavailableError as error:
            raise UnavailableError(
                f"{self!r}: JetStream does not answer: start the server with `-js`"
            ) from error
        try:
            await stream.consumer_info(self._name, _CONSUMER)
        except NotFoundError:
            await stream.add_consumer(self._name, self._consumer_config)

    def _answer(self, receipt: str, text: bytes) -> None:
        if self._connection.is_closed or _RECEIPT.fullmatch(receipt) is None:
            return

        async def send(client: Client) -> None:
            await client.publish(receipt, text)
            await client.flush()

        try:
            self._connection.run("answer a message", send, _SEND_WITHIN)
        except UnavailableError as error:
            _log.debug("a message is redelivered: %s", error)  # harmless


def _hint(message: Msg) -> JobHint | None:
    """Return the hint in a message; None for a message from elsewhere, which only signals that something changed."""
    try:
        data: object = parse(message.data.decode())
        queue: object = parse((message.headers or {}).get("queue", '""'))
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    fields = cast("dict[str, object]", data)
    job, epoch = fields.get("job_id"), fields.get("epoch")
    if not isinstance(job, str) or type(epoch) is not int or not isinstance(queue, str):
        return None
    try:
        job_key(job)
    except ValueError:
        return None
    return JobHint(job=job, epoch=epoch, queue=queue)
