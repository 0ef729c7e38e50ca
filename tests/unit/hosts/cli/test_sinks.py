"""`holdfast sink` and `holdfast dead-letter`."""

import pytest

from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.worker import sinks_of
from holdfast.testing.conformance.events import an_event
from tests.sinks import a_receiver, dead_letter
from tests.unit.hosts.cli.conftest import CommandLine

ENGINE = "shop:engine"


def park(holdfast: CommandLine, id: str) -> None:
    """Dead-letter the first event of a run."""
    holdfast.start("a", id=id)
    dead_letter(holdfast.engine().core, "audit", "no \x1b[31m such type")


def test_sinks_are_added_listed_and_removed(holdfast: CommandLine) -> None:
    assert "No sinks" in holdfast("sink", "list", ENGINE).err
    added = holdfast("sink", "add", ENGINE, "audit", "--type", "run.*", "--since", "7d")
    assert (added.code, added.out.startswith("audit receives the events since ")) == (Exit.OK, True)
    (sink,) = holdfast("sink", "list", ENGINE, "--json").json
    assert (sink["name"], sink["types"], sink["failures"], sink["dead_letters"]) == (
        "audit",
        ["run.*"],
        0,
        0,
    )
    assert "audit" in holdfast("sink", "list", ENGINE).out
    assert holdfast("sink", "remove", ENGINE, "audit").out == "audit was removed\n"
    again = holdfast("sink", "remove", ENGINE, "audit", "--json")

    assert (again.code, again.error["code"]) == (Exit.NOT_FOUND, "sink_not_found")


def test_a_name_that_can_not_be_is_refused(holdfast: CommandLine) -> None:
    assert holdfast("sink", "add", ENGINE, "Audit!").code == Exit.USAGE


def test_a_type_that_there_is_none_of_is_refused(holdfast: CommandLine) -> None:
    refused = holdfast("sink", "add", ENGINE, "audit", "--type", "foo.bar")
    assert refused.code == Exit.USAGE
    assert "there are no events of the type 'foo.bar'" in refused.err
    assert (
        "did you mean 'run.failed'?" in holdfast("sink", "add", ENGINE, "audit", "--type", "run.fialed").err
    )

    assert holdfast("sink", "list", ENGINE, "--json").json == []


def test_a_sink_that_is_there_is_not_given_other_types(holdfast: CommandLine) -> None:
    types = ("--type", "run.*", "--type", "user.paid")
    assert holdfast("sink", "add", ENGINE, "audit", *types).code == Exit.OK
    again = holdfast("sink", "add", ENGINE, "audit", *types[2:], *types[:2])
    other = holdfast("sink", "add", ENGINE, "audit", "--type", "stage.*", "--json")
    everything = holdfast("sink", "add", ENGINE, "audit")
    assert again.code == Exit.OK
    assert (other.code, other.error["code"]) == (Exit.REFUSED, "sink_exists")
    assert "for run.*, user.paid" in everything.err

    (sink,) = holdfast("sink", "list", ENGINE, "--json").json
    assert sink["types"] == ["run.*", "user.paid"]


@pytest.mark.parametrize("command", ["list", "replay"])
@pytest.mark.parametrize(("option", "code"), [("--sink", "sink_not_found"), ("--run", "run_not_found")])
def test_letters_of_what_is_not_there_are_not_found(
    holdfast: CommandLine, command: str, option: str, code: str
) -> None:
    holdfast("sink", "add", ENGINE, "audit")
    answer = holdfast("dead-letter", command, ENGINE, option, "nobody", "--json")
    assert (answer.code, answer.error["code"]) == (Exit.NOT_FOUND, code)


def test_a_replay_of_nothing_says_so(holdfast: CommandLine) -> None:
    holdfast("sink", "add", ENGINE, "audit")
    assert holdfast("dead-letter", "replay", ENGINE, "--all").out == "no dead-lettered streams matched\n"
    assert (
        holdfast("dead-letter", "replay", ENGINE, "--sink", "audit").out
        == "no dead-lettered streams matched\n"
    )


def test_dead_letters_are_listed_and_replayed(holdfast: CommandLine) -> None:
    holdfast("sink", "add", ENGINE, "audit")
    assert "No dead letters" in holdfast("dead-letter", "list", ENGINE).err
    park(holdfast, "order-1")
    park(holdfast, "order-2")
    letters = holdfast("dead-letter", "list", ENGINE, "--json").json
    assert [(one["run_id"], one["number"]) for one in letters] == [("order-1", 1), ("order-2", 1)]
    first = holdfast("dead-letter", "list", ENGINE, "--limit", "1")
    cursor = letters[0]["cursor"]
    assert ("order-2" in first.out, f"--after {cursor}" in first.err) == (False, True)
    assert holdfast("dead-letter", "list", ENGINE, "--after", cursor, "--json").json == letters[1:]
    shown = holdfast("dead-letter", "list", ENGINE, "--run", "order-2").out
    assert "order-2" in shown
    assert "order-1" not in shown
    assert "\x1b" not in shown
    replayed = holdfast(
        "dead-letter", "replay", ENGINE, "--run", "order-2", "--skip", "--reason", "odd", "--json"
    )
    assert replayed.json == {"replayed": 1}
    assert holdfast("dead-letter", "replay", ENGINE, "--all").out == "1 stream resumed\n"

    assert holdfast("dead-letter", "list", ENGINE, "--json").json == []


@pytest.mark.parametrize("options", [(), ("--all", "--sink", "audit"), ("--all", "--reason", "x")])
def test_a_replay_says_what_it_is_about(holdfast: CommandLine, options: tuple[str, ...]) -> None:
    assert holdfast("dead-letter", "replay", ENGINE, *options).code == Exit.USAGE


@pytest.mark.parametrize(
    "sink",
    [
        "audit",
        "=log",
        "audit=nothing",
        "audit=ftp://x/y",
        "audit=http://127.0.0.1/",
        "audit=shop:engine",
        "audit=shop:none",
    ],
)
def test_a_worker_is_given_sinks_that_are_some(holdfast: CommandLine, sink: str) -> None:
    assert holdfast("worker", ENGINE, "--sink", sink).code == Exit.USAGE


def test_a_webhook_signs_with_the_secrets_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WEBHOOK_SECRETS_MY_AUDIT", f"whsec_{'A' * 32} whsec_{'B' * 32}")
    with a_receiver() as receiver:
        sinks = sinks_of((f"my-audit={receiver.url}", f"other={receiver.url}"), allow_internal=True)
        for name in ("my-audit", "other"):
            sinks[name].emit([an_event()])
    signed, unsigned = receiver.requests

    assert len(signed.headers["webhook-signature"].split(" ")) == 2
    assert "webhook-signature" not in unsigned.headers


def test_a_secret_that_is_none_is_not_shown(holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WEBHOOK_SECRETS_AUDIT", "s3cret")
    answer = holdfast("worker", ENGINE, "--sink", "audit=https://events.example/")

    assert answer.code == Exit.USAGE
    assert "24 to 64 bytes" in answer.err
    assert "s3cret" not in answer.err
