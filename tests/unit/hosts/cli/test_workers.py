"""`holdfast worker list`, and `holdfast queue`: list, pause and resume."""

import pytest

from holdfast.hosts.cli.exit_codes import Exit
from holdfast.kernel.commands import ServedQueue, SessionOpen, WorkerAbout
from holdfast.ports.json import parse
from tests.unit.hosts.cli.conftest import CommandLine, on_the_store

ENGINE = "shop:engine"
ABOUT = WorkerAbout(
    name="mail\x1b[31m",
    queues=(ServedQueue(name="default"), ServedQueue(name="packing")),
    definitions=("other@7",),
    concurrency=3,
)


def register(holdfast: CommandLine, number: int = 1) -> list[str]:
    command = SessionOpen(host="vm:1", lease=30_000_000, about=ABOUT)
    return [holdfast.engine().kernel.dispatch(command).session for _ in range(number)]


def test_no_worker_is_live(holdfast: CommandLine) -> None:
    answer = holdfast("worker", "list", ENGINE)
    assert (answer.code, answer.out) == (Exit.OK, "")
    assert "No worker is live." in answer.err


def test_workers_are_listed(holdfast: CommandLine) -> None:
    first, second = register(holdfast, 2)
    listed = holdfast("worker", "list", ENGINE)
    assert listed.code == Exit.OK, listed.err
    for text in ("mail", "vm:1", "live", "default, packing", "other@7", "0 of 3 slots"):
        assert text in listed.out
    assert "\x1b" not in listed.out
    data = parse(holdfast("worker", "list", ENGINE, "--json").out)
    assert [one["session"] for one in data] == [first, second]
    assert data[0]["is_live"] is True

    cut = holdfast("worker", "list", ENGINE, "--limit", "1")
    assert f"--after {first}" in cut.err
    rest = parse(holdfast("worker", "list", ENGINE, "--json", "--after", first).out)
    assert [one["session"] for one in rest] == [second]


def test_queues_are_listed_with_the_code_that_no_live_worker_has(holdfast: CommandLine) -> None:
    assert "No queue has jobs" in holdfast("queue", "list", ENGINE).err
    holdfast.start("a")
    register(holdfast)
    listed = holdfast("queue", "list", ENGINE)
    assert listed.code == Exit.OK, listed.err
    assert "(1 job)" in listed.out
    data = parse(holdfast("queue", "list", ENGINE, "--json").out)
    (default, packing) = data
    assert (default["name"], default["queued"], default["code"][0]["is_unserved"]) == ("default", 1, True)
    assert (packing["name"], packing["workers"], packing["slots"]) == ("packing", 1, 3)


def test_a_queue_is_paused_and_resumed(holdfast: CommandLine) -> None:
    answer = holdfast("queue", "pause", ENGINE, "default", "--reason", "provider is down")
    assert answer.code == Exit.OK, answer.err
    assert "paused" in answer.out
    assert "provider is down" in answer.out
    assert "paused" in holdfast("queue", "list", ENGINE).out
    assert parse(holdfast("queue", "resume", ENGINE, "default", "--json").out)["is_paused"] is False
    assert holdfast("queue", "resume", ENGINE, "default").code == Exit.OK


@on_the_store
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("queue", "pause", ENGINE, "a", "b"), "unexpected argument"),
        (("worker", "list", ENGINE, "--limit", "0"), "limit"),
        (("queue", "paus", ENGINE), "paus"),
    ],
)
def test_wrong_usage(holdfast: CommandLine, arguments: tuple[str, ...], text: str) -> None:
    answer = holdfast(*arguments)
    assert answer.code == Exit.USAGE
    assert text in answer.err
