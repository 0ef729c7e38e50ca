"""`holdfast run annotate`, `holdfast run logs`, and what `holdfast run show` shows of both."""

import threading

import pytest

from holdfast.hosts.cli import hearing
from holdfast.ports.json import parse
from tests.unit.hosts.cli.conftest import CommandLine


def test_something_is_said_of_a_run_and_it_is_found_by_it(holdfast: CommandLine) -> None:
    holdfast.start("a", id="one")
    holdfast.start("b", id="two")
    who = ("--actor", "person:ann", "--reason", "looked at it", "--key", "k")
    said = holdfast("run", "annotate", "shop:engine", "one", "reviewed=yes", "why=a=b", *who)
    again = holdfast("run", "annotate", "shop:engine", "one", "reviewed=no", *who, "--json")
    number = ("--json-values", "--stage", "pack", "--item", "0")
    assert holdfast("run", "annotate", "shop:engine", "two", "score=[0.5]", *number).code == 0

    assert (said.code, said.out) == (0, "one: 2 annotations stored\n")
    assert again.json == {"id": "one", "stored": 0}
    shown = holdfast("run", "show", "shop:engine", "one", "--json").json["annotations"]
    assert [(one["name"], one["value"], one["scope"]) for one in shown] == [
        ("reviewed", "yes", "run"),
        ("why", "a=b", "run"),
    ]
    assert (shown[0]["actor"], shown[0]["reason"]) == (
        {"kind": "person", "id": "ann", "version": ""},
        "looked at it",
    )
    (two,) = holdfast("run", "show", "shop:engine", "two", "--json").json["annotations"]
    assert (two["value"], two["scope"], two["stage"], two["item"]) == ([0.5], "item", "pack", 0)
    found = holdfast("run", "list", "shop:engine", "--annotation", "reviewed=yes", "--json").json
    assert [run["id"] for run in found] == ["one"]
    assert "person:ann" in holdfast("run", "show", "shop:engine", "one").out


@pytest.mark.parametrize(
    "words",
    [
        ["one"],
        ["one", "=x"],
        ["one", "a=1", "a=2"],
        ["one", "a={", "--json-values"],
        ["one", "a=1", "--stage", "nowhere"],
        ["one", "a=1", "--item", "0"],
    ],
    ids=" ".join,
)
def test_what_can_not_be_said_is_refused(holdfast: CommandLine, words: list[str]) -> None:
    holdfast.start("a", id="one")

    assert holdfast("run", "annotate", "shop:engine", *words).code == 2


def test_nothing_is_said_of_a_run_that_is_not_there(holdfast: CommandLine) -> None:
    assert holdfast("run", "annotate", "shop:engine", "nobody", "a=1").code == 3
    assert holdfast("run", "logs", "shop:engine", "nobody").code == 3


def test_the_log_of_a_run_is_shown(holdfast: CommandLine) -> None:
    holdfast.start("a", "flaky")
    holdfast.finish("order-1")
    lines = holdfast("run", "logs", "shop:engine", "order-1").out.splitlines()
    documents = [
        parse(line) for line in holdfast("run", "logs", "shop:engine", "order-1", "--json").out.splitlines()
    ]

    assert len(lines) == len(documents) == 3
    assert all("info" in line and "packing item=" in line for line in lines)
    assert sorted((one["item"], one["attempt"], one["fields"]["item"]) for one in documents) == [
        (0, 1, "a"),
        (1, 1, "flaky"),
        (1, 2, "flaky"),
    ]
    of_item = holdfast("run", "logs", "shop:engine", "order-1", "--stage", "pack", "--item", "0").out
    assert of_item.count("\n") == 1
    assert holdfast("run", "logs", "shop:engine", "order-1", "--level", "warning").out == ""
    assert holdfast("run", "logs", "shop:engine", "order-1", "--stage", "ship").out == ""
    after = ("--after", documents[0]["cursor"])
    assert holdfast("run", "logs", "shop:engine", "order-1", *after).out.count("\n") == 2
    assert holdfast("run", "logs", "shop:engine", "order-1", "--after", "x").code == 2


def test_a_log_is_followed_until_the_run_ends(holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "FOLLOW_INTERVAL", 0.02)
    holdfast.start("a", "b")
    worker = threading.Thread(target=holdfast.finish, args=("order-1",))
    worker.start()
    followed = holdfast("run", "logs", "shop:engine", "order-1", "--follow", "--json")
    worker.join()

    assert followed.code == 0
    assert sorted(parse(line)["fields"]["item"] for line in followed.out.splitlines()) == ["a", "b"]


def test_how_far_stages_are_is_shown(holdfast: CommandLine) -> None:
    holdfast.start("a")
    holdfast.finish("order-1")

    (said,) = holdfast("run", "show", "shop:engine", "order-1", "--json").json["progress"]
    assert (said["stage"], said["item"], said["done"], said["of"]) == ("pack", 0, 1, 4)
