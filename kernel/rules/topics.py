"""Rules for topics: messages are published, and durable functions subscribe (docs/decisions/0115)."""

from holdfast.kernel.commands import (
    NO_FOLLOW_UP,
    FollowUp,
    TopicPublish,
    TopicPublished,
    TopicSend,
    TopicSubscribe,
    TopicUnsubscribe,
)
from holdfast.kernel.commands.names import check_name
from holdfast.kernel.commands.topics import PAYLOAD_MAX, NewTopicMessage
from holdfast.kernel.composed_searches import PublishedMessages
from holdfast.kernel.history import events
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.subscriptions import return_changes
from holdfast.kernel.state import Decision, Reads, State
from holdfast.kernel.topics.selections import (
    GROUP_MAX,
    KEYS_MAX,
    TEXT_MAX,
    TOPIC_MAX,
    channel_of,
    digest_of,
    group_channel_of,
    group_key_of,
    group_of,
    selection_text,
    texts_from,
)
from holdfast.ports.changes import Change, Delete, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import Run
from holdfast.ports.records.topic import (
    MessageName,
    SubscriptionName,
    SubscriptionRow,
    TopicMessageRow,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.tables import SUBSCRIPTIONS
from holdfast.ports.unreadable import PARSE_ERRORS


def reads_of_publish(command: TopicPublish) -> Reads:
    """Read the message that is stored under this id, if the publisher has chosen it."""
    check_message(command.message)
    check_name("the id of the message", command.id)
    if command.id is None:
        return Reads()
    if not command.id:
        raise InvalidCommandError("the id of a message is empty; leave it out for a new one")
    return Reads(search=PublishedMessages((_name_of(command, command.id),)))


def decide_publish(state: State, command: TopicPublish, now: Micros, ids: Ids) -> Decision[TopicPublished]:
    """Store the message, without a number: so no publisher waits for another."""
    message_id = ids.new() if command.id is None else command.id
    name = MessageName(command.namespace, command.message.topic, message_id)
    follow_up = FollowUp(topics=(name.topic,))
    if name in state.tables.topic_messages:
        return Decision(TopicPublished(id=message_id, published=False, follow_up=follow_up))
    stored = _stored(command.message, name, now)
    return Decision(TopicPublished(id=message_id, published=True, follow_up=follow_up), (Insert(stored),))


def send(draft: RunDraft, run: Run, job: Job, record: TopicSend, now: Micros) -> Decision[FollowUp]:
    """Publish a message of a durable function and append the row."""
    check_message(record.message)
    check_name("the id of the message", record.id)
    topic = record.message.topic
    message_id = record.id or f"{run.key}/{record.call}"
    sent = events.MessagePublished(call=record.call, topic=topic, message=message_id, site=record.site)
    draft.append(sent, node=job.node)
    # Until they have numbers, messages are in the order of their instants and rows: those of a run in its order.
    name = MessageName(run.namespace, topic, message_id)
    message = _stored(record.message, name, max(now, run.updated_at))
    stored = evolve(message, sender=run.id, sender_row=draft.rows[-1].number)
    return Decision(FollowUp(topics=(topic,)), (Insert(stored),))


def subscribe(draft: RunDraft, run: Run, job: Job, record: TopicSubscribe, now: Micros) -> Decision[FollowUp]:
    """Subscribe a durable function and append the row. It keeps the subscription that it has for this channel.

    The subscription starts behind: the next delivery of the topic gives it the messages that are stored already, and
    then those that follow. So none is missed between the two. A member of a group waits for one message: the next
    delivery hands it one, if there is one. A generation that has the message of this call again waits for no other.
    """
    check_topic(record.topic)
    check_group(record.group)
    selected = texts_of_selection(record.selection)
    channel = (
        channel_of(record.topic, selected)
        if record.group is None
        else group_channel_of(record.topic, record.group, record.call)
    )
    if record.channel != channel:
        raise InvalidCommandError(f"the channel of this subscription is {channel!r}, not {record.channel!r}")
    event = events.TopicSubscribed(
        call=record.call,
        topic=record.topic,
        channel=channel,
        selection=selected,
        group=record.group,
        site=record.site,
    )
    draft.append(event, node=job.node)
    mailbox = draft.mailbox
    if channel in {*(one.channel for one in mailbox.groups.values()), *mailbox.read_before.values()}:
        return Decision(NO_FOLLOW_UP)
    draft.keep_mailbox(draft.mailbox.subscribe(channel))
    since = run.created_at if record.since is None else record.since
    stored = subscription_of(run, event, since, now)
    changes: tuple[Change, ...] = (Insert(stored),)
    if stored.group_key is not None:
        changes = (Insert(group_of(stored, now)), *changes)  # it keeps the group that is stored
    return Decision(FollowUp(topics=(record.topic,)), changes)


def unsubscribe(draft: RunDraft, run: Run, job: Job, record: TopicUnsubscribe) -> Decision[FollowUp]:
    """End a subscription and append the row. The lock of the run orders this and the deliveries.

    A message that a member of a group was handed, and has not read, goes back to the group.
    """
    event = events.TopicUnsubscribed(
        call=record.call, topic=record.topic, channel=record.channel, site=record.site
    )
    draft.append(event, node=job.node)
    mailbox = draft.mailbox.unsubscribe(record.channel)
    back = [number for number, one in mailbox.groups.items() if one.channel == record.channel]
    draft.keep_mailbox(mailbox.return_to_groups(back) if back else mailbox)
    name = SubscriptionName(run.namespace, run.id, record.channel)
    return Decision(
        FollowUp(topics=(record.topic,) if back else ()),
        (Delete(SUBSCRIPTIONS, name), *return_changes(run, mailbox, back)),
    )


def subscription_of(
    run: Run, subscribed: events.TopicSubscribed, since: Micros, now: Micros
) -> SubscriptionRow:
    """Return the subscription that an event records, which gets messages from an instant on.

    That of a member of a group waits from `now` on.
    """
    selected = {name: str(text) for name, text in subscribed.selection.items()}
    selection, group = selection_text(selected), subscribed.group
    return SubscriptionRow(
        namespace=run.namespace,
        run_id=run.id,
        channel=subscribed.channel,
        topic=subscribed.topic,
        selection=selection,
        # No message has the digest of a member: a message is for the group.
        digest=digest_of(selection) if group is None else "",
        next_number=0 if group is None else None,
        since=since,
        group_key=None if group is None else group_key_of(group, selected),
        waits_since=None if group is None else now,
    )


def check_message(message: NewTopicMessage) -> None:
    """Raise InvalidCommandError if a message can't be published."""
    check_topic(message.topic)
    _texts("the attributes of a message", message.attributes)
    if len(message.payload) > PAYLOAD_MAX:
        raise InvalidCommandError(
            f"the message has {len(message.payload):,} characters; a topic takes at most {PAYLOAD_MAX:,}. Store large"
            " data elsewhere, and publish where it is"
        )
    try:
        parse(message.payload)
    except PARSE_ERRORS as error:
        raise InvalidCommandError(f"the message is not JSON: {error}") from None


def check_topic(name: str) -> None:
    """Raise InvalidCommandError if the name of a topic is not valid."""
    check_name("the topic", name)
    if not 1 <= len(name) <= TOPIC_MAX:
        raise InvalidCommandError(f"the name of a topic has 1 to {TOPIC_MAX} characters, not {len(name)}")


def check_group(name: str | None) -> None:
    """Raise InvalidCommandError if the name of a group is not valid. None passes."""
    check_name("the group", name)
    if name is not None and not 1 <= len(name) <= GROUP_MAX:
        raise InvalidCommandError(f"the name of a group has 1 to {GROUP_MAX} characters, not {len(name)}")


def texts_of_selection(selection: str) -> dict[str, str]:
    """Return the texts of the selection of a command. Raises InvalidCommandError."""
    return _texts("the selection of a subscription", selection)


def _texts(what: str, text: str) -> dict[str, str]:
    wrong = f"{what} must be a JSON object with at most {KEYS_MAX} texts of up to {TEXT_MAX:,} characters"
    try:
        texts = parse(text)
    except PARSE_ERRORS:
        raise InvalidCommandError(f"{wrong}; they are {text[:100]!r}") from None
    found = texts_from(text) if isinstance(texts, dict) else {}
    # What is not a text is left out of those that were found.
    if found != texts or len(found) > KEYS_MAX or any(len(one) > TEXT_MAX for one in found.values()):
        raise InvalidCommandError(f"{wrong}; they are {text[:100]!r}")
    return found


def _stored(message: NewTopicMessage, name: MessageName, at: Micros) -> TopicMessageRow:
    return TopicMessageRow(
        namespace=name.namespace,
        topic=name.topic,
        id=name.id,
        at=at,
        payload=message.payload,
        attributes=message.attributes,
        checked=int(message.checked),
        expires_at=at + message.keep,
        keep_last=message.keep_last,
    )


def _name_of(command: TopicPublish, message_id: str) -> MessageName:
    return MessageName(command.namespace, command.message.topic, message_id)
