"""`holdfast run wake`."""

from tests.unit.hosts.cli.conftest import CommandLine


def test_what_waits_for_nothing_is_refused(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    by_key = holdfast("run", "wake", "shop:engine", "no-such-work")
    by_stage = holdfast("run", "wake", "shop:engine", "a", "--stage", "check", "--json")
    assert (by_key.code, by_stage.code) == (4, 4)
    assert "no-such-work" in by_key.err
    assert '"nothing_to_wake"' in by_stage.err


def test_a_run_that_is_not_there_is_not_found(holdfast: CommandLine) -> None:
    woken = holdfast("run", "wake", "shop:engine", "nobody", "--stage", "check", "--json")
    assert (woken.code, woken.error["code"]) == (3, "run_not_found")


def test_an_item_is_of_a_stage(holdfast: CommandLine) -> None:
    assert holdfast("run", "wake", "shop:engine", "a", "--item", "1").code == 2
