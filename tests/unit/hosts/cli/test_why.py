"""`holdfast why`."""

from tests.unit.hosts.cli.conftest import CommandLine


def test_it_says_what_a_run_waits_for(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    answer = holdfast("why", "shop:engine", "a")
    assert answer.code == 0
    head, *rest = answer.out.splitlines()
    assert head == "Run a is running."
    assert any("waits for a worker" in line for line in rest)
    document = holdfast("why", "shop:engine", "a", "--json").json
    assert (document["id"], document["status"]) == ("a", "running")
    assert [reason["code"] for reason in document["reasons"]] == ["worker"]


def test_it_says_how_a_run_ended(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    holdfast.finish("a")
    assert "It completed" in holdfast("why", "shop:engine", "a").out


def test_a_run_that_is_not_there_is_not_found(holdfast: CommandLine) -> None:
    assert holdfast("why", "shop:engine", "nobody").code == 3
