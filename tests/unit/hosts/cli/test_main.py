"""The command line as a whole: help, exit codes, errors."""

import sys

import click
import pytest

from holdfast.hosts.cli.app import command_line
from holdfast.hosts.cli.exit_codes import MEANINGS, CliError, Exit, problem_of
from holdfast.hosts.cli.main import main
from holdfast.ports import errors
from tests.unit.hosts.cli.conftest import CommandLine, on_the_store


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_how_to_install_it(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.hosts.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main([]) == 2
    assert 'pip install "holdfast[cli]"' in capsys.readouterr().err


def test_the_help_tells_the_exit_codes(holdfast: CommandLine) -> None:
    answer = holdfast("--help")
    assert answer.code == 0
    for code, meaning in MEANINGS:
        assert f"{code:d}  {meaning}" in answer.out


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        inner = (*path, name)
        found += _commands(command, inner) if isinstance(command, click.Group) else [inner]
    return found


@pytest.mark.parametrize("path", _commands(command_line), ids=" ".join)
def test_every_command_has_help_with_its_exit_codes_and_json(
    holdfast: CommandLine, path: tuple[str, ...]
) -> None:
    answer = holdfast(*path, "--help")
    assert answer.code == 0
    assert "Exit codes:" in answer.out
    assert "--json" in answer.out


def test_the_version_is_told(holdfast: CommandLine) -> None:
    assert holdfast("--version").out.startswith("holdfast")


def test_a_command_of_another_group_is_named(holdfast: CommandLine) -> None:
    answer = holdfast("run", "why", "order-1")
    assert (answer.code, answer.out) == (2, "")
    assert (
        "there is no command `holdfast run why`; did you mean `holdfast schedule why` or `holdfast why`?"
        in answer.err
    )


def test_wrong_usage_points_to_the_help(holdfast: CommandLine) -> None:
    answer = holdfast("run", "list", "--colour")
    assert answer.code == 2
    assert "See `holdfast run list --help`." in answer.err


def test_wrong_usage_is_json_too_where_that_was_asked_for(holdfast: CommandLine) -> None:
    answer = holdfast("run", "list", "--colour", "--json")
    assert (answer.code, answer.error["code"]) == (2, "usage")


def test_json_after_two_minuses_is_a_word(holdfast: CommandLine) -> None:
    assert "there is no run '--json'" in holdfast("run", "show", "shop:engine", "--", "--json").err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RunNotFoundError("x"), 3),
        (errors.UnknownWorkflowError("x"), 3),
        (errors.InvalidCommandError("x"), 2),
        (errors.RunExistsError("x"), 4),
        (errors.StorageRefusedError("x"), 4),
        (errors.RefusedError("x"), 4),
        (errors.UnavailableError("x"), 6),
        (errors.SchemaError("x"), 8),
        (errors.DefinitionError("x"), 2),
        (errors.BlobMissingError("x"), 6),
        (errors.NoBlobStoreError("x"), 2),
        (KeyboardInterrupt(), 130),
        (ExceptionGroup("group", [ExceptionGroup("inner", [errors.UnavailableError("x")])]), 6),
        (ModuleNotFoundError('PostgreSQL needs psycopg: pip install "holdfast[postgres]"'), 2),
        (CliError(Exit.TIMED_OUT, "timeout", "x"), 7),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    problem = problem_of(error)
    assert problem is not None
    assert problem.exit == code


@on_the_store
def test_what_nobody_expected_is_70_with_its_traceback(
    holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("holdfast.hosts.wiring.services.Core.connect", broken)
    answer = holdfast("run", "list", "shop:engine", "--json")
    assert (answer.code, answer.error["code"]) == (70, "unexpected")
    assert "Traceback" in answer.error["detail"]
