"""`holdfast topic`: list, publish and remove."""

import time

import pytest

from holdfast.hosts.cli.exit_codes import Exit
from tests.unit.hosts.cli.conftest import CommandLine, share

ENGINE = "shop:engine"


def test_a_message_is_published_once_and_its_topic_is_listed(holdfast: CommandLine) -> None:
    assert "No topic has messages" in holdfast("topic", "list", ENGINE).err
    words = ("topic", "publish", ENGINE, "orders", '{"number": 7}', "--attribute", "country=nz", "--id", "m")
    first = holdfast(*words)
    assert first.code == Exit.OK, first.err
    assert "published to topic orders, as message m" in first.out
    assert "topic orders already has a message m" in holdfast(*words).out
    assert holdfast(*words, "--json").json == {"topic": "orders", "id": "m", "published": False}
    listed = holdfast("topic", "list", ENGINE)
    assert listed.out.splitlines()[-1].split() == ["orders", "1", "1", "0", "0"]
    assert holdfast("topic", "list", ENGINE, "--json").json == [
        {
            "name": "orders",
            "last": 1,
            "messages": 1,
            "undelivered": 0,
            "undelivered_since": None,
            "subscriptions": 0,
            "groups": [],
        }
    ]


def test_a_topic_keeps_as_much_as_its_messages_say(holdfast: CommandLine) -> None:
    for number in range(3):
        holdfast("topic", "publish", ENGINE, "orders", str(number), "--keep-last", "2", "--keep", "60.5")
    (topic,) = holdfast("topic", "list", ENGINE, "--json").json
    assert (topic["last"], topic["messages"]) == (3, 2)


def test_groups_are_listed_below_their_topics(holdfast: CommandLine) -> None:
    with holdfast.working():
        holdfast.engine().sync.start(share("nz"), id="run")
        while not (listed := holdfast("topic", "list", ENGINE, "--json").json) or not listed[0]["groups"]:
            time.sleep(0.01)
    (group,) = listed[0]["groups"]
    assert (group["name"], group["selected"], group["waiting"]) == ("drivers", {"country": "nz"}, 1)
    row = holdfast("topic", "list", ENGINE).out.splitlines()[-1].split()
    assert row[:6] == ["drivers", "parcels", "country=nz", "0", "0", "1"]


def test_a_topic_is_removed_unless_it_is_used(holdfast: CommandLine) -> None:
    for name in ("orders", "parcels"):
        holdfast("topic", "publish", ENGINE, name, '{"country": "fr"}', "--attribute", "country=fr")
    removed = holdfast("topic", "remove", ENGINE, "orders")
    assert (removed.code, removed.out.strip()) == (Exit.OK, "orders was removed, with 1 messages and groups")
    assert holdfast("topic", "remove", ENGINE, "orders", "--json").json == {"name": "orders", "rows": 0}
    with holdfast.working():
        holdfast.engine().sync.start(share("nz"), id="run")
        while not holdfast("topic", "list", ENGINE, "--json").json[0]["groups"]:
            time.sleep(0.01)
    refused = holdfast("topic", "remove", ENGINE, "parcels")
    assert refused.code == Exit.REFUSED
    assert "topic 'parcels' has subscriptions" in refused.err
    assert [one["messages"] for one in holdfast("topic", "list", ENGINE, "--json").json] == [1]


def test_topics_are_listed_page_by_page(holdfast: CommandLine) -> None:
    for name in ("a", "b"):
        holdfast("topic", "publish", ENGINE, name, "null")
    assert "--after a" in holdfast("topic", "list", ENGINE, "--limit", "1").err
    rest = holdfast("topic", "list", ENGINE, "--after", "a", "--json").json
    assert [one["name"] for one in rest] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("orders", "yes"), "MESSAGE is not JSON"),
        (("x" * 101, "1"), "101"),
        (("orders", "1", "--attribute", "country"), "write NAME=TEXT"),
        (("orders", "1", "--attribute", "a=1", "--attribute", "a=2"), "'a' is repeated"),
        (("orders", "1", "--id", "x" * 257), "a text of 1 to 256 characters"),
        (("orders", "1", "--keep", "0"), "--keep"),
        (("orders", "1", "--keep-last", "0"), "--keep-last"),
        (
            ("orders", "1", *(word for name in "abcde" for word in ("--attribute", f"{name}=x"))),
            "at most 4 texts",
        ),
    ],
)
def test_a_message_that_can_not_be_published_is_wrong_usage(
    holdfast: CommandLine, arguments: tuple[str, ...], text: str
) -> None:
    refused = holdfast("topic", "publish", ENGINE, *arguments)
    assert refused.code == Exit.USAGE
    assert text in refused.err
    assert holdfast("topic", "list", ENGINE, "--json").json == []
