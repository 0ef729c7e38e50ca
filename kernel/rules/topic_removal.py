"""The rule for the removal of topics: their messages and groups are deleted in pages."""

from holdfast.kernel.commands import TopicRemove, TopicRemoved
from holdfast.kernel.composed_searches import RemovedTopic
from holdfast.kernel.rules.topics import check_topic
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Delete
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, TopicInUseError
from holdfast.ports.records.topic import GroupName, MessageName, ReturnedName, TopicName
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import RowOfTopic
from holdfast.ports.tables import GROUPS, RETURNED_MESSAGES, TOPIC_MESSAGES, TOPICS


def reads_of_remove(command: TopicRemove) -> Reads:
    """Lock the topic, and search for what uses it and what it has."""
    check_topic(command.topic)
    if not 1 <= command.limit <= 10_000:
        raise InvalidCommandError(f"limit is {command.limit}; it must be from 1 to 10,000")
    return Reads(search=_search(command))


def _search(command: TopicRemove) -> RemovedTopic:
    return RemovedTopic(command.namespace, command.topic, command.limit)


def decide_remove(state: State, command: TopicRemove, _: Micros, __: Ids) -> Decision[TopicRemoved]:
    """Delete the first rows of the topic, and with the last ones its own. Raises TopicInUseError."""
    found = state.found[_search(command)]
    if found.contents:
        raise TopicInUseError(command.topic, found.contents)
    name = TopicName(command.namespace, command.topic)
    changes: list[Change] = [_deletion(name, row) for row in found.topic_rows]
    more = len(found.topic_rows) >= command.limit
    if not more and name in state.tables.topics:
        changes.append(Delete(TOPICS, name))
    return Decision(TopicRemoved(rows=len(found.topic_rows), more=more), tuple(changes))


def _deletion(topic: TopicName, row: RowOfTopic) -> Delete:
    match row.kind:
        case "message":
            return Delete(TOPIC_MESSAGES, MessageName(*topic, row.name))
        case "returned":
            return Delete(RETURNED_MESSAGES, ReturnedName(*topic, row.name, row.number))
        case "group":
            return Delete(GROUPS, GroupName(*topic, row.name))
