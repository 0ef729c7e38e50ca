"""Operations on topics: publish a message, and list the topics."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import attrs

from holdfast.hosts.http.operations import (
    NAMESPACE,
    Hint,
    Invocation,
    Nothing,
    Operation,
    PageQuery,
    Table,
    Wait,
    page_of,
)
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.inspection.topics import TopicInfo, topic_infos
from holdfast.kernel.authoring.topics import MESSAGE_ID, TopicMessage
from holdfast.kernel.commands import TopicPublish, TopicRemove
from holdfast.kernel.commands.topics import KEEP_DEFAULT, KEEP_LAST_MAX, KEEP_MAX
from holdfast.kernel.rules.topics import check_message
from holdfast.ports.errors import (
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidCommandError,
    TopicInUseError,
)
from holdfast.ports.json import compact
from holdfast.ports.validation import check, duration, integer

_TOPICS: Final = f"{NAMESPACE}/topics"
_MICROSECOND: Final = timedelta(microseconds=1)


@attrs.frozen(kw_only=True)
class TopicPage:
    """A page of the topics, by name."""

    items: tuple[TopicInfo, ...]
    """The topics."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class Publication:
    """A message to publish."""

    message: object
    """The message, of the topic's type, at most 262,144 characters as JSON."""
    attributes: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The texts by which subscriptions select it, at most four: of each key of the topic."""
    id: str | None = None
    """The id of the message in its topic, at most 256 characters; generated if omitted. Publishing again with an id
    that is stored does nothing."""
    keep: timedelta | None = None
    """How long it is kept for later subscriptions; 7 days if omitted, at most 366."""
    keep_last: int | None = None
    """How many messages of the topic, up to this one, are kept for later subscriptions at most; any number if
    omitted."""


@attrs.frozen(kw_only=True)
class PublishedMessage:
    """The outcome of a publication: the message is stored."""

    id: str
    """The id of the message in its topic."""
    published: bool
    """Whether this request published it; otherwise a message with this id was stored before."""


def publish(call: Invocation[Nothing, Publication]) -> PublishedMessage:
    """Publish a message to a topic.

    It is stored when this is answered. Every run that has subscribed, or subscribes while the topic keeps the message,
    gets it once. Topics have no types on the server: each run checks the message when it receives it.
    """
    body = call.body
    check("publish", MESSAGE_ID, id=body.id)
    check("publish", integer(1, KEEP_LAST_MAX).or_none, keep_last=body.keep_last)
    message = TopicMessage(
        call.path["topic"],
        compact(body.message),
        attributes=body.attributes,
        keep=_keep(body.keep),
        keep_last=body.keep_last,
    )
    new = message.as_new()
    check_message(new)  # before the bounds of commands, whose texts do not name a way out
    command = TopicPublish(
        namespace=call.namespace, idempotency_key=call.idempotency_key, message=new, id=body.id
    )
    reply = call.engine.client.dispatch(command)
    return PublishedMessage(id=reply.id, published=reply.published)


def _keep(wanted: timedelta | None) -> int:
    if wanted is None:
        return KEEP_DEFAULT
    return duration("publish", "keep_seconds", wanted, most=KEEP_MAX * _MICROSECOND) // _MICROSECOND


@attrs.frozen(kw_only=True)
class RemovedPage:
    """What a request has deleted of a topic."""

    rows: int
    """How many messages and groups, at most 1,000."""
    more: bool
    """Whether the topic has more: repeat the request."""


def remove_topic(call: Invocation[Nothing, Nothing]) -> RemovedPage:
    """Delete a topic with its messages and groups, a page in each request: repeat it while `more` is true.

    It is refused while runs that have not ended have subscribed, and while the topic has triggers. What runs have
    received stays in their histories.
    """
    command = TopicRemove(
        namespace=call.namespace, idempotency_key=call.idempotency_key, topic=call.path["topic"]
    )
    reply = call.engine.client.dispatch(command)
    return RemovedPage(rows=reply.rows, more=reply.more)


def list_topics(call: Invocation[PageQuery, Nothing]) -> TopicPage:
    """List the topics, by name: how far each was delivered, and what it has."""
    query = call.query
    items, last = page_of(topic_infos(call.engine.core, query.after, query.limit + 1), query.limit)
    return TopicPage(items=items, next=None if last is None else last.name)


OPERATIONS: Final[Table] = (
    Operation(
        name="topic.list",
        method="GET",
        path=_TOPICS,
        scope=Scope.READ,
        query=PageQuery,
        reply=TopicPage,
        handler=list_topics,
        wait=Wait.CHANGE,
    ),
    Operation(
        name="topic.publish",
        method="POST",
        path=f"{_TOPICS}/{{topic}}/messages",
        scope=Scope.START,
        body=Publication,
        reply=PublishedMessage,
        handler=publish,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(InvalidCommandError, InvalidArgumentError, IdempotencyConflictError),
    ),
    Operation(
        name="topic.remove",
        method="DELETE",
        path=f"{_TOPICS}/{{topic}}",
        scope=Scope.ADMIN,
        reply=RemovedPage,
        handler=remove_topic,
        hint=Hint.DESTROYS,
        idempotent=True,
        errors=(TopicInUseError, InvalidCommandError, IdempotencyConflictError),
    ),
)
