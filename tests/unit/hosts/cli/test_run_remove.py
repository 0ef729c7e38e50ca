"""`holdfast run remove`."""

from tests.unit.hosts.cli.conftest import CommandLine


def test_a_run_is_removed(holdfast: CommandLine) -> None:
    holdfast.start("a")
    holdfast.finish("order-1")

    answer = holdfast("run", "remove", "shop:engine", "order-1")
    assert (answer.code, answer.out) == (0, "order-1 was removed\n")
    assert holdfast("run", "show", "shop:engine", "order-1").code == 3
    assert holdfast("run", "remove", "shop:engine", "order-1").code == 3


def test_a_run_that_is_under_way_is_not(holdfast: CommandLine) -> None:
    holdfast.start("a")

    answer = holdfast("run", "remove", "shop:engine", "order-1")
    assert answer.code == 4
    assert "run 'order-1' can't be removed: it is running" in answer.err


def test_many_are_counted_first(holdfast: CommandLine) -> None:
    holdfast.start("a")
    holdfast.finish("order-1")
    holdfast.start("b", id="order-2")

    counted = holdfast("run", "remove", "shop:engine", "--all")
    assert counted.out == "1 run (1 completed) would be removed\n"
    assert holdfast("run", "remove", "shop:engine", "--all", "--ended-before", "1d", "--yes").out == (
        "0 runs were removed\n"
    )
    assert holdfast("run", "remove", "shop:engine", "--all", "--yes").out == "1 run was removed\n"
