"""`holdfast run annotate`, `holdfast run logs`, and both in `holdfast run show`."""

import threading
from decimal import Decimal
from pathlib import Path

import pytest

from holdfast import Engine, Pipeline, StageContext, Worker, stage
from holdfast.hosts.client import sync_run_handle
from holdfast.ports.json import parse
from tests.unit.hosts.cli.conftest import CommandLine, on_the_store


@on_the_store
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


@pytest.mark.parametrize(
    "words", [("a", "reviewed"), ("a", "x=1", "reviewed"), ("shop:engine", "a", "reviewed")]
)
def test_a_word_without_an_equals_sign_is_named(holdfast: CommandLine, words: tuple[str, ...]) -> None:
    answer = holdfast("run", "annotate", *words)
    assert answer.code == 2
    assert "'reviewed' is not an annotation: write NAME=TEXT" in answer.err


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
    monkeypatch.setattr(sync_run_handle, "FOLLOW_INTERVAL", 0.02)
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


@pytest.mark.slow
def test_artifacts_are_listed_and_saved(holdfast: CommandLine, tmp_path: Path) -> None:
    run = holdfast.start("a", id="one")
    assert holdfast("run", "artifacts", "shop:engine", run).err == "No artifacts.\n"
    url = _made(tmp_path)
    listed = holdfast("run", "artifacts", url, "x", "--json").json
    table = holdfast("run", "artifacts", url, "x").out

    assert [(one["name"], one["stage"], one["size"], one["content_type"]) for one in listed] == [
        ("../up", "talk", 2, "application/octet-stream"),
        ("out.txt", "talk", 5, "text/plain"),
    ]
    assert "text/plain" in table
    saved = holdfast("run", "artifacts", url, "x", "--save", "out.txt", "--json")
    assert saved.json == {"name": "out.txt", "file": "out.txt", "size": 5}
    assert Path("out.txt").read_bytes() == b"hello"
    again = holdfast("run", "artifacts", url, "x", "--save", "out.txt", "--json")
    assert (again.code, again.error["code"]) == (4, "file_exists")
    assert holdfast("run", "artifacts", url, "x", "--save", "../up").code == 2
    assert holdfast("run", "artifacts", url, "x", "--save", "../up", "--to", "here").code == 0
    assert Path("here").read_bytes() == b"up"
    nothing = holdfast("run", "artifacts", url, "x", "--save", "nothing", "--json")
    assert (nothing.code, nothing.error["code"]) == (3, "artifact_missing")
    assert holdfast("run", "artifacts", url, "x", "--stage", "talk").code == 2
    assert holdfast("run", "artifacts", url, "nobody").code == 3


@pytest.mark.slow
def test_calls_of_models_are_shown_and_added_up(holdfast: CommandLine, tmp_path: Path) -> None:
    url = _made(tmp_path)
    totals = holdfast("run", "ai", url, "x", "--json").json
    by_topic = holdfast("run", "ai", url, "x", "--topic", "a", "--by", "topic", "--json").json
    listed = holdfast("run", "ai", url, "x", "--calls", "--texts", "--json").out.splitlines()
    calls = [parse(line) for line in listed]

    assert (totals["calls"], totals["failed"], totals["unpriced"], totals["cost"]) == (3, 1, 1, "0.3")
    assert [(part["name"], part["cost"]) for part in totals["parts"]] == [("m-1", "0.3"), ("m-2", "0")]
    assert [(part["name"], part["calls"]) for part in by_topic["parts"]] == [("a", 1), ("a.b", 1)]
    assert [(call["topic"], call["prompt"]) for call in calls] == [("a", "hi"), ("a.b", None), ("c", None)]
    assert "0.3 + 1 unknown" in holdfast("run", "ai", url, "x").out
    assert "no answer" in holdfast("run", "ai", url, "x", "--calls").out
    assert parse(holdfast("run", "ai", url, "x", "--calls", "--json").out.splitlines()[0])["prompt"] is None
    assert holdfast("run", "ai", url, "x", "--texts").code == 2
    assert holdfast("run", "ai", url, "nobody").code == 3


def _made(folder: Path) -> str:
    """A store with a run that has written every kind of annotation and output."""

    @stage
    def talk(ctx: StageContext, x: int) -> int:
        ctx.artifacts.put("out.txt", b"hello", content_type="text/plain")
        ctx.artifacts.put("../up", b"up")
        ctx.ai.record(topic="a", model="m-1", cost=Decimal("0.1"), prompt="hi")
        ctx.ai.record(topic="a.b", model="m-1", cost=Decimal("0.2"))
        ctx.ai.record(topic="c", model="m-2", error="no answer")
        return x

    pipeline = Pipeline("talk", input=int).pipe(talk)
    url = f"sqlite:///{folder}/talk.db"
    with Engine.open(url, workflows=[pipeline]).sync as engine:
        run = engine.start(pipeline(1), id="x")
        with Worker(engine):
            run.result()
    return url
