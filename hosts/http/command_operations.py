"""The operation that takes the commands of the kernel in their documented JSON form."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, cast

import attrs

from holdfast.hosts.http.authentication.loopback import LOCAL
from holdfast.hosts.http.json_input import INTEGER_MAX, invalid, parse_body, refuse_blob_references
from holdfast.hosts.http.operations import NAMESPACE, Access, Hint, Invocation, Nothing, Operation, Table
from holdfast.hosts.http.principals import ALL_NAMESPACES, Principal, Scope
from holdfast.hosts.http.problems import HttpError, Problem, errors_by_code, problem_of
from holdfast.hosts.http.remote_tasks import KEY_PREFIX
from holdfast.kernel.commands import Command, RunCreate
from holdfast.kernel.commands.codec import to_data
from holdfast.kernel.rules.registry import command_from
from holdfast.ports.errors import CommandError
from holdfast.ports.records.values import Payload

COMMANDS_MAX: Final = 500
"""How many commands one request has, at most."""

SCOPES: Final[Mapping[str, Scope]] = {
    **dict.fromkeys(("run.create", "run.signal", "run.update", "stage.wake", "topic.publish"), Scope.START),
    **dict.fromkeys(
        (
            *("run.cancel", "run.terminate", "run.pause", "run.resume", "run.rerun_from", "run.annotate"),
            *("limit.set", "limit.clear", "dead_letter.replay"),
            *("schedule.put", "schedule.pause", "schedule.resume", "schedule.trigger"),
            *("schedule.backfill", "schedule.remove"),
            *("trigger.put", "trigger.pause", "trigger.resume", "trigger.remove"),
        ),
        Scope.OPERATE,
    ),
    **dict.fromkeys(("run.remove", "sink.register", "sink.remove", "topic.remove"), Scope.ADMIN),
}
"""The scope that a command needs. Others are those of workers and of maintenance, and are refused."""
FOR_ALL_NAMESPACES: Final = frozenset(
    {
        *("credential.create", "credential.rotate", "credential.revoke", "browser_session.delete"),
        *("namespace.create", "namespace.delete"),
        *("run.repair", "run.transition", "session.reap"),
    }
)
"""Commands that need the scope `admin` on all namespaces: their effects are not limited to one."""


@attrs.frozen(kw_only=True)
class CommandBatch:
    """Commands of the kernel."""

    commands: tuple[Mapping[str, object], ...] = attrs.field(
        validator=[attrs.validators.min_len(1), attrs.validators.max_len(COMMANDS_MAX)]
    )
    """The commands in their JSON form, 1 to 500, without `actor`. They are carried out in this order."""
    atomic: bool = False
    """Whether all or none are carried out, in one transaction."""


@attrs.frozen(kw_only=True)
class CommandAnswer:
    """The answer to one command: a reply or a problem."""

    reply: Mapping[str, object] | None
    """The reply of the kernel in its JSON form; null if the command was refused."""
    problem: Problem | None
    """Why the command was refused; null if it was not. It has changed nothing then."""


@attrs.frozen(kw_only=True)
class CommandAnswers:
    """The answers to commands."""

    answers: tuple[CommandAnswer, ...]
    """An answer for each command, in the order of the commands."""


def dispatch_commands(call: Invocation[Nothing, CommandBatch]) -> CommandAnswers:
    """Carry out commands of the kernel.

    The forms of commands and replies are those of the reference of commands. A command's `namespace` may be left out.
    Values are passed `inline`: keys of blobs are refused. The actor is the principal.
    """
    commands = [_command(call, index, data) for index, data in enumerate(call.body.commands)]
    client = call.engine.client
    if call.body.atomic:
        answers: list[object] = [*client.dispatch_together(commands)]
    else:
        answers = [*client.dispatch_many(commands)]
    return CommandAnswers(answers=tuple(_answer(call, one) for one in answers))


def _answer(call: Invocation[Nothing, CommandBatch], answer: object) -> CommandAnswer:
    if not isinstance(answer, CommandError):
        return CommandAnswer(reply=to_data(answer), problem=None)
    problem = problem_of(answer, call.root, sees_values=call.sees_values())
    if problem is None:
        raise answer
    return CommandAnswer(reply=None, problem=problem)


def _command(
    call: Invocation[Nothing, CommandBatch], index: int, data: Mapping[str, object]
) -> Command[object]:
    """Return a command that the principal may send. InvalidCommandError or HttpError."""
    place = f"$.commands[{index}]"
    kind = str(data.get("type"))
    _authorise(call.principal, call.namespace, kind, place)
    if data.get("namespace", call.namespace) != call.namespace:
        raise invalid(f"{place}.namespace", "it is another one than that of the path")
    if data.get("actor") is not None:
        raise invalid(f"{place}.actor", "the actor is the principal: leave it out")
    if data.get("request_id") is not None:
        raise invalid(f"{place}.request_id", "it is that of this request: leave it out")
    _check_integers(data, place)
    command = command_from({**data, "namespace": call.namespace})
    _check(command, call.namespace, place)
    return command


def _authorise(principal: Principal, namespace: str, kind: str, place: str) -> None:
    if principal is LOCAL and kind.startswith("credential."):
        raise HttpError("forbidden", f"{place}: create the first key with POST /v1/keys")
    if kind in FOR_ALL_NAMESPACES:
        if Scope.ADMIN not in principal.scopes or ALL_NAMESPACES not in principal.namespaces:
            raise HttpError("forbidden", f"{place}: {kind} needs the scope 'admin' on all namespaces")
        return
    scope = SCOPES.get(kind)
    if scope is None:
        known = ", ".join(sorted({*SCOPES, *FOR_ALL_NAMESPACES}))
        raise invalid(f"{place}.type", f"it is {kind[:100]!r}; it is one of {known}")
    if not principal.may(scope, namespace):
        raise HttpError("forbidden", f"{place}: {kind} needs the scope {scope.value!r}")


def _check_integers(data: object, place: str) -> None:
    """Refuse integers that no column can hold. Values of users are texts here."""
    match data:
        case str() | bool():
            return
        case int() if abs(data) > INTEGER_MAX:
            raise invalid(place, "a number is too large")
        case dict():
            for key, value in cast("dict[str, object]", data).items():
                if value.__class__ is not str:
                    _check_integers(value, f"{place}.{key}")
        case list():
            for index, value in enumerate(cast("list[object]", data)):
                _check_integers(value, f"{place}[{index}]")
        case _:
            return


def _check(value: object, namespace: str, place: str) -> None:
    """Refuse what only the kernel and its hosts may put into a command, at any depth."""
    match value:
        case Payload(inline=text):
            if text is None:
                raise invalid(place, "it has the key of a blob: pass values inline")
            refuse_blob_references(parse_body(text.encode(errors="surrogatepass")), place)
            return
        case Command(idempotency_key=str() as key) if key.startswith(KEY_PREFIX):
            raise invalid(f"{place}.idempotency_key", f"it does not begin with {KEY_PREFIX}")
        case RunCreate(scheduled=str()):
            raise invalid(f"{place}.scheduled", "only a schedule sets it: leave it out")
        case Command(namespace=other) if other != namespace:
            raise invalid(f"{place}.namespace", "it is another one than that of the path")
        case tuple():
            for index, one in enumerate(cast("tuple[object, ...]", value)):
                _check(one, namespace, f"{place}[{index}]")
            return
        case _:
            pass
    cls: Any = type(value)
    for name in _fields_of(cls):
        if (one := getattr(value, name)).__class__ not in _WITHOUT_PARTS:
            _check(one, namespace, f"{place}.{name}")


_WITHOUT_PARTS: Final = frozenset({str, int, float, bool, type(None)})


@cache
def _fields_of(cls: type) -> tuple[str, ...]:
    """Return the names of the fields of an attrs class; none of another class."""
    return tuple(one.name for one in attrs.fields(cls)) if attrs.has(cls) else ()


OPERATIONS: Final[Table] = (
    Operation(
        name="command.dispatch",
        method="POST",
        path=f"{NAMESPACE}/commands",
        scope=Access.PRINCIPAL,
        body=CommandBatch,
        reply=CommandAnswers,
        handler=dispatch_commands,
        hint=Hint.DESTROYS,
        errors=tuple(one for one in errors_by_code().values() if issubclass(one, CommandError)),
    ),
)
