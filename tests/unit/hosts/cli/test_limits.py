"""`holdfast limit`: list, show, set, clear."""

import pytest

from holdfast.hosts.cli.exit_codes import Exit
from holdfast.ports.json import parse
from tests.unit.hosts.cli.conftest import CommandLine

ENGINE = "shop:engine"


def test_nothing_is_set(holdfast: CommandLine) -> None:
    answer = holdfast("limit", "list", ENGINE)
    assert answer.code == Exit.OK
    assert "No limits are set, and nothing waits for one." in answer.err


def test_a_limit_is_set_listed_and_cleared(holdfast: CommandLine) -> None:
    answer = holdfast(
        "limit", "set", ENGINE, "rate:model", "--rate", "300/1m", "--reason", "provider is slow"
    )
    assert answer.code == Exit.OK, answer.err
    assert "300 in 1m" in answer.out
    assert holdfast("limit", "set", ENGINE, "run:customer Ann", "--slots", "4").code == Exit.OK
    listed = holdfast("limit", "list", ENGINE).out
    assert "rate:model" in listed
    assert "4 slots" in listed
    assert "provider is slow" in listed
    cleared = holdfast("limit", "clear", ENGINE, "rate:model")
    assert cleared.code == Exit.OK
    assert "rate:model" not in holdfast("limit", "list", ENGINE).out


def test_json(holdfast: CommandLine) -> None:
    holdfast("limit", "set", ENGINE, "rate:model", "--rate", "300/1m")
    data = parse(holdfast("limit", "show", ENGINE, "rate:model", "--json").out)
    assert (data["name"], data["rate_limit"], data["rate_period_seconds"]) == ("rate:model", 300, 60.0)
    assert [one["name"] for one in parse(holdfast("limit", "list", ENGINE, "--json").out)] == ["rate:model"]


def test_a_queue_is_paused_and_unpaused(holdfast: CommandLine) -> None:
    holdfast.start("a")
    assert "paused" in holdfast("limit", "set", ENGINE, "queue:default", "--paused").out
    why = holdfast("why", ENGINE, "order-1").out
    assert "is paused" in " ".join(why.split())
    assert "open" in holdfast("limit", "set", ENGINE, "queue:default", "--unpaused").out
    holdfast.finish("order-1")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("model", "--slots", "1"), "write one of"),
        (("rate:model",), "nothing is set for rate:model"),
        (("rate:model", "--rate", "300"), "write 300/1m"),
        (("rate:model", "--rate", "x/1m"), "write 300/1m"),
        (("rate:model", "--rate", "0/1m"), "limit"),
        (("rate:model", "--rate", "5/2d"), "per"),
        (("queue:q", "--slots", "1"), "can only be paused"),
        (("run:k", "--slots", "-1"), "-1"),
    ],
)
def test_what_cannot_be_is_refused(holdfast: CommandLine, options: tuple[str, ...], says: str) -> None:
    answer = holdfast("limit", "set", ENGINE, *options)
    assert answer.code not in (Exit.OK, None)
    assert says in " ".join(answer.err.split())
    assert "No limits are set" in holdfast("limit", "list", ENGINE).err
