"""The command `holdfast run start`."""

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, cast

import click
from typing_extensions import override

from holdfast.hosts.cli.console import Screen, safe, screen_options
from holdfast.hosts.cli.engine_options import Target, default_engine
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.filter_options import instant_of, length, named_texts, start_moment
from holdfast.hosts.cli.run_facts import find_run
from holdfast.hosts.cli.run_wait import wait_for
from holdfast.hosts.client.client import Client
from holdfast.hosts.wiring.registry import Authored
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import MEMORY
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.options import CONCURRENCY_MAX, PRIORITY_MAX, StartOptions
from holdfast.kernel.authoring.stages import ConfigurableStage
from holdfast.kernel.commands import RunCreated
from holdfast.kernel.values import decode
from holdfast.kernel.values.type_forms import NoneType, show, unwrap
from holdfast.ports.errors import UnknownWorkflowError
from holdfast.ports.queries.store import SchemaVersion
from holdfast.ports.urls import shown_url

_ENGINE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*|[a-z]+(\+[a-z]+)?://.*", re.ASCII)


class _IfExists(click.Choice[str]):
    """The choices of `--if-exists`. For choices of a related option, the error names that option."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in {"terminate", "rerun", "rerun_failed"}:
            option = "--if-active" if value == "terminate" else "--if-ended"
            self.fail(f"{value!r} depends on whether that run has ended: write {option} {value}", param, ctx)
        return super().convert(value, param, ctx)


@click.command("start", epilog=exits())
@click.argument("words", nargs=-1, metavar="[ENGINE] WORKFLOW[@VERSION] [INPUT]")
@click.option("--input-file", metavar="FILE", help="Read the input from a file; - is stdin.")
@click.option("--id", "run_id", metavar="ID", help="The run's id; drawn if left out.")
@click.option("--idempotency-key", metavar="KEY", help="Starting again with this key starts nothing new.")
@click.option("--queue", metavar="NAME", help="Where its jobs go, unless a stage says otherwise.")
@click.option(
    "--priority",
    type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX),
    default=0,
    help="A greater one is served first.",
)
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=TEXT", help="May be repeated.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="STAGE=JSON",
    help="The config of a stage in this run. May be repeated.",
)
@click.option(
    "--if-exists",
    type=_IfExists(["error", "return"]),
    default="error",
    show_default=True,
    help="If there is a run of this id: refuse, or take that one.",
)
@click.option(
    "--if-active",
    type=click.Choice(["error", "return", "terminate"]),
    help="If that run has not ended: refuse, take it, or end it and start the next generation.",
)
@click.option(
    "--if-ended",
    type=click.Choice(["error", "return", "rerun", "rerun_failed"]),
    help="If that run has ended: refuse, take it, or start the next generation, always or unless it completed.",
)
@click.option(
    "--start-at",
    type=start_moment,
    metavar="TIME",
    help="Begin then: 2026-11-21T08:00Z, 2026-11-21, or in how long, as 90m or 7d.",
)
@click.option(
    "--deadline", type=length, metavar="LENGTH", help="Fail if it takes longer than this, as 90m or 7d."
)
@click.option(
    "--concurrency-key", metavar="TEXT", help="Of the runs with the same key so many go on at a time."
)
@click.option(
    "--concurrency-limit", type=click.IntRange(1, CONCURRENCY_MAX), metavar="N", help="How many; 1."
)
@click.option("--wait", is_flag=True, help="Wait until it ends, as `holdfast run wait` does.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="With --wait: wait no longer."
)
@screen_options
def start_command(
    *,
    screen: Screen,
    words: tuple[str, ...],
    input_file: str | None,
    wait: bool,
    timeout: float | None,
    **settings: object,
) -> None:
    """Start a run, and print its id.

    INPUT is JSON, and must fit the type that the workflow declares. If it begins with a minus, write -- before it.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout goes with --wait")
    spec, workflow, text = _parted(words)
    if input_file is not None:
        if text is not None:
            raise click.UsageError("give the input as INPUT or with --input-file, not both")
        text = _read(input_file)
    options = _options(settings, utc=screen.zone is not None)
    with Target().opened(spec) as engine:
        core = engine.core
        configs = cast("tuple[str, ...]", settings["configs"])
        created = _start(engine.client, workflow, text, options, configs)
        _print_created(screen, core, created, wait=wait)
        ended = wait_for(screen, core, find_run(core, created.run_id), timeout) if wait else Exit.OK
    raise SystemExit(ended)


def _parted(words: tuple[str, ...]) -> tuple[str, str, str | None]:
    """Split the arguments into ENGINE, WORKFLOW and INPUT. Only an engine's name has a colon. Raises UsageError."""
    if _is_engine(words[1:2]) and not _is_engine(words[:1]):
        raise click.UsageError(f"the engine comes first: holdfast run start {words[1]} {words[0]} ...")
    spec, arguments = (words[0], words[1:]) if ":" in "".join(words[:1]) else (default_engine(), words)
    if "://" in spec:
        raise click.UsageError(
            f"{shown_url(spec)} is a store's URL, which has no workflows: a start needs MODULE:ENGINE, "
            "as in shop.workflows:engine"
        )
    match arguments:
        case ():
            raise click.UsageError("WORKFLOW is missing")
        case (workflow,):
            return spec, workflow, None
        case (workflow, text):
            return spec, workflow, text
        case _:
            raise click.UsageError(f"one word too many: {arguments[2]!r}; quote JSON, so that it is one word")


def _is_engine(word: tuple[str, ...]) -> bool:
    """Return whether an argument can only be an engine or a URL, and neither a workflow nor JSON."""
    return any(_ENGINE.fullmatch(one) is not None for one in word)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the input can't be read from {file}: {error}") from None


def _options(settings: dict[str, object], *, utc: bool) -> StartOptions:
    options = StartOptions(
        priority=cast("int", settings["priority"]),
        if_exists=cast('Literal["error", "return"]', settings["if_exists"]),
    )
    if (run_id := settings["run_id"]) is not None:
        options["id"] = str(run_id)
    if (key := settings["idempotency_key"]) is not None:
        options["idempotency_key"] = str(key)
    if (queue := settings["queue"]) is not None:
        options["queue"] = str(queue)
    if (if_active := settings["if_active"]) is not None:
        options["if_active"] = cast('Literal["error", "return", "terminate"]', if_active)
    if (if_ended := settings["if_ended"]) is not None:
        options["if_ended"] = cast('Literal["error", "return", "rerun", "rerun_failed"]', if_ended)
    if (start := cast("datetime | timedelta | None", settings["start_at"])) is not None:
        now = datetime.now(UTC)
        at = instant_of(-start if isinstance(start, timedelta) else start, now, utc=utc)
        options["start_at"] = cast("datetime", at)
    if (deadline := settings["deadline"]) is not None:
        options["deadline"] = cast("timedelta", deadline)
    if (concurrency_key := settings["concurrency_key"]) is not None:
        options["concurrency_key"] = str(concurrency_key)
    if (limit := settings["concurrency_limit"]) is not None:
        options["concurrency_limit"] = cast("int", limit)
    if attributes := named_texts(cast("tuple[str, ...]", settings["attributes"])):
        options["attributes"] = attributes
    return options


def _start(
    client: Client, workflow: str, text: str | None, options: StartOptions, configs: tuple[str, ...]
) -> RunCreated:
    pipeline = _pipeline(client.core, workflow)
    if configs:
        options["overrides"] = [_configured(pipeline, config) for config in configs]
    call = _call(pipeline, text)
    command = client.create(call, options)
    return client.dispatch(command)


def _pipeline(core: Core, workflow: str) -> Authored:
    name, _, version = workflow.partition("@")
    found = core.registry.find_workflow(name, version or None)
    if found is None:
        raise UnknownWorkflowError(name, version or None)
    return found


def _configured(pipeline: Authored, config: str) -> ConfigurableStage[Any, object, Any]:
    """Return a stage with the config of `--config STAGE=JSON`. Raises InvalidValueError if it does not fit."""
    name, equals, text = config.partition("=")
    if not equals:
        raise click.UsageError(f"--config {config!r}: write STAGE=JSON, as extract='{{\"depth\": 3}}'")
    stage = pipeline.bodies.get(name)
    if stage is None:
        known = ", ".join(pipeline.bodies)
        raise click.UsageError(f"--config: {pipeline.name!r} has no stage {name!r}; it has {known}")
    if not isinstance(stage, ConfigurableStage) or stage.shape.config_type is None:
        raise click.UsageError(f"--config: stage {name!r} has no config")
    configurable = cast("ConfigurableStage[Any, object, Any]", stage)
    return configurable.configure(decode(text, cast("Any", stage.shape.config_type)))


def _call(pipeline: Authored, text: str | None) -> Call[object]:
    if isinstance(pipeline, Workflow):
        return Call(pipeline, decode(text or "{}", cast("Any", pipeline.input_type)))
    takes_nothing = unwrap(pipeline.input_type) is NoneType
    if text is None and not takes_nothing:
        wanted = show(cast("Any", pipeline.input_type))
        raise click.UsageError(
            f"workflow {pipeline.name!r} takes an input, a {wanted}, as JSON: INPUT is missing"
        )
    value = None if text is None else decode(text, cast("Any", pipeline.input_type))
    return pipeline(value)


def _print_created(screen: Screen, core: Core, created: RunCreated, *, wait: bool) -> None:
    if core.stores.persistence.read(SchemaVersion()) == MEMORY:
        screen.note("This engine keeps its runs in memory: this one is gone when the command ends.")
    if not created.created:
        screen.note(f"There was this run already; it is {created.status}.")
    if wait:
        screen.note(f"Run {created.run_id}")
    elif screen.as_json:
        screen.data(
            {
                "id": created.run_id,
                "key": created.run,
                "generation": created.generation,
                "status": created.status.value,
                "created": created.created,
            }
        )
    else:
        screen.write(safe(created.run_id))
