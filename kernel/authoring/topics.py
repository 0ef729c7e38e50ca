"""Topics: messages for every run that subscribes."""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Generic, cast

import attrs
from typing_extensions import TypeForm, TypeVar, override

from holdfast.kernel.authoring.body_types import check_storable
from holdfast.kernel.authoring.channels import Inbox
from holdfast.kernel.authoring.cloud_events import cloud_event_from
from holdfast.kernel.authoring.options import PLACES, check_name, input_attributes
from holdfast.kernel.commands.names import text_fault
from holdfast.kernel.commands.topics import (
    ID_MAX,
    KEEP_DEFAULT,
    KEEP_LAST_MAX,
    KEEP_MAX,
    PAYLOAD_MAX,
    NewTopicMessage,
)
from holdfast.kernel.functions.call_sites import call_site
from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.functions.protocol import PublishRequest, SubscribeRequest
from holdfast.kernel.pipelines.input_attributes import AttributeSource, attributes_in
from holdfast.kernel.topics.selections import (
    GROUP_MAX,
    KEYS_MAX,
    TEXT_MAX,
    TOPIC_MAX,
    channel_of,
    group_channel_of,
    selection_text,
)
from holdfast.kernel.values import decode_input, encode
from holdfast.kernel.values.type_forms import Form, show
from holdfast.ports.clock import micros
from holdfast.ports.durations import NO_TIME, Duration
from holdfast.ports.errors import (
    ChannelClosedError,
    DefinitionError,
    InvalidArgumentError,
    InvalidValueError,
    UnstorableValueError,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.validation import AWARE, Wanted, an, check, duration, integer

T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

_KEEP: Final = timedelta(microseconds=KEEP_DEFAULT)
_TEXT: Final = Wanted(
    f"a text of at most {TEXT_MAX:,} characters",
    lambda value: isinstance(value, str) and len(value) <= TEXT_MAX,
)
MESSAGE_ID: Final = Wanted(
    f"a text of 1 to {ID_MAX} characters, without NUL or half a surrogate pair",
    lambda value: isinstance(value, str) and text_fault(value, ID_MAX, 1) is None,
).or_none

_OF_KEYS: Final = AttributeSource("keys", "key", "message")


@attrs.frozen
class TopicMessage:
    """A message with its topic, made by `topic(message)`. `engine.publish(...)` publishes it."""

    topic: str
    """Name of the topic."""
    text: str
    """JSON text of the message."""
    attributes: Mapping[str, str] = attrs.field(factory=dict[str, str], kw_only=True)
    """The texts by which subscriptions select it."""
    keep: Micros = attrs.field(default=KEEP_DEFAULT, kw_only=True)
    """How long it is kept for later subscriptions, in microseconds."""
    keep_last: int | None = attrs.field(default=None, kw_only=True)
    """How many messages of the topic, up to this one, are kept for later subscriptions at most. None: any number."""
    checked: bool = attrs.field(default=False, kw_only=True)
    """Whether it has the type of the topic. Otherwise each run checks that when it receives it."""

    def as_new(self) -> NewTopicMessage:
        """Return the message as a command has it."""
        return NewTopicMessage(
            topic=self.topic,
            payload=self.text,
            attributes=selection_text(self.attributes),
            checked=self.checked,
            keep=self.keep,
            keep_last=self.keep_last,
        )


TOPIC_MESSAGE: Final = an("a message with its topic, as topic(message) returns it", TopicMessage)


@attrs.frozen(kw_only=True)
class ReceivedCloudEvent:
    """A CloudEvent as a message of a topic, from `Topic.from_cloud_event`."""

    message: TopicMessage
    """The message, to publish."""
    id: str
    """The id to publish it with: made of the source and the id of the event."""
    source: str
    """The source of the event."""
    type: str
    """The type of the event."""


class TopicSubscription(Inbox[Out]):
    """The subscription of a run to a topic: the channel in which its messages arrive, each once, in their order.

    It is received from as a channel, also in `select`. It lasts until the run ends, or `close`; a run that continues as
    new keeps it.
    """

    def __init__(self, topic: str, channel: str, form: Form) -> None:
        super().__init__(channel, form)
        self.topic = topic

    @override
    async def close(self) -> None:
        """End the subscription. Messages that were not received are dropped; `receive` raises ChannelClosedError.

        Raises:
            RuntimeError: It was not called by a durable function.
        """
        loop = loop_for("TopicSubscription.close()")
        if loop.inboxes.is_closed(self.name):
            return
        request = SubscribeRequest(
            call=loop.next_call(), topic=self.topic, channel=self.name, site=call_site()
        )
        await loop.submit(request)


class TopicGroup(Generic[Out]):
    """A group of runs that share the selected messages of a topic: each message is handed to one member.

    Runs that name the same group of the same selection are its members, whatever their workflows. A member has no
    place in the group while it does not wait: `receive` takes one, and the message goes to the member that has waited
    longest. See `TopicSelection.group`.
    """

    def __init__(self, topic: str, group: str, form: Form, selected: Mapping[str, str]) -> None:
        self.topic = topic
        """Name of the topic."""
        self.name = group
        """Name of the group."""
        self._form = form
        self._selected = selected

    async def receive(self, *, timeout: Duration | None = None, since: datetime | None = None) -> Out:
        """Wait for a message of the group and return it: `order = await orders.group("packers").receive()`.

        The message belongs to this run then, and no other member gets it. A message that arrives when the run waits no
        more, because of the timeout, a cancellation or its end, goes back to the group.

        A message that was published by its topic's name only, and does not have the type of the topic, is skipped and
        recorded; the run then waits anew, with the whole timeout.

        Args:
            timeout: How long to wait, a timedelta or a number of seconds. A message is handed out once the wait is
                stored: a second is short, and with zero there is none.
            since: Where a group begins that does not exist yet: with messages that were published from this instant on,
                as far as the topic keeps them. By default from the start of the run's generation on.

        Raises:
            TimeoutError: No message came within `timeout`.
            InvalidArgumentError: The timeout is not a duration, or `since` is no aware datetime.
            RuntimeError: It was not called by a durable function.
        """
        loop = loop_for("TopicGroup.receive()")
        check("receive", AWARE.or_none, since=since)
        if timeout is not None:
            duration("receive", "timeout", timeout, least=NO_TIME)
        begins = None if since is None else micros(since)
        while True:
            call = loop.next_call()
            channel = group_channel_of(self.topic, self.name, call)
            request = SubscribeRequest(
                call=call,
                topic=self.topic,
                channel=channel,
                selection=self._selected,
                group=self.name,
                since=begins,
                site=call_site(),
            )
            inbox = Inbox[Out](channel, self._form)
            try:
                await loop.submit(request)
                return await inbox.receive(timeout=timeout)
            except ChannelClosedError:
                pass  # the message can't be read, and was skipped
            except (TimeoutError, CancelledError):
                end = loop.next_call()
                site = call_site()
                await loop.submit(SubscribeRequest(call=end, topic=self.topic, channel=channel, site=site))
                raise
            finally:
                loop.inboxes.forget(channel)

    async def __aiter__(self) -> AsyncIterator[Out]:
        """Iterate over the messages that this run gets: `async for order in orders.group("packers"):`.

        Between two messages, the run is not in the group: it gets the next one when it has handled the one before.
        """
        while True:
            yield await self.receive()


class TopicSelection(Generic[Out]):
    """The messages of a topic that have some texts: `orders.where(country="nz")`."""

    def __init__(self, topic: str, form: Form, selected: Mapping[str, str]) -> None:
        self.name = topic
        self._form = form
        self.selected: Mapping[str, str] = MappingProxyType(dict(selected))
        """The texts that a message must have, by key."""

    @property
    def message_type(self) -> object:
        """The type of its messages, as an annotation."""
        return self._form

    @property
    def takes(self) -> str:
        """Type of the messages, as it is written in code."""
        return show(self._form)

    async def subscribe(self, *, since: datetime | None = None) -> TopicSubscription[Out]:
        """Subscribe the run: `paid = await payments.where(order=order.id).subscribe()`.

        The run gets every selected message that is published from the start of its generation on, also those of before
        this call, in the order of the topic. Subscribing again to the same selection returns the same subscription.

        Args:
            since: Get messages that were published from this instant on, as far as the topic keeps them. It counts when
                the subscription begins.

        Raises:
            InvalidArgumentError: `since` is no aware datetime.
            RuntimeError: It was not called by a durable function.
        """
        loop = loop_for("Topic.subscribe()")
        check("subscribe", AWARE.or_none, since=since)
        channel = channel_of(self.name, self.selected)
        subscription = TopicSubscription[Out](self.name, channel, self._form)
        request = SubscribeRequest(
            call=loop.next_call(),
            topic=self.name,
            channel=channel,
            selection=self.selected,
            since=None if since is None else micros(since),
            site=call_site(),
        )
        await loop.submit(request)
        return subscription

    async def receive(self, *, timeout: Duration | None = None) -> Out:
        """Wait for the next selected message and return it. Subscribes the run, if it has not subscribed.

        `paid = await payments.where(order=order.id).receive(timeout=timedelta(days=3))`. The first call returns the
        first message that was published since the generation of the run started. Raises as `Channel.receive`.
        """
        return await (await self._subscribed()).receive(timeout=timeout)

    def group(self, name: str, /) -> TopicGroup[Out]:
        """Return a group of runs that share these messages: `orders.where(country="nz").group("packers")`.

        Each message is handed to one of its members, the one that has waited longest. A group needs no set-up: it
        exists from the first `receive` on, and keeps the messages for which no member waits. A group to which nothing
        was handed for 30 days, and in which no member waits, keeps them only as long as the topic does.

        Args:
            name: The name of the group, of 1 to 64 characters. Groups with the same name that select other messages are
                different groups.

        Raises:
            DefinitionError: The name is invalid.
        """
        check_name(name, "the name of a group")
        if len(name) > GROUP_MAX:
            raise DefinitionError(
                f"the name of a group has at most {GROUP_MAX} characters; {name!r} has {len(name)}"
            )
        return TopicGroup(self.name, name, self._form, self.selected)

    async def __aiter__(self) -> AsyncIterator[Out]:
        """Iterate over the selected messages: `async for order in orders:`. Subscribes the run, if it has not yet."""
        async for message in await self._subscribed():
            yield message

    async def _subscribed(self) -> TopicSubscription[Out]:
        channel = channel_of(self.name, self.selected)
        if loop_for("Topic.receive()").inboxes.is_subscribed(channel):
            return TopicSubscription(self.name, channel, self._form)
        return await self.subscribe()


class Topic(TopicSelection[T], Generic[T]):
    """Messages of one type for every run that subscribes: `orders = Topic("orders", Order, keys=("country",))`.

    A topic needs no set-up: it exists as soon as something is published, or a run subscribes.

    Args:
        name: Name of the topic, unique in the namespace.
        type: Type of the messages; any storable type.
        keys: What messages are selected by, at most four: names of fields of a message, or places by key, such as
            `{"country": "address.country"}`.
        keep: How long messages are kept for later subscriptions, a timedelta or a number of seconds, at most 366 days.
            Default: 7 days.
        keep_last: How many messages are kept for later subscriptions at most. Subscribers, triggers and groups get all
            messages, whatever is kept. None: any number.

    Raises:
        DefinitionError: The name or a key is invalid, or values of the type can't be stored.
        InvalidArgumentError: `keys`, `keep` or `keep_last` is invalid.
    """

    def __init__(
        self,
        name: str,
        type: TypeForm[T],
        /,
        *,
        keys: Sequence[str] | Mapping[str, str] = (),
        keep: Duration = _KEEP,
        keep_last: int | None = None,
    ) -> None:
        check_name(name, "the name of a topic")
        if len(name) > TOPIC_MAX:
            raise DefinitionError(
                f"the name of a topic has at most {TOPIC_MAX} characters; {name!r} has {len(name)}"
            )
        check("Topic", PLACES, keys=keys)
        self._keys = input_attributes(keys)
        if len(self._keys) > KEYS_MAX:
            raise DefinitionError(
                f"topic {name!r} has {len(self._keys)} keys; messages are selected by at most {KEYS_MAX}"
            )
        self._keep = duration("Topic", "keep", keep, most=timedelta(microseconds=KEEP_MAX)) // timedelta(
            microseconds=1
        )
        check("Topic", integer(1, KEEP_LAST_MAX).or_none, keep_last=keep_last)
        self._keep_last = keep_last
        super().__init__(name, type, {})
        check_storable(self._form, f"topic {name!r} can't have messages of this type")

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its keys."""
        return tuple(one.name for one in self._keys)

    def where(self, **texts: str) -> TopicSelection[T]:
        """Return the messages with these texts: `orders.where(country="nz")`. Numbers and booleans as in JSON: "3".

        Raises:
            InvalidArgumentError: The topic has no such key, or a value is not a text.
        """
        for name, text in texts.items():
            if name not in self.keys:
                known = ", ".join(self.keys) or "none"
                raise InvalidArgumentError(
                    name,
                    f"where: topic {self.name!r} has no key {name!r}; it has {known}. Add it to Topic(keys=...)",
                )
            check("where", _TEXT, **{name: text})
        return TopicSelection(self.name, self._form, texts)

    def __call__(self, message: T, /) -> TopicMessage:
        """Return a message to publish: `await engine.publish(orders(order))`.

        Raises:
            InvalidValueError: The message does not have the type of the topic.
            UnstorableValueError: It can't be stored.
            InvalidArgumentError: It is too large, or what a key names is not a text, a number or a boolean.
        """
        where = f"topic {self.name!r}"
        try:
            text = encode(message, self._form)
        except InvalidValueError as error:
            raise InvalidValueError(f"{where} ({self.takes})", error.problems) from None
        except UnstorableValueError as error:
            raise UnstorableValueError(error.path, f"{error.reason}; {where}") from None
        if len(text) > PAYLOAD_MAX:
            raise InvalidArgumentError(
                "message",
                f"{where}: the message has {len(text):,} characters as JSON; at most {PAYLOAD_MAX:,} are possible."
                " Store large data elsewhere, and publish where it is",
            )
        attributes = attributes_in(text, self._keys, where, _OF_KEYS)
        return TopicMessage(
            self.name, text, attributes=attributes, keep=self._keep, keep_last=self._keep_last, checked=True
        )

    def from_cloud_event(self, headers: Mapping[str, str], body: bytes | str) -> ReceivedCloudEvent:
        """Return the message of a CloudEvent that came over HTTP, in structured or binary mode.

        For a handler of any web framework: `event = payments.from_cloud_event(request.headers, body)`, and then
        `engine.publish(event.message, id=event.id)`. The id is made of the source and the id of the event, so an event
        that its producer sends again is published once. Acknowledge the event when `publish` has returned.

        Args:
            headers: The headers of the request. Their names may be in any case.
            body: The body of the request.

        Raises:
            InvalidArgumentError: It is no CloudEvent 1.0, or lacks something; the message says what.
            InvalidValueError: Its data does not have the type of the topic.
        """
        event = cloud_event_from(headers, body)
        try:
            value = decode_input(event.data, self._form)
        except InvalidValueError as error:
            where = f"the data of the event for topic {self.name!r} ({self.takes})"
            raise InvalidValueError(where, error.problems) from None
        return ReceivedCloudEvent(
            message=self(cast("T", value)), id=event.message_id, source=event.source, type=event.type
        )

    async def publish(self, message: T, /, *, id: str | None = None) -> None:
        """Publish a message from a durable function: `await orders.publish(order)`.

        When this returns, the message is stored, once: the row of this run that records it was stored in the same
        transaction. Elsewhere, call `engine.publish`.

        Args:
            message: The message.
            id: The id of the message in its topic. Publishing again with an id that is stored does nothing.

        Raises:
            InvalidValueError: The message does not have the type of the topic.
            UnstorableValueError: It can't be stored.
            InvalidArgumentError: As `topic(message)`, or the id is not a text.
            RuntimeError: It was not called by a durable function.
        """
        loop = loop_for("Topic.publish()")
        check("publish", MESSAGE_ID, id=id)
        number = loop.next_call()  # also if the message is refused: a replay numbers calls alike
        made = self(message)
        request = PublishRequest(
            call=number,
            topic=made.topic,
            text=made.text,
            attributes=made.attributes,
            id=id,
            keep=made.keep,
            keep_last=made.keep_last,
            site=call_site(),
        )
        await loop.submit(request)
