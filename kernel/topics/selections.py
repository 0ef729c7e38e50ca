"""Selections: the texts that a message must have for a subscription to get it (docs/decisions/0115).

Subscriptions are found by the digest of their selection. A message has few texts, so the digests of all selections that
it fits are few, too: a million subscriptions to other texts cost it nothing.
"""

import hashlib
from collections.abc import Mapping
from itertools import combinations
from typing import Final, cast

from holdfast.ports.json import canonical, parse
from holdfast.ports.records.topic import GROUP_CHANNEL, TOPIC_CHANNEL, GroupRow, SubscriptionRow
from holdfast.ports.records.values import Micros

KEYS_MAX: Final = 4
"""How many texts a message can be selected by: it fits 2 to the power of this many selections."""
TEXT_MAX: Final = 1_000
"""Maximum length of a text that messages are selected by."""
TOPIC_MAX: Final = 100
"""Maximum length of the name of a topic. The channels of its subscriptions are longer."""
GROUP_MAX: Final = 64
"""Maximum length of the name of a group."""
_DIGEST_BYTES: Final = 8


def selection_text(selected: Mapping[str, str]) -> str:
    """Return a selection as it is stored."""
    return canonical(dict(selected))


def texts_from(text: str) -> dict[str, str]:
    """Return the texts of a stored selection, or of a message. Raises one of `PARSE_ERRORS` if it is damaged."""
    texts = cast("dict[str, object]", parse(text))
    return {name: value for name, value in texts.items() if isinstance(value, str)}


def digest_of(selection: str) -> str:
    """Return the digest of a selection."""
    return hashlib.sha256(selection.encode()).hexdigest()[: 2 * _DIGEST_BYTES]


def digests_of(attributes: Mapping[str, str]) -> list[str]:
    """Return the digests of all selections that a message with these texts fits."""
    names = sorted(attributes)[:KEYS_MAX]
    return [
        digest_of(selection_text({name: attributes[name] for name in some}))
        for size in range(len(names) + 1)
        for some in combinations(names, size)
    ]


def is_selected(selected: Mapping[str, str], attributes: Mapping[str, str]) -> bool:
    """Whether a message with these texts fits a selection."""
    return selected.items() <= attributes.items()


def group_key_of(group: str, selected: Mapping[str, str]) -> str:
    """Return the key of a group of a topic: members that select other messages are another group."""
    return group if not selected else f"{group}#{digest_of(selection_text(selected))}"


def group_of(member: SubscriptionRow, now: Micros) -> GroupRow:
    """Return the group of a member that is its first one."""
    name, _, _ = member.channel.removeprefix(f"{GROUP_CHANNEL}{member.topic}/").rpartition("@")
    return GroupRow(
        namespace=member.namespace,
        topic=member.topic,
        group_key=member.group_key or "",
        name=name,
        selection=member.selection,
        since=member.since,
        used_at=now,
    )


def group_channel_of(topic: str, group: str, call: str) -> str:
    """Return the name of the channel in which a member of a group gets the message that a call waits for."""
    return f"{GROUP_CHANNEL}{topic}/{group}@{call}"


def channel_of(topic: str, selected: Mapping[str, str]) -> str:
    """Return the name of the channel in which a run gets the selected messages of a topic."""
    name = f"{TOPIC_CHANNEL}{topic}"
    return name if not selected else f"{name}#{digest_of(selection_text(selected))}"
