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
"""Seconds that one call of `emit` may publish for."""
_EACH_WITHIN: Final = 5.0
_TOO_LARGE: Final = 10_054
"""The error code by which a stream says that a message is larger than it takes."""
SUBJECT: Final = Wanted(
    "a subject: words of A-Z a-z 0-9 _ - with dots between them",
    lambda value: isinstance(value, str) and re.fullmatch(r"[\w-]+(\.[\w-]+)*", value, re.ASCII) is not None,
)


class NatsSink:
    """See `EventSink`. Publishes an event to `<subject>.<type>`, as `holdfast.events.run.completed`. For any thread.

    A message is a CloudEvent (structured mode), and its `Nats-Msg-Id` is the event's id: what comes again within the
    stream's duplicate window is dropped. An event is published when the stream has stored the one before it of the same
    run, and those of other runs meanwhile, so that a run's events are in order whatever fails.

    What is larger than server or stream take is refused for good. The stream has to be there, with `<subject>.>` among
    its subjects: where none is, nothing can be taken.
    """

    def __init__(
        self, url: str, /, *, subject: str = "holdfast.events", credentials: str | None = None
    ) -> None:
        """Take a server; nothing is connected yet.

        Args:
            url: `nats://host:4222`, or several with commas between them; `tls://` for TLS. User and password, or a
                token, may be in it; they are shown nowhere.
            subject: What the subjects of all events begin with.
            credentials: The path of a file with credentials, as `nsc` writes it.

        Raises:
            InvalidUrlError: It is no URL of a server.
            InvalidArgumentError: Another argument can't be.
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
        """End the connection. Harmless when repeated."""
        self._connection.close()

    async def _publish_all(self, client: Client, events: Sequence[Event]) -> None:
        waiting: dict[str, deque[Event]] = {}
        for event in events:
            waiting.setdefault(event.run, deque()).append(event)

        async def publish(run: deque[Event]) -> None:
            for event in run:
                await self._publish(client, event)

        # Every run goes as far as it can; then it is said what was wrong with one of them.
        outcomes = await asyncio.gather(*map(publish, waiting.values()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _publish(self, client: Client, event: Event) -> None:
        headers = {"Nats-Msg-Id": event.id, "content-type": STRUCTURED}
        try:
            await jetstream(client).publish(
                f"{self._subject}.{event.type}",
                cloud_event(event).encode(),
                _EACH_WITHIN,
                headers=headers,
            )
        except MaxPayloadError as error:
            raise EventRefusedError(f"{self!r}: event {event.id} is larger than a message may be") from error
        except NoStreamResponseError as error:
            raise SinkUnavailableError(
                f"{self!r}: no stream of JetStream has the subject {self._subject}.{event.type}: make one, with"
                f" `nats stream add --subjects '{self._subject}.>'`, say"
            ) from error
        except APIError as error:
            if error.err_code == _TOO_LARGE:
                raise EventRefusedError(
                    f"{self!r}: event {event.id} is larger than the stream takes"
                ) from error
            raise SinkUnavailableError(f"{self!r}: {error.description or error}") from error
