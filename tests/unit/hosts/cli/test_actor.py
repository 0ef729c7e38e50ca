"""`--actor`: who gives a command, and where it is shown."""

import getpass

import pytest

from tests.unit.hosts.cli.conftest import CommandLine, on_the_store

pytestmark = on_the_store  # who acts through a server is the owner of its key


def created_by(holdfast: CommandLine, run_id: str) -> object:
    return holdfast("run", "show", "shop:engine", run_id, "--json").json["started_by"]


@pytest.mark.parametrize(
    ("option", "variable", "actor"),
    [
        ("ann", "bob", {"kind": "user", "id": "ann", "version": ""}),
        ("service:a:b", None, {"kind": "service", "id": "a:b", "version": ""}),
        (None, "service:billing", {"kind": "service", "id": "billing", "version": ""}),
        (None, None, {"kind": "user", "id": "me", "version": ""}),
        (None, "", {"kind": "user", "id": "me", "version": ""}),
    ],
)
def test_the_option_comes_before_the_variable_and_the_name_of_the_user(
    holdfast: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    option: str | None,
    variable: str | None,
    actor: dict[str, str],
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "me")
    if variable is not None:
        monkeypatch.setenv("HOLDFAST_ACTOR", variable)
    given = () if option is None else ("--actor", option)
    assert holdfast("run", "start", "shop:engine", "answer", "{}", "--id", "a", *given).code == 0

    assert created_by(holdfast, "a") == actor


def test_a_user_without_a_name_is_not_named(holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise OSError("no such user")

    monkeypatch.setattr(getpass, "getuser", fail)
    holdfast("run", "start", "shop:engine", "answer", "{}", "--id", "a")

    assert created_by(holdfast, "a") is None


def test_who_cancelled_a_run_is_shown(holdfast: CommandLine) -> None:
    holdfast("run", "start", "shop:engine", "answer", "{}", "--id", "a", "--actor", "bob")
    holdfast("run", "cancel", "shop:engine", "a", "--reason", "too late", "--actor", "ann")
    shown = holdfast("run", "show", "shop:engine", "a", "--history").out
    document = holdfast("run", "show", "shop:engine", "a", "--history", "--json").json

    assert "Started by    user bob\n" in shown
    assert "Cancelled by  user ann\n" in shown
    assert "reason: too late, by user ann\n" in shown
    assert document["cancelled_by"] == {"kind": "user", "id": "ann", "version": ""}
    assert document["history"][-1]["data"] == {
        "actor": {"kind": "user", "id": "ann"},
        "reason": "too late",
    }
    why = holdfast("why", "shop:engine", "a").out
    assert "It was cancelled by user ann " in why
    assert "(reason: 'too late')" in why


def test_bulk_actions_have_their_actor_too(holdfast: CommandLine) -> None:
    holdfast.start("a", id="one")
    assert holdfast("run", "cancel", "shop:engine", "--all", "--yes", "--actor", "ann").code == 0

    assert holdfast("run", "show", "shop:engine", "one", "--json").json["cancelled_by"] == {
        "kind": "user",
        "id": "ann",
        "version": "",
    }


def test_an_actor_that_is_too_long_is_a_usage_error(holdfast: CommandLine) -> None:
    holdfast.start("a", id="one")
    answer = holdfast("run", "cancel", "shop:engine", "one", "--actor", "a" * 201)

    assert answer.code == 2
    assert "actor.id" in answer.err
