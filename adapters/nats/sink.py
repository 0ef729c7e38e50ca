"""A sink that publishes events to a stream of NATS JetStream, as CloudEvents."""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from nats.aio.client import Client
from nats.errors import MaxPayloadError
from nats.js.errors import APIError, NoStreamResponseError
from typing_extensions import override

from holdfast.adapters.nats.connection import NatsConnection, jetstream
from holdfast.ports.cloudevents import STRUCTURED, cloud_event
from holdfast.ports.errors import EventRefusedError, SinkUnavailableError
from holdfast.ports.events import Event
from holdfast.ports.validation import TEXT, Wanted, check

WITHIN: Final = 20.0
"""Seconds for one call of `emit`."""
_EACH_WITHIN: Final = 5.0
_TOO_LARGE: Final = 10_054
"""The error code of a stream for a message that exceeds its limit."""
SUBJECT: Final = Wanted(
    "a subject: words of A-Z a-z 0-9 _ - with dots between them",
    lambda value: isinstance(value, str) and re.fullmatch(r"[\w-]+(\.[\w-]+)*", value, re.ASCII) is not None,
)


class NatsSink:
    """An EventSink that publishes to `<subject>.<type>`, as `holdfast.events.run.completed`. For use from any thread.

    A message is a CloudEvent (structured mode) with the event's id as `Nats-Msg-Id`: a repetition within the stream's
    duplicate window is dropped. An event is published once the stream has stored the one before it of the same run, in
    parallel with other runs, so a run's events stay in order whatever fails.

    An event larger than the limit of the server or the stream is refused for good. The stream must exist, with
    `<subject>.>` among its subjects; without it nothing is accepted.
    """

    def __init__(
        self, url: str, /, *, subject: str = "holdfast.events", credentials: str | None = None
    ) -> None:
        """Configure the sink, without connecting.

        Args:
            url: `nats://host:4222`, or several separated by commas; `tls://` for TLS. It may contain user and
                password, or a token, which are never shown.
            subject: The prefix of the subjects of all events.
            credentials: The path of a credentials file as written by `nsc`.

        Raises:
            InvalidUrlError: The URL is not that of a server.
            InvalidArgumentError: Another argument is invalid.
        """
        check("NatsSink", TEXT, url=url)
        check("NatsSink", SUBJECT, subject=subject)
        check("NatsSink", TEXT.or_none, credentials=credentials)
        self._connection = NatsConnection("NatsSink", url, credentials)
        self._subject = subject

    @override
    def __repr__(self) -> str:
        return f"NatsSink({self._connection.shown!r}, subject={self._subject!r})"

    def emit(self, events: Sequence[Event], /) -> None:
        """Publish events. EventRefusedError, UnavailableError."""
        if events:
            self._connection.run(
                f"publish to {self._subject}", lambda client: self._publish_all(client, events), WITHIN
            )

    def close(self) -> None:
        """Close the connection. Can be called repeatedly."""
        self._connection.close()

    async def _publish_all(self, client: Client, events: Sequence[Event]) -> None:
        waiting: dict[str, deque[Event]] = {}
        for event in events:
            waiting.setdefault(event.run, deque()).append(event)

        async def publish(run: deque[Event]) -> None:
            for event in run:
                await self._publish(client, event)

        # Every run publishes as much as it can; then the error of one of them is raised.
        outcomes = await asyncio.gather(*map(publish, waiting.values()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _publish(self, client: Client, event: Event) -> None:
        headers = {"Nats-Msg-Id": event.id, "content-type": STRUCTURED}
        try:
            await jetstream(client).publish(
                f"{self._subject}.{event.type}", cloud_event(event).encode(), _EACH_WITHIN, headers=headers
            )
        except MaxPayloadError as error:
            raise EventRefusedError(
                f"{self!r}: event {event.id} is larger than the maximum message size"
            ) from error
        except NoStreamResponseError as error:
            raise SinkUnavailableError(
                f"{self!r}: no JetStream stream has the subject {self._subject}.{event.type}: make one, with"
                f" `nats stream add --subjects '{self._subject}.>'`, say"
            ) from error
        except APIError as error:
            if error.err_code == _TOO_LARGE:
                raise EventRefusedError(
                    f"{self!r}: event {event.id} is larger than the stream allows"
                ) from error
            raise SinkUnavailableError(f"{self!r}: {error.description or error}") from error
