"""Batches of commands as the server takes them, and their replies."""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from holdfast.hosts.http.command_operations import CommandAnswers
from holdfast.hosts.http_client.answers import error_of
from holdfast.hosts.inspection.json_form import json_form
from holdfast.ports.errors import CommandError, InvalidArgumentError


def keyed_commands(commands: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], ...]:
    """Return commands that all have an idempotency key. InvalidArgumentError unless they are 1 to 500."""
    keyed = tuple({"idempotency_key": uuid4().hex, **one} for one in commands)
    if not 1 <= len(keyed) <= 500:
        raise InvalidArgumentError("commands", f"dispatch: there are {len(keyed)} commands; pass 1 to 500")
    return keyed


def replies_of(found: CommandAnswers) -> list[Mapping[str, object] | CommandError]:
    """Return the reply to each command, or the error that it was refused with."""
    return [
        one.reply or {} if one.problem is None else cast("CommandError", error_of(_plain(one.problem)))
        for one in found.answers
    ]


def _plain(problem: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", json_form(problem))
