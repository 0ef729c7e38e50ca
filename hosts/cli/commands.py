"""The commands and where they are defined. They are imported only when they run.

So `--help` and completion do not import the engine, which takes several times as long as everything else that they do.
Their help comes from `commands.json`. Run `python -m tools.commands`, which generates it, after a change of options or
help; a test keeps it up to date.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import click
from typing_extensions import override

DESCRIPTIONS: Final = Path(__file__).with_name("commands.json")
_HELP: Final = frozenset({"-h", "--help"})
_HERE: Final = "holdfast.hosts.cli"
COMMANDS: Final = {
    "worker": f"{_HERE}.worker:worker_command",
    "worker list": f"{_HERE}.workers:list_command",
    "serve": f"{_HERE}.serve:serve_command",
    "run start": f"{_HERE}.run_start:start_command",
    "run list": f"{_HERE}.run_list:list_command",
    "run show": f"{_HERE}.run_show:show_command",
    "run children": f"{_HERE}.run_show:children_command",
    "run wait": f"{_HERE}.run_wait:wait_command",
    "run logs": f"{_HERE}.run_logs:logs_command",
    "run annotate": f"{_HERE}.annotate:annotate_command",
    "run artifacts": f"{_HERE}.artifacts:artifacts_command",
    "run ai": f"{_HERE}.ai:ai_command",
    "run pause": f"{_HERE}.run_control:pause_command",
    "run resume": f"{_HERE}.run_control:resume_command",
    "run cancel": f"{_HERE}.run_control:cancel_command",
    "run terminate": f"{_HERE}.run_control:terminate_command",
    "run rerun": f"{_HERE}.run_control:rerun_command",
    "run remove": f"{_HERE}.run_control:remove_run_command",
    "run wake": f"{_HERE}.run_control:wake_command",
    "run signal": f"{_HERE}.run_messages:signal_command",
    "run messages": f"{_HERE}.run_messages:messages_command",
    "run query": f"{_HERE}.run_messages:query_command",
    "run update": f"{_HERE}.run_messages:update_command",
    "limit list": f"{_HERE}.limits:list_command",
    "limit show": f"{_HERE}.limits:show_command",
    "limit set": f"{_HERE}.limits:set_command",
    "limit clear": f"{_HERE}.limits:clear_command",
    "key create": f"{_HERE}.keys:create_command",
    "key list": f"{_HERE}.keys:list_command",
    "key rotate": f"{_HERE}.keys:rotate_command",
    "key revoke": f"{_HERE}.keys:revoke_command",
    "audit": f"{_HERE}.keys:audit_command",
    "queue list": f"{_HERE}.queues:list_command",
    "queue pause": f"{_HERE}.queues:pause_command",
    "queue resume": f"{_HERE}.queues:resume_command",
    "workflow list": f"{_HERE}.workflows:list_command",
    "topic list": f"{_HERE}.topics:list_command",
    "topic publish": f"{_HERE}.topics:publish_command",
    "topic remove": f"{_HERE}.topics:remove_command",
    "namespace create": f"{_HERE}.namespaces:create_command",
    "namespace list": f"{_HERE}.namespaces:list_command",
    "namespace show": f"{_HERE}.namespaces:show_command",
    "namespace delete": f"{_HERE}.namespaces:delete_command",
    "schedule list": f"{_HERE}.schedules:list_command",
    "schedule show": f"{_HERE}.schedules:show_command",
    "schedule why": f"{_HERE}.schedules:why_command",
    "schedule next": f"{_HERE}.schedule_next:next_command",
    "schedule create": f"{_HERE}.schedule_put:create_command",
    "schedule update": f"{_HERE}.schedule_put:update_command",
    "schedule pause": f"{_HERE}.schedule_control:pause_command",
    "schedule resume": f"{_HERE}.schedule_control:resume_command",
    "schedule trigger": f"{_HERE}.schedule_control:trigger_command",
    "schedule backfill": f"{_HERE}.schedule_control:backfill_command",
    "schedule remove": f"{_HERE}.schedule_control:remove_command",
    "schedule apply": f"{_HERE}.schedule_control:apply_command",
    "trigger list": f"{_HERE}.triggers:list_command",
    "trigger show": f"{_HERE}.triggers:show_command",
    "trigger pause": f"{_HERE}.triggers:pause_command",
    "trigger resume": f"{_HERE}.triggers:resume_command",
    "trigger remove": f"{_HERE}.triggers:remove_command",
    "trigger apply": f"{_HERE}.triggers:apply_command",
    "why": f"{_HERE}.why:why_command",
    "doctor": f"{_HERE}.doctor:doctor_command",
    "history show": f"{_HERE}.history:show_command",
    "history export": f"{_HERE}.history:export_command",
    "lint": f"{_HERE}.lint:lint_command",
    "replay": f"{_HERE}.replay:replay_history_command",
    "check-upgrade": f"{_HERE}.replay:check_upgrade_command",
    "debug": f"{_HERE}.debug:debug_command",
    "sink add": f"{_HERE}.sinks:add_command",
    "sink remove": f"{_HERE}.sinks:remove_command",
    "sink list": f"{_HERE}.sinks:sinks_command",
    "dead-letter list": f"{_HERE}.sinks:letters_command",
    "dead-letter replay": f"{_HERE}.sinks:replay_command",
    "openapi": f"{_HERE}.openapi:openapi_command",
    "completion": f"{_HERE}.completion:completion_command",
    "db upgrade": f"{_HERE}.database:upgrade_command",
    "db status": f"{_HERE}.database:status_command",
}
"""Command paths, such as `run list`, mapped to `module:name` of the click command, which is imported when it runs."""


class LazyCommand(click.Command):
    """A command with stored help. `place` is `module:name` of the real command, which does everything else.

    If `obj` of the parent context is callable, it is called before the real command runs, with that context and `path`,
    such as `run list`. It returns the defaults of the command's options by name. `below` are the names of the commands
    that begin with this one, such as `list` of `worker list`.
    """

    def __init__(
        self, path: str, place: str, described: Mapping[str, Any], below: Sequence[str] = ()
    ) -> None:
        super().__init__(
            path.rpartition(" ")[2],
            params=[_parameter(one, below) for one in described["params"]],
            help=described["help"],
            epilog=described["epilog"],
        )
        self._path = path
        self._place = place

    def load(self) -> click.Command:
        """Import the real command."""
        module, _, name = self._place.partition(":")
        found: click.Command = getattr(import_module(module), name)
        return found

    @override
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        options = args[: args.index("--")] if "--" in args else args
        if not _HELP.isdisjoint(options) or extra.get("resilient_parsing"):
            return super().make_context(info_name, args, parent, **extra)
        if parent is not None and callable(parent.obj):
            extra["default_map"] = parent.obj(parent, self._path)
        return self.load().make_context(info_name, args, parent, **extra)


def load_lazy_commands(places: Mapping[str, str]) -> Iterator[tuple[str, click.Command]]:
    """Yield each path, such as `run list`, with its command. `places` maps paths to `module:name` of real commands."""
    described = _descriptions()
    for path, place in places.items():
        below = [one.removeprefix(f"{path} ") for one in places if one.startswith(f"{path} ")]
        yield path, LazyCommand(path, place, described[path], below)


def describe(command: click.Command) -> dict[str, object]:
    """Return a command's help and parameters as JSON data."""
    context = click.Context(command, info_name=command.name)
    own = [one for one in command.params if isinstance(one, click.Option | click.Argument)]
    return {
        "help": command.help,
        "epilog": command.epilog,
        "params": [_described(one, context) for one in own],
    }


@cache
def _descriptions() -> Mapping[str, Mapping[str, Any]]:
    return cast("Mapping[str, Mapping[str, Any]]", json.loads(DESCRIPTIONS.read_text(encoding="utf-8")))


def _described(parameter: click.Option | click.Argument, context: click.Context) -> dict[str, object]:
    if isinstance(parameter, click.Argument):
        argument: dict[str, object] = {
            "name": parameter.name,
            "metavar": parameter.make_metavar(context),
            "nargs": parameter.nargs,
            "required": parameter.required,
        }
        return {**argument, **({"choices": choices} if (choices := _choices(parameter)) else {})}
    record = parameter.get_help_record(context)
    described: dict[str, object] = {
        "decls": [*_joined(parameter), parameter.name],
        "help": "" if record is None else record[1],
        "hidden": parameter.hidden,
        "metavar": None if parameter.is_flag or parameter.count else parameter.make_metavar(context),
        "is_flag": parameter.is_flag,
        "multiple": parameter.multiple,
        "choices": _choices(parameter),
    }
    return {name: value for name, value in described.items() if value}


def _choices(parameter: click.Parameter) -> list[str] | None:
    return list(parameter.type.choices) if isinstance(parameter.type, click.Choice) else None


def _joined(option: click.Option) -> Sequence[str]:
    """Return the spellings of an option; a flag is joined with its opposite."""
    if not option.secondary_opts:
        return option.opts
    return [f"{one}/{other}" for one, other in zip(option.opts, option.secondary_opts, strict=True)]


def _parameter(described: Mapping[str, Any], below: Sequence[str]) -> click.Parameter:
    choices = click.Choice(described["choices"]) if "choices" in described else None
    if "decls" not in described:
        return click.Argument(
            [described["name"]],
            metavar=described["metavar"],
            nargs=described["nargs"],
            required=described["required"],
            type=choices,
            shell_complete=_names(below) if below else None,
        )
    make: Callable[..., click.Option] = click.Option
    return make(
        described["decls"],
        help=described.get("help"),
        hidden=described.get("hidden", False),
        metavar=described.get("metavar"),
        is_flag=described.get("is_flag", False),
        multiple=described.get("multiple", False),
        type=choices,
    )


def _names(below: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return the completion of a word that may be one of these names."""
    return lambda _, __, incomplete: [name for name in below if name.startswith(incomplete)]
