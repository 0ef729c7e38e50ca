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
    "why": f"{_HERE}.why:why_command",
    "doctor": f"{_HERE}.doctor:doctor_command",
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
    "db upgrade": f"{_HERE}.database:upgrade_command",
    "db status": f"{_HERE}.database:status_command",
}
"""Command paths, such as `run list`, mapped to `module:name` of the click command, which is imported when it runs."""


class LazyCommand(click.Command):
    """A command with stored help. `place` is `module:name` of the real command, which does everything else.

    If `obj` of the parent context is callable, it is called without arguments before the real command runs.
    """

    def __init__(self, name: str, place: str, described: Mapping[str, Any]) -> None:
        super().__init__(
            name,
            params=[_parameter(one) for one in described["params"]],
            help=described["help"],
            epilog=described["epilog"],
        )
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
            parent.obj()
        return self.load().make_context(info_name, args, parent, **extra)


def load_lazy_commands(places: Mapping[str, str]) -> Iterator[tuple[str, click.Command]]:
    """Yield each path, such as `run list`, with its command. `places` maps paths to `module:name` of real commands."""
    described = _descriptions()
    for path, place in places.items():
        yield path, LazyCommand(path.rpartition(" ")[2], place, described[path])


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
        return {
            "name": parameter.name,
            "metavar": parameter.make_metavar(context),
            "nargs": parameter.nargs,
            "required": parameter.required,
        }
    record = parameter.get_help_record(context)
    described: dict[str, object] = {
        "decls": [*_joined(parameter), parameter.name],
        "help": "" if record is None else record[1],
        "hidden": parameter.hidden,
        "metavar": None if parameter.is_flag or parameter.count else parameter.make_metavar(context),
        "is_flag": parameter.is_flag,
        "multiple": parameter.multiple,
        "choices": list(parameter.type.choices) if isinstance(parameter.type, click.Choice) else None,
    }
    return {name: value for name, value in described.items() if value}


def _joined(option: click.Option) -> Sequence[str]:
    """Return the spellings of an option; a flag is joined with its opposite."""
    if not option.secondary_opts:
        return option.opts
    return [f"{one}/{other}" for one, other in zip(option.opts, option.secondary_opts, strict=True)]


def _parameter(described: Mapping[str, Any]) -> click.Parameter:
    if "decls" not in described:
        return click.Argument(
            [described["name"]],
            metavar=described["metavar"],
            nargs=described["nargs"],
            required=described["required"],
        )
    make: Callable[..., click.Option] = click.Option
    return make(
        described["decls"],
        help=described.get("help"),
        hidden=described.get("hidden", False),
        metavar=described.get("metavar"),
        is_flag=described.get("is_flag", False),
        multiple=described.get("multiple", False),
        type=click.Choice(described["choices"]) if "choices" in described else None,
    )
