"""`holdfast key`: create, list, rotate, revoke; and `holdfast audit`."""

import pytest

from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.client.api_keys import key_from
from holdfast.ports.json import parse
from tests.unit.hosts.cli.conftest import CommandLine

ENGINE = "shop:engine"
READ = ("--scope", "read")


def test_a_key_is_created_listed_rotated_and_revoked(holdfast: CommandLine) -> None:
    created = parse(
        holdfast("key", "create", ENGINE, "ci", *READ, "--in", "*", "--expires", "90d", "--json").out
    )
    key = key_from(created["text"])
    assert key is not None
    assert (key.id, created["info"]["scopes"]) == (created["info"]["id"], ["read"])
    assert (created["info"]["namespaces"], created["created"]) == (["*"], True)

    assert created["text"] not in holdfast("key", "list", ENGINE).out
    rotated = parse(holdfast("key", "rotate", ENGINE, "ci", "--grace", "1h", "--json").out)
    assert rotated["text"] not in (None, created["text"])
    assert rotated["info"]["previous_until"] > created["info"]["created_at"]
    assert "is revoked" in holdfast("key", "revoke", ENGINE, key.id, "--reason", "leaked").out
    (listed,) = parse(holdfast("key", "list", ENGINE, "--json").out)
    assert listed["revoked_at"] is not None
    assert "revoked" in holdfast("key", "list", ENGINE).out


def test_a_key_is_shown_only_when_it_is_created(holdfast: CommandLine) -> None:
    first = holdfast("key", "create", ENGINE, "me", "--admin")
    assert "hf_" in first.out
    assert "not shown again" in first.err
    again = holdfast("key", "create", ENGINE, "me", "--admin")
    assert again.code == Exit.OK
    assert "hf_" not in again.out + again.err
    assert "exists already" in again.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("create", ENGINE, "ci"), Exit.USAGE, "say what the key allows"),
        (("create", ENGINE, "ci", *READ, "--admin"), Exit.USAGE, "say what the key allows"),
        (("create", ENGINE, "ci", "--in", "n"), Exit.USAGE, "--in needs --scope"),
        (("create", ENGINE, "ci", "--scope", "root"), Exit.USAGE, "'root' is not one of"),
        (("create", ENGINE, "c i", *READ), Exit.USAGE, "is not a label"),
        (("create", ENGINE, "ci", *READ, "--expires", "2020-01-01"), Exit.USAGE, "in the past"),
        (("create", ENGINE, "taken", *READ), Exit.REFUSED, "exists with other scopes"),
        (("rotate", ENGINE, "nope"), Exit.NOT_FOUND, "there is no valid key 'nope'"),
        (("rotate", ENGINE, "taken", "--grace", "31d"), Exit.USAGE, "0 to 30 days"),
        (("revoke", ENGINE, "nope"), Exit.NOT_FOUND, "there is no valid key 'nope'"),
    ],
)
def test_what_is_wrong_is_refused(
    holdfast: CommandLine, words: tuple[str, ...], code: Exit, says: str
) -> None:
    holdfast("key", "create", ENGINE, "taken", "--admin")
    answer = holdfast("key", *words)
    assert says in " ".join(answer.err.split())
    assert answer.code == code
    assert answer.out == ""


def test_the_audit_log_is_listed_by_pages(holdfast: CommandLine) -> None:
    assert "No entries." in holdfast("audit", ENGINE).err
    holdfast("key", "create", ENGINE, "ci", *READ, "--actor", "ann")
    holdfast("limit", "set", ENGINE, "slots:gpu", "--slots", "0", "--reason", "maintenance")
    (newest,) = parse(holdfast("audit", ENGINE, "--limit", "1", "--json").out)
    assert (newest["action"], newest["target"]) == ("limit.set", "slots:gpu")
    assert newest["details"] == {"reason": "maintenance", "slots": 0}
    (older,) = parse(holdfast("audit", ENGINE, "--after", newest["cursor"], "--json").out)
    assert (older["action"], older["actor"]["id"]) == ("credential.create", "ann")
    listed = holdfast("audit", ENGINE).out
    assert "user ann" in listed
    assert "maintenance" in listed
    assert holdfast("audit", ENGINE, "--after", "?").code == Exit.USAGE
