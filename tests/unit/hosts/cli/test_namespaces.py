"""`holdfast namespace`: create, list, show, delete."""

import pytest

from holdfast.hosts.cli.exit_codes import Exit
from holdfast.ports.json import parse
from tests.unit.hosts.cli.conftest import CommandLine, on_the_store

ENGINE = "shop:engine"


def test_a_namespace_is_created_listed_shown_and_deleted(holdfast: CommandLine) -> None:
    assert "No namespace was created" in holdfast("namespace", "list", ENGINE).err
    options = ("--note", "ours", "--max-active-runs", "2", "--max-starts-per-minute", "10")
    created = holdfast("namespace", "create", ENGINE, "team-a", *options)
    assert created.code == Exit.OK, created.err
    assert "2 active runs, 10 starts a minute" in created.out
    listed = holdfast("namespace", "list", ENGINE)
    assert "team-a" in listed.out
    assert "ours" in listed.out
    shown = holdfast("namespace", "show", ENGINE, "team-a")
    assert "0 queued; 0 running" in shown.out
    assert "0 workers, 0 schedules, 0 triggers, 0 sinks" in shown.out
    deleted = holdfast("namespace", "delete", ENGINE, "team-a")
    assert "team-a was deleted" in deleted.out
    assert holdfast("namespace", "delete", ENGINE, "team-a").code == Exit.NOT_FOUND


def test_pages(holdfast: CommandLine) -> None:
    for name in ("a", "b"):
        holdfast("namespace", "create", ENGINE, name)
    first = holdfast("namespace", "list", ENGINE, "--limit", "1")
    assert "--after a" in first.err
    rest = parse(holdfast("namespace", "list", ENGINE, "--after", "a", "--json").out)
    assert [one["name"] for one in rest] == ["b"]


def test_one_that_is_used_is_deleted_only_by_a_purge_that_is_meant(holdfast: CommandLine) -> None:
    holdfast.start("a")
    assert holdfast("topic", "publish", ENGINE, "news", '"rain"').code == Exit.OK
    refused = holdfast("namespace", "delete", ENGINE, "default")
    assert refused.code == Exit.REFUSED
    assert "has runs" in refused.err
    only_shown = holdfast("namespace", "delete", ENGINE, "default", "--purge")
    assert only_shown.code == Exit.OK
    assert "1 running; 0 schedules, 0 triggers, 0 sinks, 1 topic" in only_shown.out
    assert "--yes" in only_shown.out
    data = parse(holdfast("namespace", "show", ENGINE, "default", "--json").out)
    assert (data["runs"], data["is_created"], data["queued"]) == ({"running": 1}, False, 1)
    purged = holdfast("namespace", "delete", ENGINE, "default", "--purge", "--yes", "--json")
    assert parse(purged.out) == {"name": "default", "deleted": True}
    assert parse(holdfast("namespace", "show", ENGINE, "default", "--json").out)["runs"] == {}


@on_the_store
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("create", ENGINE, "a b"), "is not a namespace"),
        (("create", ENGINE, "a", "--max-active-runs", "-1"), "-1"),
        (("delete", ENGINE, "a", "--yes"), "--yes needs --purge"),
        (("show", ENGINE, "a", "b"), "unexpected argument"),
    ],
)
def test_wrong_usage(holdfast: CommandLine, arguments: tuple[str, ...], text: str) -> None:
    answer = holdfast("namespace", *arguments)
    assert answer.code in (Exit.USAGE, Exit.REFUSED)
    assert text in answer.err
