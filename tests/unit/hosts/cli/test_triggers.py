"""`holdfast trigger`: list, show, pause, resume, remove and apply."""

from holdfast import Topic, Trigger
from holdfast.hosts.cli.exit_codes import Exit
from tests.unit.hosts.cli.conftest import NEGATE, CommandLine, bill

ENGINE = "shop:engine"
orders = Topic("orders", str)
numbers = Topic("numbers", int)
BILL = Trigger("bill-orders", orders, bill)
COUNT = Trigger("count", numbers, NEGATE)


def put(holdfast: CommandLine, *triggers: Trigger[object]) -> None:
    for one in triggers:
        holdfast.engine().sync.triggers.put(one)


def publish(holdfast: CommandLine, *texts: str) -> None:
    for text in texts:
        assert holdfast("topic", "publish", ENGINE, "orders", text).code == Exit.OK


def test_triggers_are_listed_by_name_page_by_page(holdfast: CommandLine) -> None:
    assert "No triggers." in holdfast("trigger", "list", ENGINE).err
    put(holdfast, BILL, COUNT)
    publish(holdfast, '"a"', "5")
    head, first, second = holdfast("trigger", "list", ENGINE).out.splitlines()
    assert head.split() == ["NAME", "MESSAGES", "WORKFLOW", "STATE", "BEHIND", "RUNS", "REFUSED"]
    assert first.split() == ["bill-orders", "orders", "bill", "active", "0", "1", "1"]
    assert second.split() == ["count", "numbers", "negate", "active", "0", "0", "0"]
    assert "--after bill-orders" in holdfast("trigger", "list", ENGINE, "--limit", "1").err
    rest = holdfast("trigger", "list", ENGINE, "--after", "bill-orders", "--json").json
    assert [one["name"] for one in rest] == ["count"]


def test_a_trigger_is_shown_with_its_last_messages_and_changes(holdfast: CommandLine) -> None:
    put(holdfast, BILL)
    publish(holdfast, '"a"', "5")
    shown = holdfast("trigger", "show", ENGINE, "bill-orders").out
    for words in (
        "Messages",
        "orders",
        "Runs started",
        "Refused",
        "started",
        "bill-orders/orders/1",
        "created",
    ):
        assert words in shown
    assert "message 2 of topic 'orders'" in shown
    found = holdfast("trigger", "show", ENGINE, "bill-orders", "--json").json
    assert (found["started"], found["refused"], found["next_number"]) == (1, 1, 3)
    assert holdfast("trigger", "show", ENGINE, "none").code == Exit.NOT_FOUND


def test_a_trigger_is_paused_and_resumed(holdfast: CommandLine) -> None:
    put(holdfast, BILL)
    paused = holdfast("trigger", "pause", ENGINE, "bill-orders", "--reason", "closed")
    assert "paused" in paused.out
    assert "closed" in paused.out
    publish(holdfast, '"a"')
    assert holdfast("trigger", "show", ENGINE, "bill-orders", "--json").json["behind"] == 1
    resumed = holdfast("trigger", "resume", ENGINE, "bill-orders", "--json").json
    assert (resumed["state"], resumed["started"], resumed["behind"]) == ("active", 1, 0)
    holdfast("trigger", "pause", ENGINE, "bill-orders")
    publish(holdfast, '"b"')
    skipped = holdfast("trigger", "resume", ENGINE, "bill-orders", "--skip", "--json").json
    assert (skipped["started"], skipped["next_number"]) == (1, 3)


def test_a_trigger_is_removed(holdfast: CommandLine) -> None:
    put(holdfast, BILL)
    removed = holdfast("trigger", "remove", ENGINE, "bill-orders")
    assert "bill-orders was removed" in removed.out
    assert removed.err == ""
    assert holdfast("trigger", "remove", ENGINE, "bill-orders").code == Exit.NOT_FOUND


def test_declared_triggers_are_applied(holdfast: CommandLine) -> None:
    refused = holdfast("trigger", "apply", ENGINE)
    assert refused.code == Exit.USAGE
    assert "declares no triggers" in refused.err
    holdfast.triggers = [BILL, COUNT]
    assert "Declared triggers: bill-orders, count." in holdfast("trigger", "apply", ENGINE).out
    assert holdfast("trigger", "apply", ENGINE, "--json").json == {
        "triggers": ["bill-orders", "count"],
        "changed": False,
    }
    removed = holdfast("trigger", "remove", ENGINE, "count")
    assert "Code declares this trigger" in removed.err
    holdfast.triggers = []
    assert holdfast("trigger", "apply", ENGINE).code == Exit.OK
    assert holdfast("trigger", "list", ENGINE, "--json").json == []


def test_an_upgrade_of_the_tables_applies_triggers(holdfast: CommandLine) -> None:
    holdfast.triggers = [BILL]
    assert holdfast("db", "upgrade", ENGINE).code == Exit.OK
    holdfast.triggers = None
    assert [one["name"] for one in holdfast("trigger", "list", ENGINE, "--json").json] == ["bill-orders"]
